//! Places to cut the files of an output, by the index of its inputs' parts.

use holdall_model::time::Timestamp;
use std::time::Duration;

/// Most cuts by time made without reading messages: the larger of this number and the next one per chunk.
const CUTS_MAX: usize = 64;
const CUTS_PER_PART_MAX: usize = 2;

/// First and last log time of a file's messages; `None` for no bound.
pub(super) type Range = (Option<Timestamp>, Option<Timestamp>);

/// Times at which files are cut so that none spans more than `span`. A file begins with a part, or at the
/// previous cut; a gap between parts has no cut, whatever its length. `None` if too many cuts would be
/// within parts: then the messages decide.
pub(super) fn by_span(
    parts: &[(Timestamp, Timestamp, u64)],
    span: Duration,
    (start, end): Range,
) -> Option<Vec<Timestamp>> {
    let cuts_max = parts.len().saturating_mul(CUTS_PER_PART_MAX).max(CUTS_MAX);
    let (mut cuts, mut begin) = (Vec::new(), None);
    for (first, last, _) in parts {
        let last = end.map_or(*last, |end| end.min(*last));
        // The first file begins with its first message.
        let mut from: Timestamp = match begin {
            None => start.map_or(*first, |start| start.max(*first)),
            Some(begin) => begin,
        };
        // A part after the current file's span begins the next file.
        if first.saturating_since(from) > span {
            cuts.push(*first);
            from = *first;
        }
        while last.saturating_since(from) > span {
            // A file ends with the message exactly `span` after its first one.
            from = Timestamp::from_nanos(from.saturating_add(span).as_nanos().saturating_add(1));
            cuts.push(from);
            if cuts.len() > cuts_max {
                return None;
            }
        }
        begin = Some(from);
    }
    Some(cuts)
}

/// Times at which files are cut so that none is longer than `bytes_max`: chunks that span a cut count for
/// both files.
pub(super) fn by_size(parts: &[(Timestamp, Timestamp, u64)], bytes_max: u64) -> Vec<Timestamp> {
    // Indexes, definitions and summary use a part of the file.
    let bytes_max = bytes_max - bytes_max / 16;
    let (mut cuts, mut bytes, mut begin) = (Vec::new(), 0, 0);
    for (place, (first, _, length)) in parts.iter().enumerate() {
        let can_cut = parts.get(begin).is_some_and(|(start, ..)| start < first);
        if bytes + length > bytes_max && can_cut {
            cuts.push(*first);
            bytes = parts[begin..place]
                .iter()
                .filter(|(_, last, _)| last >= first)
                .map(|(.., length)| length)
                .sum();
            begin = place;
        }
        bytes += length;
    }
    cuts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(parts: &[(i64, i64)], span: u64) -> Option<Vec<i64>> {
        let time = Timestamp::from_nanos;
        let parts: Vec<_> = parts
            .iter()
            .map(|&(first, last)| (time(first), time(last), 100))
            .collect();
        let cuts = by_span(&parts, Duration::from_nanos(span), (None, None))?;
        Some(cuts.iter().map(|cut| cut.as_nanos()).collect())
    }

    #[test]
    fn files_are_cut_by_span_and_not_where_there_is_nothing() {
        assert_eq!(spans(&[(0, 9), (10, 19), (20, 29), (30, 39)], 19), Some(vec![20]));
        assert_eq!(spans(&[(0, 45)], 19), Some(vec![20, 40]));
        let day = 1_700_000_000_000_000_000;
        assert_eq!(spans(&[(0, 5), (day, day + 5)], 10), Some(vec![day]));
        assert_eq!(
            spans(&[(0, 25), (20, 24), (day, day + 25)], 10),
            Some(vec![11, 22, day, day + 11, day + 22])
        );
        let far = spans(&[(i64::MIN, i64::MIN + 1), (i64::MAX - 1, i64::MAX)], 10);
        assert_eq!(far, Some(vec![i64::MAX - 1]), "spans that overflow");
        assert_eq!(
            spans(&[(0, day)], 10),
            None,
            "only the messages know where the files begin"
        );
        assert_eq!(spans(&[(i64::MIN, i64::MAX)], u64::MAX), Some(vec![]));
        assert_eq!(spans(&[], 10), Some(vec![]));
    }

    #[test]
    fn files_are_cut_between_chunks_by_their_sizes() {
        let part = |first: i64, last: i64, bytes: u64| {
            (Timestamp::from_nanos(first), Timestamp::from_nanos(last), bytes)
        };
        let parts: Vec<_> = (0..10).map(|n| part(n * 10, n * 10 + 9, 100)).collect();
        let cuts = |max| -> Vec<i64> { by_size(&parts, max).iter().map(|cut| cut.as_nanos()).collect() };
        assert_eq!(cuts(330), [30, 60, 90]);
        assert_eq!(cuts(100_000), [] as [i64; 0]);
        let overlapping: Vec<_> = (0..10).map(|n| part(n * 10, n * 10 + 19, 100)).collect();
        let found: Vec<i64> = by_size(&overlapping, 330)
            .iter()
            .map(|cut| cut.as_nanos())
            .collect();
        assert_eq!(found, [30, 50, 70, 90], "a chunk on both sides counts on both");
    }
}
