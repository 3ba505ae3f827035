//! Where a payload is that stays in the transport's memory: ranges of the region's buffers, stored after the message's header.
//!
//! Fragments of one message follow each other in a buffer at equal distances, so one range describes all that do. In bytes: the length of
//! what follows (32 bits), then for each range its start (64 bits), length of a piece, distance and number of pieces (32 bits each).

use holdall_io::survivor::Region;
use holdall_model::message::{Kept, Loan};

/// Bytes of one range.
const RANGE_BYTES: usize = 20;

/// Bytes before the ranges.
const LENGTH_BYTES: usize = 4;

/// Equal pieces of a payload at equal distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferRange {
    /// Where the first piece is in the buffers.
    pub start: u64,
    /// Bytes of a piece.
    pub len: u32,
    /// Bytes from the start of one piece to that of the next.
    pub stride: u32,
    /// Number of pieces.
    pub count: u32,
}

impl BufferRange {
    /// Where its pieces are, in order; the number comes from outside.
    pub fn starts(self) -> impl Iterator<Item = u64> {
        let stride = u64::from(self.stride);
        (0..u64::from(self.count)).map(move |piece| self.start.saturating_add(piece.saturating_mul(stride)))
    }

    /// Where its last piece is.
    pub(crate) fn last_start(self) -> u64 {
        let pieces = u64::from(self.count.saturating_sub(1));
        self.start
            .saturating_add(pieces.saturating_mul(u64::from(self.stride)))
    }

    /// Bytes of all its pieces.
    pub fn bytes(self) -> u64 {
        u64::from(self.len) * u64::from(self.count)
    }

    /// Adds a piece; false if it does not fit in.
    fn extend(&mut self, start: u64, len: u32) -> bool {
        let Some(stride) = start
            .checked_sub(self.start)
            .filter(|_| len == self.len)
            .and_then(|distance| u32::try_from(distance / u64::from(self.count)).ok())
            .filter(|stride| self.count == 1 || *stride == self.stride)
        else {
            return false;
        };
        if self.start + u64::from(stride) * u64::from(self.count) != start {
            return false;
        }
        self.stride = stride;
        self.count += 1;
        true
    }

    fn to_bytes(self) -> [u8; RANGE_BYTES] {
        let mut bytes = [0; RANGE_BYTES];
        bytes[0..8].copy_from_slice(&self.start.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.len.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.stride.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.count.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; RANGE_BYTES]) -> Self {
        let half = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Self {
            start: u64::from(half(0)) | u64::from(half(4)) << 32,
            len: half(8),
            stride: half(12),
            count: half(16),
        }
    }
}

/// Writes the ranges of a loan into `list`, which is at most `bytes_max` long then. Returns what keeps them in their place; `None` if
/// some of the payload is elsewhere.
pub fn list_ranges(loan: &dyn Loan, region: &Region, list: &mut Vec<u8>, bytes_max: usize) -> Option<Kept> {
    let kept = loan.keep()?;
    list.clear();
    list.extend_from_slice(&[0; LENGTH_BYTES]);
    let (mut last, mut is_whole): (Option<BufferRange>, bool) = (None, true);
    loan.for_each_slice(&mut |slice| {
        let (Some(start), Ok(len)) = (region.offset_in_buffers(slice), u32::try_from(slice.len())) else {
            is_whole = false;
            return;
        };
        if last.as_mut().is_some_and(|last| last.extend(start, len)) {
            return;
        }
        let next = BufferRange {
            start,
            len,
            stride: 0,
            count: 1,
        };
        if let Some(done) = last.replace(next) {
            list.extend_from_slice(&done.to_bytes());
        }
    });
    list.extend_from_slice(&last?.to_bytes());
    let ranges_bytes = u32::try_from(list.len() - LENGTH_BYTES).ok()?;
    list[..LENGTH_BYTES].copy_from_slice(&ranges_bytes.to_le_bytes());
    (is_whole && list.len() <= bytes_max).then_some(kept)
}

/// Bytes of the list that these bytes begin with; `None` if it is cut off or cannot be one.
#[inline]
pub fn list_bytes(bytes: &[u8]) -> Option<usize> {
    let ranges_bytes = u32::from_le_bytes(*bytes.first_chunk()?) as usize;
    let whole = LENGTH_BYTES + ranges_bytes;
    (ranges_bytes.is_multiple_of(RANGE_BYTES) && whole <= bytes.len()).then_some(whole)
}

/// Reads a list of [`list_ranges`].
pub(crate) fn read_ranges(list: &[u8]) -> Vec<BufferRange> {
    let (ranges, _) = list.get(LENGTH_BYTES..).unwrap_or_default().as_chunks();
    ranges.iter().map(BufferRange::from_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn equal_pieces_at_equal_distances_are_one_range() {
        let mut range = BufferRange {
            start: 100,
            len: 10,
            stride: 0,
            count: 1,
        };
        assert!(!range.extend(200, 9) && !range.extend(90, 10));
        assert!(range.extend(200, 10) && range.extend(300, 10));
        assert!(!range.extend(399, 10) && !range.extend(401, 10) && !range.extend(500, 10));
        assert_eq!(range.starts().collect::<Vec<_>>(), [100, 200, 300]);
        assert_eq!(range.bytes(), 30);
    }

    proptest! {
        #[test]
        fn a_range_reads_back_as_it_was_written(start: u64, len: u32, stride: u32, count: u32) {
            let range = BufferRange { start, len, stride, count };
            let mut list = (RANGE_BYTES as u32).to_le_bytes().to_vec();
            list.extend_from_slice(&range.to_bytes());
            prop_assert_eq!(list_bytes(&list), Some(list.len()));
            prop_assert_eq!(read_ranges(&list), [range]);
            prop_assert_eq!(list_bytes(&list[..list.len() - 1]), None);
        }
    }
}
