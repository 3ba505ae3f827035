//! The publishers of a bag's messages: stored in the channels of the storage files, completed by the ledger.

use super::{bag::Bag, error::ReadError, message::PublisherChoice, set::BagSet};
use holdall_model::{text::first_of, topic::PublisherInfo};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Most publishers that a sentence names.
const NAMED_MAX: usize = 8;

/// A publisher of one topic of a bag.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TopicPublisher {
    /// The topic.
    pub topic: String,
    /// Its publisher; `None` for all messages whose publisher the bag does not store.
    #[serde(flatten)]
    pub publisher: Option<PublisherInfo>,
    /// Number of its messages in the bag.
    pub message_count: u64,
}

impl Bag {
    /// The publishers of each topic with their number of messages, by topic and identifier; opens every file.
    ///
    /// # Errors
    /// A storage file that cannot be read.
    pub fn publishers(&self) -> Result<Vec<TopicPublisher>, ReadError> {
        let mut known: BTreeMap<(String, Option<String>), TopicPublisher> = BTreeMap::new();
        for file in self.files() {
            let reader = file.open()?;
            for channel in &reader.summary().channels {
                let topic = &channel.info.topic;
                let gid = topic.publisher.as_ref().map(|publisher| publisher.gid.clone());
                if gid.is_none() && channel.message_count == 0 {
                    continue;
                }
                let entry = known
                    .entry((topic.name.clone(), gid))
                    .or_insert_with(|| TopicPublisher {
                        topic: topic.name.clone(),
                        publisher: None,
                        message_count: 0,
                    });
                entry.message_count += channel.message_count;
                if let Some(publisher) = &topic.publisher {
                    complete(
                        entry.publisher.get_or_insert_with(|| (**publisher).clone()),
                        publisher,
                    );
                }
            }
        }
        if known.keys().any(|(_, gid)| gid.is_some()) {
            self.complete_by_ledger(&mut known)?;
        }
        Ok(known.into_values().collect())
    }

    /// A node's name that was discovered after the publisher's first message is in the ledger only.
    fn complete_by_ledger(
        &self,
        known: &mut BTreeMap<(String, Option<String>), TopicPublisher>,
    ) -> Result<(), ReadError> {
        // A bag of another recorder has no ledger.
        let Some(ledger) = self.any_ledger()? else {
            return Ok(());
        };
        for topic in &ledger.topics {
            for stored in topic.publishers.iter().filter_map(|account| account.info()) {
                let key = (topic.name.clone(), Some(stored.gid.clone()));
                if let Some(publisher) = known.get_mut(&key).and_then(|entry| entry.publisher.as_mut()) {
                    complete(publisher, &stored);
                }
            }
        }
        Ok(())
    }
}

/// Fills the unknown fields.
fn complete(known: &mut PublisherInfo, stored: &PublisherInfo) {
    for (known, stored) in [
        (&mut known.node, &stored.node),
        (&mut known.host, &stored.host),
        (&mut known.transport, &stored.transport),
    ] {
        if known.is_none() {
            known.clone_from(stored);
        }
    }
}

impl PublisherChoice {
    /// Selects publishers by `who`: nodes, prefixes of identifiers, hosts.
    ///
    /// # Errors
    /// Bags that do not store publishers, a name that matches none of them, a file that cannot be read.
    pub fn resolve(bags: &BagSet, who: &[String]) -> Result<Self, ReadError> {
        let (mut publishers, mut ledgers) = (Vec::new(), Vec::new());
        for bag in bags.bags() {
            publishers.extend(bag.publishers()?);
            ledgers.extend(bag.any_ledger()?);
        }
        let mut known: Vec<(&str, &PublisherInfo)> = publishers
            .iter()
            .filter_map(|it| Some((it.topic.as_str(), it.publisher.as_ref()?)))
            .collect();
        let path = bags.bags().first().map(|bag| bag.path().to_owned());
        let path = path.unwrap_or_default();
        if known.is_empty() {
            return Err(ReadError::NoPublishers { path });
        }
        // A publisher whose messages were all lost is in the ledger only.
        let accounts = ledgers.iter().flat_map(|ledger| &ledger.topics);
        let lost: Vec<(&str, PublisherInfo)> = accounts
            .flat_map(|topic| topic.publishers.iter().map(|it| (topic.name.as_str(), it)))
            .filter_map(|(topic, account)| Some((topic, account.info()?)))
            .collect();
        known.extend(lost.iter().map(|(topic, publisher)| (*topic, publisher)));
        let mut choice = Self::default();
        for who in who {
            let matching = || known.iter().filter(|(_, publisher)| publisher.is_named(who));
            if matching().next().is_none() {
                return Err(ReadError::Publishers {
                    path,
                    reason: format!("it has no publisher {who}, but {}", named(&known)),
                });
            }
            for (topic, publisher) in matching() {
                choice.gids.insert(publisher.gid.clone());
                choice.topics.insert((*topic).to_owned());
            }
        }
        Ok(choice)
    }
}

/// The publishers in the form that a user may enter.
fn named(known: &[(&str, &PublisherInfo)]) -> String {
    let names: BTreeSet<&str> = known
        .iter()
        .map(|(_, publisher)| publisher.node.as_deref().unwrap_or(&publisher.gid))
        .collect();
    first_of(names, NAMED_MAX)
}
