//! Topics with storage files of their own in a bag, and how much of a bag a ring keeps.

use crate::{
    quantity::{QuantityError, parse_bytes, parse_seconds},
    selection::{PatternError, parse_pattern},
    time::Timestamp,
};
use regex::Regex;
use std::{collections::HashSet, str::FromStr, time::Duration};

/// Longest name of a class, in letters: it is a part of file names.
const NAME_MAX: usize = 24;
/// The class of what a ring removes, next to topics that are always kept.
const RING: &str = "ring";

/// Which class of storage files a topic's messages go to. Class 0 has what no rule takes.
///
/// ```
/// use holdall_model::file_class::FileClasses;
///
/// let classes = FileClasses::new(&["/camera.*".to_owned()], &[]).unwrap();
/// assert_eq!(classes.name(classes.of("/camera/left", "sensor_msgs/msg/Image")), "camera");
/// assert_eq!(classes.of("/tf", "tf2_msgs/msg/TFMessage"), 0);
/// ```
#[derive(Clone, Debug, Default)]
pub struct FileClasses {
    separate: Vec<(String, Regex)>,
    /// Full names of the topics that a ring never removes; without them, it removes any.
    kept: Vec<String>,
}

impl PartialEq for FileClasses {
    fn eq(&self, other: &Self) -> bool {
        let texts = |classes: &Self| -> Vec<(String, String)> {
            let rules = classes.separate.iter();
            rules
                .map(|(name, pattern)| (name.clone(), pattern.as_str().to_owned()))
                .collect()
        };
        self.kept == other.kept && texts(self) == texts(other)
    }
}

impl Eq for FileClasses {}

impl FileClasses {
    /// Topics whose name or type contains one of these patterns get files of their own, a class for each pattern; it can be named:
    /// `camera=/front/.*`. The topics that are `kept` stay in class 0, and all others leave it.
    ///
    /// # Errors
    /// A pattern that is not a regular expression.
    pub fn new(separate: &[String], kept: &[String]) -> Result<Self, PatternError> {
        let mut classes = Self {
            separate: Vec::new(),
            kept: kept.to_vec(),
        };
        for rule in separate {
            let (name, pattern) = named(rule);
            let pattern = parse_pattern(pattern)?;
            let name = classes.free_name(name, &[]);
            classes.separate.push((name, pattern));
        }
        Ok(classes)
    }

    /// The name for a class of one topic, unlike those of these classes and of `others`.
    pub fn name_for_topic(&self, topic: &str, others: &[String]) -> String {
        self.free_name(named(topic).0, others)
    }

    /// `name`, or with a letter after it if another class has it.
    fn free_name(&self, name: String, others: &[String]) -> String {
        let is_separate = |name: &str| self.separate.iter().any(|(other, _)| other == name);
        let is_taken =
            |name: &str| name == RING || is_separate(name) || others.iter().any(|other| other == name);
        let with_letter = |letter: char| format!("{name}_{letter}");
        let mut names = std::iter::once(name.clone()).chain(('b'..='z').map(with_letter));
        names.find(|name| !is_taken(name)).unwrap_or(name)
    }

    /// How many classes exist.
    pub fn count(&self) -> usize {
        1 + self.separate.len() + usize::from(self.keeps_some())
    }

    /// Whether topics of class 0 are never removed.
    pub fn keeps_some(&self) -> bool {
        !self.kept.is_empty()
    }

    /// Whether a ring never removes a topic.
    pub fn keeps(&self, topic: &str) -> bool {
        self.kept.iter().any(|kept| kept == topic)
    }

    /// Whether a ring removes files of a class.
    pub fn is_in_ring(&self, class: usize) -> bool {
        class > 0 || !self.keeps_some()
    }

    /// The part of its files' names; empty for class 0.
    pub fn name(&self, class: usize) -> &str {
        match class.checked_sub(1) {
            None => "",
            Some(place) => self.separate.get(place).map_or(RING, |(name, _)| name),
        }
    }

    /// The class of a topic's messages.
    pub fn of(&self, topic: &str, type_name: &str) -> usize {
        if self.keeps(topic) {
            return 0;
        }
        let takes = |(_, pattern): &(String, Regex)| pattern.is_match(topic) || pattern.is_match(type_name);
        match self.separate.iter().position(takes) {
            Some(place) => place + 1,
            None if self.keeps_some() => self.count() - 1,
            None => 0,
        }
    }
}

