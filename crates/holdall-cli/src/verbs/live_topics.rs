//! Live topics for pages that look at their messages, and where a recording runs.

use crate::{
    args::{TransportName, record::RecordArguments},
    resolve, transport,
};
use clap::ValueEnum;
use holdall::{
    Selection,
    listen::{ListenOptions, Listener},
    supervise::control_socket::RecordingHost,
};
use holdall_io::{
    clock::{Clock, SystemClock},
    machine::host_name,
};
use holdall_model::topic::NodeName;
use holdall_transport::registry;
use holdall_web::dashboard::LiveSource;
use std::{path::Path, sync::Arc};

/// The node that listens for pages.
const NODE: &str = "holdall_web";

/// Listens to topics through transports of its own.
pub struct LiveTopics {
    transports: Vec<TransportName>,
    enclave: Option<String>,
}

impl LiveTopics {
    /// Through these transports; none for the one of the environment.
    pub fn new(transports: &[TransportName], enclave: Option<&str>) -> Self {
        Self {
            transports: transports.to_vec(),
            enclave: enclave.map(str::to_owned),
        }
    }
}

impl LiveTopics {
    /// As a recording hears them.
    pub fn of(args: &RecordArguments) -> Self {
        Self::new(&args.discovery.transport, args.discovery.enclave.as_deref())
    }
}

impl LiveSource for LiveTopics {
    fn listen(&self, topic: &str) -> Result<Listener, String> {
        let node = NodeName::in_root(NODE);
        let selection = Selection {
            topics: vec![topic.to_owned()],
            include_hidden_topics: true,
            ..Selection::default()
        };
        let filter = selection.compile(&node).map_err(|error| error.to_string())?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let (enclave, purpose) = (self.enclave.as_deref(), transport::Purpose::Other);
        let transports = transport::join(&self.transports, &node, enclave, &clock, purpose)
            .map_err(|failure| failure.sentence().to_owned())?;
        let surroundings = resolve::surroundings::real(SystemClock.now());
        let options = ListenOptions {
            filter,
            ament_prefixes: resolve::record::ament_prefixes(&surroundings),
            window: 1,
            keeps_messages: true,
            condition: None,
            clock,
        };
        Ok(Listener::new(options, transports))
    }

    fn domain(&self) -> Option<String> {
        host_of(&self.transports, None).domain
    }
}

/// Where a recording runs.
pub fn host(args: &RecordArguments) -> RecordingHost {
    host_of(&args.discovery.transport, args.files.profile.as_deref())
}

fn host_of(transports: &[TransportName], profile: Option<&Path>) -> RecordingHost {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let named: Vec<String> = transports
        .iter()
        .filter_map(|name| Some(name.to_possible_value()?.get_name().to_owned()))
        .collect();
    let of_environment = || vec![registry::id_by_rmw(variable("RMW_IMPLEMENTATION").as_deref()).to_owned()];
    RecordingHost {
        name: host_name(),
        domain: Some(variable("ROS_DOMAIN_ID").unwrap_or_else(|| "0".to_owned())),
        transports: if named.is_empty() { of_environment() } else { named },
        profile: profile.map(|path| path.display().to_string()),
    }
}
