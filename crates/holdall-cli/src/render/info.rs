//! A bag on the screen, line for line as `ros2 bag info` shows it, with what was lost.

use super::{
    attach::attachment_line,
    labels::{LABEL_CELLS, push, push_list, seconds, time_point},
};
use crate::{
    args::info::Sort,
    units::{format_bytes, format_count, plural},
};
use holdall::reader::{AccountSummary, BagSummary, TopicPublisher, UndefinedTopic};
use holdall_model::{
    contract::CONTRACT_CUSTOM_KEY,
    episode::Episode,
    loss::LossSums,
    marker::Marker,
    metadata::TopicWithMessageCount,
    names::{service_of_event_topic, service_of_event_type},
    recoding::Recoding,
    text::{Outside, one_line},
    time_line::ClockJump,
};
use jiff::tz::TimeZone;

/// Services are indented two cells more: their label has 21 letters.
const SERVICE_LABEL: &str = "Service information: ";

/// The contents of a bag for display.
pub struct BagView<'a> {
    /// What is in it.
    pub summary: &'a BagSummary,
    /// Order of topics and services.
    pub sort: Sort,
}

impl BagView<'_> {
    fn is_service(topic: &TopicWithMessageCount) -> bool {
        service_of_event_topic(&topic.topic_metadata.name, &topic.topic_metadata.type_name).is_some()
    }

    /// Topics, or services' event topics, in the requested order; equal ones by name.
    fn sorted(&self, services: bool) -> Vec<&TopicWithMessageCount> {
        let all = &self.summary.metadata.topics_with_message_count;
        let mut topics: Vec<_> = all
            .iter()
            .filter(|topic| Self::is_service(topic) == services)
            .collect();
        topics.sort_by(|a, b| a.topic_metadata.name.cmp(&b.topic_metadata.name));
        match self.sort {
            Sort::Name => {}
            Sort::Type => topics.sort_by(|a, b| a.topic_metadata.type_name.cmp(&b.topic_metadata.type_name)),
            Sort::Count => topics.sort_by_key(|topic| topic.message_count),
        }
        topics
    }

    /// Names of topics, without services (`--topic-name`).
    pub fn topic_names(&self) -> Vec<&str> {
        self.sorted(false)
            .into_iter()
            .map(|topic| topic.topic_metadata.name.as_str())
            .collect()
    }

    /// The text for people; times are shown in `zone`.
    pub fn text(&self, zone: &TimeZone) -> String {
        let (summary, metadata) = (self.summary, &self.summary.metadata);
        let services = self.sorted(true);
        let service_events: u64 = services.iter().map(|topic| topic.message_count).sum();
        let start = metadata.starting_time.unwrap_or_default();
        let end = start.saturating_add(metadata.duration);
        let distro = metadata.ros_distro.as_deref().unwrap_or("unknown");
        let mut text = String::from("\n");
        let files: Vec<String> = metadata
            .relative_file_paths
            .iter()
            .map(|path| Outside(path).to_string())
            .collect();
        push_list(&mut text, "Files:", LABEL_CELLS, &files);
        push(&mut text, "Bag size:", &format_bytes(summary.bytes));
        push(&mut text, "Storage id:", &one_line(&metadata.storage_identifier));
        push(&mut text, "ROS Distro:", &one_line(distro));
        let steady = summary.duration_without_jumps.map_or_else(String::new, |span| {
            format!(" ({}s without the jumps of its clock)", seconds(span))
        });
        push(
            &mut text,
            "Duration:",
            &format!("{}s{steady}", seconds(metadata.duration)),
        );
        push(&mut text, "Start:", &time_point(start, zone));
        push(&mut text, "End:", &time_point(end, zone));
        push(
            &mut text,
            "Messages:",
            &metadata.message_count.saturating_sub(service_events).to_string(),
        );
        let topics: Vec<String> = self
            .sorted(false)
            .into_iter()
            .map(|topic| self.topic_line(topic))
            .collect();
        push_list(&mut text, "Topic information:", LABEL_CELLS, &topics);
        push(&mut text, "Service:", &services.len().to_string());
        let lines: Vec<String> = services
            .into_iter()
            .map(|topic| self.service_line(topic))
            .collect();
        push_list(&mut text, SERVICE_LABEL, SERVICE_LABEL.len(), &lines);
        self.push_further(&mut text, zone);
        push(&mut text, "State:", summary.state.condition.as_str());
        if let Some(outcome) = metadata.custom_data.get(CONTRACT_CUSTOM_KEY) {
            push(&mut text, "Contract:", &one_line(outcome));
        }
        push_list(&mut text, "Lost messages:", LABEL_CELLS, &self.lost_lines(zone));
        if let Some(account) = &summary.state.account {
            push_account(&mut text, account, zone);
        }
        if summary.encrypted {
            push(&mut text, "Encrypted:", "yes");
        }
        text
    }

    /// The lists that most bags do not have.
    fn push_further(&self, text: &mut String, zone: &TimeZone) {
        let summary = self.summary;
        let publishers: Vec<String> = summary.publishers.iter().map(publisher_line).collect();
        let undefined: Vec<String> = summary.undefined.iter().map(undefined_line).collect();
        let marker = |marker| marker_line(marker, zone);
        let markers: Vec<String> = summary.markers.iter().map(marker).collect();
        let episode = |episode: &Episode| {
            let said = episode.to_string();
            format!("{}: {}", time_point(episode.start, zone), Outside(&said))
        };
        let episodes: Vec<String> = summary.episodes.iter().map(episode).collect();
        let jumps = jump_lines(&summary.clock_jumps, zone);
        let damage = summary.attachments_damage.iter();
        let damage = damage.map(|reason| format!("cannot be read: {}", Outside(reason)));
        let attachments: Vec<String> = summary
            .attachments
            .iter()
            .map(attachment_line)
            .chain(damage)
            .collect();
        let repeated = summary.repeated.iter();
        let repeated: Vec<String> = repeated
            .map(|(topic, count)| format!("{}: {}", Outside(topic), plural(*count, "message")))
            .collect();
        let unheard = summary.unheard_services.iter();
        let unheard: Vec<String> = unheard.map(|name| Outside(name).to_string()).collect();
        let not_heard = summary.not_heard.iter();
        let not_heard: Vec<String> = not_heard
            .map(|one| Outside(&one.to_string()).to_string())
            .collect();
        let recoded = Recoding::list_in(&summary.metadata.custom_data);
        let recoded: Vec<String> = recoded.iter().map(Recoding::to_string).collect();
        for (label, cells, list) in [
            ("Publishers:", LABEL_CELLS, publishers),
            ("Without definition:", LABEL_CELLS + 1, undefined),
            ("Markers:", LABEL_CELLS, markers),
            ("Episodes:", LABEL_CELLS, episodes),
            ("Clock jumps:", LABEL_CELLS, jumps),
            ("Attachments:", LABEL_CELLS, attachments),
            ("No introspection:", LABEL_CELLS, unheard),
            ("Not heard:", LABEL_CELLS, not_heard),
            ("Repeated in files:", LABEL_CELLS + 1, repeated),
            ("Other form:", LABEL_CELLS, recoded),
        ] {
            if !list.is_empty() {
                push_list(text, label, cells, &list);
            }
        }
    }

    fn size(&self, topic: &TopicWithMessageCount) -> String {
        self.summary
            .contents
            .as_ref()
            .map_or_else(String::new, |contents| {
                let bytes = contents
                    .bytes_by_topic
                    .get(&topic.topic_metadata.name)
                    .copied()
                    .unwrap_or(0);
                format!("Size Contribution: {} | ", format_bytes(bytes))
            })
    }

    fn topic_line(&self, topic: &TopicWithMessageCount) -> String {
        let about = &topic.topic_metadata;
        format!(
            "Topic: {} | Type: {} | Count: {} | {}Serialization Format: {}",
            Outside(&about.name),
            Outside(&about.type_name),
            topic.message_count,
            self.size(topic),
            Outside(&about.serialization_format)
        )
    }

    fn service_line(&self, topic: &TopicWithMessageCount) -> String {
        let about = &topic.topic_metadata;
        let name = service_of_event_topic(&about.name, &about.type_name).unwrap_or(&about.name);
        let type_name = service_of_event_type(&about.type_name).unwrap_or(&about.type_name);
        let counts = match &self.summary.contents {
            Some(contents) => {
                let counts = contents.services.get(&about.name).copied().unwrap_or_default();
                format!(
                    "Request Count: {} | Response Count: {}",
                    counts.requests, counts.responses
                )
            }
            None => format!("Event Count: {}", topic.message_count),
        };
        format!(
            "Service: {} | Type: {} | {counts} | {}Serialization Format: {}",
            Outside(name),
            Outside(type_name),
            self.size(topic),
            Outside(&about.serialization_format)
        )
    }

    /// Messages missing from the bag: total, then each topic with its stages.
    fn lost_lines(&self, zone: &TimeZone) -> Vec<String> {
        let time = |at| time_point(at, zone);
        let mut lines = vec![self.summary.state.lost_line(time)];
        for (topic, stages) in self.summary.state.lost.iter().flatten() {
            let LossSums {
                lost,
                by_stage,
                before_match,
                ..
            } = LossSums::of(stages);
            let topic = Outside(topic);
            if lost > 0 {
                let each: Vec<String> = by_stage
                    .iter()
                    .map(|(stage, count)| format!("{} {count}", stage.as_str()))
                    .collect();
                lines.push(format!(
                    "Topic: {topic} | Lost: {lost} | Stages: {}",
                    each.join(", ")
                ));
            }
            if before_match > 0 {
                lines.push(format!("Topic: {topic} | Sent while not matched: {before_match}"));
            }
        }
        lines.extend(self.summary.state.more_lines(time));
        lines
    }
}

