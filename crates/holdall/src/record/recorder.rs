//! The recorder: topic -> subscription -> intake -> cache -> drain -> bag, from start to report.

use super::{
    RecordControl, RecordError,
    cache::{CacheEntry, SharedCache},
    drain::{Drain, DrainShared, DrainThread},
    gate::Gate,
    ledger::{Interval, Ledger},
    options::RecordOptions,
    session::{LiveTopic, Parts, Session, lock},
    status::{RecordReport, RecordStatus, TopicStatus},
};
use crate::writer::{BagFolder, BagOptions, BagWriter, OpenDisk};
use holdall_io::clock::Clock;
use holdall_model::loss::LossStage;
use holdall_storage::{StorageOptions, storage_by_id};
use holdall_transport::Transport;
use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
    thread::JoinHandle,
    time::Duration,
};

/// Longest sleep between two steps of the session.
const TICK: Duration = Duration::from_millis(10);

/// Sleep between two steps while messages are moved by hand.
const TICK_BUSY: Duration = Duration::from_millis(1);

/// How long the end waits for messages that publishers have announced and that have not arrived.
const CATCH_UP_MAX: Duration = Duration::from_millis(300);

/// A running recording.
pub struct Recorder {
    control: RecordControl,
    view: View,
    directory: PathBuf,
    thread: JoinHandle<RecordReport>,
}

/// What is needed to tell how a recording stands.
#[derive(Clone)]
struct View {
    parts: Parts,
    clock: Arc<dyn Clock>,
    started: Duration,
}

impl Recorder {
    /// Makes the bag, subscribes, and records until it is stopped or fails.
    ///
    /// # Errors
    /// An output that exists or cannot be made, a selection or storage that is not valid, a static topic that is refused.
    pub fn start(
        options: RecordOptions,
        transports: Vec<Box<dyn Transport>>,
        clock: Arc<dyn Clock>,
        open_disk: OpenDisk,
        folder: Box<dyn BagFolder>,
    ) -> Result<Self, RecordError> {
        let directory = options.output.clone();
        let started = clock.monotonic();
        let parts = parts(&options);
        let control = RecordControl::new(
            Arc::clone(&parts.gate),
            Arc::clone(&parts.cache),
            Arc::clone(&parts.drain),
            options.cache.snapshot,
        );
        let bag_options = bag_options(&options)?;
        // Before the bag, so that what cannot be subscribed leaves no empty bag behind.
        let session = Session::new(options, parts.clone(), transports, started)?;
        let bag = BagWriter::create(bag_options, open_disk, folder)?;
        let drain = Drain::new(
            bag,
            Arc::clone(&parts.cache),
            Arc::clone(&parts.ledger),
            Arc::clone(&parts.drain),
        );
        let drain = DrainThread::spawn(drain, Arc::clone(&clock)).map_err(RecordError::Thread)?;
        let view = View {
            parts,
            clock,
            started,
        };
        let recording = Recording {
            session,
            drain,
            control: control.clone(),
            view: view.clone(),
        };
        let run = move || recording.run();
        let thread = std::thread::Builder::new()
            .name("record".to_owned())
            .spawn(run)
            .map_err(RecordError::Thread)?;
        Ok(Self {
            control,
            view,
            directory,
            thread,
        })
    }

    /// What can be asked of the recording.
    pub fn control(&self) -> RecordControl {
        self.control.clone()
    }

    /// How it stands.
    pub fn status(&self) -> RecordStatus {
        self.view.status()
    }

    /// Waits until the recording has ended by itself or by [`RecordControl::stop`]; false when `at_most` ran out before.
    pub fn wait_finished(&self, at_most: Duration) -> bool {
        self.control.wait_finished(at_most)
    }

    /// Ends the recording, unless it has ended already, and tells what it left behind.
    pub fn stop(self) -> RecordReport {
        self.control.stop("stopped");
        let view = self.view;
        self.thread.join().unwrap_or_else(|_| RecordReport {
            status: view.status(),
            bag: self.directory,
            failure: Some("the recorder failed for an internal reason; see the log".to_owned()),
            ..RecordReport::default()
        })
    }
}

fn parts(options: &RecordOptions) -> Parts {
    let ledger = Arc::new(Mutex::new(Ledger::new()));
    let evicted = Arc::clone(&ledger);
    // What falls out of the ring of snapshot mode was not asked for.
    let stage = if options.cache.snapshot {
        LossStage::Policy
    } else {
        LossStage::Cache
    };
    let count_evicted = move |entry: &CacheEntry| {
        let interval = Interval::of_message(stage, entry.sequence, entry.log_time);
        lock(&evicted).miss(entry.topic, entry.publisher, interval);
    };
    Parts {
        gate: Arc::new(Gate::new(options.start_paused, options.use_sim_time)),
        cache: Arc::new(SharedCache::new(&options.cache, Box::new(count_evicted))),
        ledger,
        drain: Arc::new(DrainShared::default()),
        topics: Arc::default(),
    }
}

