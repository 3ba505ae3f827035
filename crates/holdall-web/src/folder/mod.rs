//! A folder of bags in a browser, with the recordings and playbacks that run on this machine.

mod bags;
mod changes;
mod download;
mod find;
mod jobs;
mod look;
mod recorders;
mod root;
#[cfg(test)]
mod tests;
mod timeline;
mod track;
mod values;

use crate::{
    dashboard::{CLIENTS_MAX, LiveSource, PAGE as DASHBOARD, Subject, Watched},
    foxglove::ViewerReport,
    http::{
        Guard, Method, Refusal, Request, Response, exchange, json_body, link, page, percent_decoded, send,
        send_stream,
    },
    listen::{Arrival, Ended, Listener, Service, WebError},
    token::Token,
};
use bags::{Bags, Listed};
use find::Question;
use holdall::{
    Bag,
    reader::{BagSummary, Ros1View, limit_unpacking},
    supervise::{
        control_socket::Requests,
        metrics::program_metrics,
        promotions::Promotions,
        running::{Running, RunningKind},
    },
    tools::check,
};
use holdall_io::{
    clock::{Clock, SystemClock},
    disk::DiskError,
    mutex::lock,
};
use jobs::{Jobs, Progress, Task, Work};
use look::{OpenBag, OpenBags};
use recorders::Recorders;
use root::Root;
use serde_json::{Value, json};
use std::{
    io,
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

pub(crate) const PAGE: &str = include_str!("page.html");

/// Time between two searches for running programs while a page is open.
const ROUND: Duration = Duration::from_millis(500);

/// The search stops this long after the last request.
const ASKED_WITHIN: Duration = Duration::from_secs(15);

/// Bytes that a packed file may have beyond those that its length lets expect.
const UNPACKED_BYTES_MAX: u64 = 1 << 30;

/// Findings of a check that are shown.
const FINDINGS_MAX: usize = 200;

/// Where a bag is played to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlayTo {
    /// Viewers over WebSocket only.
    Viewers,
    /// Viewers, and nodes over the middleware.
    Nodes,
}

/// A playback that this server has begun; dropped, it ends.
pub trait PlayingBag: Send {
    /// Its state, and the requests that it accepts.
    fn requests(&self) -> Arc<dyn Requests>;

    /// The address to enter in a viewer.
    fn link(&self) -> String;

    /// Counts of messages that viewers get and do not get.
    fn viewers(&self) -> ViewerReport;

    /// Whether it was stopped.
    fn is_over(&self) -> bool;
}

/// Work that the server leaves to its program.
pub trait Host: Send + Sync + 'static {
    /// Begins to play a bag.
    ///
    /// # Errors
    /// One sentence.
    fn play(&self, bag: &Path, to: PlayTo) -> Result<Box<dyn PlayingBag>, String>;

    /// The recordings and playbacks of this machine.
    fn running(&self) -> Vec<Running>;

    /// Where live topics can be listened to.
    fn live(&self) -> Option<Arc<dyn LiveSource>>;

    /// The bags for which an expression is true, by the catalog in the folder.
    ///
    /// # Errors
    /// One sentence: a wrong expression, or a folder without a catalog.
    fn find(&self, folder: &Path, expression: &str) -> Result<Vec<PathBuf>, String>;
}

