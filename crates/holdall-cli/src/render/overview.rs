//! A bag for a person: what it is, a row for each topic, its state in a sentence, and what to do next.

use super::{
    fit::{Column, table},
    info::{account_counts, jump_lines, publisher_line},
    paint::Paint,
    preflight::wrapped,
};
use crate::{
    args::info::Sort,
    units::{format_bytes, format_count, format_span, plural},
};
use holdall::{
    reader::{AccountSummary, BagSummary, Condition},
    tools::overview::{NextStep, TopicRow, next_steps, rows},
};
use holdall_model::{
    contract::{CONTRACT_CUSTOM_KEY, Outcome as Judged},
    text::{Outside, OutsidePath, one_line, shell_word},
    time::Timestamp,
};
use jiff::tz::TimeZone;
use std::path::Path;

/// Rows of topics that fit on one screen with the rest.
const ROWS_MAX: usize = 24;

/// Markers, and lines of a state, that do.
const LINES_MAX: usize = 5;

/// Cells of a label.
const LABEL: usize = 10;

/// A bag, and how it is shown.
pub struct Overview<'a> {
    /// What is in it.
    pub summary: &'a BagSummary,
    /// Its name on the command line.
    pub path: &'a Path,
    /// Order of topics.
    pub sort: Sort,
    /// For times.
    pub zone: &'a TimeZone,
    /// Width of the terminal.
    pub columns: usize,
    /// Colours.
    pub paint: Paint,
    /// Every topic and marker, whatever room they take.
    pub all: bool,
}

/// One screen.
pub fn text(view: &Overview<'_>) -> String {
    let (summary, metadata) = (view.summary, &view.summary.metadata);
    let bag = OutsidePath(view.path).to_string();
    let word = shell_word(&view.path.to_string_lossy()).into_owned();
    let word = if word.starts_with('-') {
        format!("-- {word}")
    } else {
        word
    };
    let distro = metadata
        .ros_distro
        .as_deref()
        .map_or_else(String::new, |distro| format!(", ROS {}", one_line(distro)));
    let files = plural(metadata.relative_file_paths.len() as u64, "file");
    let sealed = if summary.encrypted { ", encrypted" } else { "" };
    let mut lines = Vec::new();
    view.push(&mut lines, "Bag", &bag);
    view.push(&mut lines, "Recorded", &view.recorded());
    let rows = rows(summary);
    let topics = plural(rows.len() as u64, "topic");
    let messages = format!("{} on {topics}", format_count(metadata.message_count));
    view.push(&mut lines, "Messages", &messages);
    let size = format!(
        "{} in {files}, {}{distro}{sealed}",
        format_bytes(summary.bytes),
        one_line(&metadata.storage_identifier)
    );
    view.push(&mut lines, "Size", &size);
    view.push_state(&mut lines);
    if let Some(outcome) = metadata.custom_data.get(CONTRACT_CUSTOM_KEY) {
        let paint = match outcome == Judged::Failed.as_str() {
            true => Paint::bad,
            false => Paint::faint,
        };
        view.push_painted(&mut lines, "Contract", &one_line(outcome), paint);
    }
    if !rows.is_empty() {
        lines.push(String::new());
        lines.extend(view.table(rows, &word));
        lines.push(String::new());
    }
    view.push_episodes(&mut lines);
    view.push_markers(&mut lines);
    for (label, further) in view.further() {
        view.push_some(&mut lines, label, &further);
    }
    if let Some(damage) = &summary.attachments_damage {
        view.push_painted(
            &mut lines,
            "Attached",
            &format!("cannot be read: {}", one_line(damage)),
            Paint::attention,
        );
    }
    if !summary.attachments.is_empty() {
        let count = plural(summary.attachments.len() as u64, "attachment");
        view.push(&mut lines, "Attached", &format!("{count}: holdall get {word}"));
    }
    for step in next_steps(summary) {
        view.push(&mut lines, "Next", &advice(step, &word));
    }
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines.join("\n")
}

