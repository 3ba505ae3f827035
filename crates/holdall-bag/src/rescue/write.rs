//! Writes messages from memory: into one more file of the bag, or into a file in memory for a caller that only reads.

use super::{FindError, Found, Missing, Rescue, RescueError, catalog::Catalog, metadata_of};
use holdall_io::{
    block::BlockPoolOptions,
    disk::FileId,
    fs,
    memory::MemoryDisk,
    os::{DiskMode, OsDisk},
    queue::DiskQueue,
};
use holdall_model::{
    loss::ledger::{LEDGER_KEY, LEDGER_RECORD},
    message::PayloadRef,
    topic::TopicId,
};
use holdall_storage::RepairTarget;
use holdall_storage::{
    Storage, StorageError, StorageOptions,
    compression::{CompressionMode, FORMATS, PayloadPacker, unpacked_name},
    error::StorageResult,
    memory::MemoryStorage,
    reader::StorageReader,
    storage_by_id,
    writer::{ChannelIndex, ChannelInfo, MetadataEntries, StorageWriter, StoredMessage},
};
use std::{
    collections::HashMap,
    ffi::OsStr,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Name of the record that a repair leaves in a file.
pub const REPAIR_RECORD: &str = "holdall:repair";

/// Key in `custom_data` of a bag's metadata: how many messages came from the memory of a recorder that was killed.
pub const RESCUED_KEY: &str = "holdall.rescued";

/// Memory for one file that is being written.
const BLOCKS: BlockPoolOptions = BlockPoolOptions {
    block_bytes: 1 << 20,
    block_count: 8,
    huge_pages: false,
};

impl Rescue {
    /// As [`Rescue::find`]; `None`, with a warning, if the memory cannot be read.
    ///
    /// # Errors
    /// The recorder of this bag is alive: a repair without its memory would count those messages as lost.
    pub fn find_or_warn(directory: &Path) -> Result<Option<Self>, RescueError> {
        match Self::find(directory) {
            Ok(found) => Ok(found),
            Err(alive @ FindError::Alive { .. }) => Err(RescueError::Alive(alive)),
            Err(error) => {
                tracing::warn!("messages in memory cannot be rescued: {error}");
                Ok(None)
            }
        }
    }

    /// Writes what the bag in `directory` lacks, whose storage files are `listed`, into one more file of it, and removes the memory that it
    /// was in; of a copy of the bag the memory stays. The number of messages.
    ///
    /// # Errors
    /// A file that cannot be written: it can be tried again then.
    pub fn write_into(
        self,
        directory: &Path,
        listed: &[PathBuf],
        missing: &Missing,
        target: RepairTarget,
    ) -> Result<u64, RescueError> {
        let storage = storage_by_id(&self.catalog.storage)?;
        // A file that is gone keeps its name: its account must not take these messages for its own.
        let had_messages = metadata_of(directory)?.map_or_else(Vec::new, |metadata| metadata.files);
        let had_messages = had_messages.into_iter().filter(|file| file.message_count > 0);
        let taken: Vec<PathBuf> = had_messages.map(|file| file.path.into()).collect();
        let path = next_path(directory, listed.iter().chain(&taken), storage);
        let custom = (RESCUED_KEY, missing.messages.len().to_string());
        let mut metadata = holdall_model::metadata::BagMetadata::default();
        storage.id().clone_into(&mut metadata.storage_identifier);
        metadata.custom_data.insert(custom.0.to_owned(), custom.1);
        if self.catalog.packed_payloads {
            CompressionMode::Message
                .as_metadata()
                .clone_into(&mut metadata.compression_mode);
            FORMATS[0].clone_into(&mut metadata.compression_format);
        }
        let records = [
            (
                "rosbag2",
                MetadataEntries::from([(
                    "serialized_metadata".to_owned(),
                    metadata.to_yaml_without_wrapper(),
                )]),
            ),
            (
                REPAIR_RECORD,
                MetadataEntries::from([(
                    "by".to_owned(),
                    concat!("holdall ", env!("CARGO_PKG_VERSION")).to_owned(),
                )]),
            ),
        ];
        let disk = OsDisk::open(directory, DiskMode::Buffered)?;
        let mut q = DiskQueue::new(Box::new(disk), BLOCKS)?;
        let made = storage.queue_path(&path);
        if made != path {
            fs::create_dir_new(&path)?;
        }
        let file = q.create_file(&made, 0)?;
        write(&mut q, file, &path, storage, &self.catalog, missing, &records)?;
        q.wait_closed(file)?;
        self.end(target);
        Ok(missing.messages.len() as u64)
    }

    /// Removes the memory, which the bag does not need; of a copy of the bag its pointer only.
    pub fn end(self, target: RepairTarget) {
        if target == RepairTarget::Copy {
            self.forget();
        } else {
            self.remove();
        }
    }
}

/// The next file of a bag: its name is the last one's with the next number.
fn next_path<'a>(
    directory: &Path,
    taken: impl Iterator<Item = &'a PathBuf>,
    storage: &dyn Storage,
) -> PathBuf {
    let suffix = storage
        .extension()
        .map_or_else(String::new, |extension| format!(".{extension}"));
    let (mut head, mut next) = (None, 0u64);
    for path in taken {
        let name = unpacked_name(path);
        let name = name.file_name().unwrap_or_default().to_string_lossy();
        // A bag's own name may have dots: nothing but the storage's extension is one.
        let stem = name.strip_suffix(&suffix).unwrap_or(&name);
        let start = stem.trim_end_matches(|letter: char| letter.is_ascii_digit());
        let number = stem[start.len()..].parse::<u64>().ok();
        if let Some(after) = number.and_then(|number| number.checked_add(1)) {
            next = next.max(after);
            head = Some(start.to_owned());
        }
    }
    let head = head.unwrap_or_else(|| {
        let name = directory.file_name().unwrap_or_else(|| OsStr::new("bag"));
        format!("{}_", name.to_string_lossy())
    });
    directory.join(format!("{head}{next}{suffix}"))
}

