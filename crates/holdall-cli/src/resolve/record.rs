//! Resolves the arguments of `holdall record` into the recorder's options.

use super::{
    UsageError, names, read_file,
    record_storage::{storage, storage_options},
    record_topics::{in_namespace, priorities, repeats, selection, throttles},
    record_triggers::{alarms, episode_when, promote, triggers},
    static_topics,
    surroundings::Surroundings,
};
use crate::args::{
    files,
    record::{
        BagArguments, CacheArguments, CompressionArguments, DiscoveryArguments, EndArguments,
        FileSplitArguments, RecordArguments, RecordSelection, RunningArguments, SafetyArguments,
    },
};
use holdall::{
    keys::Seal,
    recode,
    record::{
        events::EventOptions,
        options::{
            CacheOptions, Contract, DiscoveryOptions, FileOptions, OnDiskFull, RecordOptions,
            RecordingLimits, SafetyOptions,
        },
    },
    writer::{self, CompressionMode, CompressionOptions, SplitOptions, UploadedFiles},
};
use holdall_io::{machine, main_memory::memory_bytes, os::DiskMode};
use holdall_model::{
    file_class::{FileClasses, RingLimit},
    lake::{ROBOT_KEY, RUN_KEY},
    recoding::live::LiveRecoding,
    topic::NodeName,
};
use holdall_storage::compression::FORMATS;
use std::{
    collections::BTreeMap,
    ffi::OsStr,
    num::NonZeroU32,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// How a recording is run, in addition to its options.
#[derive(Debug)]
pub struct ResolvedRecord {
    /// For the recorder.
    pub options: RecordOptions,
    /// How storage files are written.
    pub disk_mode: DiskMode,
    /// The node that is announced.
    pub node: NodeName,
    /// Encryption of the bag.
    pub seal: Option<Seal>,
    /// Arguments that have no effect, one sentence each.
    pub warnings: Vec<String>,
    /// The name made from the time, without a suffix, where `-o` was not given.
    pub default_output: Option<PathBuf>,
}

/// Combines the arguments with the surroundings.
///
/// # Errors
/// The first argument that cannot be used.
pub fn resolve(
    args: &RecordArguments,
    surroundings: &Surroundings<'_>,
) -> Result<ResolvedRecord, UsageError> {
    check_combinations(args)?;
    let node = super::node(&args.discovery.node_name)?;
    let args = &in_namespace(args, &node);
    let storage = storage_options(args, surroundings)?;
    let mut cache = cache(&args.cache, surroundings)?;
    let triggers = triggers(args, &mut cache)?;
    let options = RecordOptions {
        selection: selection(&args.selection)?,
        throttles: throttles(&args.selection.topic_throttle_frequency)?,
        output: output(&args.bag, surroundings)?,
        discovery: discovery(args, surroundings)?,
        files: FileOptions {
            storage_id: args.bag.storage.clone(),
            storage_preset: storage.preset,
            storage_config: storage.config,
            topic_compression: storage.topic_compression,
            compression: compression(&args.compression)?,
            recoding: recoding(&args.compression, &args.bag)?,
            split: split(args)?,
            repeat: repeats(args)?,
            merge_publishers: args.bag.merge_publishers,
            custom_data: with_ids(custom_data(&args.bag.custom_data)?, args, surroundings),
            ros_distro: surroundings.variable("ROS_DISTRO"),
            lists_complete_files: args.running.on_file_closed.is_some() || args.running.upload.url.is_some(),
            uploaded: args.running.upload.url.as_ref().map(|_| UploadedFiles::default()),
        },
        safety: SafetyOptions {
            // Messages that survive there are not encrypted.
            rescue_directory: Some(args.safety.rescue_directory.clone())
                .filter(|path| !path.as_os_str().is_empty() && args.bag.encrypt_to.is_empty()),
            ..safety(&args.safety)
        },
        cache,
        priorities: priorities(&args.cache.topic_priority)?,
        limits: limits(&args.end),
        episode_when: episode_when(args)?,
        promote: promote(args)?,
        triggers,
        alarms: alarms(&args.running.alarm)?,
        contract: contract(args.running.contract.as_deref(), surroundings)?,
        start_paused: args.running.start_paused,
        use_sim_time: args.running.use_sim_time,
        events: Some(events(&args.running, &node)?),
    };
    Ok(ResolvedRecord {
        options,
        disk_mode: args.bag.disk_mode,
        node,
        seal: seal(args)?,
        warnings: warnings(&args.selection),
        default_output: args.bag.output.is_none().then(|| default_output(surroundings)),
    })
}

/// The rules that the recording is judged by.
fn contract(
    path: Option<&Path>,
    surroundings: &Surroundings<'_>,
) -> Result<Option<Arc<Contract>>, UsageError> {
    const FLAG: &str = "--contract";
    let Some(path) = path else { return Ok(None) };
    let parsed = Contract::parse(&read_file(surroundings, FLAG, path)?);
    let contract = parsed.map_err(|error| UsageError::BrokenFile {
        flag: FLAG,
        path: path.to_owned(),
        reason: error.to_string(),
    })?;
    Ok(Some(Arc::new(contract)))
}

/// Encryption of the bag.
fn seal(args: &RecordArguments) -> Result<Option<Seal>, UsageError> {
    if args.bag.encrypt_to.is_empty() {
        return Ok(None);
    }
    let compression = compression(&args.compression)?.mode;
    if let Some(reason) = writer::why_not_encrypted(storage(&args.bag)?, compression) {
        return Err(UsageError::Encryption(reason));
    }
    super::seal_for(&args.bag.encrypt_to).map(Some)
}

/// How topics are found and subscribed to.
fn discovery(
    args: &RecordArguments,
    surroundings: &Surroundings<'_>,
) -> Result<DiscoveryOptions, UsageError> {
    let (args, selects) = (&args.discovery, selects_by_discovery(&args.selection));
    Ok(DiscoveryOptions {
        static_topics: static_topics(args, surroundings)?,
        qos_overrides: super::qos_overrides(
            args.qos_profile_overrides_path.as_deref(),
            &args.qos_override,
            surroundings,
        )?,
        polling_interval: args.polling_interval,
        // As in rosbag2: a recording of nothing but listed topics has nothing to discover.
        no_discovery: args.no_discovery || (args.static_topics_path.is_some() && !selects),
        merge_duplicates: args.merge_duplicates,
        ament_prefixes: ament_prefixes(surroundings),
    })
}

/// What survives, without a directory for a rescue.
fn safety(args: &SafetyArguments) -> SafetyOptions {
    SafetyOptions {
        max_loss_window: some_unless_zero(args.max_loss_window),
        on_disk_full: args.on_disk_full,
        min_free_space_bytes: args.min_free_space.filter(|bytes| *bytes > 0),
        rescue_directory: None,
    }
}

/// Which files the bag has, and how long.
fn split(args: &RecordArguments) -> Result<SplitOptions, UsageError> {
    let split = &args.split;
    let (size, span) = (
        some_unless_zero(split.max_bag_size),
        some_unless_zero(split.max_bag_duration),
    );
    let of_ring = split.ring.filter(|_| size.is_none() && span.is_none());
    Ok(SplitOptions {
        bytes_max: size.or(of_ring.and_then(RingLimit::file_bytes)),
        duration_max: span.or(of_ring.and_then(RingLimit::file_span)),
        files_max: some_unless_zero(split.max_bag_files),
        classes: classes(split)?,
        shared_bytes_per_second_max: some_unless_zero(split.separate_above),
        ring: split.ring,
    })
}

/// Topics with files of their own, and those that a ring keeps.
fn classes(args: &FileSplitArguments) -> Result<FileClasses, UsageError> {
    const LANE: &str = "--lane";
    let mut kept = Vec::new();
    for lane in &args.lane {
        let Some(topics) = lane.strip_prefix("keep=") else {
            return Err(UsageError::BadValue {
                flag: LANE,
                value: lane.clone(),
                reason: "expected keep=TOPIC,TOPIC".to_owned(),
            });
        };
        for topic in topics.split(',') {
            kept.push(names::full_name(LANE, topic.trim())?);
        }
    }
    FileClasses::new(&args.separate, &kept).map_err(|error| UsageError::BadValue {
        flag: "--separate",
        value: error.pattern,
        reason: error.reason,
    })
}

/// When the recording ends by itself.
fn limits(args: &EndArguments) -> RecordingLimits {
    RecordingLimits {
        duration_max: some_unless_zero(args.max_recording_duration),
        bytes_max: some_unless_zero(args.max_recording_size),
        messages_max: some_unless_zero(args.max_recording_messages),
    }
}

/// Name and type of each topic of `--static-topics-path`.
fn static_topics(
    args: &DiscoveryArguments,
    surroundings: &Surroundings<'_>,
) -> Result<Vec<(String, String)>, UsageError> {
    match &args.static_topics_path {
        Some(path) => static_topics::parse(path, &read_file(surroundings, "--static-topics-path", path)?),
        None => Ok(Vec::new()),
    }
}

/// Most events about losses a second, where the user sets nothing.
const LOST_RATE_DEFAULT: f64 = 1.0;

/// The events that other nodes receive, as from rosbag2.
fn events(args: &RunningArguments, node: &NodeName) -> Result<EventOptions, UsageError> {
    let rate = args.stats_max_publishing_rate.unwrap_or(LOST_RATE_DEFAULT);
    if !(0.0..=STATS_RATE_MAX).contains(&rate) {
        return Err(UsageError::BadValue {
            flag: "--stats-max-publishing-rate",
            value: rate.to_string(),
            reason: format!("a rate from 0 to {STATS_RATE_MAX} Hz is needed"),
        });
    }
    Ok(EventOptions {
        node_name: node.to_string(),
        lost_interval: (rate > 0.0).then(|| Duration::from_secs_f64(1.0 / rate)),
        diagnostics: args.diagnostics,
        offer_lost_at_once: args.stats_max_publishing_rate.is_some(),
    })
}

/// As in rosbag2.
const STATS_RATE_MAX: f64 = 1000.0;

/// `None` if zero means "off".
fn some_unless_zero<T: Default + PartialEq>(value: T) -> Option<T> {
    (value != T::default()).then_some(value)
}

/// True if something but `--static-topics-path` selects topics to record.
fn selects_by_discovery(args: &RecordSelection) -> bool {
    args.all
        || args.all_topics
        || args.all_services
        || args.all_actions
        || args.regex.as_deref().is_some_and(|pattern| !pattern.is_empty())
        || !(args.positional_topics.is_empty()
            && args.topics.is_empty()
            && args.services.is_empty()
            && args.actions.is_empty()
            && args.topic_types.is_empty())
}

/// The rules of `ros2 bag record` between flags; those of the selection are in [`selection`].
fn check_combinations(args: &RecordArguments) -> Result<(), UsageError> {
    if !selects_by_discovery(&args.selection) && args.discovery.static_topics_path.is_none() {
        return Err(UsageError::NothingSelected);
    }
    if args.running.use_sim_time && args.discovery.no_discovery {
        return Err(UsageError::Clash {
            first: "--use-sim-time",
            second: "--no-discovery",
            reason: "the topic /clock has to be discovered",
        });
    }
    if args.split.max_bag_files > 0 && args.split.max_bag_size == 0 && args.split.max_bag_duration.is_zero() {
        return Err(UsageError::Needs {
            flag: "--max-bag-files",
            needs: "-b/--max-bag-size or -d/--max-bag-duration",
        });
    }
    if args.safety.on_disk_full == OnDiskFull::Ring
        && args.split.ring.is_none()
        && args.split.max_bag_size == 0
        && args.split.max_bag_duration.is_zero()
    {
        return Err(UsageError::Needs {
            flag: "--on-disk-full ring",
            needs: "-b/--max-bag-size or -d/--max-bag-duration: whole files are what can be given up",
        });
    }
    if args.cache.snapshot_mode
        && args.cache.max_cache_size == Some(0)
        && args.cache.max_cache_duration.is_zero()
    {
        return Err(UsageError::Needs {
            flag: "--snapshot-mode",
            needs: "a bound: --max-cache-size or --max-cache-duration greater than 0",
        });
    }
    for (flag, line) in [
        ("--on-file-closed", &args.running.on_file_closed),
        ("--on-alarm", &args.running.on_alarm),
    ] {
        if line.as_deref().is_some_and(|line| line.trim().is_empty()) {
            return Err(UsageError::Needs {
                flag,
                needs: "a command",
            });
        }
    }
    check_format(&args.bag)?;
    check_numbers(args)
}

/// The one format that ROS 2 middlewares have.
const SERIALIZATION_FORMAT: &str = "cdr";

/// Messages are stored as they arrive.
fn check_format(args: &BagArguments) -> Result<(), UsageError> {
    let format = args.serialization_format.as_deref().unwrap_or_default();
    if format.is_empty() || format == SERIALIZATION_FORMAT {
        return Ok(());
    }
    Err(UsageError::BadValue {
        flag: "--serialization-format",
        value: format.to_owned(),
        reason: format!("messages are stored as they arrive; {SERIALIZATION_FORMAT} is the only format"),
    })
}

/// Shorter windows would be spent on syncs alone.
const LOSS_WINDOW_MIN: Duration = Duration::from_millis(50);

/// The minimum values of numbers.
fn check_numbers(args: &RecordArguments) -> Result<(), UsageError> {
    let bytes_min = storage(&args.bag)?.split_bytes_min();
    if args.split.max_bag_size > 0 && args.split.max_bag_size < bytes_min {
        return Err(UsageError::BadValue {
            flag: "--max-bag-size",
            value: args.split.max_bag_size.to_string(),
            reason: format!(
                "too small; {} files can be split at {bytes_min} bytes or more, 0 never splits",
                args.bag.storage
            ),
        });
    }
    if !args.safety.max_loss_window.is_zero() && args.safety.max_loss_window < LOSS_WINDOW_MIN {
        return Err(UsageError::BadValue {
            flag: "--max-loss-window",
            value: format!("{:?}", args.safety.max_loss_window),
            reason: "too short; 50 ms is the least, 0 syncs at the end only".to_owned(),
        });
    }
    if args.discovery.polling_interval < Duration::from_millis(1) {
        return Err(UsageError::BadValue {
            flag: "--polling-interval",
            value: format!("{:?}", args.discovery.polling_interval),
            reason: "too short; 1 ms is the least".to_owned(),
        });
    }
    Ok(())
}

/// Topics that get another form.
fn recoding(args: &CompressionArguments, bag: &BagArguments) -> Result<Option<LiveRecoding>, UsageError> {
    let first = match (args.video.is_empty(), args.cloud.is_empty()) {
        (true, true) => return Ok(None),
        (false, _) => "--video",
        (true, false) => "--cloud",
    };
    if !storage(bag)?.keeps_types() {
        return Err(UsageError::Clash {
            first,
            second: "--storage",
            reason: "messages that cannot be encoded stay, and only mcap has topics of two types",
        });
    }
    if args.compression_mode == CompressionMode::Message {
        return Err(UsageError::Clash {
            first,
            second: "--compression-mode message",
            reason: "encoded messages do not become smaller; compress chunks with --storage-preset-profile zstd_fast",
        });
    }
    let carried = |rule: recode::Rule| rule.carried_by(args.carrier);
    let video = args.video.iter().cloned().map(carried);
    let rules = video.chain(args.cloud.iter().cloned()).collect();
    Ok(Some(recode::live(rules, args.video_when_behind)))
}

fn compression(args: &CompressionArguments) -> Result<CompressionOptions, UsageError> {
    const FORMAT: &str = "--compression-format";
    let mode = args.compression_mode;
    let format = args
        .compression_format
        .as_deref()
        .filter(|format| !format.is_empty());
    if let Some(format) = format {
        if mode == CompressionMode::None {
            return Err(UsageError::Needs {
                flag: FORMAT,
                needs: "--compression-mode file or message",
            });
        }
        if !FORMATS.contains(&format) {
            return Err(UsageError::BadValue {
                flag: FORMAT,
                value: format.to_owned(),
                reason: format!("expected one of {}", FORMATS.join(", ")),
            });
        }
    }
    Ok(CompressionOptions {
        mode,
        queue_max: NonZeroU32::new(args.compression_queue_size),
        threads: some_unless_zero(args.compression_threads as usize),
        threads_nice: args.compression_threads_priority,
    })
}

fn output(args: &BagArguments, surroundings: &Surroundings<'_>) -> Result<PathBuf, UsageError> {
    let refuse = |value: &str, reason: &str| UsageError::BadValue {
        flag: "--output",
        value: value.to_owned(),
        reason: reason.to_owned(),
    };
    let path = match &args.output {
        Some(path) if path.as_os_str().is_empty() => {
            return Err(refuse("", "the name of the bag directory is empty"));
        }
        Some(path) if path.as_os_str() == "-" => {
            return Err(refuse(
                "-",
                "a recording cannot be written to standard output; name a directory, and send it when it is closed: \
                 holdall convert DIRECTORY -o -",
            ));
        }
        Some(path) => path.clone(),
        None => return Ok(free_name(&default_output(surroundings), surroundings.exists)),
    };
    super::refuse_remote(&path)?;
    if path.file_name().is_none_or(OsStr::is_empty) {
        return Err(UsageError::OutputExists { path });
    }
    if (surroundings.exists)(&path) {
        return Err(UsageError::OutputExists { path });
    }
    Ok(path)
}

/// The name that rosbag2 makes from the local time.
fn default_output(surroundings: &Surroundings<'_>) -> PathBuf {
    surroundings
        .local_time
        .strftime("rosbag2_%Y_%m_%d-%H_%M_%S")
        .to_string()
        .into()
}

/// Lets the next recording go into this folder, or into one that is named by the time.
pub fn set_output(resolved: &mut ResolvedRecord, folder: Option<PathBuf>, surroundings: &Surroundings<'_>) {
    resolved.default_output = folder.is_none().then(|| default_output(surroundings));
    let named = |base: &PathBuf| free_name(base, surroundings.exists);
    let output = folder.or_else(|| resolved.default_output.as_ref().map(named));
    resolved.options.output = output.unwrap_or_default();
}

/// Most suffixes to try; if all are taken, creating the bag is refused.
const SUFFIX_MAX: u32 = 9999;

/// `base`, or the first of `base_1`, `base_2` and so on that does not exist: several recordings can begin in
/// one second.
pub fn free_name(base: &Path, exists: &dyn Fn(&Path) -> bool) -> PathBuf {
    let with_suffix = |number: u32| match number {
        0 => base.to_owned(),
        _ => PathBuf::from(format!("{}_{number}", base.display())),
    };
    let free = (0..SUFFIX_MAX).map(with_suffix).find(|path| !exists(path));
    free.unwrap_or_else(|| with_suffix(SUFFIX_MAX))
}

fn cache(args: &CacheArguments, surroundings: &Surroundings<'_>) -> Result<CacheOptions, UsageError> {
    let memory = memory_bytes(surroundings.read_file);
    let size = args
        .max_cache_size
        .unwrap_or_else(|| CacheOptions::bytes_max_by_memory(memory, args.snapshot_mode));
    let grows_to = match args.max_cache_size {
        Some(_) => None,
        None => CacheOptions::grows_to_by_memory(memory, args.snapshot_mode),
    };
    // As in rosbag2: without a size, the time alone bounds the cache, up to the largest size that can be given there.
    let bytes = match size {
        0 if !args.max_cache_duration.is_zero() => u64::from(u32::MAX),
        bytes => bytes,
    };
    let bytes_max = usize::try_from(bytes).map_err(|_| UsageError::BadValue {
        flag: "--max-cache-size",
        value: size.to_string(),
        reason: "more than this machine can address".to_owned(),
    })?;
    Ok(CacheOptions {
        bytes_max,
        grows_to: grows_to.and_then(|bytes| usize::try_from(bytes).ok()),
        duration_max: some_unless_zero(args.max_cache_duration),
        policy: args.cache_policy,
        snapshot: args.snapshot_mode,
    })
}

/// `KEY=VALUE` pairs; the last one of a key counts.
pub(super) fn custom_data(pairs: &[String]) -> Result<BTreeMap<String, String>, UsageError> {
    pairs
        .iter()
        .map(|pair| match pair.split_once('=') {
            Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
            _ => Err(UsageError::BadValue {
                flag: "--custom-data",
                value: pair.clone(),
                reason: "expected key=value".to_owned(),
            }),
        })
        .collect()
}

/// With the names of robot and run that the profile for lakes promises, unless the user gives others.
fn with_ids(
    mut data: BTreeMap<String, String>,
    args: &RecordArguments,
    surroundings: &Surroundings<'_>,
) -> BTreeMap<String, String> {
    let profile = args.files.profile.as_deref();
    if profile.is_some_and(|profile| profile.as_os_str() == files::LAKE) {
        let host = || machine::host_name().unwrap_or_else(|| "robot".to_owned());
        let robot = data.entry(ROBOT_KEY.to_owned()).or_insert_with(host).clone();
        let began = surroundings.local_time.strftime("%Y%m%dT%H%M%S");
        data.entry(RUN_KEY.to_owned())
            .or_insert_with(|| format!("{robot}-{began}"));
    }
    data
}

pub fn ament_prefixes(surroundings: &Surroundings<'_>) -> Vec<PathBuf> {
    (surroundings.environment)("AMENT_PREFIX_PATH")
        .map(|paths| {
            std::env::split_paths(&paths)
                .filter(|path| !path.as_os_str().is_empty())
                .collect()
        })
        .unwrap_or_default()
}

/// Warnings of rosbag2: choices that another choice makes redundant.
fn warnings(args: &RecordSelection) -> Vec<String> {
    let all_topics = args.all || args.all_topics;
    let all_services = args.all || args.all_services;
    let all_actions = args.all || args.all_actions;
    let mut warnings = Vec::new();
    if all_topics && !(args.topics.is_empty() && args.positional_topics.is_empty()) {
        warnings.push("all topics are recorded, so naming some has no effect".to_owned());
    }
    if all_services && !args.services.is_empty() {
        warnings.push("all services are recorded, so naming some has no effect".to_owned());
    }
    if all_actions && !args.actions.is_empty() {
        warnings.push("all actions are recorded, so naming some has no effect".to_owned());
    }
    if (all_topics || all_services || all_actions) && args.regex.as_deref().is_some_and(|p| !p.is_empty()) {
        warnings.push(
            "-a, --all-topics, --all-services and --all-actions override --regex, which has no effect"
                .to_owned(),
        );
    }
    warnings
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
