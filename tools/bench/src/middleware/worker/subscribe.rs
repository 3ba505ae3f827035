//! The receiving side.

use super::{Order, Orders, ReceivedRecord, WorkerEvent, WorkerPlan, link::Inlet};
use holdall_io::{
    clock::{Clock, SystemClock},
    mutex::lock,
};
use std::{
    io,
    ops::Range,
    sync::{Arc, Mutex},
    time::Duration,
};

/// Time between two reports of the number received.
const REPORT: Duration = Duration::from_millis(100);

/// Records of received messages; written on the middleware's own threads.
#[derive(Clone)]
pub(super) struct Received {
    records: Arc<Mutex<Vec<ReceivedRecord>>>,
    number: Range<usize>,
}

impl Received {
    /// Room for all planned messages, and for duplicates.
    pub(super) fn new(plan: &WorkerPlan) -> Self {
        let records = Vec::with_capacity(2 * plan.count as usize + 1000);
        Self {
            records: Arc::new(Mutex::new(records)),
            number: plan.number(),
        }
    }

    /// Notes a message, reading only its beginning.
    pub(super) fn note(&self, message: &[u8]) {
        if let Some(number) = message.get(self.number.clone()) {
            self.note_number(u64::from_le_bytes(number.try_into().unwrap_or_default()));
        }
    }

    /// Notes the message with this number.
    pub(super) fn note_number(&self, number: u64) {
        let at = u64::try_from(SystemClock.monotonic().as_nanos()).unwrap_or(u64::MAX);
        let mut records = lock(&self.records);
        // A record beyond the room would cost an allocation in the middle of a measurement.
        if records.len() < records.capacity() {
            records.push(ReceivedRecord { number, at });
        }
    }

    fn count(&self) -> u64 {
        lock(&self.records).len() as u64
    }
}

/// Receives until the order to end.
pub(super) fn run(plan: &WorkerPlan, inlet: &mut dyn Inlet, orders: &Orders) -> io::Result<()> {
    let clock = SystemClock;
    WorkerEvent::Ready.print()?;
    let mut is_matched = false;
    let mut next_report = clock.monotonic();
    loop {
        let now = clock.monotonic();
        if now >= next_report {
            next_report = now + REPORT;
            if !is_matched && inlet.matched() > 0 {
                is_matched = true;
                WorkerEvent::Matched.print()?;
            }
            WorkerEvent::Received {
                count: inlet.received().count(),
            }
            .print()?;
        }
        let wait = if inlet.pump()? {
            Duration::ZERO
        } else {
            inlet.pause().min(REPORT)
        };
        if orders.within(wait) == Some(Order::End) {
            break;
        }
    }
    super::write_received(&plan.records, &lock(&inlet.received().records))?;
    WorkerEvent::Done.print()
}
