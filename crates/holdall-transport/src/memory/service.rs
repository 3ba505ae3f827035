//! Services of a memory network: requests and replies are with the other side when the call that sends them returns.

use super::network::{MemoryNetwork, State, TransportId};
use crate::{
    GraphEvent, LayoutReplies, RequestId, SERVICE_WAITING_MAX, ServerInfo, ServiceClient, ServiceDescription,
    ServiceReply, ServiceRequest, ServiceServer, ServiceWake, TransportError,
    service::{Wrapping, check_payload, service_error},
};
use holdall_model::topic::Gid;

/// A service of the network, and the requests that wait for it.
pub(super) struct Offered {
    service: ServiceDescription,
    pub(super) info: ServerInfo,
    owner: TransportId,
    waiting: Vec<ServiceRequest>,
    dropped: u64,
    wake: ServiceWake,
}

/// A client of the network, and the replies that wait for it.
pub(super) struct Calling {
    /// Hash of the service's type, as the client knows it.
    type_hash: Option<String>,
    waiting: Vec<ServiceReply>,
    wake: ServiceWake,
}

impl State {
    fn server_of(&mut self, service: &ServiceDescription) -> Option<&mut Offered> {
        let is_match = |offered: &&mut Offered| {
            offered.service.name == service.name && offered.service.type_name == service.type_name
        };
        self.servers.values_mut().find(is_match)
    }
}

/// A service of one participant.
pub(super) struct MemoryServer {
    network: MemoryNetwork,
    gid: Gid,
    name: String,
}

impl MemoryServer {
    pub fn new(
        network: &MemoryNetwork,
        owner: TransportId,
        service: &ServiceDescription,
        wake: ServiceWake,
    ) -> Self {
        let mut state = network.state();
        let gid = state.new_gid();
        let info = ServerInfo {
            gid,
            service: service.name.clone(),
            type_name: service.type_name.clone(),
        };
        state.notify(Some(owner), &GraphEvent::Server(info.clone()));
        let offered = Offered {
            service: service.clone(),
            info,
            owner,
            waiting: Vec::new(),
            dropped: 0,
            wake,
        };
        state.servers.insert(gid, offered);
        Self {
            network: network.clone(),
            gid,
            name: service.name.clone(),
        }
    }
}

impl ServiceServer for MemoryServer {
    fn poll(&mut self, requests: &mut Vec<ServiceRequest>) {
        if let Some(offered) = self.network.state().servers.get_mut(&self.gid) {
            requests.append(&mut offered.waiting);
        }
    }

    fn reply(&mut self, id: &RequestId, replies: &LayoutReplies) -> Result<(), TransportError> {
        check_payload(&self.name, &replies.default)?;
        let mut state = self.network.state();
        // A client that is gone needs no reply.
        let Some(calling) = state.clients.get_mut(&id.client) else {
            return Ok(());
        };
        if calling.waiting.len() < SERVICE_WAITING_MAX {
            calling.waiting.push(ServiceReply {
                number: id.number,
                payload: Ok(replies.for_client(calling.type_hash.as_deref()).to_vec()),
            });
        }
        let wake = ServiceWake::clone(&calling.wake);
        drop(state);
        wake();
        Ok(())
    }

    fn take_dropped(&mut self) -> u64 {
        let mut state = self.network.state();
        let offered = state.servers.get_mut(&self.gid);
        offered.map_or(0, |offered| std::mem::take(&mut offered.dropped))
    }
}

impl Drop for MemoryServer {
    fn drop(&mut self) {
        let mut state = self.network.state();
        if let Some(offered) = state.servers.remove(&self.gid) {
            state.notify(Some(offered.owner), &GraphEvent::ServerGone(self.gid));
        }
    }
}

/// A client of one participant.
pub(super) struct MemoryClient {
    network: MemoryNetwork,
    gid: Gid,
    service: ServiceDescription,
    sent: u64,
}

impl MemoryClient {
    pub fn new(network: &MemoryNetwork, service: &ServiceDescription, wake: ServiceWake) -> Self {
        let mut state = network.state();
        let gid = state.new_gid();
        let calling = Calling {
            type_hash: service.type_hash.clone(),
            waiting: Vec::new(),
            wake,
        };
        state.clients.insert(gid, calling);
        Self {
            network: network.clone(),
            gid,
            service: service.clone(),
            sent: 0,
        }
    }
}

impl ServiceClient for MemoryClient {
    fn is_ready(&mut self) -> bool {
        self.network.state().server_of(&self.service).is_some()
    }

    fn send(&mut self, payload: &[u8]) -> Result<u64, TransportError> {
        check_payload(&self.service.name, payload)?;
        let mut state = self.network.state();
        let Some(offered) = state.server_of(&self.service) else {
            return Err(service_error(&self.service.name, "it has no server"));
        };
        self.sent += 1;
        if offered.waiting.len() < SERVICE_WAITING_MAX {
            offered.waiting.push(ServiceRequest {
                id: RequestId {
                    client: self.gid,
                    number: self.sent,
                    wrapping: Wrapping::Bare,
                },
                payload: payload.to_vec(),
            });
        } else {
            offered.dropped += 1;
        }
        let wake = ServiceWake::clone(&offered.wake);
        drop(state);
        wake();
        Ok(self.sent)
    }

    fn poll(&mut self, replies: &mut Vec<ServiceReply>) {
        if let Some(calling) = self.network.state().clients.get_mut(&self.gid) {
            replies.append(&mut calling.waiting);
        }
    }
}

impl Drop for MemoryClient {
    fn drop(&mut self) {
        self.network.state().clients.remove(&self.gid);
    }
}
