//! Memory that the drain gives back to the cache, until the next thread that locks the cache applies it.

use super::Segment;
use holdall_model::topic::TopicId;

/// Bytes charged for the messages of one segment, while it is being returned.
#[derive(Default)]
pub(super) struct Sums {
    /// By runs of messages of one topic, in bytes.
    pub(super) credits: Vec<(TopicId, usize)>,
    /// Bytes that were pinned by dropped loans.
    pub(super) pinned: Vec<(TopicId, usize)>,
}

/// Returned memory that is not in the accounts yet. It has a separate lock, held for nanoseconds, so that the drain never waits
/// for a thread that is copying a message into the cache, nor wakes it afterwards; the next thread that locks the cache applies it.
#[derive(Default)]
pub(super) struct Returned {
    /// Empty segments, ready for use.
    pub(super) segments: Vec<Segment>,
    /// Segments that were requested and have just been made.
    pub(super) made: Vec<Segment>,
    /// Bytes charged to topics for the messages of `segments`.
    pub(super) credits: Vec<(TopicId, usize)>,
    /// Bytes that were pinned by dropped loans.
    pub(super) pinned: Vec<(TopicId, usize)>,
    /// Memory beyond the bound, to be freed by the next thread that returns something.
    pub(super) surplus: Vec<Segment>,
}
