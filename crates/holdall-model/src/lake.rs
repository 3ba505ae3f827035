//! How ready a bag is for an archive of many that is searched and streamed: a grade, with a reason for each point that is missing.

use serde::Serialize;
use std::{collections::BTreeSet, time::Duration};

/// Bytes of a chunk before compression, at most: a reader of one message loads all of it.
pub const CHUNK_BYTES_MAX: u64 = 4 << 20;
/// Span of a file, at most, and the span that makes it a grave fault.
const SPAN_MAX: Duration = Duration::from_secs(600);
const SPAN_GRAVE: Duration = Duration::from_secs(3600);
/// A topic with more bytes a second is large: in files with others it makes these slow to open.
const LARGE_BYTES_PER_SECOND: f64 = 1e6;
/// Part of a file's bytes that may be uncompressed.
const PLAIN_PART_MAX: f64 = 0.1;
/// Names of topics and files in a reason.
const NAMED_MAX: usize = 3;

/// Keys in a bag's `custom_data` that name its robot, and those that name its run.
const ROBOT_KEYS: [&str; 4] = [ROBOT_KEY, "robot", "vehicle_id", "device_id"];
const RUN_KEYS: [&str; 4] = [RUN_KEY, "run", "session_id", "recording_id"];
/// The key of the robot's name that a recorder writes.
pub const ROBOT_KEY: &str = "robot_id";
/// The key of the run's name that a recorder writes.
pub const RUN_KEY: &str = "run_id";

/// What is known of a bag.
#[derive(Clone, Debug, Default)]
pub struct LakeBag {
    /// Its `custom_data` names a robot.
    pub has_robot: bool,
    /// It names a run.
    pub has_run: bool,
    /// Its storage files.
    pub files: Vec<LakeFile>,
}

/// What is known of a storage file.
#[derive(Clone, Debug, Default)]
pub struct LakeFile {
    /// Its name.
    pub name: String,
    /// It is an MCAP file.
    pub is_mcap: bool,
    /// It has an end with index and statistics, so that only its last part need be read to know what is in it.
    pub is_indexed: bool,
    /// From its first message to its last.
    pub span: Duration,
    /// Payload bytes by topic.
    pub topics: Vec<(String, u64)>,
    /// Topics whose type it does not define.
    pub undefined: Vec<String>,
    /// The longest payload.
    pub largest_message: u64,
    /// Chunks of more bytes before compression than [`CHUNK_BYTES_MAX`] and the longest message.
    pub large_chunks: u64,
    /// Bytes of all chunks before compression.
    pub chunk_bytes: u64,
    /// Those in chunks that are not compressed, and have topics whose messages are not compressed themselves.
    pub plain_bytes: u64,
}

/// From `A`, nothing is missing, to `F`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum LakeGrade {
    /// Nothing is missing.
    A,
    /// One point.
    B,
    /// Two points.
    C,
    /// Three points or more, or a grave one.
    D,
    /// Several grave points.
    F,
}

/// A point that is missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LakeFault {
    /// Its name, one of the words in the documentation.
    pub rule: &'static str,
    /// Readers have to read whole files because of it, or cannot read them.
    pub grave: bool,
    /// What is so, one clause.
    pub reason: String,
}

/// The judgement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LakeVerdict {
    /// The grade.
    pub grade: LakeGrade,
    /// What is missing.
    pub faults: Vec<LakeFault>,
}

/// Whether messages of a type are compressed themselves.
pub fn is_compressed_type(type_name: &str) -> bool {
    let name = type_name.rsplit('/').next().unwrap_or(type_name);
    name.contains("Compressed") || name.ends_with("Packet") && type_name.contains("ffmpeg")
}

