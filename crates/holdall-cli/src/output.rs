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
    // Nothing more can be done when even standard error is gone.
    let _ = screen::write_above(format!("holdall: {}\n", one_line(sentence)).as_bytes());
}

/// One line, without the system's error numbers (`(os error 2)`), which say nothing to a user.
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
}
