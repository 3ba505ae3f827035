//! From the arguments of `holdall record` to the options of a recording: defaults, combinations, refusals.

use super::{super::surroundings::fake::Fake, *};
use crate::args::{Cli, Verb};
use clap::Parser;
use holdall::record::options::CachePolicy;

fn in_fake(fake: &Fake, line: &str) -> Result<ResolvedRecord, String> {
    let words = ["holdall", "record"].into_iter().chain(line.split_whitespace());
    let cli = Cli::try_parse_from(words).map_err(|error| error.to_string())?;
    let Verb::Record(args) = cli.verb else {
        panic!("another verb")
    };
    fake.with(|surroundings| resolve(&args, surroundings))
        .map_err(|error| error.to_string())
}

fn options(line: &str) -> RecordOptions {
    in_fake(&Fake::default(), line).unwrap().options
}

fn refusal(line: &str) -> String {
    let sentence = in_fake(&Fake::default(), line).unwrap_err();
    assert!(!sentence.contains('\n'), "{sentence}");
    sentence
}

#[test]
fn defaults_are_those_of_rosbag2() {
    let options = options("-a");
    assert_eq!(options.output, PathBuf::from("rosbag2_2024_03_09-08_07_06"));
    assert_eq!(options.files.storage_id, "mcap");
    assert_eq!(options.cache.bytes_max, 100 * 1024 * 1024);
    assert_eq!(options.cache, CacheOptions::default());
    assert_eq!(options.files.split, SplitOptions::default());
    assert_eq!(options.discovery.polling_interval, Duration::from_millis(100));
    assert!(options.selection.all_topics && options.selection.all_services);
    assert!(!options.discovery.no_discovery && !options.start_paused && !options.use_sim_time);
}

#[test]
fn an_empty_rescue_directory_is_none() {
    let directory = |line| options(line).safety.rescue_directory;
    assert_eq!(directory("-a"), Some(PathBuf::from("/dev/shm")));
    assert_eq!(
        directory("-a --rescue-directory /tmp"),
        Some(PathBuf::from("/tmp"))
    );
    assert_eq!(directory("-a --rescue-directory="), None);
}

#[test]
fn topics_may_be_alone_or_after_the_flag_and_become_full_names() {
    assert_eq!(options("chatter /tf").selection.topics, ["/chatter", "/tf"]);
    let options = options("--topics /a b -o out --services add --topic-types std_msgs/msg/String");
    assert_eq!(options.selection.topics, ["/a", "/b"]);
    assert_eq!(options.selection.services, ["/add"]);
    assert_eq!(options.selection.topic_types, ["std_msgs/msg/String"]);
    assert_eq!(options.output, PathBuf::from("out"));
}

#[test]
fn sizes_and_spans_are_understood_and_zero_means_off() {
    let options = options(
        "-a -b 1GB -d 90 --max-bag-files 3 --max-cache-size 256MiB --max-cache-duration 2.5s -p 50 --cache-policy drop-old",
    );
    assert_eq!(options.files.split.bytes_max, Some(1_000_000_000));
    assert_eq!(options.files.split.duration_max, Some(Duration::from_secs(90)));
    assert_eq!(options.files.split.files_max, Some(3));
    assert_eq!(options.cache.bytes_max, 256 << 20);
    assert_eq!(options.cache.duration_max, Some(Duration::from_millis(2500)));
    assert_eq!(options.cache.policy, CachePolicy::DropOld);
    assert_eq!(options.discovery.polling_interval, Duration::from_millis(50));
    assert_eq!(self::options("-a -b 0 -d 0").files.split, SplitOptions::default());
    assert_eq!(
        self::options("-a --max-cache-size 0 --max-cache-duration 3")
            .cache
            .bytes_max,
        0xffff_ffff
    );
}

#[test]
fn the_last_one_of_a_repeated_flag_counts_and_lists_add_up() {
    let options = options("-b 5MB -b 6MB --topics /a --topics /b");
    assert_eq!(options.files.split.bytes_max, Some(6_000_000));
    assert_eq!(options.selection.topics, ["/a", "/b"]);
}

#[test]
fn custom_data_and_environment_go_to_the_metadata() {
    let fake = Fake {
        variables: [
            ("ROS_DISTRO", "jazzy"),
            ("AMENT_PREFIX_PATH", "/opt/ros/jazzy::/ws/install"),
        ]
        .into(),
        ..Fake::default()
    };
    let options = in_fake(&fake, "-a --custom-data run=7 place=lab=2 run=8")
        .unwrap()
        .options;
    assert_eq!(
        options.files.custom_data,
        [("place", "lab=2"), ("run", "8")]
            .map(|(k, v)| (k.into(), v.into()))
            .into()
    );
    assert_eq!(options.files.ros_distro.as_deref(), Some("jazzy"));
    assert_eq!(
        options.discovery.ament_prefixes,
        [PathBuf::from("/opt/ros/jazzy"), PathBuf::from("/ws/install")]
    );
}