/// The same as a file that is in memory only.
pub(super) fn in_memory(
    directory: &Path,
    catalog: &Catalog,
    missing: &Missing,
) -> Result<(PathBuf, Arc<dyn StorageReader>), String> {
    let path = directory.join("messages in memory");
    let storage = MemoryStorage::new();
    let catalog = Catalog {
        packed_payloads: false,
        ..catalog.clone()
    };
    let written = || -> StorageResult<Arc<dyn StorageReader>> {
        let mut q = DiskQueue::new(Box::new(MemoryDisk::new()), BLOCKS)?;
        let file = q.create_file(&path, 0)?;
        write(&mut q, file, &path, &storage, &catalog, missing, &[])?;
        Ok(Arc::from(storage.open_reader(&path)?))
    };
    let reader = written().map_err(|error| error.to_string())?;
    Ok((path, reader))
}

fn write(
    q: &mut DiskQueue,
    file: FileId,
    path: &Path,
    storage: &dyn Storage,
    catalog: &Catalog,
    missing: &Missing,
    records: &[(&str, MetadataEntries)],
) -> StorageResult<()> {
    let mut writer = storage.create_writer(q, file, path, &StorageOptions::default())?;
    // First, so that a reader of a file that was cut off knows how its payloads are packed.
    for (name, entries) in records {
        writer.write_metadata(q, name, entries)?;
    }
    let mut channels = Channels::new(catalog, storage.keeps_publishers() && !catalog.merge_publishers);
    let failed = |source| StorageError::Io {
        action: "pack a payload for",
        path: path.to_owned(),
        source,
    };
    let read_failed = |source| StorageError::Io {
        action: "read from memory a payload for",
        path: path.to_owned(),
        source,
    };
    let mut packer = catalog
        .packed_payloads
        .then(PayloadPacker::new)
        .transpose()
        .map_err(failed)?;
    for found in &missing.messages {
        let (Some(channel), Some(payload)) = (channels.of(&mut *writer, q, found)?, &found.payload) else {
            continue;
        };
        let payload = payload
            .read()
            .map_err(|error| read_failed(std::io::Error::other(error)))?;
        let packed = packer.as_mut().map(|packer| packer.pack(&payload)).transpose();
        let packed = packed.map_err(failed)?;
        let entry = &found.entry;
        let message = StoredMessage {
            log_time: entry.log_time,
            publish_time: entry.publish_time.unwrap_or(entry.log_time),
            // MCAP has room for the low 32 bits.
            sequence: entry.sequence.unwrap_or(0) as u32,
            payload: PayloadRef::Bytes(packed.as_deref().unwrap_or(&payload)),
        };
        writer.write(q, channel, message)?;
    }
    let ledger = MetadataEntries::from([(LEDGER_KEY.to_owned(), missing.ledger.to_json())]);
    writer.finish(q, &[(LEDGER_RECORD, ledger)])?;
    Ok(())
}

