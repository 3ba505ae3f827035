//! `--ros-args` and parameter files, as launch files and rosbag2's composable nodes have them.

use super::{
    files::{Expanded, command_of, expand},
    node_parameters::{FLAGS, SPANS},
};
use std::{ffi::OsString, path::Path};

/// The command line with files by name.
fn with_files(line: &str, files: &[(&str, &str)]) -> Result<Expanded, String> {
    let words: Vec<OsString> = line.split(' ').map(Into::into).collect();
    let read = |path: &Path| {
        let file = files.iter().find(|(name, _)| path == Path::new(name));
        Ok(file.map(|(_, text)| (*text).to_owned()).unwrap_or_default())
    };
    expand(words, &read).map_err(|error| error.to_string())
}

fn line_of(expanded: &Expanded) -> String {
    expanded.argv.join(" ".as_ref()).into_string().unwrap()
}

fn expanded(line: &str, file: &str) -> Result<String, String> {
    with_files(line, &[("f", file)]).map(|expanded| line_of(&expanded))
}

/// The flags that the parameters of a player set, and the notices about them.
fn player(parameters: &str) -> Result<(String, Vec<String>), String> {
    let file = format!(
        "player:\n  ros__parameters:\n    {}\n",
        parameters.replace('\n', "\n    ")
    );
    let expanded = with_files("holdall play --params-file f", &[("f", &file)])?;
    let line = line_of(&expanded);
    let flags = line
        .strip_prefix("holdall play")
        .and_then(|rest| rest.strip_suffix("--params-file f"));
    Ok((flags.unwrap().trim().to_owned(), expanded.notices))
}

fn flags_of_player(parameters: &str) -> String {
    player(parameters).unwrap().0
}

#[test]
fn parameters_of_composable_nodes_are_flags() {
    let file = "/**:\n  rosbag2_recorder:\n    ros__parameters:\n      use_sim_time: true\n      record:\n        all_topics: true\n        \
        regex: \"\"\n        topic_polling_interval: {sec: 0, nsec: 10000000}\n      storage:\n        uri: lab\n        \
        max_bagfile_size: 2147483646\n        custom_data: [k=v, a=b]\n      other: 1\n";
    assert_eq!(
        expanded("holdall record --params-file f", file).unwrap(),
        "holdall record --all-topics --use-sim-time --output=lab --max-bag-size=2147483646 --custom-data=k=v \
         --custom-data=a=b --polling-interval=10000000ns --params-file f"
    );
    let dotted = "recorder:\n  ros__parameters:\n    record.all_topics: true\n    storage.uri: lab\n";
    assert_eq!(
        expanded("holdall record --ros-args --params-file f", dotted).unwrap(),
        "holdall record --all-topics --output=lab"
    );
    let refused = expanded("holdall record --params-file f", "a: {b: {c: 1}}").unwrap_err();
    assert!(refused.contains("/a/b/c has no ros__parameters"), "{refused}");
}

#[test]
fn negative_spans_of_a_player_are_none() {
    for parameters in [
        "play.wait_acked_timeout: {sec: -1, nsec: 0}",
        "play.wait_acked_timeout: {sec: 0, nsec: -1}",
        "play.wait_acked_timeout: {sec: 0, nsec: -999999999}",
        "play.wait_acked_timeout.sec: -1",
        "play.wait_acked_timeout: -1",
        "play.playback_duration: {sec: -1, nsec: 0}",
        "play.playback_duration: {sec: -1}",
        "play.playback_until_timestamp: {sec: -2, nsec: -500000000}",
        "play.playback_until_timestamp: {sec: -9223372035, nsec: -999999999}",
        "play.playback_until_timestamp:\n  sec: 0\n  nsec: -1",
    ] {
        assert_eq!(
            player(parameters),
            Ok((String::new(), Vec::new())),
            "{parameters}"
        );
    }
    for name in ["play.delay", "play.start_offset"] {
        let (flags, notices) = player(&format!("{name}: {{sec: 0, nsec: -5}}")).unwrap();
        assert!(
            flags.is_empty() && notices[0].contains(name),
            "{flags} {notices:?}"
        );
    }
}

