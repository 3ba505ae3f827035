//! Plays lists of messages by a clock that the test moves, and checks which were published when.

use super::{
    clock_topic::ClockTopic,
    control::{Asker, Command, Reply, Request},
    discovery::Discovery,
    options::{ClockSource, PlayOptions},
    playback::{Gaps, Next, Playback, PlaybackParts},
    publications::Publications,
    range::PlayRange,
    read_ahead::{PlayMessage, Poll, Source},
    schedule::Schedule,
    status::PlayPhase,
    steps::Steps,
    topic_choice::TopicChoice,
};
use bytes::Bytes;
use holdall_model::{
    qos::{Durability, QosProfile},
    time::Timestamp,
    topic::TopicInfo,
};
use holdall_transport::{
    Delivery, GraphEvent, PublishRequest, Publisher, ServiceClient, ServiceDescription, ServiceWake, Sink,
    SubscribeRequest, Subscription, Transport, TransportError,
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc::Receiver,
    },
    time::Duration,
};

mod gaps;
mod pacing;
mod steering;
mod steps;

const START: i64 = 1_700_000_000_000_000_000;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn at(millis: i64) -> Timestamp {
    Timestamp::from_nanos(START + millis * 1_000_000)
}

/// A topic and a message published on it.
type Note = (String, Vec<u8>);

/// A transport that notes published messages.
#[derive(Clone, Default)]
struct Notebook {
    published: Arc<Mutex<Vec<Note>>>,
    requests: Arc<Mutex<Vec<PublishRequest>>>,
    matched: Arc<AtomicUsize>,
    delivery: Arc<Mutex<Option<Delivery>>>,
}

impl Notebook {
    /// The only transport of a playback.
    fn as_transports(&self) -> Vec<Box<dyn Transport>> {
        vec![Box::new(self.clone())]
    }
}

struct NotingPublisher {
    topic: String,
    notebook: Notebook,
}

impl Publisher for NotingPublisher {
    fn publish(&mut self, payload: &[u8]) -> Result<(), TransportError> {
        if payload == b"refuse" {
            return Err(TransportError::Publish {
                topic: self.topic.clone(),
                reason: "on purpose".to_owned(),
            });
        }
        self.notebook
            .published
            .lock()
            .unwrap()
            .push((self.topic.clone(), payload.to_vec()));
        Ok(())
    }

    fn matched_subscriptions(&self) -> usize {
        self.notebook.matched.load(Ordering::SeqCst)
    }

    fn delivery(&self) -> Option<Delivery> {
        *self.notebook.delivery.lock().unwrap()
    }

    fn wait_for_acked(&mut self, _timeout: Duration) -> bool {
        true
    }
}

impl Transport for Notebook {
    fn name(&self) -> &'static str {
        "notebook"
    }

    fn poll_graph(&mut self, _events: &mut Vec<GraphEvent>) -> Result<(), TransportError> {
        Ok(())
    }

    fn subscribe(
        &mut self,
        request: &SubscribeRequest,
        _sink: Arc<dyn Sink>,
    ) -> Result<Box<dyn Subscription>, TransportError> {
        Err(TransportError::Topic {
            topic: request.topic.clone(),
            reason: "nothing comes from here".to_owned(),
        })
    }

    fn publish(&mut self, request: &PublishRequest) -> Result<Box<dyn Publisher>, TransportError> {
        if request.topic.contains("//") {
            let topic = request.topic.clone();
            return Err(TransportError::Topic {
                topic,
                reason: "it has an empty token".to_owned(),
            });
        }
        self.requests.lock().unwrap().push(request.clone());
        Ok(Box::new(NotingPublisher {
            topic: request.topic.clone(),
            notebook: self.clone(),
        }))
    }

    fn client(
        &mut self,
        _service: &ServiceDescription,
        _wake: ServiceWake,
    ) -> Result<Box<dyn ServiceClient>, TransportError> {
        Ok(Box::new(steps::Servers(Arc::clone(&self.matched))))
    }

    fn now(&self) -> Timestamp {
        Timestamp::default()
    }
}

