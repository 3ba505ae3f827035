//! iceoryx2: publish-subscribe services in this host's shared memory, recorded without knowing their types and without a copy.
//!
//! ```text
//! discovery thread: lists services, opens them, follows their publishers, makes subscribers, cleans up after dead nodes
//! receive thread:   takes samples out of every subscriber and offers them; a large one stays where its publisher wrote it
//! ```
//!
//! Nothing is required of publishers. Sequence and source stamp are read from the user header `{int64
//! source_timestamp, uint64 sequence}` where a service has it (`rmw_iceoryx2` does); without it losses are
//! unknown.

mod discovery;
mod ffi;
mod folders;
mod header;
mod loan;
mod names;
mod publisher;
mod publishers;
mod service;
mod subscription;
mod transport;

pub(crate) use transport::BACKEND;
pub use transport::Iceoryx2Transport;

/// The transport's name, in `--transport` and in bags.
const NAME: &str = "iceoryx2";

/// The encoding of service payloads that are not CDR: the user header's bytes, then the payload's, as in
/// memory.
pub(crate) const SERIALIZATION_FORMAT: &str = "iceoryx2";
