//! Transports: from live topics to subscriptions, and from bags to publishers. Each backend is a folder with the same files.

#[cfg(any(test, feature = "dds"))]
pub mod dds;
pub mod memory;
mod transport;

pub use transport::*;
