//! One client: the handshake, a thread that reads its messages, and one that writes waiting frames.

use super::{
    hub::{Client, Hub, Order, Subject},
    outbox::{BINARY, Outbox, PING, TEXT, Taken},
    pace::Pace,
    protocol::{self, Bytes, Request, SUBPROTOCOLS, playback_state},
};
use crate::{
    http::{Guard, ViewerOrigin, ViewerRequest},
    listen::{Arrival, Timely, UNREAD_MAX},
};
use holdall_io::clock::{Clock, SystemClock};
use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};
use tungstenite::{
    Error, Message, WebSocket,
    handshake::server::{ErrorResponse, Request as Handshake, Response},
    http::{HeaderValue, StatusCode, header},
    protocol::WebSocketConfig,
};

/// How long a client may take for the handshake.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(5);

/// Longest message of a client: an image that it publishes.
const CLIENT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Time between two pings of an idle connection.
const PING_INTERVAL: Duration = Duration::from_secs(15);

/// How often a client is informed of dropped messages.
const COMPLAIN_INTERVAL: Duration = Duration::from_secs(3);

/// Bytes that the kernel may hold unsent: later frames wait here, where the newest can overtake.
const UNSENT_BYTES: u32 = 64 * 1024;

/// Frames larger than this are not kept as memory for later ones.
const FRAMES_KEPT_BYTES: usize = 4 * 1024 * 1024;

/// State that sessions of one server share.
pub(super) struct Sessions {
    pub hub: Arc<Hub>,
    pub subject: Arc<dyn Subject>,
    pub guard: Guard,
    /// Pages that may connect in addition to the known viewers.
    pub origins: Vec<ViewerOrigin>,
    /// A page was refused, which is logged once.
    pub has_refused: AtomicBool,
    pub name: String,
    /// Identifies this run, so that viewers forget topics and state of another.
    pub session: String,
}

/// The stream as tungstenite sees it: reads are the client's; what it writes itself (pongs, closing) is queued with all else.
struct Inlet {
    client: Arc<TcpStream>,
    /// Until the handshake is over.
    deadline: Option<Duration>,
    outbox: Option<Arc<Outbox>>,
}

impl Read for Inlet {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.deadline {
            None => (&*self.client).read(into),
            Some(deadline) => Timely::until(&self.client, deadline).read(into),
        }
    }
}