/// Why a folder cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
    /// The port cannot be bound, or no thread be started.
    #[error(transparent)]
    Web(#[from] WebError),
    /// The folder cannot be opened.
    #[error(transparent)]
    Folder(#[from] DiskError),
}

/// A server of a folder; dropping it ends it, and the playback that it has begun.
pub struct FolderServer {
    listener: Listener,
    server: Arc<Server>,
}

impl FolderServer {
    /// Binds the port and serves the folder from now on, on separate threads, to requests with the token. Pages rename, label, delete and upload bags only
    /// if the server `allows_changes`.
    ///
    /// # Errors
    /// The port is taken or not allowed, the folder cannot be opened, or no thread can be started.
    pub fn start(
        address: SocketAddr,
        token: Token,
        folder: &Path,
        host: Arc<dyn Host>,
        allows_changes: bool,
    ) -> Result<Self, FolderError> {
        let root = Arc::new(Root::open(folder)?);
        limit_unpacking(UNPACKED_BYTES_MAX);
        let listener = Listener::bind("the folder's page", address)?;
        let guard = Guard::new(listener.address(), token);
        let ended = listener.ended();
        let server = Arc::new(Server {
            guard,
            nonce: Token::random().map_err(start_error)?,
            root,
            host,
            bags: Arc::default(),
            jobs: Jobs::default(),
            promotions: Promotions::default(),
            open: OpenBags::default(),
            recorders: Recorders::default(),
            playing: Mutex::default(),
            allows_changes,
            asked: AtomicU64::new(0),
            ended,
        });
        let searching = Arc::clone(&server);
        thread::Builder::new()
            .name(format!("{}folder", crate::THREADS))
            .spawn(move || searching.search())
            .map_err(start_error)?;
        let serving = Arc::clone(&server);
        listener.serve(Service {
            thread: "client",
            clients_max: CLIENTS_MAX,
            serve: move |client: &Arc<TcpStream>, arrival: &Arrival| {
                // A client that disconnects is not an error.
                let _ = exchange(client, arrival, &serving.guard, |request| {
                    serving.answer(request, client)
                });
            },
        })?;
        Ok(Self { listener, server })
    }

    /// The link to the page, with the token.
    pub fn link(&self) -> String {
        link("http", self.listener.address(), &self.server.guard)
    }
}

impl Drop for FolderServer {
    fn drop(&mut self) {
        self.listener.ended().set();
        self.server.jobs.end();
        self.server.promotions.end();
        self.server.recorders.end();
        self.server.end_playback();
    }
}

fn start_error(source: io::Error) -> WebError {
    WebError::Start {
        what: "the folder's page",
        source,
    }
}

struct Playing {
    bag: String,
    to: PlayTo,
    watched: Arc<Watched>,
    handle: Box<dyn PlayingBag>,
}

struct Server {
    guard: Guard,
    nonce: Token,
    root: Arc<Root>,
    host: Arc<dyn Host>,
    bags: Arc<Bags>,
    jobs: Jobs,
    /// Parts of rings that are copied.
    promotions: Promotions,
    open: OpenBags,
    recorders: Recorders,
    playing: Mutex<Option<Playing>>,
    /// Pages may rename, label, delete and upload bags.
    allows_changes: bool,
    /// When a page last asked for anything, in monotonic milliseconds; 0 before the first time.
    asked: AtomicU64,
    ended: Ended,
}

/// A response to send; `None` if it was sent already.
type Answer = Result<Option<Response<'static>>, Refusal>;

impl Server {
    /// Searches while pages are open.
    fn search(&self) {
        let mut next_search = Duration::ZERO;
        while !self.ended.is_set() {
            let now = SystemClock.monotonic();
            let asked = Duration::from_millis(self.asked.load(Ordering::Relaxed));
            if !asked.is_zero() && now.saturating_sub(asked) <= ASKED_WITHIN {
                self.recorders
                    .follow(&self.host.running(), self.host.live().as_ref());
                if now >= next_search {
                    self.bags.search(&self.root, &|| self.ended.is_set());
                    next_search = SystemClock.monotonic() + self.root.search_interval();
                }
            } else {
                self.recorders.end();
            }
            self.jobs.end_unwanted();
            let is_over = |playing: &Playing| playing.handle.is_over();
            if lock(&self.playing).as_ref().is_some_and(is_over) {
                self.end_playback();
            }
            SystemClock.sleep_until(now + ROUND);
        }
    }

    fn answer(&self, request: &Request, client: &TcpStream) -> io::Result<()> {
        let now = u64::try_from(SystemClock.monotonic().as_millis()).unwrap_or(u64::MAX);
        self.asked.store(now.max(1), Ordering::Relaxed);
        let with_body = request.method != Method::Head;
        if let Some((watched, path)) = self.mounted(&request.path) {
            let Some(watched) = watched else {
                let gone = Refusal::new(404, "it has ended, or is not found");
                return send(client, &gone.into(), with_body);
            };
            if request.method != Method::Post && path == "/" {
                let page = page(DASHBOARD, "../../", &self.nonce, &self.guard);
                return send(client, &page, with_body);
            }
            if request.method == Method::Post && path == "/api/promote" && !self.allows_changes {
                return send(client, &changes::refused().into(), with_body);
            }
            if watched.answer(request, path, client)? {
                return Ok(());
            }
        }
        match self.respond(request, client) {
            Ok(Some(response)) => send(client, &response, with_body),
            Ok(None) => Ok(()),
            Err(refusal) => send(client, &refusal.into(), with_body),
        }
    }

    /// The recording or playback watched at a path, and the rest of the path.
    fn mounted<'a>(&self, path: &'a str) -> Option<(Option<Arc<Watched>>, &'a str)> {
        if let Some(rest) = path.strip_prefix("/playback/now") {
            let playing = lock(&self.playing);
            return Some((playing.as_ref().map(|playing| Arc::clone(&playing.watched)), rest));
        }
        let rest = path.strip_prefix("/running/")?;
        let end = rest.find('/')?;
        let process = rest[..end].parse().ok()?;
        Some((self.recorders.get(process), &rest[end..]))
    }

    fn respond(&self, request: &Request, client: &TcpStream) -> Answer {
        let is_read = request.method != Method::Post;
        match (is_read, request.path.as_str()) {
            (true, "/") => Ok(Some(page(PAGE, "", &self.nonce, &self.guard))),
            (true, "/metrics") => Ok(Some(Response::metrics(self.metrics()))),
            (true, "/api/folder") => Ok(Some(Response::json(self.state().to_string()))),
            (true, "/api/bags") => Ok(Some(Response::json(self.bags.json().to_string()))),
            (true, "/api/find") => {
                let text = parameter(request, "text")?;
                let names = match text.strip_prefix("find:") {
                    Some(expression) => self.catalogued(expression)?,
                    None => self.bags.find(&Question::parse(&text)?),
                };
                Ok(Some(Response::json(
                    json!({"ok": true, "names": names}).to_string(),
                )))
            }
            (true, "/api/info") => self.info(&self.bag(parameter(request, "bag")?)?),
            (true, "/api/promotions") => {
                let copies = json!({"ok": true, "promotions": self.promotions.json()});
                Ok(Some(Response::json(copies.to_string())))
            }
            (true, "/api/download") => self.download(request, client),
            (true, "/api/message") => {
                let message = self.opened(request)?.message(request)?;
                Ok(Some(Response::json(message.to_string())))
            }
            (true, "/api/picture") => self.opened(request)?.picture(request).map(Some),
            (false, "/api/timeline") => self.read_whole(timeline::task(request)?, request),
            (false, "/api/check") => self.read_whole(Task::Check, request),
            (false, "/api/values") => self.read_whole(values::task(request)?, request),
            (false, "/api/track") => self.read_whole(track::task(request)?, request),
            (false, "/api/rename" | "/api/label" | "/api/delete" | "/api/upload" | "/api/promote") => {
                self.change(request)
            }
            (false, "/api/end_job") => {
                self.jobs.end_of(&self.named(request)?.name);
                Ok(Some(Response::json(json!({"ok": true}).to_string())))
            }
            (false, "/api/play") => self.play(request),
            (false, "/api/end_playback") => {
                self.end_playback();
                Ok(Some(Response::json(json!({"ok": true}).to_string())))
            }
            _ => Err(Refusal::new(404, "there is no such page")),
        }
    }

    /// The names of the bags that a catalog in the folder finds.
    fn catalogued(&self, expression: &str) -> Result<Vec<String>, Refusal> {
        let folder = self.root.path();
        let found = self.host.find(folder, expression);
        let found = found.map_err(|reason| Refusal::new(400, &reason))?;
        let whole = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
        let below = |bag: &PathBuf| Some(bag.strip_prefix(&whole).ok()?.to_str()?.to_owned());
        let names: Vec<String> = found.iter().filter_map(below).collect();
        if names.is_empty() && !found.is_empty() {
            let reason = format!(
                "the catalog finds {} bags, none below {}: it is of another folder, make it anew with holdall catalog",
                found.len(),
                whole.display()
            );
            return Err(Refusal::new(409, &reason));
        }
        Ok(names)
    }

    /// For Prometheus; each recording and playback has its own.
    fn metrics(&self) -> String {
        let running = self.host.running();
        let count = |kind| running.iter().filter(|one| one.kind == kind).count();
        program_metrics(count(RunningKind::Recording), count(RunningKind::Playback))
    }

    /// The page's list of running programs.
    fn state(&self) -> Value {
        let playing = lock(&self.playing);
        let playback = playing.as_ref().map(|playing| {
            json!({
                "bag": playing.bag,
                "to": if playing.to == PlayTo::Nodes { "nodes" } else { "viewers" },
                "link": playing.handle.link(),
                "state": playing.watched.event(),
            })
        });
        json!({
            "ok": true,
            "folder": self.root.path().display().to_string(),
            "bags_number": self.bags.number(),
            "running": self.recorders.json(),
            "playback": playback,
        })
    }

    /// A bag of the list, by the name that it has there: names that are not in it lead nowhere.
    fn bag(&self, name: String) -> Result<Arc<Listed>, Refusal> {
        let none = || Refusal::new(404, "the folder has no such bag");
        let bag = self.bags.get(&name).ok_or_else(none)?;
        if bag.found.has_links {
            return Err(Refusal::new(
                403,
                "the bag has symbolic links, which are not followed",
            ));
        }
        Ok(bag)
    }

    /// The bag that a request's body names.
    fn named(&self, request: &Request) -> Result<Arc<Listed>, Refusal> {
        let body = json_body(&request.body)?;
        let name = body["bag"].as_str();
        self.bag(
            name.ok_or_else(|| Refusal::new(400, "the request names no \"bag\""))?
                .to_owned(),
        )
    }

    /// Where a bag is, which is not being written.
    fn path_of(&self, bag: &Listed) -> Result<PathBuf, Refusal> {
        if bag.is_written {
            return Err(Refusal::new(
                409,
                "the bag is being written; wait for the end of the recording",
            ));
        }
        self.root
            .find(Path::new(&bag.name))
            .map_err(|error| Refusal::new(404, &error.to_string()))
    }

    fn info(&self, bag: &Arc<Listed>) -> Answer {
        let path = self.path_of(bag)?;
        let info = Bag::open_with(&path, Ros1View::AsStored).and_then(|bag| BagSummary::of(&bag));
        let info = info.map_err(|error| Refusal::new(409, &error.to_string()))?;
        let files = bag.found.files.iter().map(|(name, bytes)| {
            let name = name.strip_prefix(&bag.name).unwrap_or(name);
            json!({"name": name.to_string_lossy(), "bytes": bytes})
        });
        let files: Vec<Value> = files.collect();
        let answer = json!({
            "ok": true, "name": bag.name, "info": info, "files": files, "labels": bag.about.labels, "changes": self.allows_changes,
        });
        Ok(Some(Response::json(answer.to_string())))
    }

    fn download(&self, request: &Request, client: &TcpStream) -> Answer {
        if request.method == Method::Head {
            return Err(Refusal::new(405, "a download is answered to GET only"));
        }
        let bag = self.bag(parameter(request, "bag")?)?;
        self.path_of(&bag)?;
        // A client that hangs up is not an error.
        let _ = if request.parameter("file").is_some() {
            let (head, length, content) = download::file(&self.root, &bag, &parameter(request, "file")?)?;
            send_stream(client, &head, length, content)
        } else {
            download::archive(&self.root, &bag, client)
        };
        Ok(None)
    }

    /// The bag that a request's query names, open.
    fn opened(&self, request: &Request) -> Result<Arc<OpenBag>, Refusal> {
        let bag = self.bag(parameter(request, "bag")?)?;
        let path = self.path_of(&bag)?;
        self.open.open(&bag, &path)
    }

    /// Work that reads much of the bag that a request's body names.
    fn read_whole(&self, task: Task, request: &Request) -> Answer {
        let bag = self.named(request)?;
        let path = self.path_of(&bag)?;
        let work: Work = match task.clone() {
            Task::Timeline(part) => {
                let open = self.open.open(&bag, &path)?;
                let part = part.map(|part| part.map(|text| text.parse().unwrap_or(0.0)));
                Box::new(move |progress| timeline::draw(&open.bags.bags()[0], part, progress))
            }
            Task::Check => Box::new(move |progress| check_bag(&path, progress)),
            Task::Values(wanted) => {
                let open = self.open.open(&bag, &path)?;
                Box::new(move |progress| values::values(&open, &wanted, progress))
            }
            Task::Upload(url) => Box::new(move |progress| changes::upload(&path, &url, progress)),
            Task::Track(topic) => {
                let open = self.open.open(&bag, &path)?;
                Box::new(move |progress| track::track(&open, &topic, progress))
            }
        };
        let reply = self.jobs.ask(task, &bag.name, &bag.state, work);
        Ok(Some(Response {
            status: if reply["ok"] == json!(true) { 200 } else { 409 },
            ..Response::json(reply.to_string())
        }))
    }

    fn play(&self, request: &Request) -> Answer {
        let bag = self.named(request)?;
        let path = self.path_of(&bag)?;
        let to = match json_body(&request.body)?["to"].as_str() {
            Some("viewers") => PlayTo::Viewers,
            Some("nodes") => PlayTo::Nodes,
            _ => return Err(Refusal::new(400, "\"to\" must be \"viewers\" or \"nodes\"")),
        };
        // One at a time: two would publish the same topics, and need two ports.
        let mut playing = lock(&self.playing);
        end(playing.take());
        let refused = |reason: String| Refusal::new(409, &reason);
        let handle = self.host.play(&path, to).map_err(refused)?;
        let subject = Subject {
            kind: "playback",
            requests: handle.requests(),
            viewers: Some(handle.viewers()),
            live: None,
        };
        let watched =
            Watched::start(subject, Ended::default()).map_err(|error| refused(error.to_string()))?;
        let link = handle.link();
        *playing = Some(Playing {
            bag: bag.name.clone(),
            to,
            watched,
            handle,
        });
        Ok(Some(Response::json(
            json!({"ok": true, "link": link}).to_string(),
        )))
    }

    fn is_played(&self, bag: &str) -> bool {
        lock(&self.playing)
            .as_ref()
            .is_some_and(|playing| playing.bag == bag)
    }

    fn end_playback(&self) {
        end(lock(&self.playing).take());
    }
}

fn end(playing: Option<Playing>) {
    if let Some(playing) = playing {
        playing.watched.end();
    }
}

/// A parameter of the query, decoded.
fn parameter(request: &Request, name: &str) -> Result<String, Refusal> {
    let text = request
        .parameter(name)
        .ok_or_else(|| Refusal::new(400, &format!("the request has no parameter {name}")))?;
    percent_decoded(text).ok_or_else(|| Refusal::new(400, &format!("the parameter {name} is not valid text")))
}

fn check_bag(path: &Path, progress: &Progress) -> Result<Value, String> {
    let checked = check::check(path, &mut |done, total| progress.note_or_end(done, total));
    let checked = checked.map_err(|error| error.to_string())?;
    let findings = checked.findings().take(FINDINGS_MAX);
    let findings: Vec<String> = findings.map(ToString::to_string).collect();
    Ok(json!({"sound": checked.is_sound(), "problems": checked.problems(), "findings": findings}))
}