/// One publisher of one topic.
pub(super) fn publisher_line(counted: &TopicPublisher) -> String {
    let mut line = format!("Topic: {}", Outside(&counted.topic));
    match &counted.publisher {
        Some(publisher) => {
            let about = [
                ("Node", publisher.node.as_deref()),
                ("Host", publisher.host.as_deref()),
                ("Transport", publisher.transport.as_deref()),
                ("GID", Some(publisher.gid.as_str())),
            ];
            for (label, text) in about {
                if let Some(text) = text {
                    line.push_str(&format!(" | {label}: {}", Outside(text)));
                }
            }
        }
        None => line.push_str(" | unknown"),
    }
    format!("{line} | Count: {}", counted.message_count)
}

/// One topic whose type nothing defines.
fn undefined_line(topic: &UndefinedTopic) -> String {
    format!(
        "Topic: {} | Type: {}",
        Outside(&topic.name),
        Outside(&topic.type_name)
    )
}

/// One named mark.
fn marker_line(marker: &Marker, zone: &TimeZone) -> String {
    format!("{}: {}", time_point(marker.time, zone), Outside(&marker.name))
}

/// The jumps of the clock.
pub(super) fn jump_lines(jumps: &[ClockJump], zone: &TimeZone) -> Vec<String> {
    jumps
        .iter()
        .map(|jump| {
            let (from, to) = (time_point(jump.from, zone), time_point(jump.to, zone));
            format!("{jump}, from {from} to {to}")
        })
        .collect()
}

