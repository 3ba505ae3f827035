//! Which bytes of an object are here, requested, or next: pure state that a reader and its requests share.

use bytes::Bytes;
use std::{
    collections::{BTreeMap, VecDeque},
    io,
    ops::Range,
    sync::Arc,
};

/// Most bytes of one request.
const PART_BYTES: u64 = 4 << 20;
/// Announced ranges with less between them become one request ...
const GAP_BYTES_MAX: u64 = 1 << 20;
/// ... while the gap is at most this part of the wanted bytes.
const GAP_PART: u64 = 10;
/// A read below this is made larger at both ends: the parts that describe a file are close together.
const SMALL_BYTES: u64 = 64 << 10;
/// Bytes that are requested ahead of a reader from front to back: more than the sixteen requests that are made at once, which are answered side by
/// side, so that the next ones begin while the reader waits for the oldest.
const AHEAD_BYTES: u64 = 24 * PART_BYTES;
/// This many adjacent reads in a row count as reading from front to back.
const STREAK: u32 = 4;
/// Bytes kept after they were read.
const READ_BYTES_MAX: u64 = 32 << 20;
/// Announcements are ignored when this many bytes are present or requested.
const HELD_BYTES_MAX: u64 = 192 << 20;

/// A piece's bytes.
#[derive(Debug)]
enum Content {
    Requested,
    Here(Bytes),
    Failed(Arc<io::Error>),
}

#[derive(Debug)]
struct Piece {
    len: u64,
    content: Content,
    /// End of the part that was read.
    read_to: u64,
    stays: bool,
}

/// Announced bytes that are not requested yet.
#[derive(Debug)]
struct Run {
    start: u64,
    end: u64,
    gaps: u64,
}

/// The result of a read.
#[derive(Debug)]
pub(crate) enum Found {
    /// This many bytes were copied.
    Some(usize),
    /// They are requested.
    Requested,
    /// They must be requested first.
    Missing,
    /// Their request failed.
    Failed(Arc<io::Error>),
}

/// The bytes of one object.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    len: u64,
    by_start: BTreeMap<u64, Piece>,
    held_bytes: u64,
    run: Option<Run>,
    /// Pieces that were read, the oldest first.
    read: VecDeque<u64>,
    read_bytes: u64,
    /// End of the last read, and how many have followed one another.
    last_end: u64,
    streak: u32,
    is_sequential: bool,
}

impl Pieces {
    /// An object of this length, whose end is here.
    pub(crate) fn new(len: u64, end: Bytes) -> Self {
        let mut pieces = Self {
            len,
            ..Self::default()
        };
        if !end.is_empty() {
            let piece = Piece {
                len: end.len() as u64,
                content: Content::Here(end),
                read_to: 0,
                stays: true,
            };
            pieces.by_start.insert(len.saturating_sub(piece.len), piece);
        }
        pieces
    }

    fn piece_at(&mut self, offset: u64) -> Option<(u64, &mut Piece)> {
        let (start, piece) = self.by_start.range_mut(..=offset).next_back()?;
        (offset - start < piece.len).then_some((*start, piece))
    }

    /// Copies the available bytes from `offset` on.
    pub(crate) fn read(&mut self, into: &mut [u8], offset: u64) -> Found {
        let Some((start, piece)) = self.piece_at(offset) else {
            return Found::Missing;
        };
        let bytes = match &piece.content {
            Content::Requested => return Found::Requested,
            Content::Failed(error) => {
                let error = Arc::clone(error);
                // The next read tries again.
                self.remove(start);
                return Found::Failed(error);
            }
            Content::Here(bytes) => bytes,
        };
        // Below the length of something in memory.
        let within = (offset - start) as usize;
        let count = into.len().min(bytes.len() - within);
        into[..count].copy_from_slice(&bytes[within..within + count]);
        let end = (within + count) as u64;
        let (was_read, stays, len) = (piece.read_to > 0, piece.stays, piece.len);
        piece.read_to = piece.read_to.max(end);
        if !was_read && !stays {
            self.read.push_back(start);
            self.read_bytes += len;
            self.drop_read(start);
        }
        Found::Some(count)
    }

    /// Drops the pieces that were read longest ago.
    fn drop_read(&mut self, keep: u64) {
        while self.read_bytes > READ_BYTES_MAX {
            match self.read.front() {
                Some(oldest) if *oldest != keep => {
                    let oldest = *oldest;
                    self.remove(oldest);
                }
                _ => return,
            }
        }
    }

    fn remove(&mut self, start: u64) {
        if let Some(piece) = self.by_start.remove(&start) {
            if !piece.stays {
                self.held_bytes -= piece.len;
            }
            if piece.read_to > 0 && !piece.stays {
                self.read_bytes -= piece.len;
                self.read.retain(|other| *other != start);
            }
        }
    }

