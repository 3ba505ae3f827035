//! Messages that are away to get another form, and their topics: each is in the bag from its first message on, of the type that this one has.

use super::writer::Writer;
use crate::{cache::CacheEntry, write::waiting::HeldPayload};
use holdall_bag::writer::{BagWriter, WriteError};
use holdall_io::wait::Wait;
use holdall_model::{
    marker::Marker,
    qos::QosProfile,
    recoding::{
        self, RECODED_RECORD,
        live::{Given, LiveRecoder, LiveRecoding, Recoded},
    },
    topic::{MessageDefinition, TopicId, TopicInfo},
};
use std::{collections::BTreeMap, time::Duration};

/// Time between two accounts in a file: at first, and at last.
const NOTE_MIN: Duration = Duration::from_secs(1);
const NOTE_MAX: Duration = Duration::from_secs(64);

/// The last account that a file has.
#[derive(Default)]
struct Noted {
    file: Option<u32>,
    /// When the next one is due.
    next: Duration,
    interval: Duration,
    /// Messages that had come back.
    back: u64,
}

/// A topic whose messages are given away.
struct Topic {
    info: TopicInfo,
    definition: MessageDefinition,
    /// The types that it has in the bag: its own, and a new form's.
    has_own: bool,
    has_new: bool,
}

/// Nothing, unless messages get another form.
#[derive(Default)]
pub(super) struct Recoding {
    recoder: Option<Box<dyn LiveRecoder>>,
    topics: BTreeMap<TopicId, Topic>,
    noted: Noted,
}

impl Recoding {
    /// `max_loss_window`: messages come back in time for it where that is possible.
    pub fn start(recoding: &LiveRecoding, max_loss_window: Option<Duration>) -> Self {
        Self {
            recoder: Some(recoding.begin(max_loss_window)),
            ..Self::default()
        }
    }

    pub fn takes(&self, info: &TopicInfo) -> bool {
        self.recoder.as_ref().is_some_and(|recoder| recoder.takes(info))
    }

    pub fn add(&mut self, topic: TopicId, info: TopicInfo, definition: MessageDefinition) {
        let added = Topic {
            info,
            definition,
            has_own: false,
            has_new: false,
        };
        self.topics.insert(topic, added);
    }

    /// Adds what a publisher offers to its topic; false if none of its type is given away.
    pub fn add_offer(&mut self, topic: TopicId, type_name: &str, qos: QosProfile) -> bool {
        let topic = self.topics.get_mut(&topic);
        topic.is_some_and(|topic| topic.info.add_offer_of(type_name, qos))
    }

    /// Gives a topic its definition.
    pub fn define(&mut self, topic: TopicId, definition: &MessageDefinition) {
        if let Some(topic) = self.topics.get_mut(&topic) {
            topic.definition.clone_from(definition);
        }
    }

    /// Whether messages of a topic are given away.
    #[inline]
    pub fn has(&self, topic: TopicId) -> bool {
        !self.topics.is_empty() && self.topics.contains_key(&topic)
    }

    pub fn give(&mut self, entry: CacheEntry, payload: HeldPayload, received: Duration) {
        let (Some(recoder), Some(topic)) = (&mut self.recoder, self.topics.get(&entry.topic)) else {
            return;
        };
        let held_bytes = payload.held_bytes();
        let message = Given {
            entry,
            payload: payload.into_loan(),
            held_bytes,
            received,
        };
        recoder.give(&topic.info, message);
    }

    /// The next message that comes back; the bag has its topic then.
    pub fn take_back(&mut self, room_bytes: usize, wait: Wait, writer: &mut Writer) -> Option<Recoded> {
        let recoder = self.recoder.as_mut()?;
        let message = recoder.take_back(room_bytes, wait == Wait::UntilReady)?;
        let id = message.entry.topic;
        if let Some(topic) = self.topics.get_mut(&id) {
            match message.into {
                Some(into) if !writer.has_other_type(id, into) => {
                    topic.has_new = true;
                    let definition = recoder.definition(into);
                    let info = TopicInfo {
                        type_name: definition.type_name.clone(),
                        type_description_hash: definition.type_description_hash.clone(),
                        ..topic.info.clone()
                    };
                    writer.add_form(id, info, definition);
                }
                None => topic.add_own(id, writer),
                Some(_) => topic.has_new = true,
            }
        }
        Some(message)
    }

    /// The topic of the oldest message that is away, and when that was received.
    pub fn oldest(&self) -> Option<(&str, Duration)> {
        self.recoder.as_ref()?.oldest()
    }

    /// The markers since the last call.
    pub fn take_markers(&mut self) -> Vec<Marker> {
        let recoder = self.recoder.as_mut();
        recoder.map_or_else(Vec::new, |recoder| recoder.take_markers())
    }

    /// Puts the account into each file with its first messages, and less and less often after that: a killed recorder's bag has it.
    ///
    /// # Errors
    /// A failed disk or storage file.
    pub fn note(&mut self, bag: &mut BagWriter, now: Duration) -> Result<(), WriteError> {
        let Some(recoder) = &self.recoder else {
            return Ok(());
        };
        let (file, back) = (bag.file_number(), recoder.back());
        let is_new = file != self.noted.file;
        if back == 0 || file.is_none() || !is_new && (back == self.noted.back || now < self.noted.next) {
            return Ok(());
        }
        let interval = match is_new {
            true => NOTE_MIN,
            false => (2 * self.noted.interval).min(NOTE_MAX),
        };
        let list = recoder.account();
        if let Some(entry) = recoding::Recoding::list_to_custom_data(&list) {
            bag.write_record(RECODED_RECORD, &BTreeMap::from([entry]))?;
        }
        self.noted = Noted {
            file,
            next: now + interval,
            interval,
            back,
        };
        Ok(())
    }

    pub fn given(&self) -> u64 {
        self.recoder.as_ref().map_or(0, |recoder| recoder.given())
    }

    pub fn back(&self) -> u64 {
        self.recoder.as_ref().map_or(0, |recoder| recoder.back())
    }

    /// Puts topics without messages into the bag; returns the entry of `custom_data` about what was done.
    pub fn end(&mut self, writer: &mut Writer) -> Option<(String, String)> {
        for (id, topic) in &mut self.topics {
            if !topic.has_new {
                topic.add_own(*id, writer);
            }
        }
        recoding::Recoding::list_to_custom_data(&self.recoder.as_ref()?.account())
    }
}

impl Topic {
    fn add_own(&mut self, id: TopicId, writer: &mut Writer) {
        if !std::mem::replace(&mut self.has_own, true) {
            writer.add_topic(id, self.info.clone(), self.definition.clone());
        }
    }
}
