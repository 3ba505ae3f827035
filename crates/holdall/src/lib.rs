//! Records live ROS 2 systems into bags, plays them back, and works on bags. This is the library of the `holdall` command; it
//! needs no ROS installation, prints nothing, reads no environment variables and owns no terminal.
//!
//! # Reading a bag
//!
//! [`Bag::open`] takes a bag directory or a single storage file: MCAP, SQLite, LevelDB, or a bag of ROS 1, also compressed or cut off.
//!
//! ```no_run
//! # fn main() -> Result<(), holdall::ReadError> {
//! for message in holdall::Bag::open("lab")?.messages() {
//!     let message = message?;
//!     println!("{} {} {} bytes", message.log_time.as_nanos(), message.topic.name, message.payload.len());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Writing one
//!
//! [`Writer`] creates a bag, adds topics and appends serialized messages; see its example.
//!
//! # Recording
//!
//! A [`Recorder`] records the topics that its transports discover and its [`Selection`] selects. Transports are in [`transport`]: DDS, zenoh,
//! iceoryx2 (features of that crate) and one in memory for tests. Every message that is not in the bag is in the report that
//! [`Recorder::stop`] returns.
//!
//! ```no_run
//! # fn transports() -> Vec<Box<dyn holdall::transport::Transport>> { Vec::new() }
//! use holdall::{RecordOptions, Recorder, Selection};
//! # fn main() -> Result<(), holdall::RecordError> {
//! let recorder = Recorder::start(RecordOptions::new("lab", Selection::all()), transports())?;
//! std::thread::sleep(std::time::Duration::from_secs(10));
//! let report = recorder.stop();
//! println!("{} messages, {} lost", report.status.recorded, report.status.lost);
//! # Ok(())
//! # }
//! ```
//!
//! # The rest
//!
//! | module | is |
//! |---|---|
//! | [`play`] | publishes a bag's messages again at their times |
//! | [`tools`] | converts, filters, merges, splits, compresses, checks, repairs and indexes bags |
//! | [`definitions`] | definition files on the disk, for bags that lack them |
//! | [`decode`], [`export`], [`diff`] | messages as values, text, tables and images; two bags compared |
//! | [`reader`], [`writer`], [`record`] | the parts that the types above are made of |
//! | [`table`] | a topic's messages as columns |
//! | [`listen`] | live topics without storing them: rates, sizes, delays |
//! | [`plot`] | pictures of bags: SVG, pages, PNG |
//! | [`look`] | one message of a bag: found by time, as a tree, as a picture |
//! | [`mod@preflight`] | whether a recording will fit: a trial, and a forecast from it |
//! | [`regress`] | one case of a regression run: software, outputs, comparison |
//! | [`node`] | ROS services of a recording or a playback |
//! | [`recode`] | images as video while a bag is copied, and back |
//! | [`upload`] | sends bags into buckets |
//! | `training` | datasets for machine learning (feature `parquet`) |
//! | `catalog` | tables of many bags, and how engines divide the reading of them (feature `parquet`) |
//! | [`supervise`], [`live`] | what a running recording reports, who records a bag |
#![forbid(unsafe_code)]

/// The example of the README is compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

pub use holdall_bag::{decode, definitions, keys, live, reader, table, writer};
#[cfg(feature = "parquet")]
pub use holdall_data::{catalog, training};
pub use holdall_data::{export, look, plot};
pub use holdall_media::recode;
pub use holdall_play as play;
pub use holdall_record as record;
pub use holdall_serve::{listen, node, preflight, regress, supervise};
pub use holdall_tools::{diff, tools, upload};

/// Machinery that the simulator, the benchmarks and the gate drive from outside. It changes without notice.
#[doc(hidden)]
pub mod internals {
    pub use holdall_bag::{
        rescue::{KIND_LOG, KIND_MESSAGES, POINTER_FILE},
        writer::bag::{BagOptions, BagWriter},
    };
    pub use holdall_record::internals::*;
}

pub use holdall_bag::{Bag, BagMessage, BagSet, BagTopic, MessageFilter, ReadError, WriteError, Writer};
pub use holdall_io::clock::{Clock, SystemClock};
pub use holdall_model::{
    qos::QosProfile,
    selection::Selection,
    time::Timestamp,
    topic::{Gid, MessageDefinition, NodeName, PublisherInfo, TopicInfo},
};
pub use holdall_record::{RecordError, Recorder, options::RecordOptions, status::RecordReport};
pub use holdall_transport as transport;