fn bag_options(options: &RecordOptions) -> Result<BagOptions, RecordError> {
    let storage_options = StorageOptions {
        preset: options.storage_preset.clone(),
        config: options.storage_config.clone(),
        ..StorageOptions::default()
    };
    Ok(BagOptions {
        directory: options.output.clone(),
        storage: storage_by_id(&options.storage_id)?,
        storage_options,
        split: options.split.clone(),
        custom_data: options.custom_data.clone(),
        ros_distro: options.ros_distro.clone(),
    })
}

/// The recording as its own thread sees it.
struct Recording {
    session: Session,
    drain: DrainThread,
    control: RecordControl,
    view: View,
}

/// Tells that the recording has ended, also when it ended by a panic.
struct TellFinished(RecordControl);

impl Drop for TellFinished {
    fn drop(&mut self) {
        self.0.set_finished();
    }
}

impl Recording {
    fn run(mut self) -> RecordReport {
        let _finished = TellFinished(self.control.clone());
        self.record_until_stopped();
        self.catch_up();
        self.session.close();
        self.close_bag()
    }

    fn record_until_stopped(&mut self) {
        loop {
            let now = self.view.clock.monotonic();
            let moved = self.session.step(now);
            if self.view.parts.drain.status().failure.is_some() {
                self.control.stop("the bag cannot be written");
            }
            let tick = if moved > 0 {
                TICK_BUSY
            } else {
                TICK.min(self.session.until_next_look(now))
            };
            if self.control.wait_stop(tick) {
                break;
            }
        }
        if let Some(reason) = self.control.stop_reason() {
            tracing::info!("ending the recording: {reason}");
        }
    }

    /// Waits shortly for messages that were sent before the end and are still on their way.
    fn catch_up(&mut self) {
        let clock = Arc::clone(&self.view.clock);
        let deadline = clock.monotonic() + CATCH_UP_MAX;
        self.session.look_at_announcements();
        while !self.session.is_caught_up() && clock.monotonic() < deadline {
            self.session.pump();
            clock.sleep_until(clock.monotonic() + TICK_BUSY);
        }
        self.session.pump();
    }

    fn close_bag(self) -> RecordReport {
        let Self { drain, view, .. } = self;
        view.parts.cache.close();
        let Some(drain) = drain.join() else {
            let failure = Some("the writing thread failed for an internal reason; see the log".to_owned());
            return RecordReport {
                status: view.status(),
                failure,
                ..RecordReport::default()
            };
        };
        let closed = drain.close();
        let audit_faults = lock(&view.parts.ledger).audit();
        for fault in &audit_faults {
            tracing::error!("the account of messages does not add up: {fault}");
        }
        RecordReport {
            status: view.status(),
            bag: closed.directory,
            files: closed.files,
            failure: closed.failure.map(|failure| failure.to_string()),
            audit_faults,
        }
    }
}

impl View {
    fn status(&self) -> RecordStatus {
        let parts = &self.parts;
        let drain = parts.drain.status();
        // Copied out, so that no lock is taken inside of another.
        let live = lock(&parts.topics).clone();
        let received: Vec<(u64, usize)> = live
            .iter()
            .map(|topic| (topic.intake.received(), topic.intake.publishers()))
            .collect();
        let ledger = lock(&parts.ledger);
        let topics = live
            .iter()
            .zip(&received)
            .zip(&ledger.topics)
            .map(|((live, counts), account)| topic_status(live, *counts, account));
        RecordStatus {
            elapsed: self.clock.monotonic().saturating_sub(self.started),
            paused: parts.gate.is_paused(),
            recorded: ledger.recorded(),
            recorded_bytes: ledger.topics.iter().map(|topic| topic.recorded_bytes).sum(),
            cache_bytes: parts.cache.held_bytes(),
            cache_bytes_max: parts.cache.bytes_max(),
            lost: ledger.lost(),
            disk_available_bytes: drain.available_bytes,
            current_file: drain.current_file,
            topics: topics.collect(),
        }
    }
}

fn topic_status(
    live: &LiveTopic,
    (received, publishers): (u64, usize),
    account: &super::ledger::TopicAccount,
) -> TopicStatus {
    let mut lost = account.missing.clone();
    lost.remove(&LossStage::Policy);
    TopicStatus {
        name: live.name.clone(),
        type_name: live.type_name.clone(),
        publishers,
        received,
        recorded: account.recorded,
        recorded_bytes: account.recorded_bytes,
        lost,
        loss_unknown: account.loss_unknown,
    }
}