/// A source that has all its messages at once, unless a test makes it hold them back.
struct List {
    all: Vec<PlayMessage>,
    left: VecDeque<Poll>,
    repeat: bool,
    start: Timestamp,
    until: Option<Timestamp>,
    held_back: Arc<AtomicUsize>,
}

impl List {
    fn fill(&mut self, from: Timestamp) {
        let until = self.until.unwrap_or(Timestamp::from_nanos(i64::MAX));
        let here = |message: &&PlayMessage| message.stamp >= from && message.stamp <= until;
        let messages = self.all.iter().filter(here).cloned();
        self.left = messages.map(Poll::Message).collect();
        self.left.push_back(if self.repeat {
            Poll::RoundEnd
        } else {
            Poll::End(None)
        });
    }
}

impl Source for List {
    fn poll(&mut self) -> Poll {
        if self.held_back.load(Ordering::SeqCst) > 0 {
            return Poll::Pending;
        }
        let next = self.left.pop_front().unwrap_or(Poll::End(None));
        if next == Poll::RoundEnd {
            self.fill(self.start);
        }
        next
    }

    fn is_filled(&mut self) -> bool {
        self.held_back.load(Ordering::SeqCst) == 0
    }

    fn seek(&mut self, to: Timestamp) {
        self.fill(to);
    }

    fn play(&mut self, start: Timestamp, until: Option<Timestamp>) {
        (self.start, self.until) = (start, until);
        self.fill(start);
    }
}

/// Messages published since the first step, with their times.
type Published = Vec<(Duration, String, Vec<u8>)>;

/// A playback under test, with its own time.
struct Stage {
    playback: Playback<List>,
    notebook: Notebook,
    now: Duration,
    published: Published,
    held_back: Arc<AtomicUsize>,
}

impl Stage {
    /// Plays messages of `/a` (0) and `/b` (1), stamped in milliseconds after the start.
    fn new(messages: &[(i64, usize)], options: PlayOptions) -> Self {
        Self::over(Notebook::default(), messages, options)
    }

    fn over(notebook: Notebook, messages: &[(i64, usize)], options: PlayOptions) -> Self {
        let mut transports = notebook.as_transports();
        let topic = |name: &str| TopicInfo {
            name: name.to_owned(),
            type_name: "std_msgs/msg/String".to_owned(),
            serialization_format: "cdr".to_owned(),
            ..TopicInfo::default()
        };
        let choice = TopicChoice::new(&options).expect("valid options");
        let topics = [topic("/a"), topic("/b")];
        let publications =
            Publications::create(&topics, &options, &choice, &mut transports, None).expect("publishers");
        let wake = Arc::default();
        let steps = Steps::new(&options.lockstep, &publications, &topics, None, &wake).expect("rules");
        let now = ms(1000);
        let names = publications.recorded_names();
        let clock_topic = ClockTopic::create(&options.clock, &names, now, &mut transports).expect("clock");
        let all: Vec<_> = messages
            .iter()
            .map(|&(millis, publication)| PlayMessage {
                stamp: at(millis),
                publication,
                payload: millis.to_string().into(),
                latched: false,
            })
            .collect();
        let end = all.last().map_or(at(0), |message| message.stamp);
        let held_back = Arc::new(AtomicUsize::new(0));
        let mut source = List {
            all,
            left: VecDeque::new(),
            repeat: options.repeat,
            start: at(0),
            until: None,
            held_back: Arc::clone(&held_back),
        };
        source.fill(at(0));
        let playback = Playback::new(PlaybackParts {
            source,
            publications,
            clock_topic,
            schedule: Schedule::paused(at(0), options.rate, options.delay),
            range: PlayRange::of((at(0), end), &options.window()).expect("a range"),
            start_paused: options.start_paused,
            persistent: options.persistent,
            begin: options
                .start_at
                .map(|at| Duration::from_nanos((at.as_nanos() - START).unsigned_abs())),
            discovery: Discovery::new(
                options.discovery_wait,
                options.wait_for_subscribers.clone(),
                options.subscribers_timeout,
            ),
            pace: options.pace,
            gaps: Gaps {
                skipped_from: options.skip_empty,
                jumps: Vec::new(),
            },
            steps,
        });
        Self {
            playback,
            notebook,
            now,
            published: Vec::new(),
            held_back,
        }
    }

