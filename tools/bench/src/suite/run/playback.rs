//! Plays a recording back to subscriptions that only count, and compares when each message was published with
//! when it was due.

use crate::{
    error::{BenchError, BenchResult},
    measure::LatencySummary,
    suite::{config::PlayRate, result::PlaybackResult},
};
use holdall::play::{options::PlayOptions, player::Player, status::Lateness};
use holdall_io::clock::Clock;
use holdall_model::time::Timestamp;
use holdall_transport::{
    GraphEvent, PublishRequest, Publisher, Sink, SubscribeRequest, Subscription, Transport, TransportError,
};
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// Messages that are read ahead, rosbag2's default.
const READ_AHEAD_MESSAGES: usize = 1000;

/// Plays `bag` at `rate`.
///
/// # Errors
/// A bag that cannot be read, a playback that ended early.
pub fn play(bag: &Path, rate: PlayRate, clock: &Arc<dyn Clock>) -> BenchResult<PlaybackResult> {
    let failed = |reason: String| BenchError::Bag {
        path: bag.to_owned(),
        reason,
    };
    let bytes = Arc::new(AtomicU64::new(0));
    let transport = CountingTransport {
        bytes: Arc::clone(&bytes),
        clock: Arc::clone(clock),
    };
    let options = PlayOptions {
        inputs: vec![bag.to_owned()],
        rate: rate.factor(),
        read_ahead_messages: READ_AHEAD_MESSAGES,
        discovery_wait: Duration::ZERO,
        ..PlayOptions::default()
    };
    let messages = holdall::reader::Bag::open(bag)
        .map_err(|error| failed(error.to_string()))?
        .metadata()
        .message_count;
    let player = start(options, transport, clock).map_err(failed)?;
    let report = player.wait();
    if let Some(reason) = report.failure {
        return Err(failed(format!("the playback ended early: {reason}")));
    }
    let elapsed_s = report.elapsed.as_secs_f64();
    let planned_s = match rate {
        PlayRate::Milli(_) => report.status.duration.as_secs_f64() / rate.factor(),
        PlayRate::Unlimited => 0.0,
    };
    Ok(PlaybackResult {
        rate,
        messages,
        published: report.status.published,
        starved: report.status.starved,
        elapsed_s,
        planned_s,
        bytes_per_s: bytes.load(Ordering::Relaxed) as f64 / elapsed_s.max(1e-9),
        lateness: (rate != PlayRate::Unlimited)
            .then(|| summary(report.status.lateness))
            .flatten(),
    })
}

fn start(
    options: PlayOptions,
    transport: CountingTransport,
    clock: &Arc<dyn Clock>,
) -> Result<Player, String> {
    Player::start(options, vec![Box::new(transport)], Arc::clone(clock)).map_err(|error| error.to_string())
}

fn summary(lateness: Lateness) -> Option<LatencySummary> {
    let nanos = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
    (lateness.count > 0).then(|| LatencySummary {
        count: lateness.count,
        p50_ns: nanos(lateness.p50),
        p99_ns: nanos(lateness.p99),
        p99_9_ns: nanos(lateness.p99_9),
        p99_99_ns: nanos(lateness.p99_99),
        max_ns: nanos(lateness.max),
    })
}

/// Accepts every message and keeps none.
struct CountingTransport {
    bytes: Arc<AtomicU64>,
    clock: Arc<dyn Clock>,
}

impl Transport for CountingTransport {
    fn name(&self) -> &'static str {
        "counting"
    }

    fn poll_graph(&mut self, _: &mut Vec<GraphEvent>) -> Result<(), TransportError> {
        Ok(())
    }

    fn subscribe(
        &mut self,
        request: &SubscribeRequest,
        _: Arc<dyn Sink>,
    ) -> Result<Box<dyn Subscription>, TransportError> {
        Err(TransportError::Topic {
            topic: request.topic.clone(),
            reason: "this transport only counts what is published".to_owned(),
        })
    }

    fn publish(&mut self, _: &PublishRequest) -> Result<Box<dyn Publisher>, TransportError> {
        Ok(Box::new(CountingPublisher(Arc::clone(&self.bytes))))
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

struct CountingPublisher(Arc<AtomicU64>);

impl Publisher for CountingPublisher {
    fn publish(&mut self, payload: &[u8]) -> Result<(), TransportError> {
        self.0.fetch_add(payload.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn matched_subscriptions(&self) -> usize {
        1
    }

    fn wait_for_acked(&mut self, _: Duration) -> bool {
        true
    }
}
