//! A cache of facts about objects and folders: a bag's files are opened several times, and each time would be a
//! request.

use crate::object::RemoteObject;
use holdall_io::remote::{ObjectAbout, ObjectEntry};
use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
    sync::Arc,
};

/// Objects whose ends are kept, 256 KiB each.
const OBJECTS_MAX: usize = 128;
/// Listings that are kept.
const FOLDERS_MAX: usize = 64;
/// Small objects that are kept, and the longest of them.
const SMALL_MAX: usize = 64;
const SMALL_BYTES_MAX: usize = 256 << 10;

/// A map that drops its oldest entries.
#[derive(Debug)]
struct Recent<V> {
    by_url: HashMap<String, V>,
    order: VecDeque<String>,
    max: usize,
}

impl<V> Recent<V> {
    fn new(max: usize) -> Self {
        Self {
            by_url: HashMap::new(),
            order: VecDeque::new(),
            max,
        }
    }

    fn get<Q: ?Sized + Hash + Eq>(&self, url: &Q) -> Option<&V>
    where
        String: std::borrow::Borrow<Q>,
    {
        self.by_url.get(url)
    }

    fn insert(&mut self, url: &str, value: V) {
        if self.by_url.insert(url.to_owned(), value).is_none() {
            self.order.push_back(url.to_owned());
        }
        while self.order.len() > self.max {
            if let Some(oldest) = self.order.pop_front() {
                self.by_url.remove(&oldest);
            }
        }
    }

    fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.by_url.retain(|url, _| keep(url));
        self.order.retain(|url| keep(url));
    }
}

/// The cache.
#[derive(Debug)]
pub(crate) struct Known {
    objects: Recent<Arc<RemoteObject>>,
    folders: Recent<Arc<Vec<ObjectEntry>>>,
    small: Recent<Arc<[u8]>>,
}

impl Default for Known {
    fn default() -> Self {
        Self {
            objects: Recent::new(OBJECTS_MAX),
            folders: Recent::new(FOLDERS_MAX),
            small: Recent::new(SMALL_MAX),
        }
    }
}

impl Known {
    pub(crate) fn object(&self, url: &str) -> Option<Arc<RemoteObject>> {
        self.objects.get(url).cloned()
    }

    pub(crate) fn add_object(&mut self, url: &str, object: &Arc<RemoteObject>) {
        self.objects.insert(url, Arc::clone(object));
    }

    pub(crate) fn folder(&self, url: &str) -> Option<Arc<Vec<ObjectEntry>>> {
        self.folders.get(url).cloned()
    }

    pub(crate) fn add_folder(&mut self, url: &str, entries: &Arc<Vec<ObjectEntry>>) {
        self.folders.insert(url, Arc::clone(entries));
    }

    pub(crate) fn small(&self, url: &str) -> Option<Arc<[u8]>> {
        self.small.get(url).cloned()
    }

    pub(crate) fn add_small(&mut self, url: &str, bytes: &[u8]) {
        if bytes.len() <= SMALL_BYTES_MAX {
            self.small.insert(url, Arc::from(bytes));
        }
    }

    /// The entry for a URL in the listing of its folder: `None` without a listing, `Some(None)` when it is not in it.
    pub(crate) fn listed(&self, url: &str) -> Option<Option<ObjectAbout>> {
        let (folder, _) = url.rsplit_once('/')?;
        let entries = self.folders.get(folder)?;
        // They are in the order of their URLs.
        let place = entries.binary_search_by(|entry| entry.url.as_str().cmp(url));
        Some(place.ok().map(|place| entries[place].about.clone()))
    }

    /// Drops everything at and below a URL, and the listing that it is in.
    pub(crate) fn forget(&mut self, url: &str) {
        let folder = url.rsplit_once('/').map_or("", |(folder, _)| folder);
        let keep = |known: &str| {
            let below = known
                .strip_prefix(url)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
            !below && known != folder
        };
        self.objects.retain(keep);
        self.folders.retain(keep);
        self.small.retain(keep);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_forgotten_with_what_is_in_it_and_no_other() {
        let mut known = Known::default();
        for url in ["s3://b/run/metadata.yaml", "s3://b/run2/metadata.yaml"] {
            known.add_small(url, b"text");
        }
        known.add_folder("s3://b/run", &Arc::default());
        known.forget("s3://b/run");
        assert!(known.small("s3://b/run/metadata.yaml").is_none() && known.folder("s3://b/run").is_none());
        assert!(known.small("s3://b/run2/metadata.yaml").is_some());
    }

    #[test]
    fn what_is_known_is_bounded() {
        let mut known = Known::default();
        for number in 0..1000 {
            known.add_small(&format!("s3://b/{number}"), b"x");
        }
        assert!(known.small.by_url.len() == SMALL_MAX && known.small("s3://b/999").is_some());
    }
}
