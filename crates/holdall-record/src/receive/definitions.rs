//! Message definitions without a ROS installation: share folders, the embedded bundle, or the publishing node, checked by their hash.

use holdall_bag::definitions::in_share;
use holdall_model::{
    interface::{Definition, IndividualTypeDescription, InterfaceSource, SourceFormat},
    topic::{MessageDefinition, NodeName},
};
use holdall_transport::{Transport, TypeDescriptionReply, TypeSource};
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    time::Duration,
};

/// Time between the first two requests to the same nodes for the same type; doubled each time, up to [`ASK_INTERVAL_MAX`].
const ASK_INTERVAL_MIN: Duration = Duration::from_millis(100);

/// Time between later requests.
const ASK_INTERVAL_MAX: Duration = Duration::from_secs(2);

/// A type is asked for at most this often since its last node was found; nodes that do not answer by then do not have the service.
const ASKS_MAX: u32 = 12;

/// A type whose nodes are being asked.
#[derive(Debug, Default)]
struct Question {
    nodes: BTreeSet<NodeName>,
    asks: u32,
    next_ask: Duration,
    /// When a node was asked first.
    asked: Option<Duration>,
    /// Answers without a definition since the nodes were asked last: a node is gone, or does not know the type.
    refusals: usize,
    /// A node has sent a definition of another hash, and a warning was logged.
    is_mismatch_known: bool,
}

/// A question that is due: ask this node for this type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    /// Which node.
    pub node: NodeName,
    /// Which type.
    pub type_name: String,
    /// Its announced hash.
    pub type_hash: String,
}

/// Finds definitions, asks for those that are not on this machine, and logs once for each why it cannot be had.
pub struct Definitions {
    ament_prefixes: Vec<PathBuf>,
    bundle: fn(&str) -> Option<InterfaceSource>,
    /// By type and announced hash.
    known: BTreeMap<(String, String), MessageDefinition>,
    questions: BTreeMap<(String, String), Question>,
}

impl Definitions {
    /// Searches `share` below these prefixes, then `bundle`.
    pub fn new(ament_prefixes: Vec<PathBuf>, bundle: fn(&str) -> Option<InterfaceSource>) -> Self {
        Self {
            ament_prefixes,
            bundle,
            known: BTreeMap::new(),
            questions: BTreeMap::new(),
        }
    }

    /// The definition of a type, or `None` if a node must be asked for it; then [`Definitions::asks`]
    /// returns which.
    ///
    /// With an announced hash only a definition with that hash is accepted. Without one, a definition found on this machine is accepted unchecked.
    pub fn find(
        &mut self,
        type_name: &str,
        announced_hash: &str,
        nodes: &[NodeName],
    ) -> Option<MessageDefinition> {
        let key = (type_name.to_owned(), announced_hash.to_owned());
        if let Some(known) = self.known.get(&key) {
            return Some(known.clone());
        }
        if let Some(found) = self.find_here(type_name, announced_hash) {
            self.known.insert(key, found.clone());
            return Some(found);
        }
        if announced_hash.is_empty() {
            tracing::warn!("{type_name}: no message definition on this machine; recorded without one");
            let unknown = MessageDefinition::unknown(type_name);
            self.known.insert(key, unknown.clone());
            return Some(unknown);
        }
        self.questions
            .entry(key)
            .or_default()
            .nodes
            .extend(nodes.iter().cloned());
        None
    }

    /// The definition on this machine of a type without a known hash, with its hash; `None` if it has none.
    pub fn on_this_machine(&self, type_name: &str) -> Option<MessageDefinition> {
        let in_shares = |name: &str| {
            self.ament_prefixes
                .iter()
                .find_map(|prefix| read_share(prefix, name))
        };
        let found = Definition::resolve(type_name, in_shares);
        let found = found
            .or_else(|_| Definition::resolve(type_name, self.bundle))
            .ok()?;
        Some(MessageDefinition {
            type_description_hash: found.type_hash(),
            ..found.message_definition()
        })
    }

