//! `holdall record`: live topics into a bag.

use crate::{
    VerbResult,
    args::{
        files,
        record::{RecordArguments, RunningArguments},
    },
    exit::{Failure, Outcome},
    output, panics,
    render::{self, paint::Paint, unheard::Request},
    resolve::{self, record::ResolvedRecord},
    terminal::{
        events::{Event, Events, queue},
        keyboard::{Key, Keyboard},
        log, screen, signals,
    },
    transport, units,
    verbs::{
        live_topics::{self, LiveTopics},
        preflight,
        record_live::Live,
        record_threads::{keep_to_cores, prefer_receiving},
        recorder_node::RecorderNode,
        upload, viewers, web,
    },
};
use holdall::{
    reader::{Bag, BagState, Condition},
    record::{
        Platform, RecordControl, RecordError, Recorder, RescueMemory,
        options::Contract,
        status::{ContractStatus, RecordReport, RecordStatus, Surviving, TopicStatus},
    },
    supervise::{
        AlarmCommand, FileCommand, ServiceManager, Supervision,
        control_socket::{ControlSocket, RecordRequests},
        running::RunningKind,
    },
    writer,
};
use holdall_io::{
    block::BlockPoolOptions,
    clock::{Clock, SystemClock},
    disk::Operation,
};
use holdall_model::episode::{EpisodeChange, EpisodeFields};
use holdall_storage::StorageError;
use holdall_web::{dashboard::Dashboard, foxglove::Bridge};
use std::{
    ffi::OsString,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};
use tracing::{info, warn};

/// Time between two polls of the recording.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Shell that runs the lines of `--on-file-closed` and `--on-alarm`.
const SHELL: [&str; 2] = ["/bin/sh", "-c"];

/// A signal that comes this soon after the first one is the same request repeated: a shell script that passes
/// Ctrl-C to a program that has received it from the terminal already.
const REPEATED_SIGNAL: Duration = Duration::from_millis(500);

/// Records until a signal, or until the recording cannot continue. A recording that a service ends leaves the node, which can begin another.
pub fn run(args: &RecordArguments) -> VerbResult {
    if args.files.print_profile {
        let argv: Vec<OsString> = std::env::args_os().collect();
        let profile = files::as_profile(&argv).map_err(Failure::refused)?;
        output::result(&profile)?;
        return Ok(Outcome::Done);
    }
    let mut resolved = resolve::record::resolve(args, &resolve::surroundings::real(SystemClock.now()))
        .map_err(Failure::refused)?;
    log::start(args.console.log_level.filter());
    // Before any thread is started.
    keep_to_cores(&args.running.cpu_affinity)?;
    screen::never_wait();
    for warning in &resolved.warnings {
        warn!("{warning}");
    }
    // From here on a signal ends the recording, not the process.
    let (sender, events) = queue();
    signals::listen(sender.clone())
        .map_err(|error| Failure::failed(format!("cannot listen to signals: {error}")))?;
    if !preflight::before(args, &resolved, &events)? {
        return Ok(Outcome::Done);
    }
    let mut sender = Some(sender);
    let mut node = RecorderNode::new(&args.running, &resolved);
    let mut keyboard = None;
    let mut worst = Outcome::Done;
    loop {
        match Running::start(args, &resolved, &mut node) {
            Ok(running) => {
                // Keys mean something only now.
                if let (Some(sender), false) = (sender.take(), args.console.disable_keyboard_controls) {
                    keyboard = Keyboard::start(sender);
                }
                let (outcome, by_signal) = running.until_ended(args, &events, keyboard.is_some())?;
                worst = worst.or_worse(outcome);
                if by_signal || !node.ended() {
                    return Ok(worst);
                }
            }
            Err(failure) => node.not_begun(failure)?,
        }
        let Some(uri) = node.next_bag(&events) else {
            return Ok(worst);
        };
        resolve::record::set_output(
            &mut resolved,
            uri,
            &resolve::surroundings::real(SystemClock.now()),
        );
    }
}

/// A running recording, and its servers.
struct Running {
    recorder: Recorder,
    request: Request,
    control_socket: Option<ControlSocket>,
    found: Option<ControlSocket>,
    dashboard: Option<Dashboard>,
    bridge: Option<Bridge>,
    supervision: Supervision,
    snapshot: bool,
    events: bool,
    contract: Option<Arc<Contract>>,
}

