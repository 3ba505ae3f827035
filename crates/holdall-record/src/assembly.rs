//! Puts the parts of a recording together; threads or a simulator drive them, which is decided elsewhere.

use super::{
    RecordControl, RecordError,
    alarm::Alarms,
    cache::{SharedCache, Stored},
    clock_watch::ClockWatch,
    contract::{Judging, Tap},
    control::ControlledMode,
    options::RecordOptions,
    receive::{
        gate::Gate,
        session::{Parts, Session},
    },
    requests::SessionRequests,
    status::RecordReport,
    step_wait::StepWait,
    trigger::{Episodes, MessageTime},
    view::View,
    write::{
        drain::{Drain, DrainOptions, DrainShared},
        latched::LatchedKeeper,
        survival::Survival,
    },
};
use holdall_bag::{
    rescue::Event,
    writer::{BagFolder, BagOptions, BagWriter, ClosedBag, CompressionMode, OpenDisk},
};
use holdall_io::{clock::Clock, mutex::lock, survivor::view_of_files};
use holdall_model::loss::{
    LossStage,
    ledger::{Interval, Ledger},
};
use holdall_storage::{Storage, StorageOptions, storage_by_id};
use holdall_transport::Transport;
use std::{
    path::Path,
    sync::{Arc, Mutex},
};

/// Rescue memory made before the transports, so that they can receive into it. Removed if it is not used.
pub struct RescueMemory(Option<Survival>);

impl RescueMemory {
    /// Creates the memory that the options ask for; warns and returns none if that fails.
    pub fn begin(options: &RecordOptions) -> Self {
        // Messages held for an event were not requested, and are lost with the process.
        let is_kept = |_: &&Path| options.triggers.is_none();
        let directory = options.safety.rescue_directory.as_deref().filter(is_kept);
        if let Some(directory) = directory {
            holdall_bag::rescue::report_leftovers(directory);
        }
        Self(Some(Survival::begin(directory, &options.cache)))
    }

    /// No memory: nothing survives the process.
    pub fn none() -> Self {
        Self(None)
    }

    fn into_survival(mut self) -> Survival {
        self.0.take().unwrap_or_default()
    }
}

impl Drop for RescueMemory {
    fn drop(&mut self) {
        if let Some(survival) = self.0.take() {
            survival.remove();
        }
    }
}

/// What writes the bag.
pub(super) struct Output {
    pub open_disk: OpenDisk,
    pub folder: Box<dyn BagFolder>,
    /// Replaces the storage that the options name.
    pub storage: Option<&'static dyn Storage>,
}

/// A recording that is not driven yet.
pub(super) struct Assembly {
    pub session: Session,
    pub drain: Drain,
    pub control: RecordControl,
    pub view: View,
    pub survival: Survival,
}

impl Assembly {
    /// Makes the bag and subscribes to topics that need no discovery.
    ///
    /// # Errors
    /// An output that exists or cannot be made, a selection or storage that is not valid, a static topic that is refused.
    pub(super) fn new(
        options: RecordOptions,
        transports: Vec<Box<dyn Transport>>,
        clock: Arc<dyn Clock>,
        output: Output,
        memory: RescueMemory,
    ) -> Result<Self, RecordError> {
        let directory = options.output.clone();
        let survival = memory.into_survival();
        let assembly = Self::over(options, transports, clock, output, &survival);
        // Nothing was received yet.
        assembly.inspect_err(|_| survival.end(&directory))
    }

    fn over(
        options: RecordOptions,
        transports: Vec<Box<dyn Transport>>,
        clock: Arc<dyn Clock>,
        output: Output,
        survival: &Survival,
    ) -> Result<Self, RecordError> {
        let started = clock.monotonic();
        let parts = parts(&options, survival, &clock);
        let control = RecordControl::new(
            parts.clone(),
            Arc::clone(&clock),
            ControlledMode::of(&options),
            options.output.clone(),
        );
        let bag_options = bag_options(&options, output.storage, survival)?;
        let (triggers, files) = (options.triggers.clone(), options.files.clone());
        let tap = tap(&options, &parts);
        let episodes = Episodes::new(options.episode_when.as_ref(), control.episodes());
        let (drain_options, promote) = (DrainOptions::from(&options), options.promote.clone());
        // Before the bag, so that a failed subscription leaves no empty bag.
        let session = Session::new(
            options,
            parts.clone(),
            transports,
            bag_options.storage.keeps_types(),
            Arc::clone(&clock),
        )?;
        let directory = bag_options.directory.clone();
        let event = Event::Bag {
            storage: bag_options.storage.id().to_owned(),
            merge_publishers: drain_options.merge_publishers,
            packed_payloads: files.compression.mode == CompressionMode::Message,
            directory: std::path::absolute(&directory).unwrap_or_else(|_| directory.clone()),
        };
        survival.log.add(|| event);
        let mut bag = BagWriter::create(bag_options, output.open_disk, output.folder)?;
        if let Some(uploaded) = files.uploaded {
            bag.keep_until_uploaded(uploaded);
        }
        note_place(&bag, survival, &directory);
        let drain = Drain::new(
            bag,
            Arc::clone(&parts.cache),
            Arc::clone(&parts.ledger),
            Arc::clone(&parts.drain),
            drain_options,
        )
        .with_clock(Arc::clone(&parts.time), files.split.measures_spans())
        .with_triggers(triggers.as_ref(), message_time(&parts))
        .with_compression(&files.compression)?
        .with_recoding(files.recoding.as_ref())
        .with_latched(parts.latched.clone())
        .with_contract(tap)
        .with_followers(episodes, promote, &directory, message_time(&parts));
        let view = View {
            parts,
            clock,
            started,
        };
        Ok(Self {
            session,
            drain,
            control,
            view,
            survival: survival.clone(),
        })
    }
}

