//! Reads the fields of a topic's messages, whatever their encoding.

use super::{Decoder, Decoders};
use crate::reader::{BagMessage, ReadError};
use holdall_model::{
    dynamic::{DecodeError, JsonPlan, TypePlan},
    topic::TopicInfo,
};
use std::{borrow::Cow, collections::BTreeSet, sync::Arc};

/// Why JSON messages have no fields, one clause.
pub const JSON_WITHOUT_SCHEMA: &str = "its messages are JSON texts, whose columns are not known in advance";

/// The fields of a topic's messages.
#[derive(Clone, Debug)]
pub struct Fields {
    plan: Arc<TypePlan>,
    json: Option<Arc<JsonPlan>>,
}

impl Fields {
    /// The type of the messages.
    pub fn plan(&self) -> &Arc<TypePlan> {
        &self.plan
    }

    /// Whether an integer of a message was rounded to a `float64`, because a JSON message may lack it.
    pub fn has_rounded(&self) -> bool {
        self.json.as_ref().is_some_and(|json| json.has_rounded())
    }

    /// A message's payload as CDR of that type.
    ///
    /// # Errors
    /// A JSON message that does not have the types of its schema.
    pub fn payload<'p>(&self, payload: &'p [u8]) -> Result<Cow<'p, [u8]>, DecodeError> {
        Ok(match &self.json {
            None => Cow::Borrowed(payload),
            Some(json) => Cow::Owned(json.encode(payload)?),
        })
    }

    /// The message itself, or a copy whose payload is CDR of that type.
    ///
    /// # Errors
    /// As [`Fields::payload`].
    pub fn message<'m>(&self, message: &'m BagMessage) -> Result<Cow<'m, BagMessage>, DecodeError> {
        Ok(match &self.json {
            None => Cow::Borrowed(message),
            Some(json) => Cow::Owned(BagMessage {
                payload: json.encode(&message.payload)?.into(),
                ..message.clone()
            }),
        })
    }
}

impl Decoder {
    /// The fields of the messages.
    ///
    /// # Errors
    /// One clause why their fields cannot be read.
    pub fn fields(self) -> Result<Fields, String> {
        match self {
            Self::Cdr(plan) => Ok(Fields { plan, json: None }),
            Self::Json(Ok(json)) => Ok(Fields {
                plan: Arc::clone(json.plan()),
                json: Some(json),
            }),
            Self::Json(Err(reason)) | Self::Opaque { reason } => Err(reason),
        }
    }
}

impl Decoders {
    /// The plan of a topic's JSON schema, or one clause why there is none.
    pub(super) fn json(&mut self, topic: &TopicInfo) -> Result<Result<Arc<JsonPlan>, String>, ReadError> {
        let mut schemas = BTreeSet::new();
        for bag in self.bags.bags() {
            schemas.extend(bag.json_schemas(&topic.name, &topic.type_name)?);
        }
        let mut schemas = schemas.into_iter();
        let schema = match (schemas.next(), schemas.next()) {
            (None, _) => return Ok(Err(JSON_WITHOUT_SCHEMA.to_owned())),
            (Some(schema), None) => schema,
            _ => return Ok(Err("its messages are JSON texts of several schemas".to_owned())),
        };
        let plan = JsonPlan::compile(&topic.type_name, &schema);
        Ok(plan
            .map(Arc::new)
            .map_err(|reason| format!("its messages are JSON texts, and {reason}")))
    }
}
