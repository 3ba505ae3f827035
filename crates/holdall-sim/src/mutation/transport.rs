//! A way into the recorder on which messages are stamped wrongly, their memory is kept, or ends of publishers are believed that were not shown.

use super::Mutation;
use holdall_model::{
    message::{Loan, MessageHeader, Payload},
    time::Timestamp,
    topic::{Gid, NodeName},
};
use holdall_transport::{
    EndProof, GraphEvent, PublishRequest, Publisher, Sink, SubscribeRequest, Subscription, Transport,
    TransportError, TypeDescriptionReply,
};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

/// The transport with wrong sinks in front of the recorder's.
pub struct MutatedTransport {
    mutation: Mutation,
    transport: Box<dyn Transport>,
}

impl MutatedTransport {
    /// Breaks `transport` in one way.
    pub fn new(mutation: Mutation, transport: Box<dyn Transport>) -> Self {
        Self { mutation, transport }
    }
}

impl Transport for MutatedTransport {
    fn name(&self) -> &'static str {
        self.transport.name()
    }

    fn is_pumped(&self) -> bool {
        self.transport.is_pumped()
    }

    fn end_proof(&self) -> EndProof {
        self.transport.end_proof()
    }

    fn silent_for(&self, publisher: Gid) -> Option<Duration> {
        self.transport.silent_for(publisher)
    }

    fn poll_graph(&mut self, events: &mut Vec<GraphEvent>) -> Result<(), TransportError> {
        let before = events.len();
        self.transport.poll_graph(events)?;
        if self.mutation == Mutation::FarewellBelieved {
            for event in &mut events[before..] {
                if let GraphEvent::PublisherLeft { gid, .. } | GraphEvent::PublisherSilent { gid, .. } =
                    *event
                {
                    *event = GraphEvent::PublisherGone(gid);
                }
            }
        }
        Ok(())
    }

    fn subscribe(
        &mut self,
        request: &SubscribeRequest,
        sink: Arc<dyn Sink>,
    ) -> Result<Box<dyn Subscription>, TransportError> {
        let sink = MutatedSink {
            mutation: self.mutation,
            sink,
            kept: Mutex::default(),
            is_clock: request.topic == "/clock",
            latest: Mutex::default(),
        };
        let subscription = self.transport.subscribe(request, Arc::new(sink))?;
        if self.mutation == Mutation::AnswerInvented {
            return Ok(Box::new(Believed(subscription)));
        }
        Ok(subscription)
    }

    fn publish(&mut self, request: &PublishRequest) -> Result<Box<dyn Publisher>, TransportError> {
        self.transport.publish(request)
    }

    fn request_type_description(&mut self, node: &NodeName, type_name: &str, type_hash: &str) {
        self.transport
            .request_type_description(node, type_name, type_hash);
    }

    fn poll_type_descriptions(&mut self, replies: &mut Vec<TypeDescriptionReply>) {
        self.transport.poll_type_descriptions(replies);
    }

    fn now(&self) -> Timestamp {
        self.transport.now()
    }
}

/// A subscription that asks no publisher and reports that all have answered.
struct Believed(Box<dyn Subscription>);

impl Subscription for Believed {
    fn pump(&mut self) -> usize {
        self.0.pump()
    }

    fn matched_publishers(&self) -> usize {
        self.0.matched_publishers()
    }

    fn announced_sequences(&self) -> Vec<(Gid, u64)> {
        self.0.announced_sequences()
    }

    fn has_answered(&self, _publisher: Gid) -> bool {
        true
    }
}

struct MutatedSink {
    mutation: Mutation,
    sink: Arc<dyn Sink>,
    kept: Mutex<Vec<Box<dyn Loan>>>,
    /// Its messages are simulated time.
    is_clock: bool,
    /// Seconds and nanoseconds of the latest one.
    latest: Mutex<(u32, u32)>,
}

impl Sink for MutatedSink {
    fn offer(&self, header: MessageHeader, payload: Payload<'_>) {
        match (self.mutation, payload) {
            (Mutation::LoanKept, Payload::Loaned(loan)) => {
                let mut bytes = Vec::with_capacity(loan.len());
                loan.for_each_slice(&mut |slice| bytes.extend_from_slice(slice));
                self.sink.offer(header, Payload::Borrowed(&bytes));
                if let Ok(mut kept) = self.kept.lock() {
                    kept.push(loan);
                }
            }
            (Mutation::WrongStamp, payload) => {
                let log_time = header.publish_time.unwrap_or(header.log_time);
                self.sink.offer(MessageHeader { log_time, ..header }, payload);
            }
            (Mutation::ResetIgnored, payload) if self.is_clock => {
                let bytes = payload.to_vec();
                let word = |at: usize| {
                    let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
                    word.map_or(0, u32::from_le_bytes)
                };
                let time = (word(4), word(8));
                if let Ok(mut latest) = self.latest.lock()
                    && time >= *latest
                {
                    *latest = time;
                    self.sink.offer(header, Payload::Borrowed(&bytes));
                }
            }
            (_, payload) => self.sink.offer(header, payload),
        }
    }

    fn announced(&self, publisher: Gid, last_sequence: u64) {
        self.sink.announced(publisher, last_sequence);
    }
}
