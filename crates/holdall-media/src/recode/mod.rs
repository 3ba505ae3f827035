//! Gives images and point clouds a smaller form while a bag is copied, and their first one again: each topic in a thread of its own, which reads ahead.

mod behind;
mod cloud;
mod compare;
mod decoder;
mod encoder;
mod image;
#[cfg(feature = "openh264")]
mod inside;
mod live;
mod playing;
mod rule;
mod still;
mod verify;
mod video;
mod worker;

pub use compare::{DecodedTopic, Tolerance, compare};
pub use decoder::is_beside;
pub use live::{WhenBehind, live};
pub use playing::{Plain, playing};
pub use rule::{Carrier, CloudOptions, How, Rule};
pub use verify::{Verified, VerifyError, verify};
pub use video::VideoOptions;

use crate::{
    carried::{COMPRESSED_IMAGE, COMPRESSED_VIDEO, FFMPEG_PACKET, IMAGE, definition},
    cloud::{CLOUD, COMPRESSED_CLOUD},
    elementary::Codec,
    ffmpeg::Stop,
};
use bytes::Bytes;
use holdall_bag::{
    decode::{ChoiceError, listed},
    reader::{BagMessage, BagSet, MessageFilter, PublisherChoice},
};
use holdall_model::{
    recoding::{Exactness, Recoding, Step},
    time::Timestamp,
    topic::{MessageDefinition, TopicInfo},
};
use holdall_tools::tools::{Recode, ToolError};
use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::{
        Arc,
        mpsc::{self, Receiver},
    },
    thread::{self, JoinHandle},
};

/// Messages of a topic that are ready and not yet written. A segment that is done waits here while the next one is made.
const READY_MAX: usize = 32;

/// Images of a topic that are tried to know what holds them.
const TRIED_MAX: usize = 100;

/// Publishers of a topic that are decoded at a time.
const PUBLISHERS_MAX: usize = 32;

/// The codec of messages that have their first form again.
const RESTORED: &str = "none";

/// A message in its new form, or why it keeps the one that it has.
type Made = Result<Bytes, String>;

/// What a message is recognized by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    log_time: Timestamp,
    publish_time: Timestamp,
    sequence: u32,
    bytes: usize,
    /// What orders it.
    stamp: Timestamp,
}

impl Key {
    fn of(message: &BagMessage) -> Self {
        Self {
            log_time: message.log_time,
            publish_time: message.publish_time,
            sequence: message.sequence,
            bytes: message.payload.len(),
            stamp: message.stamp,
        }
    }
}

/// Where a coder puts what it made, in the order of the messages.
struct Sent<'a> {
    /// False where nothing more is needed.
    to: &'a mut dyn FnMut(Key, Made) -> bool,
    is_over: bool,
}

impl Sent<'_> {
    fn send(&mut self, key: Key, made: Made) {
        self.is_over |= !(self.to)(key, made);
    }
}

