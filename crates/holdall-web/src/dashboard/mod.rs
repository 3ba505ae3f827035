//! The dashboard of a recording or playback: a page, its state as JSON and as events, metrics, and requests.

mod live;
mod sampler;
mod state;
mod watched;

pub use live::LiveSource;
pub(crate) use watched::Watched;

use crate::{
    foxglove::ViewerReport,
    http::{Guard, Method, Refusal, Response, exchange, link, page, send},
    listen::{Arrival, Listener, Service, WebError},
    token::Token,
};
use holdall::supervise::control_socket::Requests;
use std::{
    io,
    net::{SocketAddr, TcpStream},
    sync::Arc,
};

/// Most clients at once.
pub(crate) const CLIENTS_MAX: usize = 32;

/// The page; `NONCE` and others are replaced.
pub(crate) const PAGE: &str = include_str!("page.html");

/// Subject of a dashboard.
pub struct Subject {
    /// `recording` or `playback`.
    pub kind: &'static str,
    /// Answers requests for its state, and carries out others.
    pub requests: Arc<dyn Requests>,
    /// Counts of messages that the viewers get and do not get.
    pub viewers: Option<ViewerReport>,
    /// Where its topics can be listened to, for pages that look at messages.
    pub live: Option<Arc<dyn LiveSource>>,
}

/// A server of the page. Clients wait until [`Dashboard::serve`] is called; dropped, it serves none.
pub struct Dashboard {
    listener: Listener,
    guard: Guard,
}

impl Dashboard {
    /// Binds the port; only requests with the token are answered.
    ///
    /// # Errors
    /// The port is taken or not allowed.
    pub fn bind(address: SocketAddr, token: Token) -> Result<Self, WebError> {
        let listener = Listener::bind("the dashboard", address)?;
        let guard = Guard::new(listener.address(), token);
        Ok(Self { listener, guard })
    }

    /// The link to the page, with the token: anyone who has it can end the recording.
    pub fn link(&self) -> String {
        link("http", self.listener.address(), &self.guard)
    }

    /// Serves the page of this subject, on separate threads.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn serve(&self, subject: Subject) -> Result<(), WebError> {
        let watched = Watched::start(subject, self.listener.ended()).map_err(start_error)?;
        let nonce = Token::random().map_err(start_error)?;
        let guard = self.guard.clone();
        self.listener.serve(Service {
            thread: "client",
            clients_max: CLIENTS_MAX,
            serve: move |client: &Arc<TcpStream>, arrival: &Arrival| {
                // A client that disconnects is not an error.
                let _ = exchange(client, arrival, &guard, |request| {
                    if request.method != Method::Post && request.path == "/" {
                        let page = page(PAGE, "", &nonce, &guard);
                        return send(client, &page, request.method != Method::Head);
                    }
                    if watched.answer(request, &request.path, client)? {
                        return Ok(());
                    }
                    let none = Response::from(Refusal::new(404, "there is no such page"));
                    send(client, &none, request.method != Method::Head)
                });
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

#[cfg(test)]
mod tests;