impl Running {
    fn start(
        args: &RecordArguments,
        resolved: &ResolvedRecord,
        node: &mut RecorderNode,
    ) -> Result<Self, Failure> {
        // Before the bag is created: an unusable path leaves no empty bag, and no recording that cannot be
        // controlled as requested.
        let control_path = args.running.control_socket.as_deref();
        let control_socket = control_path
            .map(ControlSocket::bind)
            .transpose()
            .map_err(Failure::refused)?;
        let access = viewers::access(&args.running.access)?;
        let dashboard = web::bind(args.running.web, &access.token)?;
        let viewer_port = viewers::bind(args.running.foxglove, &access)?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let snapshot = resolved.options.cache.snapshot;
        let events = resolved.options.triggers.is_some();
        let (recorder, request, bag) = start(args, resolved, node, &clock)?;
        let mut supervision = supervision(&args.running, snapshot || events);
        supervision.set_upload(upload::beside(
            &args.running.upload,
            &bag,
            resolved.options.files.uploaded.as_ref(),
        )?);
        let promotes = resolved.options.promote.is_some();
        supervision.set_promoting(promotes.then(|| recorder.observer()));
        let requests = || RecordRequests {
            control: recorder.control(),
            observer: recorder.observer(),
            stalled: supervision.stall_flag(),
            past: supervision.past(),
            promotions: supervision.promotions(),
            snapshot_mode: snapshot,
            host: live_topics::host(args),
        };
        if let Some(socket) = &control_socket {
            socket.serve(requests()).map_err(Failure::failed)?;
        }
        let found = web::be_found(RunningKind::Recording, requests());
        let selection = &resolved.options.selection;
        let bridge = viewers::beside_recording(
            viewer_port,
            &args.discovery.transport,
            args.discovery.enclave.as_deref(),
            selection,
            viewers::Allowed {
                control: args.running.foxglove_control,
                assets: args.running.foxglove_assets,
                sim_time: args.running.use_sim_time,
            },
        )?;
        let shown = bridge.as_ref().map(Bridge::report);
        let live = LiveTopics::of(args);
        web::serve(
            dashboard.as_ref(),
            "recording",
            requests(),
            shown,
            Some(Arc::new(live)),
        )?;
        supervision.ready();
        // In the words of rosbag2: scripts wait for them.
        info!("Listening for topics...");
        Ok(Self {
            recorder,
            request,
            control_socket,
            found,
            dashboard,
            bridge,
            supervision,
            snapshot,
            events,
            contract: resolved.options.contract.clone(),
        })
    }

    /// Shows and supervises the recording until its bag is closed; returns also whether a signal ended it.
    fn until_ended(
        self,
        args: &RecordArguments,
        events: &Events,
        has_keys: bool,
    ) -> Result<(Outcome, bool), Failure> {
        let hint = match (has_keys, self.snapshot) {
            (true, _) if self.events => "SPACE pause · m event · Ctrl-C stop",
            (true, true) => "SPACE pause · m marker · e episode · s snapshot · Ctrl-C stop",
            (true, false) => "SPACE pause · m marker · e episode · Ctrl-C stop",
            (false, _) => "Ctrl-C stop",
        };
        let mut live = Live::new(hint, self.supervision, self.request.clone());
        // A bug in the display must not keep the bag from being closed.
        let (control, observer) = (self.recorder.control(), self.recorder.observer());
        let watched = catch_unwind(AssertUnwindSafe(|| watch(&self.recorder, events, &mut live)));
        let mut by_signal = watched.unwrap_or(false);
        let mut report = close(self.recorder, events, &mut live, &mut by_signal)?;
        let stall = live.supervision.finish(&report.status);
        let ended = SystemClock.monotonic();
        let is_signal = |span| {
            let is_stop = matches!(events.next(span), Some(Event::Stop(_)));
            is_stop && SystemClock.monotonic().saturating_sub(ended) >= REPEATED_SIGNAL
        };
        live.supervision.await_commands(&control, &SystemClock, is_signal);
        live.supervision.await_promotions(is_signal);
        // With the copies that were made since.
        report.status.triggered = observer.status().triggered;
        if report.status.triggered.is_some() {
            live.supervision.finish(&report.status);
        }
        let uploaded = live.supervision.finish_upload(is_signal);
        drop((live, self.control_socket, self.found, self.dashboard, self.bridge));
        show(&report, &self.request, self.contract.as_deref(), args)?;
        if let Some(uploaded) = uploaded {
            upload::ended(uploaded, args.console.json)?;
        }
        if let Some(span) = stall {
            return Err(Failure::failed(format!(
                "while recording, messages arrived but none was written to the disk for {:.1} s",
                span.as_secs_f64()
            )));
        }
        Ok((outcome(&report), by_signal))
    }
}