#[test]
fn spans_of_a_player_keep_their_nanoseconds() {
    for (parameters, flags) in [
        (
            "play.wait_acked_timeout: {sec: 0, nsec: 0}",
            "--wait-for-all-acked=0ns",
        ),
        (
            "play.wait_acked_timeout: {sec: 5, nsec: 1}",
            "--wait-for-all-acked=5000000001ns",
        ),
        ("play.wait_acked_timeout: 250", "--wait-for-all-acked=250"),
        (
            "play.start_offset: {sec: 1, nsec: 999999999}",
            "--start-offset=1999999999ns",
        ),
        ("play.start_offset.nsec: 7", "--start-offset=7ns"),
        ("play.delay: {sec: 2}", "--delay=2000000000ns"),
        ("play.delay: 2.5", "--delay=2.5"),
        (
            "play.playback_duration: {sec: 3, nsec: 0}",
            "--playback-duration=3000000000ns",
        ),
        (
            "play.playback_until_timestamp: {sec: 1700000000, nsec: 5}",
            "--playback-until-nsec=1700000000000000005",
        ),
    ] {
        assert_eq!(flags_of_player(parameters), flags);
    }
    for (parameters, reason) in [
        (
            "play.delay: {sec: 0, nsec: 1000000000}",
            "nsec from -999999999 to 999999999",
        ),
        ("play.delay: {sec: 9223372036854775807}", "sec from"),
        ("play.delay: {sec: 0.5}", "line 3"),
    ] {
        let refused = player(parameters).unwrap_err();
        assert!(refused.contains(reason), "{refused}");
    }
}

#[test]
fn a_players_clock_ticks_and_precedes_messages() {
    let all = "play.clock_publish_on_topic_publish: true";
    let some = "play.clock_trigger_topics: [/a, /b]";
    let rate = "play.clock_publish_frequency: 19.0";
    assert_eq!(
        flags_of_player(&format!("{rate}\n{all}")),
        "--clock=19.0 --clock-topics-all"
    );
    assert_eq!(
        flags_of_player(&format!("{rate}\n{all}\n{some}")),
        "--clock=19.0 --clock-topics=/a --clock-topics=/b"
    );
    assert_eq!(flags_of_player("play.clock_publish_frequency: 0.0"), "");
    let (flags, notices) = player(&format!("{rate}\n{some}")).unwrap();
    assert_eq!(flags, "--clock=19.0");
    assert!(notices[0].contains("play.clock_trigger_topics"), "{notices:?}");
}

#[test]
fn texts_of_a_player_are_the_words_of_its_flags() {
    for (parameters, flags) in [
        ("play.publish_service_request: true", "--publish-service-requests"),
        (
            "play.publish_service_requests: true",
            "--publish-service-requests",
        ),
        (
            "play.service_requests_source: CLIENT_INTROSPECTION",
            "--service-requests-source=client_introspection",
        ),
        ("play.message_order: SENT_TIMESTAMP", "--message-order=sent"),
        ("play.message_order: received", "--message-order=received"),
        (
            "play.exclude_actions_to_filter: [/dock]",
            "--exclude-actions=/dock",
        ),
        (
            "play.progress_bar_update_rate: -1",
            "--progress-bar-update-rate=-1",
        ),
        (
            "storage: {uri: lab, storage_id: mcap, max_cache_size: 9}",
            "--input=lab --storage=mcap",
        ),
        ("play: {node_prefix: test}\nuse_sim_time: true", ""),
    ] {
        assert_eq!(
            player(parameters),
            Ok((flags.to_owned(), Vec::new())),
            "{parameters}"
        );
    }
    let (flags, notices) = player("play.topic_remapping_options: [-r, a:=b]").unwrap();
    assert!(
        flags.is_empty() && notices[0].contains("topic_remapping_options"),
        "{notices:?}"
    );
}

#[test]
fn parameters_that_rosbag2_does_not_have_are_refused_by_name() {
    for parameters in [
        "play.lop: true",
        "play: {lop: true}",
        "storage.urii: lab",
        "play.delay.secs: 1",
    ] {
        let refused = player(parameters).unwrap_err();
        let name = parameters.split([':', ' ']).next().unwrap();
        assert!(
            refused.contains("line 3: play has no parameter") && refused.contains(name),
            "{refused}"
        );
    }
    // Of another node, of every node, and one that asks for nothing.
    for parameters in [
        "record.topics: [/a]",
        "demo: 1",
        "qos_overrides./a.publisher.depth: 5",
        "start_type_description_service: true",
        "play.from_the_future: false",
        "storage.min_free_space_bytes: 0",
    ] {
        assert_eq!(
            player(parameters),
            Ok((String::new(), Vec::new())),
            "{parameters}"
        );
    }
}

#[test]
fn a_later_file_replaces_what_an_earlier_one_says() {
    let one =
        "recorder: {ros__parameters: {record: {topics: [/a, /b], start_paused: true}, storage.uri: one}}";
    let two = "recorder: {ros__parameters: {record: {topics: [/c], start_paused: false}}}";
    let files = [("one", one), ("two", two)];
    let flags = |line: &str| line_of(&with_files(line, &files).unwrap());
    assert_eq!(
        flags("holdall record --ros-args --params-file one --params-file two"),
        "holdall record --topics=/c --output=one"
    );
    assert_eq!(
        flags("holdall record --params-file one --params-file two"),
        "holdall record --topics=/c --output=one --params-file one --params-file two"
    );
    assert_eq!(
        flags("holdall record --ros-args --params-file two --params-file one -p record.topics:=[/d]"),
        "holdall record --topics=/d --start-paused --output=one"
    );
    assert_eq!(
        flags("holdall record --ros-args -p record.topics:=[/d] --params-file two -- -o lab"),
        "holdall record --topics=/c -o lab"
    );
}

