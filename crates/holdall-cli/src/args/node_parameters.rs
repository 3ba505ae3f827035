//! Parameters of rosbag2's composable nodes (Jazzy to Rolling): their names, and the flags that they set.

use super::files::{Flag, command_of, flag, settings_of};
use crate::resolve::UsageError;
use clap::Command;
use holdall_model::{
    YamlError,
    yaml::{Node, Value},
};
use std::{collections::BTreeMap, path::PathBuf};

/// Parameters with the flag that each sets.
pub(super) const FLAGS: [(&str, &str, &str); 74] = [
    ("record", "record.all", "all"),
    ("record", "record.all_topics", "all-topics"),
    ("record", "record.all_services", "all-services"),
    ("record", "record.all_actions", "all-actions"),
    ("record", "record.topics", "topics"),
    ("record", "record.topic_types", "topic-types"),
    ("record", "record.services", "services"),
    ("record", "record.actions", "actions"),
    ("record", "record.exclude_topics", "exclude-topics"),
    ("record", "record.exclude_topic_types", "exclude-topic-types"),
    ("record", "record.exclude_services", "exclude-services"),
    ("record", "record.exclude_actions", "exclude-actions"),
    ("record", "record.regex", "regex"),
    ("record", "record.exclude", "exclude-regex"),
    ("record", "record.exclude_regex", "exclude-regex"),
    ("record", "record.include_hidden_topics", "include-hidden-topics"),
    (
        "record",
        "record.include_unpublished_topics",
        "include-unpublished-topics",
    ),
    ("record", "record.ignore_leaf_topics", "ignore-leaf-topics"),
    ("record", "record.is_discovery_disabled", "no-discovery"),
    ("record", "record.static_topics_uri", "static-topics-path"),
    (
        "record",
        "record.rmw_serialization_format",
        "serialization-format",
    ),
    (
        "record",
        "record.input_serialization_format",
        "serialization-format",
    ),
    (
        "record",
        "record.output_serialization_format",
        "serialization-format",
    ),
    ("record", "record.compression_mode", "compression-mode"),
    ("record", "record.compression_format", "compression-format"),
    (
        "record",
        "record.compression_queue_size",
        "compression-queue-size",
    ),
    ("record", "record.compression_threads", "compression-threads"),
    (
        "record",
        "record.compression_threads_priority",
        "compression-threads-priority",
    ),
    (
        "record",
        "record.qos_profile_overrides_path",
        "qos-profile-overrides-path",
    ),
    (
        "record",
        "record.repeat_transient_local",
        "repeat-transient-local",
    ),
    (
        "record",
        "record.repeat_transient_local_messages",
        "repeat-transient-local",
    ),
    (
        "record",
        "record.repeat_all_transient_local_depth",
        "repeat-all-transient-local",
    ),
    ("record", "record.start_paused", "start-paused"),
    (
        "record",
        "record.disable_keyboard_controls",
        "disable-keyboard-controls",
    ),
    (
        "record",
        "record.statistics_max_publishing_rate",
        "stats-max-publishing-rate",
    ),
    (
        "record",
        "record.stats_max_publishing_rate",
        "stats-max-publishing-rate",
    ),
    ("record", "use_sim_time", "use-sim-time"),
    ("record", "storage.uri", "output"),
    ("record", "storage.storage_id", "storage"),
    ("record", "storage.storage_config_uri", "storage-config-file"),
    ("record", "storage.max_bagfile_size", "max-bag-size"),
    ("record", "storage.max_bagfile_duration", "max-bag-duration"),
    ("record", "storage.max_bag_files", "max-bag-files"),
    ("record", "storage.max_cache_size", "max-cache-size"),
    ("record", "storage.max_cache_duration", "max-cache-duration"),
    (
        "record",
        "storage.storage_preset_profile",
        "storage-preset-profile",
    ),
    ("record", "storage.snapshot_mode", "snapshot-mode"),
    ("record", "storage.custom_data", "custom-data"),
    ("play", "storage.uri", "input"),
    ("play", "storage.storage_id", "storage"),
    ("play", "storage.storage_config_uri", "storage-config-file"),
    ("play", "play.read_ahead_queue_size", "read-ahead-queue-size"),
    ("play", "play.rate", "rate"),
    ("play", "play.topics_to_filter", "topics"),
    ("play", "play.services_to_filter", "services"),
    ("play", "play.actions_to_filter", "actions"),
    ("play", "play.regex_to_filter", "regex"),
    ("play", "play.exclude_regex_to_filter", "exclude-regex"),
    ("play", "play.exclude_topics_to_filter", "exclude-topics"),
    ("play", "play.exclude_services_to_filter", "exclude-services"),
    ("play", "play.exclude_actions_to_filter", "exclude-actions"),
    (
        "play",
        "play.qos_profile_overrides_path",
        "qos-profile-overrides-path",
    ),
    ("play", "play.loop", "loop"),
    ("play", "play.clock_publish_frequency", "clock"),
    ("play", "play.start_paused", "start-paused"),
    (
        "play",
        "play.disable_keyboard_controls",
        "disable-keyboard-controls",
    ),
    ("play", "play.disable_loan_message", "disable-loan-message"),
    // Jazzy declares the first of these, later distributions the second.
    ("play", "play.publish_service_request", "publish-service-requests"),
    (
        "play",
        "play.publish_service_requests",
        "publish-service-requests",
    ),
    ("play", "play.send_actions_as_client", "send-actions-as-client"),
    ("play", "play.service_requests_source", "service-requests-source"),
    ("play", "play.message_order", "message-order"),
    (
        "play",
        "play.progress_bar_update_rate",
        "progress-bar-update-rate",
    ),
    (
        "play",
        "play.progress_bar_separation_lines",
        "progress-bar-separation-lines",
    ),
];

