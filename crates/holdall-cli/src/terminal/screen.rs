//! A few lines at the bottom of the terminal that are drawn again and again, below the log lines that scroll past.

use super::mode;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::{
    io::{self, Write},
    sync::OnceLock,
};

/// Drawn at most this many times a second.
const DRAWS_PER_S: u8 = 10;

/// One per process: log lines and status lines share the terminal.
static LINES: OnceLock<MultiProgress> = OnceLock::new();

fn lines() -> &'static MultiProgress {
    LINES.get_or_init(|| MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(DRAWS_PER_S)))
}

/// True when status lines can be drawn: standard error is a terminal that can move its cursor.
pub fn can_draw() -> bool {
    let term = console::Term::stderr();
    term.is_term() && std::env::var_os("TERM").is_none_or(|name| name != "dumb")
}

/// The status lines; dropping them clears them away.
pub struct Screen {
    bars: Vec<ProgressBar>,
}

impl Screen {
    /// Room for `height` lines; `None` when standard error is no terminal.
    pub fn open(height: usize) -> Option<Self> {
        // A template without placeholders that could fail: the message, cut off at the terminal's width.
        let style = ProgressStyle::with_template("{wide_msg}").ok()?;
        can_draw().then(|| Self {
            bars: (0..height)
                .map(|_| lines().add(ProgressBar::new_spinner().with_style(style.clone())))
                .collect(),
        })
    }

    /// Draws these lines in place of the former ones; missing ones are left empty. In the background nothing is drawn, because the
    /// terminal shows somebody else's text there.
    pub fn show(&self, texts: &[String]) {
        if !mode::is_foreground_of(rustix::stdio::stderr()) {
            return;
        }
        for (at, bar) in self.bars.iter().enumerate() {
            bar.set_message(texts.get(at).cloned().unwrap_or_default());
            bar.tick();
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        for bar in &self.bars {
            bar.finish_and_clear();
        }
        // Best effort: a terminal that is gone needs no clearing.
        let _ = lines().clear();
    }
}

/// Adds a bar of its own at the bottom.
pub fn add(bar: ProgressBar) -> ProgressBar {
    lines().add(bar)
}

/// Takes all status lines away.
pub fn clear() {
    // Best effort: a terminal that is gone needs no clearing.
    let _ = lines().clear();
}

/// Writes whole lines to standard error, above the status lines.
pub fn write_above(text: &[u8]) -> io::Result<()> {
    lines().suspend(|| io::stderr().lock().write_all(text))
}
