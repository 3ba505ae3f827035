//! The services of a player's node, with rosbag2's meaning.

use super::answer::{Answer, Handler, bundled, nanos_in};
use holdall_bag::decode::Decoders;
use holdall_model::{
    cdr::CdrWriter,
    interface::{Definition, bundle::Bundle},
    qos::QosProfile,
    time::Timestamp,
};
use holdall_play::{PlayControl, PlayWindow, ReadSplit};
use holdall_transport::{PublishRequest, Publisher, ServiceWake, Transport};
use serde_json::{Value, json};
use std::{
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    time::Duration,
};

/// Name below the node's, and type.
pub const SERVICES: [(&str, &str); 11] = [
    ("burst", "rosbag2_interfaces/srv/Burst"),
    ("get_rate", "rosbag2_interfaces/srv/GetRate"),
    ("is_paused", "rosbag2_interfaces/srv/IsPaused"),
    ("pause", "rosbag2_interfaces/srv/Pause"),
    ("play", "rosbag2_interfaces/srv/Play"),
    ("play_next", "rosbag2_interfaces/srv/PlayNext"),
    ("resume", "rosbag2_interfaces/srv/Resume"),
    ("seek", "rosbag2_interfaces/srv/Seek"),
    ("set_rate", "rosbag2_interfaces/srv/SetRate"),
    ("stop", "rosbag2_interfaces/srv/Stop"),
    ("toggle_paused", "rosbag2_interfaces/srv/TogglePaused"),
];

/// `RETURN_CODE_RESUME_FAILED`.
const RESUME_FAILED: i64 = 3;

/// Bursts that run at the same time; each has a thread.
const BURSTS_MAX: usize = 4;

/// Targets of the services.
pub trait PlayerCommands: Clone + Send + 'static {
    /// Stops bag time; false if nothing is played.
    fn pause(&self) -> bool;
    /// Lets bag time continue; false if nothing is played.
    fn resume(&self) -> bool;
    /// Pauses or resumes; false if nothing is played.
    fn toggle(&self) -> bool;
    /// Whether bag time rests.
    fn is_paused(&self) -> bool;
    /// The speed.
    fn rate(&self) -> f64;
    /// Changes the speed; false for one that is not above zero.
    fn set_rate(&self, rate: f64) -> bool;
    /// Plays a part of the bag; false if something is played already.
    fn play(&self, window: PlayWindow) -> bool;
    /// Plays the next messages at once, `None` for all; how many were.
    fn burst(&self, count: Option<u64>) -> u64;
    /// Continues at this time; false outside of the bag.
    fn seek(&self, to: Timestamp) -> bool;
    /// Ends playing; false if nothing is played.
    fn stop(&self) -> bool;
}

impl PlayerCommands for PlayControl {
    fn pause(&self) -> bool {
        self.pause()
    }

    fn resume(&self) -> bool {
        self.resume()
    }

    fn toggle(&self) -> bool {
        self.toggle()
    }

    fn is_paused(&self) -> bool {
        self.is_paused()
    }

    fn rate(&self) -> f64 {
        self.rate()
    }

    fn set_rate(&self, rate: f64) -> bool {
        self.set_rate(rate)
    }

    fn play(&self, window: PlayWindow) -> bool {
        self.play(window)
    }

    fn burst(&self, count: Option<u64>) -> u64 {
        self.burst(count)
    }

    fn seek(&self, to: Timestamp) -> bool {
        self.seek(to)
    }

    fn stop(&self) -> bool {
        self.stop()
    }
}

/// Answers the requests to a player's services.
pub struct PlayerHandler<P> {
    player: P,
    bursts: Vec<std::thread::JoinHandle<()>>,
    events: Option<ReadSplitEvents>,
    definitions: Option<Decoders>,
}

impl<P: PlayerCommands> PlayerHandler<P> {
    /// Acts on this player, and publishes its events.
    pub fn new(player: P, events: Option<ReadSplitEvents>) -> Self {
        Self {
            player,
            bursts: Vec::new(),
            events,
            definitions: None,
        }
    }

