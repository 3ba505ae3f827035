//! Bags are played over a transport to subscriptions: all messages, in order, under the right name, type and QoS.

mod bags;

use bags::{Format, copy_of, data, message, write_mcap};
use holdall::{
    play::{
        control::PlayControl,
        error::PlayError,
        options::{ClockSource, Lockstep, Pace, PlayOptions},
        player::Player,
        status::{PlayPhase, PlayReport},
    },
    reader::{BagSet, MessageFilter, MessageOrder},
};
use holdall_io::clock::SystemClock;
use holdall_model::{
    message::{MessageHeader, Payload},
    qos::{Durability, QosProfile, Reliability},
    time::Timestamp,
    topic::NodeName,
};
use holdall_transport::{
    GraphEvent, PublishRequest, Sink, SubscribeRequest, Subscription, Transport,
    memory::{MemoryNetwork, MemoryTransport},
};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex},
    time::Duration,
};

/// Nothing here takes nearly as long; a test that waits this long has failed.
const DEADLINE: Duration = Duration::from_secs(20);

/// Received messages: topic and payload, in order.
type Arrived = Vec<(String, Vec<u8>)>;

/// A node that subscribes, and notifies when enough has arrived.
struct Listener {
    network: MemoryNetwork,
    transport: MemoryTransport,
    subscriptions: Vec<Box<dyn Subscription>>,
    arrived: Arc<(Mutex<Arrived>, Condvar)>,
}

struct Ear {
    topic: String,
    arrived: Arc<(Mutex<Arrived>, Condvar)>,
}

impl Sink for Ear {
    fn offer(&self, _header: MessageHeader, payload: Payload<'_>) {
        let mut bytes = Vec::new();
        match payload {
            Payload::Borrowed(slice) => bytes.extend_from_slice(slice),
            Payload::Loaned(loan) => loan.for_each_slice(&mut |slice| bytes.extend_from_slice(slice)),
        }
        self.arrived.0.lock().unwrap().push((self.topic.clone(), bytes));
        self.arrived.1.notify_all();
    }
}

fn join(network: &MemoryNetwork, name: &str) -> MemoryTransport {
    let node = NodeName {
        namespace: "/".to_owned(),
        name: name.to_owned(),
    };
    MemoryTransport::new(network, node, Arc::new(SystemClock))
}

impl Listener {
    fn new(topics: &[(&str, &str)]) -> Self {
        let network = MemoryNetwork::new();
        let transport = join(&network, "listener");
        let mut listener = Self {
            network,
            transport,
            subscriptions: Vec::new(),
            arrived: Arc::default(),
        };
        for (topic, type_name) in topics {
            let sensor = QosProfile {
                reliability: Reliability::BestEffort,
                ..QosProfile::ROS_DEFAULT
            };
            listener.listen(topic, type_name, sensor);
        }
        listener
    }

    fn listen(&mut self, topic: &str, type_name: &str, qos: QosProfile) {
        let ear = Ear {
            topic: topic.to_owned(),
            arrived: Arc::clone(&self.arrived),
        };
        let request = SubscribeRequest {
            topic: topic.to_owned(),
            type_name: type_name.to_owned(),
            qos,
        };
        self.subscriptions.push(
            self.transport
                .subscribe(&request, Arc::new(ear))
                .expect("subscribe"),
        );
    }

    fn start(&self, options: PlayOptions) -> Result<Player, PlayError> {
        Player::start(
            options,
            vec![Box::new(join(&self.network, "player"))],
            Arc::new(SystemClock),
        )
    }

    fn play(&self, options: PlayOptions) -> PlayReport {
        self.start(options).expect("start").wait()
    }

    fn arrived(&self) -> Arrived {
        self.arrived.0.lock().unwrap().clone()
    }

    /// Topics in order of arrival.
    fn topics(&self) -> Vec<String> {
        self.arrived().into_iter().map(|(topic, _)| topic).collect()
    }

    fn wait_for(&self, count: usize) {
        let arrived = self.arrived.0.lock().unwrap();
        let waited = self
            .arrived
            .1
            .wait_timeout_while(arrived, DEADLINE, |arrived| arrived.len() < count);
        let (arrived, timeout) = waited.unwrap();
        assert!(!timeout.timed_out(), "only {} of {count} arrived", arrived.len());
    }
}