impl Write for Inlet {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &self.outbox {
            None => (&*self.client).write(bytes),
            Some(outbox) => {
                outbox.push_raw(bytes.to_vec());
                Ok(bytes.len())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sessions {
    /// Serves a client until it or the server ends.
    pub(super) fn serve(&self, client: &Arc<TcpStream>, arrival: &Arrival) {
        if let Err(reason) = self.run(client, arrival) {
            tracing::debug!("a viewer has left: {reason}");
        }
        let _ = client.shutdown(Shutdown::Both);
    }

    fn run(&self, client: &Arc<TcpStream>, arrival: &Arrival) -> Result<(), Box<dyn std::error::Error>> {
        client.set_nodelay(true)?;
        client.set_write_timeout(Some(UNREAD_MAX))?;
        let peer = client.peer_addr()?.to_string();
        let mut socket = self.shake_hands(client, arrival)?;
        holdall_io::socket::limit_unsent(client, UNSENT_BYTES)?;
        client.set_read_timeout(None)?;
        let outbox = Arc::new(Outbox::default());
        let inlet = socket.get_mut();
        (inlet.deadline, inlet.outbox) = (None, Some(Arc::clone(&outbox)));
        let info = protocol::server_info(
            &self.name,
            &self.session,
            &self.subject.capabilities(),
            self.subject.range(),
        );
        outbox.push(TEXT, info.to_string().as_bytes());
        let (number, viewer) = self.hub.add_client(&outbox, peer);
        let writing = Arc::clone(&viewer);
        let to = Arc::clone(client);
        let writer = thread::Builder::new().name(format!("{}viewer out", crate::THREADS));
        let writer = writer.spawn(move || write(&writing, &to));
        let result = if writer.is_ok() {
            self.read(&mut socket, number, &viewer)
        } else {
            Ok(())
        };
        self.hub.remove_client(number);
        let _ = self.subject.execute(Order::Gone { client: number });
        let _ = client.shutdown(Shutdown::Both);
        if let Ok(writer) = writer {
            let _ = writer.join();
        }
        Ok(result?)
    }

    fn shake_hands(
        &self,
        client: &Arc<TcpStream>,
        arrival: &Arrival,
    ) -> Result<WebSocket<Inlet>, Box<dyn std::error::Error>> {
        let inlet = Inlet {
            client: Arc::clone(client),
            deadline: Some(SystemClock.monotonic() + HANDSHAKE_WITHIN),
            outbox: None,
        };
        let answer = |request: &Handshake, response: Response| self.answer(arrival, request, response);
        tungstenite::accept_hdr_with_config(inlet, answer, Some(limits()))
            .map_err(|error| error.to_string().into())
    }

    /// Chooses the subprotocol; refuses clients without the token, pages that are not viewers, and clients above the limit.
    fn answer(
        &self,
        arrival: &Arrival,
        request: &Handshake,
        mut response: Response,
    ) -> Result<Response, ErrorResponse> {
        let text = |name| {
            request
                .headers()
                .get(name)
                .and_then(|value: &HeaderValue| value.to_str().ok())
        };
        let viewer = ViewerRequest {
            host: text(header::HOST),
            origin: text(header::ORIGIN),
            query: request.uri().query(),
            authorization: text(header::AUTHORIZATION),
        };
        for name in [header::HOST, header::ORIGIN, header::AUTHORIZATION] {
            // With two values the check and the use could see different ones, and a value that is not text cannot be checked.
            let mut values = request.headers().get_all(&name).iter();
            if values.next().is_some_and(|value| value.to_str().is_err()) || values.next().is_some() {
                return Err(refused(
                    400,
                    &format!("the header {name} is given twice, or is not text"),
                ));
            }
        }
        if let Err(refusal) = self.guard.check_viewer(&viewer, &self.origins) {
            self.note_refusal(&viewer, refusal.status);
            return Err(refused(refusal.status, &refusal.sentence));
        }
        let offered = text(header::SEC_WEBSOCKET_PROTOCOL).unwrap_or_default();
        let offered: Vec<&str> = offered.split(',').map(str::trim).collect();
        let chosen = SUBPROTOCOLS.into_iter().find(|known| offered.contains(known));
        let Some(chosen) = chosen else {
            let known = SUBPROTOCOLS.join(" or ");
            return Err(refused(400, &format!("expected the subprotocol {known}")));
        };
        if !arrival.admit() {
            return Err(refused(503, "too many viewers are connected"));
        }
        let value = HeaderValue::from_static(chosen);
        response
            .headers_mut()
            .insert(header::SEC_WEBSOCKET_PROTOCOL, value);
        Ok(response)
    }

    /// Logs the first page that is refused by its origin: it may be a viewer of the user's own, which only has to be named.
    fn note_refusal(&self, viewer: &ViewerRequest<'_>, status: u16) {
        const SHOWN_MAX: usize = 200;
        let origin: String = viewer
            .origin
            .unwrap_or_default()
            .chars()
            .take(SHOWN_MAX)
            .collect();
        if status == 403 && !origin.is_empty() && !self.has_refused.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "a page of {origin:?} wanted to connect as a viewer, and is refused: it is not known as one"
            );
        }
    }

    fn read(&self, socket: &mut WebSocket<Inlet>, number: u64, client: &Client) -> Result<(), Error> {
        loop {
            let done = match socket.read() {
                Ok(Message::Text(text)) => {
                    protocol::parse_text(&text).and_then(|request| self.execute(number, client, request))
                }
                Ok(Message::Binary(bytes)) => {
                    protocol::parse_bytes(&bytes).and_then(|bytes| self.take(number, client, bytes))
                }
                Ok(_) => Ok(()),
                Err(Error::ConnectionClosed) => return Ok(()),
                Err(error) => return Err(error),
            };
            if let Err(reason) = done {
                client.complain(1, &reason, None);
            }
        }
    }