#[test]
fn a_file_of_several_nodes_is_read_for_the_one_that_is_named() {
    let file = "/**: {ros__parameters: {use_sim_time: true}}\n/robot/front: {ros__parameters: {storage.uri: front, record.all: true}}\n\
        /robot: {rear: {ros__parameters: {storage.uri: rear, record.all: true}}}\n";
    for (arguments, flags) in [
        (
            "-r __ns:=/robot -r __node:=front",
            "--all --use-sim-time --output=front --node-name=/robot/front",
        ),
        (
            "-r __ns:=/robot -r __node:=rear",
            "--all --use-sim-time --output=rear --node-name=/robot/rear",
        ),
    ] {
        let line = format!("holdall record --ros-args {arguments} --params-file f");
        assert_eq!(expanded(&line, file).unwrap(), format!("holdall record {flags}"));
    }
    let refused = expanded("holdall record --params-file f", file).unwrap_err();
    assert!(
        refused.contains("/robot/front and /robot/rear") && refused.contains("/rosbag2_recorder"),
        "{refused}"
    );
    // As in rosbag2's README: one file for both, whatever they are called.
    let both = "player: {ros__parameters: {play.loop: true, storage.uri: old}}\nrecorder: {ros__parameters: {record.all: true, storage.uri: new}}";
    assert_eq!(
        expanded("holdall play --ros-args --params-file f", both).unwrap(),
        "holdall play --input=old --loop"
    );
    assert_eq!(
        expanded("holdall record --ros-args --params-file f", both).unwrap(),
        "holdall record --all --output=new"
    );
}

#[test]
fn ros_args_are_flags() {
    for (line, flags) in [
        (
            "record --ros-args -r __node:=rec -p use_sim_time:=true -p record.topics:=[/a,/b] --log-level WARN -- -o lab",
            "record --topics=/a --topics=/b --use-sim-time --node-name=rec --log-level=warn -o lab",
        ),
        (
            "record -a --ros-args -r __ns:=/robot",
            "record --node-name=/robot/rosbag2_recorder -a",
        ),
        (
            "record -a --node-name rec --ros-args --remap __ns:=/robot",
            "record --node-name=/robot/rec -a",
        ),
        (
            "record --node-name=/old/rec -a --ros-args -r __node:=new",
            "record --node-name=/old/new -a",
        ),
        (
            "record -a --ros-args -r rosbag2_recorder:__node:=a -r __node:=b",
            "record --node-name=a -a",
        ),
        ("record -a --ros-args -r camera:__node:=a", "record -a"),
        (
            "record -a --ros-args --enclave /robot/recorder",
            "record --enclave=/robot/recorder -a",
        ),
        ("play lab --ros-args -r /a:=/b", "play --remap=/a:=/b lab"),
        (
            "play lab --ros-args -r rostopic:///a:=b -r rosbag2_player:/c:=/d -r camera:/e:=/f",
            "play --remap=/a:=b --remap=/c:=/d lab",
        ),
        (
            "play lab --ros-args -p play.wait_acked_timeout.sec:=-1 -p rosbag2_player:play.rate:=2.0 -p camera:play.loop:=true",
            "play --rate=2.0 lab",
        ),
        (
            "record -a --ros-args --disable-rosout-logs --enable-stdout-logs --log-config-file x --log-file-name y --",
            "record -a",
        ),
        (
            "record -a --ros-args -- --ros-args --log-level debug",
            "record --log-level=debug -a",
        ),
        ("record -a --ros-args --ros-args --log-level unset", "record -a"),
        (
            "record -a --ros-args -r __ns:=/r --log-level r.rosbag2_recorder:=DEBUG --log-level rcl:=fatal",
            "record --node-name=/r/rosbag2_recorder --log-level=debug -a",
        ),
        ("record -a --ros-args --log-level rcl:=debug", "record -a"),
        (
            "bridge --ros-args -r __node:=b --log-level info -p use_sim_time:=true",
            "bridge --node-name=b --log-level=info",
        ),
        (
            "echo /a --ros-args -r __ns:=/x",
            "echo --node-name=/x/holdall_listener /a",
        ),
        (
            "burst lab --ros-args -r /a:=/b -r __node:=x",
            "burst --remap=/a:=/b lab",
        ),
        (
            "serve lab --ros-args -r __node:=x --log-level warn",
            "serve --log-level=warn lab",
        ),
        (
            "preflight -a --ros-args -p record.regex:=x",
            "preflight --regex=x -a",
        ),
    ] {
        let expanded = with_files(&format!("holdall {line}"), &[]).unwrap();
        assert_eq!(line_of(&expanded), format!("holdall {flags}"));
        assert_eq!(expanded.notices, Vec::<String>::new(), "{line}");
    }
}

