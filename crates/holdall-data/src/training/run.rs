//! Reads bags, makes frames, and gives them to the dataset.

use super::{
    Copies, Dataset, Episode, FeatureReport, Place, TrainingError, TrainingFormat, TrainingOptions,
    TrainingReport,
    copies::{Judge, Recorded},
    divide,
    episodes::{Cut, Cutter},
    frames::{Frame, FrameRule, Sampler, Step},
    lerobot::LeRobot,
    mapping::{Divider, Missing},
    picture::{self, Picture},
    render::{Item, Job, Message, Rendered, Source, render},
    schema::{Column, Kind},
    values::Extractor,
    webdataset::WebDataset,
};
use bytes::Bytes;
use holdall_bag::{
    decode::{ChoiceError, Decoders, MessageChoice, TimeBase},
    reader::{Bag, BagMessage, BagSet},
};
use holdall_media::recode::Plain;
use std::{collections::BTreeSet, path::Path, sync::Arc, time::Duration};

/// Bytes of messages of frames that are made together.
const BATCH_BYTES: usize = 32 << 20;
/// Frames that are made together.
const BATCH_FRAMES: usize = 1024;
/// Smaller messages are copied, so that a frame does not keep a chunk of a file in memory for each.
const COPIED_BYTES: usize = 64 << 10;

/// A dataset in the making.
pub(super) struct Run<'a> {
    options: &'a TrainingOptions,
    folder: &'a Path,
    copies: &'a Copies,
    /// With it nothing is decoded or written: episodes are judged.
    judge: Option<Judge>,
    sampler: Sampler<Arc<Message>>,
    /// How the features are read out of the bag at hand, and their types.
    sources: Vec<Source>,
    types: Vec<String>,
    /// Messages of each feature so far.
    counts: Vec<u64>,
    /// Decodes video of the bag at hand.
    plain: Option<Plain>,
    /// Frames that were not made yet, of the open episode.
    pending: Vec<Frame<Arc<Message>>>,
    pending_bytes: usize,
    open: Option<Open>,
    dataset: Option<(Box<dyn Dataset + 'a>, Vec<Column>)>,
    report: TrainingReport,
    messages: u64,
}

/// The episode that is being made.
struct Open {
    episode: Episode,
    /// Frames, with those that are pending.
    frames: u64,
    is_begun: bool,
    /// The last item of each feature.
    last: Vec<Option<Arc<Item>>>,
}

