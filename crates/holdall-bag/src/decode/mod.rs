//! Finds how messages are decoded: by the definition in the bag, else by the bundled one, else not at all.

mod choice;
mod fields;
mod print;
mod stamped;

pub use choice::{ChoiceError, MessageChoice, Question};
pub use choice::{known_topics, listed, why_no_topic};
pub use fields::{Fields, JSON_WITHOUT_SCHEMA};
pub use print::{PrintForm, Printer};
pub use stamped::{HeaderStamp, TimeBase};

use crate::reader::{Bag, BagSet, ReadError};
use holdall_model::{
    dynamic::{JsonPlan, TypePlan},
    interface::{Definition, bundle::Bundle, defining_type},
    text::OutsidePath,
    topic::{DefinitionEncoding, MessageDefinition, TopicInfo},
};
use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    sync::Arc,
};

/// Topics whose decoder is cached by their address; a bag has fewer.
const REMEMBERED_MAX: usize = 1 << 16;

/// How a topic's payloads are decoded.
#[derive(Clone, Debug)]
pub enum Decoder {
    /// CDR, with the plan of its type.
    Cdr(Arc<TypePlan>),
    /// JSON texts, with the fields that their JSON schema gives them, or one clause why there are none.
    Json(Result<Arc<JsonPlan>, String>),
    /// Not decoded.
    Opaque {
        /// The reason, one clause.
        reason: String,
    },
}

/// The decoders of the topics of several bags, created when a topic is first requested.
pub struct Decoders {
    bags: BagSet,
    /// Definitions in the bags' first and last files; in all files once one was missing there.
    stored: Option<BTreeMap<String, Vec<MessageDefinition>>>,
    searched_all_files: bool,
    by_type: HashMap<(String, String, String), Decoder>,
    /// By the address of the topic, which the entry keeps alive.
    by_topic: HashMap<usize, (Arc<TopicInfo>, Decoder)>,
    notices: Vec<String>,
}

impl Decoders {
    /// Decoders for the topics of `bags`.
    pub fn new(bags: BagSet) -> Self {
        Self {
            bags,
            stored: None,
            searched_all_files: false,
            by_type: HashMap::new(),
            by_topic: HashMap::new(),
            notices: Vec::new(),
        }
    }

    /// The bags.
    pub fn bags(&self) -> &BagSet {
        &self.bags
    }

    /// How a topic's payloads are decoded.
    ///
    /// # Errors
    /// A storage file that cannot be opened to search for the definition.
    pub fn decoder(&mut self, topic: &Arc<TopicInfo>) -> Result<Decoder, ReadError> {
        let address = Arc::as_ptr(topic) as usize;
        if let Some((_, decoder)) = self.by_topic.get(&address) {
            return Ok(decoder.clone());
        }
        let decoder = self.find(topic)?;
        if self.by_topic.len() >= REMEMBERED_MAX {
            self.by_topic.clear();
        }
        self.by_topic
            .insert(address, (Arc::clone(topic), decoder.clone()));
        Ok(decoder)
    }

    /// Notices for the user, one sentence each; each is returned once.
    pub fn take_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    /// Adds a notice for the user.
    pub(crate) fn note(&mut self, notice: String) {
        self.notices.push(notice);
    }

    /// The definition of a type with this hash, or of any when it is empty: from the bags, or the folders that were given with them.
    ///
    /// # Errors
    /// A storage file that cannot be opened to search for it.
    pub fn definition(&mut self, type_name: &str, hash: &str) -> Result<Option<Definition>, ReadError> {
        let has_hash = |definition: &Definition| hash.is_empty() || definition.type_hash() == hash;
        let stored = self.stored_definition(type_name, hash)?.ok().flatten();
        let stored = stored.map(Definition::with_derived_names).filter(has_hash);
        Ok(stored.or_else(|| Some(self.on_disk(type_name, hash)?.0)))
    }

    fn on_disk(&self, type_name: &str, hash: &str) -> Option<(Definition, PathBuf)> {
        let mut folders = self.bags.bags().iter().map(Bag::definition_folders);
        folders.find_map(|folders| folders.find(type_name, hash))
    }

    /// As [`Decoders::decoder`], without caching.
    ///
    /// # Errors
    /// As [`Decoders::decoder`].
    pub fn find(&mut self, topic: &TopicInfo) -> Result<Decoder, ReadError> {
        let is_json = topic.serialization_format == "json";
        // Schemas of one name may differ.
        let of_type = if is_json {
            &topic.name
        } else {
            &topic.type_description_hash
        };
        let key = (
            topic.serialization_format.clone(),
            topic.type_name.clone(),
            of_type.clone(),
        );
        if let Some(decoder) = self.by_type.get(&key) {
            return Ok(decoder.clone());
        }
        let decoder = match topic.serialization_format.as_str() {
            // Bags of the first versions have no format.
            "cdr" | "" => self.cdr(topic)?,
            "json" => Decoder::Json(self.json(topic)?),
            other => Decoder::Opaque {
                reason: format!("its messages are encoded as {other}"),
            },
        };
        if let Decoder::Opaque { reason } = &decoder {
            self.notices
                .push(format!("{}: {reason}; shown undecoded", topic.name));
        }
        self.by_type.insert(key, decoder.clone());
        Ok(decoder)
    }

