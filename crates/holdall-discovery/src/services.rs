//! Selected services without introspection: their calls cannot be recorded.

use super::decisions::Discovery;
use holdall_model::{names::service_event_topic, topic::Gid};
use holdall_transport::{GraphEvent, ServerInfo};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

/// How long the topic of a service's events may come after its server, which is declared first.
const EVENTS_LATE_MAX: Duration = Duration::from_secs(2);

/// Most services to watch; more of them, as a hostile graph may show, are not reported.
const SERVICES_MAX: usize = 10_000;

/// Services that each node has for tools, by the end of their names.
const OF_EVERY_NODE: [&str; 9] = [
    "/describe_parameters",
    "/get_parameter_types",
    "/get_parameters",
    "/list_parameters",
    "/set_parameters",
    "/set_parameters_atomically",
    "/get_type_description",
    "/get_logger_levels",
    "/set_logger_levels",
];

/// Packages of the services that control recorders and players, rosbag2's and holdall's: they are not recorded, and never have
/// introspection.
const OF_RECORDERS: [&str; 2] = ["rosbag2_interfaces/", "holdall_interfaces/"];

/// A service that the graph has shown.
#[derive(Debug)]
struct Service {
    servers: BTreeSet<Gid>,
    event_type: String,
    /// Time since the session's beginning when its first server was seen.
    since: Duration,
}

/// The services of one transport.
#[derive(Debug, Default)]
pub struct Services {
    by_name: BTreeMap<String, Service>,
    service_of: HashMap<Gid, String>,
    /// Those without introspection, as they were found.
    unheard: BTreeSet<String>,
}

impl Services {
    /// Applies the state of the graph.
    pub fn apply(&mut self, events: &[GraphEvent], elapsed: Duration) {
        for event in events {
            match event {
                GraphEvent::Server(server) => self.add(server, elapsed),
                GraphEvent::ServerGone(gid) => self.remove(*gid),
                _ => {}
            }
        }
    }

    fn add(&mut self, server: &ServerInfo, elapsed: Duration) {
        let is_of_every_node = OF_EVERY_NODE.iter().any(|end| server.service.ends_with(end));
        let is_of_recorder = OF_RECORDERS
            .iter()
            .any(|package| server.type_name.starts_with(package));
        if is_of_every_node || is_of_recorder || self.by_name.len() >= SERVICES_MAX {
            return;
        }
        self.service_of.insert(server.gid, server.service.clone());
        let new = || Service {
            servers: BTreeSet::new(),
            event_type: format!("{}_Event", server.type_name),
            since: elapsed,
        };
        let service = self.by_name.entry(server.service.clone()).or_insert_with(new);
        service.servers.insert(server.gid);
    }

    fn remove(&mut self, gid: Gid) {
        let Some(name) = self.service_of.remove(&gid) else {
            return;
        };
        if let Some(service) = self.by_name.get_mut(&name) {
            service.servers.remove(&gid);
            if service.servers.is_empty() {
                self.by_name.remove(&name);
            }
        }
    }

    /// Names of selected services that are known for a while without events, each returned once.
    pub fn newly_unheard(&mut self, discovery: &Discovery, elapsed: Duration) -> Vec<String> {
        let mut found = Vec::new();
        for (name, service) in &self.by_name {
            let topic = service_event_topic(name);
            let is_late = elapsed.saturating_sub(service.since) >= EVENTS_LATE_MAX;
            if is_late
                && !discovery.has_publisher(&topic)
                && discovery.selects(&topic, &service.event_type)
                && self.unheard.insert(name.clone())
            {
                found.push(name.clone());
            }
        }
        // Introspection can be switched on at run time.
        self.unheard
            .retain(|name| !discovery.has_publisher(&service_event_topic(name)));
        found
    }

    /// All that were found and still have no events.
    pub fn unheard(&self) -> &BTreeSet<String> {
        &self.unheard
    }
}
