//! Messages get another form, and another type with it, while a bag is copied.

use super::ToolError;
use bytes::Bytes;
use holdall_bag::reader::{BagMessage, BagSet};
use holdall_model::{
    recoding::Recoding,
    topic::{MessageDefinition, TopicInfo},
};

/// Gives messages another form. Names of topics, stamps, sequence numbers and publishers stay.
pub trait Recode {
    /// Before the first message: the inputs, with the messages in the order in which they come.
    ///
    /// # Errors
    /// Settings that do not fit the inputs.
    fn begin(&mut self, inputs: &BagSet) -> Result<(), ToolError>;

    /// The type that messages of a topic get; `None` for a topic whose messages stay.
    fn form(&self, topic: &TopicInfo) -> Option<MessageDefinition>;

    /// The payload of the next message of such a topic in its new form; `None` for one that keeps the form that it has.
    fn recode(&mut self, message: &BagMessage) -> Option<Bytes>;

    /// What was done, after the last message.
    fn finish(&mut self) -> Vec<Recoding>;
}
