//! Recordings that wait for events: the bag has the messages sent around them, each once, and the rest is accounted for.

use super::*;
use crate::{
    MarkError, SteppedRecorder,
    options::{Trigger, TriggerOptions},
    status::TriggerStatus,
};
use holdall_bag::{
    reader::{Bag, BagAudit, BagSet},
    writer::{CompressionMode, OsFolder},
};
use holdall_io::sim::{SimClock, SimRng};
use holdall_model::{
    dynamic::TypePlan,
    interface::bundle::Bundle,
    topic::{TopicId, TopicInfo},
    trigger::PastEvents,
};
use std::num::NonZeroU32;

pub(super) const FLOAT: &str = "std_msgs/msg/Float64";

pub(super) fn float(value: f64) -> Vec<u8> {
    [&[0, 1, 0, 0][..], &value.to_le_bytes()].concat()
}

pub(super) fn ms(number: u64) -> Duration {
    Duration::from_millis(number)
}

fn triggers(texts: &[&str], before: Duration, after: Duration) -> TriggerOptions {
    TriggerOptions {
        triggers: texts.iter().map(|text| Trigger::parse(text).unwrap()).collect(),
        before,
        after,
        ring_bytes_max: 64 << 20,
    }
}

/// All messages in their order; packed payloads are unpacked by holdall's own reader.
fn read_all(recorded: &Recorded) -> Vec<(u64, String, Vec<u8>)> {
    if recorded.metadata().compression_mode.is_empty() {
        let messages = recorded.messages().into_iter();
        return messages
            .map(|read| (read.log_time, read.topic, read.payload))
            .collect();
    }
    let messages = BagSet::from(vec![Bag::open(&recorded.output).unwrap()]).messages(&Default::default());
    let messages = messages.map(|message| message.unwrap());
    messages
        .map(|read| {
            (
                read.log_time.as_nanos().cast_unsigned(),
                read.topic.name.clone(),
                read.payload.to_vec(),
            )
        })
        .collect()
}

/// A recording that is stepped, on a simulated clock, and all that was sent to it.
pub(super) struct Stepped {
    pub clock: SimClock,
    network: MemoryNetwork,
    pub recorder: SteppedRecorder,
    output: PathBuf,
    /// Log time, topic and payload of each message that was sent.
    sent: Vec<(Timestamp, String, Vec<u8>)>,
    _dir: tempfile::TempDir,
}

impl Stepped {
    fn new(options: TriggerOptions, change: impl FnOnce(&mut RecordOptions)) -> Self {
        Self::recording(|record| {
            record.triggers = Some(options);
            change(record);
        })
    }

    /// Records everything, unless the change says otherwise.
    pub fn recording(change: impl FnOnce(&mut RecordOptions)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (clock, network) = (SimClock::default(), MemoryNetwork::new());
        let mut record = World::new().options;
        record.output = dir.path().join("bag");
        change(&mut record);
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        let transport = MemoryTransport::new(&network, node("recorder"), Arc::clone(&shared));
        let blocks = BlockPoolOptions {
            block_bytes: 1 << 20,
            block_count: 6,
            huge_pages: false,
        };
        let output = record.output.clone();
        let disk = os_disk(DiskMode::Buffered, blocks);
        let transports: Vec<Box<dyn Transport>> = vec![Box::new(transport)];
        let recorder = SteppedRecorder::new(record, transports, shared, disk, Box::<OsFolder>::default());
        Self {
            clock,
            network,
            recorder: recorder.unwrap(),
            output,
            sent: Vec::new(),
            _dir: dir,
        }
    }

    pub fn publisher(&mut self, topic: &str, type_name: &str) -> (String, MemoryPublisher) {
        self.publisher_with(topic, type_name, RELIABLE)
    }

    fn publisher_with(&mut self, topic: &str, type_name: &str, qos: QosProfile) -> (String, MemoryPublisher) {
        self.publish(PublishRequest {
            topic: topic.to_owned(),
            type_name: type_name.to_owned(),
            qos,
            ..PublishRequest::default()
        })
    }

