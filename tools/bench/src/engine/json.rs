//! Results as files of JSON.

use crate::error::{BenchError, BenchResult};
use holdall_io::fs::write_atomically_unsynced;
use serde::{Serialize, de::DeserializeOwned};
use std::{fs, path::Path};

/// Stores a value, completely or not at all.
///
/// # Errors
/// A file that cannot be written.
pub(crate) fn store(path: &Path, value: &impl Serialize) -> BenchResult<()> {
    let text = serde_json::to_string_pretty(value).map_err(BenchError::json(path))?;
    Ok(write_atomically_unsynced(path, text.as_bytes())?)
}

/// Reads a JSON file; `what` names it in errors.
///
/// # Errors
/// A file that cannot be read or is something else.
pub(crate) fn load<T: DeserializeOwned>(path: &Path, what: &str) -> BenchResult<T> {
    let text = fs::read_to_string(path).map_err(BenchError::io("read", path))?;
    let wrong = BenchError::verify(path);
    serde_json::from_str(&text).map_err(|error| wrong(format!("is not {what}: {error}")))
}
