//! A local socket that accepts requests to a recording, one JSON object per line, and its client.

use super::{StallFlag, metrics::open_metrics};
use crate::record::{RecordControl, RecordObserver, Setting};
use holdall_io::fs::{self, Kind};
use holdall_model::loss::LossSums;
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

/// The requests, named like rosbag2's services where those exist.
pub const REQUESTS: [&str; 17] = [
    "status",
    "is_paused",
    "pause",
    "resume",
    "toggle_paused",
    "split_bagfile",
    "snapshot",
    "stop",
    "metrics",
    "add_marker",
    "is_recording",
    "get_uri",
    "get_subscribed_topics",
    "subscribe_to_topics",
    "start_discovery",
    "stop_discovery",
    "is_discovery_running",
];

/// What a request needs in addition to its name: the key of its JSON object, and whether it has a list of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestArgument {
    /// One text under this key.
    Text(&'static str),
    /// Texts under this key.
    Texts(&'static str),
}

/// The argument that a request needs; `None` where it needs none.
pub fn argument_of(request: &str) -> Option<RequestArgument> {
    match request {
        "add_marker" => Some(RequestArgument::Text("name")),
        "subscribe_to_topics" => Some(RequestArgument::Texts("topics")),
        _ => None,
    }
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
    /// No recording answers on the socket.
    #[error("cannot reach a recording on {}: {source}", path.display())]
    Reach {
        /// Its path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The recording refused.
    #[error("{reason}")]
    Refused {
        /// The recording's sentence.
        reason: String,
        /// What would have to be set.
        setting: Option<Setting>,
    },
}

/// The socket of a recording; removed on drop. Clients wait until [`Self::serve`] is called.
pub struct ControlSocket {
    path: PathBuf,
    listener: Arc<UnixListener>,
    ended: Arc<AtomicBool>,
}

impl ControlSocket {
    /// Creates the socket with access for its user only. Called before the bag is created, so that an
    /// unusable path leaves no empty bag.
    ///
    /// # Errors
    /// A file at the path that is not an unused socket, or a socket that cannot be created.
    pub fn bind(path: &Path) -> Result<Self, ControlError> {
        let listener = bind_private(path).map_err(|source| ControlError::Bind {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self {
            path: path.to_owned(),
            listener: Arc::new(listener),
            ended: Arc::new(AtomicBool::new(false)),
        })
    }

    /// Serves requests on threads of its own.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn serve(
        &self,
        control: RecordControl,
        observer: RecordObserver,
        stalled: StallFlag,
        snapshot_mode: bool,
    ) -> Result<(), ControlError> {
        let server = Arc::new(Server {
            control,
            observer,
            stalled,
            snapshot_mode,
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
        drop(fs::remove_file(&self.path));
    }
}

/// Binds in a folder that only the user can access and moves the socket into place, so that it never has
/// other permissions than 0600.
fn bind_private(path: &Path) -> io::Result<UnixListener> {
    if let Ok(about) = fs::about_name(path) {
        if about.kind != Kind::Socket {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "something else is there already",
            ));
        }
        if UnixStream::connect(path).is_ok() {
            return Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                "another recording listens there",
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
        fs::rename_over(&inside, path).map_err(io::Error::other)?;
        Ok(listener)
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
    control: RecordControl,
    observer: RecordObserver,
    stalled: StallFlag,
    snapshot_mode: bool,
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
            Some(name) => self.carry_out(name, &request),
            None => refusal(&format!(
                "the request has no text \"request\", for example {{\"request\": \"{}\"}}",
                REQUESTS[0]
            )),
        }
    }

    fn carry_out(&self, name: &str, request: &Value) -> Value {
        let control = &self.control;
        match name {
            "status" => json!({"ok": true, "status": status_json(&self.observer)}),
            "metrics" => {
                json!({"ok": true, "metrics": open_metrics(&self.observer.status(), self.stalled.is_set())})
            }
            "is_paused" => self.paused(),
            "pause" => {
                control.pause();
                self.paused()
            }
            "resume" => {
                control.resume();
                self.paused()
            }
            "toggle_paused" => {
                control.toggle_pause();
                self.paused()
            }
            // In snapshot mode each snapshot starts a new file.
            "split_bagfile" if self.snapshot_mode => {
                refusal("a recording in snapshot mode splits with each snapshot")
            }
            "split_bagfile" => {
                control.split();
                json!({"ok": true})
            }
            "snapshot" if control.snapshot() => json!({"ok": true, "success": true}),
            "snapshot" => {
                let mut reply = refusal("only a recording in snapshot mode takes snapshots");
                reply["setting"] = json!(Setting::Snapshot.name());
                reply
            }
            "stop" => {
                control.stop("asked for on the control socket");
                json!({"ok": true})
            }
            "add_marker" => {
                let Some(marker) = request.get("name").and_then(Value::as_str) else {
                    return refusal("add_marker needs a text \"name\"");
                };
                match control.add_marker(marker) {
                    Ok(marker) => json!({"ok": true, "name": marker.name, "time": marker.time.as_nanos()}),
                    Err(error) => refusal(&error.to_string()),
                }
            }
            "is_recording" => json!({"ok": true, "recording": control.is_recording()}),
            "get_uri" => json!({"ok": true, "uri": control.directory()}),
            "get_subscribed_topics" => json!({"ok": true, "topics": control.subscribed_topics()}),
            "subscribe_to_topics" => subscribe_to_topics(control, request),
            "start_discovery" => {
                control.start_discovery();
                json!({"ok": true})
            }
            "stop_discovery" => {
                control.stop_discovery();
                json!({"ok": true})
            }
            "is_discovery_running" => json!({"ok": true, "running": control.is_discovery_running()}),
            other => refusal(&format!(
                "there is no request {other:?}, expected one of {}",
                REQUESTS.join(", ")
            )),
        }
    }

    fn paused(&self) -> Value {
        json!({"ok": true, "paused": self.control.is_paused()})
    }
}

fn subscribe_to_topics(control: &RecordControl, request: &Value) -> Value {
    let texts = |key: &str| match request.get(key) {
        None => Some(Vec::new()),
        Some(list) => serde_json::from_value::<Vec<String>>(list.clone()).ok(),
    };
    let (Some(topics), Some(types)) = (texts("topics"), texts("topic_types")) else {
        return refusal("\"topics\" and \"topic_types\" are lists of texts");
    };
    if topics.is_empty() {
        return refusal("subscribe_to_topics needs a list \"topics\"");
    }
    match control.subscribe_to_topics(&topics, &types) {
        Ok(answer) => json!({
            "ok": true,
            "subscribed_topics": answer.subscribed,
            "unavailable_topics": answer.unavailable,
        }),
        Err(error) => refusal(&error.to_string()),
    }
}

fn refusal(sentence: &str) -> Value {
    json!({"ok": false, "error": sentence})
}

/// The recording's state and its account so far, as an object.
pub fn status_json(observer: &RecordObserver) -> Value {
    let (status, nodes) = (observer.status(), observer.nodes());
    let topics: serde_json::Map<String, Value> = status
        .topics
        .iter()
        .map(|topic| {
            let sums = LossSums::of(&topic.lost);
            let lost: serde_json::Map<String, Value> = sums
                .by_stage
                .iter()
                .map(|(stage, count)| (stage.as_str().to_owned(), json!(count)))
                .collect();
            let row = json!({
                "type": topic.type_name,
                "publishers": topic.publishers,
                "nodes": nodes.get(&topic.name),
                "received": topic.received,
                "recorded": topic.recorded,
                "durable": topic.durable,
                "bytes": topic.recorded_bytes,
                "lost": lost,
                "sent_before_match": sums.before_match,
            });
            (topic.name.clone(), row)
        })
        .collect();
    let sums = LossSums::of_all(status.topics.iter().map(|topic| &topic.lost));
    json!({
        "elapsed_s": status.elapsed.as_secs_f64(),
        "paused": status.paused,
        "recorded": status.recorded,
        "recorded_bytes": status.recorded_bytes,
        "durable": status.durability.durable,
        "lost": sums.lost,
        "sent_before_match": sums.before_match,
        "cache_bytes": status.cache_bytes,
        "cache_bytes_max": status.cache_bytes_max,
        "disk_available_bytes": status.disk_available_bytes,
        "file": status.current_file,
        "topics": topics,
    })
}

/// Sends one request and returns the reply. `arguments` are what [`argument_of`] the request asks for: one text may be several words.
///
/// # Errors
/// No recording listens, the reply is not valid, or the recording refuses.
pub fn ask(path: &Path, request: &str, arguments: &[String]) -> Result<Value, ControlError> {
    let mut message = json!({"request": request});
    match argument_of(request) {
        Some(RequestArgument::Text(key)) => message[key] = json!(arguments.join(" ")),
        Some(RequestArgument::Texts(key)) => message[key] = json!(arguments),
        None => {}
    }
    let reach = |source| ControlError::Reach {
        path: path.to_owned(),
        source,
    };
    let mut stream = UnixStream::connect(path).map_err(reach)?;
    stream.set_read_timeout(Some(SILENCE_MAX)).map_err(reach)?;
    stream
        .write_all(format!("{message}\n").as_bytes())
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
            .unwrap_or("the recording refused without a reason");
        Err(ControlError::Refused {
            reason: sentence.to_owned(),
            setting: reply["setting"].as_str().and_then(Setting::from_name),
        })
    }
}