/// Gives the messages of one topic another form, some of them later than they come.
trait Coder: Send {
    fn take(&mut self, message: &BagMessage, sent: &mut Sent<'_>);
    fn end(&mut self, sent: &mut Sent<'_>);
    /// Steps by which the quality is to be lower than requested, and the bytes that it may hold back.
    fn set_limits(&mut self, _ease: u8, _segment_bytes_max: usize) {}
    /// Why it encodes no more; another one may.
    fn gave_up(&self) -> Option<&str> {
        None
    }
    /// What was changed by itself since the last call.
    fn take_changes(&mut self) -> Vec<Step> {
        Vec::new()
    }
    /// Adds what it knows of what it did.
    fn describe(&self, about: &mut Recoding);
}

/// A thread that reads messages of a topic and gives them another form.
struct Source {
    made: Option<Receiver<(Key, Made)>>,
    head: Option<(Key, Made)>,
    coder: Option<JoinHandle<Box<dyn Coder>>>,
}

impl Source {
    /// Reads the messages of a filter that have the topic's type, and its publisher if `is_by_publisher`. An error is one clause.
    fn start(
        inputs: &BagSet,
        topic: &TopicInfo,
        (mut filter, is_by_publisher): (MessageFilter, bool),
        make: impl FnOnce() -> Box<dyn Coder> + Send + 'static,
    ) -> Result<Self, String> {
        let (to, made) = mpsc::sync_channel(READY_MAX);
        let (inputs, topic) = (inputs.clone(), topic.clone());
        if is_by_publisher {
            narrow(&mut filter, &topic);
        }
        let run = move || {
            let mut coder = make();
            // A receiver that has ended needs nothing more.
            let mut send = |key, made| to.send((key, made)).is_ok();
            let mut sent = Sent {
                to: &mut send,
                is_over: false,
            };
            let is_its = |one: &TopicInfo| {
                one.type_name == topic.type_name && (!is_by_publisher || gid_of(one) == gid_of(&topic))
            };
            // What cannot be read is reported by the one who copies.
            let messages = inputs.messages(&filter).filter_map(Result::ok);
            for message in messages.filter(|message| is_its(&message.topic)) {
                coder.take(&message, &mut sent);
                if sent.is_over {
                    return coder;
                }
            }
            coder.end(&mut sent);
            coder
        };
        let thread = thread::Builder::new().name("recode".into()).spawn(run);
        let coder = thread.map_err(|error| format!("no thread can be started: {error}"))?;
        Ok(Self {
            made: Some(made),
            head: None,
            coder: Some(coder),
        })
    }

    /// What was made of a message.
    fn of(&mut self, key: Key) -> Made {
        loop {
            let next = self.head.take().or_else(|| self.made.as_ref()?.recv().ok());
            match next {
                Some((found, made)) if found == key => return made,
                // One that the copy does not have: it could not be read there.
                Some((found, _)) if found.stamp < key.stamp => {}
                Some(later) => {
                    self.head = Some(later);
                    return Err("it could be read only once".to_owned());
                }
                None => return Err("the thread that gives it another form has ended".to_owned()),
            }
        }
    }

    /// Whether it has messages to read.
    fn is_running(&self) -> bool {
        self.coder.as_ref().is_some_and(|coder| !coder.is_finished())
    }

    /// Ends it; `None` if it panicked.
    fn finish(mut self) -> Option<Box<dyn Coder>> {
        self.made = None;
        self.coder.take()?.join().ok()
    }
}

/// Whether one more publisher of a topic can be decoded at a time. An error is one clause.
fn expect_few<'a>(sources: impl Iterator<Item = &'a Source>) -> Result<(), String> {
    match sources.filter(|source| source.is_running()).count() {
        ..PUBLISHERS_MAX => Ok(()),
        _ => Err(format!(
            "more than {PUBLISHERS_MAX} publishers send on its topic at a time"
        )),
    }
}

/// Leaves the messages of a topic's publisher, where the bag distinguishes it.
fn narrow(filter: &mut MessageFilter, topic: &TopicInfo) {
    if let Some(gid) = gid_of(topic) {
        filter.publishers = Some(Arc::new(PublisherChoice::one(&topic.name, gid)));
    }
}

/// What distinguishes the publishers of a topic; `None` where the bag does not.
fn gid_of(topic: &TopicInfo) -> Option<&str> {
    let publisher = topic.publisher.as_ref();
    publisher.map(|publisher| publisher.gid.as_str())
}

/// Makes the coder of a topic, or of one of its publishers.
type MakeCoder = dyn Fn() -> Box<dyn Coder> + Send + Sync;

/// A topic whose messages get another form.
struct Stream {
    from: String,
    into: &'static str,
    inputs: BagSet,
    make: Arc<MakeCoder>,
    /// By publisher, where each one has its own.
    sources: BTreeMap<Option<String>, Source>,
    is_by_publisher: bool,
    account: Recoding,
}

impl Stream {
    fn new(
        inputs: &BagSet,
        topic: &TopicInfo,
        into: &'static str,
        make: impl Fn() -> Box<dyn Coder> + Send + Sync + 'static,
    ) -> Self {
        Self {
            from: topic.type_name.clone(),
            into,
            inputs: inputs.clone(),
            make: Arc::new(make),
            sources: BTreeMap::new(),
            is_by_publisher: false,
            account: Recoding {
                topic: topic.name.clone(),
                from: topic.type_name.clone(),
                into: into.to_owned(),
                ..Recoding::default()
            },
        }
    }

