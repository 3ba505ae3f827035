//! The simulated network: publishers that burst, lose, delay, restart and announce, and the truth about every message they sent.

mod signs;

pub use signs::Signs;

use crate::payload::{self, PAYLOAD_BYTES_MIN};
use holdall_io::mutex::lock;
use holdall_io::{
    clock::Clock,
    sim::{SimClock, SimRng},
};
use holdall_model::{
    message::{Loan, MessageHeader, Payload},
    qos::{Durability, QosProfile, Reliability, is_compatible},
    time::Timestamp,
    topic::{Gid, NodeName},
};
use holdall_transport::{
    EndProof, EndpointInfo, GraphEvent, PublishRequest, Publisher, Sink, SubscribeRequest, Subscription,
    Transport, TransportError, TypeDescriptionReply, TypeSource,
};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

/// Payloads from here on are lent. The DDS transport lends from 64 KiB on; here less, so that seeds are quick.
pub const LOAN_BYTES_MIN: usize = 8 << 10;

/// If the time of day and the elapsed time differ by more than this, the clock was set.
const CLOCK_DRIFT_MAX: Duration = Duration::from_millis(500);

/// A message's first way into the recorder.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Monotonic time.
    pub at: Duration,
    /// The time of day that it is stamped with.
    pub log_time: Timestamp,
    /// Place among all arrivals of the recording.
    pub place: u64,
    /// The recording was paused.
    pub paused: bool,
}

/// A message that was sent.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// Monotonic time.
    pub at: Duration,
    /// The time of day of the sender.
    pub publish_time: Timestamp,
    /// Length of the payload in bytes.
    pub len: usize,
    /// `None` when it never came to the recorder.
    pub arrival: Option<Arrival>,
}

/// When the recorder learned of a publisher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discovered {
    /// Not before the end.
    Never,
    /// At this monotonic time.
    At(Duration),
}

/// A message that has arrived.
#[derive(Clone, Debug)]
pub struct Arrived {
    /// Its topic.
    pub topic: String,
    /// Its publisher's number.
    pub life: usize,
    /// Its number, from 1.
    pub sequence: u64,
    /// The time of day that it is stamped with.
    pub log_time: Timestamp,
}

/// One life of a publisher, from its start to its end: the truth about it.
#[derive(Clone, Debug)]
pub struct Life {
    /// Identifier on the network; a restart has another one.
    pub gid: Gid,
    /// Its topic.
    pub topic: String,
    /// The QoS that it offers.
    pub qos: QosProfile,
    /// Whether it still exists.
    pub alive: bool,
    /// Its messages; the first has sequence number 1.
    pub sent: Vec<Sent>,
    /// When the recorder discovered it, the last time before it asked for its topic and type.
    pub discovered: Discovered,
    /// The recorder has asked for its topic and type since it was discovered.
    was_asked_for: bool,
    /// Whether its creation time, which half of the publishers announce, was within the recording by the clock of that moment.
    pub made_during: bool,
    /// The first announcement that the recorder received before any of its messages arrived.
    pub announced_before: Option<u64>,
    /// The highest sequence number that was announced to the recorder.
    pub announced_last: Option<u64>,
    /// The time since which none of its messages arrive, by both clocks: its link is lost, or it died.
    pub lost: Option<(Duration, Timestamp)>,
    /// It was lost at some time.
    pub was_lost: bool,
    /// The recorder was given notice that it is not heard any more.
    pub is_expired: bool,
    /// A subscription of the recorder matched with it at some time.
    pub was_matched: bool,
    info: EndpointInfo,
    /// The number that a HEARTBEAT would announce.
    announced: u64,
    has_arrived: bool,
}

impl Life {
    fn new(gid: Gid, request: &PublishRequest, node: NodeName, created: Option<Timestamp>) -> Self {
        Self {
            gid,
            topic: request.topic.clone(),
            qos: request.qos,
            alive: true,
            sent: Vec::new(),
            discovered: Discovered::Never,
            was_asked_for: false,
            made_during: false,
            announced_before: None,
            announced_last: None,
            lost: None,
            was_lost: false,
            is_expired: false,
            was_matched: false,
            info: EndpointInfo {
                gid,
                topic: request.topic.clone(),
                type_name: request.type_name.clone(),
                type_hash: request.type_hash.clone(),
                qos: request.qos,
                node: Some(node),
                created,
                ..EndpointInfo::default()
            },
            announced: 0,
            has_arrived: false,
        }
    }

    /// The type that it announces.
    pub fn type_name(&self) -> &str {
        &self.info.type_name
    }

