//! Pictures of video that others need to be decoded: from the key frame before a time on.

use super::ToolError;
use holdall_bag::reader::{BagMessage, BagSet, MessageFilter, PublisherChoice, ReadError};
use holdall_model::{
    carried::{Coded, may_be_video, video_unit},
    elementary::{Codec, Unit},
    recoding::Recoding,
    time::Timestamp,
    topic::TopicInfo,
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// The first span in which a key frame is looked for, backwards from a time, and by how much each one is longer than the one after it.
const FIRST_SPAN: Duration = Duration::from_secs(2);
const GROWTH: u32 = 4;

/// Messages at the beginning of a topic that are searched for parameters, which some encoders send only once.
const FIRST_MAX: usize = 100;

/// Bytes from a key frame on at most, of one publisher: beyond that a picture is not decoded by anything here.
pub(super) const RUN_BYTES_MAX: usize = 256 << 20;

/// What a message has of a video; `None` for other messages.
pub(super) fn unit_of(message: &BagMessage) -> Option<Unit> {
    Some(video_unit(&message.topic.type_name, &message.payload)?.0)
}

/// Pictures from the last key frame on.
#[derive(Default)]
struct Run {
    pictures: Vec<BagMessage>,
    bytes: usize,
    /// Pictures without a key frame were found.
    lacks_key: bool,
    /// The key frame has no parameters.
    lacks_parameters: bool,
}

impl Run {
    fn add(&mut self, unit: &Unit, message: BagMessage) {
        if unit.is_key {
            *self = Self {
                lacks_parameters: unit.parameters.is_none(),
                ..Self::default()
            };
        } else if self.pictures.is_empty() {
            // Else there are too many between this one and its key frame.
            self.lacks_key = self.bytes == 0;
            return;
        }
        self.bytes += message.payload.len();
        if self.bytes > RUN_BYTES_MAX {
            self.pictures.clear();
        } else {
            self.pictures.push(message);
        }
    }
}

/// The video of a topic in bags.
pub struct Video<'a> {
    set: &'a BagSet,
    topic: &'a TopicInfo,
    /// Which of its messages are read; `from` and `until` are not used.
    filter: MessageFilter,
}

impl<'a> Video<'a> {
    /// The messages of a topic that a filter takes.
    pub fn new(set: &'a BagSet, topic: &'a TopicInfo, filter: &MessageFilter) -> Self {
        let filter = MessageFilter {
            topics: Some(Arc::new([topic.name.clone()].into())),
            ..filter.clone()
        };
        Self { set, topic, filter }
    }

