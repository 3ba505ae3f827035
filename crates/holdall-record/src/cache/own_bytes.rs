//! A payload that has no place in a segment and is not in the transport's memory either.

use holdall_model::message::Loan;

/// A payload too large for an arena, copied.
pub(super) struct OwnBytes(pub Box<[u8]>);

impl Loan for OwnBytes {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn pinned_bytes(&self) -> usize {
        self.0.len()
    }

    fn for_each_slice(&self, visit: &mut dyn FnMut(&[u8])) {
        visit(&self.0);
    }
}
