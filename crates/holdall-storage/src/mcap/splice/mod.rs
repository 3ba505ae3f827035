//! Makes an MCAP file from parts of others: chunks without changes are copied, the rest is unpacked.

mod attachments;
mod copy;
mod ids;
mod indexes;
mod tail;

use super::{
    format::{Header, MAGIC, encode_metadata},
    reader::{
        McapReaderOptions,
        extent::Wanted,
        index::{Extent, FileIndex, signed},
        source::Source,
    },
};
use crate::{
    StorageError, StorageOptions,
    chunks::{AttachmentChange, AttachmentInfo, ChunkFile, ChunkSummary, SpliceChoice, SpliceJob, Spliced},
    error::StorageResult,
    mcap::{
        McapOptions,
        options::{Compression, CompressionLevel},
        packer::RecordPacker,
    },
    reader::{FileCondition, ReadOrder, ReadQuery, StorageSummary},
    writer::{ChannelIndex, MetadataEntries},
};
use copy::Copier;
use holdall_io::output::OutputFile;
use holdall_model::time::Timestamp;
use ids::Numbers;
use std::{any::Any, collections::BTreeSet, path::Path};
use tail::Tail;

/// A file whose parts are spliced.
pub(super) struct SpliceInput {
    index: FileIndex,
}

impl SpliceInput {
    pub(super) fn open(path: &Path) -> StorageResult<Self> {
        Ok(Self {
            index: FileIndex::open(Source::open(path)?)?,
        })
    }
}

impl ChunkFile for SpliceInput {
    fn summary(&self) -> &StorageSummary {
        &self.index.summary
    }

    fn has_index(&self) -> StorageResult<bool> {
        let extents = self.index.extents()?;
        let is_indexed = |extent: &Extent| {
            let channels = extent.channels.as_ref();
            channels.is_some_and(|channels| channels.iter().all(|(_, offset)| *offset != 0))
        };
        Ok(self.index.summary.condition == FileCondition::Complete && extents.iter().all(is_indexed))
    }

    fn foreign_schemas(&self) -> Vec<String> {
        let schemas = self.index.definitions.schemas.values();
        let ours = ["ros2msg", "ros2idl", "ros1msg", "unknown", ""];
        let encodings = schemas.map(|schema| schema.encoding.to_string());
        let others: BTreeSet<String> = encodings
            .filter(|encoding| !ours.contains(&encoding.as_str()))
            .collect();
        others.into_iter().collect()
    }

    fn parts(&self) -> StorageResult<Vec<(Timestamp, Timestamp, u64)>> {
        let extents = self.index.extents()?;
        let next_starts = extents.iter().skip(1).map(|next| Some(next.start)).chain([None]);
        let part = |(extent, next): (&Extent, Option<u64>)| {
            // Message indexes are between chunks; after the last chunk they are assumed to be at most as long
            // as it.
            let with_indexes = next.map_or(extent.length * 2, |next| next.saturating_sub(extent.start));
            let bytes = with_indexes.clamp(extent.length, extent.length * 2) + CHUNK_INDEX_BYTES;
            (signed(extent.times.0), signed(extent.times.1), bytes)
        };
        Ok(extents.iter().zip(next_starts).map(part).collect())
    }

    fn chunks(&self) -> StorageResult<Vec<ChunkSummary>> {
        self.index.chunks()
    }

    fn attachments(&self) -> StorageResult<Vec<AttachmentInfo>> {
        attachments::list(&self.index)
    }

    fn attachment_is_intact(&self, place: usize) -> StorageResult<Option<bool>> {
        attachments::is_intact(&self.index, place)
    }
}

/// How chunks are compressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChunkCodec {
    compression: Compression,
    level: CompressionLevel,
}

impl ChunkCodec {
    /// The codec of the MCAP storage's settings.
    ///
    /// # Errors
    /// Settings that are not valid.
    pub(super) fn of(options: &StorageOptions) -> StorageResult<Self> {
        let options = McapOptions::preset(options.preset.as_deref())?
            .with_config(options.config.as_deref().unwrap_or_default())?;
        Ok(Self {
            compression: options.compression,
            level: options.compression_level,
        })
    }

    /// The codec of an existing chunk, with default effort; none for an unknown one.
    fn of_chunk(compression: &str) -> Self {
        let known = [Compression::Lz4, Compression::Zstd];
        let named = known.into_iter().find(|known| known.as_str() == compression);
        Self {
            compression: named.unwrap_or(Compression::None),
            level: CompressionLevel::Default,
        }
    }

