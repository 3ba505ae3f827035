//! Who published what is in bags: told by the channels of the storage files, completed by the ledger.

use super::{bag::BagReader, error::BagError, set::BagSet};
use holdall_model::topic::PublisherInfo;
use std::collections::{BTreeMap, BTreeSet};

/// Publishers named in a sentence at most.
const NAMED_MAX: usize = 8;

/// A publisher of one topic of a bag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicPublisher {
    /// The topic.
    pub topic: String,
    /// Who it is; `None` for all messages of which the bag does not tell.
    pub publisher: Option<PublisherInfo>,
    /// Messages of it in the bag.
    pub message_count: u64,
}

impl BagReader {
    /// The publishers of each topic with their messages, by topic and identifier; opens every file.
    ///
    /// # Errors
    /// When a storage file cannot be read.
    pub fn publishers(&self) -> Result<Vec<TopicPublisher>, BagError> {
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

    /// A node that became known after a publisher's first message is in the ledger only.
    fn complete_by_ledger(
        &self,
        known: &mut BTreeMap<(String, Option<String>), TopicPublisher>,
    ) -> Result<(), BagError> {
        // One that the bag's own tools cannot read is no reason to say nothing of its publishers.
        let Some(ledger) = self.any_ledger()? else {
            return Ok(());
        };
        for topic in &ledger.topics {
            for told in topic.publishers.iter().filter_map(|account| account.info()) {
                let key = (topic.name.clone(), Some(told.gid.clone()));
                if let Some(publisher) = known.get_mut(&key).and_then(|entry| entry.publisher.as_mut()) {
                    complete(publisher, &told);
                }
            }
        }
        Ok(())
    }
}

/// Takes in what is told and not known yet.
fn complete(known: &mut PublisherInfo, told: &PublisherInfo) {
    for (known, told) in [
        (&mut known.node, &told.node),
        (&mut known.host, &told.host),
        (&mut known.transport, &told.transport),
    ] {
        if known.is_none() {
            known.clone_from(told);
        }
    }
}

/// Publishers whose messages are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublisherChoice {
    gids: BTreeSet<String>,
    topics: BTreeSet<String>,
}

impl PublisherChoice {
    /// The publishers that are meant by `who`: nodes, beginnings of identifiers, hosts.
    ///
    /// # Errors
    /// Bags that do not tell publishers, a name that means none of theirs, a file that cannot be read.
    pub fn resolve(bags: &BagSet, who: &[String]) -> Result<Self, BagError> {
        let (mut publishers, mut ledgers) = (Vec::new(), Vec::new());
        for bag in bags.bags() {
            publishers.extend(bag.publishers()?);
            ledgers.extend(bag.any_ledger()?);
        }
        let mut told: Vec<(&str, &PublisherInfo)> = publishers
            .iter()
            .filter_map(|it| Some((it.topic.as_str(), it.publisher.as_ref()?)))
            .collect();
        let path = bags.bags().first().map(|bag| bag.path().to_owned());
        let path = path.unwrap_or_default();
        if told.is_empty() {
            let reason = "it does not tell who published its messages; MCAP and SQLite bags that holdall recorded do, \
                          unless with --merge-publishers";
            return Err(BagError::Publishers {
                path,
                reason: reason.to_owned(),
            });
        }
        // One whose messages were all lost has none in the bag, but an account.
        let accounts = ledgers.iter().flat_map(|ledger| &ledger.topics);
        let lost: Vec<(&str, PublisherInfo)> = accounts
            .flat_map(|topic| topic.publishers.iter().map(|it| (topic.name.as_str(), it)))
            .filter_map(|(topic, account)| Some((topic, account.info()?)))
            .collect();
        told.extend(lost.iter().map(|(topic, publisher)| (*topic, publisher)));
        let mut choice = Self::default();
        for who in who {
            let meant = || told.iter().filter(|(_, publisher)| publisher.is_meant_by(who));
            if meant().next().is_none() {
                return Err(BagError::Publishers {
                    path,
                    reason: format!("it has no publisher {who}, but {}", named(&told)),
                });
            }
            for (topic, publisher) in meant() {
                choice.gids.insert(publisher.gid.clone());
                choice.topics.insert((*topic).to_owned());
            }
        }
        Ok(choice)
    }

    /// Whether the messages of a channel with this publisher are wanted.
    pub fn takes(&self, publisher: Option<&PublisherInfo>) -> bool {
        publisher.is_some_and(|publisher| self.gids.contains(&publisher.gid))
    }

    /// Whether a topic has a publisher that is wanted.
    pub fn takes_topic(&self, topic: &str) -> bool {
        self.topics.contains(topic)
    }
}

/// The publishers as a user may name them.
fn named(told: &[(&str, &PublisherInfo)]) -> String {
    let names: BTreeSet<&str> = told
        .iter()
        .map(|(_, publisher)| publisher.node.as_deref().unwrap_or(&publisher.gid))
        .collect();
    let first: Vec<&str> = names.iter().copied().take(NAMED_MAX).collect();
    match names.len().checked_sub(NAMED_MAX) {
        Some(more) if more > 0 => format!("{} and {more} more", first.join(", ")),
        _ => first.join(", "),
    }
}
