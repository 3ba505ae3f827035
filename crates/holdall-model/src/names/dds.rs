//! How ROS 2 writes its topics, services and types in DDS, and how to read them back.

/// The ROS 2 meaning of a DDS topic. All names in it are ROS names with a leading `/`, except [`RosName::Other`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RosName {
    /// A ROS topic (`rt/chatter`).
    Topic(String),
    /// Requests of a service (`rq/addRequest`); the name is the service's.
    ServiceRequest(String),
    /// Replies of a service (`rr/addReply`); the name is the service's.
    ServiceReply(String),
    /// A DDS topic that does not follow ROS conventions, unchanged.
    Other(String),
}

/// The DDS name of a ROS topic: `/chatter` becomes `rt/chatter`; a name that is not a full ROS name stays
/// unchanged.
pub fn topic_to_dds(topic: &str) -> String {
    with_prefix("rt", topic, "")
}

/// The DDS topic of a service's requests: `/add` becomes `rq/addRequest`.
pub fn service_request_to_dds(service: &str) -> String {
    with_prefix("rq", service, "Request")
}

/// The DDS topic of a service's replies: `/add` becomes `rr/addReply`.
pub fn service_reply_to_dds(service: &str) -> String {
    with_prefix("rr", service, "Reply")
}

fn with_prefix(prefix: &str, name: &str, suffix: &str) -> String {
    if name.starts_with('/') {
        format!("{prefix}{name}{suffix}")
    } else {
        name.to_owned()
    }
}

/// The ROS meaning of a DDS topic's name.
pub fn name_from_dds(dds_name: &str) -> RosName {
    let after = |prefix: &str| dds_name.strip_prefix(prefix).filter(|rest| rest.starts_with('/'));
    if let Some(topic) = after("rt") {
        return RosName::Topic(topic.to_owned());
    }
    if let Some(service) = after("rq").and_then(|rest| rest.strip_suffix("Request")) {
        return RosName::ServiceRequest(service.to_owned());
    }
    if let Some(service) = after("rr").and_then(|rest| rest.strip_suffix("Reply")) {
        return RosName::ServiceReply(service.to_owned());
    }
    RosName::Other(dds_name.to_owned())
}

/// The DDS name of a ROS type: `std_msgs/msg/String` becomes `std_msgs::msg::dds_::String_`; other types are
/// unchanged.
pub fn type_to_dds(type_name: &str) -> String {
    let tokens: Vec<&str> = type_name.split('/').collect();
    match tokens.split_last() {
        Some((name, namespaces)) if namespaces.len() >= 2 && tokens.iter().all(|t| is_identifier(t)) => {
            format!("{}::dds_::{name}_", namespaces.join("::"))
        }
        _ => type_name.to_owned(),
    }
}

/// The ROS type of a DDS type: `std_msgs::msg::dds_::String_` becomes `std_msgs/msg/String`; other types are
/// unchanged.
pub fn type_from_dds(dds_type: &str) -> String {
    let ros = dds_type
        .strip_suffix('_')
        .and_then(|rest| rest.split_once("::dds_::"))
        .filter(|(namespace, name)| namespace.split("::").all(is_identifier) && is_identifier(name));
    match ros {
        Some((namespace, name)) => format!("{}/{name}", namespace.replace("::", "/")),
        None => dds_type.to_owned(),
    }
}

/// Letters, digits and `_`, not beginning with a digit.
fn is_identifier(token: &str) -> bool {
    let begins_well = token.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    begins_well
        && token
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn topics_and_services_have_their_prefixes() {
        assert_eq!(topic_to_dds("/chatter"), "rt/chatter");
        assert_eq!(topic_to_dds("PlainDds"), "PlainDds");
        assert_eq!(service_request_to_dds("/ns/add"), "rq/ns/addRequest");
        assert_eq!(service_reply_to_dds("/ns/add"), "rr/ns/addReply");
    }

    #[test]
    fn foreign_topics_stay_unchanged() {
        for name in [
            "PlainDds",
            "rtchatter",
            "rt",
            "ros_discovery_info",
            "rq/add",
            "rr/addRequest",
        ] {
            assert_eq!(name_from_dds(name), RosName::Other(name.to_owned()));
        }
    }

    #[test]
    fn types_of_every_kind_go_both_ways() {
        let pairs = [
            ("std_msgs/msg/String", "std_msgs::msg::dds_::String_"),
            ("pkg/srv/X_Event", "pkg::srv::dds_::X_Event_"),
            ("pkg/srv/X_Request", "pkg::srv::dds_::X_Request_"),
            (
                "pkg/action/Fib_FeedbackMessage",
                "pkg::action::dds_::Fib_FeedbackMessage_",
            ),
            (
                "pkg/action/Fib_SendGoal_Event",
                "pkg::action::dds_::Fib_SendGoal_Event_",
            ),
        ];
        for (ros, dds) in pairs {
            assert_eq!(type_to_dds(ros), dds);
            assert_eq!(type_from_dds(dds), ros);
        }
    }

    #[test]
    fn foreign_types_stay_unchanged() {
        for name in [
            "HelloWorld",
            "a::b::C",
            "a::dds_::",
            "::dds_::X_",
            "a::msg::dds_::X",
            "",
            "_",
        ] {
            assert_eq!(type_from_dds(name), name);
            assert_eq!(type_to_dds(name), name);
        }
        assert_eq!(type_to_dds("pkg/Type"), "pkg/Type");
        assert_eq!(type_to_dds("a//b"), "a//b");
    }

    proptest! {
        #[test]
        fn a_ros_name_survives_the_round_trip(name in "(/[a-zA-Z_][a-zA-Z0-9_]{0,8}){1,4}") {
            prop_assert_eq!(name_from_dds(&topic_to_dds(&name)), RosName::Topic(name.clone()));
            prop_assert_eq!(name_from_dds(&service_request_to_dds(&name)), RosName::ServiceRequest(name.clone()));
            prop_assert_eq!(name_from_dds(&service_reply_to_dds(&name)), RosName::ServiceReply(name));
        }

        #[test]
        fn a_ros_type_survives_the_round_trip(name in "[a-z][a-z0-9_]{0,8}/(msg|srv|action)/[A-Z][a-zA-Z0-9_]{0,12}") {
            prop_assert_eq!(type_from_dds(&type_to_dds(&name)), name);
        }

        #[test]
        fn no_dds_name_panics(name in "\\PC{0,24}|[rtqs/:_d]{0,24}") {
            let _ = (name_from_dds(&name), type_from_dds(&name), type_to_dds(&name), topic_to_dds(&name));
        }
    }
}
