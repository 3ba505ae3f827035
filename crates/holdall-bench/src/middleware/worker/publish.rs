//! The publishing side: an open loop, which never waits for the receiver by itself.

use super::{HEAD_BYTES, Order, Orders, ReceivedRecord, SentRecord, WorkerEvent, WorkerPlan, link::Outlet};
use holdall_io::clock::{Clock, SystemClock, wake_this_thread_exactly};
use std::{io, time::Duration};

/// Between two polls for a subscription.
const POLL: Duration = Duration::from_millis(5);
const LONG: Duration = Duration::from_secs(1);

/// Publishes what is planned once started, and stays until the order to end: what is lost on the way may have to be sent again.
pub(super) fn run(plan: &WorkerPlan, outlet: &mut dyn Outlet, orders: &Orders) -> io::Result<()> {
    let mut message = plan.message();
    let mut records = Vec::with_capacity(plan.count as usize);
    WorkerEvent::Ready.print()?;
    let mut is_matched = false;
    let start = loop {
        if !is_matched && outlet.is_matched() {
            is_matched = true;
            WorkerEvent::Matched.print()?;
        }
        match orders.within(POLL) {
            Some(Order::Start(at)) => break Some(at),
            Some(Order::End) => break None,
            None => {}
        }
    };
    if let Some(start) = start {
        send_all(plan, start, &mut records, &mut |number| {
            message[HEAD_BYTES..HEAD_BYTES + 8].copy_from_slice(&number.to_le_bytes());
            let is_matched = outlet.is_matched();
            (outlet.send(&message), is_matched)
        });
        WorkerEvent::Sent.print()?;
        while orders.within(LONG) != Some(Order::End) {}
    }
    super::write_sent(&plan.records, &records)?;
    WorkerEvent::Done.print()
}

/// Sends each message when it is due, or at once when that has passed, until the planned time is over. `send` returns whether the message was
/// taken, and whether there was a subscription.
fn send_all(
    plan: &WorkerPlan,
    start: Duration,
    records: &mut Vec<SentRecord>,
    send: &mut dyn FnMut(u64) -> (bool, bool),
) {
    wake_this_thread_exactly();
    let clock = SystemClock;
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let end = start + plan.due(plan.count);
    for number in 0..plan.count {
        let due = start + plan.due(number);
        let mut before = clock.monotonic();
        if before >= end {
            return;
        }
        if before < due {
            clock.sleep_until(due);
            before = clock.monotonic();
        }
        let (is_accepted, is_matched) = send(number);
        records.push(SentRecord {
            due: nanos(due),
            before: nanos(before),
            after: nanos(clock.monotonic()),
            is_accepted,
            is_matched,
        });
    }
}

/// Publishes into memory and records each copy as received: what the measurement itself costs.
pub(super) fn run_both(plan: &WorkerPlan, orders: &Orders) -> io::Result<()> {
    let mut message = plan.message();
    let mut memory = message.clone();
    let mut records = Vec::with_capacity(plan.count as usize);
    let mut received = Vec::with_capacity(plan.count as usize);
    WorkerEvent::Ready.print()?;
    WorkerEvent::Matched.print()?;
    loop {
        let start = match orders.within(LONG) {
            Some(Order::Start(start)) => start,
            Some(Order::End) => break,
            None => continue,
        };
        send_all(plan, start, &mut records, &mut |number| {
            message[HEAD_BYTES..HEAD_BYTES + 8].copy_from_slice(&number.to_le_bytes());
            memory.copy_from_slice(&message);
            let at = SystemClock.monotonic().as_nanos();
            received.push(ReceivedRecord {
                number,
                at: u64::try_from(at).unwrap_or(u64::MAX),
            });
            (true, true)
        });
        WorkerEvent::Sent.print()?;
        WorkerEvent::Received {
            count: received.len() as u64,
        }
        .print()?;
    }
    super::write_sent(&plan.records, &records)?;
    super::write_received(&plan.records.with_extension("received"), &received)?;
    WorkerEvent::Done.print()
}
