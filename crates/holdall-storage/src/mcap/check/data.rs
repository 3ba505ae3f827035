//! Checks the data section: order of records, definitions before messages, message indexes, checksums.

use super::{
    Checked, Checker, ChunkFacts, Head, Stop,
    content::{EntrySum, SchemaRecord},
    kind,
    stream::{Limited, Summing, skip, take},
};
use crate::{
    error::StorageError,
    mcap::{
        format::{Channel, Fields, INDEX_ENTRY_BYTES, MESSAGE_HEADER_BYTES, MessageHeader, Record, op},
        reader::{source::Source, summary::has_footer},
        recover::resync::Known,
    },
};
use holdall_model::units::counted;
use std::io::BufRead;

impl Checker<'_> {
    /// Checks everything up to the data end record; returns where that record ends.
    pub(super) fn data_section(&mut self) -> Checked<u64> {
        loop {
            let is_end = self.records.stream.fill_buf()?.first() == Some(&op::DATA_END);
            let crc = if is_end {
                Some(self.records.stream.crc())
            } else {
                None
            };
            let start = self.records.stream.position();
            let head = match self.records.next_head("the next record of the data section") {
                Err(Stop::Ended) if self.pass_gap(start)? => continue,
                head => head?,
            };
            if head.opcode != op::MESSAGE_INDEX {
                self.close_chunk();
            }
            match (head.opcode, crc) {
                (op::DATA_END, Some(crc)) => {
                    self.data_end(head, crc)?;
                    return Ok(self.records.stream.position());
                }
                (op::CHUNK, _) => self.chunk(head)?,
                (op::MESSAGE, _) => self.bare_message(head)?,
                (op::MESSAGE_INDEX, _) => self.message_index(head)?,
                (op::SCHEMA | op::CHANNEL, _) => {
                    if let Some(body) = self.records.body(head)? {
                        self.definition(head, &body);
                        self.records.recycle(body);
                    }
                }
                (op::ATTACHMENT, _) => self.attachment(head)?,
                (op::METADATA, _) => {
                    if let Some(body) = self.records.body(head)? {
                        if let Some(Record::Metadata(metadata)) = self.records.parse(head, &body) {
                            self.keep_metadata(head, metadata.name, metadata.metadata);
                        }
                        self.records.recycle(body);
                    }
                }
                (op::FOOTER, _) => {
                    self.records.file.problem(
                        head.start,
                        "data section",
                        "a data end record before the footer",
                        "none",
                    );
                    return Err(Stop::Ended);
                }
                (opcode, _) => {
                    if opcode <= op::DATA_END {
                        let found = format!("a {} record", kind(opcode));
                        self.records.file.problem(
                            head.start,
                            "data section",
                            "a record of the data section",
                            found,
                        );
                    }
                    skip(&mut self.records.stream, head.body_bytes)?;
                }
            }
        }
    }

    /// Continues at the next verified chunk after `start`, where the records can no longer be followed; false where there is none.
    pub(super) fn pass_gap(&mut self, start: u64) -> Checked<bool> {
        let unreadable = |error: StorageError| Stop::Refused(Box::new(error));
        let source = Source::open(&self.records.file.path).map_err(unreadable)?;
        let known = Known {
            channels: self.content.defined().collect(),
            has_end: has_footer(&source).map_err(unreadable)?,
            is_bare: self.chunks.count() == 0 && self.chunks.open().is_none(),
        };
        let position = self.records.stream.position();
        let found = self.resync.next(&source, position, &known).map_err(unreadable)?;
        let Some(found) = found else {
            return Ok(false);
        };
        self.close_chunk();
        self.content.is_partial = true;
        skip(&mut self.records.stream, found.start - position)?;
        let none = format!(
            "none that can be followed in {} bytes from here on",
            found.start - start
        );
        self.records
            .file
            .problem(start, "data section", "one record after another", none);
        Ok(true)
    }

    fn data_end(&mut self, head: Head, found: u32) -> Checked {
        if let Some(body) = self.records.body(head)? {
            if let Some(Record::DataEnd(crc)) = self.records.parse(head, &body)
                && crc != 0
                && crc != found
            {
                self.records.file.problem(
                    head.start,
                    "checksum of the data section",
                    format!("{crc:#010x}"),
                    format!("{found:#010x}"),
                );
            }
            self.records.recycle(body);
        }
        Ok(())
    }

    /// A schema or channel record; `head` is its place in the file, or the chunk's when it is in one.
    pub(super) fn definition(&mut self, head: Head, body: &[u8]) {
        match self.records.parse(head, body) {
            Some(Record::Schema(schema)) => {
                if schema.id == 0 {
                    self.records
                        .file
                        .problem(head.start, "schema record", "a number from 1 on", 0);
                    return;
                }
                let found = SchemaRecord::from(&schema);
                match self
                    .content
                    .schemas
                    .get(&schema.id)
                    .map(|(_, known)| known.clone())
                {
                    Some(known) if known != found => {
                        let what = format!("schema {}", schema.id);
                        let expected = format!("the same as before ({})", known.name);
                        self.records.file.problem(
                            head.start,
                            what,
                            expected,
                            format!("another one ({})", found.name),
                        );
                    }
                    Some(_) => {}
                    None if self.may_keep(head.start, body.len() as u64) => {
                        self.content.schemas.insert(schema.id, (head.start, found));
                    }
                    None => {}
                }
            }
            Some(Record::Channel(channel)) => self.channel(head, channel),
            _ => {}
        }
    }

    fn channel(&mut self, head: Head, channel: Channel) {
        if channel.schema_id != 0 && !self.content.schemas.contains_key(&channel.schema_id) {
            let what = format!("channel {} ({})", channel.id, channel.topic);
            let found = format!("schema {}, which was not defined before", channel.schema_id);
            self.records
                .file
                .problem(head.start, what, "a schema that is defined before", found);
        }
        match self
            .content
            .channel(channel.id)
            .and_then(|known| known.record.as_ref())
        {
            Some(known) if *known != channel => {
                let what = format!("channel {}", channel.id);
                let expected = format!("the same as before ({})", known.topic);
                self.records.file.problem(
                    head.start,
                    what,
                    expected,
                    format!("another one ({})", channel.topic),
                );
            }
            Some(_) => {}
            None => {
                if self.may_keep(head.start, head.body_bytes.min(super::BODY_BYTES_MAX)) {
                    let place = self.content.place(channel.id);
                    let known = &mut self.content.channels[place];
                    (known.record, known.defined_at) = (Some(channel), head.start);
                }
            }
        }
    }

    /// A message outside of chunks.
    fn bare_message(&mut self, head: Head) -> Checked {
        let header_bytes = head.body_bytes.min(MESSAGE_HEADER_BYTES as u64);
        let bytes = self.records.begin_of_body(header_bytes)?;
        self.message_header(head.start, &bytes, None);
        self.records.recycle(bytes);
        skip(&mut self.records.stream, head.body_bytes - header_bytes)?;
        Ok(())
    }

    /// Counts a message from the bytes of its header; `offset` is its offset in a chunk's records, `at` in
    /// the file.
    #[inline]
    pub(super) fn message_header(&mut self, at: u64, bytes: &[u8], offset: Option<u64>) {
        match MessageHeader::decode(&mut Fields::new(bytes)) {
            Ok(header) => {
                if self.content.message(&header, offset) {
                    let what = format!("message of channel {}", header.channel_id);
                    self.records
                        .file
                        .problem(at, what, "a channel that is defined before", "none");
                }
            }
            Err(error) => self
                .records
                .file
                .problem(at, "message record", error.expected, error.found),
        }
    }

    /// The message index of one channel of the preceding chunk.
    fn message_index(&mut self, head: Head) -> Checked {
        let Some(mut chunk) = *self.chunks.open() else {
            self.records
                .file
                .problem(head.start, "message index record", "a chunk before it", "none");
            skip(&mut self.records.stream, head.body_bytes)?;
            return Ok(());
        };
        let mut limited = Limited {
            inner: &mut self.records.stream,
            left: head.body_bytes,
        };
        let mut prefix = Vec::new();
        take(&mut limited, 6, &mut prefix)?;
        let (Some(&[id_low, id_high]), Some(length)) = (
            prefix.first_chunk::<2>(),
            prefix.get(2..6).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok()),
        ) else {
            self.records.file.problem(
                head.start,
                "message index record",
                "a channel and a length",
                "fewer bytes",
            );
            return Ok(());
        };
        let id = u16::from_le_bytes([id_low, id_high]);
        let length = u64::from(u32::from_le_bytes(length));
        if length > limited.left || length % INDEX_ENTRY_BYTES as u64 != 0 {
            let found = format!("{length} bytes of entries in {}", limited.left);
            skip(&mut limited, u64::MAX)?;
            self.records.file.problem(
                head.start,
                "message index record",
                "entries of 16 bytes each",
                found,
            );
            return Ok(());
        }
        let mut found = EntrySum::default();
        let mut entry = Vec::with_capacity(INDEX_ENTRY_BYTES);
        for _ in 0..length / INDEX_ENTRY_BYTES as u64 {
            take(&mut limited, INDEX_ENTRY_BYTES, &mut entry)?;
            if let (Some(time), Some(offset)) = (entry.first_chunk::<8>(), entry.last_chunk::<8>()) {
                found.add(u64::from_le_bytes(*time), u64::from_le_bytes(*offset));
            }
        }
        skip(&mut limited, u64::MAX)?;
        chunk.indexes.add(u64::from(id), head.start);
        chunk.index_length = self.records.stream.position() - (chunk.start + chunk.length);
        *self.chunks.open() = Some(chunk);
        self.compare_index(head, id, found, chunk);
        Ok(())
    }

    fn compare_index(&mut self, head: Head, id: u16, found: EntrySum, chunk: ChunkFacts) {
        let place = self.content.place(id);
        let channel = &mut self.content.channels[place];
        let known = channel.in_chunk;
        let is_second = channel.indexed.is_some();
        if known.count > 0 {
            channel.indexed = Some(found);
        }
        if !chunk.is_read || (known == found && !is_second) {
            return;
        }
        let what = format!(
            "message index of channel {id} of the chunk at byte {}",
            chunk.start
        );
        if is_second {
            self.records
                .file
                .problem(head.start, what, "one index", "a second one");
        } else if known.count != found.count {
            let (expected, found) = (
                format!("{}, as in the chunk", counted(known.count, "message")),
                found.count.to_string(),
            );
            self.records.file.problem(head.start, what, expected, found);
        } else {
            self.records.file.problem(
                head.start,
                what,
                "the times and places of the chunk's messages",
                "others",
            );
        }
    }

    /// Checks that the preceding chunk has all its message indexes.
    pub(super) fn close_chunk(&mut self) {
        let Some(chunk) = self.chunks.open().take() else {
            return;
        };
        let missing: Vec<u16> = self
            .content
            .in_chunk
            .iter()
            .map(|place| &self.content.channels[*place])
            .filter(|channel| channel.indexed.is_none())
            .map(|channel| channel.id)
            .collect();
        let is_unindexed = chunk.indexes.count == 0 && !missing.is_empty();
        if let Some(first) = missing.first().filter(|_| !is_unindexed) {
            let found = format!("none for {} channels, the first is {first}", missing.len());
            self.records.file.problem(
                chunk.start,
                "message indexes of the chunk",
                "one for each of its channels",
                found,
            );
        }
        self.content.end_chunk();
        self.chunks.close(chunk, is_unindexed);
    }

    /// An attachment: verifies its checksum without keeping its data.
    fn attachment(&mut self, head: Head) -> Checked {
        self.attachments.add(head.start, head.body_bytes + 9);
        let mut body = Limited {
            inner: &mut self.records.stream,
            left: head.body_bytes,
        };
        let (mut crc, mut bytes) = (crc32fast::Hasher::new(), Vec::new());
        take(&mut body, 16, &mut bytes)?;
        crc.update(&bytes);
        for _ in 0..2 {
            take(&mut body, 4, &mut bytes)?;
            crc.update(&bytes);
            let length = bytes
                .first_chunk::<4>()
                .map_or(0, |bytes| u32::from_le_bytes(*bytes));
            let length = u64::from(length).min(body.left).min(super::BODY_BYTES_MAX);
            take(&mut body, length as usize, &mut bytes)?;
            crc.update(&bytes);
        }
        take(&mut body, 8, &mut bytes)?;
        crc.update(&bytes);
        let length = bytes
            .first_chunk::<8>()
            .map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes));
        let left = body.left;
        if length.checked_add(4).is_none_or(|needed| needed > left) {
            skip(&mut body, u64::MAX)?;
            let expected = format!("{length} bytes of data and a checksum");
            self.records
                .file
                .problem(head.start, "attachment record", expected, format!("{left} bytes"));
            return Ok(());
        }
        let mut data = Summing::new(Limited {
            inner: &mut body,
            left: length,
        });
        data.crc = crc;
        skip(&mut data, u64::MAX)?;
        let found = data.crc.finalize();
        take(&mut body, 4, &mut bytes)?;
        skip(&mut body, u64::MAX)?;
        let stored = bytes
            .first_chunk::<4>()
            .map_or(0, |bytes| u32::from_le_bytes(*bytes));
        if stored != 0 && stored != found {
            let expected = format!("{stored:#010x}");
            self.records.file.problem(
                head.start,
                "attachment checksum",
                expected,
                format!("{found:#010x}"),
            );
        }
        Ok(())
    }
}
