//! Joins the live topics through the transports that were requested and that this build has.

use crate::{exit::Failure, typed::TransportName};
use holdall_io::clock::Clock;
use holdall_transport::Transport;
use std::sync::Arc;

/// The transports that `--transport auto` tries, in the order in which a topic without an origin prefers them.
const ALL: [TransportName; 3] = [TransportName::Dds, TransportName::Zenoh, TransportName::Iceoryx2];

/// Joins through each transport of `names`, once each and in their order, as a node of this name; without
/// names through the one that `RMW_IMPLEMENTATION` selects.
///
/// # Errors
/// When a transport that was requested by name is not in this build or cannot be started; for `auto` when
/// none can.
pub fn join(
    names: &[TransportName],
    node_name: &str,
    clock: &Arc<dyn Clock>,
) -> Result<Vec<Box<dyn Transport>>, Failure> {
    let of_environment = [named_by(variable("RMW_IMPLEMENTATION").as_deref())];
    let names = if names.is_empty() { &of_environment } else { names };
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

/// An environment variable that is set and not empty.
pub fn variable(name: &str) -> Option<String> {
    std::env::var_os(name)
        .map(|value| value.to_string_lossy().into_owned())
        .filter(|value| !value.trim().is_empty())
}

/// The transport of ROS's own choice: `rmw_zenoh_cpp` is zenoh, all others are DDS.
fn named_by(rmw_implementation: Option<&str>) -> TransportName {
    match rmw_implementation {
        Some("rmw_zenoh_cpp") => TransportName::Zenoh,
        _ => TransportName::Dds,
    }
}

/// The transports for `names`: those given by name first.
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

#[cfg(feature = "iceoryx2")]
fn iceoryx2(node_name: &str, clock: &Arc<dyn Clock>) -> Result<Box<dyn Transport>, Failure> {
    use holdall_transport::iceoryx2::Iceoryx2Transport;
    let transport = Iceoryx2Transport::new(node_name, Arc::clone(clock)).map_err(Failure::failed)?;
    Ok(Box::new(transport))
}

#[cfg(not(feature = "iceoryx2"))]
fn iceoryx2(_: &str, _: &Arc<dyn Clock>) -> Result<Box<dyn Transport>, Failure> {
    Err(lacking("iceoryx2"))
}

#[cfg(feature = "zenoh")]
fn zenoh(node_name: &str, clock: &Arc<dyn Clock>) -> Result<Box<dyn Transport>, Failure> {
    use holdall_model::topic::NodeName;
    use holdall_transport::zenoh::{ZenohEnvironment, ZenohOptions, ZenohTransport};
    let environment = ZenohEnvironment {
        session_config_uri: variable("ZENOH_SESSION_CONFIG_URI").map(Into::into),
        config_override: variable("ZENOH_CONFIG_OVERRIDE"),
        router_check_attempts: variable("ZENOH_ROUTER_CHECK_ATTEMPTS"),
    };
    environment.check().map_err(Failure::refused)?;
    let options = ZenohOptions {
        domain_id: domain_of(variable("ROS_DOMAIN_ID").as_deref()).map_err(Failure::refused)?,
        node: NodeName {
            namespace: "/".to_owned(),
            name: node_name.to_owned(),
        },
        environment,
    };
    let transport = ZenohTransport::new(&options, Arc::clone(clock)).map_err(Failure::failed)?;
    Ok(Box::new(transport))
}

#[cfg(not(feature = "zenoh"))]
fn zenoh(_: &str, _: &Arc<dyn Clock>) -> Result<Box<dyn Transport>, Failure> {
    Err(lacking("zenoh"))
}

/// The number in `ROS_DOMAIN_ID`, with the bounds that hold for all of ROS.
#[cfg(any(test, feature = "zenoh"))]
fn domain_of(text: Option<&str>) -> Result<u32, String> {
    let Some(text) = text else { return Ok(0) };
    match text.trim().parse() {
        Ok(id @ 0..=232) => Ok(id),
        _ => Err(format!(
            "ROS_DOMAIN_ID must be a number from 0 to 232, not {text:?}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_stands_for_all_behind_those_given_by_name() {
        let names = [TransportName::Auto, TransportName::Iceoryx2];
        let found = wanted(&names);
        assert_eq!(found.first(), Some(&TransportName::Iceoryx2));
        assert!(ALL.iter().all(|name| found.contains(name)));
        assert!(!found.contains(&TransportName::Auto));
    }

    #[test]
    fn ros_s_own_choice_is_followed() {
        assert_eq!(named_by(Some("rmw_zenoh_cpp")), TransportName::Zenoh);
        for name in [None, Some("rmw_fastrtps_cpp"), Some("rmw_cyclonedds_cpp")] {
            assert_eq!(named_by(name), TransportName::Dds);
        }
    }

    #[test]
    fn domains_have_their_bounds() {
        assert_eq!((domain_of(None), domain_of(Some(" 42 "))), (Ok(0), Ok(42)));
        for text in ["233", "-1", "x"] {
            assert!(domain_of(Some(text)).unwrap_err().contains("0 to 232"));
        }
    }

    #[cfg(not(feature = "zenoh"))]
    #[test]
    fn a_transport_that_this_build_has_not_is_refused_with_what_to_do() {
        let clock: Arc<dyn Clock> = Arc::new(holdall_io::clock::SystemClock);
        let Err(Failure::Refused(reason)) = join(&[TransportName::Zenoh], "node", &clock).map(drop) else {
            panic!("not refused");
        };
        assert!(reason.contains("--features zenoh"), "{reason}");
    }
}