    fn publish(&mut self, request: PublishRequest) -> (String, MemoryPublisher) {
        let clock: Arc<dyn Clock> = Arc::new(self.clock.clone());
        let publisher = self.network.publisher(&node("talker"), &request, &clock);
        while publisher.matched_subscriptions() == 0 {
            self.clock.advance(ms(1));
            self.recorder.step_session();
        }
        (request.topic, publisher)
    }

    pub fn send(&mut self, (topic, publisher): &(String, MemoryPublisher), payload: &[u8]) -> Timestamp {
        let now = self.clock.now();
        publisher.send(payload);
        // They arrive in the order in which they were sent.
        self.recorder.step_session();
        self.sent.push((now, topic.clone(), payload.to_vec()));
        now
    }

    /// Lets the drain do all that can be done now.
    pub fn settle(&mut self) {
        self.recorder.step_session();
        while self.recorder.step_drain() {}
        // Messages leave the ring in several steps.
        for _ in 0..100 {
            self.recorder.step_drain();
        }
    }

    /// The events that the same triggers find in all messages that were sent.
    fn found_afterwards(
        &self,
        texts: &[&str],
        before: Duration,
        after: Duration,
        end: Timestamp,
    ) -> Vec<Timestamp> {
        let options = triggers(texts, before, after);
        let mut past = PastEvents::new(&options.triggers, before, after, Vec::new());
        let names = ["/value", "/scan"];
        for (topic, (name, type_name)) in (0..).map(TopicId).zip(names.into_iter().zip([FLOAT, STRING])) {
            let info = TopicInfo {
                name: name.to_owned(),
                type_name: type_name.to_owned(),
                serialization_format: "cdr".to_owned(),
                ..TopicInfo::default()
            };
            let definition = Bundle::embedded().define(type_name).unwrap();
            past.add_topic(
                topic,
                &info,
                &Ok(Arc::new(TypePlan::compile(&definition).unwrap())),
            );
        }
        for (time, topic, payload) in &self.sent {
            let number = names.iter().position(|name| name == topic).unwrap();
            past.message(TopicId(number as u32), *time, payload);
        }
        let found = past.end(Some(end));
        assert_eq!(found.faults, Vec::<String>::new());
        found.events.into_iter().map(|event| event.time).collect()
    }

    fn status(&self) -> TriggerStatus {
        self.recorder.status().triggered.unwrap()
    }

    /// Ends the recording; the folder lives as long as the second value.
    pub fn close(mut self) -> (Recorded, tempfile::TempDir) {
        self.settle();
        let report = self.recorder.stop();
        assert_eq!((&report.audit_faults, &report.failure), (&vec![], &None));
        let output = self.output;
        (Recorded { report, output }, self._dir)
    }

    /// Ends the recording; the folder lives as long as the second value. The messages are those around these events, in order and once, and all others are left out.
    fn end(mut self, events: &[(Timestamp, Duration, Duration)]) -> (Recorded, tempfile::TempDir) {
        self.settle();
        let report = self.recorder.stop();
        assert_eq!(report.audit_faults, Vec::<String>::new());
        assert_eq!(report.failure, None);
        let output = self.output;
        let recorded = Recorded { report, output };
        let is_wanted = |time: Timestamp| {
            let mut around = events.iter();
            around.any(|(event, before, after)| {
                event.saturating_since(time) <= *before && time.saturating_since(*event) <= *after
            })
        };
        let wanted = self.sent.iter().filter(|(time, ..)| is_wanted(*time));
        let wanted: Vec<(u64, &str, &[u8])> = wanted
            .map(|(time, topic, payload)| {
                (
                    time.as_nanos().cast_unsigned(),
                    topic.as_str(),
                    payload.as_slice(),
                )
            })
            .collect();
        let messages = read_all(&recorded);
        let found: Vec<(u64, &str, &[u8])> = messages
            .iter()
            .map(|(time, topic, payload)| (*time, topic.as_str(), payload.as_slice()))
            .collect();
        let (mut found, mut wanted) = (found, wanted);
        // Large messages have separate chunks, and the reader sorts by time only.
        found.sort();
        wanted.sort();
        let differs = found.iter().zip(&wanted).find(|(found, wanted)| found != wanted);
        let at = differs.map(|(found, wanted)| ((found.0, found.1), (wanted.0, wanted.1)));
        assert_eq!(at, None);
        assert!(
            found == wanted,
            "{} messages in the bag, {} wanted",
            found.len(),
            wanted.len()
        );
        let status = &recorded.report.status;
        assert!(!recorded.report.has_loss(), "{:?}", status.topics);
        for topic in &status.topics {
            let of_topic = self
                .sent
                .iter()
                .filter(|(_, name, _)| *name == topic.name)
                .count() as u64;
            assert_eq!(
                (topic.received, topic.recorded + topic.left_out),
                (of_topic, of_topic),
                "{topic:?}"
            );
        }
        (recorded, self._dir)
    }
}

