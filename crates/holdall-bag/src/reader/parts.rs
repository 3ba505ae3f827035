//! Parts of bags that can be read side by side: spans of time that share no chunk of a file.

use super::{
    MessageOrder,
    error::ReadError,
    message::{MessageFilter, before},
    ros1::SharedReader,
    set::BagSet,
};
use holdall_io::mutex::lock;
use holdall_model::time::Timestamp;
use holdall_storage::{reader::FilePart, writer::ChannelIndex};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Mutex,
    time::Duration,
};

/// A span whose seam is not found by then is divided within a chunk, which is then read twice.
const LATEST_SEAM: u64 = 4;

/// Files that stay open for the next spans.
const OPEN_FILES_MAX: usize = 8;

/// First and last log time of a span; open where `None`.
type Span = (Option<Timestamp>, Option<Timestamp>);

/// Bags divided into spans of time, each with the files that have messages in it.
pub(crate) struct BagSpans {
    bags: BagSet,
    /// Files by the number of their bag and their number in it.
    spans: Vec<(Span, BTreeSet<(usize, usize)>)>,
    open: Mutex<BTreeMap<(usize, usize), SharedReader>>,
}

impl BagSpans {
    /// Number of spans.
    pub fn count(&self) -> usize {
        self.spans.len()
    }

    /// The first and the last log time of a span, and the bags with the files that it needs. Files stay open for the next spans.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn get(&self, index: usize) -> Result<Option<(Span, BagSet)>, ReadError> {
        let Some((span, files)) = self.spans.get(index) else {
            return Ok(None);
        };
        let mut bags = Vec::new();
        for (number, bag) in self.bags.bags().iter().enumerate() {
            let mut wanted = Vec::new();
            for place in files.range((number, 0)..(number + 1, 0)) {
                let Some(file) = bag.files().get(place.1) else {
                    continue;
                };
                let mut file = file.clone();
                if file.reader.is_none() {
                    file.reader = Some(self.reader(*place, || file.open_whole())?);
                }
                wanted.push(file);
            }
            bags.push(bag.with_files(wanted));
        }
        Ok(Some((*span, BagSet::of_parts(bags))))
    }

    fn reader(
        &self,
        place: (usize, usize),
        open: impl FnOnce() -> Result<SharedReader, ReadError>,
    ) -> Result<SharedReader, ReadError> {
        // Held while a file is opened: others that want the same one wait for it.
        let mut known = lock(&self.open);
        if let Some(reader) = known.get(&place) {
            return Ok(SharedReader::clone(reader));
        }
        let reader = open()?;
        known.insert(place, SharedReader::clone(&reader));
        // Spans follow one another: the first files are needed last.
        while known.len() > OPEN_FILES_MAX {
            known.pop_first();
        }
        Ok(reader)
    }
}

impl BagSet {
    /// Divides the log times of the messages that `filter` selects into spans of about `bytes` bytes of records. One span where the files
    /// are not made of parts, or where messages are ordered by another time or by a clock that jumped back.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub(crate) fn spans(&self, filter: &MessageFilter, bytes: u64) -> Result<BagSpans, ReadError> {
        let whole = (filter.from, filter.until);
        let places = || {
            let bags = self.bags().iter().enumerate();
            bags.flat_map(|(number, bag)| {
                bag.files()
                    .iter()
                    .enumerate()
                    .map(move |(file, _)| (number, file))
            })
        };
        let undivided = || BagSpans {
            bags: self.clone(),
            spans: vec![(whole, places().collect())],
            open: Mutex::default(),
        };
        if filter.order == MessageOrder::Sent || self.has_runs() {
            return Ok(undivided());
        }
        let mut parts: Vec<(FilePart, (usize, usize))> = Vec::new();
        for place in places() {
            let file = &self.bags()[place.0].files()[place.1];
            if file.empty {
                continue;
            }
            let reader = file.open()?;
            let channels: Vec<ChannelIndex> = (0..)
                .map(ChannelIndex)
                .zip(&reader.outline().channels)
                .filter(|(_, channel)| filter.takes_channel(&channel.info.topic))
                .map(|(index, _)| index)
                .collect();
            if channels.is_empty() {
                continue;
            }
            let found = reader.parts(Some(&channels))?;
            if found.is_empty() {
                return Ok(undivided());
            }
            let wanted = found.into_iter().filter(|part| overlaps(part, whole));
            parts.extend(wanted.map(|part| (part, place)));
        }
        let spans = divided(whole, parts.iter().map(|(part, _)| *part).collect(), bytes);
        parts.sort_unstable_by_key(|(part, _)| part.times.0);
        let mut with_files: Vec<(Span, BTreeSet<(usize, usize)>)> =
            spans.into_iter().map(|span| (span, BTreeSet::new())).collect();
        let mut first = 0;
        for (part, place) in &parts {
            // Both are in the order of their beginnings.
            while first + 1 < with_files.len()
                && with_files[first + 1].0.0.is_some_and(|from| from <= part.times.0)
            {
                first += 1;
            }
            let touched = with_files[first..].iter_mut();
            for (_, files) in touched.take_while(|(span, _)| overlaps(part, *span)) {
                files.insert(*place);
            }
        }
        Ok(BagSpans {
            bags: self.clone(),
            spans: with_files,
            open: Mutex::default(),
        })
    }
}

