//! The publishing side: an open loop, which never waits for the receiver by itself.

use super::{Order, Orders, ReceivedRecord, SentRecord, WorkerEvent, WorkerPlan, link::Outlet};
use holdall_io::{
    clock::{Clock, SystemClock, wake_this_thread_exactly},
    mutex::lock,
};
use std::{
    io,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

/// Time between two polls for a subscription.
const POLL: Duration = Duration::from_millis(5);
const LONG: Duration = Duration::from_secs(1);
/// Time between two checks whether all was sent.
const WATCH: Duration = Duration::from_millis(20);
/// A message that the middleware has not accepted this long after the end counts as not sent.
const BLOCKED_MAX: Duration = Duration::from_secs(10);

/// Publishes the planned messages once started, and stays until the order to end, because lost messages may have to be sent again. A middleware
/// that blocks for good does not prevent the end: a separate thread sends, and it ends with the process.
pub(super) fn run(plan: &WorkerPlan, mut outlet: Box<dyn Outlet>, orders: &Orders) -> io::Result<()> {
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
    let records = Records::new(plan);
    if let Some(start) = start {
        let sending = {
            let (plan, records) = (plan.clone(), Arc::clone(&records));
            let send = move || {
                let mut message = plan.shape.message(plan.bytes);
                send_all(&plan, start, &records, &mut |number| {
                    message[plan.number()].copy_from_slice(&number.to_le_bytes());
                    let is_matched = outlet.is_matched();
                    (outlet.send(&message), is_matched)
                });
                // Kept: repairs may still be sent.
                outlet
            };
            thread::Builder::new()
                .name("worker-send".to_owned())
                .spawn(send)?
        };
        let give_up = start + plan.due(plan.count) + BLOCKED_MAX;
        let mut is_sent = false;
        while orders.within(WATCH) != Some(Order::End) {
            if !is_sent && (sending.is_finished() || SystemClock.monotonic() > give_up) {
                is_sent = true;
                WorkerEvent::Sent.print()?;
            }
        }
    }
    super::write_sent(&plan.records, &lock(&records.0))?;
    WorkerEvent::Done.print()
}

/// Records of sent messages.
struct Records(Mutex<Vec<SentRecord>>);

impl Records {
    /// Room for all planned messages.
    fn new(plan: &WorkerPlan) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Vec::with_capacity(plan.count as usize))))
    }
}

/// Sends each message when it is due, or at once when that has passed, until the planned time is over. `send` returns whether the message was
/// taken, and whether there was a subscription.
fn send_all(
    plan: &WorkerPlan,
    start: Duration,
    records: &Records,
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
        lock(&records.0).push(SentRecord {
            due: nanos(due),
            before: nanos(before),
            after: nanos(clock.monotonic()),
            is_accepted,
            is_matched,
        });
    }
}

/// Publishes into memory and records each copy as received: this shows the costs of the measurement itself. It does not allocate
/// for a message.
pub fn publish_into_memory(plan: &WorkerPlan, start: Duration) -> (Vec<SentRecord>, Vec<ReceivedRecord>) {
    let mut message = plan.shape.message(plan.bytes);
    let mut memory = message.clone();
    let records = Records::new(plan);
    let mut received = Vec::with_capacity(plan.count as usize);
    send_all(plan, start, &records, &mut |number| {
        message[plan.number()].copy_from_slice(&number.to_le_bytes());
        memory.copy_from_slice(&message);
        let at = SystemClock.monotonic().as_nanos();
        received.push(ReceivedRecord {
            number,
            at: u64::try_from(at).unwrap_or(u64::MAX),
        });
        (true, true)
    });
    let sent = std::mem::take(&mut *lock(&records.0));
    (sent, received)
}

/// Both sides in one thread, by memory.
pub(super) fn run_both(plan: &WorkerPlan, orders: &Orders) -> io::Result<()> {
    WorkerEvent::Ready.print()?;
    WorkerEvent::Matched.print()?;
    let (mut sent, mut received) = (Vec::new(), Vec::new());
    loop {
        match orders.within(LONG) {
            Some(Order::Start(start)) => (sent, received) = publish_into_memory(plan, start),
            Some(Order::End) => break,
            None => continue,
        }
        WorkerEvent::Sent.print()?;
        WorkerEvent::Received {
            count: received.len() as u64,
        }
        .print()?;
    }
    super::write_sent(&plan.records, &sent)?;
    super::write_received(&plan.records.with_extension("received"), &received)?;
    WorkerEvent::Done.print()
}

/// Does nothing for the planned time.
pub(super) fn run_idle(plan: &WorkerPlan, orders: &Orders) -> io::Result<()> {
    WorkerEvent::Ready.print()?;
    loop {
        match orders.within(LONG) {
            Some(Order::Start(start)) => {
                SystemClock.sleep_until(start + plan.due(plan.count));
                WorkerEvent::Sent.print()?;
            }
            Some(Order::End) => return WorkerEvent::Done.print(),
            None => {}
        }
    }
}
