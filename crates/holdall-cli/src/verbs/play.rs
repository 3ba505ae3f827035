//! `holdall play`: bags back to live topics.

use super::input;
use crate::{
    VerbResult,
    args::{burst::BurstArguments, play::PlayArguments, viewers::ServeArguments},
    exit::{Failure, Outcome},
    output,
    render::{self, paint::Paint, play::format_lateness},
    resolve,
    terminal::{
        events::{Event, Events, queue},
        keyboard::{Key, Keyboard},
        log,
        screen::{self, Screen},
        signals,
    },
    transport,
    units::format_elapsed,
    verbs::{migrate, player_node::PlayerNode, viewers, web},
};
use holdall::play::{
    Player,
    options::PlayOptions,
    status::{PlayPhase, PlayReport, PlayStatus},
};
use holdall::supervise::{
    control_socket::{ControlSocket, PlayRequests},
    running::RunningKind,
};
use holdall_io::clock::{Clock, SystemClock};
use holdall_model::marker::Marker;
use holdall_web::{dashboard::Dashboard, foxglove::PlaybackServer};
use std::{path::PathBuf, sync::Arc, time::Duration};
use tracing::{info, warn};

/// Time between two polls of the playback.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The step by which a cursor key changes the rate.
const RATE_STEP: f64 = 0.1;

/// How far ← and → seek, and with shift.
const SEEK_STEP: Duration = Duration::from_secs(5);
const SEEK_STEP_FAR: Duration = Duration::from_secs(60);

/// This soon after a marker the one before it is meant.
const MARKER_SLACK: Duration = Duration::from_secs(1);

/// Plays bags until their end or a signal.
pub fn run(args: &PlayArguments) -> VerbResult {
    play(args, |_| {})
}

/// Plays bags to viewers only.
pub fn serve(args: &ServeArguments) -> VerbResult {
    play(&args.as_play(), |_| {})
}

/// Publishes messages at once.
pub fn burst(args: &BurstArguments) -> VerbResult {
    let count = (args.num_messages > 0).then_some(args.num_messages);
    play(&args.as_play(), move |player| {
        let control = player.control();
        // Waits for the burst, while the verb waits for signals.
        std::thread::spawn(move || {
            control.burst(count);
            control.finish();
        });
    })
}

fn play(args: &PlayArguments, begin: impl FnOnce(&Player)) -> VerbResult {
    let mut options = options(args)?;
    log::start(args.console.log_level.filter());
    screen::never_wait();
    // Keeps the copy of standard input until the end.
    let named = input::resolve(&options.inputs)?;
    options.inputs.clone_from(&named.paths);
    check_inputs(&options.inputs)?;
    let servers = Servers::bind(args, &options.inputs)?;
    let (sender, events) = queue();
    signals::listen(sender.clone())
        .map_err(|error| Failure::failed(format!("cannot listen to signals: {error}")))?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let node = resolve::node(&args.node_name).map_err(Failure::refused)?;
    let joined = if args.viewers_only {
        // Nothing has to be discovered.
        options.discovery_wait = Duration::ZERO;
        Vec::new()
    } else {
        transport::join(
            &args.transport,
            &node,
            args.enclave.as_deref(),
            &clock,
            transport::Purpose::Other,
        )?
    };
    let mut transports = viewers::with_viewers(servers.viewers.as_ref(), joined);
    for warning in transports.iter().flat_map(|transport| transport.warnings()) {
        warn!("{warning}");
    }
    let has_services = !args.viewers_only && !args.no_services;
    let node = has_services.then(|| PlayerNode::offer(&options, &node, &mut transports));
    let shown = viewers::shown_name(&options.inputs);
    let player = Player::start(options, transports, Arc::clone(&clock))
        .map_err(|error| Failure::playing(error, &named.paths))?;
    let node = node.map(|node| node.start(&player, clock)).transpose()?;
    servers.serve(&player, shown)?;
    let found = web::be_found(RunningKind::Playback, PlayRequests(player.control()));
    for notice in player.notices() {
        warn!("{notice}");
    }
    info!("playing {}", player.topics().join(", "));
    let keyboard = if args.console.disable_keyboard_controls {
        None
    } else {
        Keyboard::start(sender)
    };
    begin(&player);
    watch(&player, &events, keyboard.is_some(), draw_interval(args));
    let stop_was_asked = !player.is_finished();
    let report = if stop_was_asked {
        player.stop()
    } else {
        player.wait()
    };
    drop((keyboard, servers, found, node));
    show(&report, args)?;
    let unanswered = report.services.values().any(|calls| !calls.all_answered());
    if (args.fail_if_unanswered || report.steps.is_some()) && unanswered {
        return Ok(outcome(&report, args.max_lateness).or_worse(Outcome::Lost));
    }
    Ok(outcome(&report, args.max_lateness))
}

