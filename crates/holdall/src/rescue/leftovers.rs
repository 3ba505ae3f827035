//! Memory of killed recorders whose bags were never repaired: it stays until then, so a user must know of it.

use super::{KIND_LOG, POINTER_BYTES_MAX, POINTER_FILE, Pointer, catalog::Catalog};
use holdall_io::{
    fs,
    survivor::{NAME_PREFIX, Survivor, own_user},
};
use std::path::{Path, PathBuf};

/// The most files in the directory that are checked.
const FILES_MAX: usize = 4096;

/// Files that one line names.
const NAMED_MAX: usize = 8;

/// Memory of a killed recorder.
struct Leftover {
    file: PathBuf,
    /// Where its bag was.
    bag: PathBuf,
    bytes: usize,
    /// The bag is there and still needs it.
    is_awaited: bool,
}

/// Logs for which bags `directory` holds memory of killed recorders of this user, and what to do about it.
pub(crate) fn report_leftovers(directory: &Path) {
    for line in leftovers(directory) {
        tracing::warn!("{line}");
    }
}

/// One line for bags that need a repair, one for memory whose bags are not in their places. Only memory in which nothing was ever stored is
/// removed: a bag that is not in its place may have been moved.
pub(crate) fn leftovers(directory: &Path) -> Vec<String> {
    let (awaited, orphaned): (Vec<_>, Vec<_>) =
        found(directory).into_iter().partition(|left| left.is_awaited);
    let mebibytes = |left: &[Leftover]| {
        let bytes = left.iter().map(|left| left.bytes).sum::<usize>();
        bytes as f64 / f64::from(1 << 20)
    };
    let mut lines = Vec::new();
    if let Some(first) = awaited.first() {
        lines.push(format!(
            "{} killed, and {} keeps {:.1} MiB received by then: `holdall repair {}` writes what belongs to that bag into it ({})",
            match awaited.len() {
                1 => "a recorder was".to_owned(),
                many => format!("{many} recorders were"),
            },
            directory.display(),
            mebibytes(&awaited),
            first.bag.display(),
            first.file.display(),
        ));
    }
    if let Some(first) = orphaned.first() {
        let files: Vec<String> = orphaned
            .iter()
            .take(NAMED_MAX)
            .map(|left| quoted(&left.file))
            .collect();
        lines.push(format!(
            "{} keeps {:.1} MiB of killed recorders ({}) whose bags are not in their places or do not need it ({}); unless such a bag was moved: \
             rm {}",
            directory.display(),
            mebibytes(&orphaned),
            orphaned.len(),
            first.bag.display(),
            files.join(" "),
        ));
    }
    lines
}

/// A path as a shell takes it.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

fn found(directory: &Path) -> Vec<Leftover> {
    let (Ok(user), Ok(entries)) = (own_user(), fs::list_dir(directory)) else {
        return Vec::new();
    };
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
        match bag_of(&survivor) {
            Some(bag) => found.push(Leftover {
                bytes: survivor.slots().iter().map(|slot| slot.bytes).sum(),
                is_awaited: is_awaited(&bag, id),
                bag,
                file: entry.path,
            }),
            // Killed before its bag was named: nothing had been received.
            None => drop(survivor.remove()),
        }
    }
    found
}

/// Whether the bag is in its place and says that this memory is its own.
fn is_awaited(bag: &Path, id: &str) -> bool {
    let pointer = fs::read(&bag.join(POINTER_FILE), POINTER_BYTES_MAX);
    let pointer = pointer.map(|bytes| serde_json::from_slice::<Pointer>(&bytes));
    matches!(pointer, Ok(Ok(pointer)) if pointer.id == id)
}

fn bag_of(survivor: &Survivor) -> Option<PathBuf> {
    let mut log = Vec::new();
    for slot in survivor.slots().iter().filter(|slot| slot.kind == KIND_LOG) {
        log.extend_from_slice(&survivor.read(slot).ok()?);
    }
    let bag = Catalog::from_log(&log).directory;
    (!bag.as_os_str().is_empty() || !survivor.slots().is_empty()).then_some(bag)
}