    fn cdr(&mut self, topic: &TopicInfo) -> Result<Decoder, ReadError> {
        let (type_name, hash) = (&topic.type_name, &topic.type_description_hash);
        let mut why = match self.stored_plan(type_name, hash)? {
            Ok(Some(plan)) => return Ok(Decoder::Cdr(Arc::new(plan))),
            Ok(None) => format!("no definition of {type_name} is in the bag"),
            Err(why) => why,
        };
        if let Some(plan) = self.plan_on_disk(topic, &why) {
            return Ok(Decoder::Cdr(Arc::new(plan)));
        }
        let bundle = Bundle::embedded();
        match bundle.define(type_name) {
            Ok(definition) if hash.is_empty() || definition.type_hash() == *hash => {
                match TypePlan::compile(&definition) {
                    Ok(plan) => {
                        let instead = if hash.is_empty() {
                            "decoded by that of ROS 2 Jazzy, which may differ"
                        } else {
                            "decoded by that of ROS 2 Jazzy, which has the same hash"
                        };
                        self.notices.push(format!("{}: {why}; {instead}", topic.name));
                        return Ok(Decoder::Cdr(Arc::new(plan)));
                    }
                    Err(error) => why = error.to_string(),
                }
            }
            Ok(_) => why.push_str(", and that of ROS 2 Jazzy has another hash"),
            Err(_) => {}
        }
        Ok(Decoder::Opaque { reason: why })
    }

    /// The plan of a definition in the folders that were given with the bags.
    fn plan_on_disk(&mut self, topic: &TopicInfo, why: &str) -> Option<TypePlan> {
        let (definition, path) = self.on_disk(&topic.type_name, &topic.type_description_hash)?;
        let plan = TypePlan::compile(&definition).ok()?;
        self.notices.push(format!(
            "{}: {why}; decoded by {}",
            topic.name,
            OutsidePath(&path)
        ));
        Some(plan)
    }

    /// The plan of a definition in the bags; `Ok(Ok(None))` when there is none, `Ok(Err)` with what is wrong
    /// with it.
    fn stored_plan(
        &mut self,
        type_name: &str,
        hash: &str,
    ) -> Result<Result<Option<TypePlan>, String>, ReadError> {
        let compile =
            |definition: &Definition| TypePlan::compile(definition).map_err(|error| error.to_string());
        let found = self.stored_definition(type_name, hash)?;
        Ok(found.and_then(|found| found.as_ref().map(compile).transpose()))
    }

    /// As [`Decoders::stored_plan`], before it is compiled.
    fn stored_definition(
        &mut self,
        type_name: &str,
        hash: &str,
    ) -> Result<Result<Option<Definition>, String>, ReadError> {
        if let Some(found) = self.among_stored(type_name, hash)? {
            return Ok(found.map(Some));
        }
        if !self.searched_all_files {
            // A topic may occur only in a file in the middle.
            self.searched_all_files = true;
            self.stored = Some(collect(&self.bags, Bag::all_stored_definitions)?);
            if let Some(found) = self.among_stored(type_name, hash)? {
                return Ok(found.map(Some));
            }
        }
        Ok(Ok(None))
    }

    /// Several bags may have several definitions of a type: the hash decides, then the order of the bags.
    fn among_stored(
        &mut self,
        type_name: &str,
        hash: &str,
    ) -> Result<Option<Result<Definition, String>>, ReadError> {
        if self.stored.is_none() {
            self.stored = Some(collect(&self.bags, Bag::stored_definitions)?);
        }
        let stored = self.stored.as_ref().and_then(|stored| {
            // SQLite bags store the definition of a service's event under the service's name.
            stored
                .get(type_name)
                .or_else(|| stored.get(defining_type(type_name)))
        });
        let of_type = stored.map(Vec::as_slice).unwrap_or_default();
        let same_hash = of_type
            .iter()
            .find(|stored| stored.type_description_hash == hash && !hash.is_empty());
        let any = || {
            of_type
                .iter()
                .find(|stored| stored.type_description_hash.is_empty() || hash.is_empty())
        };
        Ok(same_hash.or_else(any).map(|stored| resolve(stored, type_name)))
    }
}

/// Resolves a type from a stored definition.
fn resolve(stored: &MessageDefinition, type_name: &str) -> Result<Definition, String> {
    let bundle = Bundle::embedded();
    Definition::from_stored_as(stored, type_name, |name| bundle.get(name)).map_err(|error| error.to_string())
}

fn collect(
    bags: &BagSet,
    definitions: impl Fn(&Bag) -> Result<Vec<MessageDefinition>, ReadError>,
) -> Result<BTreeMap<String, Vec<MessageDefinition>>, ReadError> {
    let mut stored: BTreeMap<String, Vec<MessageDefinition>> = BTreeMap::new();
    for bag in bags.bags() {
        for definition in definitions(bag)? {
            let is_ros = !matches!(
                definition.encoding,
                DefinitionEncoding::Unknown | DefinitionEncoding::JsonSchema
            );
            if is_ros && !definition.is_name_only() {
                let of_type = stored.entry(definition.type_name.clone()).or_default();
                if !of_type.contains(&definition) {
                    of_type.push(definition);
                }
            }
        }
    }
    Ok(stored)
}
