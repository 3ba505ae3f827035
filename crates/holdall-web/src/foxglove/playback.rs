//! A playback for viewers: a transport that the player publishes to, and the viewer's timeline that steers it.

use super::{
    ViewerPort, ViewerReport,
    hub::{Channel, Hub, NewChannel, Subject},
    protocol::{PlaybackPhase, PlaybackRequest, PlaybackState, playback_state, time},
    schemas::Schemas,
};
use crate::listen::{Ended, WebError};
use holdall::{
    BagSet, ReadError, Timestamp,
    play::{
        PlayControl,
        options::PlayWindow,
        status::{PlayPhase, PlayStatus},
    },
};
use holdall_io::clock::{Clock, SystemClock};
use holdall_model::{
    message::Payload,
    qos::{Durability, History, QosProfile},
    topic::NodeName,
};
use holdall_transport::{
    Delivery, GraphEvent, GraphWake, PublishRequest, Publisher, ServiceClient, ServiceDescription,
    ServiceServer, ServiceWake, Sink, SubscribeRequest, Subscription, Transport, TransportError,
    TypeDescriptionReply,
};
use std::{sync::Arc, thread, time::Duration};

/// Time between two states to viewers.
const STATE_INTERVAL: Duration = Duration::from_millis(100);

/// A transport that also publishes to viewers, or only to them.
pub struct PlayingTransport {
    inner: Option<Box<dyn Transport>>,
    hub: Arc<Hub>,
    schemas: Arc<Schemas>,
}

/// A server of a playback.
pub struct PlaybackServer {
    port: ViewerPort,
    hub: Arc<Hub>,
    schemas: Arc<Schemas>,
}

impl PlaybackServer {
    /// A server of these bags' topics, which get the definitions in the bags.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn new(port: ViewerPort, bags: &BagSet) -> Result<Self, ReadError> {
        Ok(Self {
            port,
            hub: Arc::default(),
            schemas: Arc::new(Schemas::of_bags(bags)?),
        })
    }

    /// Messages that the player publishes over `inner` go to viewers, too; without it to viewers only.
    pub fn transport(&self, inner: Option<Box<dyn Transport>>) -> Box<dyn Transport> {
        Box::new(PlayingTransport {
            inner,
            hub: Arc::clone(&self.hub),
            schemas: Arc::clone(&self.schemas),
        })
    }

    /// Serves viewers from now on; `name` is shown in them.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn serve(&self, control: PlayControl, name: String) -> Result<(), WebError> {
        let subject = Arc::new(Playing {
            control: control.clone(),
            hub: Arc::clone(&self.hub),
        });
        self.port.serve(Arc::clone(&self.hub), subject, name)?;
        let (hub, ended) = (Arc::clone(&self.hub), self.port.listener.ended());
        let thread = thread::Builder::new().name(format!("{}states", crate::THREADS));
        thread
            .spawn(move || send_states(&control, &hub, &ended))
            .map_err(super::start_error)?;
        Ok(())
    }

    /// The address to enter in a viewer.
    pub fn link(&self) -> String {
        self.port.link()
    }

    /// Counts of messages that each viewer has got and not got.
    pub fn report(&self) -> ViewerReport {
        ViewerReport(Arc::clone(&self.hub))
    }
}

impl Drop for PlaybackServer {
    fn drop(&mut self) {
        self.hub.disconnect();
    }
}

fn nanos(time: Timestamp) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(0)
}

fn state_of(status: &PlayStatus) -> PlaybackState {
    let phase = match (status.phase, status.paused) {
        (PlayPhase::Preparing, _) => PlaybackPhase::Buffering,
        (PlayPhase::Waiting | PlayPhase::Ended, _) => PlaybackPhase::Ended,
        (PlayPhase::Playing, true) => PlaybackPhase::Paused,
        (PlayPhase::Playing, false) => PlaybackPhase::Playing,
    };
    let end = status.start.saturating_add(status.duration);
    PlaybackState {
        phase,
        time: nanos(status.position.min(end)),
        speed: status.rate as f32,
    }
}