const STRING: &str = "std_msgs/msg/String";

const SAMPLE_TOPICS: [(&str, &str); 3] = [
    ("/chatter", STRING),
    ("/imu/data", "sensor_msgs/msg/Imu"),
    ("/map/latched", STRING),
];

/// Plays so fast that tests do not wait, and begins at once.
fn options(inputs: &[PathBuf]) -> PlayOptions {
    PlayOptions {
        inputs: inputs.to_vec(),
        rate: 1e6,
        discovery_wait: Duration::ZERO,
        ..PlayOptions::default()
    }
}

/// All messages of a bag as they should arrive.
fn expected(paths: &[PathBuf]) -> Arrived {
    let messages = BagSet::open(paths).unwrap().messages(&MessageFilter::default());
    messages
        .map(|message| message.unwrap())
        .map(|m| (m.topic.name.clone(), m.payload.to_vec()))
        .collect()
}

/// Writes a bag with messages of `/a` and `/b` at these milliseconds.
fn small_bag(directory: &Path) -> PathBuf {
    let path = directory.join("small.mcap");
    let messages = [("/a", 0), ("/b", 10), ("/a", 20), ("/b", 30), ("/a", 40)];
    write_mcap(
        &path,
        &messages.map(|(topic, millis)| message(topic, millis)),
        &Format::default(),
    );
    path
}

fn small_texts(arrived: &Arrived) -> Vec<String> {
    let text = |payload: &[u8]| String::from_utf8_lossy(&payload[8..payload.len() - 1]).into_owned();
    arrived.iter().map(|(_, payload)| text(payload)).collect()
}

/// A node that answers each message of `/a` with one on `/out`, but the second; it lives as long as the subscription.
fn answer(network: &MemoryNetwork) -> Box<dyn Subscription> {
    struct Hear(std::sync::mpsc::SyncSender<()>);
    impl Sink for Hear {
        fn offer(&self, _header: MessageHeader, _payload: Payload<'_>) {
            // Fails when the node has ended.
            let _ = self.0.try_send(());
        }
    }
    let mut transport = join(network, "node");
    let request = PublishRequest {
        topic: "/out".to_owned(),
        type_name: STRING.to_owned(),
        qos: QosProfile::ROS_DEFAULT,
        ..PublishRequest::default()
    };
    let mut publisher = transport.publish(&request).expect("publish");
    let (sender, heard) = std::sync::mpsc::sync_channel(100);
    let request = SubscribeRequest {
        topic: "/a".to_owned(),
        type_name: STRING.to_owned(),
        qos: QosProfile::ROS_DEFAULT,
    };
    let subscription = transport.subscribe(&request, Arc::new(Hear(sender)));
    std::thread::spawn(move || {
        for count in 0.. {
            if heard.recv().is_err() {
                break;
            }
            if count != 1 {
                publisher
                    .publish(&[0, 1, 0, 0, 1, 0, 0, 0, 0])
                    .expect("published");
            }
        }
        drop(transport);
    });
    subscription.expect("subscribe")
}

#[test]
fn in_lock_step_messages_wait_for_answers_and_a_missing_one_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let listener = Listener::new(&[]);
    let node = answer(&listener.network);
    let lockstep = Lockstep {
        rules: vec!["/a=/out:1".parse().unwrap()],
        timeout: Duration::from_millis(300),
        ..Lockstep::default()
    };
    let options = PlayOptions {
        pace: Pace::Listeners,
        clock: ClockSource::Rate(100.0),
        lockstep,
        ..options(&[small_bag(directory.path())])
    };
    let report = listener.play(options);
    let steps = report.steps.expect("lock-step");
    assert_eq!((steps.steps, steps.answered, steps.missing), (3, 2, 1));
    let first = steps.first_missing.expect("a sentence");
    assert!(
        first.starts_with("message 2 that waits for an answer, of /a at"),
        "{first}"
    );
    assert_eq!(steps.answers["/out"].messages, 2);
    assert_eq!((report.failure, report.status.published), (None, 5));
    assert!(report.clock_published >= 5 && steps.span == Duration::from_millis(40));
    assert_eq!(steps.published_sha256.len(), 64);
    drop(node);
}

