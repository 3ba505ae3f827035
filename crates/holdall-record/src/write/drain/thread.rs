//! The drain's thread: waits for segments, and for due work without any.

use super::Drain;
use holdall_io::clock::Clock;
use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread::JoinHandle,
};

/// A drain that runs on its own thread.
pub struct DrainThread(JoinHandle<Drain>);

impl DrainThread {
    /// Starts it. It ends when the cache is closed and empty.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn spawn(drain: Drain, clock: Arc<dyn Clock>) -> io::Result<Self> {
        let run = move || run(drain, &*clock);
        Ok(Self(
            std::thread::Builder::new().name("drain".to_owned()).spawn(run)?,
        ))
    }

    /// Waits for its end; `None` if it panicked.
    pub fn join(self) -> Option<Drain> {
        self.0.join().ok()
    }
}

/// A bug is as bad as a failed disk, and no worse: the recording ends, and the bag is closed with its messages so far.
fn run(mut drain: Drain, clock: &dyn Clock) -> Drain {
    loop {
        match catch_unwind(AssertUnwindSafe(|| drain.wait_and_step(clock))) {
            Ok(true) => {}
            Ok(false) => return drain,
            Err(_) => {
                let is_first = drain.fail_by_bug();
                if !is_first {
                    return drain;
                }
            }
        }
    }
}
