//! Merges streams that are each in time order, opening each one only when it is due.

use holdall_model::time::Timestamp;
use std::{cmp::Reverse, collections::BinaryHeap};

/// Items in time order, each with its stamp.
pub(crate) type Stream<T, E> = Box<dyn Iterator<Item = Result<(Timestamp, T), E>> + Send>;

/// Opens a stream when it is due.
pub(crate) type OpenStream<T, E> = Box<dyn FnOnce() -> Result<Stream<T, E>, E> + Send>;

/// One input of a [`Merge`].
enum Input<T, E> {
    /// Not open; the stamp that it is queued with is a lower bound of its items.
    Closed(OpenStream<T, E>),
    /// Open; `head` is next.
    Open { head: T, rest: Stream<T, E> },
    /// Exhausted.
    Done,
}

/// A stable k-way merge: by stamp, then by the order of the inputs.
///
/// It keeps one item of each open input and nothing of the others, so that a bag of a thousand split files
/// keeps one or two open. After an error an input continues if its stream does.
pub(crate) struct Merge<T, E> {
    inputs: Vec<Input<T, E>>,
    next: BinaryHeap<Reverse<(Timestamp, usize)>>,
}

impl<T: Send + 'static, E: Send + 'static> Merge<T, E> {
    /// Merges inputs, each with a lower bound of its stamps.
    pub fn new(inputs: impl IntoIterator<Item = (Timestamp, OpenStream<T, E>)>) -> Self {
        let (mut closed, mut next) = (Vec::new(), BinaryHeap::new());
        for (index, (earliest, open)) in inputs.into_iter().enumerate() {
            closed.push(Input::Closed(open));
            next.push(Reverse((earliest, index)));
        }
        Self { inputs: closed, next }
    }

    /// Takes the next item of `rest` as input `index`'s head; returns an error in its place, which is at
    /// `stamp`.
    fn advance(&mut self, index: usize, stamp: Timestamp, mut rest: Stream<T, E>) -> Option<E> {
        match rest.next() {
            Some(Ok((stamp, head))) => {
                self.inputs[index] = Input::Open { head, rest };
                self.next.push(Reverse((stamp, index)));
                None
            }
            Some(Err(error)) => {
                self.wait(index, stamp, Box::new(move || Ok(rest)));
                Some(error)
            }
            None => None,
        }
    }

    /// Queues input `index` until `stamp` is due.
    fn wait(&mut self, index: usize, stamp: Timestamp, open: OpenStream<T, E>) {
        self.inputs[index] = Input::Closed(open);
        self.next.push(Reverse((stamp, index)));
    }
}

impl<T: Send + 'static, E: Send + 'static> Iterator for Merge<T, E> {
    type Item = Result<(Timestamp, T), E>;

    fn next(&mut self) -> Option<Self::Item> {
        // Bounded: each pass without a return opens or ends an input.
        loop {
            let Reverse((stamp, index)) = self.next.pop()?;
            match std::mem::replace(&mut self.inputs[index], Input::Done) {
                Input::Closed(open) => match open() {
                    Ok(stream) => {
                        if let Some(error) = self.advance(index, stamp, stream) {
                            return Some(Err(error));
                        }
                    }
                    Err(error) => return Some(Err(error)),
                },
                Input::Open { head, rest } => {
                    // An error after the head must not drop the head: the error is returned by the next call.
                    if let Some(error) = self.advance(index, stamp, rest) {
                        let rest = match std::mem::replace(&mut self.inputs[index], Input::Done) {
                            Input::Closed(rest) => Some(rest),
                            Input::Open { .. } | Input::Done => None,
                        };
                        self.inputs[index] = Input::Closed(Box::new(move || Ok(error_then(error, rest))));
                    }
                    return Some(Ok((stamp, head)));
                }
                Input::Done => {}
            }
        }
    }
}

/// A stream that returns an error and continues with `rest`.
fn error_then<T: Send + 'static, E: Send + 'static>(
    error: E,
    rest: Option<OpenStream<T, E>>,
) -> Stream<T, E> {
    let rest = rest.into_iter().flat_map(|open| match open() {
        Ok(stream) => stream,
        Err(error) => Box::new(std::iter::once(Err(error))) as Stream<T, E>,
    });
    Box::new(std::iter::once(Err(error)).chain(rest))
}

