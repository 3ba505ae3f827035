//! Finds a message of a topic: at a time, the next, the one before, the next that fulfils a condition. Only the chunks that are needed are read.

use holdall_bag::{
    decode::Fields,
    reader::{BagMessage, BagSet, MessageFilter, ReadError},
};
use holdall_io::clock::{Clock, SystemClock};
use holdall_model::{dynamic::expression::Predicate, time::Timestamp};
use std::{sync::Arc, time::Duration};

/// Messages of a span that are read to find the last one; of more, the time is halved.
const READ_MAX: usize = 200;

/// Bounds of the first span that is searched backwards, which is the mean time between two messages of the topic, and by how much each is longer than
/// the one after it: an index leads to the chunks, so that a span without messages costs next to nothing.
const FIRST_SPAN: [Duration; 2] = [Duration::from_millis(1), Duration::from_secs(10)];
const GROWTH: u32 = 3;

/// Where a message of a topic is: its log time, and its number among those of the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Log time.
    pub time: Timestamp,
    /// From 0.
    pub number: usize,
}

/// Which message is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The last one until this time; the first one where none is earlier.
    At(Timestamp),
    /// This one.
    This(Place),
    /// The one after it.
    Next(Place),
    /// The one before it.
    Previous(Place),
}

/// How long a search for a message that fulfils a condition may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget(pub Duration);

/// The result of a search.
#[derive(Clone, Debug)]
pub enum Found {
    /// The message.
    Message(Place, BagMessage),
    /// None: the end of the topic.
    Nothing,
    /// None within the budget; the search continues from here.
    Until(Place),
}

struct Search<'a> {
    bags: &'a BagSet,
    filter: MessageFilter,
    condition: Option<(&'a Fields, &'a Predicate)>,
    deadline: Duration,
}

/// Finds a message of a topic. With a condition, only messages that fulfil it count; those that cannot be decoded do not.
///
/// # Errors
/// A file that cannot be read, where no message outside of the damage is found.
///
/// ```
/// use holdall::{BagSet, Timestamp, look::{Budget, Found, Place, Step, find}};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("lab");
/// # let mut writer = holdall::Writer::create(&path)?;
/// # let topic = writer.add_topic("/odom", "std_msgs/msg/UInt8")?;
/// # for at in 0..100 { writer.write(topic, Timestamp::from_nanos(at * 1_000_000), &[0, 1, 0, 0, at as u8])?; }
/// # writer.close()?;
/// let bags = BagSet::open(&[path])?;
/// let budget = Budget(std::time::Duration::from_secs(2));
/// let at = Step::At(Timestamp::from_nanos(50_400_000));
/// let Found::Message(place, message) = find(&bags, "/odom", at, None, budget)? else { panic!() };
/// assert_eq!((place.time.as_nanos(), message.payload[4]), (50_000_000, 50));
/// let Found::Message(before, _) = find(&bags, "/odom", Step::Previous(place), None, budget)? else { panic!() };
/// assert_eq!(before.time.as_nanos(), 49_000_000);
/// # Ok(())
/// # }
/// ```
pub fn find(
    bags: &BagSet,
    topic: &str,
    step: Step,
    condition: Option<(&Fields, &Predicate)>,
    budget: Budget,
) -> Result<Found, ReadError> {
    let search = Search {
        bags,
        filter: MessageFilter {
            topics: Some(Arc::new([topic.to_owned()].into())),
            ..MessageFilter::default()
        },
        condition,
        deadline: SystemClock.monotonic() + budget.0,
    };
    match step {
        Step::This(place) => search.forwards(place, true),
        Step::Next(place) => search.forwards(place, false),
        Step::Previous(place) => search.backwards(place),
        Step::At(time) => {
            // All with this time come before the next nanosecond.
            let after = time.saturating_add(Duration::from_nanos(1));
            let found = search.backwards(Place {
                time: after,
                number: 0,
            })?;
            match found {
                Found::Nothing => search.forwards(Place { time, number: 0 }, true),
                found => Ok(found),
            }
        }
    }
}

