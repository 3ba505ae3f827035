//! Makes bags from bags of the same storage by copying chunks unchanged.

use super::{
    SplitAt, ToolError, Written,
    accounts::{Accounts, Taken},
    choice::Chooser,
    cuts::{Range, by_size, by_span},
    description::replace_metadata,
    latched::{Heads, InputState},
    left_out::Damage,
    unreadable::unreadable_by_topic,
};
use holdall_bag::{
    reader::{Bag, BagFile},
    writer::{BagFacts, CompressionMode, FileFacts, ROSBAG2_RECORD, bag_metadata, rosbag2_record},
};
use holdall_io::{fs, output::OutputDisk, sealed::Seal};
use holdall_model::{
    metadata::BagMetadata,
    recoding::Recoding,
    repeated::{BagRepeats, FileRepeats, REPEATED_RECORD, repeats_to_custom_data},
    time::Timestamp,
    topic::TopicInfo,
};
use holdall_storage::{
    Storage, StorageOptions,
    chunks::{AttachmentChange, ChunkFile, ChunkStorage, SpliceChoice, SpliceJob, Spliced},
    writer::{ChannelInfo, FileSummary, MetadataEntries},
};
use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
};

/// Files below this size are cut exactly: definitions and metadata would be too large a part of them.
const FILE_BYTES_MIN: u64 = 1 << 20;
/// A file is cut between chunks only if it may hold at least this many of the largest ones.
const CHUNKS_PER_FILE_MIN: u64 = 4;

/// The output to be made.
pub(super) struct Plan<'a> {
    pub bags: &'a [Bag],
    pub chooser: &'a Chooser,
    pub start: Option<Timestamp>,
    pub end: Option<Timestamp>,
    pub split: &'a SplitAt,
    pub accounts: &'a Accounts,
    pub taken: &'a Taken<'a>,
    /// Settings whose codec compresses all chunks; `None` to leave them unchanged.
    pub codec: Option<StorageOptions>,
    /// The latched topics, where files repeat their state.
    pub latched: Option<&'a InputState<'a>>,
    /// The bag directory, which does not exist yet.
    pub directory: &'a Path,
    /// Encryption of its files.
    pub seal: Option<&'a Seal>,
}

/// Makes the bag; returns `None`, and makes nothing, when that is not possible in this way: another storage,
/// files without an index of chunks, files to be cut after a number of messages or so small that most chunks
/// would be cut.
pub(super) fn run(
    plan: &Plan<'_>,
    storage: &'static dyn Storage,
    chunks: &'static dyn ChunkStorage,
    damage: &mut Damage,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Option<Written>, ToolError> {
    let is_plain = |file: &BagFile| !file.is_packed() && !file.has_packed_payloads();
    let is_same = |bag: &Bag| {
        bag.metadata().storage_identifier == storage.id()
            && bag.bounds() == (None, None)
            && bag.files().iter().all(is_plain)
    };
    if plan.split.count_max.is_some() || !plan.bags.iter().all(is_same) {
        return Ok(None);
    }
    let mut inputs = Vec::new();
    let is_chosen = |bag: &Bag, file: &BagFile| bag.writer().is_none() || file.may_have(plan.start, plan.end);
    let files = plan.bags.iter().flat_map(|bag| {
        let files = bag.files().iter();
        files.filter(move |file| is_chosen(bag, file))
    });
    for file in files {
        if file.storage()?.is_none_or(|found| found.id() != storage.id()) {
            return Ok(None);
        }
        inputs.push(chunks.open(&file.path)?);
    }
    let Some(ranges) = ranges(plan, &inputs)? else {
        return Ok(None);
    };
    let output = begin(plan, storage, chunks, &inputs)?;
    make(output, inputs, ranges, damage, progress).map(Some)
}

fn begin<'a>(
    plan: &'a Plan<'_>,
    storage: &'static dyn Storage,
    chunks: &'static dyn ChunkStorage,
    inputs: &[Box<dyn ChunkFile>],
) -> Result<Output<'a>, ToolError> {
    fs::create_dir_new(plan.directory)?;
    let topics = topics(plan, inputs);
    let key = |topic: &TopicInfo| (topic.name.clone(), topic.type_name.clone());
    Ok(Output {
        plan,
        places: topics.iter().map(key).zip(0..).collect(),
        storage,
        chunks,
        stem: plan
            .directory
            .file_name()
            .map_or_else(|| "bag".to_owned(), |name| name.to_string_lossy().into_owned()),
        topics,
        files: Vec::new(),
        written: Written::default(),
    })
}

