//! Workloads: the messages offered, with their producers, topics, bytes and times.

pub mod content;
pub mod mix;
pub mod schedule;
pub mod stream;

pub use content::Content;
pub(crate) use content::Corpus;
pub use mix::{SizeClass, SizeMix};
pub use schedule::Schedule;
pub use stream::LoadError;
pub(crate) use stream::MESSAGE_BYTES_MAX;
pub use stream::MessagePlan;
pub use stream::ProducerStream;
pub use stream::{Load, Plan, TopicPlan};
