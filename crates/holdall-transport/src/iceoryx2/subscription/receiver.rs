//! A subscriber of one service: takes its samples, offers large ones as loans and copies small ones out.

use crate::Sink;
use crate::iceoryx2::{
    ffi::{self, RawSubscriber, Service},
    header::HeaderLayout,
    loan::{Kept, SampleLoan},
    service::ServiceFacts,
};
use holdall_io::clock::Clock;
use holdall_model::{
    message::{MessageHeader, Payload},
    topic::Gid,
};
use iceoryx2::port::{ReceiveError, listener::Listener};
use std::{collections::HashMap, os::fd::BorrowedFd, sync::Arc};

/// Samples smaller than this are copied: that costs less than keeping and releasing them.
const LOAN_BYTES_MIN: usize = 16 * 1024;

/// Samples that are taken before the next service's turn.
pub(super) const TURN_MAX: usize = 4096;

/// The result of polling a subscriber.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::iceoryx2) struct Taken {
    pub samples: usize,
    /// The largest number from one publisher.
    pub fullest: usize,
}

/// A publisher whose samples have arrived.
struct Origin {
    id: u128,
    kept: Kept,
    taken: usize,
}

/// A subscriber with the facts that are needed to read its samples.
pub(in crate::iceoryx2) struct Receiver {
    subscriber: RawSubscriber,
    listener: Option<Listener<Service>>,
    /// Notifications come for its messages.
    is_notified: bool,
    clock: Arc<dyn Clock>,
    topic: String,
    layout: HeaderLayout,
    header_bytes: usize,
    recorded_header_bytes: usize,
    borrowed_max: usize,
    pub buffer_size: usize,
    origins: Vec<Origin>,
    index: HashMap<u128, usize>,
    /// Memory for header and payload of copied messages that have both.
    joined: Vec<u8>,
    failure_is_told: bool,
}

impl Receiver {
    /// Takes from `subscriber` of a service with these facts; `listener` belongs to the event service of the
    /// same name.
    pub fn new(
        subscriber: RawSubscriber,
        listener: Option<Listener<Service>>,
        facts: &ServiceFacts,
        topic: &str,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            subscriber,
            listener,
            is_notified: false,
            clock,
            topic: topic.to_owned(),
            layout: facts.header_layout(),
            header_bytes: facts.header.size,
            recorded_header_bytes: facts.recorded_header_bytes(),
            borrowed_max: facts.borrowed_max,
            buffer_size: facts.buffer_size,
            origins: Vec::new(),
            index: HashMap::new(),
            joined: Vec::new(),
            failure_is_told: false,
        }
    }

    /// True while its publishers notify of new samples, so that it need not be polled.
    pub(crate) fn is_notified(&self) -> bool {
        self.is_notified
    }

    /// The file descriptor that becomes readable on a notification.
    pub(crate) fn wake_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.listener.as_ref().map(ffi::wake_descriptor)
    }

    /// Drains notifications, so that the next wait ends only with a new one.
    fn notified(&mut self) -> bool {
        let Some(listener) = &self.listener else {
            return false;
        };
        let mut any = false;
        // A listener that fails is treated as absent: the buffer is polled.
        if listener.try_wait(|_| any = true).is_err() {
            self.listener = None;
            self.is_notified = false;
        }
        any
    }

    /// Offers every sample that has arrived. Never waits.
    pub fn take(&mut self, sink: &dyn Sink) -> Taken {
        let was_notified = self.notified();
        for origin in &mut self.origins {
            origin.taken = 0;
        }
        let mut taken = Taken::default();
        while taken.samples < TURN_MAX {
            let sample = match self.subscriber.receive() {
                Ok(Some(sample)) => sample,
                Ok(None) => break,
                Err(error) => {
                    self.log_failure(error);
                    break;
                }
            };
            taken.samples += 1;
            // Read for each sample: one that is published while this loop runs was not received before the
            // loop.
            let log_time = self.clock.now();
            let origin = self.origin(sample.origin().value());
            self.origins[origin].taken += 1;
            taken.fullest = taken.fullest.max(self.origins[origin].taken);
            let facts = self.layout.read(ffi::header_bytes(&sample, self.header_bytes));
            let header = MessageHeader {
                publisher: Some(facts.publisher.unwrap_or(gid(self.origins[origin].id))),
                sequence: facts.sequence,
                publish_time: facts.publish_time,
                log_time,
            };
            let bytes = ffi::payload_bytes(&sample).len() + self.recorded_header_bytes;
            // One is kept free, because without it the next sample could not be received.
            let is_near_limit = self.origins[origin].kept.count() + 1 >= self.borrowed_max;
            if bytes >= LOAN_BYTES_MIN && !is_near_limit {
                let kept = &self.origins[origin].kept;
                let loan = SampleLoan::new(sample, self.recorded_header_bytes, kept);
                sink.offer(header, Payload::Loaned(Box::new(loan)));
            } else if self.recorded_header_bytes == 0 {
                sink.offer(header, Payload::Borrowed(ffi::payload_bytes(&sample)));
            } else {
                self.joined.clear();
                let header_bytes = ffi::header_bytes(&sample, self.recorded_header_bytes);
                self.joined.extend_from_slice(header_bytes);
                self.joined.extend_from_slice(ffi::payload_bytes(&sample));
                sink.offer(header, Payload::Borrowed(&self.joined));
            }
        }
        if taken.samples > 0 {
            self.is_notified = was_notified;
        } else if was_notified {
            self.is_notified = true;
        }
        taken
    }

    fn origin(&mut self, id: u128) -> usize {
        if let Some(&index) = self.index.get(&id) {
            return index;
        }
        self.origins.push(Origin {
            id,
            kept: Kept::default(),
            taken: 0,
        });
        self.index.insert(id, self.origins.len() - 1);
        self.origins.len() - 1
    }

    /// Logs once why samples cannot be received; everything else continues.
    fn log_failure(&mut self, error: ReceiveError) {
        if std::mem::replace(&mut self.failure_is_told, true) {
            return;
        }
        match error {
            // Samples that the recorder still holds; the next poll finds them released.
            ReceiveError::ExceedsMaxBorrows => self.failure_is_told = false,
            ReceiveError::ConnectionFailure(failure) => tracing::warn!(
                "{}: a publisher's shared memory cannot be opened ({failure:?}); its messages are not recorded",
                self.topic
            ),
        }
    }
}

/// A publisher's identifier as the recorder has it.
pub(in crate::iceoryx2) fn gid(id: u128) -> Gid {
    Gid(id.to_be_bytes())
}
