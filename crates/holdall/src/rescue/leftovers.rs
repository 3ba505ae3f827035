//! Memory of killed recorders whose bags were never repaired: it stays until then, so a user must know of it.

use super::catalog::Catalog;
use crate::record::write::survival::KIND_LOG;
use holdall_io::{
    fs,
    survivor::{NAME_PREFIX, Survivor, own_user},
};
use std::path::Path;

/// The most files in the directory that are checked.
const FILES_MAX: usize = 4096;

/// Logs in one line for which bags `directory` holds memory of killed recorders of this user, and what to do. Only memory in which nothing
/// was ever stored is removed: a bag that is not in its place may have been moved.
pub fn report_leftovers(directory: &Path) {
    let (Ok(user), Ok(entries)) = (own_user(), fs::list_dir(directory)) else {
        return;
    };
    let mut bags = Vec::new();
    let mut bytes = 0;
    for entry in entries.into_iter().take(FILES_MAX).filter(|entry| !entry.is_dir) {
        let name = entry
            .path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        let Some(id) = name.as_deref().and_then(|name| name.strip_prefix(NAME_PREFIX)) else {
            continue;
        };
        // One that cannot be opened belongs to a live recorder, or to an unknown owner.
        let Ok(survivor) = Survivor::open(&entry.path, id, user) else {
            continue;
        };
        match bag_of(&survivor) {
            Some(bag) => {
                bytes += survivor.slots().iter().map(|slot| slot.bytes).sum::<usize>();
                bags.push((bag, entry.path));
            }
            // Killed before its bag was named: nothing had been received.
            None => drop(survivor.remove()),
        }
    }
    if let Some((bag, file)) = bags.first() {
        tracing::warn!(
            "{} recorders were killed, and {} keeps {:.1} MiB that they received: `holdall repair {}` writes what belongs to that bag into it \
             ({}); delete the files of bags that are gone",
            bags.len(),
            directory.display(),
            bytes as f64 / f64::from(1 << 20),
            bag.display(),
            file.display(),
        );
    }
}

fn bag_of(survivor: &Survivor) -> Option<std::path::PathBuf> {
    let mut log = Vec::new();
    for slot in survivor.slots().iter().filter(|slot| slot.kind == KIND_LOG) {
        log.extend_from_slice(&survivor.read(slot).ok()?);
    }
    let bag = Catalog::from_log(&log).directory;
    (!bag.as_os_str().is_empty() || !survivor.slots().is_empty()).then_some(bag)
}
