//! Compares what `metadata.yaml` states with what the files of the bag hold.

use super::check::BagCheck;
use holdall_model::{
    metadata::{BagMetadata, FileInformation},
    time::Timestamp,
    units::counted,
};
use holdall_storage::check::FileCheck;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

/// Nanoseconds since the epoch as text, for findings.
fn nanos(time: Option<Timestamp>) -> String {
    time.map_or_else(|| "none".to_owned(), |time| time.as_nanos().to_string())
}

fn span_nanos(times: (Option<Timestamp>, Option<Timestamp>)) -> u128 {
    match times {
        (Some(start), Some(end)) => end.saturating_since(start).as_nanos(),
        _ => 0,
    }
}

/// Compares what the metadata has of a file with the file.
pub(super) fn compare_file(
    check: &mut BagCheck,
    metadata_path: &Path,
    said: &FileInformation,
    found: &FileCheck,
) {
    let what = |which: &str| format!("{which} of {}", said.path);
    check.same(
        metadata_path,
        what("message count"),
        found.message_count,
        said.message_count,
    );
    let (start, end) = (found.starting_time, found.ending_time);
    check.same(
        metadata_path,
        what("starting time"),
        nanos(start),
        nanos(said.starting_time),
    );
    check.same(
        metadata_path,
        what("duration"),
        span_nanos((start, end)),
        said.duration.as_nanos(),
    );
}

/// Compares totals and topics of the metadata with all files.
pub(super) fn compare_bag(check: &mut BagCheck, path: &Path, said: &BagMetadata) {
    let total: u64 = check.files.iter().map(|file| file.message_count).sum();
    let start = check.files.iter().filter_map(|file| file.starting_time).min();
    let end = check.files.iter().filter_map(|file| file.ending_time).max();
    check.same(path, "message count", total, said.message_count);
    check.same(path, "starting time", nanos(start), nanos(said.starting_time));
    check.same(
        path,
        "duration",
        span_nanos((start, end)),
        said.duration.as_nanos(),
    );
    let storages: BTreeSet<&str> = check.files.iter().map(|file| file.storage_id).collect();
    if let Some(storage) = storages.first()
        && *storage != said.storage_identifier
    {
        let storage = (*storage).to_owned();
        check.problem(path, "storage identifier", storage, &said.storage_identifier);
    }
    let mut counts: BTreeMap<(String, String), (u64, String)> = BTreeMap::new();
    for (topic, count) in check.files.iter().flat_map(|file| &file.topics) {
        let entry = counts
            .entry((topic.name.clone(), topic.type_name.clone()))
            .or_default();
        entry.0 += count;
        if entry.1.is_empty() {
            entry.1.clone_from(&topic.type_description_hash);
        }
    }
    for topic in &said.topics_with_message_count {
        let info = &topic.topic_metadata;
        let found = counts
            .remove(&(info.name.clone(), info.type_name.clone()))
            .unwrap_or_default();
        check.same(
            path,
            format!("message count of {}", info.name),
            found.0,
            topic.message_count,
        );
        let hashes = (&found.1, &info.type_description_hash);
        if !hashes.0.is_empty() && !hashes.1.is_empty() {
            check.same(
                path,
                format!("type hash of {}", info.name),
                hashes.0.clone(),
                hashes.1.clone(),
            );
        }
    }
    for ((name, type_name), (count, _)) in counts {
        if count > 0 {
            let expected = format!("{name} ({type_name}) with {}", counted(count, "message"));
            check.problem(path, "topics", expected, "no such topic");
        }
    }
}
