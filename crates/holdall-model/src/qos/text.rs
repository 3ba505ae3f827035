//! QoS profiles as YAML text, as bags store them for each topic, and the file of overrides.

use super::{Durability, History, Liveliness, QosDuration, QosProfile, Reliability};
use crate::yaml::{self, Node, YamlError};
use std::{
    cell::RefCell,
    collections::{BTreeMap, VecDeque},
    fmt::Write,
};

/// A list of QoS profiles that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read QoS profiles: {0}")]
pub struct QosTextError(#[from] pub YamlError);

/// A file of QoS overrides that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QosFileError {
    /// It is not YAML, or not a map from topics to profiles.
    #[error("QoS overrides: {0}")]
    Yaml(#[from] YamlError),
    /// A topic's name is not valid.
    #[error("QoS overrides: {0}")]
    Topic(#[from] crate::names::NameError),
    /// A key that is unknown or missing, or whose value is not allowed.
    #[error("QoS overrides of topic {topic}, key {key}, line {line}: {reason}")]
    Key {
        /// The topic.
        topic: String,
        /// The key, with dots between levels, for example `deadline.sec`.
        key: String,
        /// Line in the file, from 1.
        line: usize,
        /// One sentence.
        reason: String,
    },
}

/// Key of a profile of a topic whose type has a key; other readers ignore it.
const KEYED: &str = "holdall_keyed";

/// Reads the profiles that a bag holds for a topic: a YAML list, policies by name (Jazzy) or by number
/// (before).
///
/// Empty text is an empty list. The infinite spans of Foxy's middlewares become [`QosDuration::INFINITE`].
///
/// # Errors
/// When the text is not a list of whole profiles.
pub fn parse_profiles(text: &str) -> Result<Vec<QosProfile>, QosTextError> {
    thread_local! {
        /// The last texts that were read, with their profiles.
        static READ: RefCell<VecDeque<(String, Vec<QosProfile>)>> = const { RefCell::new(VecDeque::new()) };
    }
    let known = READ.with_borrow(|read| {
        let same = read.iter().find(|(known, _)| known == text);
        same.map(|(_, profiles)| profiles.clone())
    });
    if let Some(profiles) = known {
        return Ok(profiles);
    }
    let profiles = profiles_from_yaml(&yaml::parse(text)?)?;
    if text.len() <= REMEMBERED_BYTES_MAX {
        READ.with_borrow_mut(|read| {
            if read.len() == REMEMBERED_MAX {
                read.pop_front();
            }
            read.push_back((text.to_owned(), profiles.clone()));
        });
    }
    Ok(profiles)
}

/// The topics of a bag, and the files of a split one, mostly have the same few texts, and parsing one as YAML
/// takes as long as a thousand comparisons.
const REMEMBERED_MAX: usize = 16;
const REMEMBERED_BYTES_MAX: usize = 4096;

/// The list of profiles in a node, which may also be a text that holds the list (metadata versions 4 to 8).
pub(crate) fn profiles_from_yaml(node: &Node) -> Result<Vec<QosProfile>, YamlError> {
    if let yaml::Value::Scalar(text) = &node.value {
        let inner = yaml::parse(text).map_err(|error| node.error(error.to_string()))?;
        return list_of_profiles(&inner).map_err(|error| node.error(error.to_string()));
    }
    list_of_profiles(node)
}

fn list_of_profiles(node: &Node) -> Result<Vec<QosProfile>, YamlError> {
    node.as_sequence()?.iter().map(profile_from_yaml).collect()
}

/// One profile as bags store it; all keys but `history`, `reliability` and `durability` may be absent.
fn profile_from_yaml(node: &Node) -> Result<QosProfile, YamlError> {
    let span = |key| node.get(key).map_or(Ok(QosDuration::UNSET), duration_from_yaml);
    Ok(QosProfile {
        history: policy(node.require("history")?, History::from_name, History::from_number)?,
        depth: node.get("depth").map_or(Ok(0), Node::as_number)?,
        reliability: policy(
            node.require("reliability")?,
            Reliability::from_name,
            Reliability::from_number,
        )?,
        durability: policy(
            node.require("durability")?,
            Durability::from_name,
            Durability::from_number,
        )?,
        deadline: span("deadline")?,
        lifespan: span("lifespan")?,
        liveliness: node
            .get("liveliness")
            .map_or(Ok(Liveliness::SystemDefault), |liveliness| {
                policy(liveliness, Liveliness::from_name, Liveliness::from_number)
            })?,
        liveliness_lease_duration: span("liveliness_lease_duration")?,
        avoid_ros_namespace_conventions: node
            .get("avoid_ros_namespace_conventions")
            .map_or(Ok(false), Node::as_bool)?,
        is_keyed: node.get(KEYED).map_or(Ok(false), Node::as_bool)?,
    })
}

/// A policy by name or by number.
fn policy<T>(
    node: &Node,
    from_name: impl Fn(&str) -> Option<T>,
    from_number: impl Fn(u8) -> Option<T>,
) -> Result<T, YamlError> {
    let text = node.as_str()?;
    let value = match text.parse::<u8>() {
        Ok(number) => from_number(number),
        Err(_) => from_name(text),
    };
    value.ok_or_else(|| node.expected("a QoS policy"))
}

fn duration_from_yaml(node: &Node) -> Result<QosDuration, YamlError> {
    let span = QosDuration {
        sec: node.require("sec")?.as_number()?,
        nsec: node.require("nsec")?.as_number()?,
    };
    Ok(span.normalized())
}

/// The text that rosbag2 stores for a topic (MCAP channel metadata, SQLite topics table): no newline at the
/// end.
pub fn profiles_to_text(profiles: &[QosProfile]) -> String {
    if profiles.is_empty() {
        return "[]".to_owned();
    }
    let mut text = String::new();
    for profile in profiles {
        write_profile_lines(&mut text, profile, 0);
    }
    text.truncate(text.trim_end().len());
    text
}

/// Appends a profile as a list item, each line indented by `indent` blanks and ended by a newline.
pub(crate) fn write_profile_lines(out: &mut String, profile: &QosProfile, indent: usize) {
    let span = |key: &str, span: QosDuration| {
        format!(
            "{:indent$}  {key}:\n{:indent$}    sec: {}\n{:indent$}    nsec: {}\n",
            "", "", span.sec, "", span.nsec
        )
    };
    write!(
        out,
        "{:indent$}- history: {}\n{:indent$}  depth: {}\n{:indent$}  reliability: {}\n{:indent$}  durability: {}\n\
         {}{}{:indent$}  liveliness: {}\n{}{:indent$}  avoid_ros_namespace_conventions: {}\n",
        "",
        profile.history.as_str(),
        "",
        profile.depth,
        "",
        profile.reliability.as_str(),
        "",
        profile.durability.as_str(),
        span("deadline", profile.deadline),
        span("lifespan", profile.lifespan),
        "",
        profile.liveliness.as_str(),
        span("liveliness_lease_duration", profile.liveliness_lease_duration),
        "",
        profile.avoid_ros_namespace_conventions,
    )
    .expect("writing to a String cannot fail");
    if profile.is_keyed {
        writeln!(out, "{:indent$}  {KEYED}: true", "").expect("writing to a String cannot fail");
    }
}

/// Reads a file of QoS overrides: a map from full topic names to profiles.
///
/// A profile holds any of the keys `history`, `depth`, `reliability`, `durability`, `deadline`, `lifespan`,
/// `liveliness`, `liveliness_lease_duration` and `avoid_ros_namespace_conventions`; absent ones have the
/// values of [`QosProfile::ROS_DEFAULT`]. Policies are given by name; spans need both `sec` and `nsec`.
///
/// # Errors
/// The first unknown key, wrong value, missing part of a span or invalid topic name, with its line.
pub fn parse_qos_overrides(text: &str) -> Result<BTreeMap<String, QosProfile>, QosFileError> {
    let mut overrides = BTreeMap::new();
    for (topic, node) in yaml::parse(text)?.as_map()? {
        crate::names::validate_full_name(topic)?;
        overrides.insert(topic.clone(), override_profile(topic, node)?);
    }
    Ok(overrides)
}

fn override_profile(topic: &str, node: &Node) -> Result<QosProfile, QosFileError> {
    let mut profile = QosProfile::ROS_DEFAULT;
    for (key, value) in node.as_map()? {
        apply_override(&mut profile, key, value).map_err(|(key, error)| QosFileError::Key {
            topic: topic.to_owned(),
            key,
            line: error.line,
            reason: error.reason,
        })?;
    }
    Ok(profile)
}

/// Sets one key of a profile; an error has the full key.
fn apply_override(profile: &mut QosProfile, key: &str, node: &Node) -> Result<(), (String, YamlError)> {
    match key {
        "deadline" => profile.deadline = override_span(key, node)?,
        "lifespan" => profile.lifespan = override_span(key, node)?,
        "liveliness_lease_duration" => profile.liveliness_lease_duration = override_span(key, node)?,
        _ => override_value(profile, key, node).map_err(|error| (key.to_owned(), error))?,
    }
    Ok(())
}

fn override_value(profile: &mut QosProfile, key: &str, node: &Node) -> Result<(), YamlError> {
    match key {
        "history" => profile.history = named(node, History::ALL, History::as_str)?,
        "reliability" => profile.reliability = named(node, Reliability::ALL, Reliability::as_str)?,
        "durability" => profile.durability = named(node, Durability::ALL, Durability::as_str)?,
        "liveliness" => profile.liveliness = named(node, Liveliness::ALL, Liveliness::as_str)?,
        "depth" => profile.depth = not_negative(node)?,
        "avoid_ros_namespace_conventions" => profile.avoid_ros_namespace_conventions = node.as_bool()?,
        _ => return Err(node.error("the key is not known")),
    }
    Ok(())
}

fn override_span(key: &str, node: &Node) -> Result<QosDuration, (String, YamlError)> {
    let mut span = [None, None];
    for (part, value) in node.as_map().map_err(|error| (key.to_owned(), error))? {
        let full_key = format!("{key}.{part}");
        let slot = match part.as_str() {
            "sec" => &mut span[0],
            "nsec" => &mut span[1],
            _ => return Err((full_key, value.error("the key is not known"))),
        };
        *slot = Some(not_negative(value).map_err(|error| (full_key, error))?);
    }
    match span {
        [Some(sec), Some(nsec)] => Ok(QosDuration { sec, nsec }.normalized()),
        _ => Err((key.to_owned(), node.error("a span needs both sec and nsec"))),
    }
}

fn not_negative(node: &Node) -> Result<u64, YamlError> {
    if node.as_str()?.starts_with('-') {
        return Err(node.expected("a number that is not negative"));
    }
    node.as_number()
}

/// A policy by name only; the error lists the names.
fn named<T: Copy>(node: &Node, all: &[T], name: impl Fn(T) -> &'static str) -> Result<T, YamlError> {
    let text = node.as_str()?;
    let found = all
        .iter()
        .copied()
        .find(|&value| name(value).eq_ignore_ascii_case(text));
    found.ok_or_else(|| {
        let names: Vec<_> = all
            .iter()
            .map(|&value| name(value))
            .filter(|&name| name != "unknown")
            .collect();
        node.expected(&format!("one of {}", names.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qos::tests::any_profile;
    use proptest::prelude::*;

    const JAZZY: &str = "- history: keep_last\n  depth: 1\n  reliability: reliable\n  durability: transient_local\n  deadline:\n    sec: 0\n    nsec: 0\n  lifespan:\n    sec: 0\n    nsec: 0\n  liveliness: system_default\n  liveliness_lease_duration:\n    sec: 0\n    nsec: 0\n  avoid_ros_namespace_conventions: false\n- history: keep_all\n  depth: 0\n  reliability: best_effort\n  durability: volatile\n  deadline:\n    sec: 0\n    nsec: 100000000\n  lifespan:\n    sec: 2\n    nsec: 0\n  liveliness: automatic\n  liveliness_lease_duration:\n    sec: 5\n    nsec: 0\n  avoid_ros_namespace_conventions: false";

    #[test]
    fn the_text_of_a_real_jazzy_bag_reads_and_writes_to_the_same_bytes() {
        let profiles = parse_profiles(JAZZY).unwrap();
        assert_eq!(profiles.len(), 2);
        assert_eq!(
            profiles[1].deadline,
            QosDuration {
                sec: 0,
                nsec: 100_000_000
            }
        );
        assert_eq!(profiles_to_text(&profiles), JAZZY);
    }

    #[test]
    fn numbers_and_infinities_of_older_bags_are_understood() {
        let text = "- {history: 3, depth: 0, reliability: 1, durability: 2, deadline: {sec: 2147483647, nsec: 4294967295}, \
                    lifespan: {nsec: 2147483647, sec: 2147483647}, liveliness: 1, \
                    liveliness_lease_duration: {sec: 9223372036, nsec: 854775807}, avoid_ros_namespace_conventions: False}";
        let profile = parse_profiles(text).unwrap()[0];
        assert_eq!(profile.history, History::Unknown);
        assert_eq!(profile.reliability, Reliability::Reliable);
        assert_eq!(profile.durability, Durability::Volatile);
        assert_eq!(profile.deadline, QosDuration::INFINITE);
        assert_eq!(profile.lifespan, QosDuration::INFINITE);
        assert_eq!(profile.liveliness_lease_duration, QosDuration::INFINITE);
    }

    #[test]
    fn no_profiles_are_an_empty_list() {
        assert_eq!(profiles_to_text(&[]), "[]");
        assert_eq!(parse_profiles("[]").unwrap(), []);
        assert_eq!(parse_profiles("").unwrap(), []);
    }

    #[test]
    fn a_bad_profile_is_named_with_its_line() {
        let error = parse_profiles("- history: keep_last\n  reliability: often\n  durability: volatile\n")
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot read QoS profiles: line 2: expected a QoS policy, found \"often\""
        );
        assert!(parse_profiles("history: keep_last").is_err());
        assert!(parse_profiles("- history: 9\n  reliability: 1\n  durability: 1").is_err());
    }

    #[test]
    fn overrides_start_from_the_default_profile() {
        let text = "/chatter:\n  history: keep_all\n  reliability: best_effort\n  deadline: {sec: 1, nsec: 5}\n/other:\n  depth: 3\n";
        let overrides = parse_qos_overrides(text).unwrap();
        let expected = QosProfile {
            history: History::KeepAll,
            reliability: Reliability::BestEffort,
            deadline: QosDuration { sec: 1, nsec: 5 },
            ..QosProfile::ROS_DEFAULT
        };
        assert_eq!(overrides["/chatter"], expected);
        assert_eq!(
            overrides["/other"],
            QosProfile {
                depth: 3,
                ..QosProfile::ROS_DEFAULT
            }
        );
        assert!(parse_qos_overrides("").unwrap().is_empty());
    }

    #[test]
    fn every_kind_of_mistake_in_an_override_names_topic_and_key() {
        let error = |text: &str| parse_qos_overrides(text).unwrap_err().to_string();
        let of = |key: &str, line: usize| format!("QoS overrides of topic /a, key {key}, line {line}: ");
        assert_eq!(
            error("/a:\n  histori: keep_all\n"),
            of("histori", 2) + "the key is not known"
        );
        assert_eq!(
            error("/a:\n  deadline: {sec: 1}\n"),
            of("deadline", 2) + "a span needs both sec and nsec"
        );
        assert_eq!(
            error("/a:\n  lifespan:\n    sec: 1\n    nsec: -1\n"),
            of("lifespan.nsec", 4) + "expected a number that is not negative, found \"-1\""
        );
        assert_eq!(
            error("/a:\n  depth: -1\n"),
            of("depth", 2) + "expected a number that is not negative, found \"-1\""
        );
        assert_eq!(
            error("/a:\n  history: keep_some\n"),
            of("history", 2) + "expected one of system_default, keep_last, keep_all, found \"keep_some\""
        );
        assert_eq!(
            error("/a:\n  deadline: {sec: 1, msec: 2}\n"),
            of("deadline.msec", 2) + "the key is not known"
        );
        assert_eq!(
            error("a b: {}"),
            "QoS overrides: \"a b\" is not a valid topic name: it does not begin with '/'"
        );
        assert!(error("/a: [1]").contains("expected a map"));
    }

    proptest! {
        #[test]
        fn every_profile_survives_the_round_trip_through_text(profiles in prop::collection::vec(any_profile(), 0..4)) {
            prop_assert_eq!(parse_profiles(&profiles_to_text(&profiles)).unwrap(), profiles);
        }

        #[test]
        fn an_override_file_of_a_profile_gives_that_profile(profile in any_profile()) {
            // Whether a topic has a key is a fact about its type, which no file overrides.
            let profile = QosProfile { is_keyed: false, ..profile };
            let list = profiles_to_text(&[profile]);
            let text = format!("/a:\n  {}", &list[2..]);
            prop_assert_eq!(parse_qos_overrides(&text).unwrap()["/a"], profile);
        }
    }
}