#[test]
fn random_events_leave_the_union_of_their_surroundings() {
    let mut events_seen = 0;
    for seed in 0..60 {
        let mut rng = SimRng::new(seed);
        let (before, after) = (ms(rng.below(3000)), ms(rng.below(3000)));
        let texts = ["/value: data < 11.5", "/scan silent 700ms"];
        let mode = [CompressionMode::None, CompressionMode::Message][(seed % 2) as usize];
        let split = rng.chance(300_000).then(|| ms(100 + rng.below(1000)));
        let mut world = Stepped::new(triggers(&texts, before, after), |options| {
            options.files.compression.mode = mode;
            options.files.split.duration_max = split;
        });
        let value = world.publisher("/value", FLOAT);
        let scan = world.publisher("/scan", STRING);
        let (mut events, mut is_below, mut heard) = (Vec::new(), false, None::<Timestamp>);
        let mut requested = Vec::new();
        let silence = ms(700);
        for number in 0..300 {
            let longest = if rng.chance(50_000) { 4000 } else { 60 };
            world.clock.advance(ms(rng.below(longest)));
            match rng.below(100) {
                0..45 => {
                    let below = rng.chance(80_000);
                    let data = if below { 11.0 } else { 12.0 } + f64::from(number) / 1000.0;
                    let time = world.send(&value, &float(data));
                    if below && !std::mem::replace(&mut is_below, below) {
                        events.push(time);
                    }
                    is_below = below;
                }
                45..80 => {
                    let bytes = if rng.chance(50_000) { 100_000 } else { 200 };
                    let time = world.send(&scan, &payload(number as usize, bytes));
                    let fell = heard.map(|last| last.saturating_add(silence));
                    events.extend(fell.filter(|fell| *fell <= time));
                    heard = Some(time);
                }
                80..82 => requested.push(world.recorder.control().trigger("request").unwrap().time),
                82..90 => world.settle(),
                90..95 => world.recorder.step_session(),
                _ => drop(world.recorder.step_drain()),
            }
        }
        world.settle();
        let now = world.clock.now();
        let fell = heard.map(|last| last.saturating_add(silence));
        events.extend(fell.filter(|fell| *fell <= now));
        // What is found in the messages afterwards is what fired.
        let mut found: Vec<Timestamp> = world.found_afterwards(&texts, before, after, now);
        found.sort();
        events.sort();
        assert_eq!(found, events, "seed {seed}");
        events.append(&mut requested);
        assert_eq!(world.status().events(), events.len() as u64, "seed {seed}");
        events_seen += events.len();
        let events: Vec<_> = events.into_iter().map(|event| (event, before, after)).collect();
        drop(world.end(&events));
    }
    assert!(events_seen > 300, "{events_seen}");
}

