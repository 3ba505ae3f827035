//! Turns signals into events, on a separate thread.

use super::{
    events::{Event, EventSender},
    mode, screen,
};
use holdall_io::clock::{Clock, SystemClock};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1},
    iterator::Signals,
    low_level::emulate_default_handler,
};
use std::{io, path::Path, thread};

/// Starts to listen. From now on the signals that end a program do not end it: they are events.
///
/// # Errors
/// When the system refuses handlers or a thread.
pub fn listen(events: EventSender) -> io::Result<()> {
    let mut numbers = vec![SIGINT, SIGTERM, SIGQUIT, SIGTSTP, SIGUSR1];
    // `nohup` ignores SIGHUP so that the program outlives the terminal; it stays ignored.
    if !is_ignored(SIGHUP) {
        numbers.push(SIGHUP);
    }
    let mut signals = Signals::new(numbers)?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for number in signals.forever() {
            handle(number, &events);
        }
    })?;
    Ok(())
}

fn handle(number: i32, events: &EventSender) {
    let name = match number {
        SIGINT => "SIGINT",
        SIGTERM => "SIGTERM",
        SIGHUP => "SIGHUP",
        SIGUSR1 => {
            events.send(Event::Snapshot);
            return;
        }
        // Ctrl-Z and Ctrl-\ act as usual, with the terminal restored to the shell's mode.
        other => return do_default(other),
    };
    if events.hangs(SystemClock.monotonic()) {
        // As if it had no handler.
        do_default(number);
    }
    events.send(Event::Stop(name));
}

/// For verbs that do one piece of work: on a signal to end, unfinished files are removed and the program ends
/// as if it had no handler. Best effort: without it only a hidden directory remains, which the next run
/// removes.
pub fn remove_unfinished_at_end() {
    let mut numbers = vec![SIGINT, SIGTERM];
    if !is_ignored(SIGHUP) {
        numbers.push(SIGHUP);
    }
    let Ok(mut signals) = Signals::new(numbers) else {
        return;
    };
    let wait = move || {
        if let Some(number) = signals.forever().next() {
            holdall_io::unfinished::remove_all_and_hold();
            screen::clear();
            screen::flush();
            do_default(number);
        }
    };
    // Without a thread signals have no effect at all, so a program that cannot start one must not continue.
    if thread::Builder::new()
        .name("signals".to_owned())
        .spawn(wait)
        .is_err()
    {
        tracing::warn!("cannot start the thread that waits for signals; stop with Ctrl-\\");
    }
}

/// Applies the system's default action for an unhandled signal.
fn do_default(number: i32) {
    mode::restore_for_a_while();
    // Only for numbers that do not exist.
    let _ = emulate_default_handler(number);
}

/// More than the kernel ever writes there.
const STATUS_BYTES_MAX: u64 = 1 << 20;

/// Whether a signal was ignored when the program was started.
fn is_ignored(number: i32) -> bool {
    let status =
        holdall_io::fs::read_to_string(Path::new("/proc/self/status"), STATUS_BYTES_MAX).unwrap_or_default();
    ignored_mask(&status).is_some_and(|mask| mask >> (number - 1) & 1 == 1)
}

/// The line `SigIgn` of `/proc/self/status`: a bit for each ignored signal.
fn ignored_mask(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_kernels_table() {
        assert_eq!(
            ignored_mask("Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\t0"),
            Some(0x1001)
        );
        assert_eq!(ignored_mask("Name:\tx\n"), None);
    }
}