impl LakeBag {
    /// Notes what a bag's `custom_data` names.
    pub fn note_keys<'a>(&mut self, keys: impl IntoIterator<Item = &'a str>) {
        for key in keys {
            self.has_robot |= ROBOT_KEYS.contains(&key);
            self.has_run |= RUN_KEYS.contains(&key);
        }
    }

    /// The grade of the bag.
    pub fn judge(&self) -> LakeVerdict {
        let faults: Vec<LakeFault> = [
            self.format(),
            self.index(),
            self.schemas(),
            self.span(),
            self.chunks(),
            self.compression(),
            self.separation(),
            self.ids(),
        ]
        .into_iter()
        .flatten()
        .collect();
        let grave = faults.iter().filter(|fault| fault.grave).count();
        let grade = match (grave, faults.len()) {
            (0, 0) => LakeGrade::A,
            (0, 1) => LakeGrade::B,
            (0, 2) => LakeGrade::C,
            (0 | 1, _) => LakeGrade::D,
            _ => LakeGrade::F,
        };
        LakeVerdict { grade, faults }
    }

    /// The sentence for files that a rule finds fault with, if there are any: `what` follows their names.
    fn of_files(
        &self,
        rule: &'static str,
        grave: bool,
        is_wrong: impl Fn(&LakeFile) -> bool,
        what: &str,
    ) -> Option<LakeFault> {
        let wrong: Vec<&str> = self
            .files
            .iter()
            .filter(|file| is_wrong(file))
            .map(|file| file.name.as_str())
            .collect();
        (!wrong.is_empty()).then(|| LakeFault {
            rule,
            grave,
            reason: format!("{}: {what}", named(&wrong)),
        })
    }

    fn format(&self) -> Option<LakeFault> {
        let what = "not MCAP, which readers of lakes read in place";
        self.of_files("format", true, |file| !file.is_mcap, what)
    }

    fn index(&self) -> Option<LakeFault> {
        let what = "without index and statistics at the end, so that all of it is read to know what is in it";
        self.of_files("index", true, |file| file.is_mcap && !file.is_indexed, what)
    }

    fn schemas(&self) -> Option<LakeFault> {
        let undefined: BTreeSet<&str> = self
            .files
            .iter()
            .flat_map(|file| &file.undefined)
            .map(String::as_str)
            .collect();
        let undefined: Vec<&str> = undefined.into_iter().collect();
        (!undefined.is_empty()).then(|| LakeFault {
            rule: "schemas",
            grave: true,
            reason: format!(
                "{}: no definition of the type, so that messages cannot be decoded",
                named(&undefined)
            ),
        })
    }

    fn span(&self) -> Option<LakeFault> {
        let longest = self.files.iter().map(|file| file.span).max().unwrap_or_default();
        let what = "more than ten minutes in one file, which is moved and searched as a whole";
        self.of_files("span", longest > SPAN_GRAVE, |file| file.span > SPAN_MAX, what)
    }

    fn chunks(&self) -> Option<LakeFault> {
        let what = "chunks of more than 4 MiB, of which one message needs all";
        self.of_files("chunks", false, |file| file.large_chunks > 0, what)
    }

    fn compression(&self) -> Option<LakeFault> {
        let is_plain = |file: &LakeFile| file.plain_bytes as f64 > file.chunk_bytes as f64 * PLAIN_PART_MAX;
        let what = "not compressed";
        self.of_files("compression", false, is_plain, what)
    }

    fn separation(&self) -> Option<LakeFault> {
        let mixed = self.files.iter().filter(|file| file.is_mixed());
        let large: BTreeSet<&str> = mixed.flat_map(LakeFile::large).collect();
        let large: Vec<&str> = large.into_iter().collect();
        let what = format!(
            "large topics ({}) next to small ones, so that telemetry is slow to open",
            named(&large)
        );
        self.of_files("separation", false, LakeFile::is_mixed, &what)
    }

    fn ids(&self) -> Option<LakeFault> {
        let missing = match (self.has_robot, self.has_run) {
            (true, true) => return None,
            (false, true) => ROBOT_KEY.to_owned(),
            (true, false) => RUN_KEY.to_owned(),
            (false, false) => format!("{ROBOT_KEY}, {RUN_KEY}"),
        };
        Some(LakeFault {
            rule: "ids",
            grave: false,
            reason: format!("custom_data lacks {missing}"),
        })
    }
}

impl LakeFile {
    /// Topics with many bytes a second.
    fn large(&self) -> impl Iterator<Item = &str> {
        let seconds = self.span.as_secs_f64().max(1.0);
        let topics = self.topics.iter();
        let large = topics.filter(move |(_, bytes)| *bytes as f64 / seconds > LARGE_BYTES_PER_SECOND);
        large.map(|(name, _)| name.as_str())
    }