#[test]
fn ros_args_without_effect_are_named() {
    for (line, flags, word) in [
        (
            "record -a --ros-args -r /tf:=tf -r /tf_static:=tf_static",
            "record -a",
            "/tf:=tf",
        ),
        ("hz /a --ros-args -r /a:=/b", "hz /a", "/a:=/b"),
        (
            "play lab --ros-args -r rosservice:///a:=/b",
            "play lab",
            "rosservice:///a",
        ),
        (
            "record -a --ros-args -p flying:=1",
            "record -a",
            "record has no parameter flying",
        ),
        (
            "bridge --ros-args -p record.all:=true",
            "bridge",
            "bridge has no parameter record.all",
        ),
    ] {
        let expanded = with_files(&format!("holdall {line}"), &[]).unwrap();
        assert_eq!(line_of(&expanded), format!("holdall {flags}"));
        assert!(expanded.notices[0].contains(word), "{:?}", expanded.notices);
    }
    let silent = "record -a --ros-args -p qos_overrides./a.subscription.depth:=3 -p start_type_description_service:=false";
    assert!(
        with_files(&format!("holdall {silent}"), &[])
            .unwrap()
            .notices
            .is_empty()
    );
}

#[test]
fn ros_args_that_no_node_has_are_refused() {
    for line in [
        "-r x",
        "-r :=x",
        "-r __log_level:=debug",
        "-p record.flying:=1",
        "-p use_sim_time:=maybe",
        "-p use_sim_time",
        "-p :=1",
        "-r",
        "-p",
        "--log-level",
        "--params-file",
        "--what",
        "--disable-everything",
        "/topic",
    ] {
        let refused = expanded(&format!("holdall record --ros-args {line}"), "").unwrap_err();
        assert!(refused.contains("--ros-args"), "{refused}");
    }
}

#[test]
fn every_parameter_sets_a_flag_that_exists() {
    let spans = SPANS
        .iter()
        .map(|(verb, parameter, long, _)| (verb, parameter, long));
    let flags = FLAGS
        .iter()
        .map(|(verb, parameter, long)| (verb, parameter, long));
    for (verb, parameter, long) in flags.chain(spans) {
        let command = command_of(verb);
        let is_known = command
            .get_arguments()
            .any(|argument| argument.get_long() == Some(long));
        assert!(is_known, "{parameter} of {verb}: --{long}");
    }
}

#[test]
fn parameters_of_every_distribution_are_known() {
    // What rosbag2_transport 0.26 (Jazzy) to 0.33 declares, and later sources have.
    let player = "read_ahead_queue_size node_prefix rate topics_to_filter services_to_filter actions_to_filter regex_to_filter \
        exclude_regex_to_filter exclude_topics_to_filter exclude_services_to_filter exclude_actions_to_filter qos_profile_overrides_path loop \
        topic_remapping_options clock_publish_frequency clock_publish_on_topic_publish clock_trigger_topics delay playback_duration \
        playback_until_timestamp start_paused start_offset disable_keyboard_controls wait_acked_timeout disable_loan_message \
        publish_service_request publish_service_requests send_actions_as_client service_requests_source message_order \
        progress_bar_update_rate progress_bar_separation_lines";
    let recorder = "all_topics all_services all_actions is_discovery_disabled topics topic_types services actions exclude_topics \
        exclude_topic_types exclude_services exclude_actions rmw_serialization_format topic_polling_interval regex exclude_regex node_prefix \
        compression_mode compression_format compression_queue_size compression_threads compression_threads_priority \
        qos_profile_overrides_path include_hidden_topics include_unpublished_topics ignore_leaf_topics start_paused \
        disable_keyboard_controls static_topics_uri statistics_max_publishing_rate repeat_transient_local_messages \
        repeat_all_transient_local_depth";
    let storage = "uri storage_id storage_config_uri max_bagfile_size max_bagfile_duration max_cache_size max_cache_duration \
        storage_preset_profile snapshot_mode custom_data start_time_ns end_time_ns";
    for (verb, names, prefix) in [
        ("play", player, "play"),
        ("record", recorder, "record"),
        ("play", storage, "storage"),
        ("record", storage, "storage"),
    ] {
        for name in names.split_whitespace() {
            // A value of another type, at the worst.
            let line = format!("holdall {verb} --ros-args -p {prefix}.{name}:=x");
            if let Err(refused) = with_files(&line, &[]) {
                assert!(!refused.contains("has no parameter"), "{refused}");
            }
        }
    }
}