    /// The messages of each publisher are decoded alone: pictures of two videos do not depend on each other.
    fn by_publisher(mut self) -> Self {
        self.is_by_publisher = true;
        self
    }

    /// Reads ahead from now on.
    fn start(&mut self, topic: &TopicInfo) -> Result<&mut Source, String> {
        let gid = gid_of(topic).filter(|_| self.is_by_publisher).map(str::to_owned);
        if !self.sources.contains_key(&gid) {
            expect_few(self.sources.values())?;
        }
        match self.sources.entry(gid) {
            Entry::Occupied(source) => Ok(source.into_mut()),
            Entry::Vacant(place) => {
                let make = Arc::clone(&self.make);
                let filter = (of_topic(&topic.name), self.is_by_publisher);
                let source = Source::start(&self.inputs, topic, filter, move || make())?;
                Ok(place.insert(source))
            }
        }
    }

    fn of(&mut self, message: &BagMessage) -> Made {
        let source = self.start(&message.topic)?;
        source.of(Key::of(message))
    }

    fn recode(&mut self, message: &BagMessage) -> Option<Bytes> {
        match self.of(message) {
            Ok(payload) => {
                self.account.messages += 1;
                self.account.bytes_before += message.payload.len() as u64;
                self.account.bytes_after += payload.len() as u64;
                self.account.note_key(&payload, message.log_time);
                Some(payload)
            }
            Err(reason) => {
                self.account.keep(&reason);
                None
            }
        }
    }

    fn finish(mut self) -> Recoding {
        for source in std::mem::take(&mut self.sources).into_values() {
            match source.finish() {
                Some(mut coder) => {
                    coder.describe(&mut self.account);
                    self.account.steps.extend(coder.take_changes());
                }
                // It panicked: nothing shows that what it made can be restored.
                None => self.account.exactness = Exactness::Lossy,
            }
        }
        self.account
    }
}

/// Which topics get another form.
enum Plan {
    Encode(Vec<Rule>),
    Decode {
        /// Images that were files become files.
        makes_files: bool,
    },
}

/// Gives images and point clouds a smaller form, or their first one again.
pub struct Recoder {
    plan: Plan,
    streams: BTreeMap<String, Stream>,
}

impl Recoder {
    /// Encodes the topics of these rules; the first rule that names a topic counts.
    pub const fn encoding(rules: Vec<Rule>) -> Self {
        Self {
            plan: Plan::Encode(rules),
            streams: BTreeMap::new(),
        }
    }

    /// Restores what the bags say was encoded. `None` if that is nothing.
    pub fn decoding<'a>(custom_data: impl IntoIterator<Item = &'a BTreeMap<String, String>>) -> Option<Self> {
        let mut all = custom_data.into_iter().flat_map(encoded);
        all.next().map(|_| Self {
            plan: Plan::Decode { makes_files: true },
            streams: BTreeMap::new(),
        })
    }

    /// Restores images that were files as plain ones: as files they would lose something once more.
    fn without_files(mut self) -> Self {
        self.plan = Plan::Decode { makes_files: false };
        self
    }
}