/// How the flags want bags to be played.
pub(super) fn options(args: &PlayArguments) -> Result<PlayOptions, Failure> {
    let surroundings = resolve::surroundings::real(SystemClock.now());
    let mut options = resolve::play::resolve(args, &surroundings).map_err(Failure::refused)?;
    options.migration = migrate::of_playback(args)?;
    options.decoding = args.decode_video.then(holdall::recode::playing);
    Ok(options)
}

/// Detected before DDS is started, which takes a moment. A bag in a bucket is looked up when it is opened.
pub(super) fn check_inputs(inputs: &[PathBuf]) -> Result<(), Failure> {
    for bag in inputs.iter().filter(|bag| !holdall_io::remote::is_remote(bag)) {
        bag.symlink_metadata().map_err(|error| {
            let reason = holdall_io::disk::reason(&error);
            Failure::refused(format!("cannot open {}: {reason}", bag.display()))
        })?;
    }
    Ok(())
}

/// Servers of a playback. Bound before DDS is started, so that failures are reported at once.
struct Servers {
    socket: Option<ControlSocket>,
    dashboard: Option<Dashboard>,
    viewers: Option<PlaybackServer>,
}

impl Servers {
    fn bind(args: &PlayArguments, inputs: &[PathBuf]) -> Result<Self, Failure> {
        let socket = args.control_socket.as_deref().map(ControlSocket::bind);
        let access = viewers::access(&args.access)?;
        Ok(Self {
            socket: socket.transpose().map_err(Failure::refused)?,
            dashboard: web::bind(args.web, &access.token)?,
            viewers: viewers::of_playback(viewers::bind(args.foxglove, &access)?, inputs, &args.definitions)?,
        })
    }

    fn serve(&self, player: &Player, shown: String) -> Result<(), Failure> {
        if let Some(viewers) = &self.viewers {
            viewers.serve(player.control(), shown).map_err(Failure::failed)?;
            info!("Foxglove: {}", viewers.link());
        }
        let requests = || PlayRequests(player.control());
        if let Some(socket) = &self.socket {
            socket.serve(requests()).map_err(Failure::failed)?;
        }
        let report = self.viewers.as_ref().map(PlaybackServer::report);
        web::serve(self.dashboard.as_ref(), "playback", requests(), report, None)
    }
}

/// Time between two drawings of the progress bar; `None` for no bar.
fn draw_interval(args: &PlayArguments) -> Option<Duration> {
    match args.progress_bar_update_rate {
        0 => None,
        // Below zero rosbag2 draws with each message.
        hz => Some(Duration::from_secs(1) / u32::try_from(hz).unwrap_or(10).min(10)),
    }
}

/// Passes keys to the player and shows its position, until its end or a signal.
fn watch(player: &Player, events: &Events, keys: bool, draw_interval: Option<Duration>) {
    let hint = if keys {
        "SPACE pause · ← → 5 s · ↑ ↓ rate · Ctrl-C stop"
    } else {
        "Ctrl-C stop"
    };
    let screen = draw_interval.and_then(|_| Screen::open());
    let paint = Paint::stderr();
    while !player.is_finished() {
        if let Some(screen) = &screen {
            screen.show(render::play::live(
                &player.status(),
                hint,
                paint,
                screen::columns(),
            ));
        }
        match events.next(draw_interval.unwrap_or(POLL_INTERVAL)) {
            Some(Event::Key(key)) => press(player, key),
            Some(Event::Stop(signal)) => {
                info!("{signal}: stopping");
                return;
            }
            Some(Event::Snapshot) | None => {}
        }
    }
}

