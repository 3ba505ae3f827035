//! Torn MCAP files: checkpoints list their content, and a repair never loses a readable message.

mod support;

use bytes::Bytes;
use holdall_io::sim::SimRng;
use holdall_model::message::PayloadRef;
use holdall_storage::RepairTarget;
use holdall_storage::{
    chunks::ChunkSummary,
    mcap::{McapOptions, McapReader, McapReaderOptions, McapStorage, McapWriter, options::Compression},
    reader::{FileCondition, ReadQuery, StorageReader},
    repair::RepairStep,
    writer::{StorageWriter, StoredMessage},
};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};
use support::{channel, memory_queue, metadata, payload, time};

type Key = (String, i64, Bytes);

/// Writes with checkpoints and syncs; returns snapshots of the file taken while it is written, and the
/// complete file.
fn torn_files(compression: Compression, len: usize) -> (Vec<Vec<u8>>, Vec<u8>) {
    let options = McapOptions {
        compression,
        chunk_bytes: Some(20_000),
        checkpoint_bytes: Some(50_000),
        ..McapOptions::default()
    };
    let (mut q, files) = memory_queue(16 << 10, 8);
    let path = PathBuf::from("bag_0.mcap");
    let file = q.create_file(&path, 0).unwrap();
    let mut writer = Box::new(McapWriter::create(&mut q, file, &path, options).unwrap());
    writer
        .write_metadata(&mut q, "rosbag2", &metadata("serialized_metadata", "open"))
        .unwrap();
    let mut channels = Vec::new();
    let mut torn = Vec::new();
    for number in 0..400u64 {
        if number % 100 == 0 {
            let name = format!("/t{}", number / 100);
            channels.push(
                writer
                    .add_channel(&mut q, &channel(&name, &format!("pkg/msg/T{number}")))
                    .unwrap(),
            );
        }
        let payload = payload(number, len + number as usize);
        let message = StoredMessage {
            log_time: time(number),
            publish_time: time(number),
            sequence: number as u32,
            payload: PayloadRef::Bytes(&payload),
        };
        writer
            .write(&mut q, channels[number as usize % channels.len()], message)
            .unwrap();
        if number % 20 == 19 {
            writer.make_durable(&mut q).unwrap();
            q.drain();
            writer.step(&mut q).unwrap();
            q.drain();
        }
        if number % 67 == 66 {
            torn.push(files.read(&path).unwrap());
        }
    }
    writer
        .finish(&mut q, &[("rosbag2", metadata("serialized_metadata", "close"))])
        .unwrap();
    q.wait_closed(file).unwrap();
    (torn, files.read(&path).unwrap())
}

fn open(bytes: &[u8]) -> McapReader {
    let content = Bytes::copy_from_slice(bytes);
    McapReader::from_bytes(Path::new("torn.mcap"), content, McapReaderOptions::default()).unwrap()
}

fn read(bytes: &[u8]) -> BTreeSet<Key> {
    let reader = open(bytes);
    let channels = &reader.summary().channels;
    let messages: Vec<_> = reader
        .messages(&ReadQuery::default())
        .unwrap()
        .filter_map(Result::ok)
        .map(|message| {
            let topic = channels[message.channel.0 as usize].info.topic.name.clone();
            (topic, message.log_time.as_nanos(), message.payload)
        })
        .collect();
    let distinct: BTreeSet<_> = messages.iter().cloned().collect();
    assert_eq!(distinct.len(), messages.len(), "no message twice");
    distinct
}

