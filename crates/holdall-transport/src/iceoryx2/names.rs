//! Names: services as topics, iceoryx2's nodes as ROS nodes.

use holdall_io::fs;
use holdall_model::topic::NodeName;
use std::{path::Path, sync::OnceLock};

/// The file in which Linux stores the computer's name.
const HOST_FILE: &str = "/proc/sys/kernel/hostname";

/// Linux limits the name to 64 bytes.
const HOST_BYTES_MAX: u64 = 1024;

/// The name of this computer, on which all processes run that share memory with us.
pub(super) fn this_host() -> Option<&'static str> {
    static NAME: OnceLock<Option<String>> = OnceLock::new();
    let name = NAME.get_or_init(|| {
        let text = fs::read_to_string(Path::new(HOST_FILE), HOST_BYTES_MAX).ok()?;
        Some(text.trim().to_owned()).filter(|name| !name.is_empty())
    });
    name.as_deref()
}

/// Prefix of the names of services that are ROS topics, as in `rmw_iceoryx2`.
const ROS_TOPIC: &str = "ros2://topics";

/// Separators of the context and the node's name in node names of `rmw_iceoryx2`: `ros2://context/<id>/nodes/<ns>/<name>`.
const ROS_NODE: (&str, &str) = ("ros2://context/", "/nodes/");

/// The topic that a service is recorded as. ROS services have their topic's name; in other names each
/// character that ROS does not allow becomes `_`.
pub(super) fn topic_of_service(service: &str) -> String {
    if let Some(topic) = service.strip_prefix(ROS_TOPIC)
        && topic.starts_with('/')
    {
        return topic.to_owned();
    }
    let mut topic = String::with_capacity(service.len() + 1);
    for character in service.chars() {
        let begins_part = topic.is_empty() || topic.ends_with('/');
        match character {
            '/' if begins_part && !topic.is_empty() => {}
            '/' => topic.push('/'),
            _ => {
                if topic.is_empty() {
                    topic.push('/');
                }
                let begins_part = topic.ends_with('/');
                // A part that begins with `_` would be hidden, one that begins with a digit is not valid.
                let is_allowed = character.is_ascii_alphanumeric() || (character == '_' && !begins_part);
                if begins_part && !character.is_ascii_alphabetic() {
                    topic.push('s');
                }
                topic.push(if is_allowed { character } else { '_' });
            }
        }
    }
    let topic = topic.trim_end_matches('/');
    if topic.is_empty() {
        "/service".to_owned()
    } else {
        topic.to_owned()
    }
}

/// The service of a topic that was not recorded from one.
pub(super) fn service_of_topic(topic: &str) -> String {
    format!("{ROS_TOPIC}{topic}")
}

/// The service for a topic that is published under another name than it was recorded under: named in the way
/// of `recorded`.
pub(super) fn renamed_service(recorded: &str, topic: &str) -> String {
    if topic_of_service(recorded) == topic {
        recorded.to_owned()
    } else if recorded.starts_with(ROS_TOPIC) {
        service_of_topic(topic)
    } else {
        topic.trim_start_matches('/').to_owned()
    }
}

/// A node's ROS name; `None` for nodes without a name.
pub(super) fn node_name(name: &str) -> Option<NodeName> {
    let (context, nodes) = ROS_NODE;
    let path = name
        .strip_prefix(context)
        .and_then(|rest| rest.split_once(nodes))
        .map_or(name, |(_, path)| path);
    let path = path.trim_matches('/');
    let (namespace, name) = path.rsplit_once('/').unwrap_or(("", path));
    (!name.is_empty()).then(|| NodeName {
        namespace: format!("/{namespace}"),
        name: name.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_become_topics_with_valid_names() {
        for (service, topic) in [
            ("ros2://topics/camera/image", "/camera/image"),
            ("My/Funk/ServiceName", "/My/Funk/ServiceName"),
            ("/already/there", "/already/there"),
            ("Radar Front: 1", "/Radar_Front__1"),
            ("a//b/", "/a/b"),
            ("7up/_x", "/s7up/s_x"),
            ("ü", "/s_"),
            ("/", "/service"),
        ] {
            assert_eq!(topic_of_service(service), topic, "{service}");
            holdall_model::names::validate_full_name(topic).unwrap();
        }
    }

    #[test]
    fn a_renamed_topic_goes_to_a_service_in_the_manner_of_the_old_one() {
        assert_eq!(renamed_service("ros2://topics/a", "/a"), "ros2://topics/a");
        assert_eq!(renamed_service("ros2://topics/a", "/b"), "ros2://topics/b");
        assert_eq!(renamed_service("My Radar", "/My_Radar"), "My Radar");
        assert_eq!(renamed_service("My Radar", "/old/radar"), "old/radar");
    }

    #[test]
    fn nodes_of_rmw_iceoryx2_have_their_ros_names() {
        let name = |text| node_name(text).map(|name| name.to_string());
        assert_eq!(
            name("ros2://context/7/nodes/front/camera").as_deref(),
            Some("/front/camera")
        );
        assert_eq!(name("ros2://context/7/nodes/camera").as_deref(), Some("/camera"));
        assert_eq!(name("camera node").as_deref(), Some("/camera node"));
        assert_eq!(name(""), None);
    }
}
