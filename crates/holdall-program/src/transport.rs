//! Joins the live topics through the transports that were requested and that this build has.

use crate::{exit::Failure, names::TransportName};
use holdall_io::clock::Clock;
use holdall_model::topic::NodeName;
use holdall_transport::{
    Transport,
    registry::{self, OpenError, OpenOptions},
};
use std::sync::Arc;

/// The use that a program makes of its transports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// It receives each message once, whatever brings it: `auto` has transports that only complete others, too.
    Record,
    /// Whatever else: `auto` leaves them out, because each message would come or go twice.
    Other,
}

/// Joins through each transport of `names`, once each and in their order, as this node; without
/// names through the one that `RMW_IMPLEMENTATION` selects. In secured domains it belongs to the enclave.
///
/// # Errors
/// When a transport that was requested by name is not in this build or cannot be started; for `auto` when
/// none can.
pub fn join(
    names: &[TransportName],
    node: &NodeName,
    enclave: Option<&str>,
    clock: &Arc<dyn Clock>,
    purpose: Purpose,
) -> Result<Vec<Box<dyn Transport>>, Failure> {
    let rmw = variable("RMW_IMPLEMENTATION");
    let of_environment = [TransportName::Id(registry::id_by_rmw(rmw.as_deref()))];
    let names = if names.is_empty() { &of_environment } else { names };
    let options = OpenOptions {
        node,
        enclave,
        variable: &variable,
        clock: Arc::clone(clock),
    };
    let mut joined: Vec<(&str, Box<dyn Transport>)> = Vec::new();
    for id in wanted(names, purpose) {
        if joined.iter().any(|(known, _)| *known == id) {
            continue;
        }
        let by_name = names.contains(&TransportName::Id(id));
        let completes = registry::transports()
            .iter()
            .any(|entry| entry.id == id && entry.completes_others);
        if !by_name
            && completes
            && let Some(reason) = registry::missing(id, &variable)
        {
            // Most computers with DDS have no ROS 2 that is sourced for this.
            tracing::info!("--transport auto is without {id}: {reason}");
            continue;
        }
        match registry::open(id, &options) {
            Ok(transport) => joined.push((id, transport)),
            Err(error) if by_name => return Err(failure(error)),
            Err(error @ OpenError::Absent(_)) => tracing::debug!("{error}"),
            Err(error) => tracing::warn!("{error}; continuing without it"),
        }
    }
    if joined.is_empty() {
        return Err(Failure::refused(
            "--transport auto: this build of holdall has no transport that can be started here",
        ));
    }
    Ok(joined.into_iter().map(|(_, transport)| transport).collect())
}

fn failure(error: OpenError) -> Failure {
    match error {
        OpenError::Absent(id) => Failure::refused(format!(
            "--transport {id}: this build of holdall has no {id}; build it with --features {id}"
        )),
        OpenError::Variable(reason) => Failure::refused(reason),
        error => Failure::failed(error),
    }
}

/// An environment variable that is set and not empty.
pub fn variable(name: &str) -> Option<String> {
    std::env::var_os(name)
        .map(|value| value.to_string_lossy().into_owned())
        .filter(|value| !value.trim().is_empty())
}

/// The ids of the transports for `names`: those given by name first.
fn wanted(names: &[TransportName], purpose: Purpose) -> Vec<&'static str> {
    let mut wanted: Vec<&str> = names
        .iter()
        .filter_map(|name| match name {
            TransportName::Id(id) => Some(*id),
            TransportName::Auto => None,
        })
        .collect();
    if names.contains(&TransportName::Auto) {
        let joins = |entry: &&registry::Entry| !entry.completes_others || purpose == Purpose::Record;
        let all = registry::transports().iter().filter(joins);
        wanted.extend(all.map(|entry| entry.id));
    }
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_is_all_transports_after_those_given_by_name() {
        let last = registry::transports().last().unwrap().id;
        let names = [TransportName::Auto, TransportName::Id(last)];
        let found = wanted(&names, Purpose::Other);
        assert_eq!(found.first(), Some(&last));
        for entry in registry::transports() {
            let is_wanted = found.contains(&entry.id);
            assert_eq!(is_wanted, !entry.completes_others || entry.id == last);
            assert!(wanted(&[TransportName::Auto], Purpose::Record).contains(&entry.id));
        }
    }

    #[test]
    fn a_transport_that_this_build_has_not_is_refused_with_what_to_do() {
        let clock: Arc<dyn Clock> = Arc::new(holdall_io::clock::SystemClock);
        let Err(Failure::Refused(reason)) = join(
            &[TransportName::Id("pigeon")],
            &NodeName::in_root("node"),
            None,
            &clock,
            Purpose::Other,
        )
        .map(drop) else {
            panic!("not refused");
        };
        assert!(reason.contains("--features pigeon"), "{reason}");
    }
}
