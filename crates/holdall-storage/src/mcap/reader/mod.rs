//! Reads MCAP files: the summary at once, messages in any order, damaged files as far as possible.

pub(crate) mod checksum;
pub(crate) mod codec;
mod cursor;
pub(crate) mod density;
pub(crate) mod extent;
pub(crate) mod index;
pub(crate) mod source;
pub(crate) mod summary;
pub(crate) mod walk;

use crate::{
    chunks::ChunkSummary,
    error::{StorageError, StorageResult},
    reader::{FilePart, IndexedPart, Messages, ReadQuery, StorageReader, StorageSummary, TimeCells},
    writer::ChannelIndex,
};
use bytes::Bytes;
use cursor::Cursor;
use index::FileIndex;
use source::Source;
use std::{path::Path, sync::Arc};

/// A reader's bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct McapReaderOptions {
    /// Bytes of decompressed chunks kept at a time when chunks overlap in time; a single chunk may be larger.
    pub loaded_bytes_max: u64,
    /// A compressed chunk that states a larger decompressed size is refused.
    pub chunk_bytes_max: u64,
    /// Compares each chunk with its checksum, also one that is not kept in memory.
    pub is_verified: bool,
}

impl Default for McapReaderOptions {
    fn default() -> Self {
        Self {
            loaded_bytes_max: 256 << 20,
            chunk_bytes_max: crate::mcap::recover::CHUNK_BYTES_MAX,
            is_verified: false,
        }
    }
}

/// An open MCAP file.
pub struct McapReader {
    index: Arc<FileIndex>,
    options: McapReaderOptions,
}

impl McapReader {
    /// Opens a file.
    ///
    /// # Errors
    /// A file that cannot be read, or is not an MCAP file. A damaged one opens, and its summary describes the
    /// damage.
    pub fn open(path: &Path) -> StorageResult<Self> {
        Self::open_with(path, McapReaderOptions::default())
    }

    /// Opens a file with other bounds.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_with(path: &Path, options: McapReaderOptions) -> StorageResult<Self> {
        Ok(Self {
            index: Arc::new(FileIndex::open(Source::open(path)?)?),
            options,
        })
    }

    /// Reads a file that is in memory; errors name it `path`.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn from_bytes(path: &Path, content: Bytes, options: McapReaderOptions) -> StorageResult<Self> {
        Ok(Self {
            index: Arc::new(FileIndex::open(Source::memory(path, content))?),
            options,
        })
    }

    /// The parts of the file that hold messages, for tools that list or check them.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn chunks(&self) -> StorageResult<Vec<ChunkSummary>> {
        self.index.chunks()
    }
}

impl StorageReader for McapReader {
    fn summary(&self) -> &StorageSummary {
        &self.index.summary
    }

    fn messages(&self, query: &ReadQuery) -> StorageResult<Messages> {
        let count = self.index.summary.channels.len();
        for channel in query.channels.iter().flatten() {
            if channel.0 as usize >= count {
                let path = self.index.summary.path.clone();
                return Err(StorageError::UnknownChannel {
                    path,
                    index: channel.0,
                    count,
                });
            }
        }
        let options = McapReaderOptions {
            is_verified: self.options.is_verified || query.verified,
            ..self.options
        };
        Ok(Box::new(Cursor::new(Arc::clone(&self.index), options, query)?))
    }

    fn parts(&self, channels: Option<&[ChannelIndex]>) -> StorageResult<Vec<FilePart>> {
        density::parts(&self.index, channels)
    }

    fn part_at(&self, offset: u64) -> Option<IndexedPart> {
        density::part_at(&self.index, offset)
    }

    fn count_over_time(&self, cells: &mut TimeCells) -> StorageResult<bool> {
        density::count(&self.index, cells)
    }
}
