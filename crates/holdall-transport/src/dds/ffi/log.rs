//! Writes Cyclone DDS's messages to the program's log, a few of each kind ([`super::log_limit`]).

use super::log_limit::LogLimit;
use holdall_cyclone_sys::{dds_log_data_t, dds_set_log_sink};
use holdall_io::clock::{Clock as _, SystemClock};
use holdall_io::mutex::lock;
use std::{
    cell::RefCell,
    ffi::c_void,
    panic::catch_unwind,
    ptr, slice,
    sync::{Mutex, Once},
};

/// `DDS_LC_FATAL`, `DDS_LC_ERROR` and `DDS_LC_WARNING`.
const WORTH_A_WARNING: u32 = 1 | 2 | 4;

static LIMIT: Mutex<LogLimit> = Mutex::new(LogLimit::new());

/// Most messages of a call that are kept.
const WORDS_MAX: usize = 16;

thread_local! {
    /// Warnings and errors of a call that is running on this thread.
    static WORDS: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Runs `call`; Cyclone's warnings on this thread during the call are returned, not logged.
pub(in crate::dds) fn with_words<T>(call: impl FnOnce() -> T) -> (T, Vec<String>) {
    WORDS.set(Some(Vec::new()));
    let outcome = call();
    (outcome, WORDS.take().unwrap_or_default())
}

/// Logs messages that [`with_words`] has kept.
pub(in crate::dds) fn log_words(words: &[String]) {
    for words in words {
        warn(words);
    }
}

/// Keeps a message for the call that is running on this thread; false where there is none.
fn keep(message: &str) -> bool {
    WORDS.with_borrow_mut(|kept| match kept {
        Some(words) => {
            if words.len() < WORDS_MAX {
                words.push(message.split_whitespace().collect::<Vec<_>>().join(" "));
            }
            true
        }
        None => false,
    })
}

fn warn(message: &str) {
    let admitted = lock(&LIMIT).admit(message, SystemClock.monotonic());
    if let Some(message) = admitted {
        tracing::warn!("Cyclone DDS: {message}");
    }
}

/// Takes over Cyclone's messages, for all domains of this process.
pub(in crate::dds) fn take_over_messages() {
    static ONCE: Once = Once::new();
    // SAFETY: the sink is a function without state that lives for ever.
    ONCE.call_once(|| unsafe { dds_set_log_sink(Some(log), ptr::null_mut()) });
}

unsafe extern "C" fn log(_: *mut c_void, data: *const dds_log_data_t) {
    // A panic must not unwind into C, and cannot be reported anywhere.
    let _ = catch_unwind(|| {
        // SAFETY: Cyclone passes a message of `size` bytes, which begins with a header of `hdrsize` bytes.
        let (message, priority) = unsafe {
            let data = &*data;
            let bytes = slice::from_raw_parts(data.message.cast::<u8>(), data.size);
            (bytes, data.priority)
        };
        let message = String::from_utf8_lossy(message);
        if priority & WORTH_A_WARNING == 0 {
            tracing::debug!("Cyclone DDS: {}", message.trim_end());
            return;
        }
        if !keep(&message) {
            warn(&message);
        }
    });
}
