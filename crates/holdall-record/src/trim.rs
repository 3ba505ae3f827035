//! Gives back the space that killed recordings had reserved and not used.

use holdall_bag::{live::lock_bag, rescue::POINTER_FILE, writer::STATE_KEY};
use holdall_io::fs;
use holdall_model::units::format_bytes;
use holdall_storage::{storage_of_directory, storage_of_file};
use std::path::{Path, PathBuf};

/// Folders that are looked into.
const FOLDERS_MAX: usize = 10_000;

/// Longest `metadata.yaml` that is read; that of a recording that was not ended has a few lines.
const METADATA_BYTES_MAX: u64 = 1 << 20;

/// Cuts, in the background, the files of killed recordings in the same folder as `bag`, after their last written data.
pub(crate) fn trim_killed_beside(bag: &Path) {
    let folder = bag.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new(".")).to_owned();
    let run = move || trim_killed_in(&folder);
    // Without a thread the space stays reserved until the repair.
    drop(std::thread::Builder::new().name("trim".to_owned()).spawn(run));
}

/// As [`trim_killed_beside`], for all bags in `folder`; waits until it is done. Returns the bytes that were freed.
pub(crate) fn trim_killed_in(folder: &Path) -> u64 {
    let listed = fs::list_dir_up_to(folder, FOLDERS_MAX).unwrap_or_default();
    let folders = listed.into_iter().filter(|entry| entry.is_dir);
    folders.map(|entry| trim(&entry.path)).sum()
}

fn trim(bag: &Path) -> u64 {
    if fs::is_link(bag) || !is_killed(bag) {
        return 0;
    }
    // Where a file system has no locks, whether a process writes the bag is not known.
    let Ok(Some(_lock)) = lock_bag(bag) else {
        return 0;
    };
    let mut bytes = 0;
    for file in storage_files(bag) {
        match fs::trim_unwritten(&file) {
            Ok(trimmed) => bytes += trimmed,
            Err(error) => tracing::debug!("{error}"),
        }
    }
    if bytes > 0 {
        tracing::info!(
            "{}: its recorder was killed; {} that it had reserved and not used are free again",
            bag.display(),
            format_bytes(bytes)
        );
    }
    bytes
}

/// Whether a bag was being recorded, by its own metadata.
fn is_killed(bag: &Path) -> bool {
    let text = fs::read_to_string(&bag.join("metadata.yaml"), METADATA_BYTES_MAX);
    text.is_ok_and(|text| text.contains(STATE_KEY)) || fs::is_file(&bag.join(POINTER_FILE))
}

/// The storage files of a bag, and those of a storage that is a directory.
fn storage_files(bag: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::list_dir(bag).unwrap_or_default() {
        if !entry.is_dir {
            // Other files may have a hole at their end for other reasons.
            let is_storage = storage_of_file(&entry.path).is_some();
            files.extend(Some(entry.path).filter(|_| is_storage));
        } else if storage_of_directory(&entry.path).is_some() {
            let inside = fs::list_dir(&entry.path).unwrap_or_default().into_iter();
            files.extend(inside.filter(|entry| !entry.is_dir).map(|entry| entry.path));
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_io::lock::WriteLock;

    const RESERVED: u64 = 64 << 20;

    /// A bag with a file that was written only at the beginning and is zero after that.
    fn bag(folder: &Path, name: &str, state: &str) -> PathBuf {
        let bag = folder.join(name);
        std::fs::create_dir(&bag).unwrap();
        std::fs::write(bag.join("metadata.yaml"), state).unwrap();
        let path = bag.join(format!("{name}_0.mcap"));
        let mut content = vec![7; 100_000];
        content.resize(200_000, 0);
        std::fs::write(&path, content).unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_len(200_000 + RESERVED).unwrap();
        path
    }

    #[test]
    fn only_killed_recordings_that_no_process_writes_are_cut_after_what_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let state = format!("custom_data:\n  {STATE_KEY}: recording\n");
        let made = |name: &str, state: &str| bag(folder.path(), name, state);
        let killed = made("killed", &state);
        let (ended, live) = (made("ended", "version: 9"), made("live", &state));
        let lock = WriteLock::try_hold(live.parent().unwrap()).unwrap();
        // A file of the user's own, with a hole at its end.
        let image = killed.with_file_name("disk.img");
        std::fs::write(&image, "data").unwrap();
        let file = std::fs::File::options().write(true).open(&image).unwrap();
        file.set_len(RESERVED).unwrap();
        let before = std::fs::read(&killed).unwrap();
        let trimmed = trim_killed_in(folder.path());
        let after = std::fs::read(&killed).unwrap();
        assert!(after.len() >= 200_000 && before.starts_with(&after));
        assert_eq!(trimmed, (before.len() - after.len()) as u64);
        assert!(after.len() < 300_000, "{}", after.len());
        for other in [ended, live] {
            assert_eq!(std::fs::metadata(other).unwrap().len(), 200_000 + RESERVED);
        }
        assert_eq!(std::fs::metadata(image).unwrap().len(), RESERVED);
        drop(lock);
    }
}
