//! Memory of killed recorders whose bags were never repaired: it stays until then, so a user must know of it.

use super::{POINTER_BYTES_MAX, POINTER_FILE, Pointer, catalog::Catalog};
use holdall_io::{
    fs,
    survivor::{NAME_PREFIX, Survivor, own_user, view_of_files},
};
use holdall_model::{text::shell_word, units::format_bytes};
use std::path::{Path, PathBuf};

/// The most files in the directory that are checked.
const FILES_MAX: usize = 4096;

/// Memory of a killed recorder.
struct Leftover {
    file: PathBuf,
    /// Where its bag was.
    bag: PathBuf,
    bytes: usize,
    /// The bag exists and still needs it.
    is_awaited: bool,
    /// Its recorder saw the same files as this process: if the bag is missing now, it was moved or removed.
    is_of_our_view: bool,
}

/// Logs for which bags `directory` holds memory of killed recorders of this user, and how to recover it.
pub fn report_leftovers(directory: &Path) {
    if let Some(line) = leftovers(directory) {
        tracing::warn!("{line}");
    }
}

/// One line: about bags that need a repair, else about memory whose bags are not in their places. Only memory in which nothing was ever stored
/// is removed: a bag that is not in its place may have been moved, and one of another container cannot be seen here, so nothing is advised about
/// that.
pub fn leftovers(directory: &Path) -> Option<String> {
    let (awaited, others): (Vec<_>, Vec<_>) = found(directory).into_iter().partition(|left| left.is_awaited);
    let of_our_view = |left: &Leftover| left.is_of_our_view;
    let orphaned: Vec<Leftover> = others.into_iter().filter(of_our_view).collect();
    let size = |left: &[Leftover]| format_bytes(left.iter().map(|left| left.bytes as u64).sum());
    let more = |left: &[Leftover]| match left.len() {
        1 => String::new(),
        many => format!(" ({} more)", many - 1),
    };
    if let Some(first) = awaited.first() {
        return Some(format!(
            "{} of a killed recording are in memory: `holdall repair {}` stores them{}",
            size(&awaited),
            shell_word(&first.bag.to_string_lossy()),
            more(&awaited),
        ));
    }
    let first = orphaned.first()?;
    Some(format!(
        "{} of a killed recording are in memory, and {} is gone: repair it where it is now, or rm {}{}",
        size(&orphaned),
        first.bag.display(),
        shell_word(&first.file.to_string_lossy()),
        more(&orphaned),
    ))
}

fn found(directory: &Path) -> Vec<Leftover> {
    let (Ok(user), Ok(entries)) = (own_user(), fs::list_dir(directory)) else {
        return Vec::new();
    };
    let view = view_of_files().ok();
    let mut found = Vec::new();
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
        if survivor.slots().is_empty() {
            // Killed before its bag was named: nothing had been received.
            drop(survivor.remove());
            continue;
        }
        // Memory that cannot be read now may be readable later.
        let Ok(catalog) = Catalog::in_memory(&survivor) else {
            continue;
        };
        found.push(Leftover {
            bytes: survivor.slots().iter().map(|slot| slot.bytes).sum(),
            is_awaited: is_awaited(&catalog, id),
            is_of_our_view: view.is_some() && catalog.view == view,
            bag: catalog.directory,
            file: entry.path,
        });
    }
    found
}

/// Whether the bag is in its place, is the one that was recorded, and names this memory as its own.
fn is_awaited(catalog: &Catalog, id: &str) -> bool {
    let pointer = fs::read(&catalog.directory.join(POINTER_FILE), POINTER_BYTES_MAX);
    let pointer = pointer.map(|bytes| serde_json::from_slice::<Pointer>(&bytes));
    matches!(pointer, Ok(Ok(pointer)) if pointer.id == id) && catalog.is_of(&catalog.directory)
}