    /// Gives the definitions in these bags to nodes that ask for them.
    pub fn with_definitions(mut self, definitions: Decoders) -> Self {
        self.definitions = Some(definitions);
        self
    }

    fn resume(&self, request: &Value) -> Answer {
        if nanos_in(&request["resume_time"]) != 0 {
            let reason = "a player resumes at once: resume_time must be zero";
            tracing::warn!("resume: {reason}");
            return Answer::code(RESUME_FAILED, reason);
        }
        self.player.resume();
        Answer::code(0, "")
    }

    fn play(&self, request: &Value) -> Answer {
        let offset = nanos_in(&request["start_offset"]);
        let duration = nanos_in(&request["playback_duration"]);
        let until = nanos_in(&request["playback_until_timestamp"]);
        let Ok(offset) = u64::try_from(offset) else {
            return Answer::Refusal("the start offset is negative".to_owned());
        };
        if (duration, until) == (0, 0) {
            // rosbag2's rule, which `ros2 service call` without values runs into.
            tracing::info!(
                "play: a duration and an end of zero play nothing; with negative seconds in both, all is played"
            );
        }
        let window = PlayWindow {
            start_offset: Duration::from_nanos(offset),
            duration: u64::try_from(duration).ok().map(Duration::from_nanos),
            until: (until >= 0).then(|| Timestamp::from_nanos(until)),
            ..PlayWindow::default()
        };
        if self.player.play(window) {
            Answer::success(true)
        } else {
            Answer::Refusal("something is played already, or the bag is shorter than the offset".to_owned())
        }
    }

    /// A burst of a whole bag takes long, so it has a separate thread.
    fn burst(&mut self, count: Option<u64>, reply: fn(u64) -> Value) -> Answer {
        self.bursts.retain(|burst| !burst.is_finished());
        if !self.player.is_paused() {
            tracing::warn!("messages are played at once only while the playback is paused");
            return Answer::Reply(reply(0));
        }
        if self.bursts.len() >= BURSTS_MAX {
            return Answer::Refusal("other bursts are not finished".to_owned());
        }
        let (answer, later) = sync_channel(1);
        let player = self.player.clone();
        let run = move || {
            let played = player.burst(count);
            // Who asked may be gone.
            let _ = answer.try_send(Answer::Reply(reply(played)));
        };
        match std::thread::Builder::new().name("burst".to_owned()).spawn(run) {
            Ok(burst) => {
                self.bursts.push(burst);
                Answer::Later(later)
            }
            Err(error) => Answer::Refusal(format!("no thread for it: {error}")),
        }
    }

    fn seek(&self, request: &Value) -> Answer {
        let nanos = nanos_in(&request["time"]);
        if nanos < 0 {
            return Answer::Refusal("the time is negative".to_owned());
        }
        if self.player.seek(Timestamp::from_nanos(nanos)) {
            Answer::success(true)
        } else {
            Answer::Refusal("nothing is played, or the bag ends before this time".to_owned())
        }
    }

    fn set_rate(&self, request: &Value) -> Answer {
        // NaN and infinities are written as text.
        let rate = request["rate"].as_f64().unwrap_or(f64::NAN);
        if self.player.set_rate(rate) {
            Answer::success(true)
        } else {
            Answer::Refusal(format!("the rate must be a number above zero, not {rate}"))
        }
    }
}

/// Logs a request without effect.
fn noticed(service: &str, done: bool) -> Answer {
    if !done {
        tracing::warn!("{service}: nothing is played");
    }
    Answer::done()
}

