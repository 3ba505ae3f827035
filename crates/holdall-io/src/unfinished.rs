//! What is there only while the program works, files and programs that it has started: lists of it, so that a program that is told
//! to end leaves nothing behind.

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

/// Programs that this process has started, by their number.
static STARTED: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// A program that is of no use when this one ends. Dropping this says that it has ended and was waited for.
#[derive(Debug)]
pub struct StartedProgram {
    id: u32,
}

impl StartedProgram {
    /// Says that the child `id` must not outlive this program while this lives.
    pub fn new(id: u32) -> Self {
        started().push(id);
        Self { id }
    }
}

impl Drop for StartedProgram {
    fn drop(&mut self) {
        let mut started = started();
        if let Some(place) = started.iter().position(|id| *id == self.id) {
            started.swap_remove(place);
        }
    }
}

fn started() -> std::sync::MutexGuard<'static, Vec<u32>> {
    STARTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends every program that was started and not yet waited for, by force. Whoever starts or ends one meanwhile waits for ever.
fn end_all_and_hold() {
    let started = started();
    for id in &*started {
        let Ok(id) = i32::try_from(*id) else { continue };
        // SAFETY: takes two numbers and touches no memory. The number is that of a child that was not waited for, so it is nobody else's.
        let _gone = unsafe { libc::kill(id, libc::SIGKILL) } != 0;
    }
    std::mem::forget(started);
}

/// Removes everything that is unfinished and ends what was started, best effort; for a program that ends right behind. Whoever finishes something meanwhile waits
/// for ever, so that nothing is half removed and then used.
pub fn remove_all_and_hold() {
    end_all_and_hold();
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// In a process of its own: the lists are held for ever afterwards.
    #[test]
    fn what_was_started_is_ended_and_what_is_unfinished_is_removed() {
        const CHILD: &str = "HOLDALL_TEST_UNFINISHED";
        let folder = tempfile::tempdir().unwrap();
        if let Some(path) = std::env::var_os(CHILD) {
            let mut sleeper = Command::new("sleep").arg("600").spawn().unwrap();
            let _started = StartedProgram::new(sleeper.id());
            drop(StartedProgram::new(u32::MAX));
            fs::create_dir(&path).unwrap();
            let _unfinished = Unfinished::new(Path::new(&path));
            remove_all_and_hold();
            assert!(!sleeper.wait().unwrap().success());
            assert!(!Path::new(&path).exists());
            std::process::exit(7);
        }
        let name = "unfinished::tests::what_was_started_is_ended_and_what_is_unfinished_is_removed";
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name])
            .env(CHILD, folder.path().join("bag"))
            .status()
            .unwrap();
        assert_eq!(status.code(), Some(7));
    }
}
