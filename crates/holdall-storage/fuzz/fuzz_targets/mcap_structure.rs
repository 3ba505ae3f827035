//! MCAP files whose records are changed, moved, doubled and left out, with lengths, checksums and indexes made to fit again: what random
//! bytes never reach after the first length.
#![no_main]

use bytes::Bytes;
use holdall_storage::{
    mcap::{McapReader, McapReaderOptions},
    reader::{ReadOrder, ReadQuery, StorageReader},
    writer::ChannelIndex,
};
use libfuzzer_sys::fuzz_target;
use std::path::Path;

const MAGIC: &[u8] = b"\x89MCAP0\r\n";
const RECORDS_MAX: usize = 64;
const PAYLOAD_BYTES_MAX: usize = 64;

/// The input as numbers: a few bytes choose the next step.
struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    /// A small number, or one of those at which sums and lengths overflow.
    fn number(&mut self) -> u64 {
        match self.byte() {
            small @ 0..=199 => u64::from(small),
            200 => u64::MAX,
            201 => u64::MAX - u64::from(self.byte()),
            202 => 1 << 63,
            203 => i64::MAX as u64,
            204 => u64::from(u32::MAX),
            205 => 1 << 32,
            206 => 1_700_000_000_000_000_000 + u64::from(self.byte()),
            shift => 1u64 << (shift % 64),
        }
    }

    fn bytes(&mut self, max: usize) -> &'a [u8] {
        let count = usize::from(self.byte()).min(max).min(self.0.len());
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }

    fn is(&mut self, of: u8) -> bool {
        self.byte() % of == 0
    }
}

fn record(out: &mut Vec<u8>, kind: u8, body: &[u8]) {
    out.push(kind);
    out.extend((body.len() as u64).to_le_bytes());
    out.extend(body);
}

fn text(out: &mut Vec<u8>, text: &[u8]) {
    out.extend((text.len() as u32).to_le_bytes());
    out.extend(text);
}

const TYPES: [&[u8]; 4] = [b"std_msgs/msg/String", b"sensor_msgs/msg/Image", b"a/srv/B_Event", b""];
const ENCODINGS: [&[u8]; 4] = [b"ros2msg", b"ros2idl", b"ros1msg", b""];
const CODECS: [&[u8]; 4] = [b"", b"zstd", b"lz4", b"bogus"];

/// One record that may be in a chunk; messages are noted with their channel, time and place.
fn small_record(choices: &mut Choices<'_>, out: &mut Vec<u8>, indexed: &mut Vec<(u16, u64, u64)>) {
    let mut body = Vec::new();
    let id = u16::from(choices.byte() % 5);
    match choices.byte() % 8 {
        0 => {
            body.extend(id.to_le_bytes());
            text(&mut body, TYPES[usize::from(choices.byte() % 4)]);
            text(&mut body, ENCODINGS[usize::from(choices.byte() % 4)]);
            text(&mut body, choices.bytes(PAYLOAD_BYTES_MAX));
            record(out, 3, &body);
        }
        1 | 2 => {
            body.extend(id.to_le_bytes());
            body.extend(u16::from(choices.byte() % 5).to_le_bytes());
            text(&mut body, choices.bytes(8));
            text(&mut body, if choices.is(4) { b"json" } else { b"cdr" });
            let mut entries = Vec::new();
            for _ in 0..choices.byte() % 3 {
                text(&mut entries, [&b"offered_qos_profiles"[..], b"topic_type_hash", b"x"][usize::from(choices.byte() % 3)]);
                text(&mut entries, choices.bytes(PAYLOAD_BYTES_MAX));
            }
            text(&mut body, &entries);
            record(out, 4, &body);
        }
        _ => {
            let time = choices.number();
            indexed.push((id, time, out.len() as u64));
            body.extend(id.to_le_bytes());
            body.extend((choices.number() as u32).to_le_bytes());
            body.extend(time.to_le_bytes());
            body.extend(choices.number().to_le_bytes());
            body.extend(choices.bytes(PAYLOAD_BYTES_MAX));
            record(out, 5, &body);
        }
    }
}

