//! The programs and libraries that the tools are compared with.

use crate::error::{BenchError, BenchResult};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

const READ_MCAP: &str = include_str!("read_mcap.py");
const READ_ROSBAGS: &str = include_str!("read_rosbags.py");

/// A rival's output: messages read, seconds without its start.
pub(super) struct RivalRead {
    pub messages: u64,
    pub elapsed_s: f64,
}

/// Reads all messages of a file with the `mcap` crate; returns their number.
pub(super) fn read_with_mcap_crate(path: &Path) -> BenchResult<u64> {
    let bytes = fs::read(path).map_err(BenchError::io("read", path))?;
    let mut count = 0;
    let stream = mcap::MessageStream::new(&bytes).map_err(|error| not_read(path, &error))?;
    for message in stream {
        message.map_err(|error| not_read(path, &error))?;
        count += 1;
    }
    Ok(count)
}

fn not_read(path: &Path, error: &dyn std::fmt::Display) -> BenchError {
    BenchError::io("read with the mcap crate", path)(std::io::Error::other(error.to_string()))
}

/// The Python with the packages: the named one, else that of the test environment, else the system's.
pub(super) fn python(named: Option<&Path>) -> PathBuf {
    named.map_or_else(|| PathBuf::from("python3"), Path::to_owned)
}

/// Runs one of the Python readers; `None` when its package is missing.
pub(super) fn read_with_pip(python: &Path, package: &str, path: &Path) -> BenchResult<Option<RivalRead>> {
    let script = if package == "mcap" {
        READ_MCAP
    } else {
        READ_ROSBAGS
    };
    let output = Command::new(python)
        .args(["-c", script])
        .arg(path)
        .output()
        .map_err(BenchError::io("run", python))?;
    if !output.status.success() {
        tracing::warn!(
            "pip {package} is left out: {}",
            String::from_utf8_lossy(&output.stderr)
                .lines()
                .last()
                .unwrap_or("it gave no reason")
        );
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let mut words = text.split_whitespace();
    let messages = words.next().and_then(|word| word.parse().ok());
    let elapsed_s = words.next().and_then(|word| word.parse().ok());
    Ok(messages
        .zip(elapsed_s)
        .map(|(messages, elapsed_s)| RivalRead { messages, elapsed_s }))
}

/// `cp`, and a sync of the copy: the speed at which users copy files on this disk.
pub(super) fn copy_with_cp(from: &Path, to: &Path) -> BenchResult<()> {
    let status = Command::new("cp")
        .arg(from)
        .arg(to)
        .status()
        .map_err(BenchError::io("run cp for", from))?;
    if !status.success() {
        return Err(BenchError::io("copy", from)(std::io::Error::other("cp failed")));
    }
    let copy = fs::File::open(to).map_err(BenchError::io("open", to))?;
    copy.sync_all().map_err(BenchError::io("sync", to))
}
