//! Arrivals during a trial: a transport around another one that counts on the way to the recorder.

use super::figures::{BURST_MS, TopicFigures};
use holdall_io::mutex::lock;
use holdall_model::{
    message::{MessageHeader, Payload},
    network::Network,
    qos::{History, QosProfile, Reliability},
    time::Timestamp,
    topic::{Gid, NodeName},
};
use holdall_transport::{
    EndProof, GraphEvent, GraphWake, PublishRequest, Publisher, ServiceClient, ServiceDescription,
    ServiceServer, ServiceWake, Sink, SubscribeRequest, Subscription, Transport, TransportError,
    TypeDescriptionReply, Unreached,
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex},
    time::Duration,
};

/// Publishers whose QoS is kept.
const PUBLISHERS_MAX: usize = 10_000;

/// Arrivals on all topics.
#[derive(Default)]
pub(super) struct Arrivals {
    topics: Mutex<BTreeMap<String, Arc<Mutex<Counts>>>>,
    all: Mutex<Bursts>,
    offered: Mutex<HashMap<Gid, (String, QosProfile)>>,
}

/// Arrivals on one topic.
#[derive(Default)]
struct Counts {
    messages: u64,
    bytes: u64,
    bytes_max: u64,
    last: Option<Timestamp>,
    periods: u64,
    /// Mean of the periods in seconds, and the sum of the squares of their distances from it (Welford).
    mean: f64,
    squares: f64,
    period_max: f64,
    bursts: Bursts,
}

/// The most bytes within one of the consecutive spans of [`BURST_MS`].
#[derive(Default)]
struct Bursts {
    span: i64,
    bytes: u64,
    most: u64,
}

impl Bursts {
    fn add(&mut self, time: Timestamp, bytes: u64) {
        let span = time.as_nanos() / (BURST_MS as i64 * 1_000_000);
        if span != self.span {
            self.span = span;
            self.bytes = 0;
        }
        self.bytes += bytes;
        self.most = self.most.max(self.bytes);
    }
}

impl Counts {
    fn add(&mut self, time: Timestamp, bytes: u64) {
        self.messages += 1;
        self.bytes += bytes;
        self.bytes_max = self.bytes_max.max(bytes);
        self.bursts.add(time, bytes);
        if let Some(last) = self.last.replace(time) {
            let period = (time.as_nanos() - last.as_nanos()) as f64 / 1e9;
            self.periods += 1;
            let distance = period - self.mean;
            self.mean += distance / self.periods as f64;
            self.squares += distance * (period - self.mean);
            self.period_max = self.period_max.max(period);
        }
    }
}

impl Arrivals {
    /// Forgets arrivals so far, but not the publishers.
    pub(super) fn reset(&self) {
        for counts in lock(&self.topics).values() {
            *lock(counts) = Counts::default();
        }
        *lock(&self.all) = Bursts::default();
    }

    /// Bytes of the largest burst of all topics together.
    pub(super) fn burst_bytes(&self) -> u64 {
        lock(&self.all).most
    }

    /// Arrivals on each topic within `span_s` seconds; type, publishers and losses are the recorder's to add.
    pub(super) fn topics(&self, span_s: f64) -> BTreeMap<String, TopicFigures> {
        let topics = lock(&self.topics);
        let mut all: BTreeMap<String, TopicFigures> = topics
            .iter()
            .map(|(name, counts)| (name.clone(), figures(name, &lock(counts), span_s)))
            .collect();
        for (topic, qos) in lock(&self.offered).values() {
            if let Some(figures) = all.get_mut(topic) {
                figures.is_reliable &= qos.reliability != Reliability::BestEffort;
                let depth = (qos.history == History::KeepLast && qos.depth > 0).then_some(qos.depth);
                figures.depth = match (figures.depth, depth) {
                    (Some(one), Some(other)) => Some(one.min(other)),
                    (one, other) => one.or(other),
                };
            }
        }
        all
    }

    fn of(&self, topic: &str) -> Arc<Mutex<Counts>> {
        Arc::clone(lock(&self.topics).entry(topic.to_owned()).or_default())
    }

    fn note(&self, event: &GraphEvent) {
        let mut offered = lock(&self.offered);
        match event {
            GraphEvent::Publisher(endpoint) if offered.len() < PUBLISHERS_MAX => {
                offered.insert(endpoint.gid, (endpoint.topic.clone(), endpoint.qos));
            }
            GraphEvent::PublisherGone(gid)
            | GraphEvent::PublisherLeft { gid, .. }
            | GraphEvent::PublisherSilent { gid, .. } => {
                drop(offered.remove(gid));
            }
            _ => {}
        }
    }
}

fn figures(name: &str, counts: &Counts, span_s: f64) -> TopicFigures {
    let span_s = span_s.max(1e-9);
    TopicFigures {
        name: name.to_owned(),
        messages: counts.messages,
        bytes: counts.bytes,
        hz: counts.messages as f64 / span_s,
        bytes_per_s: counts.bytes as f64 / span_s,
        bytes_max: counts.bytes_max,
        period_deviation_s: (counts.squares / counts.periods.max(1) as f64).max(0.0).sqrt(),
        period_max_s: counts.period_max,
        burst_bytes: counts.bursts.most,
        is_reliable: true,
        ..TopicFigures::default()
    }
}

/// Counts, and hands on.
struct CountingSink {
    inner: Arc<dyn Sink>,
    counts: Arc<Mutex<Counts>>,
    arrivals: Arc<Arrivals>,
}

