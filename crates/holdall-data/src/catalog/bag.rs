//! The rows of one bag, from its metadata and the summaries of its files. No message is read.

use super::{
    scan::Candidate,
    table::{self, BagRows, Cell},
};
use holdall_bag::reader::{Bag, BagFile, BagState, Condition, ReadError, TopicPublisher};
use holdall_io::fs;
use holdall_model::{
    contract::CONTRACT_CUSTOM_KEY,
    episode::{Episode, OUTCOME, TASK},
    loss::{LossStage, LossSums, ledger::Ledger},
    marker::Marker,
    qos::QosProfile,
    time::Timestamp,
    topic::TopicInfo,
};
use holdall_storage::{
    chunks::ChunkFile,
    reader::{ChannelSummary, StorageSummary},
    writer::ChannelIndex,
};
use serde_json::json;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Keys of `custom_data` that are holdall's own, and in other tables.
const OWN_KEYS: &str = "holdall.";

/// The rows of a bag, and why it cannot be read, if so.
pub(super) fn rows_of(candidate: &Candidate) -> (BagRows, Option<String>) {
    let mut rows = BagRows::default();
    let failure = match Bag::open(&candidate.path) {
        Ok(bag) => {
            Described::new(candidate, &bag).write(&mut rows);
            None
        }
        Err(error) => {
            let notice = error.to_string();
            let condition = Condition::of_error(&error);
            rows[table::BAGS].push(unreadable(candidate, condition, &notice));
            Some(notice)
        }
    };
    (rows, failure)
}

fn unreadable(candidate: &Candidate, condition: Condition, notice: &str) -> Vec<Cell> {
    let spec = &table::TABLES[table::BAGS];
    let mut row = vec![Cell::Missing; spec.columns.len()];
    let mut set = |name: &str, cell: Cell| {
        if let Some(place) = spec.column(name) {
            row[place] = cell;
        }
    };
    set("bag", path_text(candidate));
    set("root", (&*candidate.root.to_string_lossy()).into());
    set("name", name_of(candidate));
    set("state", condition.as_str().into());
    set("notice", notice.into());
    let described = [candidate.path.join("metadata.yaml"), candidate.path.clone()];
    set(
        "encrypted",
        described.iter().any(|path| fs::is_stored_sealed(path)).into(),
    );
    set("fingerprint", (&*candidate.fingerprint).into());
    row
}

fn path_text(candidate: &Candidate) -> Cell {
    (&*candidate.path.to_string_lossy()).into()
}

fn name_of(candidate: &Candidate) -> Cell {
    let name = candidate.path.file_name().unwrap_or(candidate.path.as_os_str());
    (&*name.to_string_lossy()).into()
}

fn time_cell(time: Option<Timestamp>) -> Cell {
    time.map(Timestamp::as_nanos).into()
}

/// A storage file that was opened.
struct OpenedFile {
    chunks: Option<Box<dyn ChunkFile>>,
}

/// Known facts about a bag.
struct Described<'a> {
    candidate: &'a Candidate,
    bag: &'a Bag,
    name: Cell,
    ledger: Option<Ledger>,
    /// `None` if the account cannot be read.
    state: Option<BagState>,
    files: Vec<OpenedFile>,
    /// Unreadable parts, with the bag's own notices first.
    notices: Vec<String>,
}

impl<'a> Described<'a> {
    fn new(candidate: &'a Candidate, bag: &'a Bag) -> Self {
        let mut described = Self {
            candidate,
            bag,
            name: path_text(candidate),
            ledger: None,
            state: None,
            files: Vec::new(),
            notices: bag.notices().to_vec(),
        };
        described.open_files();
        match bag.state() {
            Ok(state) => described.state = Some(state),
            Err(error) => described.notices.push(error.to_string()),
        }
        let packed = bag.files().last().is_some_and(BagFile::is_packed);
        if !packed {
            described.ledger = bag.any_ledger().ok().flatten();
        }
        described
    }

    fn open_files(&mut self) {
        let storage = self.bag.chunks();
        for file in self.bag.files() {
            let opened = match storage {
                Some(storage) if !file.is_packed() && fs::is_file(&file.path) => {
                    storage.open(&file.path).map(Some).map_err(ReadError::from)
                }
                _ => Ok(None),
            };
            let chunks = opened.unwrap_or_else(|error| {
                self.notices.push(error.to_string());
                None
            });
            self.files.push(OpenedFile { chunks });
        }
    }

