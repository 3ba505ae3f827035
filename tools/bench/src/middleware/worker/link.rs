//! How a worker's messages leave and arrive: through a transport of this program, or plain sockets.

use super::{Carrier, WorkerPlan, plain, subscribe::Received};
use holdall_model::{
    message::{MessageHeader, Payload},
    qos::{QosProfile, Reliability},
};
use holdall_transport::{PublishRequest, Publisher, Sink, SubscribeRequest, Subscription, Transport};
use std::{io, sync::Arc, time::Duration};

/// Opens the worker's transport.
pub type Join<'a> = &'a dyn Fn() -> io::Result<Box<dyn Transport>>;

/// The sending side.
pub(super) trait Outlet: Send {
    /// Sends a message; false when it was refused.
    fn send(&mut self, message: &[u8]) -> bool;

    /// How many subscriptions it knows now.
    fn matched(&mut self) -> usize;

    /// Whether it knows one now; asked before each message.
    fn is_matched(&mut self) -> bool {
        self.matched() > 0
    }
}

/// The receiving side.
pub(super) trait Inlet {
    /// The messages received.
    fn received(&self) -> &Received;

    /// How many publishers it knows now.
    fn matched(&mut self) -> usize;

    /// Receives messages that have arrived, if that needs the caller's thread; true when more may be ready.
    fn pump(&mut self) -> io::Result<bool>;

    /// How long the caller may pause after a `pump` that found nothing.
    fn pause(&self) -> Duration;
}

pub(super) fn outlet(plan: &WorkerPlan, join: Join<'_>) -> io::Result<Box<dyn Outlet>> {
    match plan.carrier() {
        Carrier::Transport => {
            let mut transport = join()?;
            let request = PublishRequest {
                topic: plan.topic.clone(),
                type_name: plan.shape.type_name().to_owned(),
                qos: qos(plan),
                ..PublishRequest::default()
            };
            let publisher = transport.publish(&request).map_err(io::Error::other)?;
            Ok(Box::new(TransportOutlet { publisher, transport }))
        }
        Carrier::Udp(to) => Ok(Box::new(plain::UdpOutlet::new(to, plan)?)),
        Carrier::Tcp(to) => Ok(Box::new(plain::TcpOutlet::new(to)?)),
        Carrier::Memory => Err(io::Error::other("memory has no two sides")),
    }
}

pub(super) fn inlet(plan: &WorkerPlan, join: Join<'_>) -> io::Result<Box<dyn Inlet>> {
    let received = Received::new(plan);
    match plan.carrier() {
        Carrier::Transport => {
            let mut transport = join()?;
            let request = SubscribeRequest {
                topic: plan.topic.clone(),
                type_name: plan.shape.type_name().to_owned(),
                qos: qos(plan),
            };
            let sink = Arc::new(TransportSink(received.clone()));
            let subscription = transport.subscribe(&request, sink).map_err(io::Error::other)?;
            Ok(Box::new(TransportInlet {
                subscription,
                transport,
                received,
            }))
        }
        Carrier::Udp(at) => Ok(Box::new(plain::UdpInlet::new(at, plan, received)?)),
        Carrier::Tcp(at) => Ok(Box::new(plain::TcpInlet::new(at, plan, received)?)),
        Carrier::Memory => Err(io::Error::other("memory has no two sides")),
    }
}

fn qos(plan: &WorkerPlan) -> QosProfile {
    QosProfile {
        depth: plan.depth,
        reliability: if plan.is_reliable {
            Reliability::Reliable
        } else {
            Reliability::BestEffort
        },
        ..QosProfile::ROS_DEFAULT
    }
}

struct TransportOutlet {
    // Dropped before the transport.
    publisher: Box<dyn Publisher>,
    transport: Box<dyn Transport>,
}

impl Outlet for TransportOutlet {
    fn send(&mut self, message: &[u8]) -> bool {
        self.publisher.publish(message).is_ok()
    }

    fn matched(&mut self) -> usize {
        // Some transports see the other side only through this; the rest of the graph does not matter here.
        let _failed = self.transport.poll_graph(&mut Vec::new()).is_err();
        self.publisher.matched_subscriptions()
    }

    fn is_matched(&mut self) -> bool {
        self.publisher.matched_subscriptions() > 0 || self.matched() > 0
    }
}

/// Most bytes read of a message: up to its number.
const BEGINNING_BYTES: usize = 24;

struct TransportSink(Received);

impl Sink for TransportSink {
    fn offer(&self, _: MessageHeader, payload: Payload<'_>) {
        match payload {
            Payload::Borrowed(bytes) => self.0.note(bytes),
            Payload::Loaned(loan) => {
                // Its slices may be shorter than the beginning.
                let mut beginning = [0; BEGINNING_BYTES];
                let mut filled = 0;
                loan.for_each_slice(&mut |slice| {
                    let part = slice.len().min(beginning.len() - filled);
                    beginning[filled..filled + part].copy_from_slice(&slice[..part]);
                    filled += part;
                });
                self.0.note(&beginning[..filled]);
            }
        }
    }
}

struct TransportInlet {
    subscription: Box<dyn Subscription>,
    transport: Box<dyn Transport>,
    received: Received,
}

impl Inlet for TransportInlet {
    fn received(&self) -> &Received {
        &self.received
    }

    fn matched(&mut self) -> usize {
        let _failed = self.transport.poll_graph(&mut Vec::new()).is_err();
        self.subscription.matched_publishers()
    }

    fn pump(&mut self) -> io::Result<bool> {
        Ok(self.subscription.pump() > 0)
    }

    fn pause(&self) -> Duration {
        // Shared memory has to be polled; the others push.
        Duration::from_micros(500)
    }
}
