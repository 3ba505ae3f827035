//! Rivals under the same load: producers hand batches directly to the storage, without a cache.

use super::{producers::Produced, raw::RawMessage, raw::RawWriter};
use crate::{
    error::BenchResult,
    measure::{Latencies, side_by_side},
    workload::{Plan, Schedule},
};
use holdall_io::mutex::lock;
use holdall_io::{
    clock::{Clock, wake_this_thread_exactly},
    process::thread_cpu_time,
};
use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// Most messages of one batch.
const BATCH_MESSAGES_MAX: usize = 4096;

/// Offers everything in `plan` to `writer` in batches of at least `batch_bytes` (single messages when the
/// load is paced), closes it, and returns when it is durable.
///
/// # Errors
/// The storage's error; a thread that cannot be started.
pub(crate) fn run_inline(
    plan: &Plan,
    writer: Box<dyn RawWriter>,
    batch_bytes: usize,
    clock: &dyn Clock,
) -> BenchResult<Produced> {
    let writer = Mutex::new(writer);
    let start = clock.monotonic() + Duration::from_millis(5);
    let run = |producer| offer_all(plan, producer, &writer, batch_bytes, start, clock);
    let mut produced = Produced::default();
    for one in side_by_side("producer", plan.load().producers, run)? {
        produced.merge(&one?);
    }
    writer
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner)
        .close()?;
    Ok(produced)
}

fn offer_all(
    plan: &Plan,
    producer: u32,
    writer: &Mutex<Box<dyn RawWriter>>,
    batch_bytes: usize,
    start: Duration,
    clock: &dyn Clock,
) -> BenchResult<Produced> {
    wake_this_thread_exactly();
    let load = plan.load();
    let schedule = load
        .rate_hz
        .and_then(|rate| Schedule::new(start, rate, producer, load.producers));
    let batch_bytes = if schedule.is_some() { 0 } else { batch_bytes };
    let (mut lateness, mut offered) = (Latencies::default(), 0);
    let (mut batch, mut held_bytes) = (Vec::with_capacity(BATCH_MESSAGES_MAX), 0);
    let mut stamp = u64::try_from(clock.now().as_nanos()).unwrap_or(0);
    for message in plan.stream(producer) {
        if let Some(schedule) = &schedule {
            let due = schedule.due(offered);
            clock.sleep_until(due);
            lateness.record(clock.monotonic().saturating_sub(due));
        }
        if batch.is_empty() {
            stamp = u64::try_from(clock.now().as_nanos()).unwrap_or(0).max(stamp);
        }
        stamp += 1;
        held_bytes += message.payload.len();
        batch.push(RawMessage {
            topic: message.topic,
            sequence: message.sequence,
            log_time_nanos: stamp,
            payload: plan.payload(&message),
        });
        offered += 1;
        if held_bytes >= batch_bytes || batch.len() == BATCH_MESSAGES_MAX {
            lock(writer).write_batch(&batch)?;
            batch.clear();
            held_bytes = 0;
        }
    }
    if !batch.is_empty() {
        lock(writer).write_batch(&batch)?;
    }
    Ok(Produced {
        offered,
        lateness,
        offers: Latencies::default(),
        cpu: thread_cpu_time().total(),
    })
}
