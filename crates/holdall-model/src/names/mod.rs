//! Names of topics, services, actions and nodes: the rules of rcl and rmw, and which topics belong to a name.

pub mod dds;

use crate::topic::NodeName;

/// Longest full topic or service name in bytes (`RMW_TOPIC_MAX_NAME_LENGTH`: 255 less the DDS prefix).
pub(crate) const TOPIC_NAME_BYTES_MAX: usize = 247;
/// Longest node name in bytes (`RMW_NODE_NAME_MAX_NAME_LENGTH`).
pub(crate) const NODE_NAME_BYTES_MAX: usize = 255;

/// Ending of service introspection topics.
pub(crate) const SERVICE_EVENT_SUFFIX: &str = "/_service_event";

/// Why a name is not a valid ROS 2 name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameErrorKind {
    /// No characters.
    #[error("it is empty")]
    Empty,
    /// A full name begins with `/`.
    #[error("it does not begin with '/'")]
    NotAbsolute,
    /// Names end in a token.
    #[error("it ends with '/'")]
    EndsWithSlash,
    /// A character other than letters, digits, `_` and `/`.
    #[error("{found:?} at byte {offset} is not allowed; names hold letters, digits, '_' and '/'")]
    Character {
        /// The character.
        found: char,
        /// Its offset in bytes.
        offset: usize,
    },
    /// An empty token.
    #[error("'//' at byte {offset} leaves a token empty")]
    RepeatedSlash {
        /// Offset of the second slash in bytes.
        offset: usize,
    },
    /// A token that begins with a digit.
    #[error("the token at byte {offset} begins with a digit")]
    TokenStartsWithDigit {
        /// Offset of the token in bytes.
        offset: usize,
    },
    /// Longer than DDS allows.
    #[error("it has {bytes} bytes, at most {bytes_max} are allowed")]
    TooLong {
        /// Length in bytes.
        bytes: usize,
        /// Largest length in bytes.
        bytes_max: usize,
    },
    /// `~` that is not followed by `/` or the end.
    #[error("'~' must be the whole name or be followed by '/'")]
    MisplacedTilde,
}

/// A name that breaks the rules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not a valid {what} name: {kind}")]
pub struct NameError {
    /// `topic`, `node` or `namespace`.
    pub what: &'static str,
    /// The name as given.
    pub name: String,
    /// The fault.
    pub kind: NameErrorKind,
}

/// Checks a full topic or service name such as `/camera/image_raw` (`rmw_validate_full_topic_name`).
///
/// # Errors
/// The first rule that the name breaks.
pub fn validate_full_name(name: &str) -> Result<(), NameError> {
    check_full(name, TOPIC_NAME_BYTES_MAX).map_err(|kind| error("topic", name, kind))
}

/// Checks a node's name, without namespace (`rmw_validate_node_name`).
///
/// # Errors
/// The first rule that the name breaks.
pub fn validate_node_name(name: &str) -> Result<(), NameError> {
    check_node(name).map_err(|kind| error("node", name, kind))
}

/// Expands a name as a node does: `chatter` becomes `/chatter`, `~/image` becomes `/node/image`.
///
/// # Errors
/// When the expanded name is not valid.
pub fn expand_name(name: &str, node: &NodeName) -> Result<String, NameError> {
    if name.is_empty() {
        return Err(error("topic", name, NameErrorKind::Empty));
    }
    let full = if let Some(rest) = name.strip_prefix('~') {
        if !rest.is_empty() && !rest.starts_with('/') {
            return Err(error("topic", name, NameErrorKind::MisplacedTilde));
        }
        format!("{node}{rest}")
    } else if name.starts_with('/') {
        name.to_owned()
    } else {
        format!("{}/{name}", node.namespace.trim_end_matches('/'))
    };
    validate_full_name(&full).map_err(|invalid| error("topic", name, invalid.kind))?;
    Ok(full)
}

/// Whether a name is hidden: any of its tokens begins with `_`.
pub(crate) fn is_hidden(name: &str) -> bool {
    name.split('/').any(|token| token.starts_with('_'))
}

/// The topic that carries a service's requests and responses (service introspection).
pub fn service_event_topic(service: &str) -> String {
    if service.ends_with(SERVICE_EVENT_SUFFIX) {
        return service.to_owned();
    }
    format!("{service}{SERVICE_EVENT_SUFFIX}")
}

