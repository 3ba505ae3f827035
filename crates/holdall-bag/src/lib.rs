//! Bags: reading and writing them, what survives a killed recorder, messages as values and columns, keys. Its users see it through `holdall`.
#![forbid(unsafe_code)]

pub mod decode;
pub mod definitions;
pub mod keys;
pub mod live;
pub mod reader;
#[doc(hidden)]
pub mod rescue;
pub mod table;
pub mod writer;

pub use reader::{Bag, BagMessage, BagSet, MessageFilter, ReadError};
pub use writer::{BagTopic, WriteError, Writer};
