//! Names of topics, services and types from the command line: completed and checked.

use super::UsageError;
use holdall_model::{names, topic::NodeName};

/// The full name of an argument: `chatter` is `/chatter`.
pub fn full_name(flag: &'static str, args: &str) -> Result<String, UsageError> {
    let bad = |reason: String| UsageError::BadValue {
        flag,
        value: args.to_owned(),
        reason,
    };
    if args.starts_with('~') {
        return Err(bad(
            "not a valid topic name: '~' has no meaning outside of a node".to_owned(),
        ));
    }
    let root = NodeName {
        namespace: "/".to_owned(),
        name: String::new(),
    };
    if args.contains(['*', '?']) {
        let pattern = regex::escape(args).replace("\\*", ".*").replace("\\?", ".");
        return Err(bad(format!(
            "a whole name is expected; patterns are given by -e: -e '^{pattern}$'"
        )));
    }
    names::expand_name(args, &root).map_err(|error| bad(format!("not a valid topic name: {}", error.kind)))
}

/// Completes relative names with a node's namespace, as nodes do.
pub fn complete(names: &mut [String], node: &NodeName) {
    if node.namespace == "/" {
        return;
    }
    for name in names
        .iter_mut()
        .filter(|name| name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'))
    {
        *name = format!("{}/{name}", node.namespace);
    }
}

/// [`full_name`] for each.
pub fn full_names(flag: &'static str, args: &[String]) -> Result<Vec<String>, UsageError> {
    args.iter().map(|name| full_name(flag, name)).collect()
}

/// Checks a type name: `package/msg/Name`, also `srv` and `action`.
pub fn type_name(flag: &'static str, args: &str) -> Result<String, UsageError> {
    let is_part =
        |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let parts: Vec<&str> = args.split('/').collect();
    if parts.len() == 3
        && parts.iter().all(|part| is_part(part))
        && ["msg", "srv", "action"].contains(&parts[1])
    {
        return Ok(args.to_owned());
    }
    Err(UsageError::BadValue {
        flag,
        value: args.to_owned(),
        reason: "not a ROS type; expected package/msg/Name, for example sensor_msgs/msg/Image".to_owned(),
    })
}

/// [`type_name`] for each.
pub fn type_names(flag: &'static str, args: &[String]) -> Result<Vec<String>, UsageError> {
    args.iter().map(|name| type_name(flag, name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_names_become_full() {
        assert_eq!(full_name("--topics", "chatter").unwrap(), "/chatter");
        assert_eq!(full_name("--topics", "/a/_hidden/b2").unwrap(), "/a/_hidden/b2");
    }

    #[test]
    fn bad_names_are_reported_with_flag_and_cause() {
        let error = full_name("--topics", "/bad topic").unwrap_err().to_string();
        assert!(
            error.starts_with("--topics \"/bad topic\": not a valid topic name: ' ' at byte 4"),
            "{error}"
        );
        for bad in ["", "/", "/a/", "/a//b", "/1st", "~/a"] {
            assert!(full_name("--topics", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_pattern_is_refused_with_the_expression_for_it() {
        let error = full_name("--topics", "/camera_1/*").unwrap_err().to_string();
        assert!(error.ends_with("-e '^/camera_1/.*$'"), "{error}");
    }

    #[test]
    fn type_names_have_three_parts() {
        assert!(type_name("--topic-types", "sensor_msgs/msg/Image").is_ok());
        for bad in ["Image", "sensor_msgs/Image", "a/b/C", "a/msg/", "/msg/A"] {
            assert!(type_name("--topic-types", bad).is_err(), "{bad}");
        }
    }
}