    /// Searches the share folders and the bundle.
    fn find_here(&self, type_name: &str, announced_hash: &str) -> Option<MessageDefinition> {
        let in_shares = |name: &str| {
            self.ament_prefixes
                .iter()
                .find_map(|prefix| read_share(prefix, name))
        };
        checked(type_name, announced_hash, in_shares, |_| None)
            .or_else(|| checked(type_name, announced_hash, self.bundle, |_| None))
    }

    /// Adds a node that publishes a type; it is asked when the definition is still missing.
    pub fn add_node(&mut self, type_name: &str, announced_hash: &str, node: &NodeName) {
        let key = (type_name.to_owned(), announced_hash.to_owned());
        if let Some(question) = self.questions.get_mut(&key)
            && question.nodes.insert(node.clone())
        {
            (question.asks, question.next_ask) = (0, Duration::ZERO);
        }
    }

    /// The questions that are due at `now` (monotonic time).
    pub(crate) fn asks(&mut self, now: Duration) -> Vec<Ask> {
        let mut asks = Vec::new();
        for ((type_name, type_hash), question) in &mut self.questions {
            if question.nodes.is_empty() || question.asks >= ASKS_MAX || now < question.next_ask {
                continue;
            }
            let interval = ASK_INTERVAL_MIN * (1 << question.asks.min(8));
            question.asks += 1;
            question.refusals = 0;
            question.asked.get_or_insert(now);
            question.next_ask = now + interval.min(ASK_INTERVAL_MAX);
            asks.extend(question.nodes.iter().map(|node| Ask {
                node: node.clone(),
                type_name: type_name.clone(),
                type_hash: type_hash.clone(),
            }));
        }
        asks
    }

    /// Sends the questions that are due to all transports, and takes the answers that have come.
    pub fn ask(&mut self, transports: &mut [Box<dyn Transport>], now: Duration) {
        let asks = self.asks(now);
        let mut replies = Vec::new();
        for transport in transports {
            for ask in &asks {
                transport.request_type_description(&ask.node, &ask.type_name, &ask.type_hash);
            }
            transport.poll_type_descriptions(&mut replies);
        }
        for reply in replies {
            self.answer(&reply);
        }
    }

    /// Whether a node was asked for the first time less than `within` ago and may still answer: each node is asked over each of `transports`.
    pub(crate) fn has_just_asked(&self, now: Duration, within: Duration, transports: usize) -> bool {
        let is_recent = |asked: Duration| now.saturating_sub(asked) < within;
        self.questions.values().any(|question| {
            question.asked.is_some_and(is_recent) && question.refusals < question.nodes.len() * transports
        })
    }

    /// Whether a node may still answer, or should be asked.
    pub(crate) fn awaits_answer(&self, now: Duration) -> bool {
        self.questions.values().any(|question| {
            !question.nodes.is_empty() && (question.asks < ASKS_MAX || now < question.next_ask)
        })
    }

    /// Applies a node's answer. Returns the definition if the answer is good, that is if its hash is the requested one.
    pub fn answer(&mut self, reply: &TypeDescriptionReply) -> Option<MessageDefinition> {
        let key = (reply.type_name.clone(), reply.type_hash.clone());
        let question = self.questions.get_mut(&key)?;
        let sources = match &reply.sources {
            Ok(sources) => sources,
            Err(reason) => {
                question.refusals += 1;
                tracing::debug!(
                    "{}: a node does not send its definition: {reason}",
                    reply.type_name
                );
                return None;
            }
        };
        let lookup = |name: &str| source_of(sources, name);
        let described = |name: &str| {
            let mut descriptions = reply.descriptions.iter();
            descriptions
                .find(|description| description.type_name == name)
                .cloned()
        };
        let definition = checked(&reply.type_name, &reply.type_hash, lookup, described);
        if let Some(definition) = &definition {
            tracing::debug!("{}: a node has sent its definition", reply.type_name);
            self.questions.remove(&key);
            self.known.insert(key, definition.clone());
        } else if !std::mem::replace(&mut question.is_mismatch_known, true) {
            tracing::warn!(
                "{}: the definition that a node sent does not have the announced hash",
                reply.type_name
            );
        }
        definition
    }
}

