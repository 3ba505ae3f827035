//! The list of a folder's bags: searched and opened on a separate thread while pages are open.

use holdall::{
    Bag,
    reader::{Condition, FoundBag, bags_below},
};
use holdall_io::{fs::Beneath, fs::file_numbers, lock::writer_of, mutex::lock};
use holdall_model::time::Timestamp;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{Arc, Mutex},
};

/// Bags that are listed.
const BAGS_MAX: usize = 2000;

/// A bag of the list.
pub(super) struct Listed {
    /// Below the folder.
    pub name: String,
    pub found: FoundBag,
    /// Distinguishes states of the bag.
    pub state: String,
    /// Another process writes it.
    pub is_written: bool,
    summary: Value,
}

#[derive(Default)]
struct List {
    bags: BTreeMap<String, Arc<Listed>>,
    is_cut: bool,
    /// Higher with each change.
    number: u64,
}

/// The bags of a folder.
#[derive(Default)]
pub(super) struct Bags(Mutex<List>);

impl Bags {
    /// Searches the folder again; opens new and changed bags. `ended` is polled between bags.
    pub(super) fn search(&self, beneath: &Beneath, ended: &dyn Fn() -> bool) {
        let (found, is_cut) = bags_below(beneath.path(), BAGS_MAX);
        let mut names = BTreeSet::new();
        for bag in found {
            let Some(name) = bag.name.to_str().map(str::to_owned) else {
                continue;
            };
            names.insert(name.clone());
            let (writer, state) = state_of(beneath.path(), &bag);
            let is_known = lock(&self.0)
                .bags
                .get(&name)
                .is_some_and(|known| known.state == state);
            if is_known {
                continue;
            }
            if ended() {
                return;
            }
            let summary = summary(beneath, &name, &bag, writer.as_deref());
            let listed = Listed {
                is_written: writer.is_some(),
                name: name.clone(),
                found: bag,
                state,
                summary,
            };
            let mut list = lock(&self.0);
            list.bags.insert(name, Arc::new(listed));
            list.number += 1;
        }
        let mut list = lock(&self.0);
        let before = list.bags.len();
        list.bags.retain(|name, _| names.contains(name));
        list.number += u64::from(list.bags.len() != before || list.is_cut != is_cut);
        list.is_cut = is_cut;
    }

    /// The bag of this name.
    pub(super) fn get(&self, name: &str) -> Option<Arc<Listed>> {
        lock(&self.0).bags.get(name).cloned()
    }

    /// Higher when the list has changed.
    pub(super) fn number(&self) -> u64 {
        lock(&self.0).number
    }

    /// All of them.
    pub(super) fn json(&self) -> Value {
        let list = lock(&self.0);
        let bags: Vec<&Value> = list.bags.values().map(|bag| &bag.summary).collect();
        json!({"ok": true, "number": list.number, "is_cut": list.is_cut, "bags": bags})
    }
}

/// Who writes the bag, and a text that differs when the bag does.
fn state_of(folder: &Path, bag: &FoundBag) -> (Option<String>, String) {
    let path = folder.join(&bag.name);
    let in_files = || {
        bag.files
            .iter()
            .find_map(|(name, _)| writer_of(&folder.join(name)).ok().flatten())
    };
    let writer = match bag.has_links {
        true => None,
        false => writer_of(&path).ok().flatten().or_else(in_files),
    };
    let writer = writer.map(|writer| writer.to_string());
    let numbers = bag
        .files
        .first()
        .and_then(|(name, _)| file_numbers(&folder.join(name)).ok());
    let state = format!(
        "{} files, {} bytes, {numbers:?}, {writer:?}",
        bag.files.len(),
        bag.size_bytes()
    );
    (writer, state)
}

fn summary(beneath: &Beneath, name: &str, found: &FoundBag, writer: Option<&str>) -> Value {
    let mut summary = json!({
        "name": name,
        "bytes": found.size_bytes(),
        "files": found.files.len(),
        "state": Condition::Complete.as_str(),
    });
    if found.has_links {
        summary["state"] = json!("refused");
        summary["note"] = json!("a name in it is a symbolic link; only bags without any are opened here");
        return summary;
    }
    if let Some(writer) = writer {
        summary["state"] = json!(Condition::Recording.as_str());
        summary["note"] = json!(format!("written by {writer}"));
        return summary;
    }
    let unreadable = |error: String| (Condition::Unreadable, error);
    let opened = beneath.find(Path::new(name));
    let opened = opened.map_err(|error| unreadable(error.to_string()));
    let opened = opened
        .and_then(|path| Bag::open(path).map_err(|error| (Condition::of_error(&error), error.to_string())));
    match opened {
        Ok(bag) => add_contents(&mut summary, &bag),
        Err((condition, reason)) => {
            summary["state"] = json!(condition.as_str());
            summary["note"] = json!(reason);
        }
    }
    summary
}

fn add_contents(summary: &mut Value, bag: &Bag) {
    let metadata = bag.metadata();
    summary["start_ns"] = json!(metadata.starting_time.map(|start| start.as_nanos().to_string()));
    summary["duration_s"] = json!(metadata.duration.as_secs_f64());
    summary["messages"] = json!(metadata.message_count);
    summary["topics"] = json!(metadata.topics_with_message_count.len());
    summary["storage"] = json!(metadata.storage_identifier);
    match bag.state() {
        Ok(state) => {
            summary["state"] = json!(state.condition.as_str());
            summary["lost"] = json!(state.sums().map(|sums| sums.lost));
            summary["all_losses_known"] = json!(state.knows_all());
            let more = state.more_lines(seconds_since_1970).into_iter().next();
            summary["note"] = json!(more);
        }
        Err(error) => {
            summary["state"] = json!(Condition::Unreadable.as_str());
            summary["note"] = json!(error.to_string());
        }
    }
    if let Some(damage) = bag.damage() {
        summary["note"] = json!(damage);
    } else if let Some(notice) = bag.notices().first() {
        summary["note"] = json!(notice);
    }
}

fn seconds_since_1970(time: Timestamp) -> String {
    let nanos = time.as_nanos();
    format!(
        "{}.{:03}",
        nanos.div_euclid(1_000_000_000),
        nanos.rem_euclid(1_000_000_000) / 1_000_000
    )
}