impl<'a> Run<'a> {
    pub fn new(
        options: &'a TrainingOptions,
        folder: &'a Path,
        (copies, judge): (&'a Copies, Option<Judge>),
    ) -> Self {
        let mapping = &options.mapping;
        let rule = FrameRule {
            fps: mapping.fps,
            tolerance_ns: mapping.tolerance_ns(),
            sample: mapping.sample,
            missing: mapping.missing,
        };
        let features = mapping.features.iter().map(|(name, feature)| FeatureReport {
            feature: name.clone(),
            topic: feature.topic.clone(),
            ..FeatureReport::default()
        });
        Self {
            options,
            folder,
            copies,
            judge,
            counts: vec![0; mapping.features.len()],
            sampler: Sampler::new(rule, mapping.features.len()),
            sources: Vec::new(),
            types: Vec::new(),
            plain: None,
            pending: Vec::new(),
            pending_bytes: 0,
            open: None,
            dataset: None,
            report: TrainingReport {
                dataset: options.folder.clone(),
                fps: mapping.fps,
                tolerance_ns: rule.tolerance_ns,
                features: features.collect(),
                ..TrainingReport::default()
            },
            messages: 0,
        }
    }

    /// Appends the episodes of all bags.
    pub fn bags(mut self, bags: &BagSet, progress: &mut dyn FnMut(u64)) -> Result<Self, TrainingError> {
        for bag in bags.bags() {
            self.bag(bag, progress)?;
        }
        Ok(self)
    }

    /// What was found out about the episodes.
    pub fn judged(self) -> Option<Judge> {
        self.judge
    }

    /// Appends the episodes of a bag.
    fn bag(&mut self, bag: &Bag, progress: &mut dyn FnMut(u64)) -> Result<(), TrainingError> {
        let bags = BagSet::from(vec![bag.clone()]);
        let mut decoders = Decoders::new(bags.clone());
        let messages = self.choice().messages(&bags, &mut decoders)?;
        self.read_types(&bags, &mut decoders)?;
        let mut cutter = divide::cutter(&self.options.mapping.episodes, bag)?;
        self.report.left_out += cutter.left_out;
        let mut dividing = divide::dividing_field(&self.options.mapping.episodes, &bags, &mut decoders)?;
        let divider_topic = self.options.mapping.episodes.topic.as_deref();
        self.sampler.forget(i64::MIN);
        self.sampler.end();
        let mut last = None;
        for message in messages {
            let message = match message {
                Ok(message) => message,
                Err(ChoiceError::Stamp { topic, reason, .. }) => {
                    let features = self.report.features.iter_mut().zip(&mut self.counts);
                    for (feature, count) in features.filter(|(feature, _)| feature.topic == topic) {
                        *count += 1;
                        failed(feature, reason.clone());
                    }
                    continue;
                }
                Err(error) => {
                    self.report.damaged.push(error.to_string());
                    continue;
                }
            };
            self.messages += 1;
            progress(self.messages);
            let stamp = message.stamp.as_nanos();
            let features = self.features_of(&message);
            features.iter().for_each(|feature| self.counts[*feature] += 1);
            if let Some(last) = last.filter(|last| stamp < *last) {
                let back = Duration::from_nanos(last.abs_diff(stamp));
                for feature in features {
                    let reason = format!("its {} goes back by {back:?}", self.options.mapping.stamp);
                    failed(&mut self.report.features[feature], reason);
                }
                continue;
            }
            last = Some(stamp);
            if let Some(field) = &mut dividing
                && divider_topic == Some(message.topic.name.as_str())
            {
                let value = field
                    .read(&message.payload)
                    .map_err(|reason| TrainingError::Episodes { reason })?;
                cutter.value(stamp, value);
            }
            if !features.is_empty() {
                cutter.message(stamp);
            }
            self.cut(&mut cutter, stamp, message.log_time.as_nanos(), bag)?;
            self.push(&features, stamp, message);
            self.advance(stamp, false)?;
        }
        if let Some(last) = last {
            self.close(last.saturating_add(1))?;
        }
        Ok(())
    }

    /// Completes the dataset.
    pub fn finish(mut self) -> Result<TrainingReport, TrainingError> {
        let reasons = self.report.features.iter().filter_map(|feature| {
            let reason = feature.first_failure.as_ref()?;
            Some(format!("{}: {reason}", feature.feature))
        });
        let Some((dataset, _)) = self.dataset.take() else {
            let reason = reasons.into_iter().next().unwrap_or_else(|| {
                if self.report.short > 0 {
                    "all episodes are shorter than min_s".to_owned()
                } else {
                    "there is no episode in which every feature has a message".to_owned()
                }
            });
            return Err(TrainingError::NoFrame { reason });
        };
        let episodes = self.report.episodes.len() as u64;
        let features = self.report.features.iter_mut().zip(self.sampler.fits());
        for (number, (feature, fit)) in features.enumerate() {
            feature.fit = *fit;
            feature.video = self.copies.report(number, episodes);
        }
        dataset.finish(&self.report)?;
        super::write_json(&self.folder.join(super::REPORT_FILE), &self.report)?;
        Ok(self.report)
    }

    fn choice(&self) -> MessageChoice {
        let mapping = &self.options.mapping;
        let topics = mapping.features.values().map(|feature| feature.topic.clone());
        MessageChoice {
            topics: topics.chain(mapping.episodes.topic.clone()).collect(),
            time: mapping.stamp,
            // The mapping was checked.
            time_of: mapping.stamps().unwrap_or_default(),
            ..self.options.choice.clone()
        }
    }

    /// How each feature is read out of the bag's messages.
    fn read_types(&mut self, bags: &BagSet, decoders: &mut Decoders) -> Result<(), TrainingError> {
        self.sources.clear();
        self.types.clear();
        let images = self
            .options
            .mapping
            .features
            .values()
            .filter(|feature| feature.is_image());
        let images: BTreeSet<&str> = images.map(|feature| feature.topic.as_str()).collect();
        let mut topics = bags.topics();
        topics.retain(|topic| images.contains(topic.name.as_str()));
        let plain = Plain::find(bags, &topics).map_err(|reason| TrainingError::Decoder { reason })?;
        for (name, feature) in &self.options.mapping.features {
            let failed = |reason: String| TrainingError::Feature {
                feature: name.clone(),
                reason,
            };
            let fields = divide::fields_of(
                bags,
                decoders,
                &feature.topic,
                |topic| plain.topic(topic).into_owned(),
                failed,
            )?;
            let type_name = fields.plan().type_name().to_owned();
            self.sources.push(if !feature.is_image() {
                Source::Fields(Box::new(Extractor::new(&fields, feature).map_err(failed)?))
            } else if picture::is_image(&type_name) {
                Source::Images {
                    fields,
                    is_video: feature.video,
                }
            } else {
                return Err(failed(format!(
                    "{} is a {type_name}, not an image; name its fields",
                    feature.topic,
                )));
            });
            self.types.push(type_name);
        }
        self.plain = Some(plain);
        Ok(())
    }

    /// Gives a message to its features; a picture of a video as an image.
    fn push(&mut self, features: &[usize], stamp: i64, message: BagMessage) {
        let followed = features.iter().find(|feature| self.copies.is_followed(**feature));
        let recorded = followed.and_then(|feature| Recorded::read(&message, self.counts[*feature]));
        let decoded = match &mut self.plain {
            _ if self.judge.is_some() => Ok(BagMessage {
                payload: Bytes::new(),
                ..message
            }),
            Some(plain) if !features.is_empty() => plain.decode(message),
            _ => Ok(message),
        };
        let message = decoded.map(|message| Message {
            plain: kept(message),
            recorded,
        });
        match message.map(Arc::new) {
            Ok(message) => features
                .iter()
                .for_each(|feature| self.sampler.push(*feature, stamp, Arc::clone(&message))),
            Err(reason) => features
                .iter()
                .for_each(|feature| failed(&mut self.report.features[*feature], reason.clone())),
        }
    }

    /// The features that a message is for, by number.
    fn features_of(&mut self, message: &BagMessage) -> Vec<usize> {
        let features = self.options.mapping.features.values().enumerate();
        let of_topic = features.filter(|(_, feature)| feature.topic == message.topic.name);
        let topic = &message.topic;
        let plain = self.plain.as_ref();
        let type_name = plain.map_or(topic.type_name.as_str(), |plain| plain.type_name(topic));
        let mut found = Vec::new();
        for (number, _) in of_topic {
            if self.types[number] == type_name {
                found.push(number);
            } else {
                let reason = format!("a message is a {type_name}");
                failed(&mut self.report.features[number], reason);
            }
        }
        found
    }

    /// Begins and ends episodes until the stamp of a message. Markers are on the recorder's clock: messages received from then on come after one.
    fn cut(
        &mut self,
        cutter: &mut Cutter,
        stamp: i64,
        log_time: i64,
        bag: &Bag,
    ) -> Result<(), TrainingError> {
        let episodes = &self.options.mapping.episodes;
        let by_log_time = matches!(episodes.by, Divider::Marker | Divider::Episode)
            && self.options.mapping.stamp == TimeBase::HeaderStamp;
        let now = if by_log_time { log_time } else { stamp };
        while let Some(mut cut) = cutter.next(now) {
            if by_log_time {
                cut.move_to(stamp);
            }
            match cut {
                Cut::End { at } => self.close(at)?,
                Cut::Begin { at, name } => {
                    self.close(at)?;
                    if episodes.by == Divider::Gap {
                        self.sampler.forget(at.saturating_sub(1));
                    }
                    self.sampler.begin(at);
                    let named = name.filter(|_| episodes.is_task);
                    self.open(Episode {
                        bag: bag.path().to_owned(),
                        task: named.unwrap_or_else(|| self.options.mapping.task.clone()),
                        ..Episode::default()
                    });
                }
            }
        }
        Ok(())
    }

    fn open(&mut self, episode: Episode) {
        self.open = Some(Open {
            episode,
            frames: 0,
            is_begun: false,
            last: vec![None; self.options.mapping.features.len()],
        });
    }

    /// Ends the episode, if one is open: its last frame is before `at`.
    fn close(&mut self, at: i64) -> Result<(), TrainingError> {
        if self.open.is_some() {
            self.advance(at, true)?;
            self.end_episode()?;
        }
        self.sampler.end();
        Ok(())
    }

    /// Takes the frames that are known at a time.
    fn advance(&mut self, now: i64, is_end: bool) -> Result<(), TrainingError> {
        while let Some(step) = self.sampler.step(now, is_end) {
            match step {
                Step::Frame(frame) => self.take(frame)?,
                Step::Missing { feature, at } => self.missing(feature, at)?,
            }
        }
        Ok(())
    }

    fn missing(&mut self, feature: usize, at: i64) -> Result<(), TrainingError> {
        if self.options.mapping.missing == Missing::Fail {
            let report = &self.report.features[feature];
            return Err(TrainingError::Feature {
                feature: report.feature.clone(),
                reason: format!("no message of {} within the tolerance at {at} ns", report.topic),
            });
        }
        let again = self.open.as_ref().map(|open| Episode {
            frames: 0,
            ..open.episode.clone()
        });
        self.end_episode()?;
        self.sampler.forget(at);
        if let Some(episode) = again {
            self.open(episode);
        }
        Ok(())
    }

    fn take(&mut self, frame: Frame<Arc<Message>>) -> Result<(), TrainingError> {
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        open.frames += 1;
        let is_long = open.frames >= self.options.mapping.frames_min();
        let bytes = frame.1.iter().map(|message| message.bytes());
        self.pending_bytes += bytes.sum::<usize>();
        self.pending.push(frame);
        let is_full = self.pending_bytes >= BATCH_BYTES || self.pending.len() >= BATCH_FRAMES;
        if is_full && is_long {
            self.flush()?;
        }
        Ok(())
    }

    fn end_episode(&mut self) -> Result<(), TrainingError> {
        let frames = self.open.as_ref().map_or(0, |open| open.frames);
        if frames < self.options.mapping.frames_min() {
            self.report.short += u64::from(frames > 0);
            self.pending.clear();
            self.pending_bytes = 0;
            self.open = None;
            return Ok(());
        }
        self.flush()?;
        if let Some(open) = self.open.take().filter(|open| open.is_begun) {
            if let Some((dataset, _)) = &mut self.dataset {
                dataset.end(&open.episode)?;
            }
            if let Some(judge) = &mut self.judge {
                judge.end();
            }
            self.report.episodes.push(open.episode);
        }
        Ok(())
    }

    /// Makes the pending frames.
    fn flush(&mut self) -> Result<(), TrainingError> {
        let pending = std::mem::take(&mut self.pending);
        self.pending_bytes = 0;
        let (jobs, places) = jobs(&pending);
        let rendered = match self.judge {
            Some(_) => jobs.iter().map(|(_, message)| judged_item(message)).collect(),
            None => render(&mut self.sources, &jobs, self.options.threads),
        };
        for ((feature, _), result) in jobs.iter().zip(&rendered) {
            if let Err(reason) = result {
                failed(&mut self.report.features[*feature], reason.clone());
            }
        }
        for ((at, _), places) in pending.iter().zip(places) {
            let items = self.items(&places, &rendered);
            if let Some(items) = items {
                self.write(*at, &items)?;
            }
        }
        Ok(())
    }

    /// The items of a frame: where a message could not be used, the last item before it.
    fn items(&mut self, places: &[usize], rendered: &[Rendered]) -> Option<Vec<Arc<Item>>> {
        let open = self.open.as_mut()?;
        for (feature, place) in places.iter().enumerate() {
            let Ok(item) = &rendered[*place] else {
                continue;
            };
            let kind = Kind::of(item);
            let column = self.dataset.as_ref().map(|(_, columns)| &columns[feature]);
            match column.filter(|column| column.kind != kind) {
                Some(column) => {
                    let reason = format!("a message has {kind}, the first had {}", column.kind);
                    failed(&mut self.report.features[feature], reason);
                }
                None => open.last[feature] = Some(Arc::clone(item)),
            }
        }
        open.last.iter().cloned().collect()
    }

    fn write(&mut self, at: i64, items: &[Arc<Item>]) -> Result<(), TrainingError> {
        if self.dataset.is_none() && self.judge.is_none() {
            self.dataset = Some(self.create(items)?);
        }
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        if let Some(judge) = &mut self.judge {
            judge.frame(items);
        }
        if !open.is_begun {
            open.is_begun = true;
            open.episode.episode = self.report.episodes.len() as u64;
            open.episode.start_ns = at;
            if let Some((dataset, _)) = &mut self.dataset {
                dataset.begin(&open.episode)?;
            }
        }
        if let Some((dataset, _)) = &mut self.dataset {
            dataset.frame(&open.episode, items)?;
        }
        open.episode.frames += 1;
        self.report.frames += 1;
        Ok(())
    }

    /// The dataset, with columns as the first frame has them.
    fn create(&self, items: &[Arc<Item>]) -> Result<(Box<dyn Dataset + 'a>, Vec<Column>), TrainingError> {
        let features = self.options.mapping.features.iter();
        let columns = features
            .zip(&self.sources)
            .zip(items)
            .map(|(((name, feature), source), item)| {
                Column::new(name, feature, source, item).map_err(|reason| TrainingError::Feature {
                    feature: name.clone(),
                    reason,
                })
            });
        let columns = columns.collect::<Result<Vec<Column>, _>>()?;
        let place = Place {
            folder: self.folder,
            mapping: &self.options.mapping,
            columns: columns.clone(),
            copied: self.copies.copied(),
        };
        let dataset: Box<dyn Dataset + 'a> = match self.options.format {
            TrainingFormat::LeRobot => Box::new(LeRobot::create(place)?),
            TrainingFormat::WebDataset => Box::new(WebDataset::create(place)?),
        };
        Ok((dataset, columns))
    }
}

