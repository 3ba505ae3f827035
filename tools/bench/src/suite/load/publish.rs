//! Publishes a load over a transport: the process that takes the role of a robot's nodes.

use super::{
    generator::generate,
    plan::{PublishEvent, PublishPlan, PublishReport},
    publishers::Publishers,
};
use crate::error::{BenchError, BenchResult};
use holdall_io::clock::Clock;
use holdall_io::mutex::lock;
use holdall_model::message::{MessageHeader, Payload};
use holdall_transport::{PublishRequest, Publisher, Sink, Transport};
use std::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

/// Time between two checks for subscriptions.
const POLL_PERIOD: Duration = Duration::from_millis(2);

/// Longest wait for publishers without subscriptions.
const MATCH_WAIT_MAX: Duration = Duration::from_secs(60);

/// Longest wait for the acknowledgements of all publishers together.
const ACK_WAIT_MAX: Duration = Duration::from_secs(20);

/// A transport's publisher as a sink of the generator.
struct PublisherSink {
    publisher: Mutex<Box<dyn Publisher>>,
    sent: AtomicU64,
    refused: AtomicU64,
}

impl PublisherSink {
    /// A panic elsewhere leaves a publisher in its state between two messages.
    fn lock(&self) -> MutexGuard<'_, Box<dyn Publisher>> {
        lock(&self.publisher)
    }
}

impl Sink for PublisherSink {
    fn offer(&self, _: MessageHeader, payload: Payload<'_>) {
        self.sent.fetch_add(1, Ordering::Relaxed);
        let refused = match payload {
            Payload::Borrowed(bytes) => self.lock().publish(bytes).is_err(),
            Payload::Loaned(loan) => {
                let mut bytes = Vec::with_capacity(loan.len());
                loan.for_each_slice(&mut |slice| bytes.extend_from_slice(slice));
                self.lock().publish(&bytes).is_err()
            }
        };
        if refused {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Publishes all of `plan` as the nodes of `transports`, one or more, in turn; calls `on_event` with each event. The transports stay joined: the
/// last messages may have to be sent again.
///
/// # Errors
/// A message that cannot be made, a transport that refuses, publishers without a subscription.
pub fn publish(
    plan: &PublishPlan,
    transports: &mut [Box<dyn Transport>],
    clock: &dyn Clock,
    on_event: &mut dyn FnMut(&PublishEvent),
) -> BenchResult<Vec<Arc<dyn Sink>>> {
    let publishers = Publishers::new(&plan.producers(), plan.seed)?;
    let own = create(&publishers, transports)?;
    let began = clock.monotonic();
    on_event(&PublishEvent::Ready);
    let mut matched = Matched::new(&own, began);
    if plan.wait_for_subscriptions {
        while !matched.poll(clock) {
            if clock.monotonic() > began + MATCH_WAIT_MAX {
                let (missing, of) = (matched.waiting.len(), own.len());
                let reason = format!("got no subscription for {missing} of {of} topics");
                return Err(BenchError::program("the publishers", reason));
            }
            for transport in &mut *transports {
                transport.poll_graph(&mut Vec::new())?;
            }
            clock.sleep_until(clock.monotonic() + POLL_PERIOD);
        }
    }
    on_event(&PublishEvent::Started);
    let sinks: Vec<Arc<dyn Sink>> = own.iter().map(|one| Arc::clone(one) as Arc<dyn Sink>).collect();
    let sent = watched(&mut matched, clock, || {
        generate(&publishers, &sinks, plan.threads, false, clock)
    })??;
    await_acknowledgements(&own, clock);
    on_event(&PublishEvent::Done(Box::new(PublishReport {
        sent: sent.messages,
        refused: own.iter().map(|one| one.refused.load(Ordering::Relaxed)).sum(),
        message_bytes: publishers
            .groups
            .iter()
            .map(|group| group.frame.message_bytes() as u64)
            .collect(),
        offer: sent.offers.summary(),
        lateness: sent.lateness.summary(),
        cpu_s: sent.cpu.as_secs_f64(),
        elapsed_s: sent.elapsed.as_secs_f64(),
        sent_before_match: matched.sent_before + matched.sent_by_waiting(),
        matched_s: matched.at_s,
    })));
    Ok(sinks)
}

fn create(
    publishers: &Publishers,
    transports: &mut [Box<dyn Transport>],
) -> BenchResult<Vec<Arc<PublisherSink>>> {
    let nodes = transports.len();
    let one = |index: usize| {
        let group = publishers.group_of(index);
        let request = PublishRequest {
            topic: publishers.publishers[index].topic.clone(),
            type_name: group.config.msg_type.clone(),
            type_hash: Some(group.definition.type_description_hash.clone()).filter(|hash| !hash.is_empty()),
            qos: group.config.qos,
            ..PublishRequest::default()
        };
        Ok(Arc::new(PublisherSink {
            publisher: Mutex::new(transports[index % nodes].publish(&request)?),
            sent: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }))
    };
    (0..publishers.publishers.len()).map(one).collect()
}

/// Polls for subscriptions while messages are sent, as long as some are missing.
fn watched<T: Send>(
    matched: &mut Matched<'_>,
    clock: &dyn Clock,
    send: impl FnOnce() -> T,
) -> BenchResult<T> {
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let watch = || {
            while !ended.load(Ordering::Relaxed) && !matched.poll(clock) {
                clock.sleep_until(clock.monotonic() + POLL_PERIOD);
            }
        };
        thread::Builder::new()
            .name("publish-watch".to_owned())
            .spawn_scoped(scope, watch)
            .map_err(|source| BenchError::Thread { source })?;
        let sent = send();
        ended.store(true, Ordering::Relaxed);
        Ok(sent)
    })
}

fn await_acknowledgements(own: &[Arc<PublisherSink>], clock: &dyn Clock) {
    let deadline = clock.monotonic() + ACK_WAIT_MAX;
    for one in own {
        let left = deadline.saturating_sub(clock.monotonic());
        // A missing acknowledgement shows in the number of recorded messages.
        let _acknowledged = !left.is_zero() && one.lock().wait_for_acked(left);
    }
}

/// When publishers got their first subscriptions.
struct Matched<'a> {
    waiting: Vec<&'a PublisherSink>,
    began: Duration,
    at_s: Vec<f64>,
    /// Messages sent by publishers before their first subscription.
    sent_before: u64,
}

impl<'a> Matched<'a> {
    fn new(own: &'a [Arc<PublisherSink>], began: Duration) -> Self {
        Self {
            waiting: own.iter().map(Arc::as_ref).collect(),
            began,
            at_s: Vec::new(),
            sent_before: 0,
        }
    }

    /// Records which publishers have a subscription now; true when all have.
    fn poll(&mut self, clock: &dyn Clock) -> bool {
        let at_s = clock.monotonic().saturating_sub(self.began).as_secs_f64();
        let before = self.waiting.len();
        let mut sent_before = 0;
        self.waiting.retain(|one| {
            let publisher = one.lock();
            let is_waiting = publisher.matched_subscriptions() == 0;
            if !is_waiting {
                sent_before += one.sent.load(Ordering::Relaxed);
            }
            is_waiting
        });
        self.sent_before += sent_before;
        self.at_s.extend((self.waiting.len()..before).map(|_| at_s));
        self.waiting.is_empty()
    }

    /// Messages of publishers that still have no subscription.
    fn sent_by_waiting(&self) -> u64 {
        self.waiting
            .iter()
            .map(|one| one.sent.load(Ordering::Relaxed))
            .sum()
    }
}