impl Sink for CountingSink {
    fn offer(&self, header: MessageHeader, payload: Payload<'_>) {
        let bytes = payload.len() as u64;
        lock(&self.counts).add(header.log_time, bytes);
        lock(&self.arrivals.all).add(header.log_time, bytes);
        self.inner.offer(header, payload);
    }

    fn announced(&self, publisher: Gid, last_sequence: u64) {
        self.inner.announced(publisher, last_sequence);
    }
}

/// A transport whose arrivals are counted.
pub(super) struct Counted {
    inner: Box<dyn Transport>,
    arrivals: Arc<Arrivals>,
}

impl Counted {
    pub(super) fn new(inner: Box<dyn Transport>, arrivals: &Arc<Arrivals>) -> Self {
        Self {
            inner,
            arrivals: Arc::clone(arrivals),
        }
    }
}

impl Transport for Counted {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn end_proof(&self) -> EndProof {
        self.inner.end_proof()
    }

    fn silent_for(&self, publisher: Gid) -> Option<Duration> {
        self.inner.silent_for(publisher)
    }

    fn poll_graph(&mut self, events: &mut Vec<GraphEvent>) -> Result<(), TransportError> {
        let known = events.len();
        self.inner.poll_graph(events)?;
        events
            .iter()
            .skip(known)
            .for_each(|event| self.arrivals.note(event));
        Ok(())
    }

    fn has_graph_news(&self) -> bool {
        self.inner.has_graph_news()
    }

    fn wake_on_graph_news(&mut self, wake: GraphWake) {
        self.inner.wake_on_graph_news(wake);
    }

    fn subscribe(
        &mut self,
        request: &SubscribeRequest,
        sink: Arc<dyn Sink>,
    ) -> Result<Box<dyn Subscription>, TransportError> {
        let sink = CountingSink {
            inner: sink,
            counts: self.arrivals.of(&request.topic),
            arrivals: Arc::clone(&self.arrivals),
        };
        self.inner.subscribe(request, Arc::new(sink))
    }

    fn publish(&mut self, request: &PublishRequest) -> Result<Box<dyn Publisher>, TransportError> {
        self.inner.publish(request)
    }

    fn serve(
        &mut self,
        service: &ServiceDescription,
        wake: ServiceWake,
    ) -> Result<Box<dyn ServiceServer>, TransportError> {
        self.inner.serve(service, wake)
    }

    fn client(
        &mut self,
        service: &ServiceDescription,
        wake: ServiceWake,
    ) -> Result<Box<dyn ServiceClient>, TransportError> {
        self.inner.client(service, wake)
    }

    fn carries(&self, serialization_format: &str) -> bool {
        self.inner.carries(serialization_format)
    }

    fn request_type_description(&mut self, node: &NodeName, type_name: &str, type_hash: &str) {
        self.inner.request_type_description(node, type_name, type_hash);
    }

    fn poll_type_descriptions(&mut self, replies: &mut Vec<TypeDescriptionReply>) {
        self.inner.poll_type_descriptions(replies);
    }

    fn warnings(&self) -> Vec<String> {
        self.inner.warnings()
    }

    fn not_heard(&mut self) -> Vec<Unreached> {
        self.inner.not_heard()
    }

    fn networks(&self) -> Vec<Network> {
        self.inner.networks()
    }

    fn now(&self) -> Timestamp {
        self.inner.now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(milliseconds: i64) -> Timestamp {
        Timestamp::from_nanos(milliseconds * 1_000_000)
    }

    #[test]
    fn periods_sizes_and_bursts_are_those_of_the_messages() {
        let mut counts = Counts::default();
        // Three close together at the beginning of a span, then one each 100 ms.
        for (at, bytes) in [(0, 10), (1, 20), (2, 30), (100, 5), (200, 5)] {
            counts.add(time(at), bytes);
        }
        let found = figures("/a", &counts, 2.0);
        assert_eq!((found.messages, found.bytes, found.bytes_max), (5, 70, 30));
        assert_eq!((found.hz, found.bytes_per_s, found.burst_bytes), (2.5, 35.0, 60));
        assert!((found.period_max_s - 0.1).abs() < 1e-9, "{found:?}");
        assert!((counts.mean - 0.05).abs() < 1e-9);
        // Periods of 1, 1, 98 and 100 ms.
        let squares: f64 = [1.0_f64, 1.0, 98.0, 100.0]
            .iter()
            .map(|period| (period - 50.0).powi(2))
            .sum();
        assert!((found.period_deviation_s - (squares / 4.0).sqrt() / 1e3).abs() < 1e-9);
    }

    #[test]
    fn the_weakest_publisher_of_a_topic_counts() {
        let arrivals = Arrivals::default();
        arrivals.of("/a");
        let offers = [
            (
                1,
                QosProfile {
                    depth: 10,
                    ..QosProfile::ROS_DEFAULT
                },
            ),
            (
                2,
                QosProfile {
                    depth: 3,
                    ..QosProfile::ROS_DEFAULT
                },
            ),
            (
                3,
                QosProfile {
                    reliability: Reliability::BestEffort,
                    history: History::KeepAll,
                    ..QosProfile::ROS_DEFAULT
                },
            ),
        ];
        for (number, qos) in offers {
            let endpoint = holdall_transport::EndpointInfo {
                gid: Gid([number; 16]),
                topic: "/a".to_owned(),
                qos,
                ..Default::default()
            };
            arrivals.note(&GraphEvent::Publisher(endpoint));
        }
        let found = &arrivals.topics(1.0)["/a"];
        assert_eq!((found.is_reliable, found.depth), (false, Some(3)));
        arrivals.note(&GraphEvent::PublisherGone(Gid([3; 16])));
        assert!(arrivals.topics(1.0)["/a"].is_reliable);
    }
}
