//! Both sides of one run: started, started at the same time, and ended.

use super::{Bench, Run, programs};
use crate::{
    error::{BenchError, BenchResult},
    measure::{memory_use, process_use},
    middleware::{WorkerCost, worker::WorkerEvent},
    suite::live::child::Program,
};
use holdall_io::link::LinkEnd;
use std::time::Duration;

/// How long a worker may take to join its middleware.
const READY_MAX: Duration = Duration::from_secs(30);
/// How long both sides may take to know each other; then the run starts without.
const MATCH_MAX: Duration = Duration::from_secs(10);
/// From the order to start to the first message.
const LEAD: Duration = Duration::from_millis(100);
/// A publisher may be this late with its last message, blocked by a full link.
const SENT_MAX: Duration = Duration::from_secs(60);
/// The drain ends when nothing has arrived for this long, …
const QUIET: Duration = Duration::from_secs(2);
/// … or after this.
const DRAIN_MAX: Duration = Duration::from_secs(10);
const DONE_MAX: Duration = Duration::from_secs(30);

/// What one side of a run was like.
pub(super) struct Sides {
    /// When the first message was due.
    pub start: Duration,
    /// When each side knew the other one, in seconds after both existed.
    pub matched_s: [Option<f64>; 2],
    /// Of the publisher and the subscriber.
    pub costs: [WorkerCost; 2],
}

impl Bench<'_> {
    /// Starts both sides, lets them work, and ends them.
    pub(super) fn drive(&self, run: &Run<'_>, count: u64, ends: Option<&[LinkEnd; 2]>) -> BenchResult<Sides> {
        let is_one = run.middleware.is_memory() || run.case.is_idle;
        let address = programs::meeting_place(ends.is_some())?;
        let start = |side: usize| {
            let mut command = self.command(run, count, side, address, ends.is_some())?;
            if let Some(ends) = ends {
                ends[side].place(&mut command);
            }
            let name = if side == 0 { "publisher" } else { "subscriber" };
            let program = Program::start(&format!("{name} of {}", run.middleware), &mut command, self.clock)?;
            program.wait_for(READY_MAX, |line| event(line, WorkerEvent::Ready))?;
            Ok::<_, BenchError>(program)
        };
        let mut subscriber = if is_one { None } else { Some(start(1)?) };
        let mut publisher = start(0)?;
        let began = self.clock.monotonic();
        let matched_within = |program: &Program| {
            let left = (began + MATCH_MAX).saturating_sub(self.clock.monotonic());
            let found = program.wait_for(left, |line| event(line, WorkerEvent::Matched));
            found
                .ok()
                .map(|()| (self.clock.monotonic() - began).as_secs_f64())
        };
        let matched_s = if run.case.is_idle {
            [None; 2]
        } else {
            [
                matched_within(&publisher),
                subscriber.as_ref().and_then(matched_within),
            ]
        };
        let ids = [Some(publisher.id()), subscriber.as_ref().map(Program::id)];
        if run.case.is_idle {
            // What a start costs is over then.
            self.clock
                .sleep_until(self.clock.monotonic() + self.evaluation.warm_up);
        }
        let before = ids.map(|id| id.map(|id| process_use("", id)));
        let start = self.clock.monotonic() + LEAD;
        for program in subscriber.iter_mut().chain([&mut publisher]) {
            program.send(&format!("start {}", start.as_nanos()))?;
        }
        let measured = self.evaluation.warm_up + self.evaluation.duration;
        publisher.wait_for(LEAD + measured + SENT_MAX, |line| event(line, WorkerEvent::Sent))?;
        self.drain(subscriber.as_ref(), count);
        let elapsed_s = (self.clock.monotonic() - start).as_secs_f64();
        let after = ids.map(|id| id.map(|id| (process_use("", id), memory_use(id))));
        let mut costs = [WorkerCost::default(); 2];
        for (cost, (before, after)) in costs.iter_mut().zip(before.into_iter().zip(after)) {
            if let (Some(before), Some((after, [anonymous_bytes, virtual_bytes]))) = (before, after) {
                *cost = WorkerCost {
                    cpu_s: (after.cpu_s - before.cpu_s).max(0.0),
                    elapsed_s,
                    rss_max_bytes: after.rss_max_bytes,
                    anonymous_bytes,
                    virtual_bytes,
                };
            }
        }
        for mut program in subscriber.into_iter().chain([publisher]) {
            program.send("end")?;
            program.wait_for(DONE_MAX, |line| event(line, WorkerEvent::Done))?;
            program.finish(DONE_MAX)?;
        }
        Ok(Sides {
            start,
            matched_s,
            costs,
        })
    }

    /// Waits until everything or nothing more arrives.
    fn drain(&self, subscriber: Option<&Program>, count: u64) {
        let Some(subscriber) = subscriber else {
            return;
        };
        let end = self.clock.monotonic() + DRAIN_MAX;
        let mut received = 0;
        let newer = |line: &str, than: u64| match WorkerEvent::read(line)? {
            WorkerEvent::Received { count } if count > than => Some(count),
            _ => None,
        };
        while received < count && self.clock.monotonic() < end {
            match subscriber.wait_for(QUIET, |line| newer(line, received)) {
                Ok(count) => received = count,
                // Quiet; a subscriber that has ended is noticed at the next order.
                Err(_) => return,
            }
        }
    }
}

fn event(line: &str, wanted: WorkerEvent) -> Option<()> {
    (WorkerEvent::read(line)? == wanted).then_some(())
}
