//! Reads messages on a separate thread ahead of their time, up to a limit of messages and bytes.

use super::wake::Wake;
use bytes::Bytes;
use holdall_io::mutex::lock;
use holdall_model::time::Timestamp;
use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
};

/// A message in flight from the bag to its publisher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlayMessage {
    /// The stamp that orders and paces it.
    pub stamp: Timestamp,
    /// Which publication sends it.
    pub publication: usize,
    /// The serialized bytes.
    pub payload: Bytes,
    /// State from before the point where playback begins: due at once, and not one of the played messages.
    pub latched: bool,
}

/// What a source can deliver right now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Poll {
    /// The next message.
    Message(PlayMessage),
    /// Nothing yet; the source wakes the playback when there is.
    Pending,
    /// The range was played; the next message is from its beginning again.
    RoundEnd,
    /// No more messages, unless the source is asked to seek; with the first error of reading.
    End(Option<String>),
}

/// Where a playback takes its messages from, in the order of their stamps.
pub(super) trait Source: Send {
    /// Takes the next thing, without waiting.
    fn poll(&mut self) -> Poll;

    /// True if as much was read ahead as may be, or all there is.
    fn is_filled(&mut self) -> bool;

    /// Drops messages read ahead and continues with the first message at or after `to`.
    fn seek(&mut self, to: Timestamp);

    /// Drops messages read ahead and reads another range: from `start` to `until`, to the end for `None`.
    fn play(&mut self, start: Timestamp, until: Option<Timestamp>);
}

/// Messages from some stamp on, to the end of the range that is played; it may continue after an error.
pub(super) type MessageStream = Box<dyn Iterator<Item = Result<PlayMessage, String>> + Send>;

/// Opens a [`MessageStream`] from a stamp to another, to the end for `None`; called for each round and each seek.
pub(super) type OpenStream = Box<dyn FnMut(Timestamp, Option<Timestamp>) -> MessageStream + Send>;

/// How far to read ahead.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadAheadLimits {
    /// The most messages held, but at least one.
    pub messages_max: usize,
    /// Payload bytes held at most; one larger message is held when nothing else is.
    pub bytes_max: usize,
}

/// Failures in one round after which the rest is not read.
const FAILURES_MAX: u64 = 10_000;

enum Item {
    Message(PlayMessage),
    RoundEnd,
}

#[derive(Default)]
struct State {
    items: VecDeque<Item>,
    messages: usize,
    bytes: usize,
    /// The reading thread waits for room, or has read all.
    filled: bool,
    /// All was read.
    ended: bool,
    /// The first thing that could not be read.
    failure: Option<String>,
    /// Where the reading thread must continue.
    turn: Option<Turn>,
    /// The playback found nothing and wants to be woken.
    wanted: bool,
    closed: bool,
    /// The reading thread is gone although it was not closed.
    dead: bool,
}

struct Shared {
    state: Mutex<State>,
    room: Condvar,
    wake: Arc<Wake>,
    limits: ReadAheadLimits,
}

