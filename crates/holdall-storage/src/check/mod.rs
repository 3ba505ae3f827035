//! The findings of a full check of a storage file: each deviation, with its place.

mod by_reading;
mod file;

pub(crate) use by_reading::check as read_all;
pub use file::check_file;

use holdall_model::{
    interface::{Definition, InterfaceError, bundle::Bundle, is_rihs01},
    time::Timestamp,
    topic::{DefinitionEncoding, TopicInfo},
};
use serde::Serialize;
use std::{fmt, path::PathBuf};

use crate::writer::ChannelInfo;

/// Findings that are kept for one file; more are only counted, so that a file of garbage uses no more memory
/// than a good one.
pub(crate) const FINDINGS_MAX: usize = 1000;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing; nothing is wrong with the data.
    Notice,
    /// Something is wrong.
    Problem,
}

/// One thing that a check found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its severity.
    pub severity: Severity,
    /// The file.
    pub path: PathBuf,
    /// Offset in the file in bytes; `None` if no offset applies.
    pub offset: Option<u64>,
    /// The part that was checked: `chunk checksum`, `statistics: message count`, ...
    pub what: String,
    /// The value that was expected.
    pub expected: String,
    /// The value that was found.
    pub found: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if let Some(offset) = self.offset {
            write!(f, " at byte {offset}")?;
        }
        let Self {
            what,
            expected,
            found,
            ..
        } = self;
        write!(f, ": {what}: expected {expected}, found {found}")
    }
}

/// A check's findings: the first [`FINDINGS_MAX`], and counts of all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Findings {
    /// The first ones, in the order of discovery.
    pub list: Vec<Finding>,
    /// Number of problems, including those that are not in the list.
    pub problems: u64,
    /// Number of notices, including those that are not in the list.
    pub notices: u64,
}

impl Findings {
    /// Adds a finding.
    pub fn add(&mut self, finding: Finding) {
        match finding.severity {
            Severity::Problem => self.problems += 1,
            Severity::Notice => self.notices += 1,
        }
        if self.list.len() < FINDINGS_MAX {
            self.list.push(finding);
        }
    }

    /// Adds the findings of another check.
    pub fn extend(&mut self, other: Self) {
        let kept = other.list.len() as u64;
        let dropped = (other.problems + other.notices).saturating_sub(kept);
        let listed = |severity| other.list.iter().filter(|f| f.severity == severity).count() as u64;
        let (problems, notices) = (listed(Severity::Problem), listed(Severity::Notice));
        self.problems += other.problems - problems;
        self.notices += other.notices - notices;
        debug_assert_eq!(dropped, other.problems - problems + other.notices - notices);
        other.list.into_iter().for_each(|finding| self.add(finding));
    }

    /// True when nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.problems == 0
    }
}

/// The counted content of a storage file, and its faults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileCheck {
    /// The file.
    pub path: PathBuf,
    /// The backend that checked it.
    pub storage_id: &'static str,
    /// Its length.
    pub file_bytes: u64,
    /// Messages counted in it.
    pub message_count: u64,
    /// Smallest log time found.
    pub starting_time: Option<Timestamp>,
    /// Largest log time found.
    pub ending_time: Option<Timestamp>,
    /// Messages that follow one of the same topic with a later log time.
    pub out_of_order: u64,
    /// Its topics with the messages counted; a topic with several channels is listed once for each.
    pub topics: Vec<(TopicInfo, u64)>,
    /// Named text records, as far as they could be read.
    pub metadata: Vec<(String, crate::writer::MetadataEntries)>,
    /// The faults.
    pub findings: Findings,
}

impl FileCheck {
    /// Adds a problem.
    pub(crate) fn problem(
        &mut self,
        offset: impl Into<Option<u64>>,
        what: impl Into<String>,
        expected: impl fmt::Display,
        found: impl fmt::Display,
    ) {
        self.note(Severity::Problem, offset.into(), what.into(), &expected, &found);
    }

    /// Adds a notice.
    pub(crate) fn notice(
        &mut self,
        offset: impl Into<Option<u64>>,
        what: impl Into<String>,
        expected: impl fmt::Display,
        found: impl fmt::Display,
    ) {
        self.note(Severity::Notice, offset.into(), what.into(), &expected, &found);
    }

    pub(crate) fn note(
        &mut self,
        severity: Severity,
        offset: Option<u64>,
        what: String,
        expected: &dyn fmt::Display,
        found: &dyn fmt::Display,
    ) {
        self.findings.add(Finding {
            severity,
            path: self.path.clone(),
            offset,
            what,
            expected: expected.to_string(),
            found: found.to_string(),
        });
    }

    /// Adds a problem unless both values are equal.
    pub(crate) fn same<T: PartialEq + fmt::Display>(
        &mut self,
        offset: impl Into<Option<u64>>,
        what: impl Into<String>,
        expected: T,
        found: T,
    ) {
        if expected != found {
            self.problem(offset, what, expected, found);
        }
    }

    /// Checks that the definition of a ROS topic's type is present, can be parsed, and has the announced
    /// hash.
    pub(crate) fn check_definition(&mut self, offset: Option<u64>, info: &ChannelInfo) {
        let topic = &info.topic;
        let what = format!("definition of {} ({})", topic.type_name, topic.name);
        let announced = &topic.type_description_hash;
        if !announced.is_empty() && !is_rihs01(announced) {
            let what = format!("type hash of {} ({})", topic.type_name, topic.name);
            self.problem(offset, what, "RIHS01_ and 64 hexadecimal digits", announced);
            return;
        }
        if info.definition.encoding == DefinitionEncoding::Unknown || info.definition.text.is_empty() {
            self.notice(offset, what, "the text of the definition", "none");
            return;
        }
        // rosbag2 omits from the texts the types that every service event and every action begins with.
        let left_out = ["service_msgs/", "builtin_interfaces/", "unique_identifier_msgs/"];
        let lookup = |name: &str| {
            let is_left_out = left_out.iter().any(|package| name.starts_with(package));
            Bundle::embedded().get(name).filter(|_| is_left_out)
        };
        match Definition::from_stored_as(&info.definition, &topic.type_name, lookup) {
            // `.msg` texts cannot name the types that an action derives, so its hash does not follow from the text.
            Ok(_) if topic.type_name.contains("/action/") => {}
            Ok(definition) if !announced.is_empty() => {
                let found = definition.type_hash();
                self.same(offset, format!("type hash of {what}"), announced.clone(), found);
            }
            Ok(_) => {}
            Err(error @ InterfaceError::NotFound { .. }) => {
                self.problem(offset, what, "a text that defines all it uses", error);
            }
            Err(error) => self.problem(offset, what, "a text that can be parsed", error),
        }
    }
}

/// Called with the progress of a check, in bytes of the file.
pub type Progress<'a> = &'a mut dyn FnMut(u64);
