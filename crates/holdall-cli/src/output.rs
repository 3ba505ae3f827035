//! Writes results to standard output and complaints to standard error; a reader that has gone away is no failure.

use crate::{exit::Failure, terminal::screen};
use std::io::{self, Write};

/// Writes a result and an end of line to standard output.
///
/// # Errors
/// When it cannot be written, unless the reader has closed the pipe (`holdall info bag | head -3`).
pub fn result(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match writeln!(stdout, "{}", text.trim_end_matches('\n')).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::failed(format!(
            "cannot write to standard output: {error}"
        ))),
        _ => Ok(()),
    }
}

/// Writes why the program ends to standard error, as one line.
pub fn complain(sentence: &str) {
    let one_line: Vec<&str> = sentence
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    // Nothing more can be done when even standard error is gone.
    let _ = screen::write_above(format!("holdall: {}\n", one_line.join(" ")).as_bytes());
}
