//! Shared parts of the zenoh tests: sessions that meet on a port of this machine and nowhere else.
#![allow(dead_code, reason = "each test uses a part of it")]

use holdall_io::clock::SystemClock;
use holdall_model::topic::NodeName;
use holdall_transport::zenoh::{ZenohEnvironment, ZenohOptions, ZenohTransport};
use std::{net::TcpListener, sync::Arc};

/// The domain of all these tests: each has a separate network.
pub const DOMAIN: u32 = 71;

/// A place on this machine where sessions meet.
pub struct Meeting {
    pub endpoint: String,
}

impl Meeting {
    /// A port that is not in use.
    pub fn new() -> Self {
        let probe = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = probe.local_addr().unwrap().port();
        Self {
            endpoint: format!("tcp/127.0.0.1:{port}"),
        }
    }

    /// A session that waits for the others.
    pub fn host(&self, node: &str, mode: &str) -> ZenohTransport {
        transport(node, mode, &self.endpoint, "", "")
    }

    /// A session that connects to this place.
    pub fn guest(&self, node: &str, mode: &str) -> ZenohTransport {
        self.guest_with(node, mode, "")
    }

    /// A session that connects to this place, with further settings.
    pub fn guest_with(&self, node: &str, mode: &str, settings: &str) -> ZenohTransport {
        // Peers that a router has introduced to each other communicate directly.
        let listen = if mode == "peer" { "tcp/127.0.0.1:0" } else { "" };
        transport(node, mode, listen, &self.endpoint, settings)
    }
}

fn transport(node: &str, mode: &str, listen: &str, connect: &str, settings: &str) -> ZenohTransport {
    let list = |endpoint: &str| match endpoint {
        "" => "[]".to_owned(),
        endpoint => format!("[\"{endpoint}\"]"),
    };
    let environment = ZenohEnvironment {
        config_override: Some(format!(
            "mode=\"{mode}\";listen/endpoints={};connect/endpoints={};scouting/multicast/enabled=false;\
             connect/retry={{period_init_ms:20,period_max_ms:50,period_increase_factor:1}};{settings}",
            list(listen),
            list(connect)
        )),
        ..ZenohEnvironment::default()
    };
    let options = ZenohOptions {
        domain_id: DOMAIN,
        node: NodeName {
            namespace: "/".to_owned(),
            name: node.to_owned(),
        },
        environment,
    };
    ZenohTransport::new(&options, Arc::new(SystemClock)).unwrap()
}