/// The topics that are encoded, with what was done last.
fn encoded(custom_data: &BTreeMap<String, String>) -> impl Iterator<Item = Recoding> + use<> {
    let mut last = BTreeMap::new();
    for recoding in Recoding::list_in(custom_data) {
        add_encoded(&mut last, recoding);
    }
    last.into_values().filter(|recoding| recoding.codec != RESTORED)
}

/// The same of several bags.
fn encoded_in(inputs: &BagSet) -> impl Iterator<Item = Recoding> + use<> {
    let mut all = BTreeMap::new();
    let each = inputs.bags().iter();
    for recoding in each.flat_map(|bag| encoded(&bag.metadata().custom_data)) {
        add_encoded(&mut all, recoding);
    }
    all.into_values()
}

/// Adds what was done to a topic after what is known of it. Videos of images in several forms are restored as colours, which all of them are decoded to:
/// which picture had which form is not known.
fn add_encoded(all: &mut BTreeMap<String, Recoding>, mut recoding: Recoding) {
    let is_video = |one: &Recoding| Codec::named(&one.codec).is_some();
    let before = all
        .get(&recoding.topic)
        .filter(|before| is_video(before) && is_video(&recoding));
    if let Some((before, one)) = before.and_then(|before| Some((before, before.image.as_ref()?)))
        && let Some(form) = &mut recoding.image
    {
        if (&one.encoding, one.is_bigendian) != (&form.encoding, form.is_bigendian) {
            form.encoding = "rgb8".to_owned();
            form.is_bigendian = 0;
        }
        let sizes = before.sizes.iter().copied().chain([[one.width, one.height]]);
        recoding.sizes.extend(sizes);
    }
    all.insert(recoding.topic.clone(), recoding);
}

/// Whether the first good image of a topic is one that lossless video does not hold.
fn has_stills(inputs: &BagSet, topic: &TopicInfo) -> bool {
    if topic.type_name != IMAGE {
        return false;
    }
    let messages = inputs.messages(&of_topic(&topic.name)).filter_map(Result::ok);
    let mut tried = messages.take(TRIED_MAX);
    let found = tried.find_map(|message| still::is_needed(&message));
    found == Some(true)
}

fn of_topic(name: &str) -> MessageFilter {
    MessageFilter {
        topics: Some(Arc::new([name.to_owned()].into())),
        verified: true,
        ..MessageFilter::default()
    }
}

impl Recoder {
    fn begin_encoding(
        &mut self,
        inputs: &BagSet,
        topics: &[TopicInfo],
        rules: &[Rule],
    ) -> Result<(), ToolError> {
        for rule in rules {
            if !topics.iter().any(|topic| rule.takes(topic)) {
                let suiting = topics.iter().filter(|topic| rule.suits(topic));
                let known = listed(suiting.map(|topic| topic.name.as_str()));
                let (what, asked) = (rule.what(), rule.topics());
                let reason = format!("no topic of {what} is named {asked:?}; there are {known}");
                return Err(ChoiceError::Nothing { reason }.into());
            }
        }
        for topic in topics {
            let Some(rule) = rules.iter().find(|rule| rule.takes(topic)) else {
                continue;
            };
            let mut stream = match rule.how().clone() {
                How::Cloud(options) => Stream::new(inputs, topic, COMPRESSED_CLOUD, move || {
                    Box::new(cloud::Encoder::new(options))
                }),
                How::Video(options) if options.quality.is_none() && has_stills(inputs, topic) => {
                    Stream::new(inputs, topic, COMPRESSED_IMAGE, || {
                        Box::new(still::Encoder::default())
                    })
                }
                How::Video(options) => Stream::new(inputs, topic, options.carrier.type_name(), move || {
                    Box::new(video::Encoder::new(options.clone(), &Stop::default()))
                }),
            };
            let started = stream.start(topic).map(|_| ());
            started.map_err(|reason| ToolError::Unsupported {
                path: topic.name.as_str().into(),
                reason,
            })?;
            self.streams.insert(topic.name.clone(), stream);
        }
        Ok(())
    }

