//! Tries a configuration of Cyclone DDS in a child process: where Cyclone ends the process, only the child ends, and Cyclone's messages are kept.
//!
//! Cyclone calls `abort` for some bad values (a peer in `CYCLONEDDS_URI` whose name has no address), and its clean-up after a start that
//! failed can crash. A user's own configuration is tried first, so that the answer is a sentence and not a core dump.

use holdall_cyclone_sys::{
    dds_create_domain, dds_domainid_t, dds_log_data_t, dds_set_log_mask, dds_set_log_sink,
};
use std::{
    ffi::{CStr, c_void},
    io::{PipeReader, Read as _},
    os::fd::{AsRawFd as _, FromRawFd as _},
    ptr,
};

/// How long the child may take; one that takes longer proves nothing.
const TRIAL_MS_MAX: i32 = 5_000;

/// Most bytes of Cyclone's words that are kept.
const WORDS_BYTES_MAX: u64 = 16 << 10;

/// Cyclone's fatal, error and warning messages.
const LOG_MASK: u32 = 1 | 2 | 4;

/// Where the trial stopped.
enum Outcome {
    Started,
    Refused,
    Crashed(i32),
    Unknown,
}

/// Starts a domain in a child process.
///
/// # Errors
/// One sentence when Cyclone refuses the configuration, or crashes with it.
pub(in crate::dds) fn try_configuration(domain: dds_domainid_t, config: &CStr) -> Result<(), String> {
    let (outcome, words) = run_in_child(domain, config);
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    let words = if words.is_empty() {
        "it gives no reason".to_owned()
    } else {
        words
    };
    match outcome {
        Outcome::Started | Outcome::Unknown => Ok(()),
        Outcome::Refused => Err(format!(
            "Cyclone DDS refuses its configuration: {words}; is CYCLONEDDS_URI right?"
        )),
        Outcome::Crashed(signal) => Err(format!(
            "Cyclone DDS crashes with its configuration (signal {signal}): {words}; is CYCLONEDDS_URI right?"
        )),
    }
}

fn run_in_child(domain: dds_domainid_t, config: &CStr) -> (Outcome, String) {
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for both descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return (Outcome::Unknown, String::new());
    }
    // SAFETY: the child only calls Cyclone, which has no thread in this process yet, and leaves with `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: as above; the configuration was copied with the process.
        unsafe { start_and_exit(domain, config, ends[1]) };
    }
    // SAFETY: both were opened here; each is closed once.
    let words = unsafe {
        libc::close(ends[1]);
        PipeReader::from_raw_fd(ends[0])
    };
    if child < 0 {
        return (Outcome::Unknown, String::new());
    }
    let mut ready = libc::pollfd {
        fd: words.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let mut text = Vec::new();
    let mut is_late = false;
    loop {
        // SAFETY: one valid entry.
        let count = unsafe { libc::poll(&raw mut ready, 1, TRIAL_MS_MAX) };
        is_late |= count == 0;
        let mut piece = [0; 1024];
        match if count > 0 {
            (&words).read(&mut piece)
        } else {
            Ok(0)
        } {
            Ok(0) | Err(_) => break,
            Ok(len) if (text.len() as u64) < WORDS_BYTES_MAX => text.extend_from_slice(&piece[..len]),
            Ok(_) => {}
        }
    }
    let mut status = 0;
    // SAFETY: the child was started here and was not waited for yet, so its id is still valid.
    unsafe {
        if is_late {
            libc::kill(child, libc::SIGKILL);
        }
        libc::waitpid(child, &raw mut status, 0);
    }
    let outcome = if is_late {
        Outcome::Unknown
    } else if libc::WIFSIGNALED(status) {
        Outcome::Crashed(libc::WTERMSIG(status))
    } else if libc::WEXITSTATUS(status) == 0 {
        Outcome::Started
    } else {
        Outcome::Refused
    };
    (outcome, String::from_utf8_lossy(&text).into_owned())
}

/// # Safety
/// Only for a child process that does nothing else.
unsafe fn start_and_exit(domain: dds_domainid_t, config: &CStr, words: i32) -> ! {
    // SAFETY: all pointers are valid; the sink writes to a descriptor that stays open.
    unsafe {
        let no_core = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        libc::setrlimit(libc::RLIMIT_CORE, &raw const no_core);
        libc::signal(libc::SIGABRT, libc::SIG_DFL);
        dds_set_log_mask(LOG_MASK);
        dds_set_log_sink(Some(write_words), ptr::without_provenance_mut(words as usize));
        let entity = dds_create_domain(domain, config.as_ptr());
        libc::_exit(i32::from(entity < 0))
    }
}

unsafe extern "C" fn write_words(words: *mut c_void, data: *const dds_log_data_t) {
    // SAFETY: Cyclone passes a message of `size` bytes at `message`, and the descriptor that the sink was set with.
    unsafe { libc::write(words.addr() as i32, (*data).message.cast(), (*data).size) };
}