    fn write(&self, rows: &mut BagRows) {
        rows[table::BAGS].push(self.bag_row());
        self.files(&mut rows[table::FILES]);
        self.topics(&mut rows[table::TOPICS]);
        self.publishers(&mut rows[table::PUBLISHERS]);
        self.losses(&mut rows[table::LOSSES]);
        let markers = self.bag.markers().unwrap_or_default();
        for marker in &markers {
            rows[table::MARKERS].push(vec![
                self.name.clone(),
                time_cell(Some(marker.time)),
                (&*marker.name).into(),
            ]);
        }
        let episodes = Marker::episodes(&markers).into_iter();
        rows[table::EPISODES].extend(episodes.map(|episode| self.episode(&episode)));
        let custom = self.bag.metadata().custom_data.iter();
        for (key, value) in custom.filter(|(key, _)| !key.starts_with(OWN_KEYS)) {
            rows[table::LABELS].push(vec![self.name.clone(), (&**key).into(), (&**value).into()]);
        }
        self.chunks(&mut rows[table::CHUNKS]);
    }

    fn episode(&self, episode: &Episode) -> Vec<Cell> {
        let field = |name: &str| episode.fields.get(name).map(String::as_str).into();
        let duration = episode.duration().map(|span| span.as_nanos());
        vec![
            self.name.clone(),
            episode.number.into(),
            time_cell(Some(episode.start)),
            time_cell(episode.until),
            duration.and_then(|nanos| i64::try_from(nanos).ok()).into(),
            episode.end.as_str().into(),
            field(TASK),
            field(OUTCOME),
            field("operator"),
            (&*json!(episode.fields).to_string()).into(),
        ]
    }

    fn lost(&self, topic: Option<&str>) -> Cell {
        let Some(lost) = self.state.as_ref().and_then(|state| state.lost.as_ref()) else {
            return Cell::Missing;
        };
        let of_topic = lost
            .iter()
            .filter(|(name, _)| topic.is_none_or(|topic| *name == topic));
        LossSums::of_all(of_topic.map(|(_, stages)| stages)).lost.into()
    }

    fn bag_row(&self) -> Vec<Cell> {
        let metadata = self.bag.metadata();
        let custom_data = |key| metadata.custom_data.get(key).map(String::as_str).into();
        let condition = self
            .state
            .as_ref()
            .map_or(Condition::Damaged, |state| state.condition);
        let chunked = self
            .files
            .iter()
            .find_map(|file| file.chunks.as_ref()?.summary().compression.clone());
        let packed = Some(metadata.compression_format.clone()).filter(|format| !format.is_empty());
        let topics: BTreeSet<&str> = metadata
            .topics_with_message_count
            .iter()
            .map(|topic| &*topic.topic_metadata.name)
            .collect();
        let duration = metadata.starting_time.map(|_| metadata.duration.as_nanos());
        vec![
            self.name.clone(),
            (&*self.candidate.root.to_string_lossy()).into(),
            name_of(self.candidate),
            condition.as_str().into(),
            (&*metadata.storage_identifier).into(),
            packed.or(chunked).as_deref().into(),
            metadata.ros_distro.as_deref().into(),
            self.bag.files().iter().any(BagFile::is_sealed).into(),
            (self.bag.files().len() as u64).into(),
            self.bag.size_bytes().into(),
            (topics.len() as u64).into(),
            metadata.message_count.into(),
            time_cell(metadata.starting_time),
            time_cell(metadata.ending_time()),
            duration.and_then(|nanos| i64::try_from(nanos).ok()).into(),
            self.lost(None),
            custom_data(CONTRACT_CUSTOM_KEY),
            self.notices.first().map(String::as_str).into(),
            (&*self.candidate.fingerprint).into(),
        ]
    }

    /// Messages and times of a file, by the metadata or its own summary.
    fn contents(&self, number: usize) -> (Option<u64>, Option<Timestamp>, Option<Timestamp>) {
        let metadata = self.bag.metadata();
        if metadata.files.len() == self.bag.files().len() {
            let info = &metadata.files[number];
            let end = info
                .starting_time
                .map(|start| start.saturating_add(info.duration));
            return (Some(info.message_count), info.starting_time, end);
        }
        if let Some(chunks) = &self.files[number].chunks {
            let summary = chunks.summary();
            return (
                Some(summary.message_count),
                summary.starting_time,
                summary.ending_time,
            );
        }
        match self.bag.files().len() {
            1 => (
                Some(metadata.message_count),
                metadata.starting_time,
                metadata.ending_time(),
            ),
            _ => (None, metadata.starting_time, metadata.ending_time()),
        }
    }