/// Viewers follow the playback, also where others steer it.
fn send_states(control: &PlayControl, hub: &Hub, ended: &Ended) {
    let mut last = None;
    while !ended.is_set() {
        let state = state_of(&control.status());
        if last != Some(state) {
            hub.send_bytes(&time(state.time));
            hub.send_bytes(&playback_state(state, false, ""));
            last = Some(state);
        }
        SystemClock.sleep_until(SystemClock.monotonic() + STATE_INTERVAL);
    }
}

struct Playing {
    control: PlayControl,
    hub: Arc<Hub>,
}

impl Subject for Playing {
    fn capabilities(&self) -> Vec<&'static str> {
        vec!["time", "playbackControl"]
    }

    fn range(&self) -> Option<(u64, u64)> {
        let status = self.control.status();
        Some((
            nanos(status.start),
            nanos(status.start.saturating_add(status.duration)),
        ))
    }

    fn steer(&self, request: &PlaybackRequest, answer: &mut dyn FnMut(PlaybackState, bool)) -> bool {
        let control = &self.control;
        let rate = f64::from(request.speed);
        if rate > 0.0 && (rate - control.rate()).abs() > 1e-6 {
            control.set_rate(rate);
        }
        let mut did_seek = false;
        if let Some(to) = request.seek {
            // Nothing is played until the viewers know of the jump.
            control.pause();
            self.hub.forget_messages();
            let to = Timestamp::from_nanos(i64::try_from(to).unwrap_or(i64::MAX));
            did_seek = control.seek(to) || self.play_again(to);
        } else if !request.play {
            control.pause();
        } else if control.status().phase == PlayPhase::Waiting {
            control.pause();
            did_seek = self.play_again(control.status().start);
        }
        let mut state = state_of(&control.status());
        if request.play && state.phase == PlaybackPhase::Paused {
            state.phase = PlaybackPhase::Playing;
        }
        answer(state, did_seek);
        if request.play {
            control.resume();
        }
        true
    }
}

impl Playing {
    /// After its end a playback starts again.
    fn play_again(&self, from: Timestamp) -> bool {
        let status = self.control.status();
        if status.phase != PlayPhase::Waiting {
            return false;
        }
        self.control.play(PlayWindow::default()) && self.control.seek(from)
    }
}

