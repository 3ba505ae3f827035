//! Where running recordings and playbacks of this user are found: a folder of the user's with a control socket for each process.

use super::control_socket::{ControlError, ControlSocket, PLAY_REQUESTS, RECORD_REQUESTS, Requests, ask};
use holdall_io::{fs, process};
use serde_json::{Value, json};
use std::{
    io,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
};

/// Most sockets that are listed.
const LISTED_MAX: usize = 1000;

/// Kind of a running program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunningKind {
    /// A recording.
    Recording,
    /// A playback.
    Playback,
}

impl RunningKind {
    /// `recording` or `playback`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Recording => "recording",
            Self::Playback => "playback",
        }
    }
}

/// A recording or playback that runs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Running {
    /// Its process.
    pub process: u32,
    /// Its kind.
    pub kind: RunningKind,
    /// Its control socket.
    pub socket: PathBuf,
}

/// The folder of the sockets.
#[derive(Clone, Debug)]
pub struct RunningFolder {
    /// Of this process.
    path: PathBuf,
    /// Where processes of the same user have theirs whose environment is another one: without a session, as services and cron start them.
    others: Vec<PathBuf>,
}

impl RunningFolder {
    /// At this path.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            others: Vec::new(),
        }
    }

    /// Also finds what has its socket in another folder.
    #[must_use]
    pub fn and(mut self, other: PathBuf) -> Self {
        if other != self.path && !self.others.contains(&other) {
            self.others.push(other);
        }
        self
    }

    /// Every folder in which sockets are searched.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        std::iter::once(&self.path)
            .chain(&self.others)
            .map(PathBuf::as_path)
    }

    /// Makes the socket of this process, whose name others find.
    ///
    /// # Errors
    /// The folder cannot be made or belongs to another user, or the socket cannot be made.
    pub fn bind(&self, kind: RunningKind) -> Result<ControlSocket, ControlError> {
        self.make().map_err(|source| ControlError::Bind {
            path: self.path.clone(),
            source,
        })?;
        let name = format!("{}-{}.sock", kind.as_str(), std::process::id());
        ControlSocket::bind(&self.path.join(name))
    }

    fn make(&self) -> io::Result<()> {
        if !fs::exists(&self.path).map_err(|error| error.into_io())? {
            // Another process may have been faster.
            let _ = fs::create_private_dir(&self.path);
        }
        if fs::is_private_dir(&self.path) {
            Ok(())
        } else {
            Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "others than this user can enter it",
            ))
        }
    }

    /// Running programs, by process. Sockets of processes that were killed are removed.
    pub fn list(&self) -> Vec<Running> {
        let mut found = self.found();
        found.retain(|(_, is_alive)| *is_alive);
        found.into_iter().map(|(running, _)| running).collect()
    }

    /// The same with those that do not answer any more: false. They are found once, unless another process has got their number.
    pub fn found(&self) -> Vec<(Running, bool)> {
        let folders = self.paths().filter(|folder| fs::is_private_dir(folder));
        let listed = folders.flat_map(|folder| fs::list_dir_up_to(folder, LISTED_MAX).unwrap_or_default());
        let is_socket = |path: &Path| fs::about_name(path).is_ok_and(|about| about.kind == fs::Kind::Socket);
        let sockets = listed.filter(|entry| is_socket(&entry.path));
        let found = sockets.filter_map(|entry| of_socket(&entry.path));
        let mut found: Vec<(Running, bool)> = found
            .map(|running| {
                let is_alive = UnixStream::connect(&running.socket).is_ok();
                if !is_alive && !process::exists(running.process) {
                    drop(fs::remove_file(&running.socket));
                }
                (running, is_alive)
            })
            .collect();
        found.sort();
        found
    }

    /// Users other than this one with a folder of sockets beside one of this user's: this user cannot ask what they run.
    pub fn other_users(&self) -> Vec<u32> {
        let mut users: Vec<u32> = self.paths().flat_map(users_beside).collect();
        users.sort_unstable();
        users.dedup();
        users
    }
}