impl<P: PlayerCommands> Handler for PlayerHandler<P> {
    fn answer(&mut self, service: &str, request: &Value, _: Timestamp) -> Answer {
        let player = &self.player;
        match service {
            "pause" => noticed(service, player.pause()),
            "toggle_paused" => noticed(service, player.toggle()),
            "is_paused" => Answer::Reply(json!({"paused": player.is_paused()})),
            "get_rate" => Answer::Reply(json!({"rate": player.rate()})),
            "resume" => self.resume(request),
            "set_rate" => self.set_rate(request),
            "play" => self.play(request),
            "play_next" => self.burst(Some(1), |played| json!({"success": played == 1})),
            "burst" => {
                let count = request["num_messages"].as_u64().filter(|count| *count > 0);
                self.burst(count, |played| json!({"actually_burst": played}))
            }
            "seek" => self.seek(request),
            "stop" if player.stop() => Answer::code(0, ""),
            "stop" => Answer::Refusal("nothing is played".to_owned()),
            other => Answer::Refusal(format!("there is no service {other}")),
        }
    }

    fn definition(&mut self, type_name: &str, type_hash: &str) -> Option<Definition> {
        let of_bags = self.definitions.as_mut().and_then(|definitions| {
            let found = definitions.definition(type_name, type_hash);
            found.unwrap_or_else(|error| {
                tracing::warn!("{type_name}: {error}");
                None
            })
        });
        of_bags.or_else(|| bundled(type_name, type_hash))
    }

    fn step(&mut self, _: Timestamp) -> Option<Timestamp> {
        if let Some(events) = &mut self.events {
            events.publish();
        }
        None
    }
}

/// The topic of events about files that a player has read.
pub const READ_SPLIT_TOPIC: &str = "/events/read_split";

const READ_SPLIT_TYPE: &str = "rosbag2_interfaces/msg/ReadSplitEvent";

/// Events that wait to be published.
const EVENTS_MAX: usize = 1024;

/// Publishes which files a playback has read, on rosbag2's topic and in its type.
pub struct ReadSplitEvents {
    node: String,
    publishers: Vec<Box<dyn Publisher>>,
    sender: SyncSender<ReadSplit>,
    waiting: Receiver<ReadSplit>,
}

impl ReadSplitEvents {
    /// Offers the topic over all transports. Jazzy has the type, so that recorders on the same network know it.
    pub fn offer(node: &str, transports: &mut [Box<dyn Transport>]) -> Self {
        let request = PublishRequest {
            topic: READ_SPLIT_TOPIC.to_owned(),
            type_name: READ_SPLIT_TYPE.to_owned(),
            type_hash: Bundle::embedded().type_hash(READ_SPLIT_TYPE).map(str::to_owned),
            // As rosbag2 offers its events.
            qos: QosProfile {
                depth: 1,
                ..QosProfile::ROS_DEFAULT
            },
            ..PublishRequest::default()
        };
        let offered = transports.iter_mut().map(|transport| transport.publish(&request));
        let publishers = offered.filter_map(|offered| {
            let logged = offered.inspect_err(|error| tracing::warn!("events are not published: {error}"));
            logged.ok()
        });
        let publishers = publishers.collect();
        let (sender, waiting) = sync_channel(EVENTS_MAX);
        Self {
            node: node.to_owned(),
            publishers,
            sender,
            waiting,
        }
    }

    /// Where the playback reports its files; never blocks. `wake` wakes the node, which publishes them.
    pub fn reporter(&self, wake: ServiceWake) -> impl FnMut(&ReadSplit) + Send + 'static {
        let sender = self.sender.clone();
        move |split| {
            // Beyond the bound an event is lost, which is not a message.
            let _ = sender.try_send(split.clone());
            wake();
        }
    }

    fn publish(&mut self) {
        while let Ok(split) = self.waiting.try_recv() {
            let mut cdr = CdrWriter::new();
            cdr.text(&split.closed.to_string_lossy());
            cdr.text(&split.opened.to_string_lossy());
            cdr.text(&self.node);
            let event = cdr.finish();
            for publisher in &mut self.publishers {
                if let Err(error) = publisher.publish(&event) {
                    tracing::debug!("an event is not published: {error}");
                }
            }
        }
    }
}