    fn files(&self, rows: &mut Vec<Vec<Cell>>) {
        for (number, file) in self.bag.files().iter().enumerate() {
            let (messages, start, end) = self.contents(number);
            rows.push(vec![
                self.name.clone(),
                (number as u64).into(),
                (&*file.path.to_string_lossy()).into(),
                file.bytes.into(),
                messages.map_or(Cell::Missing, Cell::from),
                time_cell(start),
                time_cell(end),
            ]);
        }
    }

    fn topics(&self, rows: &mut Vec<Vec<Cell>>) {
        for topic in &self.bag.metadata().topics_with_message_count {
            let info = &topic.topic_metadata;
            let account = self
                .ledger
                .as_ref()
                .and_then(|ledger| ledger.topics.iter().find(|account| account.name == info.name));
            let hash = Some(&*info.type_description_hash).filter(|hash| !hash.is_empty());
            let (reliability, durability) = policies(info);
            rows.push(vec![
                self.name.clone(),
                (&*info.name).into(),
                (&*info.type_name).into(),
                hash.into(),
                (&*info.serialization_format).into(),
                reliability.as_deref().into(),
                durability.as_deref().into(),
                topic.message_count.into(),
                account.map_or(Cell::Missing, |account| account.recorded_bytes.into()),
                self.lost(Some(&info.name)),
            ]);
        }
        self.lost_only(rows);
    }

    /// Topics without recorded messages, but with losses.
    fn lost_only(&self, rows: &mut Vec<Vec<Cell>>) {
        let topics = &self.bag.metadata().topics_with_message_count;
        let is_listed = |name: &str| topics.iter().any(|topic| topic.topic_metadata.name == name);
        let accounts = self.ledger.iter().flat_map(|ledger| &ledger.topics);
        for account in accounts.filter(|account| account.lost() > 0 && !is_listed(&account.name)) {
            let lost = self.lost(Some(&account.name));
            let mut row = vec![Cell::Missing; table::TABLES[table::TOPICS].columns.len()];
            row[0] = self.name.clone();
            row[1] = (&*account.name).into();
            if let Some(last) = row.last_mut() {
                *last = lost;
            }
            rows.push(row);
        }
    }

    fn publishers(&self, rows: &mut Vec<Vec<Cell>>) {
        // Where files repeat messages, the counts of their channels are too high.
        let found = if self.bag.repeats().is_empty() {
            self.publishers_of_channels()
        } else {
            self.bag.publishers().unwrap_or_default()
        };
        for TopicPublisher {
            topic,
            publisher,
            message_count,
        } in found
        {
            let Some(publisher) = publisher else {
                continue;
            };
            rows.push(vec![
                self.name.clone(),
                (&*topic).into(),
                (&*publisher.gid).into(),
                publisher.node.as_deref().into(),
                publisher.host.as_deref().into(),
                publisher.transport.as_deref().into(),
                message_count.into(),
            ]);
        }
    }

    fn publishers_of_channels(&self) -> Vec<TopicPublisher> {
        let mut found: BTreeMap<(String, String), TopicPublisher> = BTreeMap::new();
        let summaries = self
            .files
            .iter()
            .filter_map(|file| Some(file.chunks.as_ref()?.summary()));
        for ChannelSummary { info, message_count } in summaries.flat_map(|summary| &summary.channels) {
            let Some(publisher) = &info.topic.publisher else {
                continue;
            };
            let key = (info.topic.name.clone(), publisher.gid.clone());
            let entry = found.entry(key).or_insert_with(|| TopicPublisher {
                topic: info.topic.name.clone(),
                publisher: Some((**publisher).clone()),
                message_count: 0,
            });
            entry.message_count += message_count;
        }
        // A node's name that was discovered late is in the ledger only.
        for topic in self.ledger.iter().flat_map(|ledger| &ledger.topics) {
            for stored in topic.publishers.iter().filter_map(|account| account.info()) {
                let known = found.get_mut(&(topic.name.clone(), stored.gid.clone()));
                if let Some(known) = known.and_then(|entry| entry.publisher.as_mut()) {
                    known.node = known.node.take().or(stored.node);
                    known.host = known.host.take().or(stored.host);
                    known.transport = known.transport.take().or(stored.transport);
                }
            }
        }
        found.into_values().collect()
    }