#[test]
fn every_message_of_foreign_bags_arrives_in_order_byte_for_byte() {
    for bag in [
        "rosbag2/mcap_default",
        "rosbag2/mcap_split3",
        "rosbag2/mcap_zstd_small",
        "rosbags_written",
    ] {
        let listener =
            Listener::new(&[&SAMPLE_TOPICS[..], &[("/stamp", "builtin_interfaces/msg/Time")]].concat());
        let inputs = [data(bag)];
        let report = listener.play(options(&inputs));
        let expected = expected(&inputs);
        assert_eq!(listener.arrived(), expected, "{bag}");
        assert_eq!(report.status.published, expected.len() as u64, "{bag}");
        assert_eq!(
            report.topics.iter().map(|topic| topic.published).sum::<u64>(),
            expected.len() as u64
        );
        assert_eq!((report.failure, report.stopped), (None, false), "{bag}");
        assert_eq!(report.status.phase, PlayPhase::Ended);
    }
}

#[test]
fn publishers_have_the_recorded_type_hash_and_qos() {
    let listener = Listener::new(&SAMPLE_TOPICS);
    let Listener { network, .. } = &listener;
    let mut watcher = join(network, "watcher");
    let player = listener.start(PlayOptions {
        start_paused: true,
        ..options(&[data("rosbag2/mcap_default")])
    });
    let player = player.expect("start");
    let mut events = Vec::new();
    watcher.poll_graph(&mut events).expect("graph");
    let found = |topic: &str| {
        let publisher = |event: &GraphEvent| match event {
            GraphEvent::Publisher(info) if info.topic == topic => Some(info.clone()),
            _ => None,
        };
        events
            .iter()
            .find_map(publisher)
            .unwrap_or_else(|| panic!("no publisher of {topic}"))
    };
    let imu = found("/imu/data");
    assert_eq!(imu.type_name, "sensor_msgs/msg/Imu");
    let hash = "RIHS01_7d9a00ff131080897a5ec7e26e315954b8eae3353c3f995c55faf71574000b5b";
    assert_eq!(imu.type_hash.as_deref(), Some(hash));
    assert_eq!(imu.qos.reliability, Reliability::BestEffort);
    assert_eq!(found("/chatter").qos.reliability, Reliability::Reliable);
    // Topics without a message have a publisher, too: nodes that wait for one must find it.
    assert_eq!(
        found("/empty/never_published").type_name,
        "std_msgs/msg/UInt8MultiArray"
    );
    drop(player);
}

#[test]
fn latched_topics_reach_subscriptions_that_come_after_the_message() {
    let directory = tempfile::tempdir().unwrap();
    let path = small_bag(directory.path());
    let latched = QosProfile {
        durability: Durability::TransientLocal,
        ..QosProfile::ROS_DEFAULT
    };
    let mut listener = Listener::new(&[("/b", STRING)]);
    let options = PlayOptions {
        qos_overrides: [("/a".to_owned(), latched)].into(),
        start_paused: true,
        ..options(&[path])
    };
    let player = listener.start(options).expect("start");
    assert_eq!(player.control().burst(Some(4)), 4);
    listener.wait_for(2);
    listener.listen("/a", STRING, latched);
    assert_eq!(
        small_texts(&listener.arrived()),
        ["/b 10", "/b 30", "/a 0", "/a 20"]
    );
    drop(player);
}

#[test]
fn remapped_topics_appear_under_their_new_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = small_bag(directory.path());
    let listener = Listener::new(&[("/a", STRING), ("/b", STRING), ("/robot/a", STRING)]);
    let report = listener.play(PlayOptions {
        remap: [("/a".into(), "/robot/a".into())].into(),
        ..options(&[path])
    });
    assert_eq!(
        listener.topics(),
        ["/robot/a", "/b", "/robot/a", "/b", "/robot/a"]
    );
    assert_eq!(
        (
            report.topics[0].name.as_str(),
            report.topics[0].published_as.as_str()
        ),
        ("/a", "/robot/a")
    );
}