fn advice(step: NextStep, bag: &str) -> String {
    match step {
        NextStep::AskRecorder => "it is being recorded: holdall ps".to_owned(),
        NextStep::Repair => format!("holdall repair {bag} completes it"),
        NextStep::RestoreFiles => {
            format!("bring the files back; else holdall repair {bag} counts their messages as lost, for good")
        }
        NextStep::CheckAndSave => {
            format!("holdall check {bag} lists the damage, holdall repair {bag} -o NEW saves the rest")
        }
        NextStep::SeeSilent => format!("holdall audit {bag} names the publishers that went silent"),
        NextStep::LostOnTheWay => "messages were lost on the way, in a network or a socket: holdall help loss".to_owned(),
        NextStep::LostWhileStopped => {
            "messages were lost on the way while the recorder did not run (stopped, or the machine slept): see its marker".to_owned()
        }
        NextStep::LostInCache => {
            "the disk or the processor was too slow: holdall preflight measures it, --max-cache-size of record gives room".to_owned()
        }
        NextStep::LostElsewhere => format!("holdall audit {bag} names publishers and stages"),
        NextStep::Define => "types without a definition: --definitions FOLDER of cat and export names theirs".to_owned(),
    }
}

/// Messages that are not in the bag and not lost either.
fn not_lost(account: &AccountSummary) -> Option<String> {
    let counts = account_counts(&AccountSummary {
        lost: 0,
        ..account.clone()
    });
    (!counts.is_empty()).then(|| format!("not in it and not lost: {}", counts.join(", ")))
}

