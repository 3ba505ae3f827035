//! Writes the part after the chunks: closing records, the data section's end, the summary and the footer.

use super::McapWriter;
use crate::{
    error::StorageResult,
    mcap::format::{FOOTER_AND_MAGIC_BYTES, Footer, MAGIC, SummaryOffset, encode_data_end, op},
    writer::{MetadataEntries, StorageWriter},
};
use holdall_io::{disk::DiskError, queue::DiskQueue};

/// Room for statistics, summary offsets, data end, footer, magic.
const FIXED_BYTES: u64 = 512;
/// A channel in the statistics.
const COUNT_BYTES: u64 = 10;

impl McapWriter {
    /// Estimated bytes that will follow the current content of the file.
    pub(super) fn summary_bytes(&self) -> u64 {
        let catalog = &self.catalog;
        let counts = catalog.channels.len() as u64 * COUNT_BYTES;
        let definitions = if self.options.summary {
            catalog.definitions_bytes
        } else {
            0
        };
        FIXED_BYTES
            + counts
            + definitions
            + catalog.chunk_indexes_bytes
            + catalog.metadata_indexes.len() as u64
    }

    /// Closes all chunks and writes everything to the end of the file.
    pub(super) fn write_end(
        &mut self,
        q: &mut DiskQueue,
        closing_metadata: &[(&str, MetadataEntries)],
    ) -> StorageResult<()> {
        self.close_chunks(q)?;
        // Topics without messages too: a reader that reads the file from front to end finds all of them.
        for channel in 0..u16::try_from(self.catalog.channels.len()).unwrap_or(u16::MAX) {
            self.write_definitions(q, channel)?;
        }
        for (name, entries) in closing_metadata {
            self.write_metadata(q, name, entries)?;
        }
        let with_summary_crc = self.options.summary && self.options.summary_crc;
        let data_crc = self.output.end_section(q, false)?;
        let mut data_end = Vec::new();
        encode_data_end(&mut data_end, data_crc);
        self.output.put(q, &data_end)?;
        self.output.end_section(q, with_summary_crc)?;
        let (summary_start, summary_offset_start) = self.write_summary(q)?;
        let footer = Footer {
            summary_start,
            summary_offset_start,
            summary_crc: 0,
        };
        // A footer states that the file is whole: a crash must never leave it after holes.
        self.output.barrier(q)?;
        let mut end = Vec::with_capacity(FOOTER_AND_MAGIC_BYTES);
        footer.encode_without_crc(&mut end);
        self.output.put(q, &end)?;
        let summary_crc = self.output.end_section(q, false)?;
        self.output.put(q, &summary_crc.to_le_bytes())?;
        self.output.put(q, &MAGIC)?;
        Ok(())
    }

    /// Writes the summary; returns where it and its offsets begin, zero for a missing part.
    fn write_summary(&mut self, q: &mut DiskQueue) -> StorageResult<(u64, u64)> {
        if !self.options.summary {
            return Ok((0, 0));
        }
        let (options, catalog) = (&self.options, &self.catalog);
        let start = self.output.position();
        let mut offsets = Vec::new();
        let mut statistics = Vec::new();
        catalog.statistics().encode(&mut statistics);
        let mut group =
            |opcode: u8, wanted: bool, records: &mut dyn Iterator<Item = &[u8]>| -> Result<(), DiskError> {
                let group_start = self.output.position();
                for record in records.take_while(|_| wanted) {
                    self.output.put(q, record)?;
                }
                let group_length = self.output.position() - group_start;
                if group_length > 0 {
                    SummaryOffset {
                        group_opcode: opcode,
                        group_start,
                        group_length,
                    }
                    .encode(&mut offsets);
                }
                Ok(())
            };
        let schemas = &mut catalog.schemas.iter().map(|schema| schema.record.as_slice());
        group(op::SCHEMA, options.repeated_schemas, schemas)?;
        let channels = &mut catalog.channels.iter().map(|channel| channel.record.as_slice());
        group(op::CHANNEL, options.repeated_channels, channels)?;
        group(
            op::STATISTICS,
            options.statistics,
            &mut std::iter::once(statistics.as_slice()),
        )?;
        group(
            op::CHUNK_INDEX,
            options.chunk_index,
            &mut catalog.chunk_indexes.iter().map(Vec::as_slice),
        )?;
        let metadata = &mut std::iter::once(catalog.metadata_indexes.as_slice());
        group(op::METADATA_INDEX, options.metadata_index, metadata)?;
        let offset_start = self.output.position();
        if offset_start == start {
            return Ok((0, 0));
        }
        if !options.summary_offsets {
            return Ok((start, 0));
        }
        self.output.put(q, &offsets)?;
        Ok((start, offset_start))
    }
}
