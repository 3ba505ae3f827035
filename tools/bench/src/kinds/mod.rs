//! The kinds of experiments that run without a transport and in a separate folder: the recorder, storages
//! alone, work on bags.

pub mod storage;
pub mod tools;
pub mod write;

use crate::{
    error::{BenchError, BenchResult},
    workload::SizeMix,
};
use holdall_program::units::parse_bytes;

/// The sizes of messages that a flag names.
fn size_mix(flag: &'static str, text: &str) -> BenchResult<SizeMix> {
    if text == "mixed" {
        return Ok(SizeMix::mixed());
    }
    let size = parse_bytes(text)
        .ok()
        .and_then(|bytes| usize::try_from(bytes).ok());
    size.map(SizeMix::single)
        .ok_or_else(|| BenchError::option(flag, "a number of bytes, or mixed", text))
}