/// Each message that frames take, once for each feature, and for each frame the places of its messages in that list.
fn jobs(frames: &[Frame<Arc<Message>>]) -> (Vec<Job>, Vec<Vec<usize>>) {
    let mut jobs: Vec<Job> = Vec::new();
    let mut places: Vec<Vec<usize>> = Vec::with_capacity(frames.len());
    for (_, messages) in frames {
        let of_frame = messages.iter().enumerate().map(|(feature, message)| {
            let before = places.last().map(|before| before[feature]);
            let same = before.filter(|place| Arc::ptr_eq(&jobs[*place].1, message));
            same.unwrap_or_else(|| {
                jobs.push((feature, Arc::clone(message)));
                jobs.len() - 1
            })
        });
        let of_frame = of_frame.collect();
        places.push(of_frame);
    }
    (jobs, places)
}

/// A message by which an episode is judged.
fn judged_item(message: &Message) -> Rendered {
    Ok(Arc::new(Item::Picture(Picture {
        recorded: message.recorded.clone(),
        ..Picture::default()
    })))
}

fn failed(report: &mut FeatureReport, reason: String) {
    report.failed += 1;
    report.first_failure.get_or_insert(reason);
}

/// A message that keeps little else in memory.
fn kept(mut message: BagMessage) -> BagMessage {
    if message.payload.len() < COPIED_BYTES {
        message.payload = Bytes::copy_from_slice(&message.payload);
    }
    message
}
