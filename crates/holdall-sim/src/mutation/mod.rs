//! A recorder that is broken on purpose, in one stated way, through the seams that it has: options, transport, storage, folder, disk.

mod disk;
mod file;
mod folder;
mod memory;
mod storage;
mod transport;

use crate::folder::SimFolder;
use holdall::{record::options::RecordOptions, writer::BagFolder};
use holdall_io::{
    disk::Disk,
    sim::{SimDisk, SimDiskHandle},
};
use holdall_storage::{Storage, mcap::McapStorage};
use holdall_transport::Transport;
use std::{io, path::Path};

/// A way to be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mutation {
    /// A sync is reported as done, and never was.
    SkippedSync,
    /// A sync is reported as done before it is.
    EarlySync,
    /// A sync forgets the directory entry of a new file.
    ForgottenDirectorySync,
    /// A failed write is taken for a good one, and the writer continues.
    WriteErrorIgnored,
    /// A failed sync is taken for a good one, and the writer continues.
    SyncErrorIgnored,
    /// Now and then a message is not written, and not counted.
    UncountedDrop,
    /// The last message before chunks are closed is forgotten.
    LastOfChunkLost,
    /// Now and then two messages change places.
    OrderSwapped,
    /// The last message of a file is written into the next file as well.
    DuplicateOnSplit,
    /// A bit of a payload changes in transit.
    FlippedBit,
    /// A message is stamped with the time of its sending.
    WrongStamp,
    /// A chunk has a checksum of something else.
    WrongChecksum,
    /// An entry of a chunk's message index points one byte too far.
    IndexOffByOne,
    /// The statistics count one message too many.
    WrongStatistics,
    /// The ledger is not written into the bag.
    LedgerNotWritten,
    /// Messages that the cache refused are reported as lost on the network.
    WrongStage,
    /// The recorder takes eight times the memory that it may.
    MemoryBoundIgnored,
    /// Messages that arrive during a pause are stored.
    PauseIgnored,
    /// The metadata at the end is never written.
    StaleMetadata,
    /// A payload is returned to the transport only at the very end.
    LoanKept,
    /// The storage reports bytes in its own blocks as passed to the system, so that memory is released too early.
    EarlyHanded,
    /// A message's length is in memory before its bytes are.
    LengthBeforeBytes,
    /// Topics are not logged into the memory that survives.
    ForgottenTopic,
    /// Definitions are not logged into the memory that survives.
    ForgottenDefinition,
    /// Publishers are not logged into the memory that survives.
    ForgottenPublisher,
    /// Losses are not logged into the memory that survives.
    ForgottenMiss,
    /// The bag does not name the memory that survives.
    ForgottenPointer,
    /// A publisher that goes silent, or whose last messages may be lost, is taken for one that has shown its end.
    FarewellBelieved,
    /// Each publisher is taken for one that has answered.
    AnswerInvented,
    /// The ledger in the bag claims that all ends are known.
    EndClaimed,
    /// Simulated time that goes back is not believed.
    ResetIgnored,
    /// A ring removes what is being copied.
    HoldIgnored,
}

impl Mutation {
    /// All of them.
    pub const ALL: [Self; 32] = [
        Self::SkippedSync,
        Self::EarlySync,
        Self::ForgottenDirectorySync,
        Self::WriteErrorIgnored,
        Self::SyncErrorIgnored,
        Self::UncountedDrop,
        Self::LastOfChunkLost,
        Self::OrderSwapped,
        Self::DuplicateOnSplit,
        Self::FlippedBit,
        Self::WrongStamp,
        Self::WrongChecksum,
        Self::IndexOffByOne,
        Self::WrongStatistics,
        Self::LedgerNotWritten,
        Self::WrongStage,
        Self::MemoryBoundIgnored,
        Self::PauseIgnored,
        Self::StaleMetadata,
        Self::LoanKept,
        Self::EarlyHanded,
        Self::LengthBeforeBytes,
        Self::ForgottenTopic,
        Self::ForgottenDefinition,
        Self::ForgottenPublisher,
        Self::ForgottenMiss,
        Self::ForgottenPointer,
        Self::FarewellBelieved,
        Self::AnswerInvented,
        Self::EndClaimed,
        Self::ResetIgnored,
        Self::HoldIgnored,
    ];

