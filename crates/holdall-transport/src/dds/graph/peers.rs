//! Static peers that are given by name: a thread resolves them, as often as it takes, and announces our participant to their addresses.
//!
//! Cyclone resolves names itself, once, and ends the process with `abort` when one has no address: a robust recorder starts before the
//! network does.

use crate::dds::{ffi::entity::Domain, settings::config::NamedPeer, wire::locators::announcement_ports};
use holdall_io::mutex::lock;
use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, SocketAddr, SocketAddrV4, ToSocketAddrs},
    sync::{Arc, Condvar, Mutex, PoisonError, Weak},
    time::Duration,
};

/// Time between two announcements to named peers.
const ANNOUNCE_EVERY: Duration = Duration::from_secs(5);

/// Announcements that follow each other quickly at the start, where a packet may be lost.
const QUICK: [Duration; 4] = [
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(1),
];

/// Set once the thread is to end.
#[derive(Default)]
struct Stop {
    is_set: Mutex<bool>,
    changed: Condvar,
}

/// Announces to named peers as long as this lives.
pub(in crate::dds) struct NamedPeers(Arc<Stop>);

impl NamedPeers {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(in crate::dds) fn start(
        names: Vec<NamedPeer>,
        ports: (u32, u32),
        domain: &Arc<Domain>,
    ) -> std::io::Result<Self> {
        let stop = Arc::new(Stop::default());
        let mut peers = Peers {
            names,
            ports,
            domain: Arc::downgrade(domain),
            unresolved: BTreeSet::new(),
        };
        let stopped = Arc::clone(&stop);
        // It may wait for a name server for seconds, so nothing waits for its end.
        std::thread::Builder::new()
            .name("dds-peers".to_owned())
            .spawn(move || peers.run(&stopped))?;
        Ok(Self(stop))
    }
}

impl Drop for NamedPeers {
    fn drop(&mut self) {
        *lock(&self.0.is_set) = true;
        self.0.changed.notify_all();
    }
}

impl Stop {
    /// Waits for this time; false when the thread must end.
    fn wait(&self, at_most: Duration) -> bool {
        let is_set = lock(&self.is_set);
        let waited = self
            .changed
            .wait_timeout_while(is_set, at_most, |is_set| !*is_set);
        let (is_set, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !*is_set
    }
}

struct Peers {
    names: Vec<NamedPeer>,
    /// Domain and highest participant index.
    ports: (u32, u32),
    domain: Weak<Domain>,
    /// Names without an address, so that each is reported once.
    unresolved: BTreeSet<String>,
}

impl Peers {
    fn run(&mut self, stop: &Stop) {
        let mut quick = QUICK.into_iter();
        while stop.wait(quick.next().unwrap_or(ANNOUNCE_EVERY)) {
            for index in 0..self.names.len() {
                let addresses = self.resolve(index);
                let Some(domain) = self.domain.upgrade() else {
                    return;
                };
                if let Some(announcing) = domain.announcing() {
                    announcing.announce_to(&addresses);
                }
            }
        }
    }

    /// Where the peer listens; nothing when its name has no address.
    fn resolve(&mut self, index: usize) -> Vec<SocketAddrV4> {
        let NamedPeer { host, port } = &self.names[index];
        match ipv4_addresses(host) {
            Ok(addresses) => {
                if self.unresolved.remove(host) {
                    tracing::info!("ROS_STATIC_PEERS: {host} has an address now");
                }
                let (domain, index_max) = self.ports;
                let sockets = addresses.into_iter().flat_map(|address| match port {
                    Some(port) => vec![SocketAddrV4::new(address, *port)],
                    None => announcement_ports(address, domain, index_max),
                });
                sockets.collect()
            }
            Err(reason) => {
                if self.unresolved.insert(host.clone()) {
                    tracing::warn!(
                        "ROS_STATIC_PEERS: {host} has no address ({reason}); retrying every {} s, \
                         everything else is recorded",
                        ANNOUNCE_EVERY.as_secs()
                    );
                }
                Vec::new()
            }
        }
    }
}

fn ipv4_addresses(host: &str) -> Result<BTreeSet<Ipv4Addr>, String> {
    let resolved = (host, 0).to_socket_addrs().map_err(|error| error.to_string())?;
    let addresses: BTreeSet<Ipv4Addr> = resolved
        .filter_map(|address| match address {
            SocketAddr::V4(address) => Some(*address.ip()),
            SocketAddr::V6(_) => None,
        })
        .collect();
    if addresses.is_empty() {
        return Err("it has none of IPv4".to_owned());
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_resolved_or_refused_with_a_reason() {
        assert_eq!(
            ipv4_addresses("127.0.0.1"),
            Ok(BTreeSet::from([Ipv4Addr::LOCALHOST]))
        );
        assert!(ipv4_addresses("no-such-host.invalid").is_err());
    }
}