/// The file after the first `done` steps, with a power cut during the last of them: each sector that was not
/// synced is either written or not.
fn cut_after(bytes: &[u8], steps: &[RepairStep], done: usize, rng: &mut SimRng) -> Vec<u8> {
    let mut durable = bytes.to_vec();
    let mut pending: Vec<&RepairStep> = Vec::new();
    let apply = |content: &mut Vec<u8>, step: &RepairStep, rng: Option<&mut SimRng>| match step {
        RepairStep::Write { offset, bytes } => {
            let mut rng = rng;
            let start = *offset as usize;
            for (n, byte) in bytes.iter().enumerate() {
                let at = start + n;
                if n == 0 || at.is_multiple_of(512) {
                    // One random decision for each sector.
                    let lost = rng.as_mut().is_some_and(|rng| rng.coin());
                    if lost {
                        let end = (at / 512 + 1) * 512;
                        if end >= start + bytes.len() {
                            return;
                        }
                        let skip = end - at;
                        let rest = RepairStep::Write {
                            offset: end as u64,
                            bytes: bytes[n + skip..].to_vec(),
                        };
                        return lose_some(content, &rest, rng);
                    }
                }
                if content.len() <= at {
                    content.resize(at + 1, 0);
                }
                content[at] = *byte;
            }
        }
        RepairStep::SetLength(length) => {
            if rng.is_none_or(|rng| rng.coin()) {
                content.resize(*length as usize, 0);
            }
        }
        RepairStep::Sync => {}
    };
    fn lose_some(content: &mut Vec<u8>, step: &RepairStep, rng: Option<&mut SimRng>) {
        let (RepairStep::Write { offset, bytes }, Some(rng)) = (step, rng) else {
            return;
        };
        let mut at = *offset as usize;
        for sector in bytes.chunks(512) {
            if rng.coin() {
                if content.len() < at + sector.len() {
                    content.resize(at + sector.len(), 0);
                }
                content[at..at + sector.len()].copy_from_slice(sector);
            }
            at += sector.len();
        }
    }
    for step in &steps[..done] {
        if *step == RepairStep::Sync {
            pending.drain(..).for_each(|step| apply(&mut durable, step, None));
        } else {
            pending.push(step);
        }
    }
    for step in pending {
        apply(&mut durable, step, Some(rng));
    }
    durable
}

/// Repairs `bytes`, killed at each step, and checks that no readable message is lost.
fn repair(name: &str, bytes: &[u8]) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("torn.mcap");
    fs::write(&path, bytes).unwrap();
    let records = [("holdall:repair", metadata("by", "test"))];
    let before = read(bytes);
    let plan = McapStorage
        .plan_repair(&path, &records, RepairTarget::InPlace)
        .unwrap()
        .unwrap();
    for done in 0..=plan.steps.len() {
        for seed in 0..12 {
            let cut = cut_after(bytes, &plan.steps, done, &mut SimRng::new(seed));
            let left = read(&cut);
            assert!(
                left.is_superset(&before),
                "{name}: killed after {done} of {:?}, seed {seed}: {} of {} messages, {:?}",
                plan.steps
                    .iter()
                    .map(|step| match step {
                        RepairStep::Write { offset, bytes } => format!("write {} at {offset}", bytes.len()),
                        other => format!("{other:?}"),
                    })
                    .collect::<Vec<_>>(),
                left.len(),
                before.len(),
                open(&cut).summary().condition,
            );
        }
    }
    plan.apply().unwrap();
    let repaired = fs::read(&path).unwrap();
    let after = read(&repaired);
    assert!(after.is_superset(&before), "{name}");
    let reader = open(&repaired);
    assert_eq!(reader.summary().condition, FileCondition::Complete, "{name}");
    assert_eq!(reader.summary().message_count, after.len() as u64, "{name}");
    assert_eq!(plan.outcome.messages, after.len() as u64, "{name}");
    assert_eq!(
        reader.summary().last_metadata("holdall:repair"),
        Some(&metadata("by", "test"))
    );
    let again = McapStorage
        .plan_repair(&path, &records, RepairTarget::InPlace)
        .unwrap();
    assert!(again.is_none(), "{name}: once is enough");
    let foreign = mcap::MessageStream::new(&repaired).unwrap();
    assert_eq!(
        foreign.map(Result::unwrap).count(),
        after.len(),
        "{name}: a foreign reader"
    );
    check_index(&repaired, after.len());
    repaired
}

/// A foreign reader finds every message by the index, too, and the data checksum matches.
fn check_index(bytes: &[u8], messages: usize) {
    let summary = mcap::Summary::read(bytes).unwrap().unwrap();
    let by_index: usize = summary
        .chunk_indexes
        .iter()
        .filter(|index| !index.message_index_offsets.is_empty())
        .map(|index| {
            let indexes = summary.read_message_indexes(bytes, index).unwrap();
            indexes.values().map(Vec::len).sum::<usize>()
        })
        .sum();
    // Including the last chunk, whose indexes may have been cut off.
    assert_eq!(by_index, messages);
    let mut crc = 0;
    let mut data = 8;
    for record in mcap::read::LinearReader::new(bytes).unwrap() {
        match record.unwrap() {
            mcap::records::Record::DataEnd(end) => {
                crc = end.data_section_crc;
                break;
            }
            _ => continue,
        }
    }
    let mut rest = &bytes[8..];
    while rest[0] != 0x0f {
        let length = 9 + u64::from_le_bytes(rest[1..9].try_into().unwrap()) as usize;
        data += length;
        rest = &rest[length..];
    }
    if crc != 0 {
        assert_eq!(crc, crc32fast::hash(&bytes[..data]), "the data checksum");
    }
}