/// One file for each range.
fn make(
    mut output: Output<'_>,
    mut inputs: Vec<Box<dyn ChunkFile>>,
    ranges: Vec<Range>,
    damage: &mut Damage,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Written, ToolError> {
    let plan = output.plan;
    let total: u64 = plan.bags.iter().map(Bag::size_bytes).sum();
    let channels = taken_channels(plan, &inputs);
    let heads = plan.latched.map(|state| {
        Heads::new(
            state,
            output.storage,
            output.chunks,
            plan.directory,
            plan.seal,
            &ranges,
        )
    });
    let mut heads = heads.transpose()?;
    let mut disk = OutputDisk::open_sealed(plan.directory, plan.seal.cloned())?;
    let mut done = 0;
    let count = ranges.len();
    for (place, (from, until)) in ranges.into_iter().enumerate() {
        let mut choice = SpliceChoice {
            channels: channels.clone(),
            from,
            until,
            codec: plan.codec.clone(),
            leaves_out_damage: true,
        };
        let mut head = heads.as_mut().map(|heads| heads.of(place)).transpose()?;
        let first = head.as_mut().and_then(|head| head.input.take());
        let has_first = first.is_some();
        if let Some(first) = first {
            choice
                .channels
                .insert(0, vec![true; first.summary().channels.len()]);
            // Of chunks that begin at the same time, the first input's comes first.
            inputs.insert(0, first);
        }
        let mut last = 0;
        let is_last = place + 1 == count;
        let mark = head.as_ref().map(|head| &head.mark);
        let mut progress = |at| {
            last = at;
            progress((done + at).min(total), total);
        };
        output.file(
            &mut disk,
            (&inputs, mark),
            &choice,
            (is_last, damage),
            &mut progress,
        )?;
        done += last;
        if has_first {
            inputs.remove(0);
        }
    }
    disk.finish()?;
    output.finish(damage)
}

/// By input and channel: whether it is selected.
fn taken_channels(plan: &Plan<'_>, inputs: &[Box<dyn ChunkFile>]) -> Vec<Vec<bool>> {
    let takes = |topic: &TopicInfo| plan.chooser.takes_channel(topic);
    inputs
        .iter()
        .map(|input| {
            let channels = input.summary().channels.iter();
            channels.map(|channel| takes(&channel.info.topic)).collect()
        })
        .collect()
}

/// The output's topics: those of the metadata first, then those that only the files list.
fn topics(plan: &Plan<'_>, inputs: &[Box<dyn ChunkFile>]) -> Vec<TopicInfo> {
    let listed = plan
        .bags
        .iter()
        .flat_map(|bag| &bag.metadata().topics_with_message_count)
        .map(|topic| &topic.topic_metadata);
    let found = inputs
        .iter()
        .flat_map(|input| &input.summary().channels)
        .map(|channel| &channel.info.topic);
    let mut topics: Vec<TopicInfo> = Vec::new();
    let mut places: HashMap<(&str, &str), usize> = HashMap::new();
    for topic in listed.chain(found) {
        if !plan.chooser.takes_topic(&topic.name, &topic.type_name) {
            continue;
        }
        let key = (topic.name.as_str(), topic.type_name.as_str());
        match places.get(&key) {
            Some(place) => {
                let known = &mut topics[*place];
                for offer in &topic.offered_qos_profiles {
                    if !known.offered_qos_profiles.contains(offer) {
                        known.offered_qos_profiles.push(*offer);
                    }
                }
            }
            None => {
                places.insert(key, topics.len());
                topics.push(topic.as_whole());
            }
        }
    }
    topics
}

/// The span of log time of each output file, in sequence.
fn ranges(plan: &Plan<'_>, inputs: &[Box<dyn ChunkFile>]) -> Result<Option<Vec<Range>>, ToolError> {
    let mut parts = Vec::new();
    for input in inputs {
        parts.extend(input.parts()?);
    }
    parts.retain(|(first, last, _)| {
        plan.start.is_none_or(|start| *last >= start) && plan.end.is_none_or(|end| *first <= end)
    });
    parts.sort_unstable_by_key(|(first, ..)| *first);
    let largest = parts.iter().map(|(.., bytes)| *bytes).max().unwrap_or(0);
    if plan
        .split
        .bytes_max
        .is_some_and(|max| max < largest.saturating_mul(CHUNKS_PER_FILE_MIN).max(FILE_BYTES_MIN))
    {
        return Ok(None);
    }
    let mut cuts = plan.split.times.clone();
    if let Some(span) = plan.split.duration_max.filter(|span| !span.is_zero()) {
        match by_span(&parts, span, (plan.start, plan.end)) {
            Some(found) => cuts.extend(found),
            None => return Ok(None),
        }
    }
    if let Some(bytes_max) = plan.split.bytes_max {
        let repeated = plan.latched.map_or(Ok(0), InputState::bytes)?;
        let bytes_max = bytes_max - repeated.min(bytes_max / 2);
        cuts.extend(by_size(&parts, bytes_max));
    }
    cuts.sort_unstable();
    cuts.dedup();
    cuts.retain(|cut| {
        plan.start.is_none_or(|start| *cut > start)
            && plan.end.is_none_or(|end| *cut <= end)
            && parts.iter().any(|(first, ..)| first < cut)
            && parts.iter().any(|(_, last, _)| last >= cut)
    });
    let mut ranges = Vec::new();
    let mut from = plan.start;
    for cut in cuts {
        ranges.push((
            from,
            Some(Timestamp::from_nanos(cut.as_nanos().saturating_sub(1))),
        ));
        from = Some(cut);
    }
    ranges.push((from, plan.end));
    Ok(Some(ranges))
}

/// The bag that is being made.
struct Output<'a> {
    plan: &'a Plan<'a>,
    storage: &'static dyn Storage,
    chunks: &'static dyn ChunkStorage,
    stem: String,
    topics: Vec<TopicInfo>,
    /// The place of each topic, by name and type.
    places: HashMap<(String, String), usize>,
    files: Vec<MadeFile>,
    written: Written,
}

