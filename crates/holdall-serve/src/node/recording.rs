//! The recording that a recorder's services act on: it may end, and the next one begin, while the node stays.

use super::{
    answer::Answer,
    bag_place::{AllowedFolder, BagPlaces, refuse_url},
    recorder::RecorderCommands,
};
use crate::supervise::control_socket::status_json;
use holdall_io::mutex::lock;
use holdall_model::{episode::EpisodeChange, loss::LossSums};
use holdall_record::{RecordControl, RecordObserver, Recorder, SubscribeAnswer};
use serde_json::{Value, json};
use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        mpsc::{SyncSender, sync_channel},
    },
};

/// A request for the next bag to record.
#[derive(Debug)]
pub struct RecordRequest {
    /// Its folder; `None` for one that is named by the time.
    pub uri: Option<PathBuf>,
    answer: SyncSender<Answer>,
}

impl RecordRequest {
    /// Reports that its recording runs, or why there is none.
    pub fn answer(self, outcome: Result<(), String>) {
        // Who asked may be gone.
        let _ = self.answer.try_send(Answer::of(outcome));
    }
}

struct Running {
    control: RecordControl,
    observer: RecordObserver,
    bag: PathBuf,
    is_snapshot_mode: bool,
}

#[derive(Default)]
struct State {
    /// Where the next bags may be; `None` for anywhere.
    allowed: Option<AllowedFolder>,
    running: Option<Running>,
    /// A service has asked to end it.
    is_stopped: bool,
    /// Waits for the end of the recording.
    stopping: Vec<SyncSender<Answer>>,
    next: Option<RecordRequest>,
}

/// The recording, if any; clones are the same.
#[derive(Clone, Default)]
pub struct RecordingSlot(Arc<Mutex<State>>);

impl RecordingSlot {
    /// For a recorder whose first bag is `first_bag`; services may ask for others at `places`.
    pub fn new(first_bag: &Path, places: &BagPlaces) -> Self {
        let allowed = match places {
            BagPlaces::BesideFirst => Some(AllowedFolder::beside(first_bag)),
            BagPlaces::Anywhere => None,
        };
        Self(Arc::new(Mutex::new(State {
            allowed,
            ..State::default()
        })))
    }

    /// A recording runs.
    pub fn began(&self, recorder: &Recorder, bag: &Path, is_snapshot_mode: bool) {
        let mut state = lock(&self.0);
        state.is_stopped = false;
        state.running = Some(Running {
            control: recorder.control(),
            observer: recorder.observer(),
            bag: bag.to_owned(),
            is_snapshot_mode,
        });
    }

    /// The recording has ended, and its bag is closed; true if a service has asked for it, so that the node stays.
    pub fn ended(&self) -> bool {
        let mut state = lock(&self.0);
        state.running = None;
        for answer in state.stopping.drain(..) {
            let _ = answer.try_send(Answer::code(0, ""));
        }
        state.is_stopped
    }

    /// The next bag to record, once a service has asked for one.
    pub fn next(&self) -> Option<RecordRequest> {
        lock(&self.0).next.take()
    }

    fn with<T>(&self, otherwise: T, with: impl FnOnce(&Running) -> T) -> T {
        lock(&self.0).running.as_ref().map_or(otherwise, with)
    }
}

const NOT_RECORDING: &str = "nothing is being recorded";

impl RecorderCommands for RecordingSlot {
    fn is_recording(&self) -> bool {
        self.with(false, |running| running.control.is_recording())
    }

    fn is_paused(&self) -> bool {
        self.with(false, |running| running.control.is_paused())
    }

    fn pause(&self) {
        self.with((), |running| running.control.pause());
    }

    fn resume(&self) {
        self.with((), |running| running.control.resume());
    }

    fn split(&self) -> Result<(), String> {
        self.with(Err(NOT_RECORDING.to_owned()), |running| {
            if running.is_snapshot_mode {
                return Err("a recording in snapshot mode splits with each snapshot".to_owned());
            }
            running.control.split();
            Ok(())
        })
    }

    fn snapshot(&self) -> bool {
        self.with(false, |running| running.control.snapshot())
    }

