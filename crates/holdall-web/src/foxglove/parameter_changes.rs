//! Reports of nodes about changes of their parameters, heard as long as a viewer follows some.

use super::parameters::EVENTS;
use holdall_model::{
    message::{MessageHeader, Payload},
    qos::QosProfile,
};
use holdall_transport::{Sink, SubscribeRequest, Subscription, Transport};
use std::sync::{
    Arc,
    mpsc::{Receiver, SyncSender, sync_channel},
};

/// Reports that wait; further ones are dropped.
const WAITING_MAX: usize = 256;

/// Longest report that is read.
const BYTES_MAX: usize = 1 << 20;

/// The subscriptions to reports, while they are wanted.
#[derive(Default)]
pub(super) struct ParameterChanges(Option<Heard>);

/// The reports that the subscriptions deliver, and they themselves.
type Heard = (Receiver<Vec<u8>>, Vec<Box<dyn Subscription>>);

struct ReportSink(SyncSender<Vec<u8>>);

impl Sink for ReportSink {
    fn offer(&self, _header: MessageHeader, payload: Payload<'_>) {
        if payload.len() > BYTES_MAX {
            return;
        }
        let bytes = match payload {
            Payload::Borrowed(bytes) => bytes.to_vec(),
            Payload::Loaned(loan) => {
                let mut bytes = Vec::new();
                loan.for_each_slice(&mut |slice| bytes.extend_from_slice(slice));
                bytes
            }
        };
        // If the queue is full, this change is dropped, and the viewer sees later ones.
        let _ = self.0.try_send(bytes);
    }
}

impl ParameterChanges {
    /// Subscribes, or ends the subscriptions.
    pub(super) fn follow(&mut self, wanted: bool, transports: &mut [Box<dyn Transport>]) {
        match (wanted, &mut self.0) {
            (true, None) => {
                let (sender, receiver) = sync_channel(WAITING_MAX);
                let request = SubscribeRequest {
                    topic: EVENTS.0.to_owned(),
                    type_name: EVENTS.1.to_owned(),
                    qos: QosProfile::ROS_DEFAULT,
                };
                let sink = Arc::new(ReportSink(sender));
                let subscribe = |transport: &mut Box<dyn Transport>| {
                    let sink = Arc::clone(&sink) as Arc<dyn Sink>;
                    transport.subscribe(&request, sink).ok()
                };
                let subscriptions = transports.iter_mut().filter_map(subscribe).collect();
                self.0 = Some((receiver, subscriptions));
            }
            (true, Some((_, subscriptions))) => {
                for subscription in subscriptions {
                    subscription.pump();
                }
            }
            (false, _) => self.0 = None,
        }
    }

    /// A report that has arrived.
    pub(super) fn take(&mut self) -> Option<Vec<u8>> {
        self.0.as_ref()?.0.try_recv().ok()
    }
}