    /// A packer for this codec; rebuilt chunks have a CRC.
    fn packer(&self) -> RecordPacker {
        RecordPacker::new(&McapOptions {
            compression_level: self.level,
            chunk_crc: true,
            ..McapOptions::default()
        })
    }
}

/// As [`crate::chunks::ChunkStorage::splice`].
pub(super) fn splice(job: SpliceJob<'_>) -> StorageResult<Spliced> {
    let SpliceJob {
        inputs,
        choice,
        disk,
        path,
        opening,
        closing,
        attachments,
        progress,
    } = job;
    let codec = choice.codec.as_ref().map(ChunkCodec::of).transpose()?;
    let inputs = &inputs
        .iter()
        .map(|input| {
            let any: &dyn Any = &**input;
            any.downcast_ref::<SpliceInput>()
                .ok_or_else(|| StorageError::Unsupported {
                    path: input.summary().path.clone(),
                    what: "copying its chunks",
                    reason: "it is of another storage".to_owned(),
                })
        })
        .collect::<StorageResult<Vec<&SpliceInput>>>()?;
    let numbers = Numbers::assign(inputs, choice, path)?;
    let wanted = (0..inputs.len()).map(|input| wanted(inputs, choice, input));
    let wanted: Vec<Wanted> = wanted.collect();
    let planned = planned(inputs, choice, &wanted)?;
    let mut ahead = Ahead::default();
    ahead.announce(inputs, &planned, 0);
    let mut out = disk.create_new(path, copied_bytes(&wanted, &planned))?;
    let mut tail = Tail::default();
    let mut begin = MAGIC.to_vec();
    Header {
        profile: common_profile(inputs)?,
        library: format!("holdall {}", env!("CARGO_PKG_VERSION")),
    }
    .encode(&mut begin);
    tail.put(&mut out, &begin)?;
    for (name, entries) in opening {
        put_metadata(&mut tail, &mut out, name, entries)?;
    }
    tail.put(&mut out, &numbers.records)?;
    let mut copier = Copier::new(inputs, &numbers, choice, codec.as_ref(), &mut out, &mut tail);
    let mut done = 0;
    for (input, extent) in &planned {
        ahead.announce(inputs, &planned, done);
        copier.extent_or_leave_out(*input, extent, &wanted[*input])?;
        done += extent.length;
        progress(done);
    }
    let (copied_chunks, copied_bytes, unpacked, left_out) = copier.finish()?;
    put_attachments(inputs, attachments, &mut tail, &mut out)?;
    let mut spliced = Spliced {
        channels: numbers.counted(&tail.counts),
        starting_time: tail.times.map(|(start, _)| signed(start)),
        ending_time: tail.times.map(|(_, end)| signed(end)),
        copied_chunks,
        copied_bytes,
        unpacked,
        bytes: 0,
        left_out,
    };
    for (name, entries) in closing(&spliced) {
        put_metadata(&mut tail, &mut out, &name, &entries)?;
    }
    tail.finish(&mut out, &numbers)?;
    spliced.bytes = out.finish()?;
    Ok(spliced)
}

/// Announces extents in the order in which they are copied, so that the disk reads, or a bucket's requests overlap, meanwhile.
#[derive(Default)]
struct Ahead {
    next: usize,
    bytes: u64,
}

impl Ahead {
    /// Announces extents as far past the finished ones as their source is read ahead.
    fn announce(&mut self, inputs: &[&SpliceInput], planned: &[(usize, Extent)], done: u64) {
        while let Some((input, extent)) = planned.get(self.next) {
            let source = &inputs[*input].index.source;
            let bytes_max = source.read_ahead_bytes();
            if self.bytes >= done.saturating_add(bytes_max) {
                return;
            }
            // Message indexes are copied with their chunk.
            source.will_need(extent.start, extent.length_with_indexes().min(bytes_max));
            self.bytes += extent.length;
            self.next += 1;
        }
    }
}

/// The profile of all inputs, or none when they differ.
fn common_profile(inputs: &[&SpliceInput]) -> StorageResult<String> {
    let profiles = inputs.iter().map(|input| input.index.profile());
    let profiles = profiles.collect::<StorageResult<Vec<_>>>()?;
    let first = profiles.first().copied().unwrap_or_default();
    let same = profiles.iter().all(|profile| *profile == first);
    Ok(if same { first.to_owned() } else { String::new() })
}

