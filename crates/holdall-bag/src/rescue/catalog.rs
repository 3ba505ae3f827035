//! The log of a killed recorder: its topics, their definitions, publishers and losses.

use super::{Event, KIND_LOG};
use holdall_io::survivor::{Survivor, SurvivorError, directory_identity};
use holdall_model::{
    loss::ledger::{AFTER_ARRIVAL, AccountChange, Loss},
    time::Timestamp,
    topic::{MessageDefinition, PublisherInfo, TopicId, TopicInfo},
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// A publisher of the log.
#[derive(Clone, Debug, Default)]
pub(super) struct Publisher {
    pub gid: Option<String>,
    pub node: Option<String>,
    pub host: Option<String>,
    pub transport: Option<String>,
    /// Where it is not its topic's.
    pub type_name: Option<String>,
    /// Its last sign of life, if it went silent without a farewell.
    pub silent_since: Option<Timestamp>,
    /// The lowest sequence number that has come from it, if that shows which numbers its account covers.
    pub first: Option<u64>,
    /// Messages counted as missing, and those of them that came later, in the order in which they were logged.
    pub losses: Vec<Loss>,
}

impl Publisher {
    /// The identity by which bags distinguish publishers.
    pub fn info(&self) -> Option<PublisherInfo> {
        Some(PublisherInfo {
            gid: self.gid.clone()?,
            node: self.node.clone(),
            host: self.host.clone(),
            transport: self.transport.clone(),
        })
    }
}

/// A topic of the log.
#[derive(Clone, Debug)]
pub(super) struct Topic {
    pub info: TopicInfo,
    pub definition: MessageDefinition,
    /// The topic of each further type that publishers have.
    pub other_types: Vec<(TopicInfo, MessageDefinition)>,
    pub loss_unknown: bool,
    pub expired: u64,
    /// All that ever were.
    pub publishers: Vec<Publisher>,
    /// Who has a number now: place in `publishers`.
    numbers: BTreeMap<u32, usize>,
}

impl Topic {
    /// The publisher that has this number.
    pub fn publisher(&self, number: u32) -> Option<usize> {
        self.numbers.get(&number).copied()
    }

    /// Description and definition of the type that a publisher sends.
    pub fn described(&self, publisher: Option<usize>) -> (&TopicInfo, &MessageDefinition) {
        let other = publisher
            .and_then(|place| self.publishers.get(place)?.type_name.as_deref())
            .and_then(|type_name| {
                self.other_types
                    .iter()
                    .find(|(info, _)| info.type_name == type_name)
            });
        other.map_or((&self.info, &self.definition), |(info, definition)| {
            (info, definition)
        })
    }

    fn define(&mut self, definition: MessageDefinition) {
        let type_name = &definition.type_name;
        let other = self
            .other_types
            .iter_mut()
            .find(|(info, _)| info.type_name == *type_name);
        match other {
            Some((_, known)) => *known = definition,
            None => self.definition = definition,
        }
    }

    /// Whether messages of a publisher were counted as dropped after they had been received.
    pub(crate) fn has_dropped(&self, number: u32) -> bool {
        let losses = self.publisher(number).map(|place| &self.publishers[place].losses);
        let mut losses = losses.into_iter().flatten();
        losses.any(|loss| matches!(loss, Loss::Missing(interval) if AFTER_ARRIVAL.contains(&interval.stage)))
    }

    fn publisher_mut(&mut self, number: u32) -> &mut Publisher {
        let place = *self.numbers.entry(number).or_insert_with(|| {
            self.publishers.push(Publisher::default());
            self.publishers.len() - 1
        });
        &mut self.publishers[place]
    }
}

/// Contents of the log.
#[derive(Clone, Debug, Default)]
pub(super) struct Catalog {
    pub storage: String,
    pub merge_publishers: bool,
    pub packed_payloads: bool,
    pub directory: PathBuf,
    /// Identity of that directory, and the file system view of its recorder.
    pub identity: Option<String>,
    pub view: Option<String>,
    /// The log has gaps.
    pub is_incomplete: bool,
    pub topics: BTreeMap<TopicId, Topic>,
}

impl Catalog {
    /// Reads the log in this memory.
    pub(super) fn in_memory(survivor: &Survivor) -> Result<Self, SurvivorError> {
        let slots = survivor.slots().iter().filter(|slot| slot.kind == KIND_LOG);
        let parts: Result<Vec<_>, _> = slots.map(|slot| survivor.read(slot)).collect();
        Ok(Self::from_log(&parts?.concat()))
    }

    /// Reads the log. The last line may have been cut off by the kill; any other that cannot be read makes the log incomplete.
    pub(crate) fn from_log(log: &[u8]) -> Self {
        let mut catalog = Self::default();
        let mut lines = log
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .peekable();
        while let Some(line) = lines.next() {
            match serde_json::from_slice(line) {
                Ok(event) => catalog.apply(event),
                Err(_) if lines.peek().is_none() && !log.ends_with(b"\n") => {}
                Err(_) => catalog.is_incomplete = true,
            }
        }
        catalog
    }

    /// Whether publishers sent messages of this type on a topic.
    pub(super) fn has_type(&self, topic: &str, type_name: &str) -> bool {
        let is_it = |info: &TopicInfo| info.name == topic && info.type_name == type_name;
        let mut topics = self.topics.values();
        topics.any(|known| is_it(&known.info) || known.other_types.iter().any(|(info, _)| is_it(info)))
    }

    /// Whether `directory` is the one that was recorded into. If the system did not distinguish directories, the recorder logged none.
    pub(super) fn is_of(&self, directory: &Path) -> bool {
        let Some(identity) = &self.identity else {
            return true;
        };
        directory_identity(directory).is_ok_and(|found| found == *identity)
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::Bag {
                storage,
                merge_publishers,
                packed_payloads,
                directory,
            } => {
                self.directory = directory;
                self.storage = storage;
                self.merge_publishers = merge_publishers;
                self.packed_payloads = packed_payloads;
            }
            Event::Place { identity, view } => {
                self.identity = Some(identity);
                self.view = view;
            }
            Event::Topic {
                topic,
                info,
                definition,
            } => self.add_topic(topic, info, definition),
            Event::Define { topic, definition } => {
                if let Some(topic) = self.topics.get_mut(&topic) {
                    topic.define(definition);
                }
            }
            Event::Type {
                topic,
                info,
                definition,
            } => self.with(topic, |topic| topic.other_types.push((info, definition))),
            Event::Offer {
                topic,
                type_name,
                qos,
            } => self.with(topic, |topic| {
                let others = topic.other_types.iter_mut().map(|(info, _)| info);
                let mut infos = std::iter::once(&mut topic.info).chain(others);
                infos.any(|info| info.add_offer_of(&type_name, qos));
            }),
            Event::Incomplete => self.is_incomplete = true,
            Event::Account(change) => self.apply_change(change),
        }
    }

    fn apply_change(&mut self, change: AccountChange) {
        match change {
            AccountChange::LossUnknown { topic } => self.with(topic, |topic| topic.loss_unknown = true),
            AccountChange::Expired { topic, count } => self.with(topic, |topic| {
                topic.expired = topic.expired.saturating_add(count);
            }),
            AccountChange::Publisher {
                topic,
                publisher,
                gid,
            } => self.with(topic, |topic| {
                topic.numbers.remove(&publisher);
                topic.publisher_mut(publisher).gid = gid;
            }),
            AccountChange::Who {
                topic,
                publisher,
                node,
                host,
                transport,
            } => self.with(topic, |topic| {
                let known = topic.publisher_mut(publisher);
                (known.node, known.host, known.transport) = (node, host, transport);
            }),
            AccountChange::PublisherType {
                topic,
                publisher,
                type_name,
            } => self.with(topic, |topic| {
                topic.publisher_mut(publisher).type_name = Some(type_name);
            }),
            AccountChange::Silent {
                topic,
                publisher,
                since,
            } => self.with(topic, |topic| topic.publisher_mut(publisher).silent_since = since),
            AccountChange::First {
                topic,
                publisher,
                sequence,
            } => self.with(topic, |topic| topic.publisher_mut(publisher).first = sequence),
            AccountChange::Miss {
                topic,
                publisher,
                interval,
            } => self.with(topic, |topic| {
                let losses = &mut topic.publisher_mut(publisher).losses;
                losses.push(Loss::Missing(interval));
            }),
            AccountChange::Late {
                topic,
                publisher,
                sequence,
            } => self.with(topic, |topic| {
                let losses = &mut topic.publisher_mut(publisher).losses;
                losses.push(Loss::Late(sequence));
            }),
        }
    }

    fn add_topic(&mut self, topic: TopicId, info: TopicInfo, definition: Option<MessageDefinition>) {
        let definition = definition.unwrap_or_else(|| MessageDefinition::unknown(&info.type_name));
        let topic = self.topics.entry(topic).or_insert_with(|| Topic {
            info: TopicInfo::default(),
            definition: MessageDefinition::default(),
            other_types: Vec::new(),
            loss_unknown: false,
            expired: 0,
            publishers: Vec::new(),
            numbers: BTreeMap::new(),
        });
        (topic.info, topic.definition) = (info, definition);
    }

    fn with(&mut self, topic: TopicId, change: impl FnOnce(&mut Topic)) {
        // Entries about a topic may precede its own line: it gets its name later, and stays without messages if it does not.
        if !self.topics.contains_key(&topic) {
            self.add_topic(topic, TopicInfo::default(), None);
        }
        if let Some(topic) = self.topics.get_mut(&topic) {
            change(topic);
        }
    }
}