#[test]
fn filters_choose_what_is_played() {
    let directory = tempfile::tempdir().unwrap();
    let path = small_bag(directory.path());
    let played = |change: fn(&mut PlayOptions)| {
        let listener = Listener::new(&[("/a", STRING), ("/b", STRING)]);
        let mut options = options(std::slice::from_ref(&path));
        change(&mut options);
        listener.play(options);
        small_texts(&listener.arrived())
    };
    assert_eq!(
        played(|options| options.topics = vec!["/b".into()]),
        ["/b 10", "/b 30"]
    );
    assert_eq!(
        played(|options| options.exclude_topics = vec!["/a".into()]),
        ["/b 10", "/b 30"]
    );
    assert_eq!(
        played(|options| options.regex = Some("/[b-z]".into())),
        ["/b 10", "/b 30"]
    );
    assert_eq!(
        played(|options| options.exclude_regex = Some(".*a".into())),
        ["/b 10", "/b 30"]
    );
}

#[test]
fn offset_and_duration_bound_what_is_played() {
    let directory = tempfile::tempdir().unwrap();
    let path = small_bag(directory.path());
    let start = i64::try_from(bags::START).unwrap();
    let played = |change: &dyn Fn(&mut PlayOptions)| {
        let listener = Listener::new(&[("/a", STRING), ("/b", STRING)]);
        let mut options = options(std::slice::from_ref(&path));
        change(&mut options);
        let report = listener.play(options);
        (small_texts(&listener.arrived()), report.status.duration)
    };
    let ms = Duration::from_millis;
    let (texts, duration) = played(&|options| options.start_offset = ms(10));
    assert_eq!(
        (texts, duration),
        (
            vec!["/b 10", "/a 20", "/b 30", "/a 40"]
                .into_iter()
                .map(String::from)
                .collect(),
            ms(30)
        )
    );
    let (texts, duration) = played(&|options| {
        options.start_offset = ms(5);
        options.playback_duration = Some(ms(15));
    });
    assert_eq!(
        (texts, duration),
        (vec!["/b 10".to_owned(), "/a 20".to_owned()], ms(15))
    );
    // The later of both limits wins.
    let (texts, _) = played(&|options| {
        options.playback_duration = Some(ms(1));
        options.playback_until = Some(Timestamp::from_nanos(start + 20_000_000));
    });
    assert_eq!(texts, ["/a 0", "/b 10", "/a 20"]);
}

#[test]
fn repeating_plays_again_and_again_until_stopped() {
    let directory = tempfile::tempdir().unwrap();
    let path = small_bag(directory.path());
    let listener = Listener::new(&[("/a", STRING), ("/b", STRING)]);
    let player = listener
        .start(PlayOptions {
            repeat: true,
            ..options(&[path])
        })
        .expect("start");
    listener.wait_for(23);
    let report = player.stop();
    let texts = small_texts(&listener.arrived());
    let round = ["/a 0", "/b 10", "/a 20", "/b 30", "/a 40"];
    assert!(
        texts
            .iter()
            .zip(round.iter().cycle())
            .all(|(found, expected)| found == expected),
        "{texts:?}"
    );
    assert!(report.stopped && report.status.round >= 5, "{:?}", report.status);
    assert_eq!(report.status.published, texts.len() as u64);
}

#[test]
fn a_paused_playback_is_steered_from_elsewhere() {
    let directory = tempfile::tempdir().unwrap();
    let path = small_bag(directory.path());
    let listener = Listener::new(&[("/a", STRING), ("/b", STRING)]);
    let player = listener
        .start(PlayOptions {
            start_paused: true,
            ..options(&[path])
        })
        .expect("start");
    let control: PlayControl = player.control();
    let start = i64::try_from(bags::START).unwrap();
    assert_eq!(control.burst(Some(2)), 2);
    listener.wait_for(2);
    std::thread::scope(|scope| {
        let control = control.clone();
        scope.spawn(move || {
            assert!(control.seek(Timestamp::from_nanos(start + 30_000_000)));
            assert!(control.play_next());
        });
    });
    listener.wait_for(3);
    assert!(!player.is_finished() && player.status().paused);
    assert!(!control.set_rate(-1.0) && control.set_rate(1e6));
    assert!(control.toggle());
    let report = player.wait();
    assert!(!control.pause() && !control.play_next() && !control.seek(Timestamp::from_nanos(start)));
    assert_eq!(
        control.burst(None),
        0,
        "after the end nothing is done, and no call waits"
    );
    assert_eq!(
        small_texts(&listener.arrived()),
        ["/a 0", "/b 10", "/b 30", "/a 40"]
    );
    assert_eq!(
        report.status.lateness.count, 1,
        "only the last one had a planned time"
    );
}