/// Joins the transports and starts the recorder. When another recording has taken the name that was made from
/// the time, the next suffix is tried.
fn start(
    args: &RecordArguments,
    resolved: &ResolvedRecord,
    node: &mut RecorderNode,
    clock: &Arc<dyn Clock>,
) -> Result<(Recorder, Request, PathBuf), Failure> {
    let mut options = resolved.options.clone();
    loop {
        // Before the transports, which receive into it.
        let memory = RescueMemory::begin(&options);
        let mut transports = transport::join(
            &args.discovery.transport,
            &resolved.node,
            args.discovery.enclave.as_deref(),
            clock,
            transport::Purpose::Record,
        )?;
        prefer_receiving(args.running.rt_priority, transports.len(), &**clock);
        node.offer(&mut transports);
        let request = Request::new(
            &options.selection,
            options.discovery.no_discovery,
            transports.iter().map(|transport| transport.name()).collect(),
            transport::variable,
        );
        let platform = platform(resolved, memory, clock);
        let error = match Recorder::start_on(options.clone(), transports, platform) {
            Ok(recorder) => {
                node.began(&recorder, &options, clock)?;
                return Ok((recorder, request, options.output));
            }
            Err(error) => error,
        };
        let exists = matches!(&error, RecordError::Bag(writer::WriteError::Exists { .. }));
        let taken = options.output.clone();
        if let (true, Some(base)) = (exists, &resolved.default_output) {
            options.output = resolve::record::free_name(base, &|path| path.symlink_metadata().is_ok());
        }
        if options.output == taken {
            return Err(failure(error));
        }
    }
}

/// Platform of a recording.
pub fn platform(resolved: &ResolvedRecord, memory: RescueMemory, clock: &Arc<dyn Clock>) -> Platform {
    match &resolved.seal {
        None => Platform {
            clock: Arc::clone(clock),
            open_disk: writer::os_disk(resolved.disk_mode, BlockPoolOptions::default()),
            memory: Some(memory),
            ..Platform::default()
        },
        Some(seal) => Platform {
            clock: Arc::clone(clock),
            ..Platform::sealed(resolved.disk_mode, seal.clone())
        },
    }
}

/// Work in addition to the recording.
fn supervision(args: &RunningArguments, on_request: bool) -> Supervision {
    let manager = ServiceManager::from_environment(|name| std::env::var_os(name)).unwrap_or_else(|error| {
        warn!("cannot notify the service manager of NOTIFY_SOCKET: {error}");
        None
    });
    Supervision::new(on_request)
        .with_restart_on_stall(args.restart_on_stall)
        .with_metrics_file(args.metrics_file.clone())
        .with_service_manager(manager)
        .with_file_command(
            args.on_file_closed
                .as_deref()
                .map(|line| FileCommand::new(SHELL, line)),
        )
        .with_alarm_command(
            args.on_alarm
                .as_deref()
                .map(|line| AlarmCommand::new(SHELL, line)),
        )
}

/// Handles keys and signals and shows the status, until the recording is to end or has ended; true if a signal ends it.
fn watch(recorder: &Recorder, events: &Events, live: &mut Live) -> bool {
    let control = recorder.control();
    let mut markers = 0_u32;
    while !(recorder.wait_finished(Duration::ZERO) || panics::happened()) {
        live.update(recorder, &control);
        let before = SystemClock.monotonic();
        let event = events.next(POLL_INTERVAL);
        live.waited(POLL_INTERVAL, before);
        match event {
            Some(Event::Key(Key::Space)) => {
                control.toggle_pause();
            }
            Some(Event::Key(Key::S) | Event::Snapshot) => {
                if snapshot(&control) {
                    live.supervision.past().note_event("snapshot", "on request");
                }
            }
            Some(Event::Key(Key::M)) => {
                markers += 1;
                match control.add_marker(&format!("marker {markers}")) {
                    Ok(marker) => live.supervision.past().note_event("marker", &marker.name),
                    Err(error) => warn!("{error}"),
                }
            }
            Some(Event::Key(Key::E)) => {
                let change = match control.episode() {
                    Some(_) => EpisodeChange::Stop,
                    None => EpisodeChange::Start,
                };
                match control.change_episode(change, EpisodeFields::new()) {
                    Ok(marker) => live.supervision.past().note_event("marker", &marker.name),
                    Err(error) => warn!("{error}"),
                }
            }
            Some(Event::Stop(signal)) => {
                control.stop(signal);
                return true;
            }
            Some(Event::Key(_)) | None => {}
        }
    }
    false
}

