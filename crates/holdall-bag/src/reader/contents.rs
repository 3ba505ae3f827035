//! Values that need all messages of a bag: payload bytes by topic, requests and responses by service.

use super::{
    bag::Bag,
    error::ReadError,
    message::{BagMessage, MessageFilter},
    set::BagSet,
};
use holdall_model::names::service_of_event_topic;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Requests and responses that are remembered, at least and half of the most, to count each once. Both ends of a service publish an event
/// for each, close in time. Twice as many take 20 MiB.
const REMEMBERED: usize = 1 << 17;

/// Requests and responses of a service, each counted once per client and sequence number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ServiceCounts {
    /// Number of distinct requests.
    pub requests: u64,
    /// Number of distinct responses.
    pub responses: u64,
}

/// Counts that require reading all messages of a bag.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BagContents {
    /// Payload bytes by topic.
    pub bytes_by_topic: BTreeMap<String, u64>,
    /// Requests and responses by service event topic.
    #[serde(rename = "calls_by_event_topic")]
    pub services: BTreeMap<String, ServiceCounts>,
}

impl BagContents {
    /// Reads all messages of a bag.
    ///
    /// # Errors
    /// The first read error.
    pub fn read(bag: &Bag) -> Result<Self, ReadError> {
        Self::read_up_to(bag, u64::MAX).map(Option::unwrap_or_default)
    }

    /// As [`Self::read`]; `None` for a bag with more payload bytes.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_up_to(bag: &Bag, bytes_max: u64) -> Result<Option<Self>, ReadError> {
        let (mut contents, mut seen, mut bytes) = (Self::default(), Seen::default(), 0);
        for message in BagSet::from(vec![bag.clone()]).messages(&MessageFilter::default()) {
            let message = message?;
            bytes += message.payload.len() as u64;
            if bytes > bytes_max {
                return Ok(None);
            }
            contents.add(&message, &mut seen);
        }
        Ok(Some(contents))
    }

    fn add(&mut self, message: &BagMessage, seen: &mut Seen) {
        let topic = &message.topic;
        *entry(&mut self.bytes_by_topic, &topic.name) += message.payload.len() as u64;
        if service_of_event_topic(&topic.name, &topic.type_name).is_none() {
            return;
        }
        let counts = entry(&mut self.services, &topic.name);
        let Some(event) = ServiceEvent::decode(&message.payload) else {
            return;
        };
        if seen.is_new(&topic.name, event) {
            match event.is_response {
                false => counts.requests += 1,
                true => counts.responses += 1,
            }
        }
    }
}

/// The entry of a topic; copies its name only the first time.
fn entry<'a, T: Default>(map: &'a mut BTreeMap<String, T>, name: &str) -> &'a mut T {
    if !map.contains_key(name) {
        map.insert(name.to_owned(), T::default());
    }
    map.get_mut(name)
        .expect("it was put in above where it was missing")
}

/// The first fields of a service event (`service_msgs/msg/ServiceEventInfo`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ServiceEvent {
    is_response: bool,
    client: [u8; 16],
    sequence: i64,
}

impl ServiceEvent {
    /// Reads the beginning of a serialized event; `None` for other bytes.
    fn decode(payload: &[u8]) -> Option<Self> {
        let (encapsulation, body) = payload.split_at_checked(4)?;
        let little_endian = encapsulation[1] & 1 == 1;
        // uint8 type, pad 3, int32 sec, uint32 nanosec, char[16] client; then int64 sequence, aligned to 8 in
        // the first version of CDR and to 4 in the second (encapsulations from 6 on).
        let sequence_at = if encapsulation[1] >= 6 { 28 } else { 32 };
        let sequence: [u8; 8] = body.get(sequence_at..sequence_at + 8)?.try_into().ok()?;
        Some(Self {
            // 0 and 1: request sent and received; 2 and 3: response sent and received.
            is_response: match body[0] {
                0 | 1 => false,
                2 | 3 => true,
                _ => return None,
            },
            client: body[12..28].try_into().ok()?,
            sequence: if little_endian {
                i64::from_le_bytes(sequence)
            } else {
                i64::from_be_bytes(sequence)
            },
        })
    }
}

