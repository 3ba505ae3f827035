//! Messages that get their first form again while a bag is played: images out of video, clouds out of compressed ones.

use super::{error::PlayError, options::PlayOptions, topic_choice::TopicChoice};
use bytes::Bytes;
use holdall_bag::reader::{BagMessage, BagSet, MessageFilter, MessageOrder};
use holdall_model::topic::{MessageDefinition, TopicInfo};
use std::{collections::BTreeSet, fmt, sync::Arc};

/// What is played in another form than the bags have.
pub trait FirstForms: Send + Sync {
    /// The definition of what messages of a topic become; `None` for one that stays.
    fn form(&self, topic: &TopicInfo) -> Option<&MessageDefinition>;

    /// For the messages of a filter, which may begin anywhere.
    fn begin(&self, filter: &MessageFilter) -> Box<dyn Restoring>;
}

/// Messages of one reading, in the order of their filter.
pub trait Restoring: Send {
    /// The payload in its first form; may wait for a decoder.
    ///
    /// # Errors
    /// One clause: why it cannot be restored.
    fn restore(&mut self, message: &BagMessage) -> Result<Bytes, String>;
}

type Find = dyn Fn(&BagSet, &[TopicInfo]) -> Result<Arc<dyn FirstForms>, String> + Send + Sync;

/// Finds out which of the played topics can have their first form again.
#[derive(Clone)]
pub struct Decoding(Arc<Find>);

impl Decoding {
    /// By this function: of bags, and the topics that are played. It fails with one sentence.
    pub fn new(
        find: impl Fn(&BagSet, &[TopicInfo]) -> Result<Arc<dyn FirstForms>, String> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(find))
    }
}

impl fmt::Debug for Decoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Decoding")
    }
}

/// The first forms of the played topics, which get their types.
pub(super) fn first_forms(
    topics: &mut Vec<TopicInfo>,
    bags: &BagSet,
    (options, choice): (&PlayOptions, &TopicChoice),
    notices: &mut Vec<String>,
) -> Result<Option<Arc<dyn FirstForms>>, PlayError> {
    let Some(Decoding(find)) = &options.decoding else {
        return Ok(None);
    };
    let played = topics.iter().filter(|topic| choice.takes(&topic.name));
    let forms = find(bags, &played.cloned().collect::<Vec<_>>()).map_err(PlayError::Decoding)?;
    let mut found = false;
    for topic in topics.iter_mut() {
        if let Some(form) = forms.form(topic) {
            topic.type_name.clone_from(&form.type_name);
            topic
                .type_description_hash
                .clone_from(&form.type_description_hash);
            found = true;
        }
    }
    if !found {
        notices.push("what is played has no video and no compressed clouds to decode".to_owned());
    }
    // Where some messages kept their form, a topic had two types.
    let mut known = BTreeSet::new();
    topics.retain(|topic| {
        let publisher = topic.publisher.as_ref().map(|publisher| publisher.gid.clone());
        known.insert((topic.name.clone(), topic.type_name.clone(), publisher))
    });
    Ok(Some(forms))
}

/// Restores one message from before the others of its topic.
pub(super) fn restored_alone(forms: &dyn FirstForms, message: &BagMessage) -> Result<Bytes, String> {
    let filter = MessageFilter {
        from: Some(message.log_time),
        until: Some(message.log_time),
        order: MessageOrder::Received,
        ..MessageFilter::default()
    };
    forms.begin(&filter).restore(message)
}