    /// The parts of a range that are not here, as requests, which now count as made.
    fn request(&mut self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut requests = Vec::new();
        let (mut at, end) = (range.start, range.end.min(self.len));
        while at < end {
            if let Some((start, piece)) = self.piece_at(at) {
                at = start + piece.len;
                continue;
            }
            let next = self
                .by_start
                .range(at..end)
                .next()
                .map_or(end, |(start, _)| *start);
            // A little more than a part does not justify two.
            let count = ((next - at + PART_BYTES / 2) / PART_BYTES).max(1);
            let part = (next - at).div_ceil(count);
            while at < next {
                let len = part.min(next - at);
                let piece = Piece {
                    len,
                    content: Content::Requested,
                    read_to: 0,
                    stays: false,
                };
                self.by_start.insert(at, piece);
                self.held_bytes += len;
                requests.push(at..at + len);
                at += len;
            }
        }
        requests
    }

    fn take_run(&mut self) -> Vec<Range<u64>> {
        self.run
            .take()
            .map_or_else(Vec::new, |run| self.request(run.start..run.end))
    }

    /// The requests for a read whose first byte is missing.
    pub(crate) fn request_for_read(&mut self, offset: u64, len: u64) -> Vec<Range<u64>> {
        if self
            .run
            .as_ref()
            .is_some_and(|run| run.start <= offset && offset < run.end)
        {
            return self.take_run();
        }
        if len >= SMALL_BYTES || self.is_sequential {
            return self.request(offset..offset.saturating_add(len));
        }
        let before = self.by_start.range(..offset).next_back();
        let before = before.map_or(0, |(start, piece)| start + piece.len);
        let after = self
            .by_start
            .range(offset..)
            .next()
            .map_or(self.len, |(start, _)| *start);
        let start = offset.saturating_sub(SMALL_BYTES).max(before);
        let end = offset.saturating_add(len + SMALL_BYTES).min(after);
        self.request(start..end)
    }

    /// Bytes that will be read soon: the requests that this makes due.
    pub(crate) fn expect(&mut self, offset: u64, len: u64) -> Vec<Range<u64>> {
        let end = offset.saturating_add(len).min(self.len);
        if offset >= end || self.held_bytes > HELD_BYTES_MAX {
            return Vec::new();
        }
        if let Some(run) = &mut self.run
            && offset >= run.end
            && end - run.start <= 2 * PART_BYTES
        {
            let gap = offset - run.end;
            let wanted = end - run.start - run.gaps - gap;
            if gap < GAP_BYTES_MAX && (run.gaps + gap) * GAP_PART <= wanted {
                run.end = end;
                run.gaps += gap;
                let is_due = end - run.start >= PART_BYTES;
                return if is_due { self.take_run() } else { Vec::new() };
            }
        }
        let mut due = self.take_run();
        self.run = Some(Run {
            start: offset,
            end,
            gaps: 0,
        });
        if end - offset >= PART_BYTES {
            due.extend(self.take_run());
        }
        due
    }

    /// Notes that the object is read from front to back; returns the requests for its beginning.
    pub(crate) fn expect_sequential(&mut self) -> Vec<Range<u64>> {
        if std::mem::replace(&mut self.is_sequential, true) {
            return Vec::new();
        }
        self.after_read(0, 0)
    }

    /// The ranges to request after a read, if it is one of many in sequence.
    pub(crate) fn after_read(&mut self, offset: u64, len: u64) -> Vec<Range<u64>> {
        let follows = offset == self.last_end && len < PART_BYTES;
        self.last_end = offset + len;
        self.streak = if follows { self.streak.saturating_add(1) } else { 0 };
        if !self.is_sequential && self.streak < STREAK {
            return Vec::new();
        }
        let goal = self.last_end.saturating_add(AHEAD_BYTES).min(self.len);
        let mut requested = self.last_end;
        while requested < goal {
            match self.piece_at(requested) {
                Some((start, piece)) => requested = start + piece.len,
                None => break,
            }
        }
        // Whole parts, but for the end.
        if requested >= goal || (goal - requested < PART_BYTES && goal < self.len) {
            return Vec::new();
        }
        let whole = if goal < self.len {
            requested + (goal - requested) / PART_BYTES * PART_BYTES
        } else {
            goal
        };
        self.request(requested..whole)
    }