fn press(player: &Player, key: Key) {
    let control = player.control();
    let status = control.status();
    match key {
        Key::Space => {
            if control.toggle() {
                info!("{}", if status.paused { "resumed" } else { "paused" });
            }
        }
        Key::Right if status.paused => {
            control.play_next();
        }
        Key::Up | Key::Down => {
            let step = if key == Key::Up { RATE_STEP } else { -RATE_STEP };
            // Rounded, so that steps up and down end where they began.
            let rate = ((status.rate + step) * 1000.0).round() / 1000.0;
            if control.set_rate(rate) {
                info!("rate {}", render::play::format_rate(rate));
            }
        }
        key => {
            if let Some(offset) = seek_target(&status, key, player.markers())
                && control.seek(status.start.saturating_add(offset))
            {
                info!("at {}", format_elapsed(offset));
            }
        }
    }
}

/// The target of a key that seeks, from the beginning of the played part; `None` for other keys.
fn seek_target(status: &PlayStatus, key: Key, markers: &[Marker]) -> Option<Duration> {
    let at = status.elapsed();
    let marks = || {
        markers
            .iter()
            .map(|marker| marker.time.saturating_since(status.start))
    };
    let to = match key {
        Key::Right => at + SEEK_STEP,
        Key::FarRight => at + SEEK_STEP_FAR,
        Key::Left => at.saturating_sub(SEEK_STEP),
        Key::FarLeft => at.saturating_sub(SEEK_STEP_FAR),
        Key::Digit(tenth) => status.duration / 10 * u32::from(tenth),
        Key::Before => marks()
            .filter(|mark| *mark + MARKER_SLACK < at)
            .max()
            .unwrap_or_default(),
        Key::After => marks()
            .filter(|mark| *mark > at && *mark <= status.duration)
            .min()?,
        _ => return None,
    };
    Some(to.min(status.duration))
}

fn show(report: &PlayReport, args: &PlayArguments) -> Result<(), Failure> {
    if args.console.json {
        let text = serde_json::to_string_pretty(&render::play::json(report)).map_err(Failure::failed)?;
        return output::result(&text);
    }
    let mut lines = Vec::new();
    if args.console.verbose && !report.topics.is_empty() {
        lines.push(render::play::table(&report.topics, output::columns()));
    }
    lines.extend(render::play::summary(report, Paint::stdout()));
    output::result(&lines.join("\n"))
}

/// Refused messages are lost to all subscriptions; unacknowledged ones may be.
fn outcome(report: &PlayReport, max_lateness: Option<Duration>) -> Outcome {
    let ended = report.status.phase == PlayPhase::Ended || report.stopped;
    let worst = report.status.lateness.max;
    match report {
        PlayReport { failure: Some(_), .. } => Outcome::Failed,
        _ if !ended => Outcome::Failed,
        _ if !report.losses().is_empty() => Outcome::Lost,
        _ if max_lateness.is_some_and(|max| worst > max) => {
            warn!(
                "a message was sent {} late, which is more than was allowed",
                format_lateness(worst)
            );
            Outcome::Lost
        }
        _ => Outcome::Done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_model::time::Timestamp;

    #[test]
    fn keys_seek_within_what_is_played() {
        let start = Timestamp::from_nanos(1_700_000_000_000_000_000);
        let seconds = Duration::from_secs;
        let status = |at| PlayStatus {
            start,
            position: start.saturating_add(seconds(at)),
            duration: seconds(100),
            ..PlayStatus::default()
        };
        let mark = |at| Marker::new(start.saturating_add(seconds(at)), "m").unwrap();
        let markers = [mark(20), mark(40), mark(500)];
        let to = |at, key| seek_target(&status(at), key, &markers).map(|to| to.as_secs());
        assert_eq!((to(50, Key::Right), to(50, Key::Left)), (Some(55), Some(45)));
        assert_eq!(
            (to(50, Key::FarRight), to(50, Key::FarLeft)),
            (Some(100), Some(0))
        );
        assert_eq!(
            (to(50, Key::Digit(0)), to(50, Key::Digit(9))),
            (Some(0), Some(90))
        );
        assert_eq!(
            (to(50, Key::Before), to(40, Key::Before), to(20, Key::Before)),
            (Some(40), Some(20), Some(0))
        );
        assert_eq!(
            (to(5, Key::After), to(20, Key::After), to(40, Key::After)),
            (Some(20), Some(40), None)
        );
        assert_eq!(to(50, Key::S), None);
    }
}
