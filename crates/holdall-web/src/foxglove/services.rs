//! Services of the live system for viewers: advertised with the definitions of their requests and responses, and called.

use super::{
    calls::{Answer, Calls, Ticket},
    hub::Hub,
    protocol,
};
use holdall::record::Definitions;
use holdall_model::topic::{Gid, MessageDefinition};
use holdall_transport::{ServerInfo, ServiceDescription, Transport};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// A service that has servers.
struct Offered {
    description: ServiceDescription,
    /// The transport that has found it.
    transport: usize,
    servers: BTreeSet<Gid>,
    /// Its number for viewers; none if its type is not known here, or they may not call it.
    id: Option<u32>,
}

/// A viewer's call that is not answered yet.
struct Asked {
    client: u64,
    service: u32,
    call: u32,
}

/// All services, and the calls of viewers.
pub(super) struct Services {
    /// Viewers may call them; else they are only in the graph.
    may_be_called: bool,
    offered: BTreeMap<String, Offered>,
    asked: BTreeMap<Ticket, Asked>,
}

impl Services {
    pub(super) fn new(may_be_called: bool) -> Self {
        Self {
            may_be_called,
            offered: BTreeMap::new(),
            asked: BTreeMap::new(),
        }
    }

    /// A server was found.
    pub(super) fn add(
        &mut self,
        hub: &Hub,
        definitions: &Definitions,
        transport: usize,
        server: &ServerInfo,
    ) {
        if let Some(known) = self.offered.get_mut(&server.service) {
            known.servers.insert(server.gid);
            return;
        }
        let mut description = ServiceDescription {
            name: server.service.clone(),
            type_name: server.type_name.clone(),
            type_hash: None,
        };
        let part = |part: &str| definitions.on_this_machine(&format!("{}_{part}", server.type_name));
        let parts = part("Request")
            .zip(part("Response"))
            .filter(|_| self.may_be_called);
        let id = parts.map(|(request, response)| {
            let whole = definitions.on_this_machine(&server.type_name);
            description.type_hash = whole.map(|whole| whole.type_description_hash);
            hub.add_service(advertisement(&description, &request, &response))
        });
        if id.is_none() && self.may_be_called {
            tracing::debug!(
                "viewers cannot call {}: its type {} is not known here",
                server.service,
                server.type_name
            );
        }
        self.offered.insert(
            server.service.clone(),
            Offered {
                description,
                transport,
                servers: [server.gid].into(),
                id,
            },
        );
    }

    /// A server is gone.
    pub(super) fn remove(&mut self, hub: &Hub, gid: Gid) {
        self.offered.retain(|_, offered| {
            if offered.servers.remove(&gid) && offered.servers.is_empty() {
                if let Some(id) = offered.id {
                    hub.remove_service(id);
                }
                return false;
            }
            true
        });
    }

    /// A service by its name: its description, and the number of its transport.
    pub(super) fn find(&self, name: &str) -> Option<(ServiceDescription, usize)> {
        let offered = self.offered.get(name)?;
        Some((offered.description.clone(), offered.transport))
    }

    /// Names of the services that end like this.
    pub(super) fn ending(&self, end: &str) -> Vec<String> {
        let names = self.offered.keys().filter_map(|name| name.strip_suffix(end));
        names.map(str::to_owned).collect()
    }

    /// For the graph: services with their servers.
    pub(super) fn graph(&self) -> BTreeMap<String, BTreeSet<String>> {
        let servers = |offered: &Offered| offered.servers.iter().map(ToString::to_string).collect();
        let services = self.offered.iter();
        services
            .map(|(name, offered)| (name.clone(), servers(offered)))
            .collect()
    }

    /// Begins a viewer's call.
    pub(super) fn call(
        &mut self,
        hub: &Hub,
        calls: &mut Calls,
        transports: &mut [Box<dyn Transport>],
        client: u64,
        call: &protocol::ServiceCall,
        now: Duration,
    ) {
        let begun = if call.encoding == "cdr" {
            let found = self
                .offered
                .values()
                .find(|offered| offered.id == Some(call.service));
            found
                .ok_or_else(|| format!("there is no service {}", call.service))
                .and_then(|offered| {
                    let payload = call.payload.clone();
                    calls.begin(transports, offered.transport, &offered.description, payload, now)
                })
        } else {
            Err(format!("requests must be cdr, not {}", call.encoding))
        };
        let asked = Asked {
            client,
            service: call.service,
            call: call.call,
        };
        match begun {
            Ok(ticket) => drop(self.asked.insert(ticket, asked)),
            Err(reason) => asked.answer(hub, Err(reason)),
        }
    }

    /// Passes an answer to the viewer; returns it if no viewer has asked.
    pub(super) fn answer(&mut self, hub: &Hub, ticket: Ticket, answer: Answer) -> Option<Answer> {
        match self.asked.remove(&ticket) {
            Some(asked) => asked.answer(hub, answer),
            None => return Some(answer),
        }
        None
    }
}

impl Asked {
    fn answer(&self, hub: &Hub, answer: Answer) {
        match answer {
            Ok(payload) => {
                let bytes = protocol::service_response(self.service, self.call, "cdr", &payload);
                hub.send_bytes_to(self.client, &bytes);
            }
            Err(reason) => {
                let failure = protocol::service_failure(self.service, self.call, &reason);
                hub.send_text_to(self.client, &failure.to_string());
            }
        }
    }
}

fn advertisement(
    service: &ServiceDescription,
    request: &MessageDefinition,
    response: &MessageDefinition,
) -> Value {
    let part = |definition: &MessageDefinition| {
        json!({
            "encoding": "cdr",
            "schemaName": definition.type_name,
            "schemaEncoding": definition.encoding.as_str(),
            "schema": definition.text,
        })
    };
    json!({
        "name": service.name,
        "type": service.type_name,
        "request": part(request),
        "response": part(response),
        // Where older viewers look for them.
        "requestSchema": request.text,
        "responseSchema": response.text,
    })
}
