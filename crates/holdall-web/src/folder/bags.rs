//! The list of a folder's bags: searched on a separate thread while pages are open. Each bag is opened on a thread of its own, a few at once, so
//! that one which takes long holds up no other; packed files are never unpacked for the list.

use super::root::Root;
use holdall::{
    Bag, Timestamp,
    reader::{Condition, FoundBag, bags_below, is_packed_name},
    tools::manage::labels,
};
use holdall_io::{
    fs::{file_numbers, modified_ns},
    lock::writer_of,
    mutex::lock,
    process::set_thread_nice,
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
    time::Duration,
};

/// Bags that are listed.
const BAGS_MAX: usize = 2000;

/// Bags that are opened at once.
const OPENING_MAX: usize = 4;

/// How long a search waits for a place to open a further bag; the next search continues.
const PLACE_WITHIN: Duration = Duration::from_secs(2);

/// How long a search waits for the bags that it opens before it lists them as being opened.
const LISTED_WITHIN: Duration = Duration::from_millis(700);

/// A bag of the list.
pub(super) struct Listed {
    /// Below the folder.
    pub name: String,
    pub found: FoundBag,
    /// Distinguishes states of the bag.
    pub state: String,
    /// Another process writes it.
    pub is_written: bool,
    /// For the search.
    pub about: About,
    summary: Value,
}

/// What bags are searched by.
#[derive(Default)]
pub(super) struct About {
    /// Names and types.
    pub topics: Vec<(String, String)>,
    pub labels: BTreeMap<String, String>,
    /// First and last log time.
    pub times: Option<(Timestamp, Timestamp)>,
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
pub(super) struct Bags {
    list: Mutex<List>,
    /// Bags that are being opened now.
    opening: Mutex<BTreeSet<String>>,
    opened: Condvar,
}

impl Bags {
    /// Searches the folder again; opens new and changed bags, those first that have metadata. `ended` is polled between bags.
    pub(super) fn search(self: &Arc<Self>, root: &Arc<Root>, ended: &dyn Fn() -> bool) {
        let (mut found, is_cut) = bags_below(root.path(), BAGS_MAX);
        let names: BTreeSet<String> = found
            .iter()
            .filter_map(|bag| bag.name.to_str().map(str::to_owned))
            .collect();
        found.sort_by_key(|bag| !has_metadata(bag));
        let (mut is_full, mut unlisted) = (false, Vec::new());
        for bag in found {
            let Some(name) = bag.name.to_str().map(str::to_owned) else {
                continue;
            };
            let (writer, state) = state_of(root.path(), &bag);
            let known = self.get(&name);
            if known.is_some_and(|known| known.state == state && !known.is_pending()) {
                continue;
            }
            if ended() {
                return;
            }
            let pending = Listed {
                is_written: writer.is_some(),
                summary: begun(&name, &bag, PENDING),
                about: About::default(),
                name: name.clone(),
                found: bag,
                state,
            };
            if self.get(&name).is_none() {
                unlisted.push(pending.clone_for(pending.summary.clone(), About::default()));
            }
            is_full = is_full || !self.begin(&name);
            if !is_full {
                self.open(pending, Arc::clone(root), writer);
            }
        }
        self.wait();
        for pending in unlisted {
            self.put_new(pending);
        }
        let mut list = lock(&self.list);
        let before = list.bags.len();
        list.bags.retain(|name, _| names.contains(name));
        list.number += u64::from(list.bags.len() != before || list.is_cut != is_cut);
        list.is_cut = is_cut;
    }

    /// Takes a place to open a bag; false if none becomes free, or the bag has one.
    fn begin(&self, name: &str) -> bool {
        let opening = lock(&self.opening);
        if opening.contains(name) {
            return true;
        }
        let is_full = |opening: &mut BTreeSet<String>| opening.len() >= OPENING_MAX;
        let waited = self.opened.wait_timeout_while(opening, PLACE_WITHIN, is_full);
        let (mut opening, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            return false;
        }
        opening.insert(name.to_owned());
        true
    }

    /// Opens a bag that has a place, on a thread of its own.
    fn open(self: &Arc<Self>, pending: Listed, root: Arc<Root>, writer: Option<String>) {
        let (bags, name) = (Arc::clone(self), pending.name.clone());
        let run = move || {
            let _ = set_thread_nice(10);
            let found = &pending.found;
            let opened = catch_unwind(AssertUnwindSafe(|| {
                summary(&root, &pending.name, found, writer.as_deref())
            }));
            let (summary, about) = opened.unwrap_or_else(|_| {
                let mut summary = begun(&pending.name, found, Condition::Unreadable.as_str());
                summary["note"] = json!("opening the bag failed unexpectedly");
                (summary, About::default())
            });
            bags.put(pending.clone_for(summary, about));
            bags.end(&pending.name);
        };
        let thread = thread::Builder::new().name(format!("{}opener", crate::THREADS));
        if thread.spawn(run).is_err() {
            self.end(&name);
        }
    }

    /// Waits a moment for the bags that are being opened: most are listed with their contents at once.
    fn wait(&self) {
        let is_opening = |opening: &mut BTreeSet<String>| !opening.is_empty();
        let opening = lock(&self.opening);
        drop(self.opened.wait_timeout_while(opening, LISTED_WITHIN, is_opening));
    }

    /// Lists a bag that is not listed yet.
    fn put_new(&self, listed: Listed) {
        let mut list = lock(&self.list);
        if !list.bags.contains_key(&listed.name) {
            list.bags.insert(listed.name.clone(), Arc::new(listed));
            list.number += 1;
        }
    }

