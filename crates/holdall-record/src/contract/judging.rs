//! The judge of a recording between its threads: the drain brings what it wrote, another thread judges, the recorder's takes alarms.

use holdall_io::{clock::Clock, mutex::lock};
use holdall_model::contract::{
    Contract, ContractStatus, Ending, LiveJudge, News, NewsQueue, Outcome, RuleAlarm, Verdict,
};
use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::Duration,
};

#[derive(Default)]
struct Incoming {
    queue: NewsQueue,
    /// Nothing more comes, or nothing more is judged.
    is_closed: bool,
}

/// The judge of a recording.
pub(crate) struct Judging {
    incoming: Mutex<Incoming>,
    arrived: Condvar,
    judge: Mutex<LiveJudge>,
    status: Mutex<ContractStatus>,
    alarms: Mutex<Vec<RuleAlarm>>,
}

impl Judging {
    pub fn new(contract: Arc<Contract>) -> Self {
        let judge = LiveJudge::new(contract);
        Self {
            incoming: Mutex::default(),
            arrived: Condvar::new(),
            status: Mutex::new(judge.status()),
            judge: Mutex::new(judge),
            alarms: Mutex::default(),
        }
    }

    /// Starts its thread, which ends when the recording does.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn spawn(self: &Arc<Self>, clock: Arc<dyn Clock>) -> io::Result<()> {
        let judging = Arc::clone(self);
        let run = move || {
            while judging.wait() {
                judging.step(clock.monotonic());
            }
        };
        std::thread::Builder::new().name("judge".to_owned()).spawn(run)?;
        Ok(())
    }

    /// Waits for something to judge; false at the end.
    fn wait(&self) -> bool {
        let incoming = self
            .arrived
            .wait_while(lock(&self.incoming), |incoming| {
                incoming.queue.is_empty() && !incoming.is_closed
            })
            .unwrap_or_else(PoisonError::into_inner);
        !incoming.is_closed
    }

    /// Adds what comes next. Never waits for the judge.
    pub fn offer(&self, batch: Vec<News>) {
        let mut incoming = lock(&self.incoming);
        if incoming.is_closed || batch.is_empty() {
            return;
        }
        let is_first = incoming.queue.offer(batch);
        drop(incoming);
        if is_first {
            tracing::warn!(
                "messages come faster than the contract can judge them: some are left out, and counted"
            );
        }
        self.arrived.notify_one();
    }

    /// Judges what has come until `now`, which is monotonic; `None` if the judge has failed.
    pub fn step(&self, now: Duration) -> Option<()> {
        self.survive(now, |judge| {
            let news = lock(&self.incoming).queue.take();
            news.into_iter().for_each(|news| judge.take(news));
        })
    }

    /// Does something with the judge, and passes on what that shows. A bug in it ends the judging, not the recording.
    fn survive<T>(&self, now: Duration, work: impl FnOnce(&mut LiveJudge) -> T) -> Option<T> {
        let mut judge = lock(&self.judge);
        let done = catch_unwind(AssertUnwindSafe(|| {
            let done = work(&mut judge);
            (done, judge.alarms(now), judge.status())
        }));
        drop(judge);
        let Ok((done, alarms, status)) = done else {
            tracing::error!(
                "the contract is judged no further: an internal failure, see above; the recording continues"
            );
            lock(&self.incoming).is_closed = true;
            // What was not seen may have been anything; what was seen to fail has failed.
            let mut status = lock(&self.status);
            status.outcome = status.outcome.max(Outcome::Unknown);
            return None;
        };
        *lock(&self.status) = status;
        lock(&self.alarms).extend(alarms);
        Some(done)
    }

    /// Nothing more comes: its thread ends.
    pub fn close(&self) {
        lock(&self.incoming).is_closed = true;
        self.arrived.notify_all();
    }

    /// Judges what is left and the end; `None` if the judge has failed.
    pub fn end(&self, ending: &Ending, now: Duration) -> Option<Verdict> {
        if lock(&self.incoming).is_closed {
            return None;
        }
        self.close();
        self.step(now)?;
        self.survive(now, |judge| judge.end(ending))
    }

    /// What is known until now.
    pub fn status(&self) -> ContractStatus {
        lock(&self.status).clone()
    }

    /// The alarms since the last call.
    pub fn take_alarms(&self) -> Vec<RuleAlarm> {
        std::mem::take(&mut *lock(&self.alarms))
    }
}
