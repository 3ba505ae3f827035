//! Values of the parameters of holdall's nodes: the options, under the names that rosbag2's parameter files have.

use holdall::{
    RecordOptions,
    node::{Parameter, Parameters},
    play::options::PlayOptions,
};
use regex::Regex;
use std::{
    path::{Path, PathBuf},
    time::Duration,
};

fn text(path: &Path) -> Parameter {
    Parameter::Text(path.to_string_lossy().into_owned())
}

fn integer(value: u64) -> Parameter {
    Parameter::Integer(i64::try_from(value).unwrap_or(i64::MAX))
}

/// Zero is "off", as in rosbag2.
fn seconds(span: Option<Duration>) -> Parameter {
    integer(span.map_or(0, |span| span.as_secs()))
}

/// The parameters of a recorder's node.
pub fn of_recording(options: &RecordOptions) -> Parameters {
    let selection = &options.selection;
    let names = |names: &[String]| Parameter::Texts(names.to_vec());
    let pattern =
        |pattern: Option<&Regex>| Parameter::Text(pattern.map(Regex::to_string).unwrap_or_default());
    let parameters = [
        ("use_sim_time", Parameter::Bool(options.use_sim_time)),
        ("storage.uri", text(&options.output)),
        (
            "storage.storage_id",
            Parameter::Text(options.files.storage_id.clone()),
        ),
        (
            "storage.storage_preset_profile",
            Parameter::Text(options.files.storage_preset.clone().unwrap_or_default()),
        ),
        (
            "storage.max_bagfile_size",
            integer(options.files.split.bytes_max.unwrap_or(0)),
        ),
        (
            "storage.max_bagfile_duration",
            seconds(options.files.split.duration_max),
        ),
        ("storage.max_cache_size", integer(options.cache.bytes_max as u64)),
        ("storage.snapshot_mode", Parameter::Bool(options.cache.snapshot)),
        ("record.all_topics", Parameter::Bool(selection.all_topics)),
        ("record.all_services", Parameter::Bool(selection.all_services)),
        ("record.all_actions", Parameter::Bool(selection.all_actions)),
        ("record.actions", names(&selection.actions)),
        ("record.exclude_actions", names(&selection.exclude_actions)),
        ("record.topics", names(&selection.topics)),
        ("record.services", names(&selection.services)),
        ("record.exclude_topics", names(&selection.exclude_topics)),
        ("record.regex", pattern(selection.regex.as_ref())),
        ("record.exclude_regex", pattern(selection.exclude_regex.as_ref())),
        ("record.start_paused", Parameter::Bool(options.start_paused)),
        (
            "record.is_discovery_disabled",
            Parameter::Bool(options.discovery.no_discovery),
        ),
        (
            "record.topic_polling_interval",
            integer(u64::try_from(options.discovery.polling_interval.as_millis()).unwrap_or(u64::MAX)),
        ),
    ];
    named(parameters)
}

fn named<const N: usize>(parameters: [(&str, Parameter); N]) -> Parameters {
    parameters
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// The parameters of a player's node.
pub fn of_playback(options: &PlayOptions) -> Parameters {
    let names = |names: &[String]| Parameter::Texts(names.to_vec());
    let first = options
        .inputs
        .first()
        .map(PathBuf::as_path)
        .unwrap_or(Path::new(""));
    named([
        ("use_sim_time", Parameter::Bool(false)),
        ("storage.uri", text(first)),
        ("play.rate", Parameter::Double(options.rate)),
        ("play.loop", Parameter::Bool(options.repeat)),
        ("play.start_paused", Parameter::Bool(options.start_paused)),
        ("play.delay", Parameter::Double(options.delay.as_secs_f64())),
        (
            "play.start_offset",
            Parameter::Double(options.start_offset.as_secs_f64()),
        ),
        (
            "play.clock_publish_frequency",
            Parameter::Double(options.clock.rate().unwrap_or(0.0)),
        ),
        (
            "play.read_ahead_queue_size",
            integer(options.read_ahead_messages as u64),
        ),
        ("play.topics_to_filter", names(&options.topics)),
        ("play.exclude_topics_to_filter", names(&options.exclude_topics)),
    ])
}
