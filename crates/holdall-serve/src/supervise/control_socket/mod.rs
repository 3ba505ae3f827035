//! A local socket that accepts requests to a recording or a playback, one JSON object per line, and its client.

mod playback;
mod recording;

pub use playback::{PLAY_REQUESTS, PlayRequests};
pub use recording::{RECORD_REQUESTS, RecordRequests, RecordingHost, status_json};

use holdall_io::fs::{self, FileNumbers, Kind};
use holdall_record::Setting;
use serde_json::{Value, json};
use std::{
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

/// Arguments of a request: keys of its JSON object in addition to its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestArgument {
    /// It needs one text under this key.
    Text(&'static str),
    /// It may have one text under this key.
    TextOrNone(&'static str),
    /// It needs texts under this key.
    Texts(&'static str),
    /// It may have values by name; one without a name is under this key: `seek 12.5` is `{"request": "seek", "time": 12.5}`.
    Values(&'static str),
}

/// The argument of a request; `None` if it has none.
pub fn argument_of(request: &str) -> Option<RequestArgument> {
    match request {
        "add_marker" => Some(RequestArgument::Text("name")),
        "trigger" => Some(RequestArgument::TextOrNone("name")),
        "episode" => Some(RequestArgument::Values("change")),
        "promote" => Some(RequestArgument::Values("output")),
        "subscribe_to_topics" => Some(RequestArgument::Texts("topics")),
        "set_rate" => Some(RequestArgument::Values("rate")),
        "seek" => Some(RequestArgument::Values("time")),
        "burst" => Some(RequestArgument::Values("count")),
        "play" => Some(RequestArgument::Values("start_offset")),
        _ => None,
    }
}

/// The names of all requests, to recordings and to playbacks, each once.
pub fn all_requests() -> Vec<&'static str> {
    let mut names: Vec<&str> = RECORD_REQUESTS.iter().chain(PLAY_REQUESTS).copied().collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Handler of the requests that arrive on a socket.
pub trait Requests: Send + Sync + 'static {
    /// The requests' names, like rosbag2's services where those exist.
    fn names(&self) -> &'static [&'static str];

    /// Carries out the request of this name, one of [`Requests::names`], and replies. `request` is the whole object, with the
    /// arguments.
    fn execute(&self, name: &str, request: &Value) -> Value;
}

/// Longest request in bytes.
const REQUEST_BYTES_MAX: u64 = 64 * 1024;

/// Longest reply that a client accepts, in bytes: the status of 100 000 topics.
const REPLY_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Most clients at the same time.
const CLIENTS_MAX: usize = 16;

/// Longest time that a client may send nothing, or take to read a reply.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Why a request could not be sent or was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The socket cannot be created.
    #[error("cannot make the control socket {}: {source}", path.display())]
    Bind {
        /// Its path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Nothing answers on the socket.
    #[error("cannot reach a recording or playback on {}: {source}", path.display())]
    Reach {
        /// Its path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The request was refused.
    #[error("{reason}")]
    Refused {
        /// The sentence of the reply.
        reason: String,
        /// The setting that would allow it.
        setting: Option<Setting>,
    },
}

/// The socket of a recording or a playback; removed on drop. Clients wait until [`Self::serve`] is called.
pub struct ControlSocket {
    path: PathBuf,
    /// Which file it is: another one may have got its name.
    numbers: FileNumbers,
    listener: Arc<UnixListener>,
    ended: Arc<AtomicBool>,
}

impl ControlSocket {
    /// Creates the socket with access for its user only. Called before a bag is created, so that an
    /// unusable path leaves no empty bag.
    ///
    /// # Errors
    /// A file at the path that is not an unused socket, or a socket that cannot be created.
    pub fn bind(path: &Path) -> Result<Self, ControlError> {
        let (listener, numbers) = bind_private(path).map_err(|source| ControlError::Bind {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self {
            path: path.to_owned(),
            numbers,
            listener: Arc::new(listener),
            ended: Arc::new(AtomicBool::new(false)),
        })
    }

    /// Serves requests on separate threads.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn serve(&self, requests: impl Requests) -> Result<(), ControlError> {
        let server = Arc::new(Server {
            requests: Box::new(requests),
            clients: AtomicUsize::new(0),
        });
        let (listener, ended) = (Arc::clone(&self.listener), Arc::clone(&self.ended));
        thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || accept(&listener, &server, &ended))
            .map_err(|source| ControlError::Bind {
                path: self.path.clone(),
                source,
            })?;
        Ok(())
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        // Wakes the thread that waits for clients.
        drop(UnixStream::connect(&self.path));
        drop(fs::remove_that_file(&self.path, self.numbers));
    }
}

/// Binds in a folder that only the user can access and moves the socket into place, so that it never has
/// other permissions than 0600. What takes its name in the meantime stays.
fn bind_private(path: &Path) -> io::Result<(UnixListener, FileNumbers)> {
    let old = fs::file_numbers(path);
    if let Ok(about) = fs::about_name(path) {
        if about.kind != Kind::Socket {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "something else already exists there",
            ));
        }
        if UnixStream::connect(path).is_ok() {
            return Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                "another recording or playback listens there",
            ));
        }
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", std::process::id()));
    let folder = path.with_file_name(name);
    fs::create_private_dir(&folder).map_err(|error| error.into_io())?;
    let bound = (|| {
        let inside = folder.join("s");
        let listener = UnixListener::bind(&inside)?;
        fs::make_private(&inside).map_err(|error| error.into_io())?;
        let numbers = fs::file_numbers(&inside).map_err(|error| error.into_io())?;
        if let Ok(old) = old {
            fs::remove_that_file(path, old).map_err(|error| error.into_io())?;
        }
        fs::rename_new(&inside, path).map_err(|error| error.into_io())?;
        Ok((listener, numbers))
    })();
    drop(fs::remove_dir_all(&folder));
    bound
}