    /// Lets time pass until `until` (since the first step) or the end, stepping exactly when asked to.
    fn run_until(&mut self, until: Duration) -> Next {
        let until = until + ms(1000);
        // Bounded, so that a playback that never lets time pass fails instead of hanging.
        for _ in 0..100_000 {
            let next = self.playback.step(self.now);
            let when = self.now - ms(1000);
            let new = self.notebook.published.lock().unwrap().split_off(0);
            self.published
                .extend(new.into_iter().map(|(topic, payload)| (when, topic, payload)));
            match next {
                Next::At(at) if at <= until => self.now = self.now.max(at),
                Next::Ended => return next,
                Next::At(_) | Next::Signal => {
                    self.now = self.now.max(until);
                    return next;
                }
            }
        }
        panic!("time stands still at {:?}", self.now);
    }

    fn ask(&mut self, command: Command) -> Receiver<Reply> {
        let (asker, answer) = Asker::new();
        let asker = Some(asker);
        self.playback.execute(self.now, Request { command, asker });
        answer
    }

    fn command(&mut self, command: Command) {
        self.playback.command(self.now, command);
    }

    /// Milliseconds and payloads of messages published on `topic`.
    fn on(&self, topic: &str) -> Vec<(u64, String)> {
        let here = self.published.iter().filter(|(_, name, _)| name == topic);
        here.map(|(when, _, payload)| {
            (
                u64::try_from(when.as_millis()).unwrap(),
                String::from_utf8_lossy(payload).into_owned(),
            )
        })
        .collect()
    }

    fn status(&self) -> super::status::PlayStatus {
        self.playback.progress().lock().unwrap().status(self.now)
    }
}

/// Options without a wait for discovery.
fn options() -> PlayOptions {
    PlayOptions {
        discovery_wait: Duration::ZERO,
        ..PlayOptions::default()
    }
}

fn pairs(expected: &[(u64, &str)]) -> Vec<(u64, String)> {
    expected
        .iter()
        .map(|&(when, payload)| (when, payload.to_owned()))
        .collect()
}

#[test]
fn messages_come_in_order_at_their_spacing() {
    let mut stage = Stage::new(&[(0, 0), (10, 1), (10, 0), (35, 1)], options());
    assert_eq!(stage.run_until(ms(10_000)), Next::Ended);
    assert_eq!(stage.on("/a"), pairs(&[(0, "0"), (10, "10")]));
    assert_eq!(stage.on("/b"), pairs(&[(10, "10"), (35, "35")]));
    let status = stage.status();
    assert_eq!((status.published, status.starved, status.round), (4, 0, 1));
    assert_eq!((status.lateness.count, status.lateness.max), (4, Duration::ZERO));
    assert_eq!(status.phase, PlayPhase::Ended);
}

#[test]
fn the_rate_divides_the_spacing() {
    let mut stage = Stage::new(
        &[(0, 0), (10, 0), (30, 0)],
        PlayOptions {
            rate: 2.0,
            ..options()
        },
    );
    stage.run_until(ms(10_000));
    assert_eq!(stage.on("/a"), pairs(&[(0, "0"), (5, "10"), (15, "30")]));
}

#[test]
fn a_new_rate_holds_from_where_playback_is() {
    let mut stage = Stage::new(&[(0, 0), (100, 0), (200, 0)], options());
    stage.run_until(ms(100));
    stage.command(Command::Rate(4.0));
    stage.run_until(ms(10_000));
    assert_eq!(stage.on("/a"), pairs(&[(0, "0"), (100, "100"), (125, "200")]));
}