#[test]
fn static_topics_alone_turn_discovery_off() {
    let fake = Fake {
        files: [(
            "t.yaml",
            "static_topics_and_types_list: [[/a, std_msgs/msg/String]]",
        )]
        .into(),
        ..Fake::default()
    };
    let alone = in_fake(&fake, "--static-topics-path t.yaml").unwrap().options;
    assert_eq!(
        alone.discovery.static_topics,
        [("/a".to_owned(), "std_msgs/msg/String".to_owned())]
    );
    assert!(alone.discovery.no_discovery);
    assert!(
        !in_fake(&fake, "-a --static-topics-path t.yaml")
            .unwrap()
            .options
            .discovery
            .no_discovery
    );
}

#[test]
fn nothing_selected_is_refused() {
    assert!(refusal("").contains("nothing is selected to record"));
    assert!(refusal("--regex= ").contains("nothing is selected to record"));
    assert!(refusal("-o out").contains("nothing is selected to record"));
}

#[test]
fn excludes_need_a_broad_choice() {
    for line in [
        "--exclude-regex x --topics /t",
        "--exclude-topics /x --topics /t",
        "--exclude-topics /x --all-services",
        "--exclude-services /x --all-topics",
        "--exclude-topic-types a/msg/B --services /s",
    ] {
        let flag = line.split(' ').next().unwrap();
        assert!(refusal(line).starts_with(flag), "{line}");
    }
    for line in [
        "-a --exclude-regex x",
        "--all-services --exclude-regex x",
        "-e a --exclude-services /x",
        "--topic-types a/msg/B --exclude-topics /x",
    ] {
        assert!(in_fake(&Fake::default(), line).is_ok(), "{line}");
    }
}

#[test]
fn events_take_their_memory_from_the_cache() {
    assert_eq!(options("-a").triggers, None);
    let recording = options(
        "-a --trigger /v:x<1 --trigger /scan:len(r)==0 --before 2m --after 500ms --max-cache-size 80MiB",
    );
    let triggers = recording.triggers.unwrap();
    let topics: Vec<&str> = triggers.triggers.iter().map(|it| it.topic.as_str()).collect();
    assert_eq!(topics, ["/v", "/scan"]);
    assert_eq!(
        (triggers.before, triggers.after),
        (Duration::from_secs(120), Duration::from_millis(500))
    );
    assert_eq!(
        (recording.cache.bytes_max, triggers.ring_bytes_max),
        (20 << 20, 60 << 20)
    );
    let on_request = options("-a --after 5").triggers.unwrap();
    assert!(on_request.triggers.is_empty());
    assert_eq!(
        (on_request.before, on_request.after),
        (Duration::from_secs(30), Duration::from_secs(5))
    );
    assert_eq!(
        refusal("-a --trigger /v:x<"),
        "--trigger \"/v:x<\": expression, character 6: expected a value, found the end"
    );
    assert!(refusal("-a --trigger /v:x<1 --snapshot-mode").starts_with("--trigger and --snapshot-mode"));
    assert!(refusal("-a --trigger /v:x<1 --max-cache-size 0").starts_with("--trigger needs memory"));
    let ring = "-a --ring 1h --promote-on /v:x<1 --after 5";
    let promoting = options(ring);
    let promote = promoting.promote.unwrap();
    assert_eq!((promoting.triggers, promote.on_contract), (None, false));
    assert_eq!(
        (promote.before, promote.after),
        (Duration::from_secs(30), Duration::from_secs(5))
    );
    assert!(options("-a --ring 1h").promote.is_none());
    for (line, wanted) in [
        ("-a --promote-on /v:x<1", "--promote-on needs --ring"),
        (
            "-a --ring 1h --promote-on contract",
            "--promote-on contract needs --contract",
        ),
        (
            "-a --ring 1h --promote-on /v:x<1 --trigger /v:x<2",
            "--promote-on and --trigger",
        ),
        (
            "-a --ring 1h --promote-on /v:x<1 --snapshot-mode",
            "--promote-on and --snapshot-mode",
        ),
        (
            "-a --ring 1h --promote-on /v:x<",
            "--promote-on \"/v:x<\": expression",
        ),
    ] {
        assert!(refusal(line).starts_with(wanted), "{}", refusal(line));
    }
    assert!(options("-a --on-file-closed true").files.lists_complete_files);
    assert!(refusal("-a --alarm /scan:x<1").contains("an alarm is silent or rate"));
    assert!(refusal("-a --alarm /scan").starts_with("--alarm \"/scan\": expression, character 6"));
    assert!(refusal("-a --on-alarm=").starts_with("--on-alarm needs a command"));
    assert!(refusal("-a --on-file-closed=").starts_with("--on-file-closed needs a command"));
}

