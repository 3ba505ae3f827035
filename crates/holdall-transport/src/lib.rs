//! Transports: from live topics to subscriptions, and from bags to publishers. Each backend is a folder with the same files.

mod transport;

pub use transport::*;