impl Overview<'_> {
    /// A label and its text, wrapped beside it.
    fn push(&self, lines: &mut Vec<String>, label: &str, text: &str) {
        self.push_painted(lines, label, text, Paint::plain);
    }

    fn push_painted(
        &self,
        lines: &mut Vec<String>,
        label: &str,
        text: &str,
        tint: fn(Paint, &str) -> String,
    ) {
        let (head, indent) = (format!("{label:<LABEL$}"), " ".repeat(LABEL));
        for line in wrapped(text, &head, &indent, self.columns + 1).lines() {
            let (label, text) = line.split_at(LABEL.min(line.len()));
            lines.push(format!("{}{}", self.paint.faint(label), tint(self.paint, text)));
        }
    }

    fn time(&self, time: Timestamp, form: &str) -> String {
        let nanos = i128::from(time.as_nanos());
        let time = jiff::Timestamp::from_nanosecond(nanos).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
        time.to_zoned(self.zone.clone()).strftime(form).to_string()
    }

    /// From when to when.
    fn recorded(&self) -> String {
        let metadata = &self.summary.metadata;
        let Some(start) = metadata.starting_time else {
            return "nothing".to_owned();
        };
        let end = start.saturating_add(metadata.duration);
        let is_one_day = self.time(start, "%F") == self.time(end, "%F");
        // As --start takes it: without a zone times are UTC there.
        let zone = match self.time(end, "%:z").as_str() {
            "+00:00" => "UTC".to_owned(),
            east => east.to_owned(),
        };
        let end = format!(
            "{} {zone}",
            self.time(end, if is_one_day { "%T" } else { "%F %T" })
        );
        let steady = self.summary.duration_without_jumps;
        let steady = steady.map(|span| format!(" ({} without the jumps of its clock)", format_span(span)));
        let span = format_span(metadata.duration);
        format!(
            "{} to {end}, {span}{}",
            self.time(start, "%F %T"),
            steady.unwrap_or_default()
        )
    }

    fn push_state(&self, lines: &mut Vec<String>) {
        let state = &self.summary.state;
        let time = |at: Timestamp| self.time(at, "%F %T");
        let summary = self.summary;
        let is_whole = state.condition == Condition::Complete
            && state.sums().is_some_and(|sums| sums.lost == 0)
            && summary.not_heard.is_empty()
            && summary.unheard_services.is_empty()
            && summary.attachments_damage.is_none();
        let first = if is_whole {
            "complete: every message that was sent while it recorded is in it, or counted below".to_owned()
        } else {
            format!(
                "{}; lost messages: {}",
                state.condition.as_str(),
                state.lost_line(time)
            )
        };
        let tint = if is_whole { Paint::good } else { Paint::attention };
        self.push_painted(lines, "State", &first, tint);
        if let Some(sums) = state.account.as_ref().and_then(not_lost) {
            self.push(lines, "", &sums);
        }
        self.push_some(lines, "", &state.more_lines(time));
    }

    /// The first lines of a list, all of them on request; the label is beside the first.
    fn push_some(&self, lines: &mut Vec<String>, label: &str, list: &[String]) {
        let most = if self.all { usize::MAX } else { LINES_MAX };
        for (number, line) in list.iter().take(most).enumerate() {
            self.push(lines, if number == 0 { label } else { "" }, line);
        }
        if list.len() > most {
            self.push(lines, "", &format!("and {} more", list.len() - most));
        }
    }

    /// What most bags do not have.
    fn further(&self) -> [(&'static str, Vec<String>); 4] {
        let summary = self.summary;
        let shown = |text: String| Outside(&text).to_string();
        [
            (
                "Not heard",
                summary
                    .not_heard
                    .iter()
                    .map(|one| shown(one.to_string()))
                    .collect(),
            ),
            (
                "Calls",
                summary
                    .unheard_services
                    .iter()
                    .map(|name| format!("{}: not introspected", Outside(name)))
                    .collect(),
            ),
            ("Clock", jump_lines(&summary.clock_jumps, self.zone)),
            ("Sent by", summary.publishers.iter().map(publisher_line).collect()),
        ]
    }

    /// The topics; of too many those with losses and the most messages.
    fn table(&self, mut rows: Vec<TopicRow>, bag: &str) -> Vec<String> {
        let all = rows.len();
        if all > ROWS_MAX && !self.all {
            rows.sort_by_key(|row| {
                (
                    row.lost.is_none_or(|lost| lost == 0),
                    std::cmp::Reverse(row.messages),
                )
            });
            rows.truncate(ROWS_MAX);
            rows.sort_by(|a, b| a.name.cmp(&b.name));
        }
        match self.sort {
            Sort::Name => {}
            Sort::Type => rows.sort_by(|a, b| a.type_name.cmp(&b.type_name)),
            Sort::Count => rows.sort_by_key(|row| row.messages),
        }
        let each = |cell: &dyn Fn(&TopicRow) -> String| rows.iter().map(cell).collect::<Vec<_>>();
        let mut columns = vec![
            Column::of_text(1, "Topic", each(&|row| Outside(&row.name).to_string())),
            Column::of_text(4, "Type", each(&|row| Outside(&row.type_name).to_string())),
            Column::of_numbers(1, "Messages", each(&|row| format_count(row.messages))),
            Column::of_numbers(2, "Hz", each(&|row| row.hertz.map_or_else(String::new, hertz))),
        ];
        if rows.iter().any(|row| row.share.is_some()) {
            columns.push(Column::of_numbers(
                3,
                "Bytes",
                each(&|row| row.share.map_or_else(String::new, share)),
            ));
        }
        columns.push(Column::of_numbers(
            1,
            "Lost",
            each(&|row| row.lost.map_or_else(|| "?".to_owned(), format_count)),
        ));
        let mut lines: Vec<String> = table(columns, Some(self.columns))
            .lines()
            .map(str::to_owned)
            .collect();
        if rows.len() < all {
            let more = format!("and {} more: holdall info -v {bag}", all - rows.len());
            lines.extend(
                wrapped(&more, "  ", "  ", self.columns + 1)
                    .lines()
                    .map(str::to_owned),
            );
        }
        lines
    }

    fn push_episodes(&self, lines: &mut Vec<String>) {
        let start = self.summary.metadata.starting_time.unwrap_or_default();
        let episodes = &self.summary.episodes;
        let most = if self.all { usize::MAX } else { LINES_MAX };
        for (number, episode) in episodes.iter().take(most).enumerate() {
            let label = if number == 0 { "Episodes" } else { "" };
            let after = episode.start.saturating_since(start).as_secs_f64();
            let said = episode.to_string();
            let line = format!("{}  +{after:.3} s  {}", episode.number, Outside(&said));
            self.push(lines, label, &line);
        }
        if episodes.len() > most {
            self.push(lines, "", &format!("and {} more", episodes.len() - most));
        }
    }

    fn push_markers(&self, lines: &mut Vec<String>) {
        let start = self.summary.metadata.starting_time.unwrap_or_default();
        // Those of episodes are shown with these.
        let markers = self.summary.markers.iter();
        let markers: Vec<_> = markers.filter(|marker| marker.episode.is_none()).collect();
        let most = if self.all { usize::MAX } else { LINES_MAX };
        for (number, marker) in markers.iter().take(most).enumerate() {
            let label = if number == 0 { "Markers" } else { "" };
            let after = marker.time.saturating_since(start).as_secs_f64();
            self.push(lines, label, &format!("+{after:.3} s  {}", Outside(&marker.name)));
        }
        if markers.len() > most {
            self.push(lines, "", &format!("and {} more", markers.len() - most));
        }
    }
}

