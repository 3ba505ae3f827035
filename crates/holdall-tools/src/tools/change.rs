//! Changes fields of messages while a bag is copied.

use super::{OutputOptions, ToolError, choice::Chooser, migrate};
use holdall_bag::{
    decode::{ChoiceError, Decoder, Decoders, listed},
    reader::{BagMessage, BagSet},
};
use holdall_model::{
    dynamic::{edit::Editor, expression::split_topic, migrate::Migrations},
    topic::TopicInfo,
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// A new value for a field of a topic's messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldChange {
    /// The topic.
    pub topic: String,
    /// The field and its value, as [`Editor::compile`] reads them.
    pub assignment: String,
}

impl FieldChange {
    /// Parses `/topic: path = value`; the value is JSON.
    ///
    /// # Errors
    /// Text of any other form, as one clause.
    pub fn parse(text: &str) -> Result<Self, String> {
        let example = "for example /imu: header.frame_id = \"base\"";
        match split_topic(text) {
            Ok((topic, assignment)) if assignment.contains('=') => {
                let slash = if topic.starts_with('/') { "" } else { "/" };
                Ok(Self {
                    topic: format!("{slash}{topic}"),
                    assignment: assignment.to_owned(),
                })
            }
            _ => Err(format!(
                "expected a topic, a colon, a field, = and its value as JSON, {example}"
            )),
        }
    }
}

/// The fields that name coordinate frames, in `std_msgs/msg/Header` and next to it.
const FRAME_FIELDS: [&str; 2] = ["frame_id", "child_frame_id"];

/// A topic's name and type.
type TopicKey = (String, String);

/// The changes of one type of a topic, and their outcome.
struct OfTopic {
    editor: Editor,
    /// Number of messages.
    messages: u64,
    /// Number of messages without the element that an assignment names, by assignment.
    without: Vec<u64>,
}

/// The changes of a job, checked against the types of its inputs.
#[derive(Default)]
pub(super) struct Changer {
    /// By name and type.
    topics: BTreeMap<TopicKey, OfTopic>,
    /// The migrations among the changes.
    pub migrations: Migrations,
    /// The topic of each description that messages share, so that names are compared once per file.
    known: HashMap<usize, (Arc<TopicInfo>, Option<TopicKey>)>,
    /// Number of messages that were changed.
    pub count: u64,
}

impl Changer {
    /// Checks all changes against the types of their topics.
    ///
    /// # Errors
    /// What a migration has no place for; a topic that the inputs do not have or that is not selected, one without a definition, a field that its type
    /// does not have, and a value that the field cannot hold.
    pub fn compile(set: &BagSet, output: &OutputOptions, chooser: &Chooser) -> Result<Self, ToolError> {
        let mut by_topic: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for change in &output.changes {
            by_topic
                .entry(&change.topic)
                .or_default()
                .push(&change.assignment);
        }
        let mut decoders = Decoders::new(set.clone());
        let mut changer = Self {
            migrations: migrate::compile(set, output.migration.as_ref())?,
            ..Self::default()
        };
        let topics = set.topics();
        for (name, assignments) in by_topic {
            let refused = |reason: String| ToolError::Change {
                topic: name.to_owned(),
                reason,
            };
            let mut of_name = topics.iter().filter(|topic| topic.name == name).peekable();
            if of_name.peek().is_none() {
                let known = listed(topics.iter().map(|topic| topic.name.as_str()));
                let topic = name.to_owned();
                return Err(ChoiceError::UnknownTopic { topic, known }.into());
            }
            let mut is_chosen = false;
            for topic in of_name.filter(|topic| chooser.takes_topic(name, &topic.type_name)) {
                is_chosen = true;
                let editor = match decoders.find(topic)? {
                    Decoder::Cdr(plan) => {
                        Editor::compile(plan, &assignments).map_err(|error| refused(error.to_string()))?
                    }
                    Decoder::Json(_) => return Err(refused("its messages are JSON texts".to_owned())),
                    Decoder::Opaque { reason } => return Err(refused(reason)),
                };
                let changes = OfTopic {
                    editor,
                    messages: 0,
                    without: vec![0; assignments.len()],
                };
                changer
                    .topics
                    .insert((name.to_owned(), topic.type_name.clone()), changes);
            }
            if !is_chosen {
                return Err(refused("it is not among the topics that are chosen".to_owned()));
            }
        }
        changer.replace_frames(&output.frames, &topics, &mut decoders, chooser)?;
        for notice in decoders.take_notices() {
            tracing::warn!("{notice}");
        }
        Ok(changer)
    }

