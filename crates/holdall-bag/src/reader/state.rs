//! The state of a bag: whether it has all that was recorded, and what is known of what it has not. Every verb, table and page asks here.

use super::{AccountSummary, Bag, LostByTopic, ReadError};
use crate::writer::STATE_KEY;
use holdall_io::lock::Holder;
use holdall_model::{
    loss::{
        LossStage, LossSums, UnknownEnds,
        ledger::{Ledger, MissingFile},
    },
    time::Timestamp,
    units::format_count,
};
use serde::Serialize;
use std::collections::BTreeMap;

/// Key in `custom_data` that marks a bag as repaired: whether what was lost at its end is known, and not 0.
pub const REPAIRED_KEY: &str = "holdall.repaired";

/// Key in `custom_data` that marks a bag in which a tool found damage that its files show only when they are read: what was found.
pub const DAMAGED_KEY: &str = "holdall.damaged";

/// The condition of a bag in one word: the worst that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Condition {
    /// Ended, with an account that knows every end: all that was sent is in the bag or counted as missing.
    Complete,
    /// Ended, but losses at the end are unknown: no account, or an end that nothing confirms.
    Ended,
    /// A publisher went silent: messages that it sent later are unknown.
    EndUnknown,
    /// The recording was cut off, or the end of its account is gone.
    CutOff,
    /// Storage files are gone, or have lost messages since.
    FilesMissing,
    /// A part of it cannot be read.
    Damaged,
    /// It cannot be opened.
    Unreadable,
    /// A recorder writes it.
    Recording,
}

impl Condition {
    /// The word, the same in every report.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Ended => "ended",
            Self::EndUnknown => UnknownEnds::SILENT,
            Self::CutOff => "cut off",
            Self::FilesMissing => "files missing",
            Self::Damaged => "damaged",
            Self::Unreadable => "unreadable",
            Self::Recording => "recording",
        }
    }

    /// That of a bag which could not be opened.
    pub const fn of_error(error: &ReadError) -> Self {
        match error {
            ReadError::MissingFile { .. } => Self::FilesMissing,
            _ => Self::Unreadable,
        }
    }
}

/// Where the account of a bag comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AccountSource {
    /// The last storage file, or the memory of a recorder that was killed.
    LastFile,
    /// `metadata.yaml`: the last file could not take it.
    Metadata,
    /// The sums in `metadata.yaml`: the last file is packed.
    MetadataSums,
    /// The last that the recorder could store before it was cut off.
    Checkpoint,
    /// No account.
    None,
}

/// The state of a bag.
#[derive(Clone, Debug)]
pub struct BagState {
    /// One word for the state.
    pub condition: Condition,
    /// Where the account comes from.
    pub source: AccountSource,
    /// The account in short; `None` without one, and where it is packed.
    pub account: Option<AccountSummary>,
    /// What is known to be lost, by topic and stage, with what was sent while not matched; `None` if no loss can be known.
    pub lost: Option<LostByTopic>,
    /// Storage files that are gone, or have lost messages since.
    pub missing_files: Vec<MissingFile>,
    /// Publishers whose end is not known, by topic; topics without any are absent.
    pub ends: BTreeMap<String, UnknownEnds>,
    /// The process that is recording the bag.
    pub writer: Option<Holder>,
}

impl Bag {
    /// The state of the bag. No message is read, and no packed file is unpacked.
    ///
    /// # Errors
    /// As [`Bag::any_ledger`].
    pub fn state(&self) -> Result<BagState, ReadError> {
        let is_packed = self.is_account_packed();
        let mut ledger = if is_packed { None } else { self.any_ledger()? };
        let source = match &ledger {
            None if is_packed => AccountSource::MetadataSums,
            None => AccountSource::None,
            Some(ledger) if ledger.checkpoint.is_some() => AccountSource::Checkpoint,
            Some(_) if self.ledger()?.is_none() => AccountSource::Metadata,
            Some(_) => AccountSource::LastFile,
        };
        if let Some(ledger) = &mut ledger {
            self.lose_absent(ledger);
        }
        let lost = match &ledger {
            Some(ledger) => Some(lost_of(ledger)),
            None if is_packed => Some(self.lost_by_metadata().unwrap_or_default()),
            None => None,
        };
        let topics = ledger.iter().flat_map(|ledger| &ledger.topics);
        let ends = topics.map(|topic| (topic.name.clone(), topic.unknown_ends()));
        let mut state = BagState {
            condition: Condition::Complete,
            source,
            account: ledger.as_ref().map(|ledger| self.summary_of(ledger)),
            lost,
            ends: ends.filter(|(_, ends)| !ends.is_none()).collect(),
            missing_files: ledger.map_or_else(Vec::new, |ledger| ledger.missing_files),
            writer: self.writer(),
        };
        state.condition = self.condition(&state);
        Ok(state)
    }

    /// Counts what the account has in the bag and no file has: given to the disk and not durable when the recording was cut off, or in
    /// a file that is gone.
    fn lose_absent(&self, ledger: &mut Ledger) {
        let left = self.originals_by_topic();
        let left = |topic: &str| left.get(topic).copied().unwrap_or(0);
        let more = ledger.more_than(left);
        if more.is_empty() || self.writer().is_some() {
            return;
        }
        let is_cut_off = ledger.checkpoint.is_some();
        let unnamed = (!is_cut_off).then(|| MissingFile::unnamed(more.clone()));
        ledger.lose_files(unnamed, &more, left);
    }

