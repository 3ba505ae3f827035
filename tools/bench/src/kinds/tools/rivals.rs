//! The programs and libraries that the tools are compared with.

use super::ToolRun;
use crate::error::{BenchError, BenchResult};
use holdall_io::fs::File;
use std::{fs, path::Path, process::Command};

const READ_MCAP: &str = include_str!("read_mcap.py");
const READ_ROSBAGS: &str = include_str!("read_rosbags.py");

/// Bytes that the plain read takes at a time.
const READ_BYTES: usize = 1 << 20;

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

/// Runs one of the Python readers, which times itself without its start.
///
/// # Errors
/// [`BenchError::Program`] when Python or its package is missing.
pub(super) fn read_with_pip(python: &Path, package: &str, bag: &Path, file: &Path) -> BenchResult<ToolRun> {
    let failed = |reason: String| BenchError::program(format!("pip {package}"), reason);
    let (script, path) = if package == "mcap" {
        (READ_MCAP, file)
    } else {
        (READ_ROSBAGS, bag)
    };
    let output = Command::new(python).args(["-c", script]).arg(path).output();
    let output = output.map_err(|error| failed(format!("cannot be run: {}: {error}", python.display())))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let reason = text.lines().last().unwrap_or("it gave no reason");
        return Err(failed(format!("failed: {reason}")));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let mut words = text.split_whitespace();
    let messages = words.next().and_then(|word| word.parse().ok());
    let elapsed_s = words.next().and_then(|word| word.parse().ok());
    let (messages, elapsed_s) = messages
        .zip(elapsed_s)
        .ok_or_else(|| failed(format!("printed {text:?} instead of messages and seconds")))?;
    Ok(ToolRun {
        elapsed_s,
        bytes: fs::metadata(file).map_err(BenchError::io("inspect", file))?.len(),
        messages,
        limit_bytes_per_s: None,
    })
}

/// Reads a file from front to end.
pub(super) fn read_plain(path: &Path) -> BenchResult<()> {
    let file = File::open(path)?;
    file.expect_sequential_reads();
    let (mut buffer, mut at) = (vec![0; READ_BYTES], 0);
    loop {
        let read = file.read_at(&mut buffer, at)?;
        if read == 0 {
            return Ok(());
        }
        at += read as u64;
    }
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