/// What a negative span means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Negative {
    /// As without the flag: no end, no waiting.
    Off,
    /// The same, but rosbag2 reports it as invalid.
    Invalid,
}

/// Spans, as `sec` and `nsec`, with the flag that each sets.
pub(super) const SPANS: [(&str, &str, &str, Negative); 6] = [
    (
        "record",
        "record.topic_polling_interval",
        "polling-interval",
        Negative::Invalid,
    ),
    ("play", "play.delay", "delay", Negative::Invalid),
    ("play", "play.start_offset", "start-offset", Negative::Invalid),
    (
        "play",
        "play.playback_duration",
        "playback-duration",
        Negative::Off,
    ),
    (
        "play",
        "play.playback_until_timestamp",
        "playback-until-nsec",
        Negative::Off,
    ),
    (
        "play",
        "play.wait_acked_timeout",
        "wait-for-all-acked",
        Negative::Off,
    ),
];

/// `/clock` before messages: before all, or before those of some topics when there are any.
const CLOCK_ON_PUBLISH: &str = "play.clock_publish_on_topic_publish";
const CLOCK_TOPICS: &str = "play.clock_trigger_topics";

/// Remappings that rosbag2's player declares and leaves to `-r`.
const REMAPPINGS: &str = "play.topic_remapping_options";

/// Parameters that rosbag2's nodes declare and that have no effect on them, nor on us.
const WITHOUT_EFFECT: [(&str, &str); 15] = [
    ("record", "record.node_prefix"),
    ("record", "storage.start_time_ns"),
    ("record", "storage.end_time_ns"),
    ("play", "use_sim_time"),
    ("play", "play.node_prefix"),
    ("play", "storage.max_bagfile_size"),
    ("play", "storage.max_bagfile_duration"),
    ("play", "storage.max_bag_files"),
    ("play", "storage.max_cache_size"),
    ("play", "storage.max_cache_duration"),
    ("play", "storage.storage_preset_profile"),
    ("play", "storage.snapshot_mode"),
    ("play", "storage.custom_data"),
    ("play", "storage.start_time_ns"),
    ("play", "storage.end_time_ns"),
];

const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// Where a parameter comes from.
#[derive(Clone, Debug)]
pub(super) enum Origin {
    /// A file of parameters.
    File(PathBuf),
    /// `-p name:=value`.
    Rule(String),
}

