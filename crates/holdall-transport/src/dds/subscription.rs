//! Subscriptions: received samples to a sink, large payloads as loans of the receive buffers.

use super::{
    announcement::{EndpointKind, NodeAnnouncement},
    ffi_entity::{DdsError, Domain, Participant, Reader, Received, SampleHandler},
    ffi_sertype::Sample,
    qos::{dds_topic, reader_qos},
};
use crate::{Sink, SubscribeRequest, Subscription};
use holdall_io::mutex::lock;
use holdall_io::{clock::Clock, survivor::buffers::may_be_buffer};
use holdall_model::{
    message::{Kept, Loan, MessageHeader, Payload},
    names::dds::type_to_dds,
    time::Timestamp,
    topic::Gid,
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

/// Payloads of at least this size are lent, smaller ones offered for copying: a loan pins whole receive
/// buffers of 1 MiB.
const LOAN_BYTES_MIN: usize = 64 << 10;

/// How many loans pin each receive buffer of a domain, by the buffer's address.
#[derive(Default)]
pub(super) struct PinnedBuffers(Mutex<HashMap<usize, u32>>);

impl PinnedBuffers {
    /// Counts a loan on each of `buffers`; returns how many were not pinned before.
    fn pin(&self, buffers: &[usize]) -> usize {
        let mut counts = lock(&self.0);
        let mut new = 0;
        for buffer in buffers {
            let count = counts.entry(*buffer).or_insert(0);
            new += usize::from(*count == 0);
            *count += 1;
        }
        new
    }

    fn unpin(&self, buffers: &[usize]) {
        let mut counts = lock(&self.0);
        for buffer in buffers {
            if let Some(count) = counts.get_mut(buffer) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(buffer);
                }
            }
        }
    }
}

/// A received payload in Cyclone's receive buffers.
struct Fragments {
    // Released before the domain: its packets are in the domain's buffers.
    sample: Sample,
    buffers: Vec<usize>,
    pinned: Arc<PinnedBuffers>,
    _domain: Arc<Domain>,
}

impl Drop for Fragments {
    fn drop(&mut self) {
        self.pinned.unpin(&self.buffers);
    }
}

/// A hold on a received payload.
struct FragmentLoan {
    fragments: Arc<Fragments>,
    pinned_bytes: usize,
}

impl FragmentLoan {
    /// What a loan pins is charged to the first one on each receive buffer, so that the sum over all loans is
    /// what is really held (except for the buffers that the oldest loans share).
    fn new(sample: Sample, pinned: &Arc<PinnedBuffers>, domain: &Arc<Domain>) -> Self {
        let mut buffers = Vec::new();
        sample.for_each_receive_buffer(|buffer| {
            if buffers.last() != Some(&buffer) {
                buffers.push(buffer);
            }
        });
        buffers.sort_unstable();
        buffers.dedup();
        let pinned_bytes = (pinned.pin(&buffers) * Sample::receive_buffer_bytes()).max(sample.len());
        let fragments = Fragments {
            sample,
            buffers,
            pinned: Arc::clone(pinned),
            _domain: Arc::clone(domain),
        };
        Self {
            fragments: Arc::new(fragments),
            pinned_bytes,
        }
    }
}

impl Loan for FragmentLoan {
    fn len(&self) -> usize {
        self.fragments.sample.len()
    }

    fn pinned_bytes(&self) -> usize {
        self.pinned_bytes
    }

    fn for_each_slice(&self, visit: &mut dyn FnMut(&[u8])) {
        self.fragments.sample.pieces().for_each(visit);
    }

    fn keep(&self) -> Option<Kept> {
        let first = self.fragments.buffers.first()?;
        may_be_buffer(*first).then(|| Arc::clone(&self.fragments) as Kept)
    }
}

/// Passes samples to a sink.
struct SinkHandler {
    sink: Arc<dyn Sink>,
    clock: Arc<dyn Clock>,
    domain: Arc<Domain>,
    pinned: Arc<PinnedBuffers>,
    /// For small payloads that came in fragments; Cyclone calls one reader's listener from one thread at a time.
    scratch: Mutex<Vec<u8>>,
}

impl SampleHandler for SinkHandler {
    fn on_samples(&self, batch: &mut Vec<Received>) {
        // Cyclone calls as soon as a sample is complete, so a batch holds one sample, or those that arrived
        // while the sink was busy: reading the clock once per batch is as close to reception as possible.
        // Cyclone's own reception stamp does not reach the application.
        let log_time = self.clock.now();
        for received in batch.drain(..) {
            let (publisher, sequence) = received.sample.origin().unzip();
            let header = MessageHeader {
                publisher,
                sequence,
                publish_time: publish_time(received.source_timestamp_nanos),
                log_time,
            };
            self.offer(header, received.sample);
        }
    }
}

impl SinkHandler {
    fn offer(&self, header: MessageHeader, sample: Sample) {
        if sample.len() >= LOAN_BYTES_MIN {
            let loan = FragmentLoan::new(sample, &self.pinned, &self.domain);
            self.sink.offer(header, Payload::Loaned(Box::new(loan)));
        } else if let Some(bytes) = sample.contiguous() {
            self.sink.offer(header, Payload::Borrowed(bytes));
        } else {
            let mut scratch = lock(&self.scratch);
            scratch.clear();
            sample.pieces().for_each(|piece| scratch.extend_from_slice(piece));
            self.sink.offer(header, Payload::Borrowed(&scratch));
        }
    }
}

/// Writers that send no timestamp are shown with a negative one.
fn publish_time(source_timestamp_nanos: i64) -> Option<Timestamp> {
    (source_timestamp_nanos > 0).then(|| Timestamp::from_nanos(source_timestamp_nanos))
}

/// A subscription of a topic.
pub(super) struct DdsSubscription {
    reader: Reader,
    announcement: Arc<NodeAnnouncement>,
}

impl DdsSubscription {
    /// Subscribes.
    pub(super) fn new(
        participant: &Arc<Participant>,
        announcement: &Arc<NodeAnnouncement>,
        pinned: &Arc<PinnedBuffers>,
        clock: &Arc<dyn Clock>,
        request: &SubscribeRequest,
        sink: Arc<dyn Sink>,
    ) -> Result<Self, DdsError> {
        let handler = SinkHandler {
            sink,
            clock: Arc::clone(clock),
            domain: Arc::clone(participant.domain()),
            pinned: Arc::clone(pinned),
            scratch: Mutex::new(Vec::new()),
        };
        let topic = dds_topic(&request.topic, &request.qos);
        let type_name = type_to_dds(&request.type_name);
        let reader = Reader::new(
            participant,
            &topic,
            &type_name,
            &reader_qos(&request.qos),
            Some(Box::new(handler)),
        )?;
        announcement.add(EndpointKind::Reader, reader.gid());
        Ok(Self {
            reader,
            announcement: Arc::clone(announcement),
        })
    }
}

impl Subscription for DdsSubscription {
    fn matched_publishers(&self) -> usize {
        self.reader.matched()
    }

    fn matched(&self) -> Option<Vec<Gid>> {
        Some(self.reader.matched_gids())
    }

    fn announced_sequences(&self) -> Vec<(Gid, u64)> {
        self.reader.announced_sequences()
    }

    fn expect_next(&self, publisher: Gid, next: u64) {
        self.reader.expect_next(publisher, next);
    }
}

impl Drop for DdsSubscription {
    fn drop(&mut self) {
        self.announcement.remove(EndpointKind::Reader, self.reader.gid());
    }
}
