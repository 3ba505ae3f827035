//! rosbag2's files for `convert`: `output_bags` and `input_bags`, with all storage and record options.

use super::{Choice, LatchedMode, Moment, OutputOptions, Shift, SplitAt};
use holdall_bag::writer::{CompressionMode, CompressionOptions};
use holdall_model::{
    selection::{Selection, parse_pattern},
    time::Timestamp,
    yaml::read_into,
};
use holdall_storage::StorageOptions;
use serde::{Deserialize, de::IgnoredAny};
use std::{
    collections::BTreeMap,
    num::NonZeroU32,
    path::{Path, PathBuf},
    time::Duration,
};

/// Most bags that one file may list.
const BAGS_MAX: usize = 10_000;

/// An input bag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputBag {
    /// Its path.
    pub path: PathBuf,
    /// Only messages with this log time or later.
    pub start: Option<Timestamp>,
    /// Only messages with this log time or earlier.
    pub end: Option<Timestamp>,
}

/// An output bag.
#[derive(Clone, Debug)]
pub struct OutputBag {
    /// How it is written.
    pub options: OutputOptions,
    /// The messages in it.
    pub choice: Choice,
}

/// Keys of rosbag2's `StorageOptions` and `RecordOptions` as in its YAML. Keys that matter only while
/// recording are parsed and have no effect, as in rosbag2.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Entry {
    uri: String,
    storage_id: String,
    max_bagfile_size: u64,
    max_bagfile_duration: u64,
    max_cache_size: u64,
    max_cache_duration: u64,
    storage_preset_profile: String,
    storage_config_uri: String,
    snapshot_mode: bool,
    snapshot_duration: IgnoredAny,
    start_time_ns: Option<i64>,
    end_time_ns: Option<i64>,
    max_bag_files: u64,
    custom_data: Option<BTreeMap<String, String>>,
    all: bool,
    all_topics: bool,
    all_services: bool,
    all_actions: bool,
    topics: Option<Vec<String>>,
    topic_types: Option<Vec<String>>,
    services: Option<Vec<String>>,
    actions: Option<Vec<String>>,
    regex: String,
    exclude: String,
    exclude_regex: String,
    exclude_topics: Option<Vec<String>>,
    exclude_topic_types: Option<Vec<String>>,
    exclude_services: Option<Vec<String>>,
    exclude_actions: Option<Vec<String>>,
    rmw_serialization_format: String,
    input_serialization_format: String,
    output_serialization_format: String,
    compression_mode: String,
    compression_format: String,
    compression_queue_size: u64,
    compression_threads: u64,
    compression_threads_priority: i32,
    include_hidden_topics: bool,
    include_unpublished_topics: bool,
    ignore_leaf_topics: bool,
    is_discovery_disabled: bool,
    topic_polling_interval: IgnoredAny,
    node_prefix: String,
    start_paused: bool,
    use_sim_time: bool,
    disable_keyboard_controls: bool,
    topic_qos_profile_overrides: IgnoredAny,
    repeat_transient_local: IgnoredAny,
    repeat_all_transient_local: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Outputs {
    output_bags: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Inputs {
    input_bags: Vec<Entry>,
}

/// Parses the output bags. `read_file` returns the text of storage configuration files.
///
/// # Errors
/// A sentence with what is wrong and where: text that is not YAML, keys and values that rosbag2 does not
/// know.
pub fn output_bags(
    text: &str,
    read_file: &mut dyn FnMut(&Path) -> Result<String, String>,
) -> Result<Vec<OutputBag>, String> {
    let outputs: Outputs = read_into(text).map_err(|error| error.to_string())?;
    within("output_bags", outputs.output_bags.len())?;
    let entries = outputs.output_bags.into_iter().enumerate();
    entries
        .map(|(place, entry)| {
            output_bag(entry, read_file).map_err(|reason| format!("output_bags[{place}]: {reason}"))
        })
        .collect()
}

/// Parses the input bags.
///
/// # Errors
/// As [`output_bags`].
pub fn input_bags(text: &str) -> Result<Vec<InputBag>, String> {
    let inputs: Inputs = read_into(text).map_err(|error| error.to_string())?;
    within("input_bags", inputs.input_bags.len())?;
    let entries = inputs.input_bags.into_iter().enumerate();
    entries
        .map(|(place, entry)| {
            if entry.uri.is_empty() {
                return Err(format!("input_bags[{place}]: expected a uri, found none"));
            }
            Ok(InputBag {
                path: entry.uri.into(),
                start: stamp(entry.start_time_ns),
                end: stamp(entry.end_time_ns),
            })
        })
        .collect()
}

fn within(what: &str, count: usize) -> Result<(), String> {
    match count {
        0 => Err(format!("{what}: expected at least one bag, found none")),
        1..=BAGS_MAX => Ok(()),
        more => Err(format!("{what}: expected at most {BAGS_MAX} bags, found {more}")),
    }
}

/// rosbag2 uses a negative number for "no bound".
fn stamp(nanos: Option<i64>) -> Option<Timestamp> {
    nanos.filter(|nanos| *nanos >= 0).map(Timestamp::from_nanos)
}

fn output_bag(
    entry: Entry,
    read_file: &mut dyn FnMut(&Path) -> Result<String, String>,
) -> Result<OutputBag, String> {
    if entry.uri.is_empty() {
        return Err("expected a uri, found none".to_owned());
    }
    for format in [
        &entry.rmw_serialization_format,
        &entry.output_serialization_format,
        &entry.input_serialization_format,
    ] {
        if !format.is_empty() && format != "cdr" {
            return Err(format!("serialization format: expected cdr, found {format:?}"));
        }
    }
    let config = match entry.storage_config_uri.as_str() {
        "" => None,
        path => {
            let path = path.strip_prefix("file://").unwrap_or(path);
            let text = read_file(Path::new(path));
            Some(text.map_err(|reason| format!("storage_config_uri {path}: {reason}"))?)
        }
    };
    let is_rewritten = !entry.storage_preset_profile.is_empty() || config.is_some();
    let compression = compression(&entry)?;
    let choice = Choice {
        selection: selection(&entry)?,
        start: stamp(entry.start_time_ns).map(Moment::At),
        end: stamp(entry.end_time_ns).map(Moment::At),
        is_lenient: true,
        ..Choice::default()
    };
    let some = |number: u64| Some(number).filter(|number| *number > 0);
    let options = OutputOptions {
        latched: LatchedMode::Leave,
        directory: entry.uri.into(),
        // As in rosbag2: its default, whatever the inputs are.
        storage_id: Some(entry.storage_id)
            .filter(|id| !id.is_empty())
            .or_else(|| Some(holdall_storage::DEFAULT_STORAGE_ID.to_owned())),
        storage_options: StorageOptions {
            preset: Some(entry.storage_preset_profile).filter(|preset| !preset.is_empty()),
            config,
            ..StorageOptions::default()
        },
        is_rewritten: is_rewritten || compression.mode != CompressionMode::None,
        split: SplitAt {
            bytes_max: some(entry.max_bagfile_size),
            duration_max: some(entry.max_bagfile_duration).map(Duration::from_secs),
            ..SplitAt::default()
        },
        compression,
        changes: Vec::new(),
        migration: None,
        frames: BTreeMap::new(),
        renames: BTreeMap::new(),
        shift: Shift::default(),
        split_moments: Vec::new(),
        splits_episodes: false,
        custom_data: entry.custom_data.unwrap_or_default(),
        leaves_out_files: false,
        seal: None,
    };
    Ok(OutputBag { options, choice })
}

fn compression(entry: &Entry) -> Result<CompressionOptions, String> {
    let mode = CompressionMode::parse(&entry.compression_mode).ok_or_else(|| {
        let found = &entry.compression_mode;
        format!("compression_mode: expected none, file or message, found {found:?}")
    })?;
    if !matches!(entry.compression_format.as_str(), "" | "zstd" | "none") {
        let found = &entry.compression_format;
        return Err(format!("compression_format: expected zstd, found {found:?}"));
    }
    Ok(CompressionOptions {
        mode,
        // A tool drops no message: it waits for a full queue, whatever its size.
        queue_max: None::<NonZeroU32>,
        threads: usize::try_from(entry.compression_threads)
            .ok()
            .filter(|threads| *threads > 0),
        threads_nice: entry.compression_threads_priority,
    })
}

fn selection(entry: &Entry) -> Result<Selection, String> {
    let pattern = |key: &str, text: &str| {
        let pattern = Some(text).filter(|text| !text.is_empty());
        pattern
            .map(|text| parse_pattern(text).map_err(|error| format!("{key}: {error}")))
            .transpose()
    };
    let list = |names: &Option<Vec<String>>| names.clone().unwrap_or_default();
    let exclude = if entry.exclude_regex.is_empty() {
        &entry.exclude
    } else {
        &entry.exclude_regex
    };
    let mut topics = list(&entry.topics);
    for action in list(&entry.actions) {
        topics.extend(ACTION_TOPICS.iter().map(|part| format!("{action}{part}")));
    }
    let mut exclude_topics = list(&entry.exclude_topics);
    for action in list(&entry.exclude_actions) {
        exclude_topics.extend(ACTION_TOPICS.iter().map(|part| format!("{action}{part}")));
    }
    Ok(Selection {
        all_topics: entry.all || entry.all_topics || entry.all_actions,
        all_services: entry.all || entry.all_services,
        topics,
        services: list(&entry.services),
        topic_types: list(&entry.topic_types),
        regex: pattern("regex", &entry.regex)?,
        exclude_regex: pattern("exclude_regex", exclude)?,
        exclude_topics,
        exclude_services: list(&entry.exclude_services),
        exclude_topic_types: list(&entry.exclude_topic_types),
        include_hidden_topics: entry.include_hidden_topics,
        // Topics in a bag were published.
        include_unpublished_topics: true,
        ignore_leaf_topics: false,
        ..Selection::default()
    })
}

/// What follows an action's name in the names of its topics.
pub const ACTION_TOPICS: [&str; 5] = [
    "/_action/send_goal/_service_event",
    "/_action/get_result/_service_event",
    "/_action/cancel_goal/_service_event",
    "/_action/feedback",
    "/_action/status",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn outputs(text: &str) -> Result<Vec<OutputBag>, String> {
        output_bags(text, &mut |path| Ok(format!("# {}", path.display())))
    }

    #[test]
    fn the_example_of_rosbag2_is_parsed() {
        let text = "output_bags:\n  - uri: split_bag_files\n    max_bagfile_size: 30000\n    max_bagfile_duration: 5\n    all: true\n  \
                    - uri: two_topics\n    storage_id: sqlite3\n    storage_preset_profile: resilient\n    topics: [/a, /b]\n    \
                    start_time_ns: 5\n    end_time_ns: 9\n    compression_mode: file\n    compression_format: zstd\n    custom_data: {k: v}\n    \
                    exclude_regex: \"x.*\"\n    storage_config_uri: file:///tmp/c.yaml\n";
        let found = outputs(text).unwrap();
        assert_eq!(found.len(), 2);
        let (first, second) = (&found[0], &found[1]);
        assert_eq!(first.options.storage_id.as_deref(), Some("mcap"));
        assert_eq!(first.options.split.bytes_max, Some(30_000));
        assert_eq!(first.options.split.duration_max, Some(Duration::from_secs(5)));
        assert!(first.choice.selection.all_topics && !first.options.is_rewritten);
        assert_eq!(second.options.storage_id.as_deref(), Some("sqlite3"));
        assert_eq!(second.options.compression.mode, CompressionMode::File);
        assert_eq!(second.choice.selection.topics, ["/a", "/b"]);
        assert_eq!(second.choice.start, Some(Moment::At(Timestamp::from_nanos(5))));
        assert_eq!(second.options.custom_data["k"], "v");
        assert_eq!(
            second.options.storage_options.config.as_deref(),
            Some("# /tmp/c.yaml")
        );
    }

    #[test]
    fn unknown_keys_are_reported_with_their_place() {
        for (text, expected) in [
            ("", "output_bags"),
            ("output_bags: []", "at least one bag"),
            ("output_bags:\n- uri: a\n  topcis: [/a]\n", "topcis"),
            ("output_bags:\n- all: true\n", "expected a uri"),
            (
                "output_bags:\n- uri: a\n  compression_mode: chunk\n",
                "output_bags[0]: compression_mode",
            ),
            ("output_bags:\n- uri: a\n  regex: \"(\"\n", "regex"),
            (
                "output_bags:\n- uri: a\n  max_bagfile_size: -1\n",
                "max_bagfile_size",
            ),
            ("input_bags:\n- uri: a\n", "input_bags"),
        ] {
            let error = outputs(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn inputs_may_have_bounds_of_their_own() {
        let found = input_bags(
            "input_bags:\n- uri: a\n  storage_id: mcap\n  start_time_ns: 7\n  end_time_ns: -1\n- uri: b\n",
        )
        .unwrap();
        assert_eq!(found[0].start, Some(Timestamp::from_nanos(7)));
        assert_eq!(found[0].end, None);
        assert_eq!(found[1].path, PathBuf::from("b"));
    }
}
