//! What the graph has to show before a case begins: nodes, publishers, servers.

use holdall_transport::{GraphEvent, Transport, TransportError};
use std::collections::BTreeSet;

/// What is waited for.
#[derive(Clone, Copy)]
pub(super) struct Awaited<'a> {
    pub nodes: &'a [String],
    pub topics: &'a [String],
    pub services: &'a [String],
}

/// What the graph has shown.
#[derive(Default)]
pub(super) struct Seen {
    nodes: BTreeSet<String>,
    topics: BTreeSet<String>,
    services: BTreeSet<String>,
}

impl Seen {
    /// Takes what is new in the graph.
    ///
    /// # Errors
    /// A transport that has failed for good.
    pub fn look(&mut self, transports: &mut [Box<dyn Transport>]) -> Result<(), TransportError> {
        let mut events = Vec::new();
        for transport in transports {
            transport.poll_graph(&mut events)?;
        }
        for event in events {
            match event {
                GraphEvent::Publisher(endpoint) => {
                    self.nodes.extend(endpoint.node.map(|node| node.to_string()));
                    self.topics.insert(endpoint.topic);
                }
                GraphEvent::Subscription(endpoint) => {
                    self.nodes.extend(endpoint.node.map(|node| node.to_string()));
                }
                GraphEvent::Server(server) => {
                    self.services.insert(server.service);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// What is still missing, one clause; `None` if nothing is.
    pub fn missing(&self, awaited: Awaited<'_>) -> Option<String> {
        let parts = [
            ("node", awaited.nodes, &self.nodes),
            ("publisher of", awaited.topics, &self.topics),
            ("server of", awaited.services, &self.services),
        ];
        let missing = parts.into_iter().flat_map(|(what, names, seen)| {
            let absent = names.iter().filter(|name| !seen.contains(*name));
            absent.map(move |name| format!("{what} {name}"))
        });
        let missing: Vec<String> = missing.collect();
        (!missing.is_empty()).then(|| format!("no {}", missing.join(", no ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let names = |text: &str| vec![text.to_owned()];
        let (nodes, topics, services) = (names("/tracker"), names("/tracks"), names("/plan"));
        let awaited = Awaited {
            nodes: &nodes,
            topics: &topics,
            services: &services,
        };
        let mut seen = Seen::default();
        seen.topics.insert("/tracks".to_owned());
        assert_eq!(
            seen.missing(awaited).unwrap(),
            "no node /tracker, no server of /plan"
        );
        seen.nodes.insert("/tracker".to_owned());
        seen.services.insert("/plan".to_owned());
        assert_eq!(seen.missing(awaited), None);
    }
}