#[test]
fn each_event_is_a_file_with_a_marker_and_close_ones_share_it() {
    let (before, after) = (ms(1000), ms(1500));
    let mut world = Stepped::new(triggers(&["/value: data < 11.5"], before, after), |_| {});
    let value = world.publisher("/value", FLOAT);
    let mut events = Vec::new();
    for step in 0..1000 {
        world.clock.advance(ms(10));
        let data = if [200, 320, 600, 800].contains(&step) {
            11.0
        } else {
            12.0
        };
        let time = world.send(&value, &float(data));
        if data < 11.5 {
            events.push((time, before, after));
        }
        world.settle();
        let is_recording = [200..=470, 600..=750, 800..=950]
            .iter()
            .any(|span| span.contains(&step));
        assert_eq!(world.status().is_recording, is_recording, "step {step}");
    }
    let (recorded, _dir) = world.end(&events);
    let files = &recorded.report.files;
    let of_file: Vec<usize> = files.iter().map(|file| read_messages(file).len()).collect();
    assert_eq!(
        of_file,
        [371, 251, 200, 0],
        "the third begins where the second ends, and an empty file waits for the next event"
    );
    for (file, wanted) in files.iter().zip([&events[..2], &events[2..3], &events[3..], &[]]) {
        let markers = Bag::open(file).unwrap().markers().unwrap();
        let times: Vec<Timestamp> = markers.iter().map(|marker| marker.time).collect();
        assert_eq!(times, wanted.iter().map(|(time, ..)| *time).collect::<Vec<_>>());
        assert!(markers.iter().all(|marker| marker.name == "/value: data < 11.5"));
    }
    let status = recorded.report.status.triggered.unwrap();
    assert_eq!((status.events(), status.triggers[0].events), (4, 4));
}

#[test]
fn an_event_that_is_soon_over_has_its_messages_in_its_own_file() {
    let (before, after) = (ms(1000), ms(50));
    let mut world = Stepped::new(triggers(&["/value: data < 11.5"], before, after), |_| {});
    let value = world.publisher("/value", FLOAT);
    let mut events = Vec::new();
    for step in 0..1000 {
        world.clock.advance(ms(10));
        let is_event = [200, 600].contains(&step);
        let time = world.send(&value, &float(if is_event { 11.0 } else { 12.0 }));
        if is_event {
            events.push((time, before, after));
        }
        world.settle();
    }
    let (recorded, _dir) = world.end(&events);
    let files = recorded.report.files.iter();
    let of_file: Vec<usize> = files.map(|file| read_messages(file).len()).collect();
    assert_eq!(of_file, [106, 106, 0]);
}

#[test]
fn the_file_of_an_event_begins_with_the_latched_state_that_the_ring_let_go() {
    let mut world = Stepped::new(triggers(&["/value: data < 11.5"], ms(1000), ms(500)), |record| {
        record.files.repeat.all = NonZeroU32::new(1);
    });
    let (map, value) = (
        world.publisher_with("/map", "std_msgs/msg/String", LATCHED),
        world.publisher("/value", FLOAT),
    );
    for step in 0..1600 {
        world.clock.advance(ms(10));
        if step % 800 == 0 {
            world.send(&map, &payload(step as usize, 40));
        }
        let is_event = [300, 600, 1100].contains(&step);
        world.send(&value, &float(if is_event { 11.0 } else { 12.0 }));
        world.settle();
    }
    let report = world.recorder.stop();
    assert_eq!(report.audit_faults, Vec::<String>::new());
    let files = &report.files;
    for (file, map) in files.iter().zip([0, 0, 800]) {
        let first = read_messages(file).into_iter().next().unwrap();
        assert_eq!(
            (first.topic.as_str(), first.payload),
            ("/map", payload(map, 40)),
            "{}",
            file.display()
        );
    }
    let bag = Bag::open(&world.output).unwrap();
    let maps = bag.messages().map(|message| message.unwrap());
    let maps: Vec<Vec<u8>> = maps
        .filter(|message| message.topic.name == "/map")
        .map(|message| message.payload.to_vec())
        .collect();
    assert_eq!(
        maps,
        [payload(0, 40), payload(800, 40)],
        "the second file's copy is the first one's"
    );
    assert_eq!(bag.hidden_by_topic(), [("/map".to_owned(), 1)].into());
    let audit = BagAudit::of(&bag).unwrap();
    assert_eq!(audit.faults, Vec::<String>::new());
    let of_map = audit.topics.iter().find(|topic| topic.name == "/map").unwrap();
    assert_eq!((of_map.recorded, of_map.repeated), (0, 3));
}

