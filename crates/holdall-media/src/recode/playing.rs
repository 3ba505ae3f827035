//! Video and compressed clouds as images and clouds while a bag is played: each topic is decoded in a thread of its own, from the key frame before.

use super::{
    Coder, Key, Source, cloud, decoder, encoded_in, expect_few, gid_of,
    image::{Frame, restored},
    narrow, still,
};
use crate::{
    carried::{COMPRESSED_IMAGE, COMPRESSED_VIDEO, FFMPEG_PACKET, IMAGE, definition, video_unit},
    cloud::{CLOUD, COMPRESSED_CLOUD},
    elementary::Codec,
    ffmpeg::{Stop, version},
};
use bytes::Bytes;
use holdall_bag::reader::{BagMessage, BagSet, MessageFilter, MessageOrder, ReadError};
use holdall_model::{
    recoding::{ImageForm, Recoding},
    time::Timestamp,
    topic::{MessageDefinition, TopicInfo},
};
use holdall_play::{Decoding, FirstForms, Restoring};
use holdall_tools::tools::Video;
use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

/// Plays video and compressed clouds as what they were made from.
pub fn playing() -> Decoding {
    Decoding::new(|inputs, topics| Ok(Arc::new(Playing::find(inputs, topics)?)))
}

/// What messages of a topic become.
#[derive(Clone, Debug)]
enum Become {
    /// Images, of the form that the bag says, if it does.
    Images(Option<ImageForm>),
    /// Image files, as before.
    Files,
    /// Images that are encoded each on its own.
    Stills(ImageForm),
    Clouds,
}

impl Become {
    /// `None` for a topic that stays. `last`: what was done to it last.
    fn of(topic: &TopicInfo, last: Option<&Recoding>, inputs: &BagSet) -> Result<Option<Self>, ReadError> {
        let image = last.and_then(|recoding| recoding.image.clone());
        let are_stills = last.is_some_and(|recoding| Codec::named(&recoding.codec).is_none());
        let is_file = last.is_some_and(|recoding| recoding.from == COMPRESSED_IMAGE);
        let is_video = || Video::new(inputs, topic, &MessageFilter::default()).is_video();
        Ok(match topic.type_name.as_str() {
            COMPRESSED_CLOUD => Some(Self::Clouds),
            COMPRESSED_IMAGE if are_stills => image.map(Self::Stills),
            COMPRESSED_IMAGE if !is_video()? => None,
            COMPRESSED_VIDEO | FFMPEG_PACKET | COMPRESSED_IMAGE if is_file => Some(Self::Files),
            COMPRESSED_VIDEO | FFMPEG_PACKET | COMPRESSED_IMAGE => Some(Self::Images(image)),
            _ => None,
        })
    }

    /// Whether pictures depend on those before them.
    const fn is_video(&self) -> bool {
        matches!(self, Self::Images(_) | Self::Files)
    }

    const fn type_name(&self) -> &'static str {
        match self {
            Self::Images(_) | Self::Stills(_) => IMAGE,
            Self::Files => COMPRESSED_IMAGE,
            Self::Clouds => CLOUD,
        }
    }
}

fn of_topic(filter: &MessageFilter, name: &str) -> MessageFilter {
    MessageFilter {
        topics: Some(Arc::new([name.to_owned()].into())),
        ..filter.clone()
    }
}

/// What messages become, by topic and by type, and the definition of that.
type Topics = BTreeMap<String, BTreeMap<String, (Become, MessageDefinition)>>;

/// The played topics that are decoded.
pub(super) struct Playing {
    inputs: BagSet,
    topics: Arc<Topics>,
}