/// Streams made from lists, for the tests of several files.
#[cfg(test)]
pub(crate) fn stream_of<T: Send + 'static, E: Send + 'static>(
    items: impl IntoIterator<Item = Result<(i64, T), E>>,
) -> OpenStream<T, E> {
    let items: Vec<_> = items.into_iter().collect();
    let stamped = |item: Result<(i64, T), E>| item.map(|(nanos, item)| (Timestamp::from_nanos(nanos), item));
    Box::new(move || Ok(Box::new(items.into_iter().map(stamped))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    type Items = Vec<Result<(i64, &'static str), &'static str>>;

    fn merged(inputs: Vec<(i64, Items)>) -> Vec<Result<(i64, &'static str), &'static str>> {
        let inputs = inputs
            .into_iter()
            .map(|(earliest, items)| (Timestamp::from_nanos(earliest), stream_of(items)));
        Merge::new(inputs)
            .map(|item| item.map(|(stamp, item)| (stamp.as_nanos(), item)))
            .collect()
    }

    #[test]
    fn equal_stamps_come_in_the_order_of_the_inputs() {
        let found = merged(vec![
            (1, vec![Ok((1, "a1")), Ok((5, "a5")), Ok((5, "a5again"))]),
            (0, vec![Ok((5, "b5")), Ok((6, "b6"))]),
        ]);
        assert_eq!(
            found,
            [
                Ok((1, "a1")),
                Ok((5, "a5")),
                Ok((5, "a5again")),
                Ok((5, "b5")),
                Ok((6, "b6"))
            ]
        );
    }

    #[test]
    fn a_failure_is_returned_in_its_place_and_all_inputs_continue() {
        let found = merged(vec![
            (1, vec![Ok((1, "a")), Err("torn"), Ok((2, "behind"))]),
            (1, vec![Ok((1, "b")), Ok((3, "c"))]),
        ]);
        let expected = [
            Ok((1, "a")),
            Err("torn"),
            Ok((1, "b")),
            Ok((2, "behind")),
            Ok((3, "c")),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn an_input_is_opened_when_it_is_due() {
        let opened = Arc::new(AtomicUsize::new(0));
        let input = |first: i64| {
            let opened = Arc::clone(&opened);
            let open: OpenStream<i64, ()> = Box::new(move || {
                opened.fetch_add(1, Ordering::SeqCst);
                stream_of([Ok((first, first)), Ok((first + 9, first))])()
            });
            (Timestamp::from_nanos(first), open)
        };
        let mut merge = Merge::new([input(10), input(20), input(30)]);
        assert_eq!(opened.load(Ordering::SeqCst), 0);
        assert_eq!(merge.next(), Some(Ok((Timestamp::from_nanos(10), 10))));
        assert_eq!(merge.next(), Some(Ok((Timestamp::from_nanos(19), 10))));
        assert_eq!(opened.load(Ordering::SeqCst), 1);
        assert_eq!(merge.next(), Some(Ok((Timestamp::from_nanos(20), 20))));
        assert_eq!(opened.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn a_stamp_below_the_lower_bound_is_still_returned() {
        let found = merged(vec![
            (0, vec![Ok((3, "a")), Ok((8, "b"))]),
            (5, vec![Ok((2, "early"))]),
        ]);
        assert_eq!(found, [Ok((3, "a")), Ok((2, "early")), Ok((8, "b"))]);
    }

    proptest! {
        #[test]
        fn merging_sorted_inputs_sorts_all(mut inputs in prop::collection::vec(prop::collection::vec(0_i64..50, 0..20), 0..6)) {
            let mut expected: Vec<(i64, usize)> = Vec::new();
            let mut streams: Vec<(Timestamp, OpenStream<usize, ()>)> = Vec::new();
            for (index, input) in inputs.iter_mut().enumerate() {
                input.sort_unstable();
                expected.extend(input.iter().map(|&stamp| (stamp, index)));
                let first = Timestamp::from_nanos(input.first().copied().unwrap_or(0));
                streams.push((first, stream_of(input.iter().map(|&stamp| Ok((stamp, index))).collect::<Vec<_>>())));
            }
            expected.sort();
            let found: Vec<_> =
                Merge::new(streams).map(|item| item.expect("no errors")).map(|(s, i)| (s.as_nanos(), i)).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