impl Origin {
    pub fn error(&self, error: &YamlError) -> UsageError {
        match self {
            Self::File(path) => UsageError::UnreadableFile {
                flag: "--params-file",
                path: path.clone(),
                reason: error.to_string(),
            },
            Self::Rule(rule) => UsageError::BadValue {
                flag: "--ros-args",
                value: rule.clone(),
                reason: error.reason.clone(),
            },
        }
    }
}

/// Parameters by their full names; a later value replaces an earlier one, as in ROS.
#[derive(Debug, Default)]
pub(super) struct Given(BTreeMap<String, (Node, Origin)>);

impl Given {
    /// Adds a parameter, or those below its name.
    ///
    /// # Errors
    /// Where a key is none.
    pub fn add(&mut self, verb: &str, name: &str, node: &Node, origin: &Origin) -> Result<(), YamlError> {
        let is_map_of_flag = FLAGS
            .iter()
            .any(|(of_verb, known, _)| *of_verb == settings_of(verb) && *known == name);
        match &node.value {
            Value::Map(entries) if !is_map_of_flag => {
                for (key, value) in entries {
                    let below = if name.is_empty() {
                        key.clone()
                    } else {
                        format!("{name}.{key}")
                    };
                    self.add(verb, &below, value, origin)?;
                }
            }
            Value::Null if name.is_empty() => {}
            _ if name.is_empty() => drop(node.as_map()?),
            _ => drop(self.0.insert(name.to_owned(), (node.clone(), origin.clone()))),
        }
        Ok(())
    }

    /// All names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The flags that they set for the verb; adds notices about parameters without effect.
    ///
    /// # Errors
    /// The first value that cannot be used, or a parameter with the verb's prefix that it does not have.
    pub fn flags(mut self, verb: &str, notices: &mut Vec<String>) -> Result<Vec<Flag>, UsageError> {
        let of_verb = settings_of(verb);
        let command = command_of(verb);
        let mut flags: Vec<Flag> = Vec::new();
        for (_, name, long) in FLAGS.iter().filter(|(verb, ..)| *verb == of_verb) {
            let Some((node, origin)) = self.0.remove(*name) else {
                continue;
            };
            let set = of_value(&command, verb, long, &node).map_err(|error| origin.error(&error))?;
            // Two names of one flag, the newer one second.
            flags.retain(|flag| set.is_none() || flag.name != *long);
            flags.extend(set);
        }
        for span in SPANS.iter().filter(|(verb, ..)| *verb == of_verb) {
            flags.extend(self.span(&command, verb, span, notices)?);
        }
        if of_verb == "play" {
            flags.extend(self.clock_of_messages(&command, verb, notices)?);
            if self.0.remove(REMAPPINGS).is_some_and(|(node, _)| !is_off(&node)) {
                notices.push(format!(
                    "{REMAPPINGS} has no effect, as in rosbag2; remap with -m or -r"
                ));
            }
        }
        self.refuse_unknown(verb)?;
        Ok(flags)
    }

    /// The flag of a span; a plain number is in the unit of the flag.
    fn span(
        &mut self,
        command: &Command,
        verb: &str,
        (_, name, long, negative): &(&str, &str, &str, Negative),
        notices: &mut Vec<String>,
    ) -> Result<Option<Flag>, UsageError> {
        let name = *name;
        let plain = self.0.remove(name);
        let mut part = |key: &str, limit: i64| {
            let Some((node, origin)) = self.0.remove(&format!("{name}.{key}")) else {
                return Ok(None);
            };
            let number = node.as_number::<i64>().and_then(|number| {
                let fits = number.unsigned_abs() <= limit.unsigned_abs();
                fits.then_some(number)
                    .ok_or_else(|| node.error(format!("expected {key} from -{limit} to {limit}")))
            });
            number.map(Some).map_err(|error| origin.error(&error))
        };
        let seconds = part("sec", i64::MAX / NANOS_PER_SECOND - 1)?;
        let nanos = part("nsec", NANOS_PER_SECOND - 1)?;
        let is_negative = match (seconds, nanos, &plain) {
            (None, None, None) => return Ok(None),
            (None, None, Some((node, origin))) => {
                let is_negative = node.as_number::<f64>().is_ok_and(|number| number < 0.0);
                if !is_negative {
                    return of_value(command, verb, long, node).map_err(|error| origin.error(&error));
                }
                true
            }
            _ => seconds.unwrap_or(0) < 0 || nanos.unwrap_or(0) < 0,
        };
        if is_negative {
            if *negative == Negative::Invalid {
                notices.push(format!("{name} is negative and has no effect, as in rosbag2"));
            }
            return Ok(None);
        }
        // Both are in range, so that the sum is.
        let total = seconds.unwrap_or(0) * NANOS_PER_SECOND + nanos.unwrap_or(0);
        let unit = if long.ends_with("nsec") { "" } else { "ns" };
        Ok(Some(Flag {
            name: (*long).to_owned(),
            values: vec![format!("{total}{unit}")],
        }))
    }