    fn record(&self, uri: &str) -> Answer {
        let (answer, later) = sync_channel(1);
        let request = RecordRequest {
            uri: (!uri.is_empty()).then(|| PathBuf::from(uri)),
            answer,
        };
        let mut state = lock(&self.0);
        if state.running.is_some() || state.next.is_some() {
            return Answer::Refusal("a bag is being recorded already".to_owned());
        }
        let allowed = state.allowed.as_ref().filter(|_| !uri.is_empty());
        let is_allowed = |()| allowed.map_or(Ok(()), |allowed| allowed.refuse(Path::new(uri)));
        if let Err(reason) = refuse_url(uri).and_then(is_allowed) {
            return Answer::Refusal(reason);
        }
        state.next = Some(request);
        Answer::Later(later)
    }

    fn stop(&self) -> Answer {
        let mut state = lock(&self.0);
        let Some(running) = &state.running else {
            return Answer::Refusal(NOT_RECORDING.to_owned());
        };
        running.control.stop("a service asked for it");
        let (answer, later) = sync_channel(1);
        state.is_stopped = true;
        state.stopping.push(answer);
        Answer::Later(later)
    }

    fn start_discovery(&self) -> Result<(), String> {
        self.with(Err(NOT_RECORDING.to_owned()), |running| {
            if running.control.is_discovery_running() {
                return Err("topics are discovered already".to_owned());
            }
            running.control.start_discovery();
            Ok(())
        })
    }

    fn stop_discovery(&self) -> Result<(), String> {
        self.with(Err(NOT_RECORDING.to_owned()), |running| {
            if !running.control.is_discovery_running() {
                return Err("no topics are discovered".to_owned());
            }
            running.control.stop_discovery();
            Ok(())
        })
    }

    fn is_discovery_running(&self) -> bool {
        self.with(false, |running| running.control.is_discovery_running())
    }

    fn uri(&self) -> String {
        self.with(String::new(), |running| {
            running.bag.to_string_lossy().into_owned()
        })
    }

    fn subscribed_topics(&self) -> Vec<String> {
        self.with(Vec::new(), |running| running.control.subscribed_topics())
    }

    fn subscribe_to_topics(&self, topics: &[String], types: &[String]) -> Result<SubscribeAnswer, String> {
        // Not under the lock: it waits for the recording.
        let control = self.with(None, |running| Some(running.control.clone()));
        let control = control.ok_or(NOT_RECORDING)?;
        let answer = control.subscribe_to_topics(topics, types);
        answer.map_err(|error| error.to_string())
    }

    fn statistics(&self) -> Value {
        self.with(json!({}), |running| {
            let status = running.observer.status();
            let sums = LossSums::of_all(status.topics.iter().map(|topic| &topic.lost));
            json!({
                "recording": true,
                "paused": status.paused,
                "uri": running.bag.to_string_lossy(),
                "elapsed": status.elapsed.as_secs_f64(),
                "topics": status.topics.len(),
                "messages_recorded": status.recorded,
                "bytes_recorded": status.recorded_bytes,
                "messages_durable": status.durability.durable,
                "messages_lost": sums.lost,
                "messages_sent_before_match": sums.before_match,
                "cache_bytes": status.cache_bytes,
                "cache_bytes_max": status.cache_bytes_max,
                "json": status_json(&running.observer).to_string(),
            })
        })
    }

    fn add_marker(&self, name: &str) -> Result<(), String> {
        self.with(Err(NOT_RECORDING.to_owned()), |running| {
            let marked = running.control.add_marker(name);
            marked.map(drop).map_err(|error| error.to_string())
        })
    }

    fn change_episode(&self, change: &str, fields: &[String]) -> Result<(), String> {
        let change = EpisodeChange::from_word(change).ok_or("\"change\" is start, stop or discard")?;
        let pair = |field: &String| {
            let (name, value) = field
                .split_once('=')
                .ok_or(format!("{field:?} is not NAME=VALUE"))?;
            Ok::<_, String>((name.trim().to_owned(), value.trim().to_owned()))
        };
        let fields = fields.iter().map(pair).collect::<Result<_, _>>()?;
        self.with(Err(NOT_RECORDING.to_owned()), |running| {
            let changed = running.control.change_episode(change, fields);
            changed.map(drop).map_err(|error| error.to_string())
        })
    }
}
