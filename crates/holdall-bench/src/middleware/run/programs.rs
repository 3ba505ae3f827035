//! The programs of both sides: whether they exist, how each is called, and its settings.

use super::{Bench, Run};
use crate::{
    error::{BenchError, BenchResult},
    middleware::{
        Middleware,
        config::{MiddlewareKind, MiddlewareSide},
    },
};
use holdall_io::link::ADDRESSES;
use holdall_transport::registry::transports;
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
    process::Command,
};

/// Port of every middleware that needs one; each run has a network of its own.
const PORT: u16 = 7447;

/// Fast DDS with datagrams that fit an Ethernet packet and larger socket buffers.
pub(super) const FASTDDS_TUNED: &str = "<?xml version=\"1.0\"?>
<dds xmlns=\"http://www.eprosima.com\"><profiles>
  <transport_descriptors><transport_descriptor>
    <transport_id>udp</transport_id><type>UDPv4</type>
    <maxMessageSize>1400</maxMessageSize><sendBufferSize>4194304</sendBufferSize><receiveBufferSize>4194304</receiveBufferSize>
  </transport_descriptor></transport_descriptors>
  <participant profile_name=\"tuned\" is_default_profile=\"true\"><rtps>
    <userTransports><transport_id>udp</transport_id></userTransports><useBuiltinTransports>false</useBuiltinTransports>
  </rtps></participant>
</profiles></dds>
";
/// The file for it, in the folder of results.
pub(super) const FASTDDS_TUNED_FILE: &str = "fastdds-tuned.xml";
/// Cyclone DDS with datagrams that fit an Ethernet packet.
const CYCLONE_TUNED: &str = "<CycloneDDS><Domain><General><MaxMessageSize>1400B</MaxMessageSize>\
     <FragmentSize>1300B</FragmentSize></General></Domain></CycloneDDS>";

