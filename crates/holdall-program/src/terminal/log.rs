//! Log lines on standard error: short on a terminal, with the time of day in a file.

use super::screen;
use crate::{hint, standard_input::as_named};
use holdall::record::Setting;
use holdall_io::clock::{Clock, SystemClock};
use holdall_model::text::Outside;
use std::{fmt, io, sync::OnceLock};
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
    level_filters::LevelFilter,
};
use tracing_subscriber::{
    Registry,
    filter::Targets,
    fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter, format::Writer},
    layer::SubscriberExt,
    registry::LookupSpan,
    reload,
    util::SubscriberInitExt,
};

/// The filter of the process's log.
static TARGETS: OnceLock<reload::Handle<Targets, Registry>> = OnceLock::new();

/// Begins to write log lines. Called once.
pub fn start(level: LevelFilter) {
    let terminal = console::Term::stderr().is_term();
    let layer = tracing_subscriber::fmt::layer()
        .event_format(Line {
            with_time: !terminal,
            colored: terminal && console::colors_enabled_stderr(),
        })
        .with_writer(Above);
    let (targets, handle) = reload::Layer::new(targets(level));
    // Fails only when it is called twice; the first one stays.
    let _ = tracing_subscriber::registry()
        .with(targets)
        .with(layer)
        .try_init();
    let _ = TARGETS.set(handle);
}

/// Writes only lines of this level from now on.
pub fn set_level(level: LevelFilter) {
    if let Some(handle) = TARGETS.get() {
        // Fails only when the subscriber is gone, which lives as long as the process.
        let _ = handle.reload(targets(level));
    }
}

/// The targets written at a level.
fn targets(level: LevelFilter) -> Targets {
    let others = if level == LevelFilter::OFF {
        LevelFilter::OFF
    } else {
        LevelFilter::WARN
    };
    Targets::new()
        .with_default(others)
        .with_target("holdall", level)
        // It warns of lines with one point, which curves of few values have.
        .with_target("usvg", LevelFilter::OFF)
}

/// Writes each line above the status lines.
struct Above;

impl<'a> MakeWriter<'a> for Above {
    type Writer = AboveWriter;

    fn make_writer(&'a self) -> Self::Writer {
        AboveWriter
    }
}

/// Receives a whole line at once from the formatter.
struct AboveWriter;

impl io::Write for AboveWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        screen::write_above(as_named(&String::from_utf8_lossy(line)).as_bytes());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// `warn: text`, or `2026-11-21 20:31:05.123 warn: text`.
struct Line {
    with_time: bool,
    colored: bool,
}

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        if self.with_time {
            let nanos = i128::from(SystemClock.now().as_nanos());
            let now = jiff::Timestamp::from_nanosecond(nanos).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
            let local = now.to_zoned(jiff::tz::TimeZone::system());
            write!(writer, "{} ", local.strftime("%Y-%m-%d %H:%M:%S.%3f"))?;
        }
        let (name, color) = level(*event.metadata().level());
        if self.colored {
            write!(writer, "\x1b[{color}m{name}\x1b[0m: ")?;
        } else {
            write!(writer, "{name}: ")?;
        }
        let mut text = Text::default();
        event.record(&mut text);
        writeln!(writer, "{}", Outside(&text.with_flag()))
    }
}

/// The fields of a log line: the message, the setting that would help, and all else as `name=value`.
#[derive(Default)]
struct Text {
    message: String,
    others: String,
    setting: Option<Setting>,
}

impl Text {
    /// `message name=value (--flag)`.
    fn with_flag(self) -> String {
        let text = self.message + &self.others;
        match self.setting {
            Some(setting) => format!("{text} ({})", hint::flag(setting)),
            None => text,
        }
    }
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            name => self.others.push_str(&format!(" {name}={value:?}")),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match Setting::from_name(value).filter(|_| field.name() == "setting") {
            Some(setting) => self.setting = Some(setting),
            None => self.record_debug(field, &value),
        }
    }
}

/// A level's name and its colour (SGR parameter).
const fn level(level: Level) -> (&'static str, &'static str) {
    match level {
        Level::ERROR => ("error", "1;31"),
        Level::WARN => ("warn", "33"),
        Level::INFO => ("info", "32"),
        Level::DEBUG => ("debug", "34"),
        Level::TRACE => ("trace", "2"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    /// Keeps the line that each event becomes.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<String>>>);

    impl<S: Subscriber> tracing_subscriber::Layer<S> for Lines {
        fn on_event(&self, event: &Event<'_>, _context: tracing_subscriber::layer::Context<'_, S>) {
            let mut text = Text::default();
            event.record(&mut text);
            self.0.lock().unwrap().push(text.with_flag());
        }
    }

    #[test]
    fn a_line_ends_with_the_flag_of_the_setting_that_it_names() {
        let lines = Lines::default();
        let subscriber = tracing_subscriber::registry().with(lines.clone());
        tracing::subscriber::with_default(subscriber, || {
            let late = 2;
            tracing::warn!(setting = Setting::MaxLossWindow.name(), "{late} seconds late");
            tracing::warn!(late, setting = "of another crate", "a line");
        });
        assert_eq!(
            *lines.0.lock().unwrap(),
            [
                "2 seconds late (--max-loss-window)",
                "a line late=2 setting=\"of another crate\""
            ]
        );
    }
}
