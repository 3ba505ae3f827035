//! Command lines of `ros2 bag` are accepted: every flag of record, play, convert, info, list and reindex, from Humble to Rolling.

use super::Cli;
use clap::Parser;

/// Flags of `ros2 bag record`, each with a typical value. Not among them: `--repeat-transient-local` and `--repeat-all-transient-local`
/// of Rolling, which holdall lacks.
const RECORD: &[&str] = &[
    "/chatter /tf",
    "-a",
    "--all",
    "--all-topics",
    "--all-services",
    "--all-actions",
    "--topics /chatter /tf",
    "--services /add_two_ints /trigger",
    "--actions /fibonacci /navigate_to_pose",
    "--topic-types sensor_msgs/msg/Image std_msgs/msg/String",
    "-e ^/camera/.*",
    "--regex ^/camera/.*",
    "-a -x ^/camera/.*",
    "-a --exclude ^/camera/.*",
    "-a --exclude-regex ^/camera/.*",
    "-a --exclude-topics /rosout /parameter_events",
    "-a --exclude-services /trigger",
    "-a --exclude-actions /fibonacci",
    "-a --exclude-topic-types sensor_msgs/msg/Image",
    "-a --include-unpublished-topics",
    "-a --include-hidden-topics",
    "-a --ignore-leaf-topics",
    "-a --no-discovery",
    "-a -p 50",
    "-a --polling-interval 50",
    "--static-topics-path topics.yaml",
    "-a -o lab",
    "-a --output lab",
    "-a -s mcap",
    "-a --storage sqlite3",
    "-a -f cdr",
    "-a --serialization-format cdr",
    "-a --qos-profile-overrides-path qos.yaml",
    "-a -b 100000000",
    "-a --max-bag-size 100000000",
    "-a -d 60",
    "-a --max-bag-duration 60",
    "-a -d 60 --max-bag-files 5",
    "-a --max-cache-size 104857600",
    "-a --max-cache-duration 5",
    "-a --snapshot-mode",
    "-a --compression-mode file --compression-format zstd",
    "-a --compression-mode message --compression-format zstd --compression-queue-size 10 --compression-threads 2",
    "-a --compression-mode file --compression-format zstd --compression-threads-priority 10",
    "-a --storage-preset-profile zstd_fast",
    "-a --storage-config-file storage.yaml",
    "-a --start-paused",
    "-a --use-sim-time",
    "-a --node-name my_recorder",
    "-a --custom-data place=lab run=7",
    "-a --disable-keyboard-controls",
    "-a --stats_max_publishing_rate 2.0",
    "-a --stats-max-publishing-rate 2.0",
    "-a --log-level debug",
];

/// Command lines of the verbs that work on bags.
const TOOLS: &[&str] = &[
    "info lab",
    "info lab -s mcap",
    "info --storage sqlite3 lab",
    "info lab -t",
    "info lab --topic-name",
    "info lab -v",
    "info lab --verbose",
    "info lab --sort type",
    "convert -i lab -o out.yaml",
    "convert -i lab mcap -i other sqlite3 --output-options out.yaml",
    "convert --input lab -o out.yaml",
    "convert --input-options in.yaml -o out.yaml",
    "reindex lab",
    "reindex lab -s mcap",
    "reindex --storage sqlite3 lab",
    "list storage",
    "list converter --verbose",
    "list compressor -v",
    "list decompressor",
];

/// Flags of `ros2 bag play`.
const PLAY: &[&str] = &[
    "lab",
    "-i lab",
    "-i lab mcap -i other",
    "lab -s mcap",
    "lab --storage sqlite3",
    "lab --read-ahead-queue-size 100",
    "lab -r 2.0",
    "lab --rate 0.5",
    "lab --topics /chatter /tf",
    "lab --services /add_two_ints",
    "lab --actions /fibonacci",
    "lab -e /camera/.*",
    "lab --regex /camera/.*",
    "lab -x /camera/.*",
    "lab --exclude-regex /camera/.*",
    "lab --exclude-topics /rosout",
    "lab --exclude-services /trigger",
    "lab --exclude-actions /fibonacci",
    "lab --qos-profile-overrides-path qos.yaml",
    "lab -l",
    "lab --loop",
    "lab -m /a:=/b /c:=/d",
    "lab --remap /a:=/b",
    "lab --clock",
    "lab --clock 100",
    "lab --clock-topics /chatter",
    "lab --clock-topics-all",
    "lab -d 2",
    "lab --delay 0.5",
    "lab --start-offset 10",
    "lab --playback-duration 5",
    "lab --playback-until-sec 1700000000.5",
    "lab --playback-until-nsec 1700000000500000000",
    "lab -p",
    "lab --start-paused",
    "lab --wait-for-all-acked 1000",
    "lab --disable-loan-message",
    "lab --publish-service-requests",
    "lab --publish-service-requests --service-requests-source client_introspection",
    "lab --send-actions-as-client",
    "lab --message-order sent",
    "lab --progress-bar-update-rate 10",
    "lab --progress-bar-separation-lines 1",
    "lab --storage-config-file storage.yaml",
    "lab --disable-keyboard-controls",
    "lab --log-level debug",
];

#[test]
fn command_lines_of_ros2_bag_are_accepted() {
    let record = RECORD.iter().map(|flags| format!("record {flags}"));
    let tools = TOOLS.iter().map(ToString::to_string);
    let play = PLAY.iter().map(|flags| format!("play {flags}"));
    for line in record.chain(tools).chain(play) {
        let words = ["holdall"].into_iter().chain(line.split_whitespace());
        if let Err(error) = Cli::try_parse_from(words) {
            panic!("{line}: {error}");
        }
    }
}