    /// The outcome of a request.
    pub(crate) fn answered(&mut self, start: u64, answer: io::Result<Bytes>) {
        if let Some(piece) = self.by_start.get_mut(&start) {
            piece.content = match answer {
                Ok(bytes) => Content::Here(bytes),
                Err(error) => Content::Failed(Arc::new(error)),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn pieces() -> Pieces {
        Pieces::new(1000 * MIB, Bytes::from(vec![7; 256 << 10]))
    }

    fn answer(pieces: &mut Pieces, requests: &[Range<u64>]) {
        for request in requests {
            let bytes = vec![1; (request.end - request.start) as usize];
            pieces.answered(request.start, Ok(bytes.into()));
        }
    }

    #[test]
    fn the_end_is_here_and_small_reads_bring_what_is_around_them() {
        let mut pieces = pieces();
        let mut byte = [0];
        assert!(matches!(pieces.read(&mut byte, 1000 * MIB - 5), Found::Some(1)) && byte == [7]);
        assert!(matches!(pieces.read(&mut byte, 5 * MIB), Found::Missing));
        let requests = pieces.request_for_read(5 * MIB, 9);
        assert_eq!(requests.len(), 1);
        assert_eq!(requests[0], 5 * MIB - SMALL_BYTES..5 * MIB + 9 + SMALL_BYTES);
        assert!(matches!(pieces.read(&mut byte, 5 * MIB), Found::Requested));
        answer(&mut pieces, &requests);
        assert!(matches!(pieces.read(&mut byte, 5 * MIB + 100), Found::Some(1)));
        // Nothing is requested twice.
        assert_eq!(
            pieces.request_for_read(5 * MIB + 9 + SMALL_BYTES, 9)[0].start,
            5 * MIB + 9 + SMALL_BYTES
        );
    }

    #[test]
    fn large_reads_are_requested_in_parts_side_by_side() {
        let requests = pieces().request_for_read(0, 10 * MIB);
        assert_eq!(requests.len(), 3);
        assert_eq!((requests[0].start, requests[2].end), (0, 10 * MIB));
    }

    #[test]
    fn announced_ranges_with_small_gaps_become_one_request() {
        let mut pieces = pieces();
        let mut requests = Vec::new();
        for chunk in 0..16 {
            requests.extend(pieces.expect(chunk * (MIB + 1000), MIB));
        }
        assert_eq!(requests.len(), 4, "{requests:?}");
        let fetched: u64 = requests.iter().map(|range| range.end - range.start).sum();
        assert!(fetched < 16 * MIB + 20_000, "{fetched}");
    }

    #[test]
    fn gaps_never_cost_more_than_a_tenth() {
        let mut pieces = pieces();
        let mut requests = Vec::new();
        for chunk in 0..100 {
            requests.extend(pieces.expect(chunk * 3 * MIB / 2, MIB));
        }
        requests.extend(pieces.take_run());
        let fetched: u64 = requests.iter().map(|range| range.end - range.start).sum();
        assert_eq!((requests.len(), fetched), (100, 100 * MIB));
    }

    #[test]
    fn a_read_from_front_to_back_is_ahead_of_its_reader_and_memory_is_bounded() {
        let mut pieces = pieces();
        let first = pieces.expect_sequential();
        assert_eq!(first.len(), 24, "before the first read");
        answer(&mut pieces, &first);
        assert!(pieces.expect_sequential().is_empty(), "once");
        let (mut at, mut requested, mut window) = (0, AHEAD_BYTES, vec![0; MIB as usize]);
        while at < 1000 * MIB {
            match pieces.read(&mut window, at) {
                Found::Some(count) => {
                    let more = pieces.after_read(at, count as u64);
                    at += count as u64;
                    requested += more.iter().map(|range| range.end - range.start).sum::<u64>();
                    answer(&mut pieces, &more);
                }
                Found::Missing => {
                    let more = pieces.request_for_read(at, MIB);
                    requested += more.iter().map(|range| range.end - range.start).sum::<u64>();
                    answer(&mut pieces, &more);
                }
                other => panic!("{other:?}"),
            }
            assert!(
                pieces.held_bytes <= READ_BYTES_MAX + AHEAD_BYTES + 2 * PART_BYTES,
                "{}",
                pieces.held_bytes
            );
        }
        assert_eq!(requested, 1000 * MIB - (256 << 10), "each byte once");
    }

    #[test]
    fn what_failed_is_requested_again_by_the_next_read() {
        let mut pieces = pieces();
        let requests = pieces.request_for_read(0, MIB);
        pieces.answered(requests[0].start, Err(io::Error::other("gone")));
        let mut byte = [0];
        assert!(matches!(pieces.read(&mut byte, 0), Found::Failed(_)));
        assert!(matches!(pieces.read(&mut byte, 0), Found::Missing));
        assert_eq!(pieces.held_bytes, 0);
    }
}