/// The account in short, the loss window and restarts, each where there is something to report.
/// Messages of an account that are lost, and those that are not in the bag for other reasons.
pub(super) fn account_counts(account: &AccountSummary) -> Vec<String> {
    let counts = [
        (account.lost, "lost"),
        (account.before_match, LossSums::BEFORE_MATCH),
        (account.left_out, LossSums::LEFT_OUT),
        (account.expired, "expired (--ring, --max-bag-files)"),
    ];
    counts
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{} {what}", format_count(count)))
        .collect()
}

fn push_account(text: &mut String, account: &AccountSummary, zone: &TimeZone) {
    let mut sums = vec![format!("{} recorded", format_count(account.recorded))];
    sums.extend(account_counts(account));
    if account.topics_unknown > 0 {
        sums.push(format!(
            "{} whose losses on the way cannot be known",
            plural(account.topics_unknown, "topic")
        ));
    }
    push(text, "Account:", &sums.join(", "));
    if let Some(window) = account.window {
        let achieved = window
            .achieved_s
            .map_or_else(String::new, |span| format!(", at worst {span:.3} s"));
        let missed = match window.missed {
            0 => "always kept".to_owned(),
            count => format!("exceeded {}", plural(count, "time")),
        };
        let line = format!(
            "a power cut would have lost the last {:.3} s at most; {missed}{achieved}",
            window.max_s
        );
        push(text, "Loss window:", &line);
    }
    let restarts = account.restarts.iter();
    let mut lines: Vec<String> = restarts
        .map(|restart| format!("{}: {}", time_point(restart.time, zone), Outside(&restart.reason)))
        .collect();
    if account.restarts_left_out > 0 {
        lines.push(format!("and {} more", format_count(account.restarts_left_out)));
    }
    if !lines.is_empty() {
        push_list(text, "Restarts:", LABEL_CELLS, &lines);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::sample_tests::{metadata_without_topics, summary};
    use holdall::reader::{AccountSource, BagContents, LostByTopic, ServiceCounts};
    use holdall_model::{
        loss::{KeptWindow, LossStage, ledger::Restart},
        time::Timestamp,
    };

    fn text(summary: &BagSummary) -> String {
        let sort = Sort::Name;
        BagView { summary, sort }.text(&TimeZone::UTC)
    }

    fn parsed(summary: &BagSummary) -> serde_json::Value {
        serde_json::to_value(summary).unwrap()
    }

    #[test]
    fn the_layout_is_that_of_ros2_bag_info() {
        insta::assert_snapshot!(text(&summary(LostByTopic::new())));
    }

    #[test]
    fn reading_all_messages_adds_sizes_and_requests() {
        let contents = BagContents {
            bytes_by_topic: [("/chatter".to_owned(), 2048), ("/imu/data".to_owned(), 84_240)].into(),
            services: [(
                "/add/_service_event".to_owned(),
                ServiceCounts {
                    requests: 2,
                    responses: 1,
                },
            )]
            .into(),
        };
        let read = BagSummary {
            contents: Some(contents),
            ..summary(LostByTopic::new())
        };
        insta::assert_snapshot!(text(&read));
    }

    #[test]
    fn losses_are_listed_by_topic_and_stage() {
        let lost: LostByTopic = [
            (
                "/imu/data".to_owned(),
                [(LossStage::Transport, 1000), (LossStage::Cache, 5)].into(),
            ),
            ("/chatter".to_owned(), [(LossStage::Head, 0)].into()),
        ]
        .into();
        let summary = summary(lost);
        let text = text(&summary);
        assert!(
            text.ends_with(
                "Lost messages:     1 005\n                   Topic: /imu/data | Lost: 1005 | Stages: transport 1000, cache 5\n"
            ),
            "{text}"
        );
        let json = parsed(&summary);
        assert_eq!(json["lost_messages"]["total"], 1005);
        assert_eq!(json["lost_messages"]["topics"]["/imu/data"]["cache"], 5);
    }

    #[test]
    fn the_account_reports_the_loss_window_and_restarts() {
        let mut summary = summary(LostByTopic::new());
        summary.state.account = Some(AccountSummary {
            recorded: 291,
            expired: 12,
            window: Some(KeptWindow {
                max_s: 2.0,
                achieved_s: Some(2.5),
                missed: 3,
            }),
            restarts: vec![Restart {
                time: Timestamp::from_nanos(1_700_000_000_000_000_003),
                reason: "the disk does not take what is written".to_owned(),
            }],
            restarts_left_out: 1,
            ..AccountSummary::default()
        });
        let text = text(&summary);
        let end = "Account:           291 recorded, 12 expired (--ring, --max-bag-files)\n\
                   Loss window:       a power cut would have lost the last 2.000 s at most; exceeded 3 times, at worst 2.500 s\n\
                   Restarts:          Nov 14 2023 22:13:20.000000003 (1700000000.000000003): the disk does not take what is written\n                   and 1 more\n";
        assert!(text.ends_with(end), "{text}");
        let json = parsed(&summary);
        assert_eq!(json["account"]["loss_window"]["missed"], 3);
        assert_eq!(
            json["account"]["restarts"][0]["time"],
            1_700_000_000_000_000_003_i64
        );
    }

    #[test]
    fn a_bag_of_another_recorder_has_no_account_of_losses() {
        let mut summary = summary(LostByTopic::new());
        summary.state.lost = None;
        summary.state.source = AccountSource::None;
        assert!(text(&summary).contains("Lost messages:     unknown"));
        assert_eq!(parsed(&summary)["lost_messages"], serde_json::Value::Null);
    }

    #[test]
    fn an_empty_bag_has_labels_without_values() {
        let empty = BagSummary {
            metadata: metadata_without_topics(),
            bytes: 0,
            ..summary(LostByTopic::new())
        };
        insta::assert_snapshot!(text(&empty));
    }

    #[test]
    fn topics_are_sorted_as_asked() {
        let summary = &summary(LostByTopic::new());
        let names = |sort| BagView { summary, sort }.topic_names().join(" ");
        assert_eq!(names(Sort::Name), "/chatter /imu/data");
        assert_eq!(names(Sort::Type), "/imu/data /chatter");
        assert_eq!(names(Sort::Count), "/chatter /imu/data");
    }

    #[test]
    fn json_has_the_names_of_rosbag2() {
        let json = parsed(&summary(LostByTopic::new()));
        assert_eq!(json["message_count"], 291);
        assert_eq!(
            json["topics_with_message_count"][0]["topic_metadata"]["name"],
            "/imu/data"
        );
        assert_eq!(
            json["topics_with_message_count"][0]["topic_metadata"]["type"],
            "sensor_msgs/msg/Imu"
        );
        assert_eq!(json["duration"]["nanoseconds"], 2_590_000_997_u64);
        assert_eq!(json["bag_size"], 143_269);
    }
}
