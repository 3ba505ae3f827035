//! Brings Cyclone DDS's messages into the program's log, few of each kind ([`super::log_limit`]).

use super::log_limit::LogLimit;
use cyclors::{dds_log_data_t, dds_set_log_sink};
use holdall_io::clock::{Clock as _, SystemClock};
use holdall_io::mutex::lock;
use std::{
    ffi::c_void,
    panic::catch_unwind,
    ptr, slice,
    sync::{Mutex, Once},
};

/// `DDS_LC_FATAL`, `DDS_LC_ERROR` and `DDS_LC_WARNING`.
const WORTH_A_WARNING: u32 = 1 | 2 | 4;

static LIMIT: Mutex<LogLimit> = Mutex::new(LogLimit::new());

/// Takes over Cyclone's messages, for all domains of this process.
pub(super) fn take_over_messages() {
    static ONCE: Once = Once::new();
    // SAFETY: the sink is a function without state that lives for ever.
    ONCE.call_once(|| unsafe { dds_set_log_sink(Some(log), ptr::null_mut()) });
}

unsafe extern "C" fn log(_: *mut c_void, data: *const dds_log_data_t) {
    // A panic must not unwind into C, and has nowhere to be reported to.
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
        let admitted = lock(&LIMIT).admit(&message, SystemClock.monotonic());
        if let Some(message) = admitted {
            tracing::warn!("Cyclone DDS: {message}");
        }
    });
}