    /// Its name on the command line and in the documentation.
    pub fn name(self) -> String {
        let mut name = String::new();
        for letter in format!("{self:?}").chars() {
            if letter.is_uppercase() && !name.is_empty() {
                name.push('-');
            }
            name.extend(letter.to_lowercase());
        }
        name
    }

    /// The mutation of this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mutation| mutation.name() == name)
    }
}

/// Changes the recorder's options.
pub fn change_options(mutation: Option<Mutation>, options: &mut RecordOptions) {
    if mutation == Some(Mutation::MemoryBoundIgnored) {
        options.cache.bytes_max *= 8;
    }
}

/// Changes how the disk behaves.
pub fn prepare_disk(mutation: Option<Mutation>, disk: &SimDiskHandle) {
    disk.set_syncs_directories(mutation != Some(Mutation::ForgottenDirectorySync));
}

/// The disk as the recorder sees it.
pub fn disk(mutation: Option<Mutation>, disk: SimDisk) -> Box<dyn Disk> {
    match mutation {
        Some(
            mutation @ (Mutation::SkippedSync
            | Mutation::EarlySync
            | Mutation::WriteErrorIgnored
            | Mutation::SyncErrorIgnored),
        ) => Box::new(disk::MutatedDisk::new(mutation, disk)),
        _ => Box::new(disk),
    }
}

/// The transport as the recorder sees it.
pub fn transport(mutation: Option<Mutation>, transport: impl Transport + 'static) -> Box<dyn Transport> {
    match mutation {
        Some(
            mutation @ (Mutation::WrongStamp
            | Mutation::LoanKept
            | Mutation::ResetIgnored
            | Mutation::FarewellBelieved
            | Mutation::AnswerInvented),
        ) => Box::new(transport::MutatedTransport::new(mutation, Box::new(transport))),
        _ => Box::new(transport),
    }
}

/// The directory as the recorder sees it.
pub fn folder(mutation: Option<Mutation>, folder: SimFolder) -> Box<dyn BagFolder> {
    match mutation {
        Some(Mutation::StaleMetadata) => Box::new(folder::StaleFolder(folder)),
        Some(Mutation::HoldIgnored) => Box::new(folder::RuthlessFolder(folder)),
        _ => Box::new(folder),
    }
}

/// The storage as the recorder sees it.
pub fn storage(mutation: Option<Mutation>) -> &'static dyn Storage {
    mutation.and_then(storage::mutated).unwrap_or(&McapStorage)
}

/// Whether the user's pause is carried out.
pub fn pauses_on_request(mutation: Option<Mutation>) -> bool {
    mutation != Some(Mutation::PauseIgnored)
}

/// Whether the bag gets the file that points to the memory.
pub fn leaves_pointer(mutation: Option<Mutation>) -> bool {
    mutation != Some(Mutation::ForgottenPointer)
}

/// Changes surviving memory to the state that a faulty recorder would have left; `id` identifies the memory.
///
/// # Errors
/// When it cannot be read or written.
pub fn change_memory(mutation: Option<Mutation>, path: &Path, id: &str) -> io::Result<()> {
    mutation.map_or(Ok(()), |mutation| memory::change(mutation, path, id))
}

/// Changes a finished file, as a writer would have written it that is wrong there.
pub fn change_file(mutation: Option<Mutation>, disk: &SimDiskHandle, path: &Path) {
    let Some(bytes) = disk.read(path) else { return };
    let change = match mutation {
        Some(Mutation::WrongChecksum) => file::wrong_checksum(&bytes),
        Some(Mutation::IndexOffByOne) => file::index_off_by_one(&bytes),
        Some(Mutation::WrongStatistics) => file::wrong_statistics(&bytes),
        _ => None,
    };
    if let Some((offset, changed)) = change {
        disk.corrupt(path, offset, &changed);
    }
}
