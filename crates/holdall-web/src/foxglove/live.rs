//! Permissions of viewers of live topics: watch, and if the user allows it also change something, within the limits of ROS.

use super::{
    assets::Assets,
    hub::{Order, Subject},
};
use holdall_model::{
    interface::validate_type_name,
    names::{NameErrorKind, validate_full_name},
};
use std::sync::mpsc::SyncSender;

/// Requests of viewers go to the bridge's thread, which has the transports.
pub(super) struct Live {
    pub orders: SyncSender<Order>,
    /// Viewers may change something.
    pub control: bool,
    /// Viewers get the time of a simulation.
    pub has_time: bool,
    /// Files that viewers may fetch.
    pub assets: Assets,
}

impl Subject for Live {
    fn capabilities(&self) -> Vec<&'static str> {
        let mut found = vec!["connectionGraph"];
        if self.control {
            found.extend(["clientPublish", "parameters", "parametersSubscribe", "services"]);
        }
        if self.has_time {
            found.push("time");
        }
        if self.assets.are_allowed() {
            found.push("assets");
        }
        found
    }

    fn asset(&self, uri: &str) -> Result<Vec<u8>, String> {
        self.assets.read(uri)
    }

    fn execute(&self, order: Order) -> Result<(), String> {
        if !self.control {
            return match order {
                // A viewer that leaves has nothing to be forgotten.
                Order::Gone { .. } => Ok(()),
                _ => Err("viewers only watch here: publishing, services and parameters are off".to_owned()),
            };
        }
        check(&order)?;
        let sent = self.orders.try_send(order);
        sent.map_err(|_| "viewers send more than can be carried out".to_owned())
    }
}

/// Longest name of a parameter with its node, in bytes.
const PARAMETER_BYTES_MAX: usize = 1024;

/// Refuses names that no node could use: beyond the rules and limits of ROS.
fn check(order: &Order) -> Result<(), String> {
    let check_parameter = |name: &str| match name.len() {
        0..=PARAMETER_BYTES_MAX => Ok(()),
        bytes => Err(format!(
            "a name of a parameter has {bytes} bytes, at most {PARAMETER_BYTES_MAX} are allowed"
        )),
    };
    match order {
        Order::Begin { channel, .. } => {
            validate_full_name(&channel.topic).map_err(|invalid| match invalid.kind {
                // The name itself may have megabytes.
                NameErrorKind::TooLong { .. } => {
                    format!("the name of the topic is not valid: {}", invalid.kind)
                }
                _ => invalid.to_string(),
            })?;
            validate_type_name(&channel.schema_name).map_err(|invalid| invalid.to_string())?;
            if channel.encoding != "cdr" {
                return Err(format!("{}: published messages must be cdr", channel.topic));
            }
            Ok(())
        }
        Order::GetParameters { names, .. } | Order::FollowParameters { names, .. } => {
            names.iter().try_for_each(|name| check_parameter(name))
        }
        Order::SetParameters { parameters, .. } => parameters
            .iter()
            .try_for_each(|given| check_parameter(&given.name)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::foxglove::protocol::{ClientChannel, GivenParameter, ServiceCall};
    use std::sync::mpsc::sync_channel;

    fn begin(topic: &str, schema_name: &str) -> Order {
        let channel = ClientChannel {
            id: 1,
            topic: topic.to_owned(),
            encoding: "cdr".to_owned(),
            schema_name: schema_name.to_owned(),
        };
        Order::Begin { client: 1, channel }
    }

    #[test]
    fn viewers_that_only_watch_change_nothing() {
        let (orders, received) = sync_channel(16);
        let live = Live {
            orders,
            control: false,
            has_time: false,
            assets: Assets::default(),
        };
        assert_eq!(live.capabilities(), ["connectionGraph"]);
        let call = ServiceCall {
            service: 1,
            call: 1,
            encoding: "cdr".to_owned(),
            payload: Vec::new(),
        };
        let parameter = GivenParameter {
            name: "/n.p".to_owned(),
            value: true.into(),
            kind: None,
        };
        for order in [
            begin("/cmd_vel", "geometry_msgs/msg/Twist"),
            Order::Message {
                client: 1,
                channel: 1,
                payload: vec![0],
            },
            Order::Call { client: 1, call },
            Order::GetParameters {
                client: 1,
                names: Vec::new(),
                id: None,
            },
            Order::SetParameters {
                client: 1,
                parameters: vec![parameter],
                id: None,
            },
            Order::FollowParameters {
                client: 1,
                names: Vec::new(),
                follow: true,
            },
        ] {
            assert!(live.execute(order.clone()).is_err(), "{order:?}");
        }
        assert!(received.try_recv().is_err(), "nothing reaches the transports");
    }

    #[test]
    fn names_of_viewers_keep_to_the_limits_of_ros() {
        let string = "std_msgs/msg/String";
        let long = format!("/{}", "n".repeat(5000));
        for (topic, type_name, is_valid) in [
            ("/ok", string, true),
            ("", string, false),
            ("/", string, false),
            ("relative", string, false),
            ("/a b", string, false),
            ("/\0x", string, false),
            ("/<b>x</b>", string, false),
            ("/\u{1b}[31mred", string, false),
            (&long, string, false),
            ("/ok", "", false),
            ("/ok", "../../x", false),
            ("/ok", "String", false),
            ("/ok", &format!("std_msgs/msg/{}", "a".repeat(60_000)), false),
        ] {
            let refused = check(&begin(topic, type_name));
            assert_eq!(refused.is_ok(), is_valid, "{topic:?} {type_name:?}");
            assert!(refused.err().unwrap_or_default().len() < 1000);
        }
        let names = vec!["/n.p".repeat(1000)];
        assert!(
            check(&Order::GetParameters {
                client: 1,
                names,
                id: None
            })
            .is_err()
        );
    }
}