/// Why the reading thread must stop its current reading.
#[derive(Clone, Copy, Debug)]
enum Turn {
    Seek(Timestamp),
    /// Another range, from somewhere in it.
    Range {
        start: Timestamp,
        until: Option<Timestamp>,
        from: Timestamp,
    },
    Close,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change below leaves the state whole, so that the state left by a panicked thread can be used.
        lock(&self.state)
    }

    /// Holds the reading thread until there is room for `bytes` more.
    fn push(&self, item: Item, bytes: usize) -> Result<(), Turn> {
        let mut state = self.lock();
        let full = |state: &State| {
            state.messages > 0
                && (state.messages >= self.limits.messages_max
                    || state.bytes.saturating_add(bytes) > self.limits.bytes_max)
        };
        if full(&state) {
            // Once full, wait for a quarter to be free, so that not each message played wakes this thread.
            let roomy = |state: &State| {
                state.messages <= self.limits.messages_max / 4 * 3
                    && state.bytes <= self.limits.bytes_max / 4 * 3
            };
            state.filled = true;
            self.wake.notify();
            while state.turn.is_none()
                && !state.closed
                && (full(&state) || !(roomy(&state) || state.messages == 0))
            {
                state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
        Self::turn(&mut state)?;
        if matches!(item, Item::Message(_)) {
            state.messages += 1;
            state.bytes += bytes;
        }
        state.items.push_back(item);
        if std::mem::take(&mut state.wanted) {
            self.wake.notify();
        }
        Ok(())
    }

    /// Keeps the first thing that could not be read.
    fn fail(&self, reason: String) {
        self.lock().failure.get_or_insert(reason);
    }

    /// Reports that all was read, then waits for a seek.
    fn end(&self) -> Turn {
        let mut state = self.lock();
        if state.turn.is_none() {
            state.ended = true;
            state.filled = true;
            self.wake.notify();
        }
        loop {
            if let Err(turn) = Self::turn(&mut state) {
                return turn;
            }
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn turn(state: &mut State) -> Result<(), Turn> {
        if state.closed {
            return Err(Turn::Close);
        }
        state.turn.take().map_or(Ok(()), Err)
    }
}

/// Notifies the playback when the reading thread dies, so that it does not wait for ever.
struct DeathNotice(Arc<Shared>);

impl Drop for DeathNotice {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        if !state.closed {
            state.dead = true;
            state.filled = true;
            self.0.wake.notify();
        }
    }
}

/// A bounded queue that a separate thread keeps filled from a bag.
pub(super) struct ReadAhead {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl ReadAhead {
    /// Starts reading a range; with `repeat` it starts there again each time that all was read.
    pub fn start(
        open: OpenStream,
        range: (Timestamp, Option<Timestamp>),
        repeat: bool,
        limits: ReadAheadLimits,
        wake: Arc<Wake>,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::new(State::default()),
            room: Condvar::new(),
            wake,
            limits,
        });
        let notice = DeathNotice(Arc::clone(&shared));
        let thread = std::thread::Builder::new()
            .name("holdall-read".to_owned())
            .spawn(move || {
                read(&notice.0, open, range, repeat);
            })?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }
}

/// The body of the reading thread, until the queue is closed.
fn read(
    shared: &Shared,
    mut open: OpenStream,
    (mut start, mut until): (Timestamp, Option<Timestamp>),
    repeat: bool,
) {
    let mut from = start;
    loop {
        let turn = match read_round(shared, open(from, until)) {
            // An empty round from the very start would repeat for ever.
            Ok(messages) if repeat && (messages > 0 || from > start) => {
                match shared.push(Item::RoundEnd, 0) {
                    Ok(()) => Turn::Seek(start),
                    Err(turn) => turn,
                }
            }
            Ok(_) => shared.end(),
            Err(turn) => turn,
        };
        match turn {
            Turn::Seek(to) => from = to,
            Turn::Range {
                start: first,
                until: last,
                from: here,
            } => (start, until, from) = (first, last, here),
            Turn::Close => return,
        }
    }
}

/// Reads to the end of the range; returns the number of messages. Skips unreadable parts.
fn read_round(shared: &Shared, stream: MessageStream) -> Result<u64, Turn> {
    let (mut messages, mut failures) = (0, 0);
    for message in stream {
        match message {
            Ok(message) => {
                let bytes = message.payload.len();
                shared.push(Item::Message(message), bytes)?;
                messages += 1;
            }
            Err(reason) => {
                shared.fail(reason);
                failures += 1;
                if failures > FAILURES_MAX {
                    break;
                }
            }
        }
    }
    Ok(messages)
}

impl Source for ReadAhead {
    fn poll(&mut self) -> Poll {
        let mut state = self.shared.lock();
        match state.items.pop_front() {
            Some(Item::Message(message)) => {
                state.messages -= 1;
                state.bytes -= message.payload.len();
                let (messages_max, bytes_max) =
                    (self.shared.limits.messages_max, self.shared.limits.bytes_max);
                if state.messages <= messages_max / 4 * 3 && state.bytes <= bytes_max / 4 * 3
                    || state.messages == 0
                {
                    self.shared.room.notify_one();
                }
                Poll::Message(message)
            }
            Some(Item::RoundEnd) => Poll::RoundEnd,
            None if state.dead => Poll::End(Some(
                "the thread that reads the bag ended unexpectedly".to_owned(),
            )),
            None if state.ended => Poll::End(state.failure.clone()),
            None => {
                state.wanted = true;
                Poll::Pending
            }
        }
    }

    fn is_filled(&mut self) -> bool {
        self.shared.lock().filled
    }

    fn seek(&mut self, to: Timestamp) {
        self.turn(Turn::Seek(to));
    }

    fn play(&mut self, start: Timestamp, until: Option<Timestamp>) {
        self.turn(Turn::Range {
            start,
            until,
            from: start,
        });
    }
}

impl ReadAhead {
    /// Makes the reading thread drop its messages and turn.
    fn turn(&self, turn: Turn) {
        let mut state = self.shared.lock();
        // A range that the thread has not begun yet must not be forgotten.
        let turn = match (turn, state.turn) {
            (Turn::Seek(from), Some(Turn::Range { start, until, .. })) => Turn::Range { start, until, from },
            (turn, _) => turn,
        };
        let (closed, dead, failure) = (state.closed, state.dead, state.failure.take());
        *state = State {
            turn: Some(turn),
            filled: dead,
            closed,
            dead,
            failure,
            ..State::default()
        };
        self.shared.room.notify_one();
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.room.notify_one();
        if let Some(thread) = self.thread.take() {
            // `DeathNotice` has already reported a panic there.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        time::Duration,
    };

    fn message(nanos: i64, bytes: usize) -> PlayMessage {
        PlayMessage {
            stamp: Timestamp::from_nanos(nanos),
            publication: 0,
            payload: vec![0; bytes].into(),
            latched: false,
        }
    }

    /// Messages stamped 0, 1, 2 … of `bytes` each; counts how many were taken.
    fn stream_of(count: i64, bytes: usize, taken: &Arc<AtomicUsize>) -> OpenStream {
        let taken = Arc::clone(taken);
        Box::new(move |from, until| {
            let count = until.map_or(count, |until| count.min(until.as_nanos() + 1));
            let taken = Arc::clone(&taken);
            Box::new((from.as_nanos()..count).map(move |nanos| {
                taken.fetch_add(1, Ordering::SeqCst);
                Ok(message(nanos, bytes))
            }))
        })
    }

    fn start(
        open: OpenStream,
        repeat: bool,
        messages_max: usize,
        bytes_max: usize,
    ) -> (ReadAhead, Arc<Wake>) {
        let wake = Arc::new(Wake::default());
        let limits = ReadAheadLimits {
            messages_max,
            bytes_max,
        };
        let source = ReadAhead::start(
            open,
            (Timestamp::from_nanos(0), None),
            repeat,
            limits,
            Arc::clone(&wake),
        );
        (source.expect("start"), wake)
    }

    /// Waits for the next thing that is not `Pending`.
    fn next(source: &mut ReadAhead, wake: &Wake) -> Poll {
        loop {
            match source.poll() {
                Poll::Pending => assert!(wake.wait_for(Duration::from_secs(10)), "nothing came"),
                other => return other,
            }
        }
    }

    fn wait_filled(source: &mut ReadAhead, wake: &Wake) {
        while !source.is_filled() {
            assert!(wake.wait_for(Duration::from_secs(10)), "never filled");
        }
    }

    #[test]
    fn all_messages_come_in_order_then_the_end_stays() {
        let (mut source, wake) = start(stream_of(100, 1, &Arc::default()), false, 7, 1000);
        for nanos in 0..100 {
            assert_eq!(next(&mut source, &wake), Poll::Message(message(nanos, 1)));
        }
        assert_eq!(next(&mut source, &wake), Poll::End(None));
        assert_eq!(source.poll(), Poll::End(None));
    }

    #[test]
    fn reading_stops_at_the_bound_of_messages() {
        let taken = Arc::default();
        let (mut source, wake) = start(stream_of(100, 1, &taken), false, 8, 1000);
        wait_filled(&mut source, &wake);
        // Eight are held, the ninth waits in the thread's hand.
        assert_eq!(taken.load(Ordering::SeqCst), 9);
    }

    #[test]
    fn reading_stops_at_the_bound_of_bytes_yet_a_larger_message_passes() {
        let taken = Arc::default();
        let (mut source, wake) = start(stream_of(5, 50, &taken), false, 1000, 10);
        wait_filled(&mut source, &wake);
        assert_eq!(taken.load(Ordering::SeqCst), 2);
        for nanos in 0..5 {
            assert_eq!(next(&mut source, &wake), Poll::Message(message(nanos, 50)));
        }
        assert_eq!(next(&mut source, &wake), Poll::End(None));
    }

    #[test]
    fn repeating_marks_each_round_and_starts_again_without_being_asked() {
        let (mut source, wake) = start(stream_of(2, 1, &Arc::default()), true, 10, 1000);
        for _ in 0..3 {
            assert_eq!(next(&mut source, &wake), Poll::Message(message(0, 1)));
            assert_eq!(next(&mut source, &wake), Poll::Message(message(1, 1)));
            assert_eq!(next(&mut source, &wake), Poll::RoundEnd);
        }
    }

    #[test]
    fn repeating_nothing_ends() {
        let (mut source, wake) = start(stream_of(0, 1, &Arc::default()), true, 10, 1000);
        assert_eq!(next(&mut source, &wake), Poll::End(None));
    }

    #[test]
    fn seeking_drops_what_was_read_and_continues_from_there_even_after_the_end() {
        let (mut source, wake) = start(stream_of(50, 1, &Arc::default()), false, 10, 1000);
        wait_filled(&mut source, &wake);
        source.seek(Timestamp::from_nanos(48));
        assert_eq!(next(&mut source, &wake), Poll::Message(message(48, 1)));
        assert_eq!(next(&mut source, &wake), Poll::Message(message(49, 1)));
        assert_eq!(next(&mut source, &wake), Poll::End(None));
        source.seek(Timestamp::from_nanos(49));
        assert_eq!(next(&mut source, &wake), Poll::Message(message(49, 1)));
        source.play(Timestamp::from_nanos(7), Some(Timestamp::from_nanos(8)));
        for nanos in [7, 8] {
            assert_eq!(next(&mut source, &wake), Poll::Message(message(nanos, 1)));
        }
        assert_eq!(next(&mut source, &wake), Poll::End(None));
    }

    #[test]
    fn what_can_be_read_of_a_damaged_bag_is_played_and_the_damage_reported_at_the_end() {
        let open: OpenStream = Box::new(|_, _| {
            Box::new(
                [
                    Ok(message(0, 1)),
                    Err("torn".to_owned()),
                    Ok(message(1, 1)),
                    Err("again".to_owned()),
                ]
                .into_iter(),
            )
        });
        let (mut source, wake) = start(open, false, 10, 1000);
        assert_eq!(next(&mut source, &wake), Poll::Message(message(0, 1)));
        assert_eq!(next(&mut source, &wake), Poll::Message(message(1, 1)));
        assert_eq!(next(&mut source, &wake), Poll::End(Some("torn".to_owned())));
    }

    #[test]
    fn a_bag_that_only_fails_is_abandoned() {
        let open: OpenStream = Box::new(|_, _| Box::new(std::iter::repeat_with(|| Err("torn".to_owned()))));
        let (mut source, wake) = start(open, true, 10, 1000);
        assert_eq!(next(&mut source, &wake), Poll::End(Some("torn".to_owned())));
    }

    #[test]
    fn a_reader_that_panics_ends_the_playback_with_a_sentence() {
        let (mut source, wake) = start(Box::new(|_, _| panic!("on purpose")), false, 10, 1000);
        let Poll::End(Some(reason)) = next(&mut source, &wake) else {
            panic!("no end")
        };
        assert!(reason.contains("ended unexpectedly"), "{reason}");
    }

    #[test]
    fn dropping_it_ends_a_thread_that_waits_for_room() {
        let (mut source, wake) = start(stream_of(1000, 1, &Arc::default()), true, 2, 1000);
        wait_filled(&mut source, &wake);
        drop(source);
    }
}
