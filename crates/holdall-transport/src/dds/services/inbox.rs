//! Where requests and replies wait between Cyclone's receive thread and the thread that takes them: bounded, and copied out of the receive
//! buffers.

use crate::dds::{
    ffi::entity::{Received, SampleHandler},
    wire::reply_identity::{RequestIdentity, identity_in},
};
use crate::{SERVICE_BYTES_MAX, SERVICE_WAITING_MAX, ServiceWake};
use holdall_io::mutex::lock;
use holdall_model::topic::Gid;
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

/// Most bytes of requests or replies that wait.
const WAITING_BYTES_MAX: usize = 32 << 20;

/// A sample that has arrived.
pub(in crate::dds) struct Arrived {
    /// Its writer.
    pub from: Gid,
    /// Its writer's number.
    pub sequence: u64,
    /// The request that it answers, where that is given outside of the payload.
    pub answers: Option<RequestIdentity>,
    /// With encapsulation header.
    pub payload: Vec<u8>,
}

#[derive(Default)]
struct Waiting {
    samples: VecDeque<Arrived>,
    bytes: usize,
    dropped: u64,
}

/// Where samples wait until they are taken.
pub(in crate::dds) struct Inbox {
    waiting: Mutex<Waiting>,
    wake: ServiceWake,
}

impl Inbox {
    /// An empty one.
    pub(in crate::dds) fn new(wake: ServiceWake) -> Arc<Self> {
        Arc::new(Self {
            waiting: Mutex::default(),
            wake,
        })
    }

    /// Takes what waits.
    pub(in crate::dds) fn take(&self) -> VecDeque<Arrived> {
        let mut waiting = lock(&self.waiting);
        waiting.bytes = 0;
        std::mem::take(&mut waiting.samples)
    }

    /// How many samples found no room since the last call.
    pub(in crate::dds) fn take_dropped(&self) -> u64 {
        std::mem::take(&mut lock(&self.waiting).dropped)
    }
}

/// Puts samples that are for us into an inbox.
pub(in crate::dds) struct InboxHandler {
    /// Where they go.
    pub inbox: Arc<Inbox>,
    /// Whether a sample is for us.
    pub is_ours: Box<dyn Fn(&Arrived) -> bool + Send + Sync>,
}

impl SampleHandler for InboxHandler {
    fn on_samples(&self, batch: &mut Vec<Received>) {
        let mut has_new = false;
        for Received { sample, .. } in batch.drain(..) {
            // Within this process there is no one to answer.
            let Some((from, sequence)) = sample.origin() else {
                continue;
            };
            let mut waiting = lock(&self.inbox.waiting);
            let bytes = sample.len();
            let has_room =
                waiting.samples.len() < SERVICE_WAITING_MAX && waiting.bytes + bytes <= WAITING_BYTES_MAX;
            if bytes > SERVICE_BYTES_MAX || !has_room {
                waiting.dropped += 1;
                continue;
            }
            let mut payload = Vec::with_capacity(bytes);
            sample.pieces().for_each(|piece| payload.extend_from_slice(piece));
            let answers = sample
                .inline_qos()
                .and_then(|(parameters, is_little)| identity_in(parameters, is_little));
            let arrived = Arrived {
                from,
                sequence,
                answers,
                payload,
            };
            if (self.is_ours)(&arrived) {
                waiting.bytes += bytes;
                waiting.samples.push_back(arrived);
                has_new = true;
            }
        }
        if has_new {
            (self.inbox.wake)();
        }
    }
}
