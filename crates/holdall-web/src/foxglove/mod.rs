//! A server for Foxglove, Lichtblick and other viewers: their WebSocket protocol, from live topics or from a playback.

mod assets;
mod bridge;
mod calls;
mod channel_sink;
mod feed;
mod graph;
mod hub;
mod live;
mod outbox;
mod pace;
mod parameter_changes;
mod parameter_value;
mod parameters;
mod playback;
mod protocol;
mod publications;
mod schemas;
mod services;
mod session;
mod sim_time;

pub use bridge::{Bridge, BridgeOptions};
pub use playback::{PlaybackServer, PlayingTransport};

use crate::{
    http::{Guard, ViewerOrigin},
    listen::{Arrival, Listener, Service, WebError},
    token::Token,
};
use hub::{Hub, Subject};
use serde_json::Value;
use session::Sessions;
pub(crate) use session::limits;
use std::{
    io,
    net::{SocketAddr, TcpStream},
    sync::{Arc, atomic::AtomicBool},
};

/// Where viewers expect a server.
pub const DEFAULT_FOXGLOVE: &str = "127.0.0.1:8765";

/// Most viewers at once.
const VIEWERS_MAX: usize = 16;

/// Who may connect to a port for viewers.
#[derive(Clone, Debug)]
pub struct ViewerAccess {
    /// The token that each viewer needs.
    pub token: Token,
    /// Pages that may connect in addition to those of Foxglove, and to programs.
    pub origins: Vec<ViewerOrigin>,
}

/// A bound port for viewers. They wait until it has something to show.
pub struct ViewerPort {
    listener: Listener,
    guard: Guard,
    origins: Vec<ViewerOrigin>,
}

impl ViewerPort {
    /// Binds the port.
    ///
    /// # Errors
    /// The port is taken or not allowed.
    pub fn bind(address: SocketAddr, access: ViewerAccess) -> Result<Self, WebError> {
        let listener = Listener::bind("the Foxglove server", address)?;
        let guard = Guard::new(listener.address(), access.token);
        Ok(Self {
            listener,
            guard,
            origins: access.origins,
        })
    }

    /// The address to enter in a viewer, with the token.
    pub fn link(&self) -> String {
        crate::http::link("ws", self.listener.address(), &self.guard)
    }

    fn serve(&self, hub: Arc<Hub>, subject: Arc<dyn Subject>, name: String) -> Result<(), WebError> {
        let sessions = Sessions {
            hub,
            subject,
            guard: self.guard.clone(),
            origins: self.origins.clone(),
            has_refused: AtomicBool::new(false),
            name,
            session: Token::random().map_err(start_error)?.text().to_owned(),
        };
        self.listener.serve(Service {
            thread: "viewer",
            clients_max: VIEWERS_MAX,
            serve: move |client: &Arc<TcpStream>, arrival: &Arrival| sessions.serve(client, arrival),
        })
    }
}

/// Reads a message of a client as a session does; for [`crate::fuzzing`].
pub(crate) fn read_message(bytes: &[u8]) {
    use protocol::Request;
    let _ = protocol::parse_bytes(bytes);
    let text = String::from_utf8_lossy(bytes);
    if let Ok(Request::SetParameters { parameters, .. }) = protocol::parse_text(&text) {
        for given in parameters {
            let Ok(value) = parameter_value::to_ros(&given.value, given.kind.as_deref(), None) else {
                continue;
            };
            parameter_value::of_ros(&given.name, &value);
        }
    }
}

fn start_error(source: io::Error) -> WebError {
    WebError::Start {
        what: "the Foxglove server",
        source,
    }
}

/// Counts of messages that each viewer has got and not got.
#[derive(Clone)]
pub struct ViewerReport(Arc<Hub>);

impl ViewerReport {
    /// A list with the viewers' addresses and, by topic, messages `sent` and `left_out`.
    pub fn json(&self) -> Value {
        self.0.report()
    }
}