#[test]
fn the_delay_comes_before_the_first_round_only() {
    let options = PlayOptions {
        delay: ms(500),
        repeat: true,
        ..options()
    };
    let mut stage = Stage::new(&[(0, 0), (20, 0)], options);
    stage.run_until(ms(559));
    let expected = [(500, "0"), (520, "20"), (520, "0"), (540, "20"), (540, "0")];
    assert_eq!(stage.on("/a"), pairs(&expected));
    assert_eq!(stage.status().round, 3);
}

#[test]
fn pausing_holds_messages_and_resuming_keeps_their_spacing() {
    let mut stage = Stage::new(&[(0, 0), (50, 0), (100, 0)], options());
    stage.run_until(ms(60));
    stage.command(Command::Pause);
    assert_eq!(stage.run_until(ms(1060)), Next::Signal);
    assert!(stage.status().paused);
    assert_eq!(stage.status().position, at(60));
    stage.command(Command::Toggle);
    assert_eq!(stage.run_until(ms(10_000)), Next::Ended);
    assert_eq!(stage.on("/a"), pairs(&[(0, "0"), (50, "50"), (1100, "100")]));
    assert_eq!(stage.status().lateness.max, Duration::ZERO);
}

#[test]
fn single_steps_play_the_next_messages_at_once_and_move_bag_time() {
    let mut stage = Stage::new(
        &[(0, 0), (50, 1), (100, 0)],
        PlayOptions {
            start_paused: true,
            ..options()
        },
    );
    stage.run_until(ms(20));
    assert_eq!(stage.status().published, 0);
    stage.command(Command::Burst(Some(2)));
    stage.run_until(ms(30));
    assert_eq!(
        (stage.on("/a"), stage.on("/b")),
        (pairs(&[(20, "0")]), pairs(&[(20, "50")]))
    );
    assert_eq!(stage.status().position, at(50));
    // Steps have no planned time.
    assert_eq!(stage.status().lateness.count, 0);
    stage.command(Command::Resume);
    stage.run_until(ms(10_000));
    assert_eq!(stage.on("/a").last(), pairs(&[(80, "100")]).last());
}

#[test]
fn single_steps_while_playing_do_nothing() {
    let mut stage = Stage::new(&[(0, 0), (50, 0)], options());
    stage.run_until(ms(10));
    stage.command(Command::Burst(Some(1)));
    stage.run_until(ms(40));
    assert_eq!(stage.status().published, 1);
}

#[test]
fn a_paused_playback_waits_at_the_end_so_that_one_can_seek_back() {
    let mut stage = Stage::new(
        &[(0, 0), (50, 0)],
        PlayOptions {
            start_paused: true,
            ..options()
        },
    );
    stage.run_until(ms(1));
    stage.command(Command::Burst(Some(10)));
    assert_eq!(stage.run_until(ms(20)), Next::Signal);
    assert_eq!(stage.status().published, 2);
    stage.command(Command::Seek(at(50)));
    stage.command(Command::Burst(Some(1)));
    assert_eq!(stage.run_until(ms(30)), Next::Signal);
    assert_eq!(stage.status().published, 3);
    stage.command(Command::Resume);
    assert_eq!(stage.run_until(ms(40)), Next::Ended);
}

#[test]
fn seeking_plays_on_from_there_forwards_and_backwards() {
    let mut stage = Stage::new(&[(0, 0), (50, 0), (100, 0), (150, 0)], options());
    stage.run_until(ms(10));
    stage.command(Command::Seek(at(90)));
    stage.run_until(ms(25));
    stage.command(Command::Seek(at(40)));
    stage.run_until(ms(10_000));
    let expected = [(0, "0"), (20, "100"), (35, "50"), (85, "100"), (135, "150")];
    assert_eq!(stage.on("/a"), pairs(&expected));
}

