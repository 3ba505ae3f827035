//! Checks the summary and the footer against the content of the data section.

use super::{
    Checked, Chunks, Head, Records, Stop,
    chunk::chunk_sizes,
    content::{Content, EntrySum, SchemaRecord},
    kind,
    stream::{skip, take},
};
use crate::check::Severity;
use crate::mcap::format::{ChunkIndex, Footer, MAGIC, Record, Statistics, SummaryOffset, op};
use std::io::{BufRead, Read};

/// The summary's groups of records, and the groups that its offsets list.
#[derive(Default)]
struct Found {
    /// Opcode, offset and length of each group.
    groups: Vec<(u8, u64, u64)>,
    offsets: Vec<SummaryOffset>,
    offsets_start: Option<u64>,
    chunk_indexes: u64,
    attachments: EntrySum,
    metadata: EntrySum,
    statistics: bool,
    repeated_channels: u64,
}

/// A running check of the summary, with what the data section holds.
pub(super) struct SummaryCheck<'c, 'a> {
    pub records: &'c mut Records<'a>,
    pub content: &'c Content,
    pub chunks: &'c Chunks,
    pub attachments: EntrySum,
    /// Offset and length of each metadata record.
    pub metadata: EntrySum,
}

impl SummaryCheck<'_, '_> {
    /// Checks everything after the data end record, which ends at `data_end`.
    pub fn run(mut self, data_end: u64) -> Checked {
        self.records.stream.restart_crc();
        let mut found = Found::default();
        loop {
            let is_footer = self.records.stream.fill_buf()?.first() == Some(&op::FOOTER);
            if is_footer {
                return self.footer(data_end, &found);
            }
            let head = self.records.next_head("a record of the summary, or the footer")?;
            let end = head.start + 9 + head.body_bytes;
            match found
                .groups
                .last_mut()
                .filter(|(opcode, ..)| *opcode == head.opcode)
            {
                Some((_, start, length)) => *length = end - *start,
                None if head.opcode == op::SUMMARY_OFFSET => {
                    found.offsets_start.get_or_insert(head.start);
                }
                None => found.groups.push((head.opcode, head.start, end - head.start)),
            }
            let Some(body) = self.records.body(head)? else {
                continue;
            };
            self.summary_record(head, &body, &mut found);
            self.records.recycle(body);
        }
    }

    fn summary_record(&mut self, head: Head, body: &[u8], found: &mut Found) {
        match self.records.parse(head, body) {
            Some(Record::Schema(schema)) => {
                let known = self
                    .content
                    .schemas
                    .get(&schema.id)
                    .map(|(_, known)| known.clone());
                let what = format!("schema {} in the summary", schema.id);
                self.repeated(head, what, known, SchemaRecord::from(&schema));
            }
            Some(Record::Channel(channel)) => {
                found.repeated_channels += 1;
                let known = self
                    .content
                    .channel(channel.id)
                    .and_then(|known| known.record.clone());
                let what = format!("channel {} ({}) in the summary", channel.id, channel.topic);
                self.repeated(head, what, known, channel);
            }
            Some(Record::ChunkIndex(index)) => {
                found.chunk_indexes += 1;
                self.chunk_index(head, &index);
            }
            Some(Record::Statistics(statistics)) => {
                if std::mem::replace(&mut found.statistics, true) {
                    self.records
                        .file
                        .problem(head.start, "statistics", "one record", "a second one");
                }
                self.statistics(head, &statistics);
            }
            Some(Record::AttachmentIndex(index)) => found.attachments.add(index.offset, index.length),
            Some(Record::MetadataIndex(index)) => found.metadata.add(index.offset, index.length),
            Some(Record::SummaryOffset(offset)) => found.offsets.push(offset),
            Some(Record::Unknown(_)) | None => {}
            Some(_) => {
                let found = format!("a {} record", kind(head.opcode));
                self.records
                    .file
                    .problem(head.start, "summary", "a record of the summary", found);
            }
        }
    }

    /// A definition in the summary must equal that of the data section. One found only in the summary is a
    /// notice: readers of the data alone miss it.
    fn repeated<T: PartialEq>(&mut self, head: Head, what: String, known: Option<T>, found: T) {
        match known {
            Some(known) if known != found => {
                self.records
                    .file
                    .problem(head.start, what, "the same as in the data section", "another one");
            }
            Some(_) => {}
            None => self
                .records
                .file
                .notice(head.start, what, "its record in the data section too", "none"),
        }
    }