impl Search<'_> {
    fn is_over(&self) -> bool {
        SystemClock.monotonic() > self.deadline
    }

    fn fulfils(&self, message: &BagMessage) -> bool {
        self.condition.is_none_or(|(fields, predicate)| {
            let payload = fields.payload(&message.payload);
            payload.is_ok_and(|payload| predicate.matches(&payload).unwrap_or(false))
        })
    }

    /// The messages from one time to another, each with its place. Damage is passed over while other messages are found.
    fn between(
        &self,
        from: Option<Timestamp>,
        until: Option<Timestamp>,
    ) -> impl Iterator<Item = Result<(Place, BagMessage), ReadError>> + use<> {
        let filter = MessageFilter {
            from,
            until,
            ..self.filter.clone()
        };
        let mut last: Option<Place> = None;
        self.bags.messages(&filter).map(move |message| {
            let message = message?;
            let number = match last {
                Some(last) if last.time == message.log_time => last.number + 1,
                _ => 0,
            };
            let place = Place {
                time: message.log_time,
                number,
            };
            last = Some(place);
            Ok((place, message))
        })
    }

    fn forwards(&self, from: Place, is_included: bool) -> Result<Found, ReadError> {
        let mut failed = None;
        for message in self.between(Some(from.time), None) {
            let (place, message) = match message {
                Ok(found) => found,
                Err(error) => {
                    failed.get_or_insert(error);
                    continue;
                }
            };
            if place < from || (place == from && !is_included) {
                continue;
            }
            if self.fulfils(&message) {
                return Ok(Found::Message(place, message));
            }
            if self.is_over() {
                return Ok(Found::Until(place));
            }
        }
        failed.map_or(Ok(Found::Nothing), Err)
    }

    /// The mean time between two messages of the topic.
    fn period(&self, first: Timestamp, last: Timestamp) -> Duration {
        let topics = self.bags.bags().iter();
        let topics = topics.flat_map(|bag| &bag.metadata().topics_with_message_count);
        let of_topic = topics.filter(|topic| self.filter.takes(&topic.topic_metadata.name));
        let count: u64 = of_topic.map(|topic| topic.message_count).sum();
        let mean = last.saturating_since(first) / u32::try_from(count.max(1)).unwrap_or(u32::MAX);
        mean.clamp(FIRST_SPAN[0], FIRST_SPAN[1])
    }

    /// The last message from a known one on, before a time and a place: many may be between them, so the time between is halved until few are.
    fn last_of(
        &self,
        mut place: Place,
        mut message: BagMessage,
        end: Timestamp,
        below: Option<Place>,
    ) -> (Place, BagMessage) {
        let is_before = |place: Place| below.is_none_or(|below| place < below);
        let (mut low, mut high) = (place.time, end);
        while high.saturating_since(low) > Duration::from_nanos(1) {
            let middle = low.saturating_add(high.saturating_since(low) / 2);
            let next = self.between(Some(middle), Some(high)).find_map(Result::ok);
            match next.filter(|(next, _)| is_before(*next)) {
                Some(later) => {
                    (place, message) = later;
                    // It is the first one after the middle.
                    low = place.time;
                }
                None => high = middle,
            }
        }
        // All of one time, in the order of the bag.
        for found in self.between(Some(place.time), Some(high)).filter_map(Result::ok) {
            if !is_before(found.0) {
                break;
            }
            (place, message) = found;
        }
        (place, message)
    }

    fn backwards(&self, from: Place) -> Result<Found, ReadError> {
        let Some((first, last)) = self.bags.log_times() else {
            return Ok(Found::Nothing);
        };
        let (mut end, mut span, mut failed) = (from.time, self.period(first, last), None);
        let past = last.saturating_add(Duration::from_nanos(1));
        let mut below = Some(from);
        if end > past {
            (end, below) = (past, None);
        }
        // Bounded: each span is longer than the one after it, until the beginning of the bag.
        loop {
            let nanos = i64::try_from(span.as_nanos()).unwrap_or(i64::MAX);
            let start = Timestamp::from_nanos(end.as_nanos().saturating_sub(nanos));
            let (mut latest, mut count) = (None, 0);
            for message in self.between(Some(start), Some(end)) {
                match message {
                    Ok((place, _)) if below.is_some_and(|below| place >= below) => break,
                    Ok((place, message)) => {
                        count += 1;
                        if self.fulfils(&message) {
                            latest = Some((place, message));
                        }
                    }
                    Err(error) => _ = failed.get_or_insert(error),
                }
                if count >= READ_MAX && self.condition.is_none() {
                    break;
                }
            }
            if let Some((place, message)) = latest {
                if count < READ_MAX || self.condition.is_some() {
                    return Ok(Found::Message(place, message));
                }
                // The last one is later, somewhere before the end.
                let (place, message) = self.last_of(place, message, end, below);
                return Ok(Found::Message(place, message));
            }
            if start < first {
                return failed.map_or(Ok(Found::Nothing), Err);
            }
            let reached = Place {
                time: start,
                number: 0,
            };
            if self.condition.is_some() && self.is_over() {
                return Ok(Found::Until(reached));
            }
            (end, below) = (start, Some(reached));
            // With a condition a span is read whole: a longer one has many messages only after an empty one.
            if self.condition.is_none() || count == 0 || span < Duration::from_secs(1) {
                span = span.saturating_mul(GROWTH);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_bag::decode::Decoders;
    use holdall_bag::writer::Writer;

    const BUDGET: Budget = Budget(Duration::from_secs(60));

    #[test]
    fn the_last_message_of_a_topic_that_ended_early_is_found_without_reading_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lab");
        let mut writer = Writer::create(&path).unwrap();
        let topic = writer.add_topic("/a", "std_msgs/msg/UInt32").unwrap();
        let other = writer.add_topic("/b", "std_msgs/msg/UInt32").unwrap();
        let at = |nanos: i64| Timestamp::from_nanos(1_700_000_000_000_000_000 + nanos);
        // 5000 messages in 50 s, the last 300 at one time; the bag is 1000 s long.
        for number in 0..5000_u32 {
            let time = at(i64::from(number.min(4700)) * 10_000_000);
            let value = number.to_le_bytes();
            let payload = [&[0, 1, 0, 0], &value[..]].concat();
            writer.write(topic, time, &payload).unwrap();
        }
        writer
            .write(other, at(1_000_000_000_000), &[0, 1, 0, 0, 0, 0, 0, 0])
            .unwrap();
        writer.close().unwrap();
        let bags = BagSet::open(&[path]).unwrap();
        let value = |step| match find(&bags, "/a", step, None, BUDGET).unwrap() {
            Found::Message(place, message) => (
                place,
                u32::from_le_bytes(message.payload[4..8].try_into().unwrap()),
            ),
            _ => panic!("nothing was found"),
        };
        let (last, number) = value(Step::At(at(900_000_000_000)));
        assert_eq!((number, last.number), (4999, 299));
        assert_eq!(value(Step::Previous(last)).1, 4998);
        assert_eq!(value(Step::At(at(20_005_000_000))).1, 2000);
    }

    #[test]
    fn every_message_is_reached_forwards_and_backwards() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lab");
        let mut writer = Writer::create(&path).unwrap();
        let topic = writer.add_topic("/a", "std_msgs/msg/UInt8").unwrap();
        let other = writer.add_topic("/b", "std_msgs/msg/UInt8").unwrap();
        // Some have the same time, and there is a long pause.
        let times = [0, 5, 5, 5, 7, 1_000_000_000, 90_000_000_000_i64, 90_000_000_000];
        for (value, time) in (0..).zip(times) {
            let time = Timestamp::from_nanos(1_700_000_000_000_000_000 + time);
            writer.write(other, time, &[0, 1, 0, 0, 99]).unwrap();
            writer.write(topic, time, &[0, 1, 0, 0, value]).unwrap();
        }
        writer.close().unwrap();
        let bags = BagSet::open(&[path]).unwrap();
        let get = |step, condition| find(&bags, "/a", step, condition, BUDGET).unwrap();
        let value = |found| match found {
            Found::Message(place, message) => Some((place, message.payload[4])),
            _ => None,
        };
        let at = |nanos: i64| Step::At(Timestamp::from_nanos(1_700_000_000_000_000_000 + nanos));
        assert_eq!(value(get(at(-1_000), None)).unwrap().1, 0);
        assert_eq!(value(get(at(6), None)).unwrap().1, 3);
        assert_eq!(value(get(at(i64::from(u32::MAX) * 100), None)).unwrap().1, 7);
        let mut forwards = vec![value(get(at(0), None)).unwrap()];
        while let Some(next) = value(get(Step::Next(forwards[forwards.len() - 1].0), None)) {
            forwards.push(next);
        }
        let values: Vec<u8> = forwards.iter().map(|found| found.1).collect();
        assert_eq!(values, [0, 1, 2, 3, 4, 5, 6, 7]);
        let mut backwards = vec![forwards[7]];
        while let Some(next) = value(get(Step::Previous(backwards[backwards.len() - 1].0), None)) {
            backwards.push(next);
        }
        backwards.reverse();
        assert_eq!(backwards, forwards);
        let topics = bags.topics();
        let fields = Decoders::new(bags.clone())
            .find(&topics[0])
            .unwrap()
            .fields()
            .unwrap();
        let predicate = Predicate::compile(Arc::clone(fields.plan()), "data == 2 || data == 6").unwrap();
        let condition = Some((&fields, &predicate));
        assert_eq!(value(get(Step::Next(forwards[2].0), condition)).unwrap().1, 6);
        assert_eq!(value(get(Step::Previous(forwards[6].0), condition)).unwrap().1, 2);
        assert!(matches!(
            get(Step::Next(forwards[6].0), condition),
            Found::Nothing
        ));
    }
}