    /// Messages from a time on, and until one; those that are damaged are left out.
    fn messages(
        &self,
        from: Option<Timestamp>,
        until: Option<Timestamp>,
    ) -> impl Iterator<Item = Result<BagMessage, ReadError>> + use<'a> {
        let messages = self.set.messages(&MessageFilter {
            from,
            until,
            ..self.filter.clone()
        });
        let type_name = self.topic.type_name.as_str();
        messages.filter(move |message| match message {
            Ok(message) => message.topic.type_name == type_name,
            Err(error) => !error.is_damage(),
        })
    }

    /// Whether the topic has pictures of a video: by what the bags say of it, else by its first message that can be read.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn is_video(&self) -> Result<bool, ReadError> {
        if !may_be_video(&self.topic.type_name) {
            return Ok(false);
        }
        let mut bags = self.set.bags().iter();
        if bags.any(|bag| is_said(&bag.metadata().custom_data, self.topic)) {
            return Ok(true);
        }
        for message in self.messages(None, None).take(FIRST_MAX) {
            let message = message?;
            if unit_of(&message).is_some() {
                return Ok(true);
            }
            // A picture that is damaged says nothing of the others; a file does.
            let coded = Coded::read(&message.topic.type_name, &message.payload);
            if coded.is_ok_and(|coded| Codec::named(coded.format).is_none()) {
                return Ok(false);
            }
        }
        Ok(false)
    }

    /// Pictures before `time` that the first ones from then on need, of all publishers: their last key frames and what follows them.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn needed_at(&self, time: Timestamp) -> Result<Vec<BagMessage>, ReadError> {
        let mut runs = self.runs_before(time)?;
        if let Some(next) = self.messages(Some(time), None).next().transpose()?
            && unit_of(&next).is_some_and(|unit| unit.is_key && unit.parameters.is_some())
        {
            runs.remove(&publisher_of(&next.topic));
        }
        let mut needed = Vec::new();
        for (publisher, run) in runs {
            if run.lacks_parameters && !run.pictures.is_empty() {
                needed.extend(self.first_parameters(publisher.as_deref())?);
            }
            needed.extend(run.pictures);
        }
        needed.sort_by_key(|message| message.stamp);
        needed.dedup_by(|a, b| {
            (a.stamp, a.publish_time, a.sequence, &a.payload)
                == (b.stamp, b.publish_time, b.sequence, &b.payload)
        });
        Ok(needed)
    }

    /// Where decoding begins for what the topic's publisher sent from `time` on: the stamp of its last key frame before, and a message with the
    /// parameters, if that has none.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn begin_of(&self, time: Timestamp) -> Result<(Timestamp, Option<BagMessage>), ReadError> {
        let (runs, publisher) = (self.runs_before(time)?, publisher_of(self.topic));
        let first = runs.get(&publisher);
        match first.and_then(|run| Some((run, run.pictures.first()?))) {
            Some((run, first)) if run.lacks_parameters => {
                Ok((first.stamp, self.first_parameters(publisher.as_deref())?))
            }
            Some((_, first)) => Ok((first.stamp, None)),
            None => Ok((time, self.first_parameters(publisher.as_deref())?)),
        }
    }

    /// The first message with parameters, of a publisher.
    fn first_parameters(&self, publisher: Option<&str>) -> Result<Option<BagMessage>, ReadError> {
        for message in self.messages(None, None).take(FIRST_MAX) {
            let message = message?;
            let is_its = publisher_of(&message.topic).as_deref() == publisher;
            if is_its && unit_of(&message).is_some_and(|unit| unit.parameters.is_some()) {
                return Ok(Some(message));
            }
        }
        Ok(None)
    }

    /// By publisher: the pictures before `time`, from the last key frame on.
    fn runs_before(&self, time: Timestamp) -> Result<BTreeMap<Option<String>, Run>, ReadError> {
        let Some((first, last)) = self.set.log_times() else {
            return Ok(BTreeMap::new());
        };
        let end = time.as_nanos().min(last.as_nanos().saturating_add(1)) - 1;
        let (mut span, mut runs) = (FIRST_SPAN, BTreeMap::<_, Run>::new());
        let mut listed = listed_key(
            self.set,
            &self.topic.name,
            Timestamp::from_nanos(end.saturating_add(1)),
        );
        // Bounded: each span is longer than the one before, until the beginning.
        loop {
            let begin = end.saturating_sub(i64::try_from(span.as_nanos()).unwrap_or(i64::MAX));
            let from = listed.map_or(begin, |key| key.as_nanos());
            runs.clear();
            for message in self.messages(
                Some(Timestamp::from_nanos(from)),
                Some(Timestamp::from_nanos(end)),
            ) {
                let message = message?;
                if let Some(unit) = unit_of(&message) {
                    runs.entry(publisher_of(&message.topic))
                        .or_default()
                        .add(&unit, message);
                }
            }
            let is_whole = !runs.is_empty() && runs.values().all(|run| !run.lacks_key);
            if is_whole || from <= first.as_nanos() {
                return Ok(runs);
            }
            // What is listed may be of other messages: a bag may have been changed since.
            if listed.take().is_none() {
                span = span.saturating_mul(GROWTH);
            }
        }
    }
}

/// The last key frame of a topic before a time, as far as the bags list them, to the millisecond before it.
pub fn listed_key(set: &BagSet, topic: &str, time: Timestamp) -> Option<Timestamp> {
    let recodings = set
        .bags()
        .iter()
        .flat_map(|bag| Recoding::list_in(&bag.metadata().custom_data));
    let keys = recodings.filter(|recoding| recoding.topic == topic);
    keys.filter_map(|recoding| recoding.keys.before(time)).max()
}

/// Whether a bag says that messages of this topic became video, and did not become images again.
fn is_said(custom_data: &BTreeMap<String, String>, topic: &TopicInfo) -> bool {
    let mut last = Recoding::list_in(custom_data).into_iter().rev();
    last.find(|recoding| recoding.topic == topic.name)
        .is_some_and(|last| {
            last.into == topic.type_name && last.messages > 0 && Codec::named(&last.codec).is_some()
        })
}

fn publisher_of(topic: &TopicInfo) -> Option<String> {
    let publisher = topic.publisher.as_ref();
    publisher.map(|publisher| publisher.gid.clone())
}

/// The topics of video among these.
pub(super) fn video_topics(
    set: &BagSet,
    takes: &dyn Fn(&TopicInfo) -> bool,
    publishers: Option<&PublisherChoice>,
) -> Result<(Vec<TopicInfo>, MessageFilter), ToolError> {
    let filter = MessageFilter {
        publishers: publishers.cloned().map(Arc::new),
        ..MessageFilter::default()
    };
    let mut found = Vec::new();
    for topic in set.topics() {
        let is_cdr = topic.serialization_format == "cdr";
        if is_cdr && takes(&topic) && Video::new(set, &topic, &filter).is_video()? {
            found.push(topic);
        }
    }
    Ok((found, filter))
}