/// Where the bag is, for a rescue.
fn note_place(bag: &BagWriter, survival: &Survival, directory: &Path) {
    if let Some(identity) = bag.directory_identity() {
        let view = view_of_files().ok();
        survival.log.add(|| Event::Place { identity, view });
    }
    survival.write_pointer(directory);
}

/// What has the recording judged, if there is a contract.
fn tap(options: &RecordOptions, parts: &Parts) -> Option<Tap> {
    // In both, messages come into the bag long after they were received.
    let is_late = options.triggers.is_some() || options.cache.snapshot;
    let (judging, contract) = (parts.judging.as_ref()?, options.contract.as_ref()?);
    Some(Tap::new(judging, contract, message_time(parts), is_late))
}

/// Combines a closed bag and the final counters.
pub(super) fn report(closed: ClosedBag, view: &View) -> RecordReport {
    let mut audit_faults = lock(&view.parts.ledger).audit();
    audit_faults.extend(closed.account_faults);
    for fault in &audit_faults {
        tracing::error!("the account of messages does not add up: {fault}");
    }
    view.finish_alarms();
    RecordReport {
        status: view.status(),
        bag: closed.directory,
        files: closed.files,
        failure: closed
            .failure
            .map(|failure| failure.to_string())
            .or_else(|| view.parts.drain.status().must_end),
        ended_by: view.parts.drain.reached(),
        audit_faults,
        undefined: closed.undefined,
    }
}

fn parts(options: &RecordOptions, survival: &Survival, clock: &Arc<dyn Clock>) -> Parts {
    let wait = Arc::<StepWait>::default();
    let promotes_rules = options
        .promote
        .as_ref()
        .is_some_and(|promote| promote.on_contract);
    let ledger = Arc::new(Mutex::new(Ledger::logged(survival.log.for_accounts())));
    let evicted = Arc::clone(&ledger);
    // Messages that snapshot mode's ring evicts were not requested.
    let stage = if options.cache.snapshot {
        LossStage::Policy
    } else {
        LossStage::Cache
    };
    let drain = Arc::new(DrainShared::new(survival.log.clone(), Arc::clone(&wait)));
    let time = ClockWatch::new(Arc::clone(clock), options.use_sim_time, Arc::clone(&drain));
    let time = Arc::new(time);
    let latched = LatchedKeeper::new(&options.files.repeat, options.files.merge_publishers, Some(&time));
    let keeper = latched.clone();
    let count_evicted = move |stored: &Stored<'_>| {
        let entry = &stored.entry;
        if let Some(keeper) = &keeper {
            keeper.keep_dropped(entry, stored.payload, &evicted);
        }
        let interval = Interval::of_message(stage, entry.sequence, entry.log_time);
        lock(&evicted).miss(entry.topic, entry.publisher, interval);
    };
    let of_cache = Arc::clone(&time);
    let steady = move |stamp| {
        of_cache.look();
        of_cache.steady_of(stamp)
    };
    Parts {
        gate: Arc::new(Gate::new(options.start_paused, options.use_sim_time)),
        cache: Arc::new(SharedCache::with_source(
            &options.cache,
            survival.source.clone(),
            Box::new(count_evicted),
            Arc::new(steady),
        )),
        ledger,
        drain,
        time,
        requests: Arc::new(SessionRequests::new(
            !options.discovery.no_discovery,
            Arc::clone(&wait),
        )),
        wait,
        alarms: Arc::new(Alarms::new(&options.alarms, promotes_rules)),
        judging: options.contract.clone().map(Judging::new).map(Arc::new),
        topics: Arc::default(),
        latched,
    }
}

/// The time of messages; no present while they are not recorded.
fn message_time(parts: &Parts) -> MessageTime {
    let (gate, watch) = (Arc::clone(&parts.gate), Arc::clone(&parts.time));
    let now = move || {
        let is_recorded = !gate.is_paused() && !gate.waits_for_clock();
        is_recorded.then(|| watch.steady_now())
    };
    MessageTime {
        watch: Arc::clone(&parts.time),
        now: Box::new(now),
    }
}

fn bag_options(
    options: &RecordOptions,
    storage: Option<&'static dyn Storage>,
    survival: &Survival,
) -> Result<BagOptions, RecordError> {
    let storage_options = StorageOptions {
        preset: options.files.storage_preset.clone(),
        config: options.files.storage_config.clone(),
        compression_threads: options.files.compression.thread_count(),
        index_checkpoints: options.safety.max_loss_window.is_some(),
        topic_compression: options.files.topic_compression.clone(),
        ros_distro: options.files.ros_distro.clone(),
    };
    Ok(BagOptions {
        directory: options.output.clone(),
        storage: storage.map_or_else(|| storage_by_id(&options.files.storage_id), Ok)?,
        storage_options,
        split: options.files.split.clone(),
        compression: options.files.compression.clone(),
        custom_data: options.files.custom_data.clone(),
        ros_distro: options.files.ros_distro.clone(),
        memory: survival.id(),
    })
}
