//! Publishers that a transport leaves to others: messages that it delivers from them are ignored.

use holdall_io::mutex::lock;
use holdall_model::{
    message::{MessageHeader, Payload},
    topic::Gid,
};
use holdall_transport::Sink;
use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
};

/// Publishers that other transports bring.
#[derive(Default)]
pub(crate) struct Covered(Mutex<HashSet<Gid>>);

impl Covered {
    /// Leaves these to others from now on, and no further ones.
    pub(super) fn set(&self, gids: HashSet<Gid>) {
        *lock(&self.0) = gids;
    }

    /// A sink in front of another one, for the transport that leaves them.
    pub(super) fn before(self: &Arc<Self>, sink: Arc<dyn Sink>) -> Arc<dyn Sink> {
        Arc::new(CoveredSink {
            covered: Arc::clone(self),
            sink,
        })
    }

    /// Whether a message of this publisher is left to others.
    pub(super) fn has(&self, publisher: Option<Gid>) -> bool {
        publisher.is_some_and(|gid| lock(&self.0).contains(&gid))
    }
}

struct CoveredSink {
    covered: Arc<Covered>,
    sink: Arc<dyn Sink>,
}

impl Sink for CoveredSink {
    fn offer(&self, header: MessageHeader, payload: Payload<'_>) {
        // Its account is the other transport's.
        if !self.covered.has(header.publisher) {
            self.sink.offer(header, payload);
        }
    }

    fn announced(&self, publisher: Gid, last_sequence: u64) {
        self.sink.announced(publisher, last_sequence);
    }
}
