//! Reads a bag for its grade as a part of a lake: sizes of chunks and topics, and what each file says of itself.

use holdall_bag::reader::{Bag, BagFile, ReadError};
use holdall_model::{
    lake::{CHUNK_BYTES_MAX, LakeBag, LakeFile, LakeVerdict, is_compressed_type},
    topic::DefinitionEncoding,
};
use holdall_storage::{
    chunks::{ChunkStorage, ChunkSummary},
    reader::{FileCondition, ReadOrder, ReadQuery, StorageReader},
};
use std::collections::BTreeMap;

/// The grade of a bag; `progress` receives the bytes done and the bytes in total.
///
/// # Errors
/// A file that cannot be opened. Messages that cannot be read have no size.
pub fn judge(bag: &Bag, progress: &mut dyn FnMut(u64, u64)) -> Result<LakeVerdict, ReadError> {
    let mut lake = LakeBag::default();
    lake.note_keys(bag.metadata().custom_data.keys().map(String::as_str));
    let (mut done, total) = (0, bag.size_bytes());
    for file in bag.files() {
        lake.files.push(of_file(file)?);
        done += file.bytes;
        progress(done, total);
    }
    Ok(lake.judge())
}

fn of_file(file: &BagFile) -> Result<LakeFile, ReadError> {
    let reader = file.open_whole()?;
    let chunks = file
        .storage()?
        .filter(|_| !file.is_packed())
        .and_then(|storage| storage.chunks());
    let summary = reader.summary();
    let span = summary.starting_time.zip(summary.ending_time);
    let name = file.path.file_name().unwrap_or(file.path.as_os_str());
    let mut lake = LakeFile {
        name: name.to_string_lossy().into_owned(),
        is_mcap: chunks.is_some(),
        span: span.map_or_else(Default::default, |(first, last)| last.saturating_since(first)),
        ..LakeFile::default()
    };
    for channel in &summary.channels {
        if channel.info.definition.encoding == DefinitionEncoding::Unknown {
            lake.undefined.push(channel.info.topic.name.clone());
        }
    }
    let mut by_topic = BTreeMap::<&str, u64>::new();
    let query = ReadQuery {
        order: ReadOrder::File,
        ..ReadQuery::default()
    };
    for message in reader.messages(&query)?.flatten() {
        let bytes = message.payload.len() as u64;
        lake.largest_message = lake.largest_message.max(bytes);
        if let Some(channel) = summary.channels.get(message.channel.0 as usize) {
            *by_topic.entry(&channel.info.topic.name).or_default() += bytes;
        }
    }
    lake.topics = by_topic
        .into_iter()
        .map(|(name, bytes)| (name.to_owned(), bytes))
        .collect();
    if let Some(chunks) = chunks {
        read_chunks(&mut lake, file, chunks, &*reader)?;
    }
    Ok(lake)
}

fn read_chunks(
    lake: &mut LakeFile,
    file: &BagFile,
    storage: &dyn ChunkStorage,
    reader: &dyn StorageReader,
) -> Result<(), ReadError> {
    let opened = storage.open(&file.path)?;
    lake.is_indexed = reader.summary().condition == FileCondition::Complete && opened.has_index()?;
    let channels = &opened.summary().channels;
    let is_compressible = |chunk: &ChunkSummary| {
        let is_plain = |channel: &holdall_storage::writer::ChannelIndex| {
            let channel = channels.get(channel.0 as usize);
            channel.is_none_or(|channel| !is_compressed_type(&channel.info.topic.type_name))
        };
        chunk
            .channels
            .as_ref()
            .is_none_or(|of_chunk| of_chunk.iter().any(is_plain))
    };
    for chunk in opened.chunks()? {
        let bytes = chunk.uncompressed_bytes;
        lake.chunk_bytes += bytes;
        lake.large_chunks += u64::from(bytes > CHUNK_BYTES_MAX + lake.largest_message);
        let is_compressed = chunk.compression.as_ref().is_some_and(|codec| !codec.is_empty());
        if !is_compressed && is_compressible(&chunk) {
            lake.plain_bytes += bytes;
        }
    }
    Ok(())
}