    fn note_announced(&mut self, last: u64) {
        if !self.has_arrived {
            self.announced_before.get_or_insert(last);
        }
        self.announced_last = self.announced_last.max(Some(last));
    }

    fn keeps(&self) -> usize {
        match self.qos.durability {
            Durability::TransientLocal => usize::try_from(self.qos.depth).unwrap_or(usize::MAX).max(1),
            _ => 0,
        }
    }

    fn is_asked_for(&self, request: &SubscribeRequest) -> bool {
        self.topic == request.topic && self.info.type_name == request.type_name
    }

    fn matches(&self, request: &SubscribeRequest) -> bool {
        self.alive
            && self.lost.is_none()
            && self.is_asked_for(request)
            && is_compatible(&self.qos, &request.qos)
    }
}

/// How the network treats a message in transit to one subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It arrives at once.
    Straight,
    /// It arrives later.
    Delayed(Duration),
    /// It never arrives.
    Lost,
}

struct Flight {
    due: Duration,
    number: u64,
    life: usize,
    index: usize,
}

struct Request {
    asked: SubscribeRequest,
    sink: Arc<dyn Sink>,
    in_flight: VecDeque<Flight>,
    /// The latest arrival of a reliable publisher's messages: they keep their order.
    last_due: BTreeMap<usize, Duration>,
    /// Publishers that have answered.
    answered: BTreeSet<Gid>,
}

#[derive(Default)]
struct State {
    signs: Option<Signs>,
    lives: Vec<Life>,
    requests: BTreeMap<u64, Request>,
    events: Vec<GraphEvent>,
    questions: Vec<(String, String)>,
    descriptions: BTreeMap<String, Vec<TypeSource>>,
    next_number: u64,
    next_gid: u64,
    arrivals: u64,
    paused: bool,
    /// The message that is being handed over: its publisher and sequence number.
    offered: Option<(usize, u64)>,
    /// When the recorder's current step began: by that time it judges when a publisher came.
    step: Duration,
    /// What `/clock` said last.
    simulated: Option<Timestamp>,
    /// Messages that have arrived since they were taken, if they are logged.
    log: Option<Vec<Arrived>>,
}

/// The network; clones are the same one. Everything happens in the caller's thread.
#[derive(Clone)]
pub struct Network {
    state: Arc<Mutex<State>>,
    clock: SimClock,
    /// The time of day at the start.
    started: Timestamp,
    lent_bytes: Arc<AtomicUsize>,
}

