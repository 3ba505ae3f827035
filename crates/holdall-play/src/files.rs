//! Notes which storage file a playback reads, and reports when the next one begins.

use holdall_io::mutex::lock;
use std::{
    collections::{BTreeMap, VecDeque},
    path::{Path, PathBuf},
    sync::Mutex,
};

/// Reports that are kept until there is a hook.
const KEPT_MAX: usize = 1024;

/// A playback went from one storage file to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadSplit {
    /// The file that was read before.
    pub closed: PathBuf,
    /// The file that is read now.
    pub opened: PathBuf,
}

/// Called for each [`ReadSplit`].
type Hook = Box<dyn FnMut(&ReadSplit) + Send>;

#[derive(Default)]
struct State {
    /// The file that is being read, by its bag's number.
    open: BTreeMap<usize, PathBuf>,
    kept: VecDeque<ReadSplit>,
    hook: Option<Hook>,
}

/// The files that a playback has read.
#[derive(Default)]
pub(super) struct FileLog(Mutex<State>);

impl FileLog {
    /// Notes that a file of bag number `bag` begins to be read.
    pub fn opened(&self, bag: usize, file: &Path) {
        let mut locked = lock(&self.0);
        let state = &mut *locked;
        let before = state.open.insert(bag, file.to_owned());
        let Some(closed) = before.filter(|before| before != file) else {
            return;
        };
        let split = ReadSplit {
            closed,
            opened: file.to_owned(),
        };
        match &mut state.hook {
            Some(hook) => hook(&split),
            None if state.kept.len() < KEPT_MAX => state.kept.push_back(split),
            None => {}
        }
    }

    /// Sets the function to call; files kept until now come first.
    pub fn set_hook(&self, mut hook: Hook) {
        let mut state = lock(&self.0);
        for split in state.kept.drain(..) {
            hook(&split);
        }
        state.hook = Some(hook);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn each_next_file_of_a_bag_is_reported_once_also_those_before_the_hook() {
        let log = FileLog::default();
        log.opened(0, Path::new("a_0"));
        log.opened(1, Path::new("b_0"));
        log.opened(0, Path::new("a_1"));
        let seen: Arc<Mutex<Vec<PathBuf>>> = Arc::default();
        let noted = Arc::clone(&seen);
        log.set_hook(Box::new(move |split| {
            noted.lock().unwrap().push(split.opened.clone());
        }));
        log.opened(0, Path::new("a_1"));
        log.opened(1, Path::new("b_1"));
        assert_eq!(*seen.lock().unwrap(), ["a_1", "b_1"].map(PathBuf::from));
    }
}
