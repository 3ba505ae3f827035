//! Finds damaged messages in files whose messages are compressed one by one: such a file may be whole itself.

use holdall_bag::reader::Bag;
use holdall_storage::{
    StorageError,
    check::{Finding, Findings, Severity},
    reader::{ReadOrder, ReadQuery},
};
use std::path::PathBuf;

/// Unpacks all compressed messages of a bag; returns findings by file. Other damage is found by a check of the files.
pub(super) fn check_payloads(bag: &Bag) -> Vec<(PathBuf, Findings)> {
    let mut found = Vec::new();
    let query = ReadQuery {
        order: ReadOrder::File,
        ..ReadQuery::default()
    };
    for file in bag.files().iter().filter(|file| file.has_packed_payloads()) {
        let mut findings = Findings::default();
        let messages = file.open().ok().and_then(|reader| reader.messages(&query).ok());
        for error in messages.into_iter().flatten().filter_map(Result::err) {
            if let StorageError::Payload {
                topic,
                log_time,
                reason,
                ..
            } = error
            {
                findings.add(Finding {
                    severity: Severity::Problem,
                    path: file.path.clone(),
                    offset: None,
                    what: format!("message of {topic} at {log_time} ns"),
                    expected: "one that can be decompressed".to_owned(),
                    found: reason,
                });
            }
        }
        found.push((file.path.clone(), findings));
    }
    found
}