impl Network {
    /// A network without nodes. Without `signs` announcements come of all publishers, and none answers or vanishes.
    pub fn new(clock: SimClock, signs: Option<Signs>) -> Self {
        let state = State {
            signs,
            ..State::default()
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            started: clock.now(),
            clock,
            lent_bytes: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// The truth about all publishers.
    pub fn lives(&self) -> Vec<Life> {
        self.lock().lives.clone()
    }

    /// The message that is being handed over to the recorder right now: its publisher and sequence number.
    pub fn offered(&self) -> Option<(usize, u64)> {
        self.lock().offered
    }

    /// Whether the time of day was set since the start, and still is.
    fn clock_was_set(&self) -> bool {
        let by_wall_clock = self.clock.now().as_nanos() - self.started.as_nanos();
        let elapsed = i64::try_from(self.clock.monotonic().as_nanos()).unwrap_or(i64::MAX);
        by_wall_clock.abs_diff(elapsed) > CLOCK_DRIFT_MAX.as_nanos() as u64
    }

    /// Bytes of payloads that are lent and not returned.
    pub fn lent_bytes(&self) -> usize {
        self.lent_bytes.load(Ordering::Relaxed)
    }

    /// Notes that a step of the recorder begins at this time.
    pub fn set_step(&self, now: Duration) {
        self.lock().step = now;
    }

    /// Logs each message that arrives from now on.
    pub fn log_arrivals(&self) {
        self.lock().log.get_or_insert_default();
    }

    /// The messages that have arrived since the last call, in order.
    pub fn take_arrivals(&self) -> Vec<Arrived> {
        self.lock().log.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Sets whether messages from now on arrive in a paused recording.
    pub fn set_paused(&self, paused: bool) {
        self.lock().paused = paused;
    }

    /// Says a time in nanoseconds on `/clock`; it stamps messages from now on.
    pub fn say_time(&self, nanos: i64) {
        let mut state = self.lock();
        state.simulated = Some(Timestamp::from_nanos(nanos));
        let of_clock = state.requests.values().filter(|it| it.asked.topic == "/clock");
        let sinks: Vec<_> = of_clock.map(|request| Arc::clone(&request.sink)).collect();
        drop(state);
        let header = MessageHeader {
            publisher: None,
            sequence: None,
            publish_time: None,
            log_time: self.clock.now(),
        };
        let (seconds, rest) = (nanos.div_euclid(1_000_000_000), nanos.rem_euclid(1_000_000_000));
        let mut payload = vec![0, 1, 0, 0];
        payload.extend((seconds as i32).to_le_bytes());
        payload.extend((rest as u32).to_le_bytes());
        for sink in sinks {
            sink.offer(header, Payload::Borrowed(&payload));
        }
    }

    /// Lets nodes answer requests for a type from now on, also earlier ones.
    pub fn describe(&self, type_name: &str, sources: Vec<TypeSource>) {
        self.lock().descriptions.insert(type_name.to_owned(), sources);
    }

    /// Begins a publisher; its number.
    pub fn start(&self, request: &PublishRequest) -> usize {
        let mut state = self.lock();
        state.next_gid += 1;
        let mut gid = [0x10; 16];
        gid[8..].copy_from_slice(&state.next_gid.to_be_bytes());
        let node = NodeName {
            namespace: "/".to_owned(),
            name: "talker".to_owned(),
        };
        let created = state.next_gid.is_multiple_of(2).then(|| self.clock.now());
        let life = Life::new(Gid(gid), request, node, created);
        state.events.push(GraphEvent::Publisher(life.info.clone()));
        state.lives.push(life);
        state.lives.len() - 1
    }

    /// The request that a publisher was started with.
    pub fn request(&self, life: usize) -> PublishRequest {
        let state = self.lock();
        let info = &state.lives[life].info;
        PublishRequest {
            topic: info.topic.clone(),
            type_name: info.type_name.clone(),
            type_hash: info.type_hash.clone(),
            qos: info.qos,
            ..PublishRequest::default()
        }
    }

    /// Living publishers, by number.
    pub fn alive(&self) -> Vec<usize> {
        let state = self.lock();
        let alive = |index: &usize| state.lives[*index].alive;
        (0..state.lives.len()).filter(alive).collect()
    }

    /// Sends one message; `way` decides its fate for each subscription.
    pub fn send(&self, life: usize, len: usize, mut way: impl FnMut() -> Way) {
        let now = self.clock.monotonic();
        let mut state = self.lock();
        let len = len.max(PAYLOAD_BYTES_MIN);
        state.lives[life].sent.push(Sent {
            at: now,
            publish_time: self.clock.now(),
            len,
            arrival: None,
        });
        let State {
            lives,
            requests,
            next_number,
            ..
        } = &mut *state;
        let sender = &mut lives[life];
        sender.was_matched |= requests.values().any(|request| sender.matches(&request.asked));
        for request in requests
            .values_mut()
            .filter(|request| sender.matches(&request.asked))
        {
            let due = match way() {
                Way::Straight => now,
                Way::Delayed(span) => now + span,
                Way::Lost => continue,
            };
            let due = if request.asked.qos.reliability == Reliability::Reliable {
                let last = request.last_due.entry(life).or_default();
                *last = due.max(*last);
                *last
            } else {
                due
            };
            *next_number += 1;
            request.in_flight.push_back(Flight {
                due,
                number: *next_number,
                life,
                index: sender.sent.len() - 1,
            });
        }
        drop(state);
        self.deliver_due();
    }

    /// Announces a publisher's last sequence number to the subscriptions, as a HEARTBEAT does.
    pub fn announce(&self, life: usize) {
        let mut state = self.lock();
        let State {
            signs,
            lives,
            requests,
            ..
        } = &mut *state;
        let sender = &mut lives[life];
        if sender.lost.is_some() {
            return;
        }
        sender.announced = sender.sent.len() as u64;
        let sinks: Vec<_> = requests
            .values()
            .filter(|request| sender.announces_to(*signs, &request.asked))
            .map(|request| Arc::clone(&request.sink))
            .collect();
        if !sinks.is_empty() {
            sender.note_announced(sender.announced);
        }
        let (gid, last) = (sender.gid, sender.announced);
        drop(state);
        sinks.iter().for_each(|sink| sink.announced(gid, last));
    }

    /// When the next message arrives by itself.
    pub fn next_due(&self) -> Option<Duration> {
        let state = self.lock();
        let flights = state.requests.values().flat_map(|request| &request.in_flight);
        flights.map(|flight| flight.due).min()
    }

    /// Delivers all messages that have arrived by now.
    pub fn deliver_due(&self) {
        while let Some((sink, header, life, index, len)) = self.take_due() {
            if len >= LOAN_BYTES_MIN {
                let loan = Lent::new(payload::of(life, index as u64 + 1, len), &self.lent_bytes);
                sink.offer(header, Payload::Loaned(Box::new(loan)));
            } else {
                sink.offer(
                    header,
                    Payload::Borrowed(&payload::of(life, index as u64 + 1, len)),
                );
            }
            self.lock().offered = None;
        }
    }

    #[expect(clippy::type_complexity, reason = "taken apart by the only caller")]
    fn take_due(&self) -> Option<(Arc<dyn Sink>, MessageHeader, usize, usize, usize)> {
        let now = self.clock.monotonic();
        let mut state = self.lock();
        let State {
            lives,
            requests,
            arrivals,
            paused,
            offered,
            simulated,
            log,
            ..
        } = &mut *state;
        let due = requests
            .iter()
            .flat_map(|(key, request)| {
                let flights = request.in_flight.iter().enumerate();
                flights.map(move |(place, flight)| (flight.due, flight.number, *key, place))
            })
            .filter(|(due, ..)| *due <= now)
            .min()?;
        let request = requests.get_mut(&due.2)?;
        let flight = request.in_flight.remove(due.3)?;
        let life = &mut lives[flight.life];
        life.has_arrived = true;
        let sent = &mut life.sent[flight.index];
        // Two messages never have the same stamp, so that the order of stamps is the order of arrival.
        self.clock.advance(Duration::from_nanos(1));
        let log_time = self.clock.now();
        *arrivals += 1;
        *offered = sent
            .arrival
            .is_none()
            .then_some((flight.life, flight.index as u64 + 1));
        if let (Some(log), None) = (log, sent.arrival) {
            log.push(Arrived {
                topic: life.topic.clone(),
                life: flight.life,
                sequence: flight.index as u64 + 1,
                log_time,
            });
        }
        sent.arrival.get_or_insert(Arrival {
            at: now,
            log_time: simulated.unwrap_or(log_time),
            place: *arrivals,
            paused: *paused,
        });
        let header = MessageHeader {
            publisher: Some(life.gid),
            sequence: Some(flight.index as u64 + 1),
            publish_time: Some(sent.publish_time),
            log_time,
        };
        Some((
            Arc::clone(&request.sink),
            header,
            flight.life,
            flight.index,
            sent.len,
        ))
    }
}

/// The recorder's place on the network.
pub struct SimTransport(pub Network);

impl Transport for SimTransport {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn is_pumped(&self) -> bool {
        true
    }

    fn poll_graph(&mut self, events: &mut Vec<GraphEvent>) -> Result<(), TransportError> {
        let mut state = self.0.lock();
        let now = state.step;
        state.expire(self.0.clock.monotonic());
        let taken = std::mem::take(&mut state.events);
        let State { lives, requests, .. } = &mut *state;
        for event in &taken {
            if let GraphEvent::Publisher(info) = event
                && let Some(life) = lives.iter_mut().find(|life| life.gid == info.gid)
                // Again after its link was lost, when nothing was asked of it before.
                && !life.was_asked_for
            {
                life.discovered = Discovered::At(now);
                life.was_asked_for = requests.values().any(|it| life.is_asked_for(&it.asked));
                let recording = self.0.started..=self.0.clock.now();
                // Times of before and after the clock was set do not compare.
                life.made_during =
                    !self.0.clock_was_set() && info.created.is_some_and(|made| recording.contains(&made));
            }
        }
        events.extend(taken);
        Ok(())
    }

    fn subscribe(
        &mut self,
        request: &SubscribeRequest,
        sink: Arc<dyn Sink>,
    ) -> Result<Box<dyn Subscription>, TransportError> {
        let now = self.0.clock.monotonic();
        let mut state = self.0.lock();
        let key = state.next_number;
        state.next_number += 1;
        let mut in_flight = VecDeque::new();
        let State {
            lives, next_number, ..
        } = &mut *state;
        for life in lives.iter_mut() {
            life.was_matched |= life.matches(request);
            life.was_asked_for |= life.discovered != Discovered::Never && life.is_asked_for(request);
        }
        if request.qos.durability == Durability::TransientLocal {
            for (number, life) in lives.iter().enumerate().filter(|(_, life)| life.matches(request)) {
                for index in life.sent.len().saturating_sub(life.keeps())..life.sent.len() {
                    *next_number += 1;
                    in_flight.push_back(Flight {
                        due: now,
                        number: *next_number,
                        life: number,
                        index,
                    });
                }
            }
        }
        let request = Request {
            asked: request.clone(),
            sink,
            in_flight,
            last_due: BTreeMap::new(),
            answered: BTreeSet::new(),
        };
        state.requests.insert(key, request);
        drop(state);
        Ok(Box::new(SimSubscription {
            network: self.0.clone(),
            key,
        }))
    }

    fn publish(&mut self, request: &PublishRequest) -> Result<Box<dyn Publisher>, TransportError> {
        Err(TransportError::Topic {
            topic: request.topic.clone(),
            reason: "the recorder of a simulation publishes nothing".to_owned(),
        })
    }

    fn request_type_description(&mut self, _node: &NodeName, type_name: &str, type_hash: &str) {
        let question = (type_name.to_owned(), type_hash.to_owned());
        let mut state = self.0.lock();
        if !state.questions.contains(&question) {
            state.questions.push(question);
        }
    }

    fn poll_type_descriptions(&mut self, replies: &mut Vec<TypeDescriptionReply>) {
        let mut state = self.0.lock();
        let State {
            questions,
            descriptions,
            ..
        } = &mut *state;
        questions.retain(|(type_name, type_hash)| {
            let Some(sources) = descriptions.get(type_name) else {
                return true;
            };
            replies.push(TypeDescriptionReply {
                type_name: type_name.clone(),
                type_hash: type_hash.clone(),
                sources: Ok(sources.clone()),
                descriptions: Vec::new(),
            });
            false
        });
    }

    fn end_proof(&self) -> EndProof {
        self.0.end_proof()
    }

    fn silent_for(&self, publisher: Gid) -> Option<Duration> {
        self.0.silent_for(publisher)
    }

    fn now(&self) -> Timestamp {
        self.0.clock.now()
    }
}

struct SimSubscription {
    network: Network,
    key: u64,
}

impl Subscription for SimSubscription {
    /// Delivers messages that have arrived, including those kept by a transient-local publisher.
    fn pump(&mut self) -> usize {
        self.network.deliver_due();
        0
    }

    fn matched_publishers(&self) -> usize {
        let state = self.network.lock();
        let Some(request) = state.requests.get(&self.key) else {
            return 0;
        };
        let matches = |life: &&Life| life.matches(&request.asked);
        state.lives.iter().filter(matches).count()
    }

    fn announced_sequences(&self) -> Vec<(Gid, u64)> {
        let mut state = self.network.lock();
        let State {
            signs,
            lives,
            requests,
            ..
        } = &mut *state;
        let Some(request) = requests.get(&self.key) else {
            return Vec::new();
        };
        let mut announced = Vec::new();
        for life in lives.iter_mut() {
            let shows = life.announces_to(*signs, &request.asked) || life.answers_to(*signs, &request.asked);
            if shows && life.announced > 0 {
                life.note_announced(life.announced);
                announced.push((life.gid, life.announced));
            }
        }
        announced
    }

    fn ask_ends(&mut self) {
        self.network.ask(self.key);
    }

    fn has_answered(&self, publisher: Gid) -> bool {
        let state = self.network.lock();
        let request = state.requests.get(&self.key);
        request.is_some_and(|request| request.answered.contains(&publisher))
    }
}

impl Drop for SimSubscription {
    fn drop(&mut self) {
        self.network.lock().requests.remove(&self.key);
    }
}

/// A payload in the network's memory, counted until it is returned.
struct Lent {
    bytes: Vec<u8>,
    lent_bytes: Arc<AtomicUsize>,
}

impl Lent {
    fn new(bytes: Vec<u8>, lent_bytes: &Arc<AtomicUsize>) -> Self {
        lent_bytes.fetch_add(bytes.len(), Ordering::Relaxed);
        Self {
            bytes,
            lent_bytes: Arc::clone(lent_bytes),
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.lent_bytes.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

impl Loan for Lent {
    fn len(&self) -> usize {
        self.bytes.len()
    }

    fn pinned_bytes(&self) -> usize {
        self.bytes.len()
    }

    fn for_each_slice(&self, visit: &mut dyn FnMut(&[u8])) {
        self.bytes.chunks(3_000).for_each(visit);
    }
}

/// A random way: `lost` and `delayed` are chances in a million, and delays are below `delay_max`.
pub fn random_way(rng: &mut SimRng, lost: u32, delayed: u32, delay_max: Duration) -> Way {
    if rng.chance(lost) {
        Way::Lost
    } else if rng.chance(delayed) {
        Way::Delayed(rng.span_below(delay_max))
    } else {
        Way::Straight
    }
}
