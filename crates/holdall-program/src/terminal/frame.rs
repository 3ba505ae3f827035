//! The bytes that put log lines above the status lines of a terminal, whatever its width is and was.

use console::{measure_text_width, truncate_str};
use std::io::Write;

/// How large a terminal is, in cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Cells of a row.
    pub columns: usize,
    /// Rows.
    pub rows: usize,
}

/// Which status lines are on the screen.
#[derive(Debug, Default)]
pub struct Frame {
    /// The width of each status line on the screen, in cells.
    drawn: Vec<usize>,
    /// Whether the terminal rewraps lines when it gets narrower. xterm does not.
    keeps_rows: bool,
}

impl Frame {
    /// Nothing on the screen yet.
    pub const fn new(keeps_rows: bool) -> Self {
        Self {
            drawn: Vec::new(),
            keeps_rows,
        }
    }

    /// True if status lines are on the screen.
    pub const fn is_drawn(&self) -> bool {
        !self.drawn.is_empty()
    }

    /// Erases the status lines, writes whole lines above them, and draws `status` below.
    pub fn compose(&mut self, above: &[u8], status: &[String], size: Size) -> Vec<u8> {
        let mut out = Vec::with_capacity(above.len() + 256);
        self.erase(&mut out, size);
        out.extend_from_slice(above);
        if !above.is_empty() && above.last() != Some(&b'\n') {
            out.push(b'\n');
        }
        // One row stays for the log lines; a row is never filled, because terminals differ in what happens
        // then.
        let shown = status.iter().take(size.rows.saturating_sub(1));
        for (at, line) in shown.enumerate() {
            let line = truncate_str(line, size.columns.saturating_sub(1), "…");
            if at > 0 {
                out.push(b'\n');
            }
            out.extend_from_slice(line.as_bytes());
            self.drawn.push(measure_text_width(&line));
        }
        if self.is_drawn() {
            // Characters echoed from here on (`^C`) cannot wrap, and a shell after a kill overwrites the last
            // line.
            out.push(b'\r');
        }
        out
    }

    /// The cursor is at the start of the last status line.
    fn erase(&mut self, out: &mut Vec<u8>, size: Size) {
        let Some((_, before)) = self.drawn.split_last() else {
            return;
        };
        let rows_of = |cells: &usize| match self.keeps_rows {
            true => 1,
            false => cells.div_ceil(size.columns.max(1)).max(1),
        };
        let up: usize = before.iter().map(rows_of).sum();
        out.push(b'\r');
        if up > 0 {
            // Writing to a Vec cannot fail.
            let _ = write!(out, "\x1b[{up}A");
        }
        out.extend_from_slice(b"\x1b[J");
        self.drawn.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A terminal emulator as a user sees it.
    fn screen(columns: u16, rows: u16) -> vt100::Parser {
        vt100::Parser::new(rows, columns, 0)
    }

    fn size(columns: usize, rows: usize) -> Size {
        Size { columns, rows }
    }

    fn show(parser: &mut vt100::Parser, bytes: &[u8]) -> Vec<String> {
        // The terminal driver turns line ends into CR LF.
        let text = String::from_utf8(bytes.to_vec()).unwrap().replace('\n', "\r\n");
        parser.process(text.as_bytes());
        let contents = parser.screen().contents();
        contents.lines().map(|line| line.trim_end().to_owned()).collect()
    }

    fn lines(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn log_lines_scroll_past_above_the_status_lines() {
        for columns in [40, 80, 200] {
            let (mut frame, mut parser) = (Frame::default(), screen(columns, 10));
            let size = size(usize::from(columns), 10);
            let wide = "x".repeat(300);
            for number in 0..20 {
                let status = [format!("status {number} {wide}"), "keys".to_owned()];
                let log = format!("log {number}\n");
                let shown = show(&mut parser, &frame.compose(log.as_bytes(), &status, size));
                let end = shown.len();
                assert_eq!(shown[end - 1], "keys", "{columns}");
                assert!(
                    shown[end - 2].starts_with(&format!("status {number} x")),
                    "{shown:?}"
                );
                assert!(shown[end - 2].ends_with('…'), "{shown:?}");
                assert_eq!(shown[end - 3], format!("log {number}"));
                let statuses = shown.iter().filter(|line| line.contains("status")).count();
                assert_eq!(statuses, 1, "{shown:?}");
            }
            let shown = show(&mut parser, &frame.compose(b"", &[], size));
            assert!(shown.iter().all(|line| line.starts_with("log ")), "{shown:?}");
        }
    }

    #[test]
    fn a_window_that_gets_narrower_keeps_no_old_status_lines() {
        // As tmux, VTE and kitty show 80 columns after a change to 50: each long line takes two rows.
        let mut frame = Frame::new(false);
        let status = lines(&[&"a".repeat(70), &"b".repeat(79), "keys"]);
        frame.compose(b"", &status, size(80, 24));
        let mut parser = screen(50, 24);
        let wrapped = format!("log\n{}\n{}\nkeys\r", "a".repeat(70), "b".repeat(79));
        show(&mut parser, wrapped.as_bytes());
        let shown = show(&mut parser, &frame.compose(b"", &status, size(50, 24)));
        assert_eq!(
            shown,
            [
                "log".to_owned(),
                format!("{}…", "a".repeat(48)),
                format!("{}…", "b".repeat(48)),
                "keys".to_owned()
            ]
        );
    }

    #[test]
    fn a_terminal_that_cuts_rows_off_is_not_erased_above_the_status_lines() {
        let mut frame = Frame::new(true);
        let status = lines(&[&"a".repeat(70), "keys"]);
        frame.compose(b"", &status, size(80, 24));
        let mut parser = screen(50, 24);
        show(&mut parser, format!("log\n{}\nkeys\r", "a".repeat(49)).as_bytes());
        let shown = show(&mut parser, &frame.compose(b"", &status, size(50, 24)));
        assert_eq!((shown.len(), shown[0].as_str()), (3, "log"), "{shown:?}");
    }

    #[test]
    fn a_window_of_two_rows_shows_one_status_line() {
        let (mut frame, mut parser) = (Frame::default(), screen(20, 2));
        for number in 0..5 {
            let log = format!("log {number}\n");
            let shown = show(
                &mut parser,
                &frame.compose(log.as_bytes(), &lines(&["one", "two"]), size(20, 2)),
            );
            assert_eq!(shown, [format!("log {number}"), "one".to_owned()]);
        }
    }
}