fn wanted(inputs: &[&SpliceInput], choice: &SpliceChoice, input: usize) -> Wanted {
    let taken = choice.channels.get(input).map(Vec::as_slice).unwrap_or_default();
    let channels = if taken.iter().all(|taken| *taken) {
        None
    } else {
        let places = (0u32..).map(ChannelIndex).zip(taken);
        Some(
            places
                .filter(|(_, taken)| **taken)
                .map(|(place, _)| place)
                .collect(),
        )
    };
    let query = ReadQuery {
        channels,
        start: choice.from,
        end: choice.until,
        order: ReadOrder::File,
        verified: true,
    };
    Wanted::new(&inputs[input].index, &query)
}

/// The extents that may hold selected messages, in order.
fn planned(
    inputs: &[&SpliceInput],
    choice: &SpliceChoice,
    wanted: &[Wanted],
) -> StorageResult<Vec<(usize, Extent)>> {
    let mut planned = Vec::new();
    for (place, (input, wanted)) in inputs.iter().zip(wanted).enumerate() {
        if !choice
            .channels
            .get(place)
            .is_some_and(|taken| taken.contains(&true))
        {
            continue;
        }
        let extents = input.index.extents()?;
        planned.extend(
            extents
                .iter()
                .filter(|extent| wanted.may_be_in(extent))
                .map(|extent| (place, extent.clone())),
        );
    }
    // From an extent that begins earlier, only messages from `from` on are taken.
    let from = choice
        .from
        .map_or(0, |from| from.as_nanos().max(0).cast_unsigned());
    planned.sort_by_key(|(place, extent)| (extent.times.0.max(from), *place, extent.start));
    Ok(planned)
}

/// Bytes of the extents that are copied whole: about the smallest size of the output.
fn copied_bytes(wanted: &[Wanted], planned: &[(usize, Extent)]) -> u64 {
    let whole = planned
        .iter()
        .filter(|(input, extent)| wanted[*input].takes_all(extent));
    whole.map(|(_, extent)| extent.length).sum()
}

fn put_metadata(
    tail: &mut Tail,
    out: &mut OutputFile<'_>,
    name: &str,
    entries: &MetadataEntries,
) -> StorageResult<()> {
    let mut record = Vec::new();
    encode_metadata(&mut record, name, entries);
    tail.metadata.note(out.len_bytes(), record.len() as u64, name);
    tail.put(out, &record)
}

fn put_attachments(
    inputs: &[&SpliceInput],
    change: AttachmentChange<'_>,
    tail: &mut Tail,
    out: &mut OutputFile<'_>,
) -> StorageResult<()> {
    for input in inputs {
        for attachment in attachments::find(&input.index)? {
            if !change.removed.contains(&attachment.name) {
                tail.attachment(out, &input.index.source, attachment)?;
            }
        }
    }
    for new in change.added {
        tail.new_attachment(out, new)?;
    }
    Ok(())
}

/// Approximate bytes of a chunk in the summary.
const CHUNK_INDEX_BYTES: u64 = 256;

/// How chunks are read.
const READER: McapReaderOptions = McapReaderOptions {
    loaded_bytes_max: 256 << 20,
    chunk_bytes_max: 1 << 30,
    is_verified: true,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_that_are_made_anew_are_packed_as_what_they_were_made_of_without_sums_of_their_own() {
        let records = vec![7; 100_000];
        let pack = |compression: &str| {
            let mut packed = Vec::new();
            let codec = ChunkCodec::of_chunk(compression);
            let is_packed = codec.packer().pack(codec.compression, &records, &mut packed);
            is_packed.unwrap().then_some(packed)
        };
        let lz4 = pack("lz4").unwrap();
        // FLG byte of the frame: bit 4 block checksums, bit 2 content checksum.
        assert_eq!((&lz4[..4], lz4[4] & 0b1_0100), (&[0x04, 0x22, 0x4d, 0x18][..], 0));
        assert_eq!(pack("zstd").unwrap()[..4], [0x28, 0xb5, 0x2f, 0xfd]);
        assert_eq!((pack(""), pack("brotli")), (None, None));
    }

    #[test]
    fn settings_say_codec_and_effort() {
        let options = |config: &str| StorageOptions {
            config: Some(config.to_owned()),
            ..StorageOptions::default()
        };
        let codec = ChunkCodec::of(&options("compression: Lz4\ncompressionLevel: Slow\n")).unwrap();
        assert_eq!(
            (codec.compression, codec.level),
            (Compression::Lz4, CompressionLevel::Slow)
        );
    }
}