impl Playing {
    pub fn find(inputs: &BagSet, topics: &[TopicInfo]) -> Result<Self, String> {
        let recodings: Vec<Recoding> = encoded_in(inputs).collect();
        let mut found = Topics::new();
        for topic in topics.iter().filter(|topic| topic.serialization_format == "cdr") {
            let is_it =
                |recoding: &&Recoding| recoding.topic == topic.name && recoding.into == topic.type_name;
            let into = Become::of(topic, recodings.iter().find(is_it), inputs);
            if let Some(into) = into.map_err(|error| error.to_string())? {
                let form = definition(into.type_name());
                let types = found.entry(topic.name.clone()).or_default();
                types.insert(topic.type_name.clone(), (into, form));
            }
        }
        let needs_decoder = |(into, _): &(Become, _)| into.is_video();
        let mut topics = found.iter();
        if let Some((topic, _)) = topics.find(|(_, types)| types.values().any(needs_decoder)) {
            version(&Stop::default())
                .map_err(|error| format!("the video on {topic} cannot be decoded: {error}"))?;
        }
        Ok(Self {
            inputs: inputs.clone(),
            topics: Arc::new(found),
        })
    }
}

impl Playing {
    /// Pictures become images, also where they were files: these would lose something once more.
    pub fn without_files(mut self) -> Self {
        let topics = Arc::make_mut(&mut self.topics).values_mut();
        let topics = topics.flat_map(BTreeMap::values_mut);
        for (into, form) in topics.filter(|(into, _)| matches!(into, Become::Files)) {
            *into = Become::Images(None);
            *form = definition(IMAGE);
        }
        self
    }
}

impl FirstForms for Playing {
    fn form(&self, topic: &TopicInfo) -> Option<&MessageDefinition> {
        let (_, form) = self.topics.get(&topic.name)?.get(&topic.type_name)?;
        Some(form)
    }

    fn begin(&self, filter: &MessageFilter) -> Box<dyn Restoring> {
        Box::new(Reading {
            inputs: self.inputs.clone(),
            topics: Arc::clone(&self.topics),
            filter: filter.clone(),
            sources: BTreeMap::new(),
        })
    }
}

/// One reading of the bags.
struct Reading {
    inputs: BagSet,
    topics: Arc<Topics>,
    filter: MessageFilter,
    /// By topic, and by type; those of video by publisher, too: pictures of two videos do not depend on each other.
    sources: BTreeMap<String, BTreeMap<(String, Option<String>), Source>>,
}

impl Reading {
    /// A thread that decodes a topic, or a publisher's video, from the key frame before the first message on.
    fn start(&self, topic: &TopicInfo, into: &Become) -> Result<Source, String> {
        let mut filter = of_topic(&self.filter, &topic.name);
        let mut head = Vec::new();
        if into.is_video()
            && let Some(from) = filter.from
        {
            narrow(&mut filter, topic);
            let begin = Video::new(&self.inputs, topic, &filter).begin_of(from);
            let (begin, parameters) = begin.map_err(|error| error.to_string())?;
            filter.from = Some(begin);
            let unit = parameters
                .as_ref()
                .and_then(|message| video_unit(&topic.type_name, &message.payload));
            head = unit.map_or(head, |(unit, data)| data[..unit.head_bytes].to_vec());
        }
        let into = into.clone();
        let filter = (filter, into.is_video());
        Source::start(&self.inputs, topic, filter, move || -> Box<dyn Coder> {
            match into {
                Become::Images(form) => Box::new(decoder::Decoder::new(form).urgent().after_head(head)),
                Become::Files => Box::new(decoder::Decoder::new(None).into_files().after_head(head)),
                Become::Stills(form) => Box::new(still::Decoder::new(form)),
                Become::Clouds => Box::new(cloud::Decoder),
            }
        })
    }
}

