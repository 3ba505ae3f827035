//! A node that joins when it is started, and reports when it knows all of the other side.

use super::{Order, Orders, Role, WorkerEvent, WorkerPlan, link, link::Join};
use holdall_io::clock::{Clock, SystemClock};
use std::{io, time::Duration};

/// Time between two polls, and so the precision of the reported time.
const POLL: Duration = Duration::from_millis(5);
/// Time between two polls before it is started.
const LONG: Duration = Duration::from_secs(1);

/// Joins, waits until it knows `others` of the other side, and stays until the order to end.
pub(super) fn run(plan: &WorkerPlan, others: usize, join: Join<'_>, orders: &Orders) -> io::Result<()> {
    WorkerEvent::Ready.print()?;
    let start = loop {
        match orders.within(LONG) {
            Some(Order::Start(at)) => break at,
            Some(Order::End) => return WorkerEvent::Done.print(),
            None => {}
        }
    };
    SystemClock.sleep_until(start);
    let mut matched: Box<dyn FnMut() -> usize> = match plan.role {
        Role::Publisher => {
            let mut outlet = link::outlet(plan, join)?;
            Box::new(move || outlet.matched())
        }
        _ => {
            let mut inlet = link::inlet(plan, join)?;
            Box::new(move || inlet.matched())
        }
    };
    let mut is_reported = false;
    while orders.within(POLL) != Some(Order::End) {
        if !is_reported && matched() >= others {
            is_reported = true;
            let at = u64::try_from(SystemClock.monotonic().as_nanos()).unwrap_or(u64::MAX);
            WorkerEvent::Discovered { at }.print()?;
        }
    }
    WorkerEvent::Done.print()
}
