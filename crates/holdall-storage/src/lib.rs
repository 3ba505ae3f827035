//! Storage backends: each is a folder whose files have the same names
//! (`mod, format, writer, reader, recover`), where it has them.
#![forbid(unsafe_code)]

pub mod check;
pub mod compression;
pub mod error;
pub mod leveldb;
pub mod mcap;
pub mod memory;
pub mod reader;
pub mod repair;
pub mod rosbag1;
#[cfg(feature = "sqlite3")]
pub mod sqlite3;
pub mod storage;
mod tally;
pub mod writer;

pub use error::{StorageError, StorageResult};
pub use storage::{
    DEFAULT_STORAGE_ID, Storage, StorageOptions, readable_storages, storage_by_id, storage_by_path, storages,
};