    /// Whether it has such topics and others.
    fn is_mixed(&self) -> bool {
        let with_messages = self.topics.iter().filter(|(_, bytes)| *bytes > 0);
        let large = self.large().count();
        large > 0 && large < with_messages.count()
    }
}

/// The first names of a list, and how many more it has.
fn named(names: &[&str]) -> String {
    let shown = names
        .iter()
        .take(NAMED_MAX)
        .copied()
        .collect::<Vec<_>>()
        .join(", ");
    match names.len().saturating_sub(NAMED_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str) -> LakeFile {
        LakeFile {
            name: name.to_owned(),
            is_mcap: true,
            is_indexed: true,
            span: Duration::from_secs(60),
            topics: vec![("/tf".to_owned(), 60_000)],
            chunk_bytes: 60_000,
            ..LakeFile::default()
        }
    }

    fn bag(files: Vec<LakeFile>) -> LakeBag {
        let mut bag = LakeBag {
            files,
            ..LakeBag::default()
        };
        bag.note_keys(["robot_id", "run_id", "task"]);
        bag
    }

    fn rules(bag: &LakeBag) -> (LakeGrade, Vec<&'static str>) {
        let verdict = bag.judge();
        (
            verdict.grade,
            verdict.faults.iter().map(|fault| fault.rule).collect(),
        )
    }

    #[test]
    fn each_fault_has_its_rule_and_costs_a_grade() {
        assert_eq!(rules(&bag(vec![file("a"), file("b")])), (LakeGrade::A, vec![]));
        type Change = fn(&mut LakeFile);
        let minor: [(&str, Change); 4] = [
            ("span", |file| file.span = Duration::from_secs(601)),
            ("chunks", |file| file.large_chunks = 1),
            ("compression", |file| file.plain_bytes = 6_001),
            ("separation", |file| {
                file.topics.push(("/camera".to_owned(), 61_000_000))
            }),
        ];
        let mut all = file("all");
        for (rule, change) in minor {
            let mut one = file("one");
            change(&mut one);
            change(&mut all);
            assert_eq!(rules(&bag(vec![file("a"), one])), (LakeGrade::B, vec![rule]));
        }
        assert_eq!(rules(&bag(vec![all])).0, LakeGrade::D);
        let grave: [(&str, Change); 4] = [
            ("format", |file| file.is_mcap = false),
            ("index", |file| file.is_indexed = false),
            ("schemas", |file| file.undefined.push("/tf".to_owned())),
            ("span", |file| file.span = Duration::from_secs(3601)),
        ];
        for (rule, change) in grave {
            let mut one = file("one");
            change(&mut one);
            assert_eq!(rules(&bag(vec![one.clone()])), (LakeGrade::D, vec![rule]));
            one.undefined.push("/odom".to_owned());
            one.is_mcap = false;
            assert_eq!(rules(&bag(vec![one])).0, LakeGrade::F);
        }
    }

    #[test]
    fn robot_and_run_have_names_and_a_reason_lists_few_files() {
        let nameless = LakeBag {
            files: vec![file("a")],
            ..LakeBag::default()
        };
        let verdict = nameless.judge();
        assert_eq!((verdict.grade, verdict.faults[0].rule), (LakeGrade::B, "ids"));
        assert!(verdict.faults[0].reason.contains("robot_id, run_id"));
        assert_eq!(named(&["a", "b", "c", "d", "e"]), "a, b, c and 2 more");
    }

    #[test]
    fn a_file_of_large_topics_alone_is_not_mixed_and_compressed_types_are_known() {
        let mut large = file("large");
        large.topics = vec![("/camera".to_owned(), 90_000_000), ("/depth".to_owned(), 0)];
        assert!(!large.is_mixed());
        let known = [
            "sensor_msgs/msg/CompressedImage",
            "ffmpeg_image_transport_msgs/msg/FFMPEGPacket",
        ];
        assert!(known.into_iter().all(is_compressed_type));
        assert!(!is_compressed_type("sensor_msgs/msg/Image"));
    }
}
