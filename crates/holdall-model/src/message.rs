//! A serialized message between the transport and the storage file.

use crate::{
    loss::ledger::PublisherIndex,
    time::Timestamp,
    topic::{Gid, TopicId},
};
use std::sync::Arc;

/// Properties of a message in addition to its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageHeader {
    /// Its publisher; `None` if the transport does not report it.
    pub publisher: Option<Gid>,
    /// The publisher's sequence number, if the transport has one; a DDS publisher's first message has 1.
    pub sequence: Option<u64>,
    /// When it was sent, on the sender's clock; `None` if the transport does not report it.
    pub publish_time: Option<Timestamp>,
    /// When it was received, on the recorder's clock.
    pub log_time: Timestamp,
}

/// The part of a message that the cache keeps besides its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheEntry {
    /// When it was received, or the simulation's time then.
    pub log_time: Timestamp,
    /// When it was sent, where known.
    pub publish_time: Option<Timestamp>,
    /// The publisher's sequence number, where known.
    pub sequence: Option<u64>,
    /// Its topic.
    pub topic: TopicId,
    /// Its publisher.
    pub publisher: PublisherIndex,
}

/// Which stamp orders and paces messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MessageOrder {
    /// Log time.
    #[default]
    Received,
    /// Publish time.
    Sent,
}

/// A payload in the transport's own memory (receive buffers, shared memory), which is released on drop.
///
/// The bytes are slices in order, one or some thousands. A loan must stay valid when it is moved to another
/// thread, and after its subscription is gone.
pub trait Loan: Send {
    /// Payload length in bytes: the sum of all slices.
    fn len(&self) -> usize;

    /// True for a payload of no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory that cannot be reused while this loan is held; at least `len`.
    fn pinned_bytes(&self) -> usize;

    /// Calls `visit` with each slice in order.
    fn for_each_slice(&self, visit: &mut dyn FnMut(&[u8]));

    /// A second hold on the memory, if it may be memory that survives the process: the bytes stay in their place until both holds are
    /// dropped.
    fn keep(&self) -> Option<Kept> {
        None
    }
}

/// A payload that was copied.
impl Loan for Box<[u8]> {
    fn len(&self) -> usize {
        (**self).len()
    }

    fn pinned_bytes(&self) -> usize {
        (**self).len()
    }

    fn for_each_slice(&self, visit: &mut dyn FnMut(&[u8])) {
        visit(self);
    }
}

/// Keeps a loan's bytes in their place.
pub type Kept = Arc<dyn Send + Sync>;

/// A payload as a transport offers it: small ones as bytes to copy at once, large ones as a loan to keep.
pub enum Payload<'a> {
    /// Valid during the call only: the receiver copies it.
    Borrowed(&'a [u8]),
    /// Owned by the receiver from now on.
    Loaned(Box<dyn Loan>),
}

impl Payload<'_> {
    /// Payload length in bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Borrowed(bytes) => bytes.len(),
            Self::Loaned(loan) => loan.len(),
        }
    }

    /// True for a payload of no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A copy of its bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        match self {
            Self::Borrowed(bytes) => bytes.to_vec(),
            Self::Loaned(loan) => {
                let mut bytes = Vec::with_capacity(loan.len());
                loan.for_each_slice(&mut |slice| bytes.extend_from_slice(slice));
                bytes
            }
        }
    }
}

/// A payload in the form that a storage writer receives.
#[derive(Clone, Copy)]
pub enum PayloadRef<'a> {
    /// All bytes in one piece.
    Bytes(&'a [u8]),
    /// Bytes still in the transport's memory.
    Loan(&'a dyn Loan),
}

impl PayloadRef<'_> {
    /// Payload length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Loan(loan) => loan.len(),
        }
    }

    /// True for a payload of no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `visit` with each slice in order.
    pub fn for_each_slice(&self, mut visit: impl FnMut(&[u8])) {
        match self {
            Self::Bytes(bytes) => visit(bytes),
            Self::Loan(loan) => loan.for_each_slice(&mut visit),
        }
    }
}