#[test]
fn combinations_without_meaning_are_refused_by_name() {
    assert!(refusal("-a --use-sim-time --no-discovery").contains("--use-sim-time and --no-discovery"));
    assert!(refusal("-a --max-bag-files 3").starts_with("--max-bag-files needs"));
    assert!(refusal("-a --snapshot-mode --max-cache-size 0").starts_with("--snapshot-mode needs"));
    assert!(refusal("-a -b 10").contains("1024"));
    assert!(refusal("-a -p 0").contains("1 ms"));
    assert!(refusal("-a -s floppy").starts_with("--storage \"floppy\""));
    assert!(refusal("-a --storage-preset-profile tiny").starts_with("--storage-preset-profile \"tiny\""));
    assert!(refusal("-a --custom-data novalue").contains("novalue"));
    assert!(refusal("-a --node-name a/b").contains("a/b"));
    assert!(refusal("--topics /bad//topic").contains("/bad//topic"));
    assert!(refusal("-e [a").contains("not a regular expression"));
    assert!(refusal("-a --topic-types Image").contains("package/msg/Name"));
}

#[test]
fn files_are_named_with_their_flag() {
    let error = refusal("-a --qos-profile-overrides-path none.yaml");
    assert_eq!(
        error,
        "--qos-profile-overrides-path none.yaml: no such file or directory"
    );
    let fake = Fake {
        files: [("qos.yaml", "/t:\n  depht: 3\n")].into(),
        ..Fake::default()
    };
    let error = in_fake(&fake, "-a --qos-profile-overrides-path qos.yaml").unwrap_err();
    assert!(
        error.starts_with("--qos-profile-overrides-path qos.yaml: "),
        "{error}"
    );
    assert!(error.contains("depht") && error.contains("/t"), "{error}");
    let fake = Fake {
        files: [("s.yaml", "noChunkCRX: true\n")].into(),
        ..Fake::default()
    };
    let error = in_fake(&fake, "-a --storage-config-file s.yaml").unwrap_err();
    assert!(
        error.starts_with("--storage-config-file s.yaml: ") && error.contains("noChunkCRX"),
        "{error}"
    );
}

#[test]
fn an_existing_output_is_never_used() {
    let fake = Fake {
        files: [("out", "")].into(),
        ..Fake::default()
    };
    assert!(
        in_fake(&fake, "-a -o out")
            .unwrap_err()
            .contains("already exists")
    );
    assert!(refusal("-a -o /").contains("already exists"));
    assert!(refusal("-a -o .. ").contains("already exists"));
}

#[test]
fn several_recordings_of_one_second_get_a_suffix() {
    let taken = |files: &[&'static str]| Fake {
        files: files.iter().map(|name| (*name, "")).collect(),
        ..Fake::default()
    };
    let name = "rosbag2_2024_03_09-08_07_06";
    let output = |fake: &Fake| in_fake(fake, "-a").unwrap().options.output;
    assert_eq!(output(&taken(&[name])), PathBuf::from(format!("{name}_1")));
    let two = taken(&[name, "rosbag2_2024_03_09-08_07_06_1"]);
    assert_eq!(output(&two), PathBuf::from(format!("{name}_2")));
}

#[test]
fn standard_output_is_refused_with_what_to_do() {
    let text = refusal("-a -o -");
    assert!(
        text.contains("standard output") && text.contains("holdall convert"),
        "{text}"
    );
}

#[test]
fn choices_without_effect_are_warned_of() {
    assert_eq!(
        in_fake(&Fake::default(), "-a").unwrap().warnings,
        Vec::<String>::new()
    );
    assert_eq!(
        in_fake(&Fake::default(), "-a --topics /t -e x --services /s")
            .unwrap()
            .warnings
            .len(),
        3
    );
}

#[test]
fn compression_is_resolved_as_in_rosbag2() {
    let found = options(
        "-a --compression-mode MESSAGE --compression-format zstd --compression-queue-size 5 --compression-threads 3 --compression-threads-priority -5",
    );
    let expected = CompressionOptions {
        mode: CompressionMode::Message,
        queue_max: NonZeroU32::new(5),
        threads: Some(3),
        threads_nice: -5,
    };
    assert_eq!(found.files.compression, expected);
    assert_eq!(options("-a").files.compression, CompressionOptions::default());
    assert_eq!(
        options("-a --compression-mode file").files.compression.mode,
        CompressionMode::File
    );
    let error = refusal("-a --compression-format zstd");
    assert!(error.contains("needs --compression-mode"), "{error}");
    let error = refusal("-a --compression-mode file --compression-format lz4");
    assert!(error.contains("expected one of zstd"), "{error}");
}