    fn execute(&self, number: u64, client: &Client, request: Request) -> Result<(), String> {
        match request {
            Request::Subscribe { subscriptions } => {
                for wanted in subscriptions {
                    self.hub.subscribe(client, wanted)?;
                }
            }
            Request::Unsubscribe { subscription_ids } => {
                for subscription in subscription_ids {
                    self.hub.unsubscribe(client, subscription);
                }
            }
            Request::Advertise { channels } => {
                for channel in channels {
                    self.subject.execute(Order::Begin {
                        client: number,
                        channel,
                    })?;
                }
            }
            Request::Unadvertise { channel_ids } => {
                for channel in channel_ids {
                    self.subject.execute(Order::End {
                        client: number,
                        channel,
                    })?;
                }
            }
            Request::SubscribeConnectionGraph {} => self.hub.follow_graph(client),
            Request::UnsubscribeConnectionGraph {} => client.follows_graph.store(false, Ordering::Relaxed),
            Request::GetParameters {
                parameter_names: names,
                id,
            } => self.subject.execute(Order::GetParameters {
                client: number,
                names,
                id,
            })?,
            Request::SetParameters { parameters, id } => self.subject.execute(Order::SetParameters {
                client: number,
                parameters,
                id,
            })?,
            Request::SubscribeParameterUpdates {
                parameter_names: names,
            } => {
                self.subject.execute(Order::FollowParameters {
                    client: number,
                    names,
                    follow: true,
                })?;
            }
            Request::UnsubscribeParameterUpdates {
                parameter_names: names,
            } => {
                self.subject.execute(Order::FollowParameters {
                    client: number,
                    names,
                    follow: false,
                })?;
            }
            Request::FetchAsset { uri, request_id } => self.send_asset(client, &uri, request_id),
            Request::Other => return Err("this server has no such request".to_owned()),
        }
        Ok(())
    }

    fn send_asset(&self, client: &Client, uri: &str, request: u32) {
        let content = self.subject.asset(uri);
        let content = content.as_deref().map_err(String::as_str);
        client
            .outbox
            .push_long(BINARY, &protocol::asset(request, content));
    }

    fn take(&self, number: u64, client: &Client, bytes: Bytes<'_>) -> Result<(), String> {
        match bytes {
            Bytes::Message { channel, payload } => self.subject.execute(Order::Message {
                client: number,
                channel,
                payload: payload.to_vec(),
            }),
            Bytes::Call(call) => {
                let (service, id) = (call.service, call.call);
                let begun = self.subject.execute(Order::Call { client: number, call });
                if let Err(reason) = begun {
                    // The viewer waits for it.
                    let failure = protocol::service_failure(service, id, &reason);
                    client.outbox.push(TEXT, failure.to_string().as_bytes());
                }
                Ok(())
            }
            Bytes::Playback(request) => {
                let mut answer = |state, did_seek| {
                    if did_seek {
                        self.hub.send_bytes(&playback_state(state, true, ""));
                    }
                    client
                        .outbox
                        .push(BINARY, &playback_state(state, did_seek, &request.id));
                };
                if !self.subject.steer(&request, &mut answer) {
                    return Err("nothing is played here".to_owned());
                }
                Ok(())
            }
        }
    }
}

/// Limits of a client's messages.
pub(crate) fn limits() -> WebSocketConfig {
    WebSocketConfig::default()
        .max_message_size(Some(CLIENT_BYTES_MAX))
        .max_frame_size(Some(CLIENT_BYTES_MAX))
}

fn refused(status: u16, sentence: &str) -> ErrorResponse {
    let mut response = ErrorResponse::new(Some(sentence.to_owned()));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
    response
}

/// Writes waiting frames until the client is gone, or acknowledges nothing for some seconds.
fn write(viewer: &Client, client: &TcpStream) {
    let mut frames = Vec::new();
    let mut pace = Pace::default();
    let (mut complaint, mut next_complaint) = (None, SystemClock.monotonic());
    loop {
        let taken = viewer.outbox.take(&mut frames, PING_INTERVAL);
        let began = SystemClock.monotonic();
        match taken {
            Taken::Closed => break,
            Taken::Nothing => viewer.outbox.push(PING, &[]),
            Taken::Padding { before } => {
                let is_over = || viewer.outbox.is_closed();
                let Ok(rate) = pace.measure(client, &frames, UNREAD_MAX, is_over) else {
                    break;
                };
                viewer.outbox.measured(before, rate);
            }
            Taken::Frames { large } => {
                let is_over = || viewer.outbox.is_closed();
                if pace.send(client, &frames, UNREAD_MAX, is_over).is_err() {
                    break;
                }
                if large {
                    let took = SystemClock.monotonic().saturating_sub(began);
                    viewer.outbox.sent_large(took, pace.rate());
                }
                if frames.capacity() > FRAMES_KEPT_BYTES {
                    frames = Vec::new();
                }
            }
        }
        if began >= next_complaint {
            next_complaint = began + COMPLAIN_INTERVAL;
            let sentence = viewer.what_is_left_out();
            if sentence != complaint
                && let Some(sentence) = &sentence
            {
                viewer.complain(1, sentence, Some("left-out"));
            }
            complaint = sentence;
        }
    }
    viewer.outbox.close();
    // Wakes the thread that reads.
    let _ = client.shutdown(Shutdown::Both);
}
