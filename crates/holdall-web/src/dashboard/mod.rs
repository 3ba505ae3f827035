//! The dashboard of a recording or playback: a page, its state as JSON and as events, metrics, and requests.

mod sampler;
mod state;

use crate::{
    foxglove::ViewerReport,
    http::{Guard, Method, Refusal, Request, Response, Token, begin_events, link, read_request},
    listen::{Ended, Listener, Service, Timely, UNREAD_MAX, WebError},
};
use holdall::supervise::control_socket::Requests;
use sampler::Sampler;
use serde_json::{Value, json};
use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

/// Most clients at once.
const CLIENTS_MAX: usize = 32;

/// Most of them that receive events, which they do until they hang up.
const WATCHERS_MAX: usize = 16;

/// How long a client may take to send its request.
const REQUEST_WITHIN: Duration = Duration::from_secs(5);

/// What an answer leaves unread is read, so that hanging up does not destroy the answer; at most so much.
const UNREAD_BYTES_MAX: u64 = 256 * 1024;

/// The page; `NONCE` is replaced.
const PAGE: &str = include_str!("page.html");

const TOO_MANY: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n\
{\"ok\":false,\"error\":\"too many clients are connected\"}";

/// What a dashboard shows.
pub struct Subject {
    /// `recording` or `playback`.
    pub kind: &'static str,
    /// Answers requests for its state, and carries out others.
    pub requests: Arc<dyn Requests>,
    /// What viewers beside it get and do not get.
    pub viewers: Option<ViewerReport>,
}

/// A server of the page. Clients wait until [`Dashboard::serve`] is called; dropped, it serves none.
pub struct Dashboard {
    listener: Listener,
    guard: Guard,
}

impl Dashboard {
    /// Binds the port.
    ///
    /// # Errors
    /// The port is taken or not allowed.
    pub fn bind(address: SocketAddr) -> Result<Self, WebError> {
        let listener = Listener::bind("the dashboard", address)?;
        let guard = Guard::new(listener.address()).map_err(start_error)?;
        Ok(Self { listener, guard })
    }

    /// The link to the page, with the token where one is needed: anyone who has it can end the recording.
    pub fn link(&self) -> String {
        link("http", self.listener.address(), &self.guard)
    }

    /// Serves the page of this subject, on threads of its own.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn serve(&self, subject: Subject) -> Result<(), WebError> {
        let ended = self.listener.ended();
        let server = Arc::new(Server {
            guard: self.guard.clone(),
            sampler: Sampler::new(subject),
            nonce: Token::random().map_err(start_error)?,
            watchers: AtomicUsize::new(0),
            ended: ended.clone(),
        });
        server.sampler.sample();
        let sampling = Arc::clone(&server);
        thread::Builder::new()
            .name(format!("{}sampler", crate::THREADS))
            .spawn(move || sampling.sampler.run(&ended))
            .map_err(start_error)?;
        self.listener.serve(Service {
            thread: "client",
            clients_max: CLIENTS_MAX,
            refusal: TOO_MANY,
            serve: move |client: TcpStream| {
                // A client that disconnects is not an error.
                let _ = server.serve(&client);
            },
        })
    }
}

fn start_error(source: io::Error) -> WebError {
    WebError::Start {
        what: "the dashboard",
        source,
    }
}

struct Server {
    guard: Guard,
    sampler: Sampler,
    /// Lets the page's own script run, and no other.
    nonce: Token,
    watchers: AtomicUsize,
    ended: Ended,
}

impl Server {
    fn serve(&self, client: &TcpStream) -> io::Result<()> {
        client.set_write_timeout(Some(UNREAD_MAX))?;
        client.set_nodelay(true)?;
        let request = match read_request(&mut Timely::new(client, REQUEST_WITHIN)) {
            Ok(Some(request)) => request,
            Ok(None) => return Ok(()),
            Err(refusal) => return send(client, &refusal.into(), true),
        };
        let with_body = request.method != Method::Head;
        if let Err(refusal) = self.guard.check(&request) {
            return send(client, &refusal.into(), with_body);
        }
        if (request.method, request.path.as_str()) == (Method::Get, "/api/events") {
            return self.send_events(client);
        }
        let response = self.answer(&request).unwrap_or_else(Response::from);
        send(client, &response, with_body)
    }

    fn answer(&self, request: &Request) -> Result<Response<'static>, Refusal> {
        let name = request.path.strip_prefix("/api/");
        match (request.method, request.path.as_str()) {
            (Method::Get | Method::Head, "/") => Ok(self.page()),
            (Method::Get | Method::Head, "/api/status") => {
                Ok(Response::json(self.sampler.newest().status.clone()))
            }
            (Method::Get | Method::Head, "/api/history") => Ok(Response::json(self.sampler.history())),
            (Method::Get | Method::Head, "/metrics") => self.metrics(),
            (Method::Post, _) if name.is_some() => self.carry_out(name.unwrap_or_default(), &request.body),
            _ => Err(Refusal::new(404, "there is no such page")),
        }
    }

    fn page(&self) -> Response<'static> {
        let nonce = self.nonce.text();
        Response {
            headers: format!(
                "Content-Security-Policy: default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
                 frame-ancestors 'none'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'\r\n{}",
                self.guard.set_cookie()
            ),
            ..Response::new(
                "text/html; charset=utf-8",
                PAGE.replace("NONCE", nonce).into_bytes(),
            )
        }
    }

    fn metrics(&self) -> Result<Response<'static>, Refusal> {
        let reply = self.sampler.request("metrics", &json!({}));
        let text = reply.as_ref().and_then(|reply| reply["metrics"].as_str());
        let text = text.ok_or_else(|| Refusal::new(404, "a playback has no metrics"))?;
        let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        Ok(Response::new(kind, text.to_owned().into_bytes()))
    }

    /// A request of the control socket: its name in the path, its arguments as the body.
    fn carry_out(&self, name: &str, body: &[u8]) -> Result<Response<'static>, Refusal> {
        let arguments = match body {
            [] => json!({}),
            _ => serde_json::from_slice::<Value>(body)
                .ok()
                .filter(Value::is_object)
                .ok_or_else(|| Refusal::new(400, "the body of the request is not a JSON object"))?,
        };
        let reply = self.sampler.request(name, &arguments);
        let reply = reply.ok_or_else(|| Refusal::new(404, "there is no such request"))?;
        let is_done = reply["ok"] == json!(true);
        Ok(Response {
            status: if is_done { 200 } else { 409 },
            ..Response::json(reply.to_string())
        })
    }

    /// Sends each new state until the client hangs up or reads nothing for some seconds. There is no queue: it gets the newest one.
    fn send_events(&self, mut client: &TcpStream) -> io::Result<()> {
        let _watching = Watching(&self.watchers);
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

struct Watching<'a>(&'a AtomicUsize);

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn send(mut client: &TcpStream, response: &Response<'_>, with_body: bool) -> io::Result<()> {
    response.send(&mut client, with_body)?;
    client.shutdown(Shutdown::Write)?;
    let unread = Timely::new(client, Duration::from_secs(1));
    io::copy(&mut unread.take(UNREAD_BYTES_MAX), &mut io::sink()).map(drop)
}

#[cfg(test)]
mod tests;