    fn put(&self, listed: Listed) {
        let mut list = lock(&self.list);
        list.bags.insert(listed.name.clone(), Arc::new(listed));
        list.number += 1;
    }

    fn end(&self, name: &str) {
        lock(&self.opening).remove(name);
        self.opened.notify_all();
    }

    /// Forgets a bag that was renamed, changed or removed.
    pub(super) fn forget(&self, name: &str) {
        let mut list = lock(&self.list);
        list.bags.remove(name);
        list.number += 1;
    }

    /// The names of the bags that a search finds.
    pub(super) fn find(&self, question: &super::find::Question) -> Vec<String> {
        let list = lock(&self.list);
        let found = list.bags.values().filter(|bag| question.fits(bag));
        found.map(|bag| bag.name.clone()).collect()
    }

    /// The bag of this name.
    pub(super) fn get(&self, name: &str) -> Option<Arc<Listed>> {
        lock(&self.list).bags.get(name).cloned()
    }

    /// Higher when the list has changed.
    pub(super) fn number(&self) -> u64 {
        lock(&self.list).number
    }

    /// All of them.
    pub(super) fn json(&self) -> Value {
        let list = lock(&self.list);
        let bags: Vec<&Value> = list.bags.values().map(|bag| &bag.summary).collect();
        json!({"ok": true, "number": list.number, "is_cut": list.is_cut, "bags": bags})
    }
}

/// The state of a bag that was found and is not opened yet.
const PENDING: &str = "being opened";

impl Listed {
    fn is_pending(&self) -> bool {
        self.summary["state"] == json!(PENDING)
    }

    fn clone_for(&self, summary: Value, about: About) -> Self {
        Self {
            name: self.name.clone(),
            found: self.found.clone(),
            state: self.state.clone(),
            is_written: self.is_written,
            about,
            summary,
        }
    }
}

fn has_metadata(bag: &FoundBag) -> bool {
    bag.files.iter().any(|(name, _)| name.ends_with("metadata.yaml"))
}

fn begun(name: &str, found: &FoundBag, state: &str) -> Value {
    json!({"name": name, "bytes": found.size_bytes(), "files": found.files.len(), "state": state})
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
    let changed = bag
        .files
        .iter()
        .filter_map(|(name, _)| modified_ns(&folder.join(name)).ok());
    let state = format!(
        "{} files, {} bytes, {numbers:?}, {:?}, {writer:?}",
        bag.files.len(),
        bag.size_bytes(),
        changed.max()
    );
    (writer, state)
}

fn summary(root: &Root, name: &str, found: &FoundBag, writer: Option<&str>) -> (Value, About) {
    let mut summary = begun(name, found, Condition::Complete.as_str());
    if found.has_links {
        summary["state"] = json!("refused");
        summary["note"] = json!("a name in it is a symbolic link; only bags without any are opened here");
        return (summary, About::default());
    }
    if let Some(writer) = writer {
        summary["state"] = json!(Condition::Recording.as_str());
        summary["note"] = json!(format!("written by {writer}"));
        return (summary, About::default());
    }
    let is_packed = found.files.iter().any(|(name, _)| is_packed_name(name));
    if is_packed && !has_metadata(found) {
        summary["state"] = json!("compressed");
        summary["note"] = json!("without metadata.yaml; it is unpacked when it is opened");
        return (summary, About::default());
    }
    let unreadable = |error: String| (Condition::Unreadable, error);
    let opened = root.find(Path::new(name));
    let opened = opened.map_err(|error| unreadable(error.to_string()));
    let opened = opened
        .and_then(|path| Bag::open(path).map_err(|error| (Condition::of_error(&error), error.to_string())));
    match opened {
        Ok(bag) => {
            add_contents(&mut summary, &bag, is_packed);
            let about = about(&bag);
            let labels = about.labels.iter().map(|(key, value)| format!("{key}: {value}"));
            let labels: Vec<String> = labels.take(LABELS_SHOWN).collect();
            if !labels.is_empty() {
                summary["labels"] = json!(labels.join(" · "));
            }
            (summary, about)
        }
        Err((condition, reason)) => {
            summary["state"] = json!(condition.as_str());
            summary["note"] = json!(reason);
            (summary, About::default())
        }
    }
}

/// Labels that the list shows of a bag.
const LABELS_SHOWN: usize = 8;

fn about(bag: &Bag) -> About {
    let metadata = bag.metadata();
    let topics = metadata.topics_with_message_count.iter();
    let topics = topics.map(|topic| &topic.topic_metadata);
    About {
        topics: topics
            .map(|topic| (topic.name.clone(), topic.type_name.clone()))
            .collect(),
        labels: labels(bag),
        times: metadata.starting_time.zip(metadata.ending_time()),
    }
}

fn add_contents(summary: &mut Value, bag: &Bag, is_packed: bool) {
    let metadata = bag.metadata();
    summary["start_ns"] = json!(metadata.starting_time.map(|start| start.as_nanos().to_string()));
    summary["duration_s"] = json!(metadata.duration.as_secs_f64());
    summary["messages"] = json!(metadata.message_count);
    summary["topics"] = json!(metadata.topics_with_message_count.len());
    summary["storage"] = json!(metadata.storage_identifier);
    if is_packed {
        // Its state is known once it is unpacked.
        summary["state"] = json!("compressed");
        return;
    }
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
