//! Writes results to standard output and complaints to standard error; it is not a failure if the reader or
//! the terminal has gone away.

use crate::{exit::Failure, names::STYLES, standard_input::as_named, terminal::screen};
use holdall_model::text::{Outside, escape_unless};
use rustix::{io::Errno, termios::tcgetattr};
use std::{
    borrow::Cow,
    io::{self, IsTerminal, Write},
    path::Path,
    sync::mpsc::{RecvTimeoutError, sync_channel},
    thread,
    time::Duration,
};

/// The end of a recording waits this long for a terminal that accepts nothing (Ctrl-S).
const PATIENCE: Duration = Duration::from_secs(1);

/// Bytes that a terminal shows at once.
const PIECE_BYTES: usize = 1024;

/// Writes a result and an end of line to standard output.
///
/// # Errors
/// When it cannot be written, unless the reader has closed the pipe (`holdall info bag | head -3`) or the terminal is gone.
pub fn result(text: &str) -> Result<(), Failure> {
    screen::flush();
    let text = format!("{}\n", visible(&as_named(text.trim_end_matches('\n'))));
    if screen::must_not_wait() && is_terminal() {
        write_in_time(text);
        return Ok(());
    }
    let mut stdout = io::stdout().lock();
    wanted(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())).map(drop)
}

/// Width of the terminal at standard output in cells; `None` if it is not a terminal.
pub fn columns() -> Option<usize> {
    is_terminal().then(|| screen::size(rustix::stdio::stdout()).columns)
}

/// Escapes all that acts on a terminal except ends of lines and our own colours. Names in a result are
/// [`Outside`] already and contain neither; this is for names that were missed, and for JSON, where the
/// escapes mean the same.
pub fn visible(text: &str) -> Cow<'_, str> {
    escape_unless(text, |c, rest| match c {
        '\n' | '\t' => true,
        '\x1b' => is_colour(rest),
        _ => false,
    })
}

/// The part after ESC in `ESC [ 1 ; 31 m`.
fn is_colour(rest: &str) -> bool {
    let Some(parameters) = rest.strip_prefix('[') else {
        return false;
    };
    parameters
        .trim_start_matches(|c: char| c.is_ascii_digit() || c == ';')
        .starts_with('m')
}

/// Writes to a terminal as long as it accepts bytes.
fn write_in_time(text: String) {
    let (accepted, progress) = sync_channel(1);
    let write = move || {
        for piece in text.as_bytes().chunks(PIECE_BYTES) {
            let mut stdout = io::stdout().lock();
            if stdout.write_all(piece).and_then(|()| stdout.flush()).is_err() || accepted.send(()).is_err() {
                return;
            }
        }
    };
    if thread::Builder::new()
        .name("result".to_owned())
        .spawn(write)
        .is_ok()
    {
        // Ends when the thread has written everything, and dropped its end.
        while !matches!(
            progress.recv_timeout(PATIENCE),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected)
        ) {}
    }
}

/// True if standard output is a terminal, also one that is gone.
fn is_terminal() -> bool {
    matches!(tcgetattr(rustix::stdio::stdout()), Ok(_) | Err(Errno::IO))
}

/// Copies a file to standard output.
///
/// # Errors
/// As [`result`], and when the file cannot be read.
pub fn file(path: &Path) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    let copied = holdall_io::fs::copy_to(path, &mut stdout);
    wanted(copied.and_then(|()| stdout.flush())).map(drop)
}

/// Standard output for long results.
pub struct Stream {
    out: io::StdoutLock<'static>,
    is_terminal: bool,
}

impl Stream {
    /// Holds standard output until it is dropped.
    pub fn stdout() -> Self {
        let out = io::stdout().lock();
        let is_terminal = out.is_terminal();
        Self { out, is_terminal }
    }

    /// True if standard output is a terminal.
    pub fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Writes bytes; false if the reader has closed the pipe.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn write(&mut self, bytes: &[u8]) -> Result<bool, Failure> {
        wanted(self.out.write_all(bytes))
    }

    /// Writes buffered text.
    ///
    /// # Errors
    /// As [`Stream::write`].
    pub fn flush(&mut self) -> Result<bool, Failure> {
        wanted(self.out.flush())
    }
}

fn wanted(written: io::Result<()>) -> Result<bool, Failure> {
    match written {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe || is_gone(&error) => Ok(false),
        Err(error) => Err(Failure::failed(format!(
            "cannot write to standard output: {error}"
        ))),
    }
}

/// A terminal whose window was closed.
fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::IO.raw_os_error()) && is_terminal()
}

/// Writes the error in a command line, or help that was requested; a closed pipe is not a failure.
pub fn usage(error: &clap::Error) {
    if !error.use_stderr() {
        let _ = error.print();
        return;
    }
    let text = error.render();
    let text = if console::colors_enabled_stderr() {
        text.ansi().to_string()
    } else {
        text.to_string()
    };
    screen::write_above(visible(&text).as_bytes());
}

/// Writes something that deserves attention to standard error, as one line.
pub fn complain(sentence: &str) {
    write_line("holdall:", sentence);
}

/// Writes why the program ends to standard error, as one line; with the colour that errors in a command line have.
pub fn fail(sentence: &str) {
    let style = if console::colors_enabled_stderr() {
        *STYLES.get_error()
    } else {
        clap::builder::styling::Style::new()
    };
    write_line(&format!("{style}holdall:{style:#}"), sentence);
}

fn write_line(head: &str, sentence: &str) {
    let line = one_line(sentence);
    screen::write_above(format!("{head} {}\n", Outside(&as_named(&line))).as_bytes());
}

/// One line, without the system's error numbers (`(os error 2)`), which are of no use to a user.
fn one_line(sentence: &str) -> String {
    let lines: Vec<&str> = sentence
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let mut line = lines.join(" ");
    while let Some(start) = line.find(" (os error ") {
        let Some(length) = line[start..].find(')') else {
            break;
        };
        line.replace_range(start..=start + length, "");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_one_line_without_error_numbers() {
        assert_eq!(
            one_line("cannot open a: not found (os error 2), b\n  c"),
            "cannot open a: not found, b c"
        );
        assert_eq!(one_line("x (os error "), "x (os error");
    }

    #[test]
    fn results_keep_their_colours_and_nothing_else_that_acts_on_a_terminal() {
        assert_eq!(
            visible("\x1b[1;31mlost\x1b[0m\n\x1b[2J\x1b]0;x\x07\u{9b}31m\u{202e}"),
            "\x1b[1;31mlost\x1b[0m\n\\u001b[2J\\u001b]0;x\\u0007\\u009b31m\\u202e"
        );
    }
}