#[test]
fn seeking_stays_within_the_range() {
    let mut stage = Stage::new(
        &[(0, 0), (50, 0)],
        PlayOptions {
            start_paused: true,
            ..options()
        },
    );
    stage.run_until(ms(1));
    stage.command(Command::Seek(at(-1000)));
    assert_eq!(stage.status().position, at(0));
    assert_eq!(stage.ask(Command::Seek(at(1000))).try_recv(), Ok(Reply::Refused));
    assert_eq!(stage.status().position, at(0));
}

#[test]
fn a_seek_into_slow_input_is_no_starvation_and_makes_nothing_late() {
    let mut stage = Stage::new(&[(0, 0), (50, 0), (100, 0)], options());
    stage.run_until(ms(10));
    stage.held_back.store(1, Ordering::SeqCst);
    stage.command(Command::Seek(at(50)));
    stage.run_until(ms(300));
    stage.held_back.store(0, Ordering::SeqCst);
    stage.run_until(ms(10_000));
    assert_eq!(stage.on("/a"), pairs(&[(0, "0"), (300, "50"), (350, "100")]));
    assert_eq!(
        (stage.status().starved, stage.status().lateness.max),
        (0, Duration::ZERO)
    );
}

#[test]
fn input_that_comes_too_late_is_counted_and_catches_up() {
    let mut stage = Stage::new(&[(0, 0), (50, 0), (100, 0), (500, 0)], options());
    stage.run_until(ms(0));
    stage.held_back.store(1, Ordering::SeqCst);
    // The message at 50 is already in hand.
    stage.run_until(ms(200));
    stage.run_until(ms(250));
    stage.held_back.store(0, Ordering::SeqCst);
    stage.run_until(ms(10_000));
    assert_eq!(
        stage.on("/a"),
        pairs(&[(0, "0"), (50, "50"), (250, "100"), (500, "500")])
    );
    let status = stage.status();
    assert_eq!(status.starved, 1);
    assert!(
        status.lateness.max.abs_diff(ms(150)) < ms(1),
        "{:?}",
        status.lateness
    );
}

#[test]
fn playback_begins_when_enough_was_read_ahead() {
    let mut stage = Stage::new(&[(0, 0), (10, 0)], options());
    stage.held_back.store(1, Ordering::SeqCst);
    assert_eq!(stage.run_until(ms(70)), Next::Signal);
    assert_eq!(stage.status().phase, PlayPhase::Preparing);
    stage.held_back.store(0, Ordering::SeqCst);
    stage.run_until(ms(10_000));
    assert_eq!(stage.on("/a"), pairs(&[(70, "0"), (80, "10")]));
}

#[test]
fn playback_begins_once_matching_has_been_quiet_but_not_too_soon() {
    for (matched, expected) in [(50, 1250), (1100, 1400)] {
        let options = PlayOptions {
            discovery_wait: ms(5000),
            ..options()
        };
        let mut stage = Stage::new(&[(0, 0)], options);
        stage.run_until(ms(matched));
        stage.notebook.matched.store(1, Ordering::SeqCst);
        stage.run_until(ms(10_000));
        let (began, _) = stage.on("/a")[0];
        assert!(
            (expected..=expected + 20).contains(&began),
            "matched after {matched} ms, began after {began} ms"
        );
    }
}

#[test]
fn playback_begins_without_subscriptions_after_the_longest_wait() {
    let mut stage = Stage::new(
        &[(0, 0)],
        PlayOptions {
            discovery_wait: ms(700),
            ..options()
        },
    );
    stage.run_until(ms(10_000));
    assert_eq!(stage.on("/a"), pairs(&[(700, "0")]));
}

#[test]
fn pausing_before_the_beginning_begins_paused() {
    let mut stage = Stage::new(
        &[(0, 0)],
        PlayOptions {
            discovery_wait: ms(700),
            ..options()
        },
    );
    stage.run_until(ms(10));
    stage.command(Command::Pause);
    assert!(stage.status().paused);
    assert_eq!(stage.run_until(ms(900)), Next::Signal);
    assert_eq!(stage.status().published, 0);
}