/// Whether storage files, by their names without numbers and by these, are of one recording with several classes of topics: all begin with the
/// recording's name, that of their folder until it is renamed, and have numbers of their own.
pub fn are_numbered_together(files: &[(String, u64)], folder: Option<&str>) -> bool {
    let numbers: HashSet<u64> = files.iter().map(|(_, number)| *number).collect();
    let Some(((first, _), others)) = files.split_first().filter(|_| numbers.len() == files.len()) else {
        return false;
    };
    let name = folder.map(|name| format!("{name}_"));
    if name.is_some_and(|name| files.iter().all(|(class, _)| class.starts_with(&name))) {
        return true;
    }
    let alike = |other: &str| {
        first
            .bytes()
            .zip(other.bytes())
            .take_while(|(a, b)| a == b)
            .count()
    };
    let shared = others.iter().map(|(class, _)| alike(class)).min().unwrap_or(0);
    // Classes begin with a letter, as days do not.
    let is_class =
        |class: &str| class.is_empty() || class.starts_with(|letter: char| letter.is_ascii_alphabetic());
    let name = first.as_bytes()[..shared].iter().rposition(|byte| *byte == b'_');
    name.is_some_and(|end| files.iter().all(|(class, _)| is_class(&class[end + 1..])))
}

/// The name and the pattern of a rule. Without a name its pattern's letters are one.
fn named(rule: &str) -> (String, &str) {
    let is_name = |name: &str| {
        let mut letters = name.chars();
        letters.next().is_some_and(|first| first.is_ascii_alphabetic())
            && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
    };
    if let Some((name, pattern)) = rule.split_once('=').filter(|(name, _)| is_name(name)) {
        return (name.chars().take(NAME_MAX).collect(), pattern);
    }
    let words = rule.split(|letter: char| !letter.is_ascii_alphanumeric());
    let mut words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    if words.first().is_none_or(|first| !is_name(first)) {
        words.insert(0, "apart");
    }
    let name: String = words.join("_").chars().take(NAME_MAX).collect();
    (name.trim_end_matches('_').to_owned(), rule)
}

/// How much a ring of files keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingLimit {
    /// So many bytes.
    Bytes(u64),
    /// So much log time.
    Span(Duration),
}

const RING_UNITS: &str = "MiB, GiB, TiB (bytes), s, min, h, d (time)";

/// Parts of a ring: it is removed file by file.
const RING_PARTS: u32 = 64;
/// Bytes of a file of a ring, at least (a quarter of a small ring) and at most.
const RING_FILE_BYTES: (u64, u64) = (16 << 20, 4 << 30);
/// Span of a file of a ring, at least and at most.
const RING_FILE_SPAN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(600));

impl FromStr for RingLimit {
    type Err = QuantityError;

    /// Reads a size or a span with its unit: `200GB`, `3d`.
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let text = text.trim();
        let unit = text
            .trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == '.')
            .trim();
        let limit = match unit {
            "" => {
                return Err(QuantityError::UnknownUnit {
                    unit: String::new(),
                    known: RING_UNITS,
                });
            }
            "d" => {
                let days = parse_seconds(text.trim_end_matches('d'))?;
                Self::Span(days.checked_mul(24 * 3600).ok_or(QuantityError::TooLarge)?)
            }
            _ if unit.ends_with(['B', 'b']) => Self::Bytes(parse_bytes(text)?),
            _ => Self::Span(parse_seconds(text)?),
        };
        let is_zero = matches!(limit, Self::Bytes(0) | Self::Span(Duration::ZERO));
        if is_zero {
            Err(QuantityError::Zero)
        } else {
            Ok(limit)
        }
    }
}

impl RingLimit {
    /// The length in bytes at which files of a ring end, unless the user sets one.
    pub fn file_bytes(self) -> Option<u64> {
        let (min, max) = RING_FILE_BYTES;
        match self {
            // A small ring has four: what is written may be all that it keeps.
            Self::Bytes(bytes) => {
                let part = (bytes / u64::from(RING_PARTS)).clamp(min, max);
                Some(part.min(bytes / 4).max(1))
            }
            Self::Span(_) => None,
        }
    }

    /// The span of its files, unless the user sets one.
    pub fn file_span(self) -> Option<Duration> {
        let (min, max) = RING_FILE_SPAN;
        match self {
            Self::Bytes(_) => None,
            Self::Span(span) => Some((span / RING_PARTS).clamp(min, max)),
        }
    }

