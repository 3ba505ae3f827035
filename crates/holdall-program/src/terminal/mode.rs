//! Makes single keys arrive without Enter and without echo, and restores the terminal.
//!
//! Only line editing and echo are switched off: Ctrl-C still sends a signal, and line ends are still drawn as
//! line ends. A process in the background must not touch the terminal (the system would stop it), so each
//! change checks first.

use holdall_io::mutex::lock;
use rustix::{
    process::getpgrp,
    stdio::stdin,
    termios::{LocalModes, OptionalActions, Termios, isatty, tcgetattr, tcgetpgrp, tcsetattr},
};
use std::{os::fd::BorrowedFd, sync::Mutex};

/// State of the terminal.
enum Mode {
    /// Never touched, or restored for now.
    Untouched,
    /// Keys arrive at once; this is the mode before.
    Keys(Box<Termios>),
    /// The program is about to end: changes are no longer allowed.
    Closed,
}

static MODE: Mutex<Mode> = Mutex::new(Mode::Untouched);

/// True if standard input is a terminal and this process may use it now.
pub fn is_foreground() -> bool {
    is_foreground_of(stdin())
}

/// True if `terminal` is one and this process is in its foreground: not started with `&`, not sent there by
/// `bg`.
pub fn is_foreground_of(terminal: BorrowedFd<'_>) -> bool {
    isatty(terminal) && tcgetpgrp(terminal).is_ok_and(|group| group == getpgrp())
}

/// Makes keys arrive at once; also after another program (a shell, after Ctrl-Z and `fg`) has changed the
/// terminal.
pub fn read_keys() {
    let mut mode = lock(&MODE);
    if matches!(*mode, Mode::Closed) || !is_foreground() {
        return;
    }
    let Ok(current) = tcgetattr(stdin()) else { return };
    let line_wise = LocalModes::ICANON | LocalModes::ECHO;
    if !current.local_modes.intersects(line_wise) {
        return;
    }
    let mut keys = current.clone();
    keys.local_modes.remove(line_wise);
    if tcsetattr(stdin(), OptionalActions::Now, &keys).is_ok() && !matches!(*mode, Mode::Keys(_)) {
        *mode = Mode::Keys(Box::new(current));
    }
}

/// Restores the terminal while the process is stopped (Ctrl-Z); [`read_keys`] may change it again.
pub fn restore_for_a_while() {
    restore(Mode::Untouched);
}

/// Restores the terminal for good. Safe to call at any time, from any thread, and more than once.
pub fn restore_for_good() {
    restore(Mode::Closed);
}

fn restore(next: Mode) {
    let mut mode = lock(&MODE);
    let previous = std::mem::replace(&mut *mode, next);
    if let Mode::Keys(before) = previous
        && is_foreground()
    {
        // Nothing can be done for a terminal that refuses its own former mode.
        let _ = tcsetattr(stdin(), OptionalActions::Now, &before);
    }
}