    /// The flag for `/clock` before messages.
    fn clock_of_messages(
        &mut self,
        command: &Command,
        verb: &str,
        notices: &mut Vec<String>,
    ) -> Result<Option<Flag>, UsageError> {
        let all = match self.0.remove(CLOCK_ON_PUBLISH) {
            Some((node, origin)) => {
                of_value(command, verb, "clock-topics-all", &node).map_err(|error| origin.error(&error))?
            }
            None => None,
        };
        let some = match self.0.remove(CLOCK_TOPICS) {
            Some((node, origin)) => {
                of_value(command, verb, "clock-topics", &node).map_err(|error| origin.error(&error))?
            }
            None => None,
        };
        if all.is_none() && some.is_some() {
            notices.push(format!(
                "{CLOCK_TOPICS} has no effect without {CLOCK_ON_PUBLISH}, as in rosbag2"
            ));
            return Ok(None);
        }
        Ok(all.and_then(|all| some.or(Some(all))))
    }

    /// Refuses what is left below the verb's prefixes and asks for something; other names are of other nodes, or of every node
    /// (`qos_overrides`), and are passed over as nodes do with parameters that they do not declare.
    fn refuse_unknown(&self, verb: &str) -> Result<(), UsageError> {
        for (name, (node, origin)) in &self.0 {
            let is_known = WITHOUT_EFFECT.contains(&(settings_of(verb), name.as_str()));
            if has_prefix_of(verb, name) && !is_known && !is_off(node) {
                return Err(origin.error(&node.error(format!("{verb} has no parameter {name}"))));
            }
        }
        Ok(())
    }
}

/// Whether a parameter is one that rosbag2 has for the node of this verb.
pub(super) fn has_prefix_of(verb: &str, name: &str) -> bool {
    let of_verb = settings_of(verb);
    let prefix = name.split_once('.').map(|(prefix, _)| prefix);
    ["record", "play"].contains(&of_verb) && (prefix == Some(of_verb) || prefix == Some("storage"))
}

/// What asks for nothing: rosbag2's own defaults.
fn is_off(node: &Node) -> bool {
    match &node.value {
        Value::Null => true,
        Value::Scalar(text) => {
            text.is_empty() || text == "false" || text.parse::<f64>().is_ok_and(|number| number <= 0.0)
        }
        Value::Sequence(items) => items.is_empty(),
        Value::Map(entries) => entries.is_empty(),
    }
}

/// A value as a flag, in the flag's own words.
fn of_value(command: &Command, verb: &str, long: &str, node: &Node) -> Result<Option<Flag>, YamlError> {
    let number = |node: &Node| node.as_number::<f64>().unwrap_or(f64::NAN);
    let mut node = node.clone();
    match long {
        // A flag can only switch these on.
        "clock" if number(&node) <= 0.0 => return Ok(None),
        "repeat-all-transient-local" if number(&node) == 0.0 => return Ok(None),
        "service-requests-source" | "message-order" => {
            if let Value::Scalar(text) = &mut node.value {
                *text = text.to_lowercase();
                if let Some(order) = text.strip_suffix("_timestamp") {
                    *text = order.to_owned();
                }
            }
        }
        _ => {}
    }
    flag(command, verb, long.to_owned(), &node)
}