impl Transport for PlayingTransport {
    fn name(&self) -> &'static str {
        self.inner.as_ref().map_or("viewers", |inner| inner.name())
    }

    fn poll_graph(&mut self, events: &mut Vec<GraphEvent>) -> Result<(), TransportError> {
        self.inner
            .as_mut()
            .map_or(Ok(()), |inner| inner.poll_graph(events))
    }

    fn has_graph_news(&self) -> bool {
        self.inner.as_ref().is_some_and(|inner| inner.has_graph_news())
    }

    fn wake_on_graph_news(&mut self, wake: GraphWake) {
        if let Some(inner) = &mut self.inner {
            inner.wake_on_graph_news(wake);
        }
    }

    fn subscribe(
        &mut self,
        request: &SubscribeRequest,
        sink: Arc<dyn Sink>,
    ) -> Result<Box<dyn Subscription>, TransportError> {
        match &mut self.inner {
            Some(inner) => inner.subscribe(request, sink),
            None => Err(TransportError::Topic {
                topic: request.topic.clone(),
                reason: "viewers publish nothing".to_owned(),
            }),
        }
    }

    fn publish(&mut self, request: &PublishRequest) -> Result<Box<dyn Publisher>, TransportError> {
        let inner = self
            .inner
            .as_mut()
            .map(|inner| inner.publish(request))
            .transpose()?;
        let encoding = if request.serialization_format.is_empty() {
            "cdr"
        } else {
            &request.serialization_format
        };
        let definition = self.schemas.find(
            &request.type_name,
            request.type_hash.as_deref().unwrap_or_default(),
        );
        let channel = self.hub.add_channel(&NewChannel {
            topic: &request.topic,
            encoding,
            definition: &definition,
            depth: kept_by(&request.qos),
        });
        Ok(Box::new(PlayingPublisher {
            inner,
            channel,
            hub: Arc::clone(&self.hub),
        }))
    }

    fn serve(
        &mut self,
        service: &ServiceDescription,
        wake: ServiceWake,
    ) -> Result<Box<dyn ServiceServer>, TransportError> {
        match &mut self.inner {
            Some(inner) => inner.serve(service, wake),
            None => Err(no_services(&service.name)),
        }
    }

    fn client(
        &mut self,
        service: &ServiceDescription,
        wake: ServiceWake,
    ) -> Result<Box<dyn ServiceClient>, TransportError> {
        match &mut self.inner {
            Some(inner) => inner.client(service, wake),
            None => Err(no_services(&service.name)),
        }
    }

    fn carries(&self, serialization_format: &str) -> bool {
        let own = matches!(serialization_format, "" | "cdr");
        self.inner
            .as_ref()
            .map_or(own, |inner| inner.carries(serialization_format))
    }

    fn request_type_description(&mut self, node: &NodeName, type_name: &str, type_hash: &str) {
        if let Some(inner) = &mut self.inner {
            inner.request_type_description(node, type_name, type_hash);
        }
    }

    fn poll_type_descriptions(&mut self, replies: &mut Vec<TypeDescriptionReply>) {
        if let Some(inner) = &mut self.inner {
            inner.poll_type_descriptions(replies);
        }
    }

    fn warnings(&self) -> Vec<String> {
        self.inner
            .as_ref()
            .map(|inner| inner.warnings())
            .unwrap_or_default()
    }

    fn now(&self) -> Timestamp {
        self.inner
            .as_ref()
            .map_or_else(|| SystemClock.now(), |inner| inner.now())
    }
}

/// How many messages a publisher keeps for later subscriptions.
fn kept_by(qos: &QosProfile) -> usize {
    match (qos.durability, qos.history) {
        (Durability::TransientLocal, History::KeepAll) => usize::MAX,
        (Durability::TransientLocal, _) => usize::try_from(qos.depth).unwrap_or(usize::MAX).max(1),
        _ => 0,
    }
}

fn no_services(service: &str) -> TransportError {
    TransportError::Service {
        service: service.to_owned(),
        reason: "viewers offer and call none here".to_owned(),
    }
}

struct PlayingPublisher {
    inner: Option<Box<dyn Publisher>>,
    channel: Arc<Channel>,
    hub: Arc<Hub>,
}

impl Publisher for PlayingPublisher {
    fn publish(&mut self, payload: &[u8]) -> Result<(), TransportError> {
        self.publish_at(payload, SystemClock.now())
    }

    fn publish_at(&mut self, payload: &[u8], log_time: Timestamp) -> Result<(), TransportError> {
        self.channel
            .feed()
            .play(nanos(log_time), Payload::Borrowed(payload));
        self.inner.as_mut().map_or(Ok(()), |inner| inner.publish(payload))
    }

    fn matched_subscriptions(&self) -> usize {
        let inner = self
            .inner
            .as_ref()
            .map_or(0, |inner| inner.matched_subscriptions());
        inner + self.channel.feed().takers()
    }

    fn delivery(&self) -> Option<Delivery> {
        self.inner.as_ref().and_then(|inner| inner.delivery())
    }

    fn wait_for_acked(&mut self, timeout: Duration) -> bool {
        self.inner
            .as_mut()
            .is_none_or(|inner| inner.wait_for_acked(timeout))
    }
}

impl Drop for PlayingPublisher {
    fn drop(&mut self) {
        self.hub.remove_channel(self.channel.id);
    }
}
