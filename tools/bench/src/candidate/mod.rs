//! Candidates: everything that can store a workload and be measured.

pub(crate) mod buffered;
mod ffi_leveldb;
pub mod inline;
pub mod leveldb_bare;
pub mod mcap_crate;
pub mod metered;
pub mod naive;
pub mod ours;
pub mod pipeline;
pub mod producers;
pub mod raw;
pub mod rival;
pub mod sqlite_bare;

pub use raw::{RawMessage, RawWriter};