impl Restoring for Reading {
    fn restore(&mut self, message: &BagMessage) -> Result<Bytes, String> {
        let (name, type_name) = (message.topic.name.as_str(), message.topic.type_name.as_str());
        let types = self.topics.get(name);
        let (into, _) = types
            .and_then(|types| types.get(type_name))
            .ok_or("it is not decoded")?;
        let is_plain = || video_unit(type_name, &message.payload).is_none();
        match into {
            // Image files that were not encoded.
            Become::Files if type_name == COMPRESSED_IMAGE && is_plain() => {
                return Ok(message.payload.clone());
            }
            Become::Images(_) if type_name == COMPRESSED_IMAGE && is_plain() => {
                let Frame { taken, form, pixels } = Frame::read(message)?;
                return Ok(restored(&form, &taken, &pixels).into());
            }
            _ => {}
        }
        let gid = gid_of(&message.topic).filter(|_| into.is_video());
        let key = (type_name.to_owned(), gid.map(str::to_owned));
        let sources = self.sources.get_mut(name);
        if let Some(source) = sources.and_then(|sources| sources.get_mut(&key)) {
            return source.of(Key::of(message));
        }
        expect_few(self.sources.get(name).into_iter().flat_map(BTreeMap::values))?;
        let mut source = self.start(&message.topic, into)?;
        let made = source.of(Key::of(message));
        self.sources
            .entry(name.to_owned())
            .or_default()
            .insert(key, source);
        made
    }
}

impl Drop for Reading {
    /// Waits for its threads, which end with their next picture: no decoder outlives a seek.
    fn drop(&mut self) {
        std::mem::take(&mut self.sources)
            .into_values()
            .flat_map(BTreeMap::into_values)
            .for_each(|source| {
                source.finish();
            });
    }
}

/// Video, encoded depth and compressed clouds of some topics as plain images and clouds, for a reader that goes through bags once.
pub struct Plain {
    forms: Arc<Playing>,
    /// By topic: its reading, and when the last message was received.
    readings: BTreeMap<String, (Box<dyn Restoring>, Timestamp)>,
}

impl Plain {
    /// Finds what can be decoded among `topics`.
    ///
    /// # Errors
    /// One clause: a file that cannot be read, video without a decoder.
    pub fn find(bags: &BagSet, topics: &[TopicInfo]) -> Result<Self, String> {
        Ok(Self {
            forms: Arc::new(Playing::find(bags, topics)?.without_files()),
            readings: BTreeMap::new(),
        })
    }

    /// The same for another reader.
    pub fn anew(&self) -> Self {
        Self {
            forms: Arc::clone(&self.forms),
            readings: BTreeMap::new(),
        }
    }

    /// The type of a topic's messages after [`Plain::decode`].
    pub fn type_name<'t>(&'t self, topic: &'t TopicInfo) -> &'t str {
        let form = self.forms.form(topic);
        form.map_or(&topic.type_name, |form| &form.type_name)
    }

    /// A topic as its messages are after [`Plain::decode`].
    pub fn topic<'t>(&self, topic: &'t TopicInfo) -> Cow<'t, TopicInfo> {
        self.forms.form(topic).map_or(Cow::Borrowed(topic), |form| {
            Cow::Owned(TopicInfo {
                type_name: form.type_name.clone(),
                type_description_hash: form.type_description_hash.clone(),
                ..topic.clone()
            })
        })
    }

    /// The plain form of a message, or itself. One that was received before the last one is decoded from its key frame on.
    ///
    /// # Errors
    /// One clause: why it cannot be decoded.
    pub fn decode(&mut self, mut message: BagMessage) -> Result<BagMessage, String> {
        let Cow::Owned(topic) = self.topic(&message.topic) else {
            return Ok(message);
        };
        let received = message.log_time;
        if self
            .readings
            .get(&topic.name)
            .is_some_and(|(_, last)| *last > received)
        {
            self.readings.remove(&topic.name);
        }
        let begin = || {
            let filter = MessageFilter {
                from: Some(received),
                order: MessageOrder::Received,
                ..MessageFilter::default()
            };
            (self.forms.begin(&filter), received)
        };
        let (reading, last) = self.readings.entry(topic.name.clone()).or_insert_with(begin);
        *last = received;
        // As the reading orders them.
        let stamp = std::mem::replace(&mut message.stamp, received);
        let payload = reading.restore(&message)?;
        Ok(BagMessage {
            topic: Arc::new(topic),
            payload,
            stamp,
            ..message
        })
    }
}
