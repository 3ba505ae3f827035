//! The output of a bug in this program: one sentence and exit code 1, never a trace.

use crate::terminal::{mode, screen};
use std::{
    panic::{self, PanicHookInfo},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

/// Prefix of the names of threads that run iceoryx2, which panics on damaged files of other processes.
const ICEORYX2_THREADS: &str = "iceoryx2-";

static PANICKED: AtomicBool = AtomicBool::new(false);

/// Replaces the trace of a panic with one sentence, and restores the terminal first. A thread whose name begins with `others` ends alone: the work does
/// not depend on it.
pub fn install(others: Option<&'static str>) {
    panic::set_hook(Box::new(move |info| {
        if thread::current()
            .name()
            .is_some_and(|name| name.starts_with(ICEORYX2_THREADS))
        {
            // Its transport ends and reports that; the recording records on with the others.
            tracing::error!(
                "iceoryx2 cannot read what is in its folders or its shared memory: {}",
                what(info)
            );
            return;
        }
        if thread::current()
            .name()
            .zip(others)
            .is_some_and(|(name, others)| name.starts_with(others))
        {
            // One client's thread ends; the recording does not depend on it.
            tracing::error!("{}", sentence(info).trim_end());
            return;
        }
        PANICKED.store(true, Ordering::SeqCst);
        mode::restore_for_good();
        screen::write_of_panic(sentence(info).as_bytes());
    }));
}

/// True if any thread has panicked, caught or not: the run cannot count as done.
pub fn happened() -> bool {
    PANICKED.load(Ordering::SeqCst)
}

fn what<'a>(info: &'a PanicHookInfo<'_>) -> &'a str {
    let payload = info.payload();
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no reason given")
}

fn sentence(info: &PanicHookInfo<'_>) -> String {
    let what = what(info);
    let place = info
        .location()
        .map_or_else(String::new, |at| format!(" at {}:{}", at.file(), at.line()));
    describe(what, &place)
}

fn describe(what: &str, place: &str) -> String {
    let what = what.split_whitespace().collect::<Vec<_>>().join(" ");
    format!(
        "holdall: a bug in holdall {}{place}: {what}; please report it\n",
        env!("CARGO_PKG_VERSION")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_one_line() {
        let text = describe("called `Result::unwrap()`\n  on an `Err` value", " at src/x.rs:7");
        assert_eq!(text.lines().count(), 1);
        assert!(
            text.contains(" at src/x.rs:7: called `Result::unwrap()` on an `Err` value; please report it")
        );
    }
}
