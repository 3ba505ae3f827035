//! What is on the disk only while the program works: a list of it, so that a program that is told to end leaves nothing behind.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

/// Everything that is unfinished in this process. Work is made in few places at once.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A file or directory that is worth nothing when the program ends now. Dropping this says that it is finished, or gone.
#[derive(Debug)]
pub struct Unfinished {
    path: PathBuf,
}

impl Unfinished {
    /// Says that what is (or will be) at `path` must not outlive the program while this lives.
    pub fn new(path: &Path) -> Self {
        // A relative path means another place after a change of directory, which this program never makes.
        let path = path.to_owned();
        list().push(path.clone());
        Self { path }
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let mut list = list();
        if let Some(place) = list.iter().position(|path| *path == self.path) {
            list.swap_remove(place);
        }
    }
}

fn list() -> std::sync::MutexGuard<'static, Vec<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes everything that is unfinished, best effort; for a program that ends right behind. Whoever finishes something meanwhile waits
/// for ever, so that nothing is half removed and then used.
pub fn remove_all_and_hold() {
    let list = list();
    // Threads that are still writing may make new files in a directory while it is removed.
    for _ in 0..3 {
        for path in &*list {
            let removed = if path.is_dir() {
                fs::remove_dir_all(path)
            } else {
                fs::remove_file(path)
            };
            drop(removed);
        }
    }
    std::mem::forget(list);
}
