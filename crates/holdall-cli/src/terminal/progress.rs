//! A progress bar with the time that is left, for long work; nothing where standard error is no terminal.

use super::{mode, screen};
use indicatif::{ProgressBar, ProgressStyle};
use std::cell::Cell;

/// Bytes between two looks at the bar; drawing itself is limited by time.
const STEP_BYTES: u64 = 4 << 20;

/// Work that is measured in bytes; dropping it clears the bar away.
pub struct ByteProgress {
    bar: Option<ProgressBar>,
    shown: Cell<u64>,
}

impl ByteProgress {
    /// A bar that says what is being done.
    pub fn open(what: &str) -> Self {
        let template = "{msg} {wide_bar} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
        let bar = ProgressStyle::with_template(template)
            .ok()
            .filter(|_| screen::can_draw())
            .map(|style| {
                screen::add(
                    ProgressBar::new(0)
                        .with_style(style)
                        .with_message(what.to_owned()),
                )
            });
        Self {
            bar,
            shown: Cell::new(0),
        }
    }

    /// Tells how far the work is.
    pub fn show(&self, done_bytes: u64, total_bytes: u64) {
        let Some(bar) = &self.bar else { return };
        let is_due = done_bytes < self.shown.get() || done_bytes - self.shown.get() >= STEP_BYTES;
        if is_due && mode::is_foreground_of(rustix::stdio::stderr()) {
            self.shown.set(done_bytes);
            bar.set_length(total_bytes);
            bar.set_position(done_bytes.min(total_bytes));
        }
    }
}

impl Drop for ByteProgress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