#[test]
fn a_whole_file_with_checkpoints_is_read_by_foreign_readers() {
    for compression in [Compression::None, Compression::Zstd] {
        let (_, whole) = torn_files(compression, 500);
        assert_eq!(read(&whole).len(), 400);
        assert_eq!(
            mcap::MessageStream::new(&whole)
                .unwrap()
                .map(Result::unwrap)
                .count(),
            400
        );
        check_index(&whole, 400);
    }
}

#[test]
fn files_cut_anywhere_are_repaired_whenever_the_repair_is_killed() {
    for compression in [Compression::None, Compression::Zstd] {
        let (torn, whole) = torn_files(compression, 500);
        for (number, bytes) in torn.iter().enumerate() {
            let name = format!("{compression:?} {number}");
            repair(&name, bytes);
            // A file with reserved space.
            let mut reserved = bytes.clone();
            reserved.resize(bytes.len() + 300_000, 0);
            repair(&format!("{name} reserved"), &reserved);
        }
        for cut in [9_000, whole.len() / 3, whole.len() / 2 + 7, whole.len() - 40] {
            repair_or_refuse(&format!("{compression:?} cut at {cut}"), &whole[..cut]);
        }
    }
}

#[test]
fn a_file_that_was_cut_off_within_its_first_record_gets_one() {
    const HEADER: u8 = 1;
    let (_, whole) = torn_files(Compression::None, 100);
    let magic = 8;
    let first = magic + 9 + usize::from(whole[magic + 1]);
    for cut in magic..=first {
        let repaired = repair(&format!("cut off after {cut} bytes"), &whole[..cut]);
        let headers = [repaired[magic], repaired[first]].map(|opcode| opcode == HEADER);
        assert_eq!(headers, [true, false], "cut off after {cut} bytes");
    }
}

#[test]
fn the_last_chunk_gets_the_indexes_that_were_cut_off() {
    for compression in [Compression::None, Compression::Zstd] {
        let (_, whole) = torn_files(compression, 500);
        let summary = mcap::Summary::read(&whole).unwrap().unwrap();
        for chunk in summary.chunk_indexes.iter().take(4) {
            let end = (chunk.chunk_start_offset + chunk.chunk_length) as usize;
            let indexes = chunk.message_index_length as usize;
            let lengths = [0, 5, indexes / 2, indexes - 1];
            let forms = lengths.map(|kept| [(kept, 0), (kept, 300_000)]);
            for (kept, reserved) in forms.into_iter().flatten() {
                let mut torn = whole[..end + kept].to_vec();
                // Reserved space: an index that was not completely written ends in zeros.
                torn.resize(torn.len() + reserved, 0);
                let name = format!("{compression:?} {end} + {kept}, {reserved} reserved");
                let repaired = repair(&name, &torn);
                let summary = mcap::Summary::read(&repaired).unwrap().unwrap();
                let last = summary.chunk_indexes.last().unwrap();
                assert_eq!(last.chunk_start_offset, chunk.chunk_start_offset);
                let channels = |index: &mcap::records::ChunkIndex| -> Vec<u16> {
                    index.message_index_offsets.keys().copied().collect()
                };
                assert_eq!(channels(last), channels(chunk), "{name}");
            }
        }
    }
}

/// A cut-off chunk whose header spans two sectors is not repaired in place, and the error states that.
fn repair_or_refuse(name: &str, bytes: &[u8]) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("torn.mcap");
    fs::write(&path, bytes).unwrap();
    match McapStorage.plan_repair(&path, &[], RepairTarget::InPlace) {
        Ok(_) => drop(repair(name, bytes)),
        Err(error) => {
            assert!(error.to_string().contains("into a new bag"), "{name}: {error}");
            assert!(
                McapStorage
                    .plan_repair(&path, &[], RepairTarget::Copy)
                    .unwrap()
                    .is_some()
            );
        }
    }
}

#[test]
fn a_torn_chunk_is_marked_and_what_follows_it_is_kept() {
    let (torn, _) = torn_files(Compression::None, 500);
    let bytes = torn.last().unwrap();
    // Without the anchor the file is read from start to end; chunks in checkpoints would not be checked.
    let mut bytes = bytes.clone();
    bytes[4096..8192].fill(0);
    let bytes = &bytes;
    let all = read(bytes).len();
    let chunks = open(bytes).chunks().unwrap();
    let victim = chunks[chunks.len() - 2].clone();
    let mut damaged = bytes.clone();
    let middle = (victim.offset + victim.length / 2) as usize;
    damaged[middle..middle + 100].fill(0);
    let kept = read(&damaged).len();
    assert!(kept < all && kept > all / 2, "{kept} of {all}");
    let repaired = repair("torn chunk", &damaged);
    assert_eq!(repaired[victim.offset as usize], 0x82);
}