    fn losses(&self, rows: &mut Vec<Vec<Cell>>) {
        for topic in self.ledger.iter().flat_map(|ledger| &ledger.topics) {
            for (stage, count) in topic.missing.iter().filter(|(_, count)| **count > 0) {
                let intervals = || {
                    let all = topic.publishers.iter().flat_map(|publisher| &publisher.intervals);
                    all.filter(|interval| interval.stage == *stage)
                };
                rows.push(vec![
                    self.name.clone(),
                    (&*topic.name).into(),
                    stage.as_str().into(),
                    (*count).into(),
                    LossStage::is_shortfall(*stage).into(),
                    time_cell(intervals().filter_map(|interval| interval.first_time).min()),
                    time_cell(intervals().filter_map(|interval| interval.last_time).max()),
                ]);
            }
        }
    }

    fn chunks(&self, rows: &mut Vec<Vec<Cell>>) {
        let mut all = Vec::new();
        for (number, file) in self.bag.files().iter().enumerate() {
            let listed = self.files[number].chunks.as_ref();
            match listed.and_then(|chunks| Some((chunks.summary(), chunks.chunks().ok()?))) {
                Some((summary, chunks)) => {
                    let names = ChannelNames::new(summary);
                    rows.extend(chunks.iter().map(|chunk| {
                        vec![
                            self.name.clone(),
                            (number as u64).into(),
                            chunk.offset.into(),
                            chunk.length.into(),
                            chunk.uncompressed_bytes.into(),
                            chunk.compression.as_deref().into(),
                            time_cell(Some(chunk.starting_time)),
                            time_cell(Some(chunk.ending_time)),
                            Cell::Texts(names.of(chunk.channels.as_deref())),
                        ]
                    }));
                }
                None => {
                    if all.is_empty() {
                        let topics = &self.bag.metadata().topics_with_message_count;
                        all = topics
                            .iter()
                            .map(|topic| Arc::from(&*topic.topic_metadata.name))
                            .collect();
                    }
                    rows.push(self.whole_file(number, file, &all));
                }
            }
        }
    }

    /// A file without chunks, or whose chunks are not known without unpacking it, as one part.
    fn whole_file(&self, number: usize, file: &BagFile, topics: &[Arc<str>]) -> Vec<Cell> {
        let (_, start, end) = self.contents(number);
        vec![
            self.name.clone(),
            (number as u64).into(),
            0_u64.into(),
            file.bytes.into(),
            Cell::Missing,
            Cell::Missing,
            time_cell(start),
            time_cell(end),
            Cell::Texts(topics.to_vec()),
        ]
    }
}

/// Reliability and durability of a topic's first offer.
fn policies(info: &TopicInfo) -> (Option<String>, Option<String>) {
    let Some(offer) = info.offered_qos_profiles.first() else {
        return (None, None);
    };
    let QosProfile {
        reliability,
        durability,
        ..
    } = offer;
    let text = |value: serde_json::Value| value.as_str().map(str::to_owned);
    (
        serde_json::to_value(reliability).ok().and_then(text),
        serde_json::to_value(durability).ok().and_then(text),
    )
}

/// The topics of a file's channels.
struct ChannelNames {
    names: Vec<Arc<str>>,
    all: Vec<Arc<str>>,
}

impl ChannelNames {
    fn new(summary: &StorageSummary) -> Self {
        let names: Vec<Arc<str>> = summary
            .channels
            .iter()
            .map(|channel| Arc::from(&*channel.info.topic.name))
            .collect();
        let with_messages = names
            .iter()
            .zip(&summary.channels)
            .filter(|(_, channel)| channel.message_count > 0);
        let all: BTreeSet<Arc<str>> = with_messages.map(|(name, _)| Arc::clone(name)).collect();
        Self {
            names,
            all: all.into_iter().collect(),
        }
    }

    /// The topics of a chunk; all of the file's where that is not known.
    fn of(&self, channels: Option<&[ChannelIndex]>) -> Vec<Arc<str>> {
        let Some(channels) = channels else {
            return self.all.clone();
        };
        let found: BTreeSet<&Arc<str>> = channels
            .iter()
            .filter_map(|channel| self.names.get(channel.0 as usize))
            .collect();
        found.into_iter().cloned().collect()
    }
}