/// `203`, `9.98`, `0.05`: three digits that matter.
fn hertz(hertz: f64) -> String {
    match hertz {
        hertz if hertz >= 99.95 => format!("{hertz:.0}"),
        hertz if hertz >= 9.995 => format!("{hertz:.1}"),
        _ => format!("{hertz:.2}"),
    }
}

fn share(share: f64) -> String {
    match share * 100.0 {
        percent if percent > 0.0 && percent < 0.1 => "<0.1 %".to_owned(),
        percent => format!("{percent:.1} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::sample_tests::summary;
    use holdall::reader::{AccountSource, BagContents};
    use holdall_model::{loss::LossStage, marker::Marker, topic::TopicInfo};

    fn shown(summary: &BagSummary, columns: usize) -> String {
        text(&Overview {
            summary,
            path: Path::new("runs/lab"),
            sort: Sort::Name,
            zone: &TimeZone::UTC,
            columns,
            paint: Paint::Plain,
            all: false,
        })
    }

    fn lossy() -> BagSummary {
        let lost = [("/imu/data".to_owned(), [(LossStage::Transport, 12)].into())].into();
        let mut summary = summary(lost);
        summary.contents = Some(BagContents {
            bytes_by_topic: [("/imu/data".to_owned(), 84_240), ("/chatter".to_owned(), 2048)].into(),
            ..BagContents::default()
        });
        let time = Timestamp::from_nanos(1_700_000_001_500_000_003);
        summary.markers = vec![Marker::new(time, "door opens").unwrap()];
        summary
    }

    #[test]
    fn a_bag_fits_any_terminal() {
        let summary = lossy();
        insta::assert_snapshot!([40, 80, 200].map(|columns| shown(&summary, columns)).join("\n\n"));
        for columns in 30..210 {
            for line in shown(&summary, columns).lines() {
                assert!(console::measure_text_width(line) <= columns, "{columns}: {line}");
            }
        }
    }

    #[test]
    fn what_to_do_depends_on_the_state() {
        let says = |condition: Condition, word: &str| {
            let mut summary = lossy();
            summary.state.condition = condition;
            let text = shown(&summary, 80);
            assert!(text.contains(word) && text.contains("Next"), "{text}");
        };
        says(Condition::CutOff, "holdall repair runs/lab completes it");
        says(Condition::FilesMissing, "bring the files back");
        says(Condition::Damaged, "holdall check runs/lab");
        says(Condition::EndUnknown, "holdall audit runs/lab");
        says(Condition::Recording, "holdall ps");
        let whole = shown(&summary(Default::default()), 80);
        assert!(
            whole.contains("complete: every message") && !whole.contains("Next"),
            "{whole}"
        );
        let mut other = summary(Default::default());
        (other.state.lost, other.state.source, other.state.condition) =
            (None, AccountSource::None, Condition::Ended);
        let text = shown(&other, 80);
        assert!(text.contains("kept no") && text.contains(" ?"), "{text}");
    }

    #[test]
    fn of_many_topics_those_with_losses_are_shown() {
        let mut summary = lossy();
        let topics = &mut summary.metadata.topics_with_message_count;
        for number in 0..300 {
            topics.push(holdall_model::metadata::TopicWithMessageCount {
                topic_metadata: TopicInfo {
                    name: format!("/many/{number:03}"),
                    ..TopicInfo::default()
                },
                message_count: 1000,
            });
        }
        let text = shown(&summary, 80);
        assert!(
            text.contains("/imu/data") && text.contains("and 279 more: holdall info -v runs/lab"),
            "{text}"
        );
        assert!(text.lines().count() < 40, "{text}");
    }
}