#[test]
fn data_before_the_last_checkpoint_is_not_read_again() {
    let (torn, _) = torn_files(Compression::None, 500);
    let bytes = torn.last().unwrap();
    let expected = open(bytes).summary().clone();
    // Chunk headers before the checkpoint are overwritten: a reader that reads only after it does not notice.
    let chunks = open(bytes).chunks().unwrap();
    let mut blind = bytes.clone();
    blind[chunks[0].offset as usize] = 0;
    let found = open(&blind).summary().clone();
    assert_eq!(found.message_count, expected.message_count);
    assert_eq!(found.channels, expected.channels);
    // Without the anchor the file is read from its start, and continues after the damage; a checkpoint has the definitions.
    blind[4096..8192].fill(0);
    let mut without = bytes.clone();
    without[4096..8192].fill(0);
    let gone = messages_between(&without, &chunks[..1]);
    assert_eq!(read(&blind), read(&without).difference(&gone).cloned().collect());
}

/// What is in these chunks, by their times.
fn messages_between(bytes: &[u8], chunks: &[ChunkSummary]) -> BTreeSet<Key> {
    let is_inside = |(_, time, _): &Key| {
        let mut times = chunks
            .iter()
            .map(|it| (it.starting_time.as_nanos(), it.ending_time.as_nanos()));
        times.any(|(first, last)| (first..=last).contains(time))
    };
    read(bytes).into_iter().filter(is_inside).collect()
}

#[test]
fn chunks_behind_one_whose_header_is_lost_are_kept_whenever_the_repair_is_killed() {
    for compression in [Compression::None, Compression::Zstd] {
        let (torn, _) = torn_files(compression, 500);
        let mut bytes = torn.last().unwrap().clone();
        bytes[4096..8192].fill(0);
        let chunks = open(&bytes).chunks().unwrap();
        let victims = [chunks[chunks.len() - 5].clone(), chunks[chunks.len() - 3].clone()];
        let mut damaged = bytes.clone();
        for victim in &victims {
            damaged[victim.offset as usize..][..200].fill(0);
        }
        let expected: BTreeSet<Key> = read(&bytes)
            .difference(&messages_between(&bytes, &victims))
            .cloned()
            .collect();
        assert_eq!(read(&damaged), expected);
        // The space that was reserved, and used by another recording before, is no more than an end.
        let whole = damaged.len();
        damaged.resize(whole + 5000, 0);
        let old = &bytes[chunks[1].offset as usize..][..chunks[1].length as usize - 10];
        damaged.extend_from_slice(old);
        assert_eq!(read(&damaged), expected);
        let repaired = repair("two gaps", &damaged);
        assert_eq!(repaired[victims[0].offset as usize], 0x82);
    }
}

#[test]
fn messages_whose_definitions_were_lost_get_them_back_in_front() {
    let mut cases = 0;
    for compression in [Compression::None, Compression::Zstd] {
        let (mut files, whole) = torn_files(compression, 500);
        // Its summary has the definitions, and is cut off by the repair.
        files.push(whole[..whole.len() - 40].to_vec());
        let summary = mcap::Summary::read(&whole).unwrap().unwrap();
        let first = summary.chunk_indexes.iter().map(|it| it.chunk_start_offset).min();
        let start = first.unwrap() as usize;
        // The first record after the header says where the last checkpoint is: without it the file is read from its front.
        let anchor = 8 + 9 + usize::from(whole[9]);
        let anchor =
            anchor + 9..anchor + 9 + usize::from(u16::from_le_bytes([whole[anchor + 1], whole[anchor + 2]]));
        for (number, file) in files.iter().enumerate() {
            // A record that leads nowhere, and one whose content is not what was written.
            for (what, lost) in [("gap", start..start + 700), ("torn", start + 100..start + 164)] {
                let mut damaged = file.clone();
                damaged[lost].fill(0);
                damaged[anchor.clone()].fill(0);
                cases += usize::from(!read(&damaged).is_empty());
                repair_or_refuse(&format!("{compression:?} {number} {what}"), &damaged);
            }
        }
    }
    assert!(cases > 4, "definitions are found further back");
}