/// Channels of the file in the making, by topic and publisher.
struct Channels<'a> {
    catalog: &'a Catalog,
    with_publishers: bool,
    known: HashMap<(TopicId, String, Option<usize>), ChannelIndex>,
}

impl<'a> Channels<'a> {
    fn new(catalog: &'a Catalog, with_publishers: bool) -> Self {
        Self {
            catalog,
            with_publishers,
            known: HashMap::new(),
        }
    }

    fn of(
        &mut self,
        writer: &mut dyn StorageWriter,
        q: &mut DiskQueue,
        found: &Found,
    ) -> StorageResult<Option<ChannelIndex>> {
        let Some(topic) = self.catalog.topics.get(&found.entry.topic) else {
            return Ok(None);
        };
        let publisher = topic.publisher(found.entry.publisher.0);
        let (info, definition) = topic.described(publisher);
        let publisher = publisher.filter(|_| self.with_publishers);
        let key = (found.entry.topic, info.type_name.clone(), publisher);
        if let Some(channel) = self.known.get(&key) {
            return Ok(Some(*channel));
        }
        let mut info = ChannelInfo {
            topic: info.clone(),
            definition: definition.clone(),
        };
        info.topic.publisher = publisher
            .and_then(|place| topic.publishers[place].info())
            .map(Box::new);
        let channel = writer.add_channel(q, &info)?;
        self.known.insert(key, channel);
        Ok(Some(channel))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_bytes_in_the_metadata_are_no_reason_to_stop() {
        let folder = tempfile::tempdir().unwrap();
        assert!(metadata_of(folder.path()).unwrap().is_none());
        let path = folder.path().join("metadata.yaml");
        let bag = folder.path().join("bag");
        let writer =
            crate::Writer::create_with(&bag, "mcap", crate::writer::SplitOptions::default()).unwrap();
        writer.close().unwrap();
        let mut text = std::fs::read(bag.join("metadata.yaml")).unwrap();
        text.extend(b"\n# \xff\n");
        std::fs::write(&path, text).unwrap();
        assert!(metadata_of(folder.path()).unwrap().is_some());
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(metadata_of(folder.path()).is_err(), "it cannot be read");
    }

    #[test]
    fn the_next_file_has_the_next_number() {
        let next = |storage: &str, directory: &str, taken: &[&str]| {
            let taken: Vec<PathBuf> = taken.iter().map(PathBuf::from).collect();
            let path = next_path(
                Path::new(directory),
                taken.iter(),
                storage_by_id(storage).unwrap(),
            );
            path.to_str().unwrap().to_owned()
        };
        let rows: [(&str, &str, &[&str], &str); 8] = [
            ("mcap", "bag", &[], "bag/bag_0.mcap"),
            (
                "mcap",
                "bag",
                &["bag_0.mcap", "bag_9.mcap", "bag_2.mcap"],
                "bag/bag_10.mcap",
            ),
            ("mcap", "my.bag", &["my.bag_0.mcap"], "my.bag/my.bag_1.mcap"),
            ("mcap", "bag", &["bag_3.mcap.zstd"], "bag/bag_4.mcap"),
            ("leveldb", "my.bag", &["my.bag_0", "my.bag_1"], "my.bag/my.bag_2"),
            ("leveldb", "v1.2", &["v1.2_0"], "v1.2/v1.2_1"),
            (
                "sqlite3",
                "bag",
                &["bag_18446744073709551615.db3"],
                "bag/bag_0.db3",
            ),
            ("sqlite3", "bag", &["other.db3"], "bag/bag_0.db3"),
        ];
        for (storage, directory, taken, expected) in rows {
            assert_eq!(next(storage, directory, taken), expected, "{taken:?}");
        }
    }
}
