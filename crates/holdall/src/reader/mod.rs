//! Reading bags: a directory with its metadata or a single storage file, several of them, in time order.

mod account;
mod audit;
mod bag;
mod bag_file;
mod contents;
mod error;
mod file;
pub(crate) mod listing;
mod markers;
mod merge;
mod message;
mod order;
mod pattern;
mod publishers;
mod rebuild;
mod ros1;
mod set;
mod undefined;

pub use crate::writer::UndefinedTopic;
pub use account::AccountSummary;
pub use audit::{AccountKind, BagAudit, TopicAudit};
pub(crate) use bag::METADATA_BYTES_MAX;
pub use bag::{Bag, LostByTopic};
pub use bag_file::BagFile;
pub use contents::{BagContents, ServiceCounts};
pub use error::ReadError;
pub(crate) use error::io_error;
pub(crate) use file::expect_bag;
pub use message::{BagMessage, MessageFilter, Messages, PublisherChoice};
pub use order::MessageOrder;
pub use pattern::WholePattern;
pub use publishers::TopicPublisher;
pub use ros1::Ros1View;
pub use set::BagSet;
pub(crate) use set::FileHook;
