//! Messages of the workloads: bytes without a pattern, topics, stamps, and payloads lent in pieces as DDS
//! lends them.

use holdall_io::limits::fill_with_noise;
use holdall_model::{
    message::{Loan, MessageHeader, Payload},
    time::Timestamp,
    topic::{DefinitionEncoding, Gid, MessageDefinition, TopicInfo},
};
use holdall_storage::writer::ChannelInfo;
use std::{sync::Arc, time::Duration};

/// Topics of each workload; each message goes to the next one.
pub const TOPICS: u64 = 10;

/// From this length a transport lends payloads instead of having them copied at once.
const LOAN_BYTES_MIN: usize = 64 << 10;

/// Length of Cyclone's fragments by default.
const FRAGMENT_BYTES: usize = 1344;

/// Time between two messages.
pub const PERIOD: Duration = Duration::from_micros(10);

/// The messages of a run.
pub struct Messages {
    /// The same bytes in every message: the counts do not depend on them.
    bytes: Arc<[u8]>,
    start: Timestamp,
}

impl Messages {
    /// Messages of this length.
    pub fn new(message_bytes: usize, start: Timestamp) -> Self {
        let mut bytes = vec![0; message_bytes];
        fill_with_noise(&mut bytes, &mut 1);
        Self {
            bytes: bytes.into(),
            start,
        }
    }

    /// The bytes of each message.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// When message `number` is received.
    pub fn time(&self, number: u64) -> Timestamp {
        let nanos = u64::try_from(PERIOD.as_nanos()).unwrap_or(u64::MAX);
        self.start.saturating_add(Duration::from_nanos(number * nanos))
    }

    /// Message `number` as a transport's thread hands it over.
    pub fn offered(&self, number: u64) -> (MessageHeader, Payload<'_>) {
        let time = self.time(number);
        let mut gid = [0; 16];
        gid[..8].copy_from_slice(&(number % TOPICS).to_le_bytes());
        let header = MessageHeader {
            publisher: Some(Gid(gid)),
            sequence: Some(number / TOPICS + 1),
            publish_time: Some(time),
            log_time: time,
        };
        let payload = if self.bytes.len() >= LOAN_BYTES_MIN {
            Payload::Loaned(Box::new(Lent(Arc::clone(&self.bytes))))
        } else {
            Payload::Borrowed(&self.bytes)
        };
        (header, payload)
    }
}

/// A payload in a transport's receive buffers.
struct Lent(Arc<[u8]>);

impl Loan for Lent {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn pinned_bytes(&self) -> usize {
        self.0.len()
    }

    fn for_each_slice(&self, visit: &mut dyn FnMut(&[u8])) {
        self.0.chunks(FRAGMENT_BYTES).for_each(visit);
    }
}

/// The topics as channels of a bag.
pub fn channels() -> Vec<ChannelInfo> {
    let channel = |topic: u64| ChannelInfo {
        topic: TopicInfo {
            name: format!("/gate/topic_{topic}"),
            type_name: "holdall_bench/msg/Payload".to_owned(),
            serialization_format: "cdr".to_owned(),
            ..TopicInfo::default()
        },
        definition: MessageDefinition {
            type_name: "holdall_bench/msg/Payload".to_owned(),
            encoding: DefinitionEncoding::Ros2Msg,
            text: "uint8[] data\n".to_owned(),
            type_description_hash: String::new(),
        },
    };
    (0..TOPICS).map(channel).collect()
}