/// Resolves a type; `None` if a part is missing or the hash is another one than announced (empty: none was).
fn checked(
    type_name: &str,
    announced_hash: &str,
    lookup: impl Fn(&str) -> Option<InterfaceSource>,
    described: impl Fn(&str) -> Option<IndividualTypeDescription>,
) -> Option<MessageDefinition> {
    let definition = match Definition::resolve_described(type_name, lookup, described) {
        Ok(definition) => definition,
        Err(error) => {
            tracing::debug!("{error}");
            return None;
        }
    };
    let mut message = definition.message_definition();
    if announced_hash.is_empty() {
        message.type_description_hash = String::new();
        return Some(message);
    }
    (definition.type_hash() == announced_hash).then(|| {
        message.type_description_hash = announced_hash.to_owned();
        message
    })
}

/// The text of a type among those that a node sent.
fn source_of(sources: &[TypeSource], type_name: &str) -> Option<InterfaceSource> {
    let source = sources.iter().find(|source| source.type_name == type_name)?;
    let format = SourceFormat::from_name(&source.encoding)?;
    Some(InterfaceSource {
        format,
        text: Cow::Owned(source.text.clone()),
    })
}

/// The definition file of a type below `<prefix>/share`.
fn read_share(prefix: &Path, type_name: &str) -> Option<InterfaceSource> {
    in_share(prefix, type_name).map(|(_, source)| source)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const TYPE: &str = "demo_msgs/msg/Pair";

    fn no_bundle(_: &str) -> Option<InterfaceSource> {
        None
    }

    fn share(text: &str) -> tempfile::TempDir {
        let prefix = tempfile::tempdir().unwrap();
        let folder = prefix.path().join("share/demo_msgs/msg");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("Pair.msg"), text).unwrap();
        fs::write(folder.join("One.msg"), "int32 value\n").unwrap();
        prefix
    }

    fn hash_of(prefix: &Path) -> String {
        Definition::resolve(TYPE, |name| read_share(prefix, name))
            .unwrap()
            .type_hash()
    }

    fn node() -> NodeName {
        NodeName {
            namespace: "/".to_owned(),
            name: "talker".to_owned(),
        }
    }

    fn reply(hash: &str, text: &str) -> TypeDescriptionReply {
        let source = |name: &str, text: &str| TypeSource {
            type_name: name.to_owned(),
            encoding: "msg".to_owned(),
            text: text.to_owned(),
        };
        TypeDescriptionReply {
            type_name: TYPE.to_owned(),
            type_hash: hash.to_owned(),
            sources: Ok(vec![
                source(TYPE, text),
                source("demo_msgs/msg/One", "int32 value\n"),
            ]),
            descriptions: Vec::new(),
        }
    }

    #[test]
    fn a_share_folder_is_taken_when_its_hash_is_the_announced_one() {
        let prefix = share("One a\nOne b\n");
        let hash = hash_of(prefix.path());
        let mut definitions = Definitions::new(vec![prefix.path().to_owned()], no_bundle);
        let found = definitions.find(TYPE, &hash, &[node()]).unwrap();
        assert_eq!(found.type_description_hash, hash);
        assert!(found.text.contains("MSG: demo_msgs/One"), "{}", found.text);
        assert!(definitions.asks(Duration::ZERO).is_empty());
    }

    #[test]
    fn another_hash_is_asked_for_and_checked() {
        let old = share("One a\n");
        let new = share("One a\nOne b\n");
        let hash = hash_of(new.path());
        let mut definitions = Definitions::new(vec![old.path().to_owned()], no_bundle);
        assert_eq!(definitions.find(TYPE, &hash, &[node()]), None);
        assert_eq!(definitions.asks(Duration::ZERO).len(), 1);
        assert!(
            definitions.asks(Duration::from_millis(50)).is_empty(),
            "not asked again too soon"
        );
        assert_eq!(definitions.asks(Duration::from_millis(100)).len(), 1);
        assert!(
            definitions.asks(Duration::from_millis(250)).is_empty(),
            "and then later"
        );
        assert_eq!(
            definitions.answer(&reply(&hash, "One a\nint8 b\n")),
            None,
            "a wrong answer is no answer"
        );
        let found = definitions.answer(&reply(&hash, "One a\nOne b\n")).unwrap();
        assert_eq!(found.type_description_hash, hash);
        assert!(definitions.asks(Duration::from_secs(9)).is_empty());
        assert_eq!(definitions.find(TYPE, &hash, &[]), Some(found));
    }

    #[test]
    fn a_node_that_comes_late_is_asked_even_when_others_never_answered() {
        let new = share("One a\n");
        let hash = hash_of(new.path());
        let mut definitions = Definitions::new(Vec::new(), no_bundle);
        assert_eq!(definitions.find(TYPE, &hash, &[node()]), None);
        let asked: usize = (0..100)
            .map(|second| definitions.asks(Duration::from_secs(second)).len())
            .sum();
        assert_eq!(asked, ASKS_MAX as usize);
        let late = NodeName {
            name: "late".to_owned(),
            ..node()
        };
        definitions.add_node(TYPE, &hash, &late);
        let asks = definitions.asks(Duration::from_secs(100));
        assert!(asks.iter().any(|ask| ask.node == late), "{asks:?}");
        assert!(definitions.answer(&reply(&hash, "One a\n")).is_some());
    }

    #[test]
    fn the_end_waits_for_nodes_that_may_still_answer() {
        let hash = hash_of(share("One a\n").path());
        let mut definitions = Definitions::new(Vec::new(), no_bundle);
        assert_eq!(definitions.find(TYPE, &hash, &[node()]), None);
        let [second, two] = [1, 2].map(Duration::from_secs);
        assert!(!definitions.has_just_asked(second, two, 2), "not asked yet");
        definitions.asks(Duration::ZERO);
        assert!(definitions.has_just_asked(second, two, 2));
        assert!(!definitions.has_just_asked(two, two, 2), "too long ago");
        let gone = TypeDescriptionReply {
            sources: Err("/talker is gone".to_owned()),
            ..reply(&hash, "")
        };
        definitions.answer(&gone);
        assert!(
            definitions.has_just_asked(second, two, 2),
            "the other transport may have it"
        );
        definitions.answer(&gone);
        assert!(!definitions.has_just_asked(second, two, 2), "gone on both");
        definitions.asks(second);
        assert!(definitions.has_just_asked(second, two, 2), "asked again");
    }

    #[test]
    fn what_has_no_source_is_taken_from_the_fields() {
        let whole = share("One a\n");
        let hash = hash_of(whole.path());
        let mut definitions = Definitions::new(Vec::new(), no_bundle);
        assert_eq!(definitions.find(TYPE, &hash, &[node()]), None);
        let definition = Definition::resolve(TYPE, |name| read_share(whole.path(), name)).unwrap();
        let mut reply = reply(&hash, "");
        for source in reply.sources.as_mut().unwrap() {
            (source.encoding, source.text) = ("implicit".to_owned(), String::new());
        }
        assert_eq!(definitions.answer(&reply), None, "neither text nor fields");
        let description = definition.description();
        reply.descriptions = description
            .referenced_type_descriptions
            .into_iter()
            .chain([description.type_description])
            .cloned()
            .collect();
        let found = definitions.answer(&reply).unwrap();
        assert!(
            found.text.contains("MSG: demo_msgs/One\nint32 value"),
            "{}",
            found.text
        );
    }

    #[test]
    fn without_an_announced_hash_this_machine_decides() {
        let prefix = share("One a\n");
        let mut definitions = Definitions::new(vec![prefix.path().to_owned()], no_bundle);
        assert_eq!(definitions.find(TYPE, "", &[]).unwrap().type_description_hash, "");
        let mut nothing = Definitions::new(Vec::new(), no_bundle);
        assert_eq!(
            nothing.find(TYPE, "", &[]),
            Some(MessageDefinition::unknown(TYPE))
        );
    }

    #[test]
    fn names_from_the_network_cannot_leave_the_share_folder() {
        let prefix = share("One a\n");
        for name in [
            "../../msg/Pair",
            "demo_msgs/../Pair",
            "demo_msgs/msg/../../x",
            "demo_msgs/msg",
            "",
        ] {
            assert_eq!(read_share(prefix.path(), name), None, "{name}");
        }
    }
}