#[test]
fn clock_is_published_and_the_recorded_one_left_out() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sim.mcap");
    write_mcap(
        &path,
        &[("/clock", 0), ("/a", 10)].map(|(topic, millis)| message(topic, millis)),
        &Format::default(),
    );
    let listener = Listener::new(&[("/a", STRING), ("/clock", "rosgraph_msgs/msg/Clock")]);
    let report = listener.play(PlayOptions {
        clock: ClockSource::AllTopics,
        ..options(&[path])
    });
    let arrived = listener.arrived();
    assert_eq!(listener.topics(), ["/clock", "/a"]);
    assert_eq!(report.clock_published, 1);
    let stamp = bags::START + 10_000_000;
    assert_eq!(
        arrived[0].1[4..8],
        u32::try_from(stamp / 1_000_000_000).unwrap().to_le_bytes()
    );
    assert_eq!(
        arrived[0].1[8..12],
        u32::try_from(stamp % 1_000_000_000).unwrap().to_le_bytes()
    );
}

#[test]
fn several_bags_play_as_one_by_time() {
    let directory = tempfile::tempdir().unwrap();
    let (one, two) = (directory.path().join("1.mcap"), directory.path().join("2.mcap"));
    write_mcap(
        &one,
        &[0, 20].map(|millis| message("/a", millis)),
        &Format::default(),
    );
    write_mcap(
        &two,
        &[10, 30].map(|millis| message("/a", millis)),
        &Format::default(),
    );
    let listener = Listener::new(&[("/a", STRING)]);
    let report = listener.play(options(&[one, two]));
    assert_eq!(
        small_texts(&listener.arrived()),
        ["/a 0", "/a 10", "/a 20", "/a 30"]
    );
    assert_eq!(report.topics.len(), 1);
}

#[test]
fn the_order_of_sending_can_be_played() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sent.mcap");
    let sent = |log_millis, publish_millis| bags::Message {
        publish_millis,
        ..message("/a", log_millis)
    };
    write_mcap(
        &path,
        &[sent(10, 9), sent(20, 3), sent(30, 29)],
        &Format::default(),
    );
    let listener = Listener::new(&[("/a", STRING)]);
    let report = listener.play(PlayOptions {
        message_order: MessageOrder::Sent,
        ..options(&[path])
    });
    assert_eq!(small_texts(&listener.arrived()), ["/a 20", "/a 10", "/a 30"]);
    let start = i64::try_from(bags::START).unwrap();
    assert_eq!(report.status.start, Timestamp::from_nanos(start + 3_000_000));
}

#[test]
fn a_tiny_read_ahead_plays_everything() {
    let inputs = [data("rosbag2/mcap_split3")];
    let listener = Listener::new(&SAMPLE_TOPICS);
    let options = PlayOptions {
        read_ahead_messages: 1,
        read_ahead_bytes_max: 1,
        ..options(&inputs)
    };
    listener.play(options);
    assert_eq!(listener.arrived(), expected(&inputs));
}

