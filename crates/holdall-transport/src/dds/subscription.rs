//! Subscriptions: received samples to a sink, large payloads as loans of the receive buffers.

use crate::dds::{
    ffi::{
        entity::{DdsError, Domain, Participant, Reader, Received, SampleHandler},
        globals::elapsed,
        sertype::Sample,
    },
    graph::announcement::{EndpointKind, NodeAnnouncement},
    settings::qos::{DdsDurability, DdsHistory, DdsQos, dds_topic, reader_qos},
    wire::keys::number_of_message,
};
use crate::{Sink, SubscribeRequest, Subscription};
use holdall_io::{
    clock::Clock, mutex::lock, socket::has_waiting, survivor::buffers::may_be_buffer, thread::are_asleep,
};
use holdall_model::{
    message::{Kept, Loan, MessageHeader, Payload},
    names::dds::type_to_dds,
    qos::Reliability,
    time::Timestamp,
    topic::Gid,
};
use std::{
    collections::{BTreeSet, HashMap},
    os::fd::RawFd,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
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
    /// The first loan on each receive buffer is charged for it, so that the sum over all loans is the memory
    /// that is really held (except for the buffers that the oldest loans share).
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
    /// The topic's type has a key.
    is_keyed: bool,
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
            let origin = received.sample.origin().map(|(publisher, sequence)| {
                let number = if self.is_keyed {
                    number_of_message(publisher, sequence)
                } else {
                    sequence
                };
                (publisher, number)
            });
            let (publisher, sequence) = origin.unzip();
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
    is_keyed: bool,
    reader: Reader,
    announcement: Arc<NodeAnnouncement>,
    sockets: Arc<Sockets>,
    /// The parameters of the reader.
    made_with: MadeWith,
    /// A second reader: each reliable writer sends a HEARTBEAT to one that is new to it. With the elapsed time before it was made.
    question: Option<(Reader, i64)>,
}

struct MadeWith {
    participant: Arc<Participant>,
    topic: String,
    type_name: String,
    qos: DdsQos,
    is_reliable: bool,
}

/// Whether a thread of this name reads what arrives.
pub(super) fn receives(thread: &str) -> bool {
    thread.starts_with("recv")
}

/// The sockets that a domain receives with.
pub(super) struct Sockets {
    all: BTreeSet<RawFd>,
    /// Since the first question they were seen empty, and everything read from them was handled.
    were_empty: AtomicBool,
}

impl Sockets {
    /// These sockets.
    pub(super) fn new(all: BTreeSet<RawFd>) -> Self {
        Self {
            all,
            were_empty: AtomicBool::new(false),
        }
    }

    /// Whether all that had arrived at the first call has been read, and no thread is about to look at it: a HEARTBEAT among it answers no
    /// later question.
    fn were_empty(&self) -> bool {
        if !self.were_empty.load(Ordering::Relaxed)
            && !self.all.iter().any(|socket| has_waiting(*socket))
            && are_asleep(receives)
        {
            self.were_empty.store(true, Ordering::Relaxed);
        }
        self.were_empty.load(Ordering::Relaxed)
    }
}

impl DdsSubscription {
    /// Subscribes.
    pub(super) fn new(
        participant: &Arc<Participant>,
        announcement: &Arc<NodeAnnouncement>,
        pinned: &Arc<PinnedBuffers>,
        sockets: &Arc<Sockets>,
        clock: &Arc<dyn Clock>,
        request: &SubscribeRequest,
        sink: Arc<dyn Sink>,
    ) -> Result<Self, DdsError> {
        let handler = SinkHandler {
            sink,
            clock: Arc::clone(clock),
            domain: Arc::clone(participant.domain()),
            pinned: Arc::clone(pinned),
            is_keyed: request.qos.is_keyed,
            scratch: Mutex::new(Vec::new()),
        };
        let topic = dds_topic(&request.topic, &request.qos);
        let type_name = type_to_dds(&request.type_name);
        let qos = reader_qos(&request.qos);
        let reader = Reader::new(participant, &topic, &type_name, &qos, Some(Box::new(handler)))?;
        announcement.add(EndpointKind::Reader, reader.gid());
        Ok(Self {
            is_keyed: request.qos.is_keyed,
            reader,
            announcement: Arc::clone(announcement),
            sockets: Arc::clone(sockets),
            made_with: MadeWith {
                participant: Arc::clone(participant),
                topic,
                type_name,
                // Nothing that it receives is wanted.
                qos: DdsQos {
                    durability: DdsDurability::Volatile,
                    history: DdsHistory::KeepLast(1),
                    ..qos
                },
                is_reliable: request.qos.reliability == Reliability::Reliable,
            },
            question: None,
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
        let mut announced = self.reader.announced_sequences();
        if self.is_keyed {
            for (publisher, sequence) in &mut announced {
                *sequence = number_of_message(*publisher, *sequence);
            }
        }
        announced
    }

    fn ask_ends(&mut self) {
        let MadeWith {
            participant,
            topic,
            type_name,
            qos,
            is_reliable,
        } = &self.made_with;
        if self.question.is_none() && *is_reliable && self.sockets.were_empty() {
            let asked = elapsed();
            match Reader::new(participant, topic, type_name, qos, None) {
                Ok(reader) => self.question = Some((reader, asked)),
                Err(error) => tracing::debug!("{topic}: its publishers cannot be asked: {error}"),
            }
        }
    }

    fn has_answered(&self, publisher: Gid) -> bool {
        let question = self.question.as_ref();
        question.is_some_and(|(reader, asked)| reader.has_heartbeat(publisher, *asked))
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
