//! The node that a recording or a playback shows to others: its services, answered on a separate thread.
//!
//! [`NodeServices::offer`] offers them before the transports are given away; requests wait until [`NodeServices::start`]. The state
//! ([`state::NodeState`]) is stepped; one thread drives it, woken by what arrives. Nothing of it is on the path of a message.

mod answer;
mod bag_place;
mod interface;
mod layouts;
mod parameters;
pub mod player;
pub mod recorder;
pub mod recording;
mod signal;
mod state;
#[cfg(test)]
mod tests;
mod types;

pub use answer::{Answer, Handler};
pub use bag_place::BagPlaces;
pub use layouts::Distribution;
pub use parameters::{Parameter, Parameters};

use holdall_io::clock::Clock;
use holdall_model::topic::NodeName;
use holdall_transport::{ServiceDescription, ServiceServer, ServiceWake, Transport};
use interface::ServiceInterface;
use signal::Signal;
use state::{NodeState, Served};
use std::{sync::Arc, thread::JoinHandle};

/// The services of a node, offered and not answered yet.
pub struct NodeServices {
    services: Vec<Served>,
    /// With the number of their service.
    servers: Vec<(usize, Box<dyn ServiceServer>)>,
    signal: Arc<Signal>,
}

impl NodeServices {
    /// Offers `services` (name below the node's, and type) and those of every node (parameters, definitions of types) over all transports that
    /// have services. Services that cannot be offered are logged: a recording without services is better than none.
    ///
    /// Each client is answered in the layout of a type that it announces. One that announces none is taken for one of the `distribution`.
    pub fn offer(
        node: &NodeName,
        services: &[(&'static str, &'static str)],
        distribution: Option<Distribution>,
        transports: &mut [Box<dyn Transport>],
    ) -> Self {
        let mut offered = Self {
            services: Vec::new(),
            servers: Vec::new(),
            signal: Arc::default(),
        };
        for (name, type_name) in all(services) {
            match ServiceInterface::of(type_name, distribution) {
                Ok(interface) => offered.services.push(Served {
                    name,
                    full_name: format!("{node}/{name}"),
                    interface,
                }),
                Err(reason) => tracing::warn!("the service {name} is not offered: {reason}"),
            }
        }
        let is_alone = transports.len() == 1;
        for transport in transports {
            // A client that reaches two transports would have its request carried out twice.
            if is_alone || !transport.completes_others() {
                offered.offer_over(transport.as_mut(), services);
            }
        }
        offered
    }

    /// Lets the node do due work outside of requests.
    pub fn waker(&self) -> ServiceWake {
        let signal = Arc::clone(&self.signal);
        Arc::new(move || signal.notify())
    }

    fn offer_over(&mut self, transport: &mut dyn Transport, services: &[(&'static str, &'static str)]) {
        let wake = self.waker();
        let mut refused = Vec::new();
        for (number, served) in self.services.iter().enumerate() {
            let type_name = all(services)
                .find(|(name, _)| *name == served.name)
                .map_or("", |(_, type_name)| type_name);
            let description = ServiceDescription {
                name: served.full_name.clone(),
                type_name: type_name.to_owned(),
                type_hash: served.interface.type_hash().map(str::to_owned),
            };
            match transport.serve(&description, ServiceWake::clone(&wake)) {
                Ok(server) => self.servers.push((number, server)),
                Err(error) => refused.push((served.name, error)),
            }
        }
        if let Some((_, first)) = refused.first() {
            let names: Vec<_> = refused.iter().map(|(name, _)| *name).collect();
            let (over, names) = (transport.name(), names.join(", "));
            tracing::info!("not offered over {over}: {names}: {first}");
        }
    }

    /// Answers requests from now on, on a separate thread.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(
        self,
        handler: Box<dyn Handler>,
        parameters: Parameters,
        clock: Arc<dyn Clock>,
    ) -> std::io::Result<Node> {
        let signal = Arc::clone(&self.signal);
        let mut state = NodeState::new(self.services, self.servers, handler, parameters);
        let thread = std::thread::Builder::new()
            .name("holdall-node".to_owned())
            .spawn(move || {
                while signal.wait(state.step(clock.now()), &*clock) {
                    // Something has arrived, or is due.
                }
            })?;
        Ok(Node {
            signal: self.signal,
            thread: Some(thread),
        })
    }
}

/// These services and those of every node.
fn all<'a>(
    services: &'a [(&'static str, &'static str)],
) -> impl Iterator<Item = &'a (&'static str, &'static str)> {
    services
        .iter()
        .chain(&parameters::SERVICES)
        .chain([&types::SERVICE])
}

/// A node whose services are answered, as long as this lives.
pub struct Node {
    signal: Arc<Signal>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.signal.end();
        if let Some(thread) = self.thread.take() {
            // A panic in it was reported when it happened.
            let _ = thread.join();
        }
    }
}
