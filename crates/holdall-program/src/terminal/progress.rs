//! A progress bar with the remaining time, for long work; nothing if standard error is not a terminal. A program that runs this one gets
//! lines of JSON instead, when it asks for them.

use super::screen::{self, Screen};
use crate::{
    line::{Line, bar},
    rate::{RateMeter, Rates},
    units::{format_byte_rate, format_bytes, format_count, format_elapsed},
};
use holdall_io::clock::{Clock, SystemClock};
use std::{
    cell::{Cell, RefCell},
    io::Write,
    time::Duration,
};

/// Time between two drawings.
const DRAW_INTERVAL: Duration = Duration::from_millis(100);

/// With this variable set to `json`, progress is a line such as `{"progress":{"done":5,"total":9,"unit":"bytes"}}` on standard error.
const LINES: &str = "HOLDALL_PROGRESS";

/// The longest bar in cells.
const BAR_CELLS_MAX: usize = 40;

/// Unit of the count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Bytes,
    Messages,
}

/// A bar; dropping it clears it away.
pub struct Progress {
    screen: Option<Screen>,
    /// Whether lines are written in place of a bar.
    writes_lines: bool,
    last: Cell<Option<(u64, u64)>>,
    what: String,
    unit: Unit,
    began: Duration,
    next_draw: Cell<Duration>,
    rates: RefCell<RateMeter>,
}

impl Progress {
    /// A bar over bytes that names the work.
    pub fn of_bytes(what: &str) -> Self {
        Self::open(what, Unit::Bytes)
    }

    /// A bar over messages that names the work.
    pub fn of_messages(what: &str) -> Self {
        Self::open(what, Unit::Messages)
    }

    fn open(what: &str, unit: Unit) -> Self {
        let now = SystemClock.monotonic();
        let writes_lines = std::env::var_os(LINES).is_some_and(|form| form == "json");
        Self {
            screen: if writes_lines { None } else { Screen::open() },
            writes_lines,
            last: Cell::new(None),
            what: what.to_owned(),
            unit,
            began: now,
            next_draw: Cell::new(now),
            rates: RefCell::default(),
        }
    }

    /// Draws how far the work is, when it is time.
    pub fn show(&self, done: u64, total: u64) {
        if self.screen.is_none() && !self.writes_lines {
            return;
        }
        self.last.set(Some((done, total)));
        let now = SystemClock.monotonic();
        if now < self.next_draw.get() {
            return;
        }
        self.next_draw.set(now + DRAW_INTERVAL);
        let Some(screen) = &self.screen else {
            return self.write_line();
        };
        let elapsed = now.saturating_sub(self.began);
        let rates = self.rates.borrow_mut().update(elapsed, done, done);
        screen.show(vec![line(
            &self.what,
            self.unit,
            done.min(total),
            total,
            rates,
            screen::columns(),
        )]);
    }
}

impl Progress {
    /// Writes how far the work was last.
    fn write_line(&self) {
        let Some((done, total)) = self.last.take() else {
            return;
        };
        let unit = match self.unit {
            Unit::Bytes => "bytes",
            Unit::Messages => "messages",
        };
        let line = serde_json::json!({"progress": {"done": done.min(total), "total": total, "unit": unit}});
        // A reader that went away is not the end of the work.
        let _ = writeln!(std::io::stderr(), "{line}");
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.writes_lines {
            self.write_line();
        }
    }
}

/// `converting ████░░░░  1.2 GiB of 5.8 GiB  130 MiB/s  00:37 left`; the bar shrinks first, then the words in front, and the numbers stay.
fn line(what: &str, unit: Unit, done: u64, total: u64, rates: Rates, columns: usize) -> String {
    let (amount, rate) = match unit {
        Unit::Bytes => (
            format!("{} of {}", format_bytes(done), format_bytes(total)),
            format_byte_rate(rates.bytes_per_s),
        ),
        Unit::Messages => (
            format!("{} of {} messages", format_count(done), format_count(total)),
            format!("{}/s", format_count(rates.messages_per_s.round() as u64)),
        ),
    };
    let left = (rates.messages_per_s > 0.0).then(|| {
        let left = Duration::try_from_secs_f64(total.saturating_sub(done) as f64 / rates.messages_per_s);
        format!("{} left", format_elapsed(left.unwrap_or_default()))
    });
    let share = if total == 0 {
        0.0
    } else {
        done as f64 / total as f64
    };
    Line::new(columns)
        .part(4, what)
        .stretch(BAR_CELLS_MAX, |cells| bar(share, cells))
        .part(3, &format!("{:.0} %", share * 100.0))
        .part(1, &amount)
        .part(5, &rate)
        .part(2, left.as_deref().unwrap_or_default())
        .text()
}

#[cfg(test)]
mod tests {
    use super::*;
    use console::measure_text_width;

    const RATES: Rates = Rates {
        messages_per_s: 130e6,
        bytes_per_s: 130e6,
    };

    #[test]
    fn the_numbers_stay_when_the_terminal_gets_narrow() {
        let at = |columns| line("converting", Unit::Bytes, 931_300_000, 6 << 30, RATES, columns);
        for columns in [30, 40, 80, 120, 200] {
            let text = at(columns);
            assert!(measure_text_width(&text) < columns, "{columns}: {text}");
            assert!(text.contains("888.2 MiB of 6.0 GiB"), "{columns}: {text}");
        }
        assert!(
            at(40).contains("14 %") && at(40).contains("00:42 left"),
            "{}",
            at(40)
        );
        for columns in [80, 120, 200] {
            let text = at(columns);
            assert!(
                text.starts_with("converting ") && text.contains("124 MiB/s") && text.contains('█'),
                "{text}"
            );
        }
    }

    #[test]
    fn messages_are_counted_too() {
        let text = line("exporting", Unit::Messages, 1000, 4000, RATES, 80);
        assert!(
            text.contains("1 000 of 4 000 messages") && text.contains("25 %"),
            "{text}"
        );
    }

    #[test]
    fn nothing_is_left_of_nothing() {
        let text = line("checking", Unit::Bytes, 0, 0, Rates::default(), 80);
        assert!(text.contains("0 B of 0 B") && !text.contains("left"), "{text}");
    }
}
