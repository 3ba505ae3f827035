//! Writes the part after the chunks: closing records, the data section's end, the summary and the footer.

use super::Catalog;
use crate::mcap::{
    format::{FOOTER_AND_MAGIC_BYTES, Footer, MAGIC, SummaryOffset, encode_data_end, op},
    options::McapOptions,
    writer::output::Output,
};
use holdall_io::{disk::DiskError, queue::DiskQueue};

/// Room for statistics, summary offsets, data end, footer, magic.
const FIXED_BYTES: u64 = 512;
/// A channel in the statistics.
const COUNT_BYTES: u64 = 10;

impl Catalog {
    /// Estimated bytes that will follow the current content of the file.
    pub(in crate::mcap::writer) fn summary_bytes(&self, options: &McapOptions) -> u64 {
        let counts = self.channels.len() as u64 * COUNT_BYTES;
        let definitions = if options.summary {
            self.definitions_bytes
        } else {
            0
        };
        FIXED_BYTES + counts + definitions + self.chunk_indexes_bytes + self.metadata.records.len() as u64
    }

    /// Writes everything that comes after the data.
    pub(in crate::mcap::writer) fn write_end(
        &self,
        q: &mut DiskQueue,
        options: &McapOptions,
        output: &mut Output,
    ) -> Result<(), DiskError> {
        let with_summary_crc = options.summary && options.summary_crc;
        let data_crc = output.end_section(q, false)?;
        let mut data_end = Vec::new();
        encode_data_end(&mut data_end, data_crc);
        output.put(q, &data_end)?;
        output.end_section(q, with_summary_crc)?;
        let (summary_start, summary_offset_start) = self.write_summary(q, options, output)?;
        let footer = Footer {
            summary_start,
            summary_offset_start,
            summary_crc: 0,
        };
        // A footer states that the file is whole: a crash must never leave it after holes.
        output.barrier(q)?;
        let mut end = Vec::with_capacity(FOOTER_AND_MAGIC_BYTES);
        footer.encode_without_crc(&mut end);
        output.put(q, &end)?;
        let summary_crc = output.end_section(q, false)?;
        output.put(q, &summary_crc.to_le_bytes())?;
        output.put(q, &MAGIC)
    }

    /// Writes the summary; returns where it and its offsets begin, zero for a missing part.
    fn write_summary(
        &self,
        q: &mut DiskQueue,
        options: &McapOptions,
        output: &mut Output,
    ) -> Result<(u64, u64), DiskError> {
        if !options.summary {
            return Ok((0, 0));
        }
        let start = output.position();
        let mut offsets = Vec::new();
        let mut statistics = Vec::new();
        self.statistics().encode(&mut statistics);
        let mut group =
            |opcode: u8, wanted: bool, records: &mut dyn Iterator<Item = &[u8]>| -> Result<(), DiskError> {
                let group_start = output.position();
                for record in records.take_while(|_| wanted) {
                    output.put(q, record)?;
                }
                SummaryOffset::encode_group(opcode, group_start, output.position(), &mut offsets);
                Ok(())
            };
        let schemas = &mut self.schemas.iter().map(|schema| schema.record.as_slice());
        group(op::SCHEMA, options.repeated_schemas, schemas)?;
        let channels = &mut self.channels.iter().map(|channel| channel.record.as_slice());
        group(op::CHANNEL, options.repeated_channels, channels)?;
        group(
            op::STATISTICS,
            options.statistics,
            &mut std::iter::once(statistics.as_slice()),
        )?;
        group(
            op::CHUNK_INDEX,
            options.chunk_index,
            &mut self.chunk_indexes.iter().map(Vec::as_slice),
        )?;
        let metadata = &mut std::iter::once(self.metadata.records.as_slice());
        group(op::METADATA_INDEX, options.metadata_index, metadata)?;
        let offset_start = output.position();
        if offset_start == start {
            return Ok((0, 0));
        }
        if !options.summary_offsets {
            return Ok((start, 0));
        }
        output.put(q, &offsets)?;
        Ok((start, offset_start))
    }
}