/// The service whose introspection topic this is; `None` for other topics.
///
/// The name must end in `/_service_event`, and the type must be a service's event (`pkg/srv/X_Event`).
pub fn service_of_event_topic<'a>(topic: &'a str, type_name: &str) -> Option<&'a str> {
    let service = topic
        .strip_suffix(SERVICE_EVENT_SUFFIX)
        .filter(|service| !service.is_empty())?;
    service_of_event_type(type_name).map(|_| service)
}

/// The service or action type part of an event type: `pkg/srv/X` of `pkg/srv/X_Event`.
pub fn service_of_event_type(type_name: &str) -> Option<&str> {
    let service = type_name.strip_suffix("_Event")?;
    let (package_kind, name) = service.rsplit_once('/')?;
    let kind = package_kind.rsplit_once('/')?.1;
    (matches!(kind, "srv" | "action") && !name.is_empty()).then_some(service)
}

/// The part that follows the action's name in every topic of an action.
const ACTION_PART: &str = "/_action/";

/// The action that a topic belongs to; `None` for other topics.
///
/// An action has five: `<action>/_action/feedback`, `<action>/_action/status`, and the introspection topics of its services `send_goal`,
/// `cancel_goal` and `get_result`. The type must be the one that goes with the name.
pub fn action_of_topic<'a>(topic: &'a str, type_name: &str) -> Option<&'a str> {
    let (action, part) = topic.rsplit_once(ACTION_PART)?;
    let is_of_action = match part {
        "feedback" => type_name.contains("/action/") && type_name.ends_with("_FeedbackMessage"),
        "status" => type_name == "action_msgs/msg/GoalStatusArray",
        "send_goal/_service_event" => type_name.ends_with("_SendGoal_Event"),
        "get_result/_service_event" => type_name.ends_with("_GetResult_Event"),
        "cancel_goal/_service_event" => type_name == "action_msgs/srv/CancelGoal_Event",
        _ => false,
    };
    (is_of_action && !action.is_empty()).then_some(action)
}

fn error(what: &'static str, name: &str, kind: NameErrorKind) -> NameError {
    NameError {
        what,
        name: name.to_owned(),
        kind,
    }
}

fn check_full(name: &str, bytes_max: usize) -> Result<(), NameErrorKind> {
    if name.is_empty() {
        return Err(NameErrorKind::Empty);
    }
    if !name.starts_with('/') {
        return Err(NameErrorKind::NotAbsolute);
    }
    if name.ends_with('/') {
        return Err(NameErrorKind::EndsWithSlash);
    }
    check_characters(name, true)?;
    if let Some(offset) = name.find("//") {
        return Err(NameErrorKind::RepeatedSlash { offset: offset + 1 });
    }
    let starts = name
        .bytes()
        .zip(name.bytes().skip(1))
        .position(|(a, b)| a == b'/' && b.is_ascii_digit());
    if let Some(slash) = starts {
        return Err(NameErrorKind::TokenStartsWithDigit { offset: slash + 1 });
    }
    check_length(name, bytes_max)
}

fn check_node(name: &str) -> Result<(), NameErrorKind> {
    if name.is_empty() {
        return Err(NameErrorKind::Empty);
    }
    check_characters(name, false)?;
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(NameErrorKind::TokenStartsWithDigit { offset: 0 });
    }
    check_length(name, NODE_NAME_BYTES_MAX)
}

fn check_characters(name: &str, slash_allowed: bool) -> Result<(), NameErrorKind> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || (c == '/' && slash_allowed);
    match name.char_indices().find(|&(_, c)| !allowed(c)) {
        Some((offset, found)) => Err(NameErrorKind::Character { found, offset }),
        None => Ok(()),
    }
}