    /// Adds the replacement of frames to all topics that have some.
    fn replace_frames(
        &mut self,
        frames: &BTreeMap<String, String>,
        topics: &[TopicInfo],
        decoders: &mut Decoders,
        chooser: &Chooser,
    ) -> Result<(), ToolError> {
        if frames.is_empty() {
            return Ok(());
        }
        for topic in topics
            .iter()
            .filter(|it| chooser.takes_topic(&it.name, &it.type_name))
        {
            let key = (topic.name.clone(), topic.type_name.clone());
            let known = self
                .topics
                .remove(&key)
                .map(|known| (known.editor, known.without));
            let (editor, without) = match (known, decoders.find(topic)?) {
                (Some(known), _) => known,
                (None, Decoder::Cdr(plan)) => match Editor::compile(plan, &[]) {
                    Ok(editor) => (editor, Vec::new()),
                    Err(_) => continue,
                },
                (None, Decoder::Json(_)) => continue,
                (None, Decoder::Opaque { reason }) => {
                    tracing::warn!("{}: frames are unchanged: {reason}", topic.name);
                    continue;
                }
            };
            let editor = editor.replacing(&FRAME_FIELDS, frames);
            if !editor.is_idle() {
                let changes = OfTopic {
                    editor,
                    messages: 0,
                    without,
                };
                self.topics.insert(key, changes);
            }
        }
        Ok(())
    }

    /// Writes the payload of a message in the output to `out`; false if it is unchanged, and `out` then has no
    /// meaning.
    ///
    /// # Errors
    /// A payload that does not fit the definition of its type.
    pub fn change(&mut self, message: &BagMessage, out: &mut Vec<u8>) -> Result<bool, ToolError> {
        let migrated = self.migrations.apply(&message.topic, &message.payload, out);
        let migrated = migrated.map_err(|reason| ToolError::Migrate {
            topic: message.topic.name.clone(),
            log_time: message.log_time.as_nanos(),
            reason,
        });
        if migrated?.is_some() {
            self.count += 1;
            return Ok(true);
        }
        if self.topics.is_empty() {
            return Ok(false);
        }
        let address = Arc::as_ptr(&message.topic) as usize;
        let (_, key) = self.known.entry(address).or_insert_with(|| {
            let key = (message.topic.name.clone(), message.topic.type_name.clone());
            let key = self.topics.contains_key(&key).then_some(key);
            (Arc::clone(&message.topic), key)
        });
        let Some(topic) = key.as_ref().and_then(|key| self.topics.get_mut(key)) else {
            return Ok(false);
        };
        topic.messages += 1;
        let written = topic
            .editor
            .apply(&message.payload, out)
            .map_err(|source| ToolError::Edit {
                topic: message.topic.name.clone(),
                number: topic.messages,
                log_time: message.log_time.as_nanos(),
                source,
            })?;
        for (without, written) in topic.without.iter_mut().zip(&written) {
            *without += u64::from(*written == 0);
        }
        let is_changed = written.iter().any(|written| *written > 0);
        self.count += u64::from(is_changed);
        Ok(is_changed)
    }

    /// Warns of elements that lists did not have.
    pub fn warn(&self) {
        for ((name, _), topic) in &self.topics {
            for (path, without) in topic.editor.paths().zip(&topic.without) {
                if *without > 0 {
                    let count = topic.messages;
                    tracing::warn!(
                        "{name}: {without} of {count} messages have no {path} and were not changed"
                    );
                }
            }
        }
    }
}