fn users_beside(folder: &Path) -> Vec<u32> {
    let own = folder.file_name().and_then(|name| name.to_str());
    let (Some(place), Some((prefix, _))) = (folder.parent(), own.and_then(|own| own.rsplit_once('-'))) else {
        return Vec::new();
    };
    let of_entry = |entry: &fs::DirEntry| {
        let (before, user) = entry.path.file_name()?.to_str()?.rsplit_once('-')?;
        let is_number = user.bytes().all(|byte| byte.is_ascii_digit());
        let user = user.parse().ok().filter(|_| is_number)?;
        (entry.is_dir && before == prefix && user != process::user()).then_some(user)
    };
    let listed = fs::list_dir_up_to(place, LISTED_MAX).unwrap_or_default();
    listed.iter().filter_map(of_entry).collect()
}

fn of_socket(path: &Path) -> Option<Running> {
    let name = path.file_name()?.to_str()?.strip_suffix(".sock")?;
    let (kind, process) = name.split_once('-')?;
    let kind = [RunningKind::Recording, RunningKind::Playback]
        .into_iter()
        .find(|known| known.as_str() == kind)?;
    Some(Running {
        process: process.parse().ok()?,
        kind,
        socket: path.to_owned(),
    })
}

/// Sends the requests to another process, over its control socket.
pub struct RemoteRequests(pub Running);

impl Requests for RemoteRequests {
    fn names(&self) -> &'static [&'static str] {
        match self.0.kind {
            RunningKind::Recording => RECORD_REQUESTS,
            RunningKind::Playback => PLAY_REQUESTS,
        }
    }

    fn execute(&self, name: &str, request: &Value) -> Value {
        let mut request = request.clone();
        request["request"] = json!(name);
        ask(&self.0.socket, &request).unwrap_or_else(|error| json!({"ok": false, "error": error.to_string()}))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Counting;

    impl Requests for Counting {
        fn names(&self) -> &'static [&'static str] {
            RECORD_REQUESTS
        }

        fn execute(&self, name: &str, request: &Value) -> Value {
            json!({"ok": true, "asked": name, "of": request})
        }
    }

    #[test]
    fn what_runs_is_found_asked_and_gone_when_it_ends() {
        let outer = tempfile::tempdir().unwrap();
        let folder = RunningFolder::new(outer.path().join("holdall"));
        assert_eq!(folder.list(), []);
        let socket = folder.bind(RunningKind::Recording).unwrap();
        socket.serve(Counting).unwrap();
        let running = folder.list();
        assert_eq!(running.len(), 1);
        assert_eq!(
            (running[0].process, running[0].kind),
            (std::process::id(), RunningKind::Recording)
        );
        let remote = RemoteRequests(running[0].clone());
        let reply = remote.execute("pause", &json!({"a": 1}));
        assert_eq!(
            reply,
            json!({"ok": true, "asked": "pause", "of": {"a": 1, "request": "pause"}})
        );
        drop(socket);
        assert_eq!(folder.list(), []);
        // One that was killed: its socket is still there, its process is not.
        let dead = outer.path().join("holdall").join("recording-4194305.sock");
        drop(std::os::unix::net::UnixListener::bind(&dead).unwrap());
        let found = folder.found();
        assert_eq!(
            (found.len(), found[0].0.process, found[0].1),
            (1, 4_194_305, false)
        );
        assert_eq!(folder.found(), []);
        let reply = remote.execute("pause", &json!({}));
        assert_eq!(reply["ok"], json!(false));
    }

    #[test]
    fn folders_of_other_users_are_seen_and_not_entered() {
        let outer = tempfile::tempdir().unwrap();
        let ours = outer.path().join(format!("holdall-{}", process::user()));
        for name in ["holdall-4000000001", "holdall-x", "other-4000000002"] {
            std::fs::create_dir(outer.path().join(name)).unwrap();
        }
        assert_eq!(RunningFolder::new(&ours).other_users(), [4_000_000_001]);
        assert_eq!(
            RunningFolder::new(outer.path().join("holdall")).other_users(),
            [] as [u32; 0]
        );
    }

    #[test]
    fn a_folder_that_others_can_enter_is_not_used() {
        use std::{fs, os::unix::fs::PermissionsExt};
        let outer = tempfile::tempdir().unwrap();
        let path = outer.path().join("holdall");
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let error = RunningFolder::new(&path)
            .bind(RunningKind::Playback)
            .err()
            .unwrap();
        assert!(error.to_string().contains("others than this user"), "{error}");
    }
}
