//! Reading bags: a directory with its metadata or a single storage file, several of them, in time order.

mod account;
mod audit;
mod bag;
mod contents;
mod error;
mod file;
pub(crate) mod listing;
mod merge;
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
pub use bag::{Bag, BagFile, LostByTopic, Ros1View};
pub use contents::{BagContents, ServiceCounts};
pub use error::ReadError;
pub(crate) use error::io_error;
pub(crate) use file::expect_bag;
pub use order::MessageOrder;
pub use pattern::WholePattern;
pub use publishers::{PublisherChoice, TopicPublisher};
pub use set::{BagMessage, BagSet, MessageFilter, Messages};
