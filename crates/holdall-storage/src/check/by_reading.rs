//! Checks a storage by reading it: for formats whose reader verifies every block, or that have no checksums.

use super::{FileCheck, Progress};
use crate::{
    error::StorageResult,
    reader::{FileCondition, ReadOrder, ReadQuery, StorageReader},
};
use holdall_model::time::Timestamp;
use std::path::Path;

/// Messages between two reports of progress.
const MESSAGES_PER_REPORT: u64 = 256;

/// Reads all messages of `reader`, and compares them with its summary.
///
/// # Errors
/// A storage that cannot be read.
pub(crate) fn check(
    path: &Path,
    storage_id: &'static str,
    reader: &dyn StorageReader,
    progress: Progress<'_>,
) -> StorageResult<FileCheck> {
    let summary = reader.summary();
    let mut check = FileCheck {
        path: path.to_owned(),
        storage_id,
        file_bytes: summary.file_bytes,
        metadata: summary.metadata.clone(),
        ..FileCheck::default()
    };
    match &summary.condition {
        FileCondition::Complete => {}
        FileCondition::Unindexed => {
            check.notice(None, "index", "one that makes the file quick to open", "none")
        }
        FileCondition::Damaged { offset, reason } => {
            check.problem(*offset, "storage", "all that was written", reason);
        }
    }
    let counts = messages(&mut check, reader, progress)?;
    check.message_count = counts.iter().sum();
    for (channel, count) in summary.channels.iter().zip(&counts) {
        let topic = &channel.info.topic;
        let what = format!("messages of {}", topic.name);
        check.same(None, what, channel.message_count, *count);
        if topic.serialization_format == "cdr" {
            check.check_definition(None, &channel.info);
        }
        check.topics.push((topic.clone(), *count));
    }
    let nanos =
        |time: Option<Timestamp>| time.map_or_else(|| "none".to_owned(), |time| time.as_nanos().to_string());
    let (start, end) = (nanos(check.starting_time), nanos(check.ending_time));
    check.same(None, "first time", nanos(summary.starting_time), start);
    check.same(None, "last time", nanos(summary.ending_time), end);
    progress(check.file_bytes);
    Ok(check)
}

/// Reads all messages; returns the number in each channel.
fn messages(
    check: &mut FileCheck,
    reader: &dyn StorageReader,
    progress: Progress<'_>,
) -> StorageResult<Vec<u64>> {
    let query = ReadQuery {
        order: ReadOrder::File,
        ..ReadQuery::default()
    };
    let channels = reader.summary().channels.len();
    let (mut counts, mut last) = (vec![0u64; channels], vec![None; channels]);
    let (mut seen, mut bytes) = (0u64, 0u64);
    for message in reader.messages(&query)? {
        let message = match message {
            Ok(message) => message,
            Err(error) => {
                check.problem(None, "messages", "ones that can be read", error);
                continue;
            }
        };
        let place = message.channel.0 as usize;
        counts[place] += 1;
        let time = Some(message.log_time);
        check.out_of_order += u64::from(time < last[place]);
        last[place] = time;
        check.starting_time = check.starting_time.map_or(time, |first| time.min(Some(first)));
        check.ending_time = check.ending_time.max(time);
        bytes += message.payload.len() as u64;
        seen += 1;
        if seen.is_multiple_of(MESSAGES_PER_REPORT) {
            progress(bytes.min(check.file_bytes));
        }
    }
    Ok(counts)
}