    fn chunk_index(&mut self, head: Head, index: &ChunkIndex) {
        let start = index.chunk_start_offset;
        let what = format!("index of the chunk at byte {start}");
        let Some(chunk) = self.chunks.at(start) else {
            // Chunks beyond those kept cannot be checked individually.
            if self.chunks.are_all_kept() {
                self.records
                    .file
                    .problem(head.start, what, "a chunk there", "none");
            }
            return;
        };
        let times = (index.message_start_time, index.message_end_time);
        self.records.file.same(
            head.start,
            format!("{what}: length"),
            chunk.length,
            index.chunk_length,
        );
        self.records.file.same(
            head.start,
            format!("{what}: first log time"),
            chunk.times.0,
            times.0,
        );
        self.records.file.same(
            head.start,
            format!("{what}: last log time"),
            chunk.times.1,
            times.1,
        );
        if chunk_sizes(&index.compression, index.compressed_size, index.uncompressed_size) != chunk.sizes {
            let found = format!(
                "{} and {} bytes of {:?}",
                index.compressed_size, index.uncompressed_size, index.compression
            );
            self.records.file.problem(
                head.start,
                format!("{what}: sizes and codec"),
                "those of the chunk",
                found,
            );
        }
        let mut indexes = EntrySum::default();
        index
            .message_index_offsets
            .iter()
            .for_each(|(id, offset)| indexes.add(u64::from(*id), *offset));
        if indexes != chunk.indexes && (indexes.count > 0 || index.message_index_length > 0) {
            let (expected, found) = (
                format!("the places of its {} message indexes", chunk.indexes.count),
                format!("{} places, some of them different", indexes.count),
            );
            self.records
                .file
                .problem(head.start, format!("{what}: message indexes"), expected, found);
        } else if indexes.count > 0 {
            let what = format!("{what}: length of its message indexes");
            self.records
                .file
                .same(head.start, what, chunk.index_length, index.message_index_length);
        }
    }

    fn statistics(&mut self, head: Head, declared: &Statistics) {
        let at = head.start;
        let content = &self.content;
        let is_partial = content.is_partial;
        let times = content
            .times
            .unwrap_or((if is_partial { u64::MAX } else { 0 }, 0));
        let defined = content
            .channels
            .iter()
            .filter(|channel| channel.record.is_some())
            .count() as u64;
        let counts = [
            ("message count", content.message_count(), declared.message_count),
            (
                "schemas",
                content.schemas.len() as u64,
                u64::from(declared.schema_count),
            ),
            (
                "attachments",
                self.attachments.count,
                u64::from(declared.attachment_count),
            ),
            (
                "metadata records",
                self.metadata.count,
                u64::from(declared.metadata_count),
            ),
            ("chunks", self.chunks.count(), u64::from(declared.chunk_count)),
            ("first log time", times.0, declared.message_start_time),
            ("last log time", times.1, declared.message_end_time),
        ];
        let used = content
            .channels
            .iter()
            .filter(|channel| channel.messages > 0)
            .count() as u64;
        let declared_channels = u64::from(declared.channel_count);
        if declared_channels != defined && !(is_partial && declared_channels > defined) {
            // A filtered copy may define channels whose messages it left out.
            let is_harmless = (used..defined).contains(&declared_channels);
            let severity = if is_harmless {
                Severity::Notice
            } else {
                Severity::Problem
            };
            let what = "statistics: channels".to_owned();
            self.records
                .file
                .note(severity, Some(at), what, &defined, &declared_channels);
        }
        let is_wrong = |(what, expected, found): &(&str, u64, u64)| match *what {
            _ if !is_partial => true,
            "first log time" => found > expected,
            _ => found < expected,
        };
        for (what, expected, found) in counts.into_iter().filter(is_wrong) {
            self.records
                .file
                .same(at, format!("statistics: {what}"), expected, found);
        }
        self.channel_statistics(at, declared);
    }

    /// Compares the statistics of each channel.
    fn channel_statistics(&mut self, at: u64, declared: &Statistics) {
        let content = &self.content;
        let is_partial = content.is_partial;
        let mut by_channel: Vec<(u16, u64, u64)> = content
            .channels
            .iter()
            .map(|channel| {
                let declared = declared
                    .channel_message_counts
                    .get(&channel.id)
                    .copied()
                    .unwrap_or(0);
                (channel.id, channel.messages, declared)
            })
            .collect();
        let unknown = declared
            .channel_message_counts
            .iter()
            .filter(|(id, _)| content.channel(**id).is_none());
        by_channel.extend(unknown.map(|(id, declared)| (*id, 0, *declared)));
        let is_wrong = |(_, expected, found): &(u16, u64, u64)| !is_partial || found < expected;
        for (id, expected, found) in by_channel.into_iter().filter(is_wrong) {
            let what = format!("statistics: messages of channel {id}");
            self.records.file.same(at, what, expected, found);
        }
    }