#[test]
fn a_flapping_condition_is_one_file_with_a_marker_a_second() {
    let (before, after) = (ms(100), ms(500));
    let mut world = Stepped::new(triggers(&["/value: data < 11.5"], before, after), |_| {});
    let value = world.publisher("/value", FLOAT);
    let mut events = Vec::new();
    for step in 0..1000 {
        world.clock.advance(ms(5));
        let time = world.send(&value, &float(11.0 + f64::from(step % 2)));
        if step % 2 == 0 {
            events.push((time, before, after));
        }
    }
    assert!(world.recorder.control().waits_for_events());
    world.settle();
    assert_eq!(world.status().events(), 500);
    let (recorded, _dir) = world.end(&events);
    assert_eq!(recorded.report.files.len(), 1);
    assert_eq!(Bag::open(&recorded.output).unwrap().markers().unwrap().len(), 5);
}

#[test]
fn a_ring_that_is_too_small_keeps_the_newest_and_says_so() {
    let mut options = triggers(&[], ms(60_000), ms(1000));
    options.ring_bytes_max = 1 << 20;
    let mut world = Stepped::new(options, |_| {});
    let scan = world.publisher("/scan", STRING);
    for number in 0..400 {
        world.clock.advance(ms(10));
        world.send(&scan, &payload(number, 10_000));
        world.settle();
    }
    let status = world.status();
    let kept = status.shortest_kept.unwrap();
    assert!(kept < ms(1200) && kept > ms(500), "{kept:?}");
    assert!(status.waiting_bytes <= 1 << 20, "{status:?}");
    // From here on all is wanted: more than the ring holds is written, and nothing is evicted.
    let event = world.recorder.control().trigger("now").unwrap().time;
    for number in 400..480 {
        world.clock.advance(ms(10));
        world.send(&scan, &payload(number, 100_000));
    }
    world.settle();
    drop(world.end(&[(event, ms(10 * (status.waiting - 1)), ms(1000))]));
}

#[test]
fn a_condition_that_cannot_be_checked_is_named_and_the_others_work() {
    let texts = [
        "/value: speed > 1",
        "/text: data > 1",
        "/unknown: x > 1",
        "/absent silent 1s",
        "/value: data > 5",
    ];
    let mut world = Stepped::new(triggers(&texts, ms(100), ms(100)), |_| {});
    let value = world.publisher("/value", FLOAT);
    let _text = world.publisher("/text", STRING);
    let _unknown = world.publisher("/unknown", "no_such/msg/Type");
    world.clock.advance(ms(500));
    let time = world.send(&value, &float(6.0));
    world.settle();
    let status = world.status();
    let faults: Vec<Option<&str>> = status.triggers.iter().map(|it| it.fault.as_deref()).collect();
    assert_eq!(
        faults,
        [
            Some("expression, character 1: std_msgs/msg/Float64 has no field speed; its fields are data"),
            Some("expression, character 6: a text and a number cannot be compared"),
            Some("no definition of no_such/msg/Type is known"),
            None,
            None
        ]
    );
    let known: Vec<bool> = status.triggers.iter().map(|it| it.is_topic_known).collect();
    assert_eq!(known, [true, true, true, false, true]);
    drop(world.end(&[(time, ms(100), ms(100))]));
}