/// Appends a chunk followed by its message indexes; returns its chunk index record.
fn chunk(choices: &mut Choices<'_>, out: &mut Vec<u8>) -> Vec<u8> {
    let (mut records, mut indexed) = (Vec::new(), Vec::new());
    for _ in 0..choices.byte() % 12 {
        small_record(choices, &mut records, &mut indexed);
    }
    let codec = CODECS[usize::from(choices.byte() % 4)];
    let stored = match codec {
        b"zstd" => zstd::bulk::compress(&records, 1).unwrap_or_default(),
        _ => records.clone(),
    };
    let times = indexed.iter().map(|(_, time, _)| *time);
    let lies = choices.is(8);
    let start = if lies { choices.number() } else { times.clone().min().unwrap_or(0) };
    let end = if lies { choices.number() } else { times.max().unwrap_or(0) };
    let size = if choices.is(16) { choices.number() } else { records.len() as u64 };
    let crc = if choices.is(2) { 0 } else { crc32fast::hash(&records) };
    let mut body = Vec::new();
    for number in [start, end, size] {
        body.extend(number.to_le_bytes());
    }
    body.extend(crc.to_le_bytes());
    text(&mut body, codec);
    body.extend((stored.len() as u64).to_le_bytes());
    body.extend(&stored);
    let place = out.len() as u64;
    record(out, 6, &body);
    let length = out.len() as u64 - place;
    let data_end = out.len();
    let mut offsets = Vec::new();
    for id in 0..5u16 {
        let mut entries = Vec::new();
        for (_, time, offset) in indexed.iter().filter(|(of, ..)| *of == id) {
            entries.extend(time.to_le_bytes());
            let offset = if choices.is(32) { choices.number() } else { *offset };
            entries.extend(offset.to_le_bytes());
        }
        if entries.is_empty() || choices.is(16) {
            continue;
        }
        offsets.extend(id.to_le_bytes());
        offsets.extend((out.len() as u64).to_le_bytes());
        let mut body = id.to_le_bytes().to_vec();
        text(&mut body, &entries);
        record(out, 7, &body);
    }
    let mut index = Vec::new();
    let place = if choices.is(32) { choices.number() } else { place };
    for number in [start, end, place, length] {
        index.extend(number.to_le_bytes());
    }
    text(&mut index, &offsets);
    index.extend(((out.len() - data_end) as u64).to_le_bytes());
    text(&mut index, codec);
    index.extend((stored.len() as u64).to_le_bytes());
    index.extend(size.to_le_bytes());
    index
}

/// A file; half of them without a summary.
fn file(choices: &mut Choices<'_>) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    let mut header = Vec::new();
    text(&mut header, if choices.is(8) { b"" } else { b"ros2" });
    text(&mut header, b"fuzz");
    record(&mut out, 1, &header);
    let (mut summary, mut indexed, mut statistics) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..choices.byte() as usize % RECORDS_MAX {
        match choices.byte() % 8 {
            0..=2 => {
                let index = chunk(choices, &mut out);
                record(&mut summary, 8, &index);
            }
            3 => {
                let mut body = Vec::new();
                text(&mut body, [&b"rosbag2"[..], b"holdall:loss", b"holdall:loss_checkpoint", b"x"][usize::from(choices.byte() % 4)]);
                let mut entries = Vec::new();
                text(&mut entries, b"ledger");
                text(&mut entries, choices.bytes(PAYLOAD_BYTES_MAX));
                text(&mut body, &entries);
                record(&mut out, 12, &body);
            }
            4 => {
                let mut definitions = Vec::new();
                small_record(choices, &mut definitions, &mut indexed);
                out.extend(&definitions);
                summary.extend(&definitions);
            }
            5 => record(&mut out, choices.byte(), choices.bytes(PAYLOAD_BYTES_MAX)),
            _ => small_record(choices, &mut out, &mut indexed),
        }
    }
    record(&mut out, 15, &[0; 4]);
    for number in [choices.number(), 1] {
        statistics.extend(number.to_le_bytes());
    }
    statistics.resize(choices.byte() as usize % 80, 0);
    let start = out.len() as u64;
    let has_summary = choices.is(2);
    if has_summary {
        out.extend(&summary);
        record(&mut out, 11, &statistics);
    }
    let mut footer = Vec::new();
    let start = if choices.is(32) { choices.number() } else { start };
    footer.extend(if has_summary { start } else { 0 }.to_le_bytes());
    footer.extend([0; 12]);
    record(&mut out, 2, &footer);
    out.extend(MAGIC);
    if choices.is(8) {
        let cut = choices.number() as usize % out.len();
        out.truncate(cut);
    }
    out
}

fuzz_target!(|data: &[u8]| {
    let bytes = Bytes::from(file(&mut Choices(data)));
    let options = McapReaderOptions {
        loaded_bytes_max: 1 << 12,
        chunk_bytes_max: 1 << 20,
        ..McapReaderOptions::default()
    };
    let Ok(reader) = McapReader::from_bytes(Path::new("fuzz.mcap"), bytes, options) else {
        return;
    };
    let _summary = reader.summary();
    for order in [ReadOrder::LogTime, ReadOrder::PublishTime, ReadOrder::File] {
        for channels in [None, Some(vec![ChannelIndex(0)])] {
            let query = ReadQuery {
                channels,
                order,
                ..ReadQuery::default()
            };
            if let Ok(messages) = reader.messages(&query) {
                messages.take(1000).for_each(drop);
            }
        }
    }
    let _chunks = reader.chunks();
});