    fn footer(&mut self, data_end: u64, found: &Found) -> Checked {
        let head_start = self.records.stream.position();
        // Opcode, length and the two offsets before the checksum, which covers them.
        let mut prefix = Vec::new();
        take(&mut self.records.stream, 9, &mut prefix)?;
        if prefix.get(1..) != Some(&20u64.to_le_bytes()) {
            self.records
                .file
                .problem(head_start, "footer record", "20 bytes", "another length");
            return Err(Stop::Ended);
        }
        let mut body = Vec::new();
        take(&mut self.records.stream, 16, &mut body)?;
        let crc = self.records.stream.crc();
        let mut last = Vec::new();
        take(&mut self.records.stream, 4, &mut last)?;
        body.extend_from_slice(&last);
        let head = Head {
            opcode: op::FOOTER,
            start: head_start,
            body_bytes: 20,
        };
        if let Some(Record::Footer(footer)) = self.records.parse(head, &body) {
            self.judge_footer(head, data_end, &footer, crc, found);
        }
        let at = self.records.stream.position();
        let mut end = Vec::new();
        (&mut self.records.stream).take(9).read_to_end(&mut end)?;
        if end != MAGIC {
            let found = format!("{end:02x?}{}", if end.len() > 8 { " and more" } else { "" });
            self.records.file.problem(
                at,
                "end of the file",
                format!("{MAGIC:02x?} and nothing after it"),
                found,
            );
        }
        skip(&mut self.records.stream, u64::MAX)?;
        Ok(())
    }

    fn judge_footer(&mut self, head: Head, data_end: u64, footer: &Footer, crc: u32, found: &Found) {
        let at = head.start;
        if head.start != self.records.footer_start() {
            self.records.file.problem(
                at,
                "footer",
                format!("at byte {}", self.records.footer_start()),
                format!("at byte {at}"),
            );
        }
        let has_summary = at > data_end;
        let expected = if has_summary { data_end } else { 0 };
        // Without a summary, writers store either value.
        if footer.summary_start != expected && (has_summary || footer.summary_start != data_end) {
            self.records
                .file
                .problem(at, "footer: start of the summary", expected, footer.summary_start);
        }
        if footer.summary_offset_start != 0 || found.offsets_start.is_some() {
            let expected = found.offsets_start.unwrap_or(0);
            self.records.file.same(
                at,
                "footer: start of the summary offsets",
                expected,
                footer.summary_offset_start,
            );
        }
        if footer.summary_crc != 0 && footer.summary_crc != crc {
            let (expected, found) = (format!("{:#010x}", footer.summary_crc), format!("{crc:#010x}"));
            self.records
                .file
                .problem(at, "checksum of the summary", expected, found);
        }
        for offset in &found.offsets {
            let (opcode, start, length) = (offset.group_opcode, offset.group_start, offset.group_length);
            // pip `mcap` also writes one for groups without records.
            if length > 0 && !found.groups.contains(&(opcode, start, length)) {
                let (expected, found) = (
                    format!("a group of {} records", kind(opcode)),
                    format!("{length} bytes at byte {start}"),
                );
                self.records.file.problem(at, "summary offset", expected, found);
            }
        }
        self.judge_indexes(at, found);
    }

    fn judge_indexes(&mut self, at: u64, found: &Found) {
        if found.chunk_indexes > 0 {
            self.records.file.same(
                at,
                "chunk indexes in the summary",
                self.chunks.count(),
                found.chunk_indexes,
            );
        } else if self.chunks.count() > 0 {
            let expected = format!("{} chunk indexes", self.chunks.count());
            self.records
                .file
                .notice(at, "summary", expected, "none: every reader reads the whole file");
        }
        if found.attachments.count > 0 && found.attachments != self.attachments {
            let (expected, found) = (self.attachments.count, found.attachments.count);
            let expected = format!("the places of {expected} attachments");
            self.records.file.problem(
                at,
                "attachment indexes",
                expected,
                format!("{found}, some of them different"),
            );
        }
        if found.metadata.count > 0 && found.metadata != self.metadata {
            let (expected, found) = (self.metadata.count, found.metadata.count);
            let expected = format!("the places of {expected} metadata records");
            self.records.file.problem(
                at,
                "metadata indexes",
                expected,
                format!("{found}, some of them different"),
            );
        }
        if !found.statistics {
            self.records.file.notice(at, "summary", "statistics", "none");
        }
    }
}