#[test]
fn a_topic_without_room_to_wait_for_its_definition_is_a_fault_of_its_trigger() {
    let mut world = Stepped::new(triggers(&["/unknown: x > 1"], ms(100), ms(1000)), |options| {
        options.cache.bytes_max = 1 << 20;
    });
    // Its node is asked, and does not answer.
    let unknown = world.publish(PublishRequest {
        topic: "/unknown".to_owned(),
        type_name: "no_such/msg/Type".to_owned(),
        type_hash: Some(super::topics::own_hash()),
        qos: RELIABLE,
        ..PublishRequest::default()
    });
    assert_eq!(world.status().triggers[0].fault, None);
    let event = world.recorder.control().trigger("now").unwrap().time;
    for number in 0..60 {
        world.send(&unknown, &payload(number, 10_000));
        world.settle();
    }
    let status = world.status();
    let fault = status.triggers[0].fault.as_deref();
    assert_eq!(fault, Some("no definition of no_such/msg/Type is known"));
    drop(world.end(&[(event, ms(100), ms(1000))]));
}

#[test]
fn in_a_pause_nothing_falls_silent() {
    let mut world = Stepped::new(
        triggers(&["/scan silent 1s", "/scan rate < 5"], ms(100), ms(100)),
        |_| {},
    );
    let scan = world.publisher("/scan", STRING);
    for number in 0..20 {
        world.clock.advance(ms(100));
        world.send(&scan, &payload(number, 100));
    }
    world.settle();
    let control = world.recorder.control();
    control.pause();
    world.clock.advance(ms(60_000));
    world.settle();
    control.resume();
    world.settle();
    assert_eq!(world.status().events(), 0);
    let last = world.send(&scan, &payload(99, 100));
    world.clock.advance(ms(1500));
    world.settle();
    assert_eq!(world.status().triggers[0].events, 1);
    let time = last.saturating_add(ms(1000));
    drop(world.end(&[(time, ms(100), ms(100))]));
}

#[test]
fn a_rate_that_falls_is_an_event() {
    let (before, after) = (ms(2000), ms(500));
    let mut world = Stepped::new(triggers(&["/scan rate < 5"], before, after), |_| {});
    let (scan, other) = (
        world.publisher("/scan", STRING),
        world.publisher("/other", STRING),
    );
    let mut since = None;
    for step in 0..800 {
        world.clock.advance(ms(10));
        world.send(&other, &payload(step, 20));
        // 10 Hz, for three seconds 2 Hz, and 10 Hz again.
        let pause = if (300..600).contains(&step) { 50 } else { 10 };
        if step % pause == 0 {
            let time = world.send(&scan, &payload(step, 200));
            // The last five are then those of steps 270, 280, 290, 300 and 350.
            since = since.or((step == 270).then_some(time));
        }
        world.settle();
    }
    assert_eq!(world.status().triggers[0].events, 1);
    let event = since.unwrap().saturating_add(ms(1000));
    drop(world.end(&[(event, before, after)]));
}

/// A recording with one event at a step, where the time of day is set by hours at another: the steps whose messages are in each file.
fn steps_of_files(set: (usize, i64), event: usize, steps: usize) -> Vec<Vec<usize>> {
    let mut world = Stepped::new(triggers(&[], ms(300), ms(500)), |_| {});
    let scan = world.publisher("/scan", STRING);
    for step in 0..steps {
        world.clock.advance(ms(10));
        world.send(&scan, &payload(step, 200));
        if step == event {
            world.recorder.control().trigger("now").unwrap();
        }
        world.settle();
        if step == set.0 {
            world.clock.set_by(set.1 * 3_600_000_000_000);
            world.settle();
        }
    }
    let (recorded, _dir) = world.close();
    let step_of = |payload: &[u8]| (0..steps).find(|step| payload == self::payload(*step, 200));
    let files = recorded.report.files.iter();
    let of_files: Vec<Vec<usize>> = files
        .map(|file| {
            read_messages(file)
                .iter()
                .filter_map(|read| step_of(&read.payload))
                .collect()
        })
        .filter(|steps: &Vec<usize>| !steps.is_empty())
        .collect();
    let bag = Bag::open(&recorded.output).unwrap();
    let read: Vec<usize> = bag
        .messages()
        .filter_map(|message| step_of(&message.unwrap().payload))
        .collect();
    assert_eq!(read, of_files.concat(), "in the order of recording");
    let jumps: Vec<i64> = bag
        .clock_jumps()
        .iter()
        .map(|jump| jump.nanos() / 3_600_000_000_000)
        .collect();
    assert_eq!(jumps, [set.1]);
    assert_eq!(recorded.report.status.clock_jumps.count, 1);
    let span = bag.duration_without_jumps().unwrap();
    assert!(span >= ms(780) && span <= ms(820), "{span:?}");
    of_files
}