/// Whether there is one.
fn snapshot(control: &RecordControl) -> bool {
    let is_event = control.waits_for_events();
    let is_taken = control.snapshot();
    if !is_taken {
        warn!("a snapshot needs --snapshot-mode or --trigger");
    } else if !is_event {
        info!("writing a snapshot");
    }
    is_taken
}

/// Ends the recording and waits for its bag to be closed, unless a second signal comes.
fn close(
    recorder: Recorder,
    events: &Events,
    live: &mut Live,
    by_signal: &mut bool,
) -> Result<RecordReport, Failure> {
    live.hint = "closing the bag · Ctrl-C ends it before all is written";
    let control = recorder.control();
    control.stop("it cannot go on");
    live.supervision.stopping();
    let mut began = SystemClock.monotonic();
    let mut before = began;
    // The recorder reports its end after a panic as well.
    while !recorder.wait_finished(POLL_INTERVAL / 4) {
        live.waited(POLL_INTERVAL / 4, before);
        // A bug in the display must not keep the bag from being closed.
        let _ = catch_unwind(AssertUnwindSafe(|| live.update(&recorder, &control)));
        if let Some(Event::Stop(signal)) = events.next(Duration::ZERO) {
            let now = SystemClock.monotonic();
            if !std::mem::replace(by_signal, true) {
                // The first one: the recording has ended for another reason.
                began = now;
            } else if now.saturating_sub(began) >= REPEATED_SIGNAL {
                // Ends with the process: the user does not want to wait for it.
                let status = recorder.status();
                std::mem::forget(recorder);
                return Err(Failure::failed(abandoned(signal, &status)));
            }
        }
        before = SystemClock.monotonic();
    }
    Ok(recorder.stop())
}

/// What becomes of messages that are not written when the program ends before the bag is closed.
fn abandoned(signal: &str, status: &RecordStatus) -> String {
    let waiting: u64 = status
        .topics
        .iter()
        .map(|topic| topic.received.saturating_sub(topic.recorded + dropped(topic)))
        .sum();
    let file = status.current_file.display();
    let fate = match status.current_file.parent() {
        Some(bag) if status.cache_survives == Surviving::All => {
            format!("stay in memory: `holdall repair {}` stores them", bag.display())
        }
        Some(bag) if status.cache_survives == Surviving::Part => format!(
            "are abandoned but for those in shared memory: `holdall repair {}` stores these",
            bag.display()
        ),
        _ => "are abandoned; what was written can be read".to_owned(),
    };
    format!(
        "{signal} again: {file} is left as it is, and {} ({}) that were received and not written {fate}",
        units::plural(waiting, "message"),
        units::format_bytes(status.cache_bytes as u64),
    )
}

/// Messages of a topic that were received and then lost.
fn dropped(topic: &TopicStatus) -> u64 {
    let lost = topic.lost.iter().filter(|(stage, _)| stage.is_after_arrival());
    holdall_model::loss::total(lost.map(|(_, count)| count))
}

fn show(
    report: &RecordReport,
    request: &Request,
    contract: Option<&Contract>,
    args: &RecordArguments,
) -> Result<(), Failure> {
    // A bag that was moved away or that only another key opens has no state here.
    let state = Bag::open(&report.bag).and_then(|bag| bag.state()).ok();
    if args.console.json {
        let mut object = serde_json::json!(report);
        if let Some(object) = object.as_object_mut() {
            object.extend(request.json(&report.status));
            let state = state.as_ref().map(BagState::summary);
            object.insert("state".to_owned(), serde_json::json!(state));
        }
        let text = serde_json::to_string_pretty(&object).map_err(Failure::failed)?;
        return output::result(&text);
    }
    let mut lines = Vec::new();
    if args.console.verbose && !report.status.topics.is_empty() {
        lines.push(render::record::table(&report.status, output::columns()));
    }
    lines.extend(render::record::summary(report, Paint::stdout()));
    // The summary has publishers of unknown end.
    if let Some(state) = state.filter(|state| state.condition > Condition::EndUnknown) {
        lines.push(Paint::stdout().bad(&format!("state: {}", state.condition.as_str())));
    }
    lines.extend(request.summary(&report.status, Paint::stdout()));
    if let (Some(contract), Some(status)) = (contract, &report.status.contract) {
        lines.push(render::contract::of_recording(contract, status, Paint::stdout()));
    }
    output::result(&lines.join("\n"))
}