    fn begin_decoding(&mut self, inputs: &BagSet, topics: &[TopicInfo], makes_files: bool) {
        for recoding in encoded_in(inputs) {
            let is_it = |topic: &&TopicInfo| topic.name == recoding.topic && topic.type_name == recoding.into;
            let Some(topic) = topics.iter().find(is_it) else {
                continue;
            };
            let is_video = Codec::named(&recoding.codec).is_some();
            let is_file = makes_files && recoding.from == COMPRESSED_IMAGE;
            let sizes = recoding.sizes;
            let mut stream = match (topic.type_name.as_str(), recoding.image) {
                (COMPRESSED_CLOUD, _) => Stream::new(inputs, topic, CLOUD, || Box::new(cloud::Decoder)),
                (COMPRESSED_VIDEO | FFMPEG_PACKET | COMPRESSED_IMAGE, Some(form)) if is_video => {
                    let into = if is_file { COMPRESSED_IMAGE } else { IMAGE };
                    let decoder = move || -> Box<dyn Coder> {
                        let decoder = decoder::Decoder::new(Some(form.clone())).sized(sizes.clone());
                        Box::new(if is_file { decoder.into_files() } else { decoder })
                    };
                    Stream::new(inputs, topic, into, decoder).by_publisher()
                }
                (COMPRESSED_IMAGE, Some(form)) => Stream::new(inputs, topic, IMAGE, move || {
                    Box::new(still::Decoder::new(form.clone()))
                }),
                _ => continue,
            };
            RESTORED.clone_into(&mut stream.account.codec);
            stream.account.exactness = recoding.exactness;
            self.streams.insert(topic.name.clone(), stream);
        }
    }
}

impl Recode for Recoder {
    fn begin(&mut self, inputs: &BagSet) -> Result<(), ToolError> {
        let topics = inputs.topics();
        match std::mem::replace(&mut self.plan, Plan::Encode(Vec::new())) {
            Plan::Encode(rules) => self.begin_encoding(inputs, &topics, &rules),
            Plan::Decode { makes_files } => {
                self.begin_decoding(inputs, &topics, makes_files);
                Ok(())
            }
        }
    }

    fn form(&self, topic: &TopicInfo) -> Option<MessageDefinition> {
        let stream = self.streams.get(&topic.name)?;
        (stream.from == topic.type_name).then(|| definition(stream.into))
    }

    fn recode(&mut self, message: &BagMessage) -> Option<Bytes> {
        self.streams.get_mut(&message.topic.name)?.recode(message)
    }

    fn finish(&mut self) -> Vec<Recoding> {
        let streams = std::mem::take(&mut self.streams).into_values();
        streams.map(Stream::finish).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_model::recoding::ImageForm;

    fn video(encoding: &str, width: u32) -> Recoding {
        Recoding {
            topic: "/camera".to_owned(),
            codec: "h264".to_owned(),
            image: Some(ImageForm {
                width,
                height: 48,
                encoding: encoding.to_owned(),
                is_bigendian: 0,
            }),
            ..Recoding::default()
        }
    }

    #[test]
    fn videos_of_images_in_several_forms_are_restored_as_colours() {
        for (encodings, expected) in [
            (["mono8", "mono8"], "mono8"),
            (["rgb8", "mono8"], "rgb8"),
            (["mono8", "bgr8"], "rgb8"),
        ] {
            let list: Vec<Recoding> = encodings
                .iter()
                .zip([64, 32])
                .map(|(one, width)| video(one, width))
                .collect();
            let [joined] = encoded(&Recoding::list_to_custom_data(&list).into_iter().collect())
                .collect::<Vec<_>>()
                .try_into()
                .expect("one topic");
            assert_eq!(joined.image.expect("a form").encoding, expected);
            assert_eq!(joined.sizes, [[64, 48]]);
        }
    }
}