#[test]
fn a_truncated_bag_plays_what_is_left_and_says_so() {
    let (_directory, path) = copy_of("rosbag2/mcap_default");
    let file = path.join("mcap_default_0.mcap");
    let whole = expected(std::slice::from_ref(&path));
    let messages: Vec<_> = (0..500).map(|millis| message("/a", millis)).collect();
    write_mcap(&file, &messages, &Format::default());
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    assert!(!whole.is_empty());
    let listener = Listener::new(&[("/a", STRING)]);
    let player = listener.start(options(&[file])).expect("start");
    assert!(
        player.notices().iter().any(|notice| notice.contains("damaged")),
        "{:?}",
        player.notices()
    );
    player.wait();
    let texts = small_texts(&listener.arrived());
    assert!(texts.len() > 100, "{}", texts.len());
    assert!(
        texts
            .iter()
            .enumerate()
            .all(|(index, text)| *text == format!("/a {index}"))
    );
}

#[test]
fn what_cannot_be_played_is_refused_in_one_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let path = small_bag(directory.path());
    let json = directory.path().join("json.mcap");
    write_mcap(
        &json,
        &[message("/a", 0)],
        &Format {
            message_encoding: "json",
            ..Format::default()
        },
    );
    let empty = directory.path().join("empty.mcap");
    write_mcap(&empty, &[], &Format::default());
    let (_other, sqlite) = copy_of("rosbag2/mcap_default");
    fs::write(sqlite.join("mcap_default_0.mcap"), b"SQLite format 3\0 and so on").unwrap();
    let refuse = |change: &dyn Fn(&mut PlayOptions), reason: &str| {
        let mut options = options(std::slice::from_ref(&path));
        change(&mut options);
        let text = Listener::new(&[])
            .start(options)
            .err()
            .expect("must be refused")
            .to_string();
        assert!(text.contains(reason) && !text.contains('\n'), "{text}");
    };
    refuse(
        &|options| options.rate = 0.0,
        "the rate must be a number above zero, not 0",
    );
    refuse(
        &|options| options.clock = ClockSource::Rate(f64::NAN),
        "the rate of /clock",
    );
    refuse(&|options| options.read_ahead_messages = 0, "read-ahead");
    refuse(&|options| options.inputs.clear(), "at least one bag");
    refuse(&|options| options.regex = Some("(".into()), "regular expression");
    refuse(
        &|options| options.topics = vec!["/nowhere".into()],
        "topic /nowhere is not in what is played; there are /a, /b",
    );
    refuse(
        &|options| options.regex = Some("a".into()),
        "the pattern must match the whole name, try \".*a.*\"",
    );
    refuse(
        &|options| options.regex = Some("cam".into()),
        "none of the topics matches; there are ",
    );
    refuse(
        &|options| options.start_offset = Duration::from_secs(5),
        "beyond its duration",
    );
    refuse(
        &|options| options.playback_until = Some(Timestamp::default()),
        "before its start",
    );
    refuse(&|options| options.inputs = vec![json.clone()], "\"json\"");
    refuse(
        &|options| options.inputs = vec![empty.clone()],
        "holds no messages",
    );
    refuse(
        &|options| options.inputs = vec![directory.path().join("nowhere")],
        "cannot open",
    );
}

#[test]
fn topics_that_are_asked_for_and_not_there_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = small_bag(directory.path());
    let topics = vec!["/a".to_owned(), "/nowhere".to_owned()];
    let player = Listener::new(&[])
        .start(PlayOptions {
            topics,
            ..options(&[path])
        })
        .expect("start");
    assert_eq!(player.notices(), ["topic /nowhere is not in the bag"]);
    assert_eq!(player.topics(), ["/a"]);
}

#[test]
fn topics_that_the_metadata_does_not_list_are_played() {
    let (_directory, path) = copy_of("rosbags_written");
    let metadata = path.join("metadata.yaml");
    let text = fs::read_to_string(&metadata).unwrap();
    fs::write(&metadata, text.replace("name: /stamp", "name: /another")).unwrap();
    let listener = Listener::new(&[("/stamp", "builtin_interfaces/msg/Time")]);
    listener.play(options(&[path]));
    assert_eq!(listener.topics(), ["/stamp"; 5]);
}

#[test]
fn dropping_a_player_ends_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = small_bag(directory.path());
    let listener = Listener::new(&[("/a", STRING)]);
    let player = listener
        .start(PlayOptions {
            repeat: true,
            rate: 0.001,
            ..options(&[path])
        })
        .expect("start");
    listener.wait_for(1);
    drop(player);
}
