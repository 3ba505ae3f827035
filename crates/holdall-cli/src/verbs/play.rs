//! `holdall play`: bags back to live topics.

use super::input;
use crate::{
    VerbResult,
    args::play::PlayArguments,
    exit::{Failure, Outcome},
    output,
    render::{self, paint::Paint},
    resolve,
    terminal::{
        events::{Event, Events, queue},
        keyboard::{Key, Keyboard},
        log,
        screen::{self, Screen},
        signals,
    },
    transport,
    verbs::player_node::PlayerNode,
};
use holdall::play::{
    PlayControl, Player,
    status::{PlayPhase, PlayReport},
};
use holdall::supervise::control_socket::{ControlSocket, PlayRequests};
use holdall_io::clock::{Clock, SystemClock};
use std::{sync::Arc, time::Duration};
use tracing::{info, warn};

/// Time between two polls of the playback.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The step by which a cursor key changes the rate.
const RATE_STEP: f64 = 0.1;

/// Plays bags until their end or a signal.
pub fn run(args: &PlayArguments) -> VerbResult {
    let mut options = resolve::play::resolve(args, &resolve::surroundings::real(SystemClock.now()))
        .map_err(Failure::refused)?;
    log::start(args.console.log_level.filter());
    screen::never_wait();
    // Keeps the copy of standard input until the end.
    let named = input::resolve(&options.inputs)?;
    options.inputs.clone_from(&named.paths);
    for bag in &options.inputs {
        // Detected before DDS is started, which takes a moment.
        bag.symlink_metadata().map_err(|error| {
            Failure::refused(format!(
                "{}: {}",
                bag.display(),
                resolve::surroundings::io_reason(&error)
            ))
        })?;
    }
    // Before DDS is started: a socket that cannot be made is refused at once.
    let socket = args.control_socket.as_deref().map(ControlSocket::bind);
    let socket = socket.transpose().map_err(Failure::refused)?;
    let (sender, events) = queue();
    signals::listen(sender.clone())
        .map_err(|error| Failure::failed(format!("cannot listen to signals: {error}")))?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let mut transports = transport::join(&args.transport, &args.node_name, &clock)?;
    for warning in transports.iter().flat_map(|transport| transport.warnings()) {
        warn!("{warning}");
    }
    let node = PlayerNode::offer(&options, &args.node_name, &mut transports);
    let player = Player::start(options, transports, Arc::clone(&clock))
        .map_err(|error| Failure::playing(error, &named.paths))?;
    let node = node.start(&player, clock)?;
    if let Some(socket) = &socket {
        let requests = PlayRequests(player.control());
        socket.serve(requests).map_err(Failure::failed)?;
    }
    for notice in player.notices() {
        warn!("{notice}");
    }
    info!("playing {}", player.topics().join(", "));
    let keyboard = if args.console.disable_keyboard_controls {
        None
    } else {
        Keyboard::start(sender)
    };
    watch(&player, &events, keyboard.is_some());
    let stop_was_asked = !player.is_finished();
    let report = if stop_was_asked {
        player.stop()
    } else {
        player.wait()
    };
    drop((keyboard, socket, node));
    show(&report, args)?;
    Ok(outcome(&report))
}

/// Passes keys to the player and shows its position, until its end or a signal.
fn watch(player: &Player, events: &Events, keys: bool) {
    let hint = if keys {
        "SPACE pause · → next message · ↑ ↓ rate · Ctrl-C stop"
    } else {
        "Ctrl-C stop"
    };
    let screen = Screen::open();
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
        match events.next(POLL_INTERVAL) {
            Some(Event::Key(key)) => press(&player.control(), key),
            Some(Event::Stop(signal)) => {
                info!("{signal}: stopping");
                return;
            }
            Some(Event::Snapshot) | None => {}
        }
    }
}

fn press(control: &PlayControl, key: Key) {
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
        Key::Right | Key::S | Key::M => {}
    }
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
fn outcome(report: &PlayReport) -> Outcome {
    let ended = report.status.phase == PlayPhase::Ended || report.stopped;
    match report {
        PlayReport { failure: Some(_), .. } => Outcome::Failed,
        _ if !ended => Outcome::Failed,
        _ if report.status.refused > 0 || !report.unacked.is_empty() || report.unacknowledged() > 0 => {
            Outcome::Lost
        }
        _ => Outcome::Done,
    }
}