/// Wrong choices are refused; everything else has failed.
pub fn failure(error: RecordError) -> Failure {
    let is_choice = match &error {
        RecordError::Selection(_) | RecordError::Bag(writer::WriteError::Exists { .. }) => true,
        // Nothing was made: the folder may be read-only, or missing.
        RecordError::Bag(writer::WriteError::Disk(error)) => error.operation == Operation::CreateDirectory,
        RecordError::Storage(error) => matches!(
            error,
            StorageError::Setting { .. } | StorageError::UnknownStorage { .. }
        ),
        _ => false,
    };
    if is_choice {
        Failure::refused(error)
    } else {
        Failure::failed(error)
    }
}

/// Whether copies around events do not have all that was asked for.
fn lacks_copies(report: &RecordReport) -> bool {
    let events = report.status.triggered.as_ref();
    events.is_some_and(|events| events.copies.not_whole() > 0)
}

fn outcome(report: &RecordReport) -> Outcome {
    match report {
        RecordReport { failure: Some(_), .. } => Outcome::Failed,
        report if report.has_loss() || lacks_copies(report) || !report.audit_faults.is_empty() => {
            Outcome::Lost
        }
        report
            if report
                .status
                .contract
                .as_ref()
                .is_some_and(ContractStatus::has_failed) =>
        {
            Outcome::Broken
        }
        _ => Outcome::Done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_model::loss::LossStage;

    fn topic(received: u64, recorded: u64, lost: &[(LossStage, u64)]) -> TopicStatus {
        TopicStatus {
            received,
            recorded,
            lost: lost.iter().copied().collect(),
            ..TopicStatus::default()
        }
    }

    #[test]
    fn a_second_signal_says_what_is_abandoned() {
        let status = RecordStatus {
            cache_bytes: 3 << 20,
            current_file: "lab/lab_0.mcap".into(),
            topics: vec![
                topic(100, 60, &[(LossStage::Cache, 10), (LossStage::Transport, 500)]),
                topic(5, 5, &[]),
            ],
            ..RecordStatus::default()
        };
        let sentence = abandoned("SIGINT", &status);
        assert!(
            sentence.starts_with("SIGINT again: lab/lab_0.mcap is left"),
            "{sentence}"
        );
        assert!(
            sentence.contains("30 messages (3.0 MiB)") && sentence.contains("abandoned"),
            "{sentence}"
        );
        for (cache_survives, end) in [
            (Surviving::All, "stay in memory: `holdall repair lab` stores them"),
            (
                Surviving::Part,
                "abandoned but for those in shared memory: `holdall repair lab` stores these",
            ),
        ] {
            let kept = RecordStatus {
                cache_survives,
                ..status.clone()
            };
            assert!(abandoned("SIGINT", &kept).ends_with(end));
        }
    }

    #[test]
    fn the_exit_code_follows_failure_before_loss() {
        let mut report = RecordReport::default();
        assert_eq!(outcome(&report), Outcome::Done);
        report.status.topics = vec![topic(5, 5, &[(LossStage::Head, 2)])];
        assert_eq!(outcome(&report), Outcome::Done, "sent while not matched");
        report.status.topics = vec![topic(5, 4, &[(LossStage::Cache, 1)])];
        assert_eq!(outcome(&report), Outcome::Lost);
        let broken = ContractStatus {
            outcome: holdall_model::contract::Outcome::Failed,
            ..ContractStatus::default()
        };
        report.status.contract = Some(broken.clone());
        assert_eq!(outcome(&report), Outcome::Lost, "what is lost matters more");
        report.status.topics.clear();
        assert_eq!(outcome(&report), Outcome::Broken);
        let events = report.status.triggered.get_or_insert_default();
        events.copies.whole = 3;
        assert_eq!(outcome(&report), Outcome::Broken);
        let events = report.status.triggered.get_or_insert_default();
        events.copies.incomplete = 1;
        assert_eq!(outcome(&report), Outcome::Lost, "a copy lacks messages");
        report.failure = Some("disk full".to_owned());
        assert_eq!(outcome(&report), Outcome::Failed);
    }
}
