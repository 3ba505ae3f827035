//! A subject that pages watch: its state, its events, its requests.

use super::{Subject, live::Lookers, sampler::Sampler};
use crate::{
    http::{Method, Refusal, Request, Response, begin_events, json_body, send},
    listen::Ended,
};
use holdall::supervise::promotions::is_name;
use serde_json::{Value, json};
use std::{
    io::{self, Write},
    net::{Shutdown, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// Most clients that receive events, which they do until they hang up.
pub(super) const WATCHERS_MAX: usize = 16;

/// A subject, whose state one thread samples however many pages there are.
pub(crate) struct Watched {
    sampler: Sampler,
    watchers: AtomicUsize,
    lookers: Lookers,
    ended: Ended,
}

impl Watched {
    /// Samples the subject from now on, until `ended`; it is asked for its state before this returns.
    pub(crate) fn start(subject: Subject, ended: Ended) -> io::Result<Arc<Self>> {
        let watched = Self::new(subject, ended);
        watched.sampler.sample();
        watched.run()
    }

    /// The same, for a subject that may not answer.
    pub(crate) fn start_unasked(subject: Subject, ended: Ended) -> io::Result<Arc<Self>> {
        Self::new(subject, ended).run()
    }

    fn new(subject: Subject, ended: Ended) -> Arc<Self> {
        Arc::new(Self {
            sampler: Sampler::new(subject),
            watchers: AtomicUsize::new(0),
            lookers: Lookers::default(),
            ended,
        })
    }

    fn run(self: Arc<Self>) -> io::Result<Arc<Self>> {
        let sampling = Arc::clone(&self);
        thread::Builder::new()
            .name(format!("{}sampler", crate::THREADS))
            .spawn(move || sampling.sampler.run(&sampling.ended))?;
        Ok(self)
    }

    /// The newest event without its topics; `null` before the first answer.
    pub(crate) fn event(&self) -> Value {
        let mut event: Value = serde_json::from_str(&self.sampler.newest().event).unwrap_or_default();
        if let Some(event) = event.as_object_mut() {
            event.remove("topics");
        }
        event
    }

    /// Ends the sampling, and the events.
    pub(crate) fn end(&self) {
        self.ended.set();
        self.lookers.end();
    }

    /// Answers a request for `path`, which is below where the subject is served and begins with `/`; false if it has no such one.
    pub(crate) fn answer(&self, request: &Request, path: &str, client: &TcpStream) -> io::Result<bool> {
        let is_read = request.method != Method::Post;
        let response = match (is_read, path) {
            (true, "/api/events") if request.method == Method::Get => {
                return self.send_events(client).map(|()| true);
            }
            (true, "/api/status") => Ok(Response::json(self.sampler.newest().status.clone())),
            (true, "/api/history") => Ok(Response::json(self.sampler.history())),
            (true, "/metrics") => self.metrics(),
            (true, "/api/message" | "/api/picture") => self.look(request, path),
            (false, _) if path.starts_with("/api/") => self.execute(&path["/api/".len()..], &request.body),
            _ => return Ok(false),
        };
        let response = response.unwrap_or_else(Response::from);
        send(client, &response, request.method != Method::Head).map(|()| true)
    }

    /// The newest message of a live topic.
    fn look(&self, request: &Request, path: &str) -> Result<Response<'static>, Refusal> {
        let source = self.sampler.live();
        let source = source.ok_or_else(|| Refusal::new(404, "its topics cannot be listened to from here"))?;
        if path == "/api/message" {
            self.lookers.message(source, request)
        } else {
            self.lookers.picture(source, request)
        }
    }

    fn metrics(&self) -> Result<Response<'static>, Refusal> {
        let reply = self.sampler.request("metrics", &json!({}));
        let text = reply.as_ref().and_then(|reply| reply["metrics"].as_str());
        let text = text.ok_or_else(|| Refusal::new(404, "it does not answer"))?;
        Ok(Response::metrics(text.to_owned()))
    }

    /// A request of the control socket: its name in the path, its arguments as the body.
    fn execute(&self, name: &str, body: &[u8]) -> Result<Response<'static>, Refusal> {
        let body = json_body(body)?;
        // A page names a bag; where it is on this computer is not for a page to say.
        if name == "promote" && !body["output"].as_str().is_none_or(is_name) {
            return Err(Refusal::new(403, "\"output\" must be a name without a path"));
        }
        let reply = self.sampler.request(name, &body);
        let reply = reply.ok_or_else(|| Refusal::new(404, "there is no such request"))?;
        let is_done = reply["ok"] == json!(true);
        Ok(Response {
            status: if is_done { 200 } else { 409 },
            ..Response::json(reply.to_string())
        })
    }

    /// Sends each new state until the client hangs up or reads nothing for some seconds. Nothing is queued: it gets the newest one.
    fn send_events(&self, mut client: &TcpStream) -> io::Result<()> {
        let _watching = Watching(self);
        if self.watchers.fetch_add(1, Ordering::SeqCst) >= WATCHERS_MAX {
            return send(client, &Refusal::new(503, "too many pages are open").into(), true);
        }
        begin_events(&mut client)?;
        let mut last = 0;
        while !self.ended.is_set() {
            let (number, snapshot) = self.sampler.newer(last);
            last = number;
            client.write_all(format!("data: {}\n\n", snapshot.event).as_bytes())?;
        }
        client.shutdown(Shutdown::Write)
    }
}

struct Watching<'a>(&'a Watched);

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        self.0.watchers.fetch_sub(1, Ordering::SeqCst);
    }
}
