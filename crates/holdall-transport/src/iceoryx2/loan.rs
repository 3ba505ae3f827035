//! A sample that the recorder keeps until its bytes are copied for the disk; then its publisher may use the
//! memory again.

use super::ffi::{self, RawSample};
use holdall_model::message::Loan;
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// Approximate size of a sample's chunk in addition to header and payload.
const CHUNK_BYTES: usize = 64;

/// Counts one publisher's samples that are kept; iceoryx2 refuses to hand out more than the service allows.
#[derive(Clone, Debug, Default)]
pub(super) struct Kept(Arc<AtomicUsize>);

impl Kept {
    /// How many are kept.
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }

    fn one_more(&self) -> KeptOne {
        self.0.fetch_add(1, Ordering::AcqRel);
        KeptOne(self.clone())
    }
}

/// One kept sample, until it is dropped.
struct KeptOne(Kept);

impl Drop for KeptOne {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A sample in shared memory: the header's bytes where they are recorded, then the payload's.
pub(super) struct SampleLoan {
    // In this order: the count must not fall before the sample has been released.
    sample: RawSample,
    header_bytes: usize,
    _kept: KeptOne,
}

impl SampleLoan {
    /// Keeps `sample`; the first `header_bytes` of its user header belong to the message.
    pub fn new(sample: RawSample, header_bytes: usize, kept: &Kept) -> Self {
        Self {
            sample,
            header_bytes,
            _kept: kept.one_more(),
        }
    }
}

impl Loan for SampleLoan {
    fn len(&self) -> usize {
        self.header_bytes + ffi::payload_bytes(&self.sample).len()
    }

    fn pinned_bytes(&self) -> usize {
        self.len() + CHUNK_BYTES
    }

    fn for_each_slice(&self, visit: &mut dyn FnMut(&[u8])) {
        if self.header_bytes > 0 {
            visit(ffi::header_bytes(&self.sample, self.header_bytes));
        }
        visit(ffi::payload_bytes(&self.sample));
    }
}
