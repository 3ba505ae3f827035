//! Workloads: which messages are offered, by which producer, on which topic, with which bytes, and when.

pub mod content;
pub mod mix;
pub mod schedule;
pub mod stream;

pub use content::{Content, Corpus};
pub use mix::{SizeClass, SizeMix};
pub use schedule::Schedule;
pub use stream::{Load, LoadError, MESSAGE_BYTES_MAX, MessagePlan, Plan, ProducerStream, TopicPlan};
