//! Files and started programs that must not outlive this one: lists of them, so that a program that a signal
//! ends leaves nothing on the disk and no child running.

use crate::mutex::lock;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Mutex,
};

/// Everything that is unfinished in this process. Few threads create such things at once.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A file or directory that is worthless if the program ends now. Dropping this marks it as finished,
/// or gone.
#[derive(Debug)]
pub struct Unfinished {
    path: PathBuf,
}

impl Unfinished {
    /// Declares that a file or directory at `path`, existing or not yet, must not outlive the program while this value
    /// lives.
    pub fn new(path: &Path) -> Self {
        // A relative path would be another place after a change of directory, which this program never makes.
        let path = path.to_owned();
        list().push(path.clone());
        Self { path }
    }

    /// Creates the file or directory at `path` and declares it in the same step, so that it never exists
    /// undeclared.
    ///
    /// # Errors
    /// The error of `make`.
    pub fn make<T, E>(path: &Path, make: impl FnOnce() -> Result<T, E>) -> Result<(Self, T), E> {
        let mut list = list();
        let made = make()?;
        list.push(path.to_owned());
        Ok((
            Self {
                path: path.to_owned(),
            },
            made,
        ))
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
    lock(&UNFINISHED)
}

/// Creates something that is unfinished: either before [`remove_all_and_hold`] removes everything, or never.
/// Without this a directory that was just removed could be created again, with its parents, by a thread that
/// was about to.
pub(crate) fn while_nothing_is_removed<T>(make: impl FnOnce() -> T) -> T {
    let _list = list();
    make()
}

/// Programs that this process has started, by their process number.
static STARTED: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// A program that is of no use when this one ends. Dropping this declares that it has ended and was waited
/// for.
#[derive(Debug)]
pub struct StartedProgram {
    id: u32,
}

impl StartedProgram {
    /// Declares that the child `id` must not outlive this program while this value lives.
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
    lock(&STARTED)
}

/// Ends every program that was started and not yet waited for, by force. A thread that starts or ends one
/// from now on waits forever.
fn end_all_and_hold() {
    let started = started();
    for id in &*started {
        let Some(id) = i32::try_from(*id).ok().and_then(Pid::from_raw) else {
            continue;
        };
        // The number is that of a child that was not waited for, so no other process has it.
        let _ = kill_process(id, Signal::KILL);
    }
    std::mem::forget(started);
}

/// Attempts to remove a directory while other threads are still creating files in it.
const REMOVALS_MAX: u32 = 10_000;

/// Removes everything unfinished and ends all started processes, best effort; for a program that exits right
/// after. A thread that then finishes something or creates a directory waits forever, so that nothing is half
/// removed and then used, or created anew.
pub fn remove_all_and_hold() {
    end_all_and_hold();
    let list = list();
    for path in &*list {
        remove(path);
    }
    std::mem::forget(list);
}

/// Removes a file or a directory, also while others create and remove files in it.
fn remove(path: &Path) {
    for _ in 0..REMOVALS_MAX {
        let removed = if path.is_dir() {
            fs::remove_dir_all(path)
        } else {
            fs::remove_file(path)
        };
        let is_changing = |error: &io::Error| {
            matches!(
                error.kind(),
                // An entry was gone before it was reached, or was created after the listing.
                io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty
            )
        };
        match removed {
            Err(error) if is_changing(&error) && path.symlink_metadata().is_ok() => std::thread::yield_now(),
            // Removed, gone, or beyond this process's permissions.
            Ok(()) | Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock, SystemClock};
    use std::{process::Command, time::Duration};

    /// A child process removes its unfinished directory at any moment of two threads' work: one keeps
    /// creating the directory with its parents, the other creates files in it.
    #[test]
    fn nothing_is_made_again_after_the_removal() {
        const CHILD: &str = "HOLDALL_TEST_MADE_AGAIN";
        if let Some(path) = std::env::var_os(CHILD) {
            let around = PathBuf::from(path);
            let _unfinished = Unfinished::new(&around);
            let inside = around.join("bag");
            let removes = std::sync::Barrier::new(3);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    removes.wait();
                    loop {
                        drop(crate::fs::create_dir_new(&inside));
                        // The lock is not fair: a thread that takes it again at once may keep others out for
                        // minutes.
                        drop(fs::read_dir(&around));
                        std::thread::yield_now();
                    }
                });
                scope.spawn(|| {
                    removes.wait();
                    // No end: while it fails, the directory does not exist yet, or no longer.
                    let mut made = 0_u32;
                    while made < 300 {
                        made += u32::from(fs::write(inside.join(made.to_string()), "").is_ok());
                    }
                });
                removes.wait();
                while fs::read_dir(&inside).map_or(0, Iterator::count) < 10 {}
                remove_all_and_hold();
                // A thread that recreates it does so soon, because it is already trying. This waits for a
                // time, not for a number of yields: each may take milliseconds on a busy machine.
                let removed = SystemClock.monotonic();
                let mut is_made_again = false;
                while !is_made_again && SystemClock.monotonic() < removed + Duration::from_millis(10) {
                    is_made_again = around.exists();
                }
                std::process::exit(if is_made_again { 1 } else { 7 });
            });
        }
        let name = "unfinished::tests::nothing_is_made_again_after_the_removal";
        for _ in 0..10 {
            let folder = tempfile::tempdir().unwrap();
            let around = folder.path().join("around");
            let status = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", name])
                .env(CHILD, &around)
                .status()
                .unwrap();
            assert_eq!(status.code(), Some(7));
            assert!(!around.exists());
        }
    }

    /// Runs in a separate process, because the lists stay locked forever.
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