fn accept(listener: &UnixListener, server: &Arc<Server>, ended: &AtomicBool) {
    for client in listener.incoming() {
        if ended.load(Ordering::SeqCst) {
            return;
        }
        let Ok(client) = client else { continue };
        if server.clients.fetch_add(1, Ordering::SeqCst) >= CLIENTS_MAX {
            server.clients.fetch_sub(1, Ordering::SeqCst);
            continue;
        }
        let serving = Arc::clone(server);
        let run = move || {
            // A client that disconnects is not an error.
            let _ = serving.serve(&client);
            serving.clients.fetch_sub(1, Ordering::SeqCst);
        };
        if thread::Builder::new()
            .name("control client".to_owned())
            .spawn(run)
            .is_err()
        {
            server.clients.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

struct Server {
    requests: Box<dyn Requests>,
    clients: AtomicUsize,
}

impl Server {
    fn serve(&self, mut client: &UnixStream) -> io::Result<()> {
        client.set_read_timeout(Some(SILENCE_MAX))?;
        client.set_write_timeout(Some(SILENCE_MAX))?;
        let mut reader = BufReader::new(client);
        loop {
            let mut line = Vec::new();
            let len = reader
                .by_ref()
                .take(REQUEST_BYTES_MAX)
                .read_until(b'\n', &mut line)?;
            if len == 0 {
                return Ok(());
            }
            let whole = line.last() == Some(&b'\n') || (len as u64) < REQUEST_BYTES_MAX;
            let reply = if whole {
                self.reply(&line)
            } else {
                refusal(&format!("the request is longer than {REQUEST_BYTES_MAX} bytes"))
            };
            client.write_all(format!("{reply}\n").as_bytes())?;
            if !whole {
                return Ok(());
            }
        }
    }

    fn reply(&self, line: &[u8]) -> Value {
        let request: Value = match serde_json::from_slice(line) {
            Ok(request) => request,
            Err(error) => return refusal(&format!("the request is not a JSON object: {error}")),
        };
        match request.get("request").and_then(Value::as_str) {
            Some(name) if self.requests.names().contains(&name) => self.requests.execute(name, &request),
            Some(other) => refusal(&format!(
                "there is no request {other:?}, expected one of {}",
                self.requests.names().join(", ")
            )),
            None => refusal(&format!(
                "the request has no text \"request\", for example {{\"request\": \"{}\"}}",
                self.requests.names()[0]
            )),
        }
    }
}

fn refusal(sentence: &str) -> Value {
    json!({"ok": false, "error": sentence})
}

/// Sends one request and returns the reply.
///
/// # Errors
/// Nothing listens, the reply is not valid, or the request is refused.
pub fn ask(path: &Path, request: &Value) -> Result<Value, ControlError> {
    ask_within(path, request, SILENCE_MAX)
}

/// As [`ask`], for a process that may be stopped: it is waited for `silence_max`.
///
/// # Errors
/// As [`ask`].
pub fn ask_within(path: &Path, request: &Value, silence_max: Duration) -> Result<Value, ControlError> {
    let reach = |source| ControlError::Reach {
        path: path.to_owned(),
        source,
    };
    let mut stream = UnixStream::connect(path).map_err(reach)?;
    stream.set_read_timeout(Some(silence_max)).map_err(reach)?;
    stream
        .write_all(format!("{request}\n").as_bytes())
        .map_err(reach)?;
    let mut line = String::new();
    BufReader::new(&stream)
        .take(REPLY_BYTES_MAX)
        .read_line(&mut line)
        .map_err(reach)?;
    let reply: Value = serde_json::from_str(&line)
        .map_err(|error| reach(io::Error::new(io::ErrorKind::InvalidData, error)))?;
    if reply["ok"] == json!(true) {
        Ok(reply)
    } else {
        let sentence = reply["error"]
            .as_str()
            .unwrap_or("the request was refused without a reason");
        Err(ControlError::Refused {
            reason: sentence.to_owned(),
            setting: reply["setting"].as_str().and_then(Setting::from_name),
        })
    }
}