#[test]
fn spans_around_an_event_are_the_same_when_the_clock_is_set() {
    let all: Vec<usize> = (70..=150).collect();
    for (set, hours) in [(90, 1), (120, 1), (99, 200_000), (400, 1)] {
        assert_eq!(
            steps_of_files((set, hours), 100, 450),
            std::slice::from_ref(&all),
            "{hours} h at {set}"
        );
    }
    for (set, hours) in [(90, -1), (120, -1), (99, -9)] {
        let parted = [(70..=set).collect::<Vec<_>>(), (set + 1..=150).collect()];
        assert_eq!(
            steps_of_files((set, hours), 100, 450),
            parted,
            "{hours} h at {set}"
        );
    }
}

#[test]
fn markers_and_snapshots_are_events_where_events_are_waited_for() {
    let mut world = World::new();
    world.options.triggers = Some(triggers(&[], ms(60_000), ms(60_000)));
    let publisher = world.publisher("/chatter", RELIABLE);
    let recording = world.record();
    recording.wait_matched(&publisher);
    publisher.send(b"before");
    let has = |count: u64| {
        move |recording: &Recording| recording.recorder.status().triggered.unwrap().waiting >= count
    };
    recording.wait_until("it waits", has(1));
    assert_eq!(recording.recorder.status().recorded, 0);
    recording.control.add_marker("door opens").unwrap();
    recording.wait_recorded(1);
    publisher.send(b"after");
    recording.wait_recorded(2);
    assert!(recording.control.snapshot());
    recording.wait_until("the snapshot is an event", |recording| {
        recording.recorder.status().triggered.unwrap().requested == 2
    });
    let control = recording.control.clone();
    let recorded = recording.stop();
    assert_eq!(recorded.payloads("/chatter"), [&b"before"[..], b"after"]);
    let names: Vec<String> = Bag::open(&recorded.output)
        .unwrap()
        .markers()
        .unwrap()
        .into_iter()
        .map(|it| it.name)
        .collect();
    assert_eq!(names, ["door opens", "snapshot"]);
    assert_eq!(control.trigger("late"), Err(MarkError::Ended));
    let mut world = World::new();
    let recording = world.record();
    assert_eq!(recording.control.trigger("x"), Err(MarkError::NoTriggers));
    assert!(!recording.control.snapshot());
    drop(recording.stop());
}

#[test]
fn a_file_of_an_event_is_closed_while_the_recording_runs() {
    let mut world = World::new();
    world.options.triggers = Some(triggers(&["/chatter silent 1h"], ms(7_200_000), ms(2000)));
    world.options.files.lists_complete_files = true;
    let publisher = world.publisher("/chatter", RELIABLE);
    let recording = world.record();
    recording.wait_matched(&publisher);
    for number in 0..100 {
        publisher.send(&payload(number, 1000));
    }
    recording.wait_until("they wait", |recording| {
        recording.recorder.status().triggered.unwrap().waiting == 100
    });
    world.clock.advance(Duration::from_secs(3605));
    let complete = std::cell::RefCell::new(Vec::new());
    recording.wait_until("the event's file is complete", |recording| {
        complete
            .borrow_mut()
            .extend(recording.control.take_complete_files());
        !complete.borrow().is_empty()
    });
    assert_eq!(read_messages(&complete.borrow()[0]).len(), 100);
    let recorded = recording.stop();
    assert_eq!(
        (recorded.report.files.len(), recorded.payloads("/chatter").len()),
        (2, 100)
    );
}
