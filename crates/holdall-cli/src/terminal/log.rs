//! Log lines on standard error: short on a terminal, with the time of day in a file.

use super::screen;
use crate::verbs::input::as_named;
use holdall_io::clock::{Clock, SystemClock};
use holdall_model::text::Outside;
use std::{fmt, io};
use tracing::{Event, Level, Subscriber, level_filters::LevelFilter};
use tracing_subscriber::{
    filter::Targets,
    fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter, format::Writer},
    layer::SubscriberExt,
    registry::LookupSpan,
    util::SubscriberInitExt,
};

/// Begins to write log lines. Called once.
pub fn start(level: LevelFilter) {
    let terminal = console::Term::stderr().is_term();
    let layer = tracing_subscriber::fmt::layer()
        .event_format(Line {
            with_time: !terminal,
            colored: terminal && console::colors_enabled_stderr(),
        })
        .with_writer(Above);
    let others = if level == LevelFilter::OFF {
        LevelFilter::OFF
    } else {
        LevelFilter::WARN
    };
    let targets = Targets::new().with_default(others).with_target("holdall", level);
    // Fails only when it is called twice; the first one stays.
    let _ = tracing_subscriber::registry()
        .with(targets)
        .with(layer)
        .try_init();
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
        context: &FmtContext<'_, S, N>,
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
        let mut text = String::new();
        context
            .field_format()
            .format_fields(Writer::new(&mut text), event)?;
        writeln!(writer, "{}", Outside(&text))
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