#[test]
fn stopping_ends_it() {
    let mut stage = Stage::new(&[(0, 0), (50, 0)], options());
    stage.run_until(ms(10));
    stage.command(Command::Stop);
    assert_eq!(stage.run_until(ms(10_000)), Next::Ended);
    assert_eq!(stage.status().published, 1);
    assert!(stage.playback.into_played().stopped);
}

#[test]
fn refused_messages_are_counted_and_the_rest_is_played() {
    let mut stage = Stage::new(&[(0, 0), (10, 0)], options());
    stage.playback.command(stage.now, Command::Pause);
    stage.run_until(ms(1));
    let Stage { mut playback, .. } = stage;
    let mut now = ms(2000);
    playback.command(now, Command::Resume);
    // The first message of the list is replaced by one that the transport refuses.
    playback.replace_head(PlayMessage {
        stamp: at(0),
        publication: 0,
        payload: Bytes::from_static(b"refuse"),
        latched: false,
    });
    loop {
        match playback.step(now) {
            Next::At(at) => now = now.max(at),
            Next::Signal => panic!("nothing to wait for"),
            Next::Ended => break,
        }
    }
    let status = playback.progress().lock().unwrap().status(now);
    assert_eq!((status.published, status.refused), (1, 1));
    let reports = playback.into_played().parts.publications.into_reports();
    assert_eq!((reports[0].published, reports[0].refused), (1, 1));
    assert!(
        reports[0]
            .refusal
            .as_deref()
            .is_some_and(|reason| reason.contains("on purpose"))
    );
}

/// Bag time in a `/clock` payload, in milliseconds after the start.
fn clock_millis(payload: &[u8]) -> i64 {
    let seconds = i32::from_le_bytes(payload[4..8].try_into().unwrap());
    let nanos = u32::from_le_bytes(payload[8..12].try_into().unwrap());
    (i64::from(seconds) * 1_000_000_000 + i64::from(nanos) - START) / 1_000_000
}

impl Stage {
    fn clock(&self) -> Vec<(u64, i64)> {
        let here = self.published.iter().filter(|(_, name, _)| name == "/clock");
        here.map(|(when, _, payload)| (u64::try_from(when.as_millis()).unwrap(), clock_millis(payload)))
            .collect()
    }
}

#[test]
fn clock_ticks_at_its_rate_in_bag_time_also_while_paused() {
    let options = PlayOptions {
        clock: ClockSource::Rate(50.0),
        rate: 2.0,
        ..options()
    };
    let mut stage = Stage::new(&[(0, 0), (1000, 0)], options);
    stage.run_until(ms(45));
    stage.command(Command::Pause);
    stage.run_until(ms(85));
    assert_eq!(stage.clock(), [(0, 0), (20, 40), (40, 80), (60, 90), (80, 90)]);
}

#[test]
fn clock_comes_before_the_messages_that_drive_it() {
    for (clock, expected) in [
        (ClockSource::AllTopics, vec!["/clock", "/a", "/clock", "/b"]),
        (
            ClockSource::Topics(vec!["/b".to_owned()]),
            vec!["/a", "/clock", "/b"],
        ),
    ] {
        let mut stage = Stage::new(&[(0, 0), (10, 1)], PlayOptions { clock, ..options() });
        stage.run_until(ms(10_000));
        let order: Vec<_> = stage
            .published
            .iter()
            .map(|(_, topic, _)| topic.as_str())
            .collect();
        assert_eq!(order, expected);
        assert_eq!(stage.clock().last(), Some(&(10, 10)));
    }
}

