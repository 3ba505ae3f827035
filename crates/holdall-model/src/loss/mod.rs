//! Messages that are not in the bag: where each was lost, and how gaps are found from sequence numbers.

pub mod durability;
mod ends;
pub mod ledger;
mod sequence;
mod sums;
mod window;

pub use ends::{EndLines, UnknownEnds};
pub use sequence::{MissingInterval, Observation, SequenceTracker, gap_max};
pub use sums::LossSums;
pub use window::{DURABILITY_RECORD, DurabilityStatus, KeptWindow};

use serde::{Deserialize, Serialize};

/// The sum of counts, which stays at the largest number instead of beginning again at 0: a loss must never sum up to none.
pub fn total<'a>(counts: impl IntoIterator<Item = &'a u64>) -> u64 {
    counts
        .into_iter()
        .fold(0, |sum, count| sum.saturating_add(*count))
}

/// The stage of its path at which a message was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossStage {
    /// Sent before the publisher and our subscription were matched.
    Head,
    /// Lost between the publisher and our subscription: the network, a socket buffer, the publisher's history.
    Transport,
    /// Received, and refused by the full cache.
    Cache,
    /// Received, and dropped while being compressed.
    Compression,
    /// Received, and not stored because the disk or the storage file failed.
    Storage,
    /// Received while files were switched.
    Split,
    /// Received while the recording was being closed.
    Shutdown,
    /// Sent after the last message that arrived.
    Tail,
    /// Left out on the user's request.
    Policy,
    /// Claimed by a sequence number that no publisher can have reached: at least one message for each claim, how many is not known.
    NotBelievable,
    /// Received with a type other than its topic's, which the storage cannot keep.
    AnotherType,
}

impl LossStage {
    /// All stages in the order of a message's way.
    pub const ALL: [Self; 11] = [
        Self::Head,
        Self::Transport,
        Self::Cache,
        Self::Compression,
        Self::Storage,
        Self::Split,
        Self::Shutdown,
        Self::Tail,
        Self::Policy,
        Self::NotBelievable,
        Self::AnotherType,
    ];

    /// True if the recording lost a message that it should have had. Messages sent while not matched
    /// were never sent to the recorder, and messages that the user left out are not lost; both are
    /// accounted for anyway.
    pub const fn is_shortfall(self) -> bool {
        !matches!(self, Self::Head | Self::Policy)
    }

    /// True if a message had arrived before it was lost.
    pub const fn is_after_arrival(self) -> bool {
        !matches!(
            self,
            Self::Head | Self::Transport | Self::Tail | Self::NotBelievable
        )
    }

    /// The name as bags and JSON show it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Head => "head",
            Self::Transport => "transport",
            Self::Cache => "cache",
            Self::Compression => "compression",
            Self::Storage => "storage",
            Self::Split => "split",
            Self::Shutdown => "shutdown",
            Self::Tail => "tail",
            Self::Policy => "policy",
            Self::NotBelievable => "not_believable",
            Self::AnotherType => "another_type",
        }
    }
}