    /// Whether the oldest file has to go: the finished files have `bytes` together, those that are written may still come to `open_bytes`,
    /// the oldest one ended at `oldest`, and the newest at `newest`.
    pub fn is_passed(
        self,
        (bytes, open_bytes): (u64, u64),
        oldest: Option<Timestamp>,
        newest: Option<Timestamp>,
    ) -> bool {
        match self {
            Self::Bytes(max) => bytes.saturating_add(open_bytes) > max,
            Self::Span(max) => match (oldest, newest) {
                (Some(oldest), Some(newest)) => newest.saturating_since(oldest) > max,
                // A file without messages holds nothing.
                (None, newest) => newest.is_some(),
                (_, None) => false,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes(separate: &[&str], kept: &[&str]) -> FileClasses {
        let owned = |texts: &[&str]| -> Vec<String> { texts.iter().map(|text| (*text).to_owned()).collect() };
        FileClasses::new(&owned(separate), &owned(kept)).unwrap()
    }

    #[test]
    fn a_class_is_named_after_its_pattern_or_by_its_user() {
        let classes = classes(
            &[
                "/camera.*",
                "camera",
                "big=^sensor_msgs/msg/(Image|PointCloud2)$",
                "^/$",
                "ring",
                "/3d/.*",
            ],
            &[],
        );
        let names: Vec<_> = (0..classes.count()).map(|class| classes.name(class)).collect();
        assert_eq!(
            names,
            ["", "camera", "camera_b", "big", "apart", "ring_b", "apart_3d"]
        );
        assert_eq!(classes.of("/camera/left", "x/msg/Y"), 1);
        assert_eq!(classes.of("/left", "sensor_msgs/msg/Image"), 3);
        assert!((0..5).all(|class| classes.is_in_ring(class)));
    }

    #[test]
    fn the_class_of_one_topic_is_named_after_it_and_like_no_other() {
        let classes = classes(&["/camera"], &[]);
        let long = classes.name_for_topic("/camera_of_the_front_lef/image", &[]);
        assert_eq!(long, "camera_of_the_front_lef");
        let names = [("/camera", "camera_b"), ("/3d", "apart_3d"), ("/a/b", "a_b_b")];
        for (topic, name) in names {
            assert_eq!(classes.name_for_topic(topic, &["a_b".to_owned()]), name);
        }
    }

    #[test]
    fn a_pattern_that_is_wrong_is_named() {
        let error = FileClasses::new(&["/a(".to_owned()], &[]).unwrap_err();
        assert!(error.to_string().contains("/a("), "{error}");
    }

    #[test]
    fn what_is_kept_is_the_first_class_and_all_others_are_in_the_ring() {
        let classes = classes(&["/camera"], &["/tf", "/camera/info"]);
        let class = |topic| classes.name(classes.of(topic, "x/msg/Y"));
        assert_eq!([class("/tf"), class("/camera/info")], ["", ""]);
        assert_eq!([class("/camera/left"), class("/scan")], ["camera", "ring"]);
        assert_eq!(
            (0..3).map(|class| classes.is_in_ring(class)).collect::<Vec<_>>(),
            [false, true, true]
        );
    }

    #[test]
    fn a_ring_is_a_size_or_a_span_with_its_unit() {
        let parse = |text: &str| text.parse::<RingLimit>();
        assert_eq!(parse("200GB"), Ok(RingLimit::Bytes(200_000_000_000)));
        assert_eq!(parse("1.5d"), Ok(RingLimit::Span(Duration::from_secs(36 * 3600))));
        assert_eq!(parse("90 min"), Ok(RingLimit::Span(Duration::from_secs(5400))));
        for wrong in ["200", "", "0s", "0GB", "3 days", "-1d", "x"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_ring_keeps_its_bytes_or_its_span_and_no_file_is_a_large_part_of_it() {
        let at = |seconds: i64| Some(Timestamp::from_nanos(seconds * 1_000_000_000));
        let bytes = RingLimit::Bytes(64 << 30);
        assert_eq!((bytes.file_bytes(), bytes.file_span()), (Some(1 << 30), None));
        assert_eq!(RingLimit::Bytes(20 << 20).file_bytes(), Some(5 << 20));
        assert!(!bytes.is_passed((63 << 30, 1 << 30), at(0), at(9)));
        assert!(bytes.is_passed((63 << 30, (1 << 30) + 1), at(0), at(9)));
        let span = RingLimit::Span(Duration::from_secs(640));
        assert_eq!(
            (span.file_bytes(), span.file_span()),
            (None, Some(Duration::from_secs(10)))
        );
        assert!(!span.is_passed((u64::MAX, 0), at(10), at(650)));
        assert!(span.is_passed((0, 0), at(9), at(650)) && span.is_passed((0, 0), None, at(650)));
        assert!(!span.is_passed((0, 0), at(9), None));
    }

    #[test]
    fn files_of_several_classes_are_numbered_together() {
        let are = |files: &[(&str, u64)], folder| {
            let files: Vec<_> = files
                .iter()
                .map(|(name, number)| ((*name).to_owned(), *number))
                .collect();
            are_numbered_together(&files, folder)
        };
        assert!(are(&[("b_", 0), ("b_camera_", 1), ("b_", 2)], None));
        assert!(are(&[("b_camera_", 10), ("b_mixed_", 9)], None));
        assert!(are(&[("b_1_", 10), ("b_2_", 9)], Some("b")));
        assert!(!are(&[("b_", 0), ("b_camera_", 0)], Some("b")));
        assert!(!are(&[("day_2024_", 1), ("day_2025_", 0)], Some("days")));
        assert!(!are(&[("day_", 1), ("night_", 0)], None));
        assert!(!are(&[], Some("b")));
    }
}
