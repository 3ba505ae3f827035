//! Standard error: log lines that scroll past and status lines below them. No write here fails, and after
//! [`never_wait`] none waits.
//!
//! A terminal can go away (its window is closed, ssh ends): every write then fails with EIO. It can also stop
//! (Ctrl-S): every write then waits until Ctrl-Q. [`never_wait`] therefore passes all writes to a separate
//! thread, over a bounded queue; lines that the terminal does not accept in time are dropped and
//! counted, and the recording is never delayed.

use super::{
    frame::{Frame, Size},
    mode,
};
use holdall_io::clock::{Clock, SystemClock};
use holdall_io::mutex::lock;
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    stdio::stderr,
    termios::{LocalModes, tcgetattr, tcgetwinsize},
};
use std::{
    os::fd::BorrowedFd,
    sync::{Condvar, Mutex, OnceLock, PoisonError, TryLockError},
    thread,
    time::Duration,
};

/// Log text that may wait for a terminal that accepts nothing.
const WAITING_BYTES_MAX: usize = 1 << 20;

/// The end of the program waits this long for a terminal that accepts nothing.
const PATIENCE: Duration = Duration::from_secs(1);

/// The size that is assumed where the terminal reports none.
const USUAL: Size = Size {
    columns: 80,
    rows: 24,
};

/// Lines and status for the thread to write.
#[derive(Default)]
struct Waiting {
    above: Vec<u8>,
    dropped_lines: u64,
    status: Vec<String>,
    status_has_changed: bool,
    /// Numbers of requests, to know when one is done.
    asked: u64,
    done: u64,
    /// Grows while the terminal accepts bytes.
    accepted: u64,
}

impl Waiting {
    fn push(&mut self, text: &[u8]) {
        if self.above.len() + text.len() > WAITING_BYTES_MAX {
            self.dropped_lines += 1;
            return;
        }
        self.above.extend_from_slice(text);
    }

    /// Log text to be written above the status lines, with a sentence about dropped lines.
    fn take_above(&mut self) -> Vec<u8> {
        let mut above = std::mem::take(&mut self.above);
        if self.dropped_lines > 0 {
            let sentence = format!(
                "warn: {} log lines were dropped: the terminal did not accept them in time\n",
                std::mem::take(&mut self.dropped_lines)
            );
            above.extend_from_slice(sentence.as_bytes());
        }
        above
    }
}

/// The queue of the thread that writes.
#[derive(Default)]
struct Writer {
    waiting: Mutex<Waiting>,
    has_work: Condvar,
    has_written: Condvar,
}

/// Exists only after [`never_wait`].
static WRITER: OnceLock<&'static Writer> = OnceLock::new();

/// Lines on the screen, and the status lines of verbs without a thread.
static DRAWN: OnceLock<Mutex<Drawn>> = OnceLock::new();

struct Drawn {
    frame: Frame,
    status: Vec<String>,
}

fn drawn() -> &'static Mutex<Drawn> {
    DRAWN.get_or_init(|| {
        Mutex::new(Drawn {
            frame: Frame::new(std::env::var_os("XTERM_VERSION").is_some()),
            status: Vec::new(),
        })
    })
}

/// From now on a thread writes to standard error, and no other thread ever waits for it. For verbs that must
/// not stop with their terminal.
pub fn never_wait() {
    let writer: &'static Writer = Box::leak(Box::default());
    let run = move || writer.run();
    // Without a thread the writes stay on the caller's thread: they still cannot fail.
    if thread::Builder::new()
        .name("terminal".to_owned())
        .spawn(run)
        .is_ok()
    {
        let _ = WRITER.set(writer);
    }
}

/// True after [`never_wait`].
pub fn must_not_wait() -> bool {
    WRITER.get().is_some()
}

/// True if status lines can be drawn: standard error is a terminal that can move its cursor.
pub fn can_draw() -> bool {
    let term = console::Term::stderr();
    term.is_term() && std::env::var_os("TERM").is_none_or(|name| name != "dumb")
}

/// Cells of a row of the terminal at standard error.
pub fn columns() -> usize {
    size(stderr()).columns
}

/// How large a terminal is.
pub fn size(terminal: BorrowedFd<'_>) -> Size {
    tcgetwinsize(terminal).map_or(USUAL, |size| Size {
        columns: match size.ws_col {
            0 => USUAL.columns,
            columns => usize::from(columns),
        },
        rows: match size.ws_row {
            0 => USUAL.rows,
            rows => usize::from(rows),
        },
    })
}

/// The status lines; dropping them clears them away.
pub struct Screen(());

impl Screen {
    /// `None` if standard error is not a terminal.
    pub fn open() -> Option<Self> {
        can_draw().then_some(Self(()))
    }