fn check_length(name: &str, bytes_max: usize) -> Result<(), NameErrorKind> {
    if name.len() > bytes_max {
        return Err(NameErrorKind::TooLong {
            bytes: name.len(),
            bytes_max,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn node() -> NodeName {
        NodeName {
            namespace: "/".to_owned(),
            name: "recorder".to_owned(),
        }
    }

    #[test]
    fn full_names_follow_the_rules_of_rmw() {
        for good in ["/a", "/a/b_1", "/_hidden/x", "/A9/_"] {
            assert_eq!(validate_full_name(good), Ok(()));
        }
        let kind = |name: &str| validate_full_name(name).unwrap_err().kind;
        assert_eq!(kind(""), NameErrorKind::Empty);
        assert_eq!(kind("chatter"), NameErrorKind::NotAbsolute);
        assert_eq!(kind("/"), NameErrorKind::EndsWithSlash);
        assert_eq!(kind("/a/"), NameErrorKind::EndsWithSlash);
        assert_eq!(
            kind("/a b"),
            NameErrorKind::Character {
                found: ' ',
                offset: 2
            }
        );
        assert_eq!(
            kind("/ä"),
            NameErrorKind::Character {
                found: 'ä',
                offset: 1
            }
        );
        assert_eq!(kind("/a//b"), NameErrorKind::RepeatedSlash { offset: 3 });
        assert_eq!(kind("/a/1b"), NameErrorKind::TokenStartsWithDigit { offset: 3 });
        let long = format!("/{}", "a".repeat(247));
        assert_eq!(
            kind(&long),
            NameErrorKind::TooLong {
                bytes: 248,
                bytes_max: 247
            }
        );
    }

    #[test]
    fn an_error_reads_as_one_sentence() {
        let error = validate_full_name("/a//b").unwrap_err();
        assert_eq!(
            error.to_string(),
            "\"/a//b\" is not a valid topic name: '//' at byte 3 leaves a token empty"
        );
    }

    #[test]
    fn node_names_have_rules_of_their_own() {
        assert_eq!(validate_node_name("rosbag2_recorder"), Ok(()));
        assert!(validate_node_name("a/b").is_err());
        assert!(validate_node_name("1a").is_err());
        assert!(validate_node_name("").is_err());
    }

    #[test]
    fn names_expand_as_a_node_expands_them() {
        assert_eq!(expand_name("chatter", &node()).unwrap(), "/chatter");
        assert_eq!(expand_name("/chatter", &node()).unwrap(), "/chatter");
        assert_eq!(expand_name("~/image", &node()).unwrap(), "/recorder/image");
        assert_eq!(expand_name("~", &node()).unwrap(), "/recorder");
        let robot = NodeName {
            namespace: "/robot".to_owned(),
            name: "cam".to_owned(),
        };
        assert_eq!(expand_name("image", &robot).unwrap(), "/robot/image");
        assert_eq!(expand_name("~/image", &robot).unwrap(), "/robot/cam/image");
        assert_eq!(
            expand_name("~image", &robot).unwrap_err().kind,
            NameErrorKind::MisplacedTilde
        );
        assert_eq!(expand_name("", &robot).unwrap_err().kind, NameErrorKind::Empty);
        assert_eq!(expand_name("a b", &robot).unwrap_err().name, "a b");
    }

    #[test]
    fn hidden_is_any_token_with_a_leading_underscore() {
        assert!(is_hidden("/_x") && is_hidden("/a/_b/c") && is_hidden("/a/_service_event"));
        assert!(!is_hidden("/a_/b_c"));
    }

    #[test]
    fn services_map_to_their_event_topics_and_back() {
        assert_eq!(service_event_topic("/add"), "/add/_service_event");
        assert_eq!(service_event_topic("/add/_service_event"), "/add/_service_event");
        let add = "example_interfaces/srv/AddTwoInts_Event";
        assert_eq!(service_of_event_topic("/add/_service_event", add), Some("/add"));
        assert_eq!(service_of_event_topic("/_service_event", add), None);
        assert_eq!(
            service_of_event_topic("/add/_service_event", "std_msgs/msg/String"),
            None
        );
        assert_eq!(
            service_of_event_topic("/add/_service_event", "my_msgs/msg/X_Event"),
            None
        );
        assert_eq!(service_of_event_topic("/add", add), None);
    }

    proptest! {
        #[test]
        fn an_expanded_name_is_valid_and_stable(name in "[~/a-z_0-9{ ]{0,12}") {
            if let Ok(full) = expand_name(&name, &node()) {
                prop_assert_eq!(validate_full_name(&full), Ok(()));
                prop_assert_eq!(expand_name(&full, &node()), Ok(full.clone()));
            }
        }

        #[test]
        fn no_name_panics(name in "\\PC{0,20}") {
            let _ = (validate_full_name(&name), validate_node_name(&name), expand_name(&name, &node()));
            let _ = (is_hidden(&name), service_of_event_topic(&name, &name));
        }
    }
}
