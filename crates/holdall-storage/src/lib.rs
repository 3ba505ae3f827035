//! Storage backends: each is a folder with files of the same names (`mod, format, writer, reader,
//! recover`), as far as it needs them.
#![deny(unsafe_code)]

pub mod check;
pub mod chunks;
pub mod compression;
pub mod error;
pub mod leveldb;
pub mod mcap;
pub mod memory;
pub mod reader;
pub mod registry;
pub mod repair;
pub mod repeated;
pub mod ros1;
pub mod rosbag1;
#[cfg(feature = "sqlite3")]
pub mod sqlite3;
pub mod storage;
mod stored_qos;
mod tally;
pub mod writer;

pub use error::{StorageError, StorageResult};
pub use registry::{
    DEFAULT_STORAGE_ID, is_storage_extension, readable_storages, storage_by_id, storage_by_magic,
    storage_by_path, storage_of_directory, storage_of_file, storages,
};
pub use storage::{RepairTarget, Storage, StorageOptions};