    fn condition(&self, state: &BagState) -> Condition {
        let custom_data = &self.metadata().custom_data;
        let is_repaired = custom_data.get(REPAIRED_KEY);
        let is_cut_off = match state.source {
            AccountSource::Checkpoint => true,
            AccountSource::None | AccountSource::MetadataSums => {
                is_repaired.is_some_and(|end| end.contains("unknown"))
            }
            AccountSource::LastFile | AccountSource::Metadata => false,
        };
        let ends = state.unknown_ends();
        let silent = ends.silent > 0 || custom_data.contains_key("holdall.end_unknown");
        match () {
            () if self.writer().is_some() => Condition::Recording,
            () if self.damage().is_some() => Condition::Damaged,
            () if !state.missing_files.is_empty() => Condition::FilesMissing,
            () if is_cut_off || custom_data.contains_key(STATE_KEY) => Condition::CutOff,
            () if silent => Condition::EndUnknown,
            () if state.source == AccountSource::None || state.is_uncertain() => Condition::Ended,
            () => Condition::Complete,
        }
    }
}

impl BagState {
    /// Sets the state of a bag that could be read only in part.
    pub fn set_damaged(&mut self) {
        self.condition = self.condition.max(Condition::Damaged);
    }

    /// The sum of all publishers whose end is not known.
    pub fn unknown_ends(&self) -> UnknownEnds {
        UnknownEnds::of_all(self.ends.values().copied())
    }

    /// The sums of missing messages; `None` if no loss can be known.
    pub fn sums(&self) -> Option<LossSums> {
        self.lost.as_ref().map(|topics| LossSums::of_all(topics.values()))
    }

    /// Whether the account ends before the recording did.
    pub fn is_cut_off(&self) -> bool {
        self.source == AccountSource::Checkpoint || self.condition == Condition::CutOff
    }

    /// Whether more may be missing than is known, with an account of the whole recording.
    fn is_uncertain(&self) -> bool {
        let topics_unknown = self.account.as_ref().map_or(0, |account| account.topics_unknown);
        !self.unknown_ends().is_none() || topics_unknown > 0
    }

    /// Whether all losses are known: no reader must take "0" for "none" where this is false.
    pub fn knows_all(&self) -> bool {
        let has_end = matches!(
            self.source,
            AccountSource::LastFile | AccountSource::Metadata | AccountSource::MetadataSums
        );
        has_end && self.condition < Condition::Damaged && !self.is_cut_off() && !self.is_uncertain()
    }

    /// How many messages are lost, as one line for people; `time` writes a point in time.
    pub fn lost_line(&self, time: impl Fn(Timestamp) -> String) -> String {
        let why = match self.writer {
            Some(writer) => format!("the bag is being recorded by {writer}"),
            None => "the recording was cut off".to_owned(),
        };
        let Some(sums) = self.sums() else {
            return match self.writer {
                Some(_) => format!("not known yet: {why}"),
                None if self.is_cut_off() => format!("not known: {why}"),
                None => "unknown (the recorder of this bag kept no account)".to_owned(),
            };
        };
        let count = match sums.lost {
            0 if !self.knows_all() && !self.is_cut_off() => UnknownEnds::NONE_KNOWN.to_owned(),
            count => format_count(count),
        };
        let until = self.account.as_ref().and_then(|account| account.checkpoint);
        match until {
            Some(until) if self.source == AccountSource::Checkpoint => format!(
                "{count} until {}; what was lost after that is not known: {why}",
                time(until)
            ),
            _ if self.source == AccountSource::Checkpoint && sums.lost == 0 => format!("not known: {why}"),
            _ if self.source == AccountSource::Checkpoint || !self.is_cut_off() => match sums.before_match {
                0 => count,
                before => format!(
                    "{count} (and {} {}, no loss)",
                    format_count(before),
                    LossSums::BEFORE_MATCH
                ),
            },
            _ if self.source == AccountSource::MetadataSums => {
                format!("{count} known; what was lost at the end is not known: {why}")
            }
            _ => count,
        }
    }

    /// What is missing or not known besides, one line each: files, then publishers; `time` writes a point in time.
    pub fn more_lines(&self, time: impl Fn(Timestamp) -> String) -> Vec<String> {
        let mut lines: Vec<String> = self.missing_files.iter().map(MissingFile::to_string).collect();
        let ends = self.ends.iter().map(|(name, ends)| (name.as_str(), *ends));
        let ends = UnknownEnds::lines(ends, time);
        lines.extend(ends.silent.into_iter().chain(ends.unconfirmed));
        lines
    }

    /// The same for programs.
    pub fn summary(&self) -> StateSummary {
        StateSummary {
            state: self.condition.as_str(),
            account_from: self.source,
            lost: self.sums().map(|sums| sums.lost),
            all_losses_known: self.knows_all(),
            missing_files: self.missing_files.clone(),
            ends_unknown: self.unknown_ends(),
        }
    }
}

/// The state of a bag for programs, the same in every JSON document.
#[derive(Clone, Debug, Serialize)]
pub struct StateSummary {
    /// [`Condition::as_str`].
    pub state: &'static str,
    /// Where the account comes from.
    pub account_from: AccountSource,
    /// Messages that are known to be lost; `None` if no loss can be known.
    pub lost: Option<u64>,
    /// False where more may be lost.
    pub all_losses_known: bool,
    /// Storage files that are gone, or have lost messages since.
    pub missing_files: Vec<MissingFile>,
    /// Publishers whose end is not known.
    pub ends_unknown: UnknownEnds,
}

/// Lost messages by topic, without those left out on request.
fn lost_of(ledger: &Ledger) -> LostByTopic {
    let topics = ledger.topics.iter().map(|topic| {
        let mut missing = topic.missing.clone();
        missing.remove(&LossStage::Policy);
        (topic.name.clone(), missing)
    });
    topics.filter(|(_, missing)| !missing.is_empty()).collect()
}