/// The latest events that were counted, in bounded memory.
#[derive(Default)]
struct Seen {
    /// Numbered as `topics` numbers the event's topic.
    latest: HashSet<(usize, ServiceEvent)>,
    /// The events before `latest`.
    earlier: HashSet<(usize, ServiceEvent)>,
    topics: HashMap<String, usize>,
}

impl Seen {
    fn is_new(&mut self, topic: &str, event: ServiceEvent) -> bool {
        let known = self.topics.len();
        let number = match self.topics.get(topic) {
            Some(number) => *number,
            None => *self.topics.entry(topic.to_owned()).or_insert(known),
        };
        let event = (number, event);
        if self.earlier.contains(&event) || !self.latest.insert(event) {
            return false;
        }
        if self.latest.len() >= REMEMBERED {
            self.earlier = std::mem::take(&mut self.latest);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_model::{time::Timestamp, topic::TopicInfo};
    use std::sync::Arc;

    fn event(kind: u8, client: u8, sequence: i64) -> Vec<u8> {
        let mut payload = vec![0, 1, 0, 0, kind, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0];
        payload.extend([client; 16]);
        payload.extend([0; 4]);
        payload.extend(sequence.to_le_bytes());
        payload
    }

    fn message(payload: Vec<u8>) -> BagMessage {
        let topic = TopicInfo {
            name: "/add/_service_event".to_owned(),
            type_name: "example_interfaces/srv/AddTwoInts_Event".to_owned(),
            ..TopicInfo::default()
        };
        let time = Timestamp::default();
        BagMessage {
            topic: Arc::new(topic),
            stamp: time,
            log_time: time,
            publish_time: time,
            sequence: 0,
            payload: payload.into(),
        }
    }

    #[test]
    fn an_event_published_by_both_ends_counts_once() {
        let (mut contents, mut seen) = (BagContents::default(), Seen::default());
        for payload in [
            event(0, 1, 5),
            event(1, 1, 5),
            event(2, 1, 5),
            event(3, 1, 5),
            event(0, 2, 5),
            event(1, 1, 6),
        ] {
            contents.add(&message(payload), &mut seen);
        }
        let counts = contents.services["/add/_service_event"];
        assert_eq!(
            counts,
            ServiceCounts {
                requests: 3,
                responses: 1
            }
        );
        assert_eq!(contents.bytes_by_topic["/add/_service_event"], 6 * 44);
    }

    #[test]
    fn of_any_number_of_calls_each_counts_once_in_bounded_memory() {
        let (mut contents, mut seen) = (BagContents::default(), Seen::default());
        let calls = 5 * REMEMBERED as i64 / 2;
        for call in 0..calls {
            contents.add(&message(event(0, 1, call)), &mut seen);
            // The server's event comes a little later.
            if call >= 100 {
                contents.add(&message(event(1, 1, call - 100)), &mut seen);
            }
        }
        assert_eq!(
            contents.services["/add/_service_event"].requests,
            calls.unsigned_abs()
        );
        assert!(seen.latest.len() + seen.earlier.len() <= 2 * REMEMBERED);
    }

    #[test]
    fn bytes_that_are_not_an_event_are_counted_as_bytes_only() {
        let (mut contents, mut seen) = (BagContents::default(), Seen::default());
        for payload in [vec![], vec![0, 1, 0, 0, 0], event(9, 1, 1)] {
            contents.add(&message(payload), &mut seen);
        }
        assert_eq!(contents.services["/add/_service_event"], ServiceCounts::default());
    }

    #[test]
    fn both_versions_and_byte_orders_of_cdr_are_read() {
        let first = ServiceEvent::decode(&event(0, 1, 77)).expect("an event");
        assert_eq!(first.sequence, 77);
        let mut second = event(0, 1, 77);
        second[1] = 7;
        second.drain(32..36);
        assert_eq!(ServiceEvent::decode(&second), Some(first));
        let mut big = event(0, 1, 77);
        big[1] = 0;
        big[36..].reverse();
        assert_eq!(ServiceEvent::decode(&big), Some(first));
    }
}