#[test]
fn a_clock_ticks_at_its_rate_and_comes_before_messages() {
    for (topics, before_a) in [(None, 1), (Some(vec!["/b".to_owned()]), 0)] {
        let clock = ClockSource::Both { hertz: 100.0, topics };
        let mut stage = Stage::new(&[(0, 0), (95, 1)], PlayOptions { clock, ..options() });
        stage.run_until(ms(10_000));
        let mut expected = vec![(0, 0); before_a];
        expected.extend((0..10_u8).map(|tick| (u64::from(tick) * 10, i64::from(tick) * 10)));
        expected.push((95, 95));
        let clock: Vec<_> = stage
            .clock()
            .into_iter()
            .filter(|(when, _)| *when <= 95)
            .collect();
        assert_eq!(clock, expected);
    }
}

/// Creates publications of topics that `change` may alter.
fn publish(topics: &[TopicInfo], options: &PlayOptions) -> Result<Vec<PublishRequest>, super::PlayError> {
    let notebook = Notebook::default();
    let choice = TopicChoice::new(options).expect("valid options");
    Publications::create(topics, options, &choice, &mut notebook.as_transports(), None)?;
    let requests = notebook.requests.lock().unwrap().clone();
    Ok(requests)
}

fn topic(name: &str, offers: Vec<QosProfile>) -> TopicInfo {
    TopicInfo {
        name: name.to_owned(),
        type_name: "std_msgs/msg/String".to_owned(),
        serialization_format: "cdr".to_owned(),
        offered_qos_profiles: offers,
        type_description_hash: "RIHS01_00".to_owned(),
        ..TopicInfo::default()
    }
}

#[test]
fn publishers_offer_what_was_recorded_under_the_new_name() {
    let latched = QosProfile {
        durability: Durability::TransientLocal,
        depth: 1,
        ..QosProfile::ROS_DEFAULT
    };
    let options = PlayOptions {
        remap: BTreeMap::from([("/a".to_owned(), "/new".to_owned())]),
        qos_overrides: BTreeMap::from([("/b".to_owned(), QosProfile { depth: 77, ..latched })]),
        ..options()
    };
    let topics = [topic("/a", vec![latched; 25]), topic("/b", vec![])];
    let requests = publish(&topics, &options).expect("valid");
    assert_eq!(
        (requests[0].topic.as_str(), requests[1].topic.as_str()),
        ("/new", "/b")
    );
    assert_eq!(requests[0].qos.durability, Durability::TransientLocal);
    assert_eq!(
        requests[0].qos.depth, 25,
        "25 latched publishers keep a message each"
    );
    assert_eq!(requests[0].type_hash.as_deref(), Some("RIHS01_00"));
    assert_eq!(requests[1].qos.depth, 77);
}

#[test]
fn the_recorded_clock_gives_way_to_the_published_one() {
    let topics = [topic("/clock", vec![]), topic("/a", vec![])];
    let names = |clock| {
        let requests = publish(&topics, &PlayOptions { clock, ..options() }).expect("valid");
        requests
            .into_iter()
            .map(|request| request.topic)
            .collect::<Vec<_>>()
    };
    assert_eq!(names(ClockSource::Off), ["/clock", "/a"]);
    assert_eq!(names(ClockSource::Rate(40.0)), ["/a"]);
}

#[test]
fn other_serializations_are_refused_in_one_sentence_unless_left_out() {
    let topics = [
        TopicInfo {
            serialization_format: "json".to_owned(),
            ..topic("/j", vec![])
        },
        topic("/a", vec![]),
    ];
    let error = publish(&topics, &options()).expect_err("json").to_string();
    assert!(error.contains("/j") && error.contains("json"), "{error}");
    let requests = publish(
        &topics,
        &PlayOptions {
            exclude_topics: vec!["/j".to_owned()],
            ..options()
        },
    );
    assert_eq!(requests.expect("the rest").len(), 1);
}

#[test]
fn a_topic_that_the_transport_refuses_is_left_out_unless_it_is_the_only_one() {
    let topics = [topic("/a//b", vec![]), topic("/a", vec![])];
    assert_eq!(publish(&topics, &options()).expect("the rest").len(), 1);
    assert!(publish(&topics[..1], &options()).is_err());
}
