//! Storage files: each backend is a folder with the same files (`mod, format, writer, reader, recover`).
#![forbid(unsafe_code)]

pub mod reader;
pub mod writer;
