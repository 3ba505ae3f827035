//! Joins the live topics by the transports that were asked for and that this build has.

use crate::{exit::Failure, typed::TransportName};
use holdall_io::clock::Clock;
use holdall_transport::Transport;
use std::sync::Arc;

/// The transports that `--transport auto` tries, in the order in which a topic without an origin prefers them.
const ALL: [TransportName; 3] = [TransportName::Dds, TransportName::Zenoh, TransportName::Iceoryx2];

/// Joins by each transport of `names`, once each and in their order, as a node of this name.
///
/// # Errors
/// A transport that was asked for by name and that this build has not, or that cannot be started; for `auto` when not one can.
pub fn join(
    names: &[TransportName],
    node_name: &str,
    clock: &Arc<dyn Clock>,
) -> Result<Vec<Box<dyn Transport>>, Failure> {
    let mut joined: Vec<(TransportName, Box<dyn Transport>)> = Vec::new();
    for name in wanted(names) {
        if joined.iter().any(|(known, _)| *known == name) {
            continue;
        }
        let by_name = names.contains(&name);
        match join_one(name, node_name, clock) {
            Ok(transport) => joined.push((name, transport)),
            Err(failure) if by_name => return Err(failure),
            Err(Failure::Refused(reason)) => tracing::debug!("{reason}"),
            Err(Failure::Failed(reason)) => tracing::warn!("{reason}; going on without it"),
        }
    }
    if joined.is_empty() {
        return Err(Failure::refused(
            "--transport auto: this build of holdall has no transport that can be started here",
        ));
    }
    Ok(joined.into_iter().map(|(_, transport)| transport).collect())
}

/// What `names` stand for: those given by name first.
fn wanted(names: &[TransportName]) -> Vec<TransportName> {
    let mut wanted: Vec<TransportName> = names
        .iter()
        .copied()
        .filter(|name| *name != TransportName::Auto)
        .collect();
    if names.contains(&TransportName::Auto) {
        wanted.extend(ALL);
    }
    wanted
}

fn join_one(
    name: TransportName,
    node_name: &str,
    clock: &Arc<dyn Clock>,
) -> Result<Box<dyn Transport>, Failure> {
    match name {
        TransportName::Dds => dds(node_name, clock),
        TransportName::Iceoryx2 => iceoryx2(node_name, clock),
        TransportName::Zenoh => zenoh(node_name, clock),
        TransportName::Auto => unreachable!("auto was replaced by what it stands for"),
    }
}

/// Why a transport cannot be used.
#[allow(dead_code, reason = "a build with every transport lacks none")]
fn lacking(name: &str) -> Failure {
    Failure::refused(format!(
        "--transport {name}: this build of holdall has no {name}; build it with --features {name}"
    ))
}

#[cfg(feature = "dds")]
fn dds(node_name: &str, clock: &Arc<dyn Clock>) -> Result<Box<dyn Transport>, Failure> {
    use holdall_transport::dds::{DdsOptions, DdsTransport};
    let options = DdsOptions::for_node(node_name);
    options.environment.check().map_err(Failure::refused)?;
    let transport = DdsTransport::new(&options, Arc::clone(clock)).map_err(Failure::failed)?;
    Ok(Box::new(transport))
}

#[cfg(not(feature = "dds"))]
fn dds(_: &str, _: &Arc<dyn Clock>) -> Result<Box<dyn Transport>, Failure> {
    Err(lacking("dds"))
}

fn iceoryx2(_: &str, _: &Arc<dyn Clock>) -> Result<Box<dyn Transport>, Failure> {
    Err(lacking("iceoryx2"))
}

fn zenoh(_: &str, _: &Arc<dyn Clock>) -> Result<Box<dyn Transport>, Failure> {
    Err(lacking("zenoh"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_io::clock::SystemClock;

    #[test]
    fn auto_stands_for_all_behind_those_given_by_name() {
        let names = [TransportName::Auto, TransportName::Iceoryx2];
        let found = wanted(&names);
        assert_eq!(found.first(), Some(&TransportName::Iceoryx2));
        assert!(ALL.iter().all(|name| found.contains(name)));
        assert!(!found.contains(&TransportName::Auto));
    }

    #[cfg(not(feature = "zenoh"))]
    #[test]
    fn a_transport_that_this_build_has_not_is_refused_with_what_to_do() {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let Err(Failure::Refused(reason)) = join(&[TransportName::Zenoh], "node", &clock).map(drop) else {
            panic!("not refused");
        };
        assert!(reason.contains("--features zenoh"), "{reason}");
    }
}