/// Whether a part may have messages in a span.
fn overlaps(part: &FilePart, span: Span) -> bool {
    span.0.is_none_or(|from| part.times.1 >= from) && span.1.is_none_or(|until| part.times.0 <= until)
}

/// Divides a span between parts of files.
fn divided(whole: Span, mut parts: Vec<FilePart>, bytes: u64) -> Vec<Span> {
    parts.sort_unstable_by_key(|part| part.times.0);
    let mut spans = Vec::new();
    let mut begin = whole.0;
    let mut earliest = parts.first().map(|part| part.times.0);
    let (mut gathered, mut last) = (0_u64, None);
    for part in parts {
        let start = part.times.0;
        let is_seam = last.is_some_and(|last| start > last);
        let is_new = Some(start) > earliest.max(begin);
        let is_due = gathered >= bytes && is_seam || gathered >= bytes.saturating_mul(LATEST_SEAM);
        if is_new && is_due {
            spans.push((begin, Some(before(start, Duration::from_nanos(1)))));
            begin = Some(start);
            earliest = begin;
            gathered = 0;
        }
        gathered = gathered.saturating_add(part.bytes);
        last = last.max(Some(part.times.1));
    }
    spans.push((begin, whole.1));
    spans
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn part(start: i64, end: i64, bytes: u64) -> FilePart {
        let times = (Timestamp::from_nanos(start), Timestamp::from_nanos(end));
        FilePart { times, bytes }
    }

    #[test]
    fn spans_are_divided_between_parts_where_that_is_possible() {
        let nanos = |spans: Vec<Span>| -> Vec<(Option<i64>, Option<i64>)> {
            let nanos = |time: Option<Timestamp>| time.map(Timestamp::as_nanos);
            spans.into_iter().map(|(a, b)| (nanos(a), nanos(b))).collect()
        };
        let apart = (0..6)
            .map(|number| part(number * 10, number * 10 + 9, 5))
            .collect();
        let expected = [(None, Some(19)), (Some(20), Some(39)), (Some(40), None)];
        assert_eq!(nanos(divided((None, None), apart, 10)), expected);
        // Parts that overlap are divided late, and never within one time.
        let overlapping = (0..6).map(|number| part(number * 10, 1000, 5)).collect();
        let expected = [(None, Some(39)), (Some(40), None)];
        assert_eq!(nanos(divided((None, None), overlapping, 5)), expected);
        let at_once = (0..60).map(|_| part(7, 7, 5)).collect();
        assert_eq!(divided((None, None), at_once, 5).len(), 1);
    }

    proptest! {
        #[test]
        fn spans_follow_one_another_without_a_gap(
            parts in prop::collection::vec((0_i64..50, 0_i64..10, 0_u64..9), 0..40), bytes in 0_u64..20
        ) {
            let parts = parts.into_iter().map(|(start, length, bytes)| part(start, start + length, bytes)).collect();
            let spans = divided((None, None), parts, bytes);
            prop_assert_eq!((spans[0].0, spans[spans.len() - 1].1), (None, None));
            for pair in spans.windows(2) {
                prop_assert_eq!(pair[0].1.map(|end| end.as_nanos() + 1), pair[1].0.map(Timestamp::as_nanos));
                prop_assert!(pair[0].0 < pair[1].0);
            }
        }
    }
}
