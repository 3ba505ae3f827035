//! Delivery of a topic to its viewers: each message once, and latched ones also to those that come later.

use super::outbox::{Message, Outbox};
use holdall_model::{
    message::{MessageHeader, Payload},
    topic::Gid,
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

/// Messages of a latched topic that is played which are kept for later viewers, and their bytes.
const KEPT_MAX: usize = 64;
const KEPT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A viewer's subscription.
struct Taker {
    subscription: u32,
    outbox: Arc<Outbox>,
    /// The newest subscription to the publishers when it came: that one has brought latched messages already.
    joined: u64,
    /// The last message of each latched publisher that it got.
    seen: BTreeMap<Gid, u64>,
}

/// The viewers of a topic.
///
/// What is latched comes from live publishers themselves: each viewer that comes later is a reason to subscribe anew, and the numbers of
/// messages keep what the others have got already from them. A playback cannot be asked again, so that its messages are kept.
#[derive(Default)]
pub(super) struct Feed {
    takers: Vec<Taker>,
    /// The number of the newest subscription to live publishers.
    newest: u64,
    /// A live publisher is latched.
    is_latched: bool,
    /// How many messages a played publisher would keep for later subscriptions.
    depth: usize,
    kept: VecDeque<Message>,
}

impl Feed {
    /// The viewers of a played topic, whose publisher keeps `depth` messages for later ones.
    pub fn played(depth: usize) -> Self {
        Self {
            depth: depth.min(KEPT_MAX),
            ..Self::default()
        }
    }

    /// Viewers that take it.
    pub fn takers(&self) -> usize {
        self.takers.len()
    }

    /// A live publisher keeps messages for later subscriptions.
    pub fn latch(&mut self) {
        self.is_latched = true;
    }

    /// A live publisher is gone.
    pub fn forget_publisher(&mut self, gid: Gid) {
        for taker in &mut self.takers {
            taker.seen.remove(&gid);
        }
    }

    /// Whether a viewer waits for latched messages.
    pub fn is_awaiting(&self) -> bool {
        self.is_latched && self.takers.iter().any(|taker| taker.joined == self.newest)
    }

    /// The number of the next subscription to live publishers.
    pub fn begin(&mut self) -> u64 {
        self.newest += 1;
        self.newest
    }

    /// Offers a message that a subscription to live publishers has received; never waits.
    pub fn offer(&mut self, subscription: u64, header: &MessageHeader, payload: Payload<'_>) {
        if self.takers.is_empty() {
            return;
        }
        let log_time = u64::try_from(header.log_time.as_nanos()).unwrap_or(0);
        let message = Message::new(log_time, payload);
        let is_latched = self.is_latched;
        for taker in &mut self.takers {
            if !is_latched || taker.is_new(subscription, header) {
                taker.outbox.offer(taker.subscription, &message);
            }
        }
    }

    /// Offers a message that is played; never waits.
    pub fn play(&mut self, log_time: u64, payload: Payload<'_>) {
        if self.takers.is_empty() && self.depth == 0 {
            return;
        }
        let mut message = Message::new(log_time, payload);
        if self.depth > 0 {
            message = message.into_owned();
        }
        for taker in &self.takers {
            taker.outbox.offer(taker.subscription, &message);
        }
        if self.depth > 0 {
            self.keep(message);
        }
    }

    /// Keeps a message as its publisher does. Kept messages with a later time were played before a jump back; an identical one is from another round.
    fn keep(&mut self, message: Message) {
        self.kept
            .retain(|kept| kept.log_time() <= message.log_time() && !kept.is_same(&message));
        self.kept.push_back(message);
        let bytes = |kept: &VecDeque<Message>| kept.iter().map(Message::len).sum::<usize>();
        while self.kept.len() > self.depth || self.kept.len() > 1 && bytes(&self.kept) > KEPT_BYTES_MAX {
            self.kept.pop_front();
        }
    }

    /// Adds a viewer's subscription.
    pub fn subscribe(&mut self, subscription: u32, outbox: &Arc<Outbox>) {
        // Of large ones a queue keeps the newest anyway.
        for message in &self.kept {
            outbox.offer(subscription, message);
        }
        self.takers.push(Taker {
            subscription,
            outbox: Arc::clone(outbox),
            joined: self.newest,
            seen: BTreeMap::new(),
        });
    }

    /// Removes a viewer's subscription.
    pub fn unsubscribe(&mut self, subscription: u32, outbox: &Arc<Outbox>) {
        self.takers
            .retain(|taker| taker.subscription != subscription || !Arc::ptr_eq(&taker.outbox, outbox));
    }

    /// Drops messages kept for later viewers: the playback has jumped.
    pub fn forget(&mut self) {
        self.kept.clear();
    }
}

impl Taker {
    /// Whether a message that this subscription brings is one that the viewer has not got.
    fn is_new(&mut self, subscription: u64, header: &MessageHeader) -> bool {
        if subscription <= self.joined {
            // The next subscription brings it, after latched ones.
            return false;
        }
        let (Some(publisher), Some(sequence)) = (header.publisher, header.sequence) else {
            return true;
        };
        let last = self.seen.insert(publisher, sequence);
        match last.filter(|last| *last >= sequence) {
            None => true,
            Some(last) => {
                self.seen.insert(publisher, last);
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::outbox::Taken, *};
    use holdall_model::time::Timestamp;
    use std::time::Duration;

    fn header(publisher: u8, sequence: u64) -> MessageHeader {
        MessageHeader {
            publisher: Some(Gid([publisher; 16])),
            sequence: Some(sequence),
            publish_time: None,
            log_time: Timestamp::from_nanos(1),
        }
    }

    fn viewer(feed: &mut Feed) -> Arc<Outbox> {
        let outbox = Arc::<Outbox>::default();
        feed.subscribe(1, &outbox);
        outbox
    }

    /// Messages of one byte that came to a viewer since the last look.
    fn got(outbox: &Outbox) -> usize {
        // Head of the frame, head of the message, payload.
        const FRAME_BYTES: usize = 2 + 13 + 1;
        let mut bytes = 0;
        let mut frames = Vec::new();
        while let Taken::Frames { .. } = outbox.take(&mut frames, Duration::ZERO) {
            bytes += frames.len();
        }
        bytes / FRAME_BYTES
    }

    fn bring(feed: &mut Feed, subscription: u64, messages: &[(u8, u64)]) {
        for (publisher, sequence) in messages {
            feed.offer(
                subscription,
                &header(*publisher, *sequence),
                Payload::Borrowed(b"x"),
            );
        }
    }

    #[test]
    fn each_viewer_gets_what_is_latched_once() {
        let mut feed = Feed::default();
        feed.latch();
        let one = viewer(&mut feed);
        assert!(feed.is_awaiting());
        let first = feed.begin();
        assert!(!feed.is_awaiting());
        bring(&mut feed, first, &[(1, 4), (1, 5), (2, 1)]);
        assert_eq!(got(&one), 3);
        let two = viewer(&mut feed);
        assert!(feed.is_awaiting());
        // Messages that the first subscription still brings come over the second, too.
        bring(&mut feed, first, &[(1, 6)]);
        let second = feed.begin();
        bring(&mut feed, second, &[(1, 5), (1, 6), (2, 1)]);
        assert_eq!((got(&one), got(&two)), (1, 3));
        bring(&mut feed, second, &[(1, 7)]);
        assert_eq!((got(&one), got(&two)), (1, 1));
    }

    #[test]
    fn a_publisher_that_began_again_is_another_one() {
        let mut feed = Feed::default();
        feed.latch();
        let one = viewer(&mut feed);
        let first = feed.begin();
        bring(&mut feed, first, &[(1, 9), (3, 1)]);
        feed.forget_publisher(Gid([1; 16]));
        bring(&mut feed, first, &[(1, 1)]);
        assert_eq!(got(&one), 3);
    }

    #[test]
    fn what_is_not_latched_comes_as_it_is() {
        let mut feed = Feed::default();
        let one = viewer(&mut feed);
        let first = feed.begin();
        let two = viewer(&mut feed);
        assert!(!feed.is_awaiting());
        bring(&mut feed, first, &[(1, 2), (1, 1)]);
        assert_eq!((got(&one), got(&two)), (2, 2));
    }

    #[test]
    fn a_playback_keeps_as_much_as_its_publisher_and_no_round_twice() {
        let mut feed = Feed::played(2);
        for _ in 0..5 {
            for (time, text) in [(10, b"a"), (20, b"b"), (30, b"c")] {
                feed.play(time, Payload::Borrowed(text));
            }
        }
        assert_eq!(got(&viewer(&mut feed)), 2);
        // A jump back: later messages have not been played yet.
        feed.play(10, Payload::Borrowed(b"a"));
        assert_eq!(got(&viewer(&mut feed)), 1);
        let mut loose = Feed::played(0);
        loose.play(10, Payload::Borrowed(b"a"));
        assert_eq!(got(&viewer(&mut loose)), 0);
        let mut deep = Feed::played(usize::MAX);
        for _ in 0..3 {
            deep.play(10, Payload::Borrowed(b"m"));
        }
        assert_eq!(got(&viewer(&mut deep)), 1);
    }
}