impl Bench<'_> {
    /// Why one side cannot be run here.
    pub(super) fn absence(&self, side: &MiddlewareSide) -> Option<String> {
        match &side.kind {
            MiddlewareKind::Rmw { library, .. } => match &self.prefix {
                None => Some(
                    "no ROS 2 with headers was found: none sourced, no Python with rclpy, none below /opt/ros".to_owned(),
                ),
                Some(prefix) if !prefix.has(library) => {
                    Some(format!("{} has no lib{library}.so", prefix.path().display()))
                }
                Some(prefix) => prefix.worker(library, &self.folder).err().map(|error| error.to_string()),
            },
            MiddlewareKind::Transport(id) => {
                let is_built = transports().iter().any(|entry| entry.id == *id && entry.is_built());
                (!is_built).then(|| format!("this build has no transport {id}"))
            }
            _ => None,
        }
    }
    /// What is special about each side, once.
    pub(super) fn all_settings(&self, middlewares: &[&Middleware]) -> Vec<(String, String)> {
        let mut all: Vec<(String, String)> = Vec::new();
        for side in middlewares.iter().flat_map(|one| &one.sides) {
            if all.iter().all(|(name, _)| *name != side.name) {
                all.push((side.name.clone(), self.settings(side)));
            }
        }
        all
    }

    /// What is special about a side here, for people.
    fn settings(&self, middleware: &MiddlewareSide) -> String {
        let tuned = |text: &str| {
            if middleware.is_tuned {
                format!("; {text}")
            } else {
                "; its defaults".to_owned()
            }
        };
        match &middleware.kind {
            MiddlewareKind::Rmw {
                library,
                publication_mode,
            } => {
                let prefix = self
                    .prefix
                    .as_ref()
                    .map_or(String::new(), |prefix| prefix.path().display().to_string());
                let mode = publication_mode.map_or(String::new(), |mode| {
                    format!(", RMW_FASTRTPS_PUBLICATION_MODE={mode}")
                });
                format!(
                    "{library} of {prefix}{mode}{}",
                    tuned("datagrams of 1400 bytes, socket buffers of 4 MiB")
                )
            }
            MiddlewareKind::Transport("dds") => format!(
                "Cyclone DDS of this program, whose readers ask for socket buffers of 32 MiB{}",
                tuned("datagrams of 1400 bytes")
            ),
            MiddlewareKind::Transport(id) => {
                format!("{id} of this program; reliable topics block when the network is full")
            }
            MiddlewareKind::Udp => {
                "datagrams of 1472 bytes without repair; a message counts when all have arrived".to_owned()
            }
            MiddlewareKind::Tcp => "one stream without Nagle's algorithm".to_owned(),
            MiddlewareKind::Memory => "a copy in memory: what the measurement itself costs".to_owned(),
        }
    }
    /// The command of one side.
    pub(super) fn command(
        &self,
        run: &Run<'_>,
        count: u64,
        side: usize,
        address: SocketAddr,
        is_linked: bool,
    ) -> BenchResult<Command> {
        let middleware = &run.middleware.sides[side];
        let mut command = self.program(middleware, address)?;
        let role = match side {
            _ if run.case.is_idle => "idle",
            _ if run.middleware.is_memory() => "both",
            0 => "publisher",
            _ => "subscriber",
        };
        command.args(["--role", role]);
        command.args([
            "--bytes",
            &run.case.bytes.to_string(),
            "--rate",
            &run.case.rate_hz.to_string(),
        ]);
        command.args([
            "--count",
            &count.to_string(),
            "--depth",
            &run.case.depth.to_string(),
        ]);
        command.args([
            "--reliability",
            if run.case.is_reliable {
                "reliable"
            } else {
                "best-effort"
            },
        ]);
        command.arg("--records").arg(&Self::records(run)[side]);
        let range = if is_linked { "SUBNET" } else { "LOCALHOST" };
        command.env("ROS_AUTOMATIC_DISCOVERY_RANGE", range);
        if !is_linked {
            // Apart from other programs of this host.
            command.env("ROS_DOMAIN_ID", (1 + std::process::id() % 100).to_string());
        }
        let meet = format!("[\"tcp/{address}\"]");
        command.env("ZENOH_ROUTER_CHECK_ATTEMPTS", "-1").env(
            "ZENOH_CONFIG_OVERRIDE",
            if side == 1 {
                format!("listen/endpoints={meet};connect/endpoints=[]")
            } else {
                format!("listen/endpoints=[];connect/endpoints={meet}")
            },
        );
        Ok(command)
    }

    /// The program of a side with its settings.
    fn program(&self, middleware: &MiddlewareSide, address: SocketAddr) -> BenchResult<Command> {
        match (&middleware.kind, &self.prefix) {
            (
                MiddlewareKind::Rmw {
                    library,
                    publication_mode,
                },
                Some(prefix),
            ) => {
                let mut command = Command::new(prefix.worker(library, &self.folder)?);
                prefix.prepare(&mut command);
                command.env("RMW_IMPLEMENTATION", library);
                if let Some(mode) = publication_mode {
                    command.env("RMW_FASTRTPS_PUBLICATION_MODE", mode);
                }
                if middleware.is_tuned {
                    command.env(
                        "FASTRTPS_DEFAULT_PROFILES_FILE",
                        self.folder.join(FASTDDS_TUNED_FILE),
                    );
                }
                Ok(command)
            }
            _ => Ok(self.own_command(middleware, address)),
        }
    }

    fn own_command(&self, middleware: &MiddlewareSide, address: SocketAddr) -> Command {
        let mut command = Command::new(&self.options.holdall);
        command.args(["bench", "worker"]);
        match &middleware.kind {
            MiddlewareKind::Transport(id) => {
                command.args(["--transport", id]);
                if middleware.is_tuned {
                    command.env("CYCLONEDDS_URI", CYCLONE_TUNED);
                }
            }
            MiddlewareKind::Udp => {
                command.args(["--udp", &address.to_string()]);
            }
            MiddlewareKind::Tcp => {
                command.args(["--tcp", &address.to_string()]);
            }
            // Without anything between.
            MiddlewareKind::Memory | MiddlewareKind::Rmw { .. } => {}
        }
        command
    }
}
/// Where both sides of a middleware without discovery meet: on the subscriber's end of a link, or at a free port of this host. Another
/// program may take that before its owner does; the owner then reports it.
pub(super) fn meeting_place(is_linked: bool) -> BenchResult<SocketAddr> {
    if is_linked {
        return Ok(SocketAddr::from((ADDRESSES[1], PORT)));
    }
    TcpListener::bind((IpAddr::V4(Ipv4Addr::LOCALHOST), 0))
        .and_then(|listener| listener.local_addr())
        .map_err(BenchError::io("listen on", "127.0.0.1"))
}
