//! The file of `--static-topics-path`: topics with their types, to be subscribed before they are announced.

use super::{UsageError, names};
use serde::Deserialize;
use std::path::Path;

const FLAG: &str = "--static-topics-path";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StaticTopicsFile {
    static_topics_and_types_list: Vec<(String, String)>,
}

/// Reads the text of such a file: the key `static_topics_and_types_list` with a list of `[topic, type]`.
pub fn parse(path: &Path, text: &str) -> Result<Vec<(String, String)>, UsageError> {
    let broken = |reason: String| UsageError::BrokenFile {
        flag: FLAG,
        path: path.to_owned(),
        reason,
    };
    let file: StaticTopicsFile = holdall_model::yaml::read_into(text).map_err(|error| {
        broken(format!(
            "{error}; expected static_topics_and_types_list: a list of [/topic, package/msg/Type]"
        ))
    })?;
    file.static_topics_and_types_list
        .iter()
        .map(|(topic, type_name)| Ok((names::full_name(FLAG, topic)?, names::type_name(FLAG, type_name)?)))
        .collect::<Result<_, UsageError>>()
        .map_err(|error| match error {
            UsageError::BadValue { value, reason, .. } => {
                broken(format!("static_topics_and_types_list: \"{value}\": {reason}"))
            }
            other => other,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<(String, String)>, String> {
        parse(Path::new("topics.yaml"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn topics_are_read_with_their_types() {
        let topics = read(
            "static_topics_and_types_list:\n - [/a, std_msgs/msg/String]\n - [b, sensor_msgs/msg/Imu]\n",
        );
        assert_eq!(
            topics.unwrap(),
            [
                ("/a".to_owned(), "std_msgs/msg/String".to_owned()),
                ("/b".to_owned(), "sensor_msgs/msg/Imu".to_owned())
            ]
        );
    }

    #[test]
    fn what_is_wrong_is_reported_with_path_key_and_place() {
        for (text, word) in [
            ("static_topics_and_types_list:\n - [/a]\n", "line 2"),
            ("topics:\n - [/a, b]\n", "topics"),
            (
                "static_topics_and_types_list:\n - [/a b, std_msgs/msg/String]\n",
                "/a b",
            ),
            ("static_topics_and_types_list:\n - [/a, String]\n", "\"String\""),
            ("", "static_topics_and_types_list"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with("--static-topics-path topics.yaml: "), "{error}");
            assert!(error.contains(word), "{error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
