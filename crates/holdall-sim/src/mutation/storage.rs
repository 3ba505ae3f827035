//! A storage whose writer forgets, repeats, swaps or changes messages, or leaves out the ledger.

use super::Mutation;
use holdall_io::{
    disk::FileId,
    queue::{DiskQueue, SyncToken},
};
use holdall_model::{
    loss::ledger::{LEDGER_KEY, LEDGER_RECORD},
    message::PayloadRef,
    time::Timestamp,
};
use holdall_storage::{
    Storage, StorageOptions, StorageResult,
    mcap::McapStorage,
    reader::StorageReader,
    writer::{ChannelIndex, ChannelInfo, FileSummary, MetadataEntries, StorageWriter, StoredMessage},
};
use std::{cell::RefCell, path::Path};

/// A fault happens once in this many messages.
const EVERY: u64 = 23;

static UNCOUNTED_DROP: MutatedStorage = MutatedStorage(Mutation::UncountedDrop);
static LAST_OF_CHUNK_LOST: MutatedStorage = MutatedStorage(Mutation::LastOfChunkLost);
static ORDER_SWAPPED: MutatedStorage = MutatedStorage(Mutation::OrderSwapped);
static DUPLICATE_ON_SPLIT: MutatedStorage = MutatedStorage(Mutation::DuplicateOnSplit);
static FLIPPED_BIT: MutatedStorage = MutatedStorage(Mutation::FlippedBit);
static LEDGER_NOT_WRITTEN: MutatedStorage = MutatedStorage(Mutation::LedgerNotWritten);
static EARLY_HANDED: MutatedStorage = MutatedStorage(Mutation::EarlyHanded);
static END_CLAIMED: MutatedStorage = MutatedStorage(Mutation::EndClaimed);
static WRONG_STAGE: MutatedStorage = MutatedStorage(Mutation::WrongStage);

/// The storage that is broken in this way, if it is the storage that is.
pub fn mutated(mutation: Mutation) -> Option<&'static dyn Storage> {
    Some(match mutation {
        Mutation::UncountedDrop => &UNCOUNTED_DROP,
        Mutation::LastOfChunkLost => &LAST_OF_CHUNK_LOST,
        Mutation::OrderSwapped => &ORDER_SWAPPED,
        Mutation::DuplicateOnSplit => &DUPLICATE_ON_SPLIT,
        Mutation::FlippedBit => &FLIPPED_BIT,
        Mutation::LedgerNotWritten => &LEDGER_NOT_WRITTEN,
        Mutation::WrongStage => &WRONG_STAGE,
        Mutation::EndClaimed => &END_CLAIMED,
        Mutation::EarlyHanded => &EARLY_HANDED,
        _ => return None,
    })
}

thread_local! {
    /// The last message of the file before, for [`Mutation::DuplicateOnSplit`].
    static LAST: RefCell<Option<Held>> = const { RefCell::new(None) };
}

struct MutatedStorage(Mutation);

impl Storage for MutatedStorage {
    fn id(&self) -> &'static str {
        McapStorage.id()
    }

    fn title(&self) -> &'static str {
        McapStorage.title()
    }

    fn extensions(&self) -> &'static [&'static str] {
        McapStorage.extensions()
    }

    fn magic(&self) -> Option<&'static [u8]> {
        McapStorage.magic()
    }

    fn split_bytes_min(&self) -> u64 {
        McapStorage.split_bytes_min()
    }

    fn keeps_publishers(&self) -> bool {
        McapStorage.keeps_publishers()
    }

    fn keeps_types(&self) -> bool {
        McapStorage.keeps_types()
    }

    fn presets(&self) -> &'static [&'static str] {
        McapStorage.presets()
    }

    fn check_options(&self, options: &StorageOptions) -> StorageResult<()> {
        McapStorage.check_options(options)
    }

    fn create_writer(
        &self,
        q: &mut DiskQueue,
        file: FileId,
        path: &Path,
        options: &StorageOptions,
    ) -> StorageResult<Box<dyn StorageWriter>> {
        if path.to_string_lossy().ends_with("_0.mcap") {
            LAST.take();
        }
        Ok(Box::new(MutatedWriter {
            mutation: self.0,
            writer: McapStorage.create_writer(q, file, path, options)?,
            written: 0,
            held: None,
        }))
    }

    fn open_reader(&self, path: &Path) -> StorageResult<Box<dyn StorageReader>> {
        McapStorage.open_reader(path)
    }
}

/// A message that is kept for later.
#[derive(Clone)]
struct Held {
    channel: ChannelIndex,
    log_time: Timestamp,
    publish_time: Timestamp,
    sequence: u32,
    payload: Vec<u8>,
}

impl Held {
    fn new(channel: ChannelIndex, message: &StoredMessage<'_>) -> Self {
        let mut payload = Vec::with_capacity(message.payload.len());
        message
            .payload
            .for_each_slice(|slice| payload.extend_from_slice(slice));
        Self {
            channel,
            log_time: message.log_time,
            publish_time: message.publish_time,
            sequence: message.sequence,
            payload,
        }
    }