    /// Draws these lines in place of the previous ones. In the background nothing is drawn, because the
    /// terminal shows another program's text there.
    pub fn show(&self, texts: Vec<String>) {
        if mode::is_foreground_of(stderr()) {
            set_status(texts);
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        clear();
    }
}

/// Clears all status lines away.
pub fn clear() {
    set_status(Vec::new());
}

fn set_status(texts: Vec<String>) {
    match WRITER.get() {
        Some(writer) => writer.ask(|waiting| {
            waiting.status = texts;
            waiting.status_has_changed = true;
        }),
        None => {
            let mut drawn = lock(drawn());
            drawn.status = texts;
            drawn.write(b"");
        }
    }
}

/// Writes whole lines to standard error, above the status lines. Nothing can be done when it is gone, so nothing is reported.
pub fn write_above(text: &[u8]) {
    match WRITER.get() {
        Some(writer) => writer.ask(|waiting| waiting.push(text)),
        None => lock(drawn()).write(text),
    }
}

/// As [`write_above`], for a thread that panics: any thread may hold a lock, so it waits for none.
pub fn write_of_panic(text: &[u8]) {
    match WRITER.get() {
        Some(writer) => match writer.waiting.try_lock() {
            Ok(mut waiting) => {
                waiting.push(text);
                waiting.asked += 1;
                writer.has_work.notify_one();
            }
            Err(TryLockError::Poisoned(_) | TryLockError::WouldBlock) => {}
        },
        None => match drawn().try_lock() {
            Ok(mut drawn) => drawn.write(text),
            Err(_) => {
                let _ = write_all(stderr(), text, &mut |_| {});
            }
        },
    }
}

/// Waits until what was written before is on the terminal, or the terminal accepts nothing.
pub fn flush() {
    if let Some(writer) = WRITER.get() {
        writer.flush();
    }
}

impl Drawn {
    /// Writes lines above the status lines that are due.
    fn write(&mut self, above: &[u8]) {
        let status = std::mem::take(&mut self.status);
        self.write_frame(above, &status, &mut |_| {});
        self.status = status;
    }

    fn write_frame(&mut self, above: &[u8], status: &[String], accepted: &mut dyn FnMut(usize)) {
        let bytes = if status.is_empty() && !self.frame.is_drawn() {
            above.to_vec()
        } else {
            self.frame.compose(above, status, size(stderr()))
        };
        if !would_stop_us(stderr()) {
            // A terminal that is gone: nothing is left to do.
            let _ = write_all(stderr(), &bytes, accepted);
        }
    }
}

impl Writer {
    fn ask(&self, change: impl FnOnce(&mut Waiting)) {
        let mut waiting = lock(&self.waiting);
        change(&mut waiting);
        waiting.asked += 1;
        self.has_work.notify_one();
    }

    fn run(&self) {
        loop {
            let mut waiting = lock(&self.waiting);
            while waiting.asked == waiting.done {
                waiting = self
                    .has_work
                    .wait(waiting)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            let asked = waiting.asked;
            let above = waiting.take_above();
            let is_due = std::mem::take(&mut waiting.status_has_changed) || !above.is_empty();
            let status = waiting.status.clone();
            drop(waiting);
            if is_due {
                lock(drawn()).write_frame(&above, &status, &mut |bytes| {
                    lock(&self.waiting).accepted += bytes as u64;
                });
            }
            lock(&self.waiting).done = asked;
            self.has_written.notify_all();
        }
    }

    fn flush(&self) {
        let mut waiting = lock(&self.waiting);
        let asked = waiting.asked;
        let mut accepted = waiting.accepted;
        let mut deadline = SystemClock.monotonic() + PATIENCE;
        while waiting.done < asked {
            let left = deadline.saturating_sub(SystemClock.monotonic());
            if left.is_zero() {
                return;
            }
            (waiting, _) = self
                .has_written
                .wait_timeout(waiting, left)
                .unwrap_or_else(PoisonError::into_inner);
            if waiting.accepted != accepted {
                accepted = waiting.accepted;
                deadline = SystemClock.monotonic() + PATIENCE;
            }
        }
    }
}

/// A background process that writes to a terminal with `stty tostop` is stopped by the system, with all its threads.
fn would_stop_us(terminal: BorrowedFd<'_>) -> bool {
    tcgetattr(terminal).is_ok_and(|mode| mode.local_modes.contains(LocalModes::TOSTOP))
        && !mode::is_foreground_of(terminal)
}

/// Writes everything, in pieces, also where another program has made the terminal non-blocking.
pub fn write_all(to: BorrowedFd<'_>, mut bytes: &[u8], accepted: &mut dyn FnMut(usize)) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(to, bytes) {
            Ok(0) => return Err(Errno::IO),
            Ok(count) => {
                bytes = &bytes[count..];
                accepted(count);
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                poll(&mut [PollFd::new(&to, PollFlags::OUT)], None).or_else(|error| match error {
                    Errno::INTR => Ok(0),
                    error => Err(error),
                })?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn what_a_stopped_terminal_does_not_accept_is_bounded_and_counted() {
        let mut waiting = Waiting::default();
        let line = [b'x'; 1023];
        for _ in 0..3000 {
            waiting.push(&line);
            waiting.push(b"\n");
        }
        assert!(waiting.above.len() <= WAITING_BYTES_MAX);
        let kept = waiting.above.len();
        let dropped = waiting.dropped_lines;
        assert!(dropped > 1900, "{dropped}");
        let text = String::from_utf8(waiting.take_above()).unwrap();
        assert!(
            text[kept..].starts_with(&format!("warn: {dropped} log lines were dropped")),
            "{}",
            &text[kept..]
        );
        assert_eq!(waiting.take_above(), b"");
    }
}