#[test]
fn limits_of_the_whole_recording_are_understood() {
    let options =
        options("-a --max-recording-duration 2min --max-recording-size 1GB --max-recording-messages 7");
    assert_eq!(
        options.limits,
        RecordingLimits {
            duration_max: Some(Duration::from_secs(120)),
            bytes_max: Some(1_000_000_000),
            messages_max: Some(7),
        }
    );
    let none =
        self::options("-a --max-recording-duration 0 --max-recording-size 0 --max-recording-messages 0");
    assert_eq!(none.limits, RecordingLimits::default());
}

#[test]
fn messages_are_stored_as_cdr_only() {
    for line in [
        "-a -f cdr",
        "-a --serialization-format cdr",
        "-a --serialization-format=",
    ] {
        options(line);
    }
    assert_eq!(
        refusal("-a -f json"),
        "--serialization-format \"json\": messages are stored as they arrive; cdr is the only format"
    );
}

#[test]
fn throttles_have_a_topic_and_a_rate() {
    let options = options("-a --topic-throttle-frequency /a=2.5 b=10 /a=3");
    assert_eq!(
        options.throttles,
        [("/a".to_owned(), 3.0), ("/b".to_owned(), 10.0)].into()
    );
    for (pair, reason) in [
        ("/a", "expected TOPIC=HZ, for example /camera/image=2.5"),
        ("/a=0", "a rate from 0.000001 to 1000000 Hz is needed"),
        ("/a=fast", "a rate from 0.000001 to 1000000 Hz is needed"),
        ("/a=-1", "a rate from 0.000001 to 1000000 Hz is needed"),
        ("/a=NaN", "a rate from 0.000001 to 1000000 Hz is needed"),
    ] {
        let line = format!("-a --topic-throttle-frequency {pair}");
        assert_eq!(
            refusal(&line),
            format!("--topic-throttle-frequency \"{pair}\": {reason}")
        );
    }
}

#[test]
fn topics_have_compressions_of_their_own() {
    let options = options("-a --topic-compression points=zstd /a=lz4 /a=none");
    assert_eq!(
        options.files.topic_compression,
        [
            ("/a".to_owned(), "none".to_owned()),
            ("/points".to_owned(), "zstd".to_owned())
        ]
        .into()
    );
    for (line, reason) in [
        ("/a", "\"/a\": expected TOPIC=CODEC with one of none, lz4, zstd"),
        (
            "/a=brotli",
            "\"/a=brotli\": expected TOPIC=CODEC with one of none, lz4, zstd",
        ),
        (
            "/a=zstd -s sqlite3",
            "\"/a=zstd\": SQLite cannot compress single topics",
        ),
        (
            "/a=zstd --storage-preset-profile fastwrite",
            "none: this preset or configuration writes no chunks",
        ),
    ] {
        let refusal = refusal(&format!("-a --topic-compression {line}"));
        assert!(refusal.contains(reason), "{refusal}");
    }
}

#[test]
fn latched_messages_are_repeated_as_deep_as_requested() {
    let depth = |depth| NonZeroU32::new(depth).unwrap();
    assert!(options("-a").files.repeat.is_none());
    let some = options("-a --repeat-transient-local map /tf_static=5 /map=2")
        .files
        .repeat;
    let topics = [("/map".to_owned(), depth(2)), ("/tf_static".to_owned(), depth(5))];
    assert_eq!((some.topics, some.all), (topics.into(), None));
    assert_eq!(
        options("-a --repeat-all-transient-local").files.repeat.all,
        Some(depth(1))
    );
    assert_eq!(
        options("-a --repeat-all-transient-local 7").files.repeat.all,
        Some(depth(7))
    );
    for pair in ["/a=0", "/a=-1", "/a=x", "/a=1001", "/a="] {
        assert_eq!(
            refusal(&format!("-a --repeat-transient-local {pair}")),
            format!("--repeat-transient-local \"{pair}\": expected TOPIC or TOPIC=N with N from 1 to 1000")
        );
    }
}

#[test]
fn actions_are_selected_as_services_are() {
    let all = options("-a").selection;
    assert!(all.all_topics && all.all_services && all.all_actions);
    let actions = options("--all-actions --exclude-actions fib").selection;
    assert!(actions.all_actions && !actions.all_topics && !actions.all_services);
    assert_eq!(actions.exclude_actions, ["/fib"]);
    assert_eq!(
        options("--actions fib /dock").selection.actions,
        ["/fib", "/dock"]
    );
    assert_eq!(
        refusal("--actions /fib --exclude-actions /dock"),
        "--exclude-actions excludes from a broad selection; add one of -a, --all-actions or --regex"
    );
}