/// A file that was made.
struct MadeFile {
    name: String,
    /// Messages that it repeats; `None` if files repeat nothing.
    mark: Option<FileRepeats>,
    /// Without counts by channel.
    summary: FileSummary,
    /// Messages by the place of their topic, without topics that have none: a bag may have many files, and many topics.
    messages: Vec<(usize, u64)>,
}

impl MadeFile {
    /// Number of messages that it repeats.
    fn repeated(&self) -> u64 {
        self.mark.as_ref().map_or(0, FileRepeats::messages)
    }
}

/// Counts by the place of their topic from counts by channel, without topics that have no message.
fn by_place(places: &HashMap<(String, String), usize>, channels: &[(ChannelInfo, u64)]) -> Vec<(usize, u64)> {
    let mut messages: BTreeMap<usize, u64> = BTreeMap::new();
    for (info, count) in channels.iter().filter(|channel| channel.1 > 0) {
        let key = (info.topic.name.clone(), info.topic.type_name.clone());
        if let Some(place) = places.get(&key) {
            *messages.entry(*place).or_default() += count;
        }
    }
    messages.into_iter().collect()
}

impl Output<'_> {
    /// Makes the next file.
    fn file(
        &mut self,
        disk: &mut OutputDisk,
        (inputs, mark): (&[Box<dyn ChunkFile>], Option<&FileRepeats>),
        choice: &SpliceChoice,
        (is_last, damage): (bool, &mut Damage),
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), ToolError> {
        let extension = self.storage.extension().unwrap_or_default();
        let name = format!("{}_{}.{extension}", self.stem, self.files.len());
        let path = self.plan.directory.join(&name);
        let opening = BagMetadata {
            storage_identifier: self.storage.id().to_owned(),
            custom_data: self.plan.accounts.custom_data.clone(),
            ros_distro: self.plan.accounts.ros_distro.clone(),
            ..BagMetadata::default()
        };
        let opening = [(ROSBAG2_RECORD, rosbag2_record(&opening))];
        let mark_record = mark.map(|mark| (REPEATED_RECORD, mark.entries()));
        let opening: Vec<_> = opening.into_iter().chain(mark_record).collect();
        let mut closing = |spliced: &Spliced| -> Vec<(String, MetadataEntries)> {
            for part in &spliced.left_out {
                damage.add_part(inputs[part.input].summary(), part.clone(), &|_| true);
            }
            let files = [self.made(name.clone(), spliced, &path, mark)];
            // Only of this file: with all files in each, hundreds of short ones would contain little else.
            let topics = if is_last && self.files.is_empty() {
                &self.topics[..]
            } else {
                &[]
            };
            let record = rosbag2_record(&self.metadata(topics, &files));
            let mut records = vec![(ROSBAG2_RECORD.to_owned(), record)];
            if is_last {
                let (by_topic, repeated) = self.by_topic(files.iter().chain(&self.files));
                let accounts = self.plan.accounts;
                let span = (self.plan.start, self.plan.end);
                let unreadable = || unreadable_by_topic(damage, self.plan.bags, span);
                let damaged = damage.first().map(|_| unreadable());
                records.extend(accounts.records(self.plan.taken, &by_topic, &repeated, damaged.as_ref()));
            }
            records
        };
        let spliced = self.chunks.splice(SpliceJob {
            inputs,
            choice,
            disk,
            path: &path,
            opening: &opening,
            closing: &mut closing,
            attachments: AttachmentChange::default(),
            progress,
        })?;
        let made = self.made(name, &spliced, &path, mark);
        self.written.messages += made.summary.message_count - made.repeated();
        self.written.bytes += spliced.bytes;
        self.written.copied_chunks += spliced.copied_chunks;
        self.written.copied_bytes += spliced.copied_bytes;
        self.written.files.push(path);
        self.files.push(made);
        Ok(())
    }

    fn made(&self, name: String, spliced: &Spliced, path: &Path, mark: Option<&FileRepeats>) -> MadeFile {
        let summary = FileSummary {
            path: path.to_owned(),
            message_count: spliced.message_count(),
            starting_time: spliced.starting_time,
            ending_time: spliced.ending_time,
            channel_message_counts: Vec::new(),
            bytes: spliced.bytes,
        };
        MadeFile {
            name,
            mark: mark.cloned(),
            summary,
            messages: by_place(&self.places, &spliced.channels),
        }
    }

    /// Number of messages in these files, by topic, without those that files repeat, and of these; all topics are in the first.
    fn by_topic<'f>(
        &self,
        files: impl Iterator<Item = &'f MadeFile>,
    ) -> (BTreeMap<String, u64>, BTreeMap<String, u64>) {
        let mut by_topic: BTreeMap<String, u64> =
            self.topics.iter().map(|topic| (topic.name.clone(), 0)).collect();
        let mut repeated: BTreeMap<String, u64> = BTreeMap::new();
        for file in files {
            for (place, count) in &file.messages {
                *by_topic.entry(self.topics[*place].name.clone()).or_default() += count;
            }
            for channel in file.mark.iter().flat_map(|mark| &mark.channels) {
                *repeated.entry(channel.topic.clone()).or_default() += channel.messages.len() as u64;
            }
        }
        for (topic, count) in &repeated {
            if let Some(all) = by_topic.get_mut(topic) {
                *all = all.saturating_sub(*count);
            }
        }
        (by_topic, repeated)
    }

    /// Metadata of these files, with the first topics of the bag, or none.
    fn metadata(&self, topics: &[TopicInfo], files: &[MadeFile]) -> BagMetadata {
        let facts = BagFacts {
            storage_id: self.storage.id(),
            compression: CompressionMode::None,
            custom_data: &self.plan.accounts.custom_data,
            ros_distro: self.plan.accounts.ros_distro.as_deref(),
        };
        let mut counts = vec![0; topics.len()];
        for (place, count) in files.iter().flat_map(|file| &file.messages) {
            if let Some(sum) = counts.get_mut(*place) {
                *sum += count;
            }
        }
        let files: Vec<FileFacts<'_>> = files
            .iter()
            .map(|file| FileFacts {
                name: &file.name,
                summary: &file.summary,
                is_packed: false,
            })
            .collect();
        bag_metadata(&facts, topics.iter().zip(counts), &files)
    }

    fn finish(self, damage: &Damage) -> Result<Written, ToolError> {
        let mut metadata = self.metadata(&self.topics, &self.files);
        let marks = self.files.iter();
        let marks: BagRepeats = marks
            .filter_map(|file| Some((file.name.clone(), file.mark.clone()?)))
            .collect();
        metadata.custom_data.extend(repeats_to_custom_data(&marks));
        metadata.custom_data.extend(damage.custom_data());
        let topics = &metadata.topics_with_message_count;
        Recoding::reduce(&mut metadata.custom_data, |topic, kind| {
            let is_it = |name: &str, type_name: &str| name == topic && type_name == kind;
            let stored = topics
                .iter()
                .filter(|one| is_it(&one.topic_metadata.name, &one.topic_metadata.type_name));
            let channels = marks.values().flat_map(|mark| &mark.channels);
            let repeated = channels.filter(|channel| is_it(&channel.topic, &channel.type_name));
            let repeated: u64 = repeated.map(|channel| channel.messages.len() as u64).sum();
            let stored: u64 = stored.map(|one| one.message_count).sum();
            stored.saturating_sub(repeated)
        });
        let text = metadata.to_yaml();
        let path = self.plan.directory.join("metadata.yaml");
        replace_metadata(&path, &self.written.files, &text)?;
        Ok(self.written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_counts_the_topics_that_it_has_and_no_others() {
        let channel = |name: &str, count| {
            let mut info = ChannelInfo::default();
            info.topic.name = name.to_owned();
            (info, count)
        };
        let names = (0..100_000).map(|n| (format!("/{n}"), String::new()));
        let places: HashMap<_, _> = names.zip(0..).collect();
        let channels = [
            channel("/77000", 5),
            channel("/3", 1),
            channel("/9", 0),
            channel("/77000", 2),
        ];
        assert_eq!(by_place(&places, &channels), [(3, 1), (77_000, 7)]);
    }
}