    fn write(&self, writer: &mut dyn StorageWriter, q: &mut DiskQueue) -> StorageResult<()> {
        let message = StoredMessage {
            log_time: self.log_time,
            publish_time: self.publish_time,
            sequence: self.sequence,
            payload: PayloadRef::Bytes(&self.payload),
        };
        writer.write(q, self.channel, message)
    }
}

struct MutatedWriter {
    mutation: Mutation,
    writer: Box<dyn StorageWriter>,
    written: u64,
    held: Option<Held>,
}

impl MutatedWriter {
    /// Writes or forgets the message held back.
    fn release_held(&mut self, q: &mut DiskQueue) -> StorageResult<()> {
        match self.held.take() {
            Some(held) if self.mutation == Mutation::OrderSwapped => held.write(&mut *self.writer, q),
            _ => Ok(()),
        }
    }

    fn swapped(
        &mut self,
        q: &mut DiskQueue,
        channel: ChannelIndex,
        message: StoredMessage<'_>,
    ) -> StorageResult<()> {
        match self.held.take() {
            Some(held) if held.channel == channel => {
                self.writer.write(q, channel, message)?;
                held.write(&mut *self.writer, q)
            }
            Some(held) => {
                held.write(&mut *self.writer, q)?;
                self.writer.write(q, channel, message)
            }
            None if self.written.is_multiple_of(EVERY) => {
                self.held = Some(Held::new(channel, &message));
                Ok(())
            }
            None => self.writer.write(q, channel, message),
        }
    }
}

impl StorageWriter for MutatedWriter {
    fn add_channel(&mut self, q: &mut DiskQueue, info: &ChannelInfo) -> StorageResult<ChannelIndex> {
        self.writer.add_channel(q, info)
    }

    fn write(
        &mut self,
        q: &mut DiskQueue,
        channel: ChannelIndex,
        message: StoredMessage<'_>,
    ) -> StorageResult<()> {
        self.written += 1;
        let now = self.written.is_multiple_of(EVERY);
        match self.mutation {
            Mutation::UncountedDrop if now => Ok(()),
            Mutation::OrderSwapped => self.swapped(q, channel, message),
            Mutation::LastOfChunkLost => {
                if let Some(held) = self.held.replace(Held::new(channel, &message)) {
                    held.write(&mut *self.writer, q)?;
                }
                Ok(())
            }
            Mutation::FlippedBit if now => {
                let mut held = Held::new(channel, &message);
                if let Some(last) = held.payload.last_mut() {
                    *last ^= 1;
                }
                held.write(&mut *self.writer, q)
            }
            Mutation::DuplicateOnSplit => {
                if let Some(last) = LAST.replace(Some(Held::new(channel, &message)))
                    && self.written == 1
                {
                    last.write(&mut *self.writer, q)?;
                }
                self.writer.write(q, channel, message)
            }
            _ => self.writer.write(q, channel, message),
        }
    }

    fn write_metadata(
        &mut self,
        q: &mut DiskQueue,
        name: &str,
        entries: &MetadataEntries,
    ) -> StorageResult<()> {
        self.writer.write_metadata(q, name, entries)
    }

    fn summary(&self) -> FileSummary {
        self.writer.summary()
    }

    fn bytes_written(&self) -> u64 {
        self.writer.bytes_written()
    }

    fn step(&mut self, q: &mut DiskQueue) -> StorageResult<()> {
        self.writer.step(q)
    }

    fn close_chunks(&mut self, q: &mut DiskQueue) -> StorageResult<()> {
        self.release_held(q)?;
        self.writer.close_chunks(q)
    }

    fn handed(&mut self, q: &DiskQueue) -> u64 {
        if self.mutation == Mutation::EarlyHanded {
            return self.written;
        }
        self.writer.handed(q)
    }

    fn hand_over(&mut self, q: &mut DiskQueue) -> StorageResult<()> {
        self.release_held(q)?;
        self.writer.hand_over(q)
    }

    fn hand_over_large(&mut self, q: &mut DiskQueue) -> StorageResult<bool> {
        self.release_held(q)?;
        self.writer.hand_over_large(q)
    }

    fn make_durable(&mut self, q: &mut DiskQueue) -> StorageResult<Option<SyncToken>> {
        self.release_held(q)?;
        self.writer.make_durable(q)
    }

    fn finish(
        mut self: Box<Self>,
        q: &mut DiskQueue,
        closing_metadata: &[(&str, MetadataEntries)],
    ) -> StorageResult<FileSummary> {
        self.release_held(q)?;
        let mut closing = closing_metadata.to_vec();
        match self.mutation {
            Mutation::LedgerNotWritten => closing.retain(|(name, _)| *name != LEDGER_RECORD),
            Mutation::WrongStage => change_ledger(&mut closing, "\"cache\"", "\"transport\""),
            Mutation::EndClaimed => {
                change_ledger(&mut closing, "\"end_unknown\":true", "\"end_unknown\":false")
            }
            _ => {}
        }
        self.writer.finish(q, &closing)
    }
}

fn change_ledger(closing: &mut [(&str, MetadataEntries)], from: &str, to: &str) {
    for (_, entries) in closing.iter_mut().filter(|(name, _)| *name == LEDGER_RECORD) {
        if let Some(text) = entries.get_mut(LEDGER_KEY) {
            *text = text.replace(from, to);
        }
    }
}
