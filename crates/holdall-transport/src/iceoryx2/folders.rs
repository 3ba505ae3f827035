//! Paths that other programs have put into iceoryx2's folders and that are too long for iceoryx2.

use holdall_io::fs::{self, DirEntry};
use std::path::{Path, PathBuf};

/// Longest path that iceoryx2's `Path` holds.
pub(super) const PATH_BYTES_MAX: usize = 255;

/// Folders of iceoryx2 in folders: root, nodes, a node.
const FOLDERS_DEEP: usize = 3;

/// A path below iceoryx2's root that is longer than iceoryx2 can hold: iceoryx2 panics when it lists such a folder. Links are not followed;
/// iceoryx2 does not list unreadable folders either.
pub(super) fn overlong_path(root: &str) -> Option<PathBuf> {
    overlong_below(Path::new(root), FOLDERS_DEEP)
}

fn overlong_below(folder: &Path, deep: usize) -> Option<PathBuf> {
    let entries = fs::list_dir(folder).ok()?;
    entries.into_iter().find_map(|DirEntry { path, is_dir }| {
        if path.as_os_str().len() > PATH_BYTES_MAX {
            return Some(path);
        }
        // `is_dir` follows links.
        let is_folder = deep > 1 && is_dir && fs::about_name(&path).is_ok_and(|about| about.is_dir());
        is_folder.then(|| overlong_below(&path, deep - 1)).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_iceoryx2_cannot_hold_are_found() {
        let root = tempfile::tempdir().unwrap();
        let node = root.path().join("nodes/1");
        std::fs::create_dir_all(&node).unwrap();
        std::fs::write(node.join("short"), "").unwrap();
        std::os::unix::fs::symlink(".", node.join("loop")).unwrap();
        assert_eq!(overlong_path(root.path().to_str().unwrap()), None);
        let overlong = node.join("a".repeat(PATH_BYTES_MAX - 10));
        std::fs::write(&overlong, "").unwrap();
        assert_eq!(overlong_path(root.path().to_str().unwrap()), Some(overlong));
    }
}
