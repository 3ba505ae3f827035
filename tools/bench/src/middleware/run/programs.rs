//! The programs of both sides: whether they exist, how each is called, and its settings.

use crate::{
    error::{BenchError, BenchResult},
    machine::socket_buffers,
    middleware::{
        name::{MiddlewareKind, MiddlewareSide, Settings},
        rmw::RosPrefix,
        worker::{Role, Shape},
    },
    suite::live::installed::Ros1,
};
use holdall_io::{fs::write_atomically_unsynced, link::ADDRESSES};
use holdall_model::units::format_bytes;
use holdall_transport::registry::transports;
use serde::{Deserialize, Serialize};
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::Command,
};

/// Port of every middleware that needs one; each run has a separate network.
const PORT: u16 = 7447;

/// Fast DDS with datagrams that fit an Ethernet packet and larger socket buffers.
const FASTDDS_TUNED: &str = "<?xml version=\"1.0\"?>
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
const FASTDDS_TUNED_FILE: &str = "fastdds-tuned.xml";
/// Cyclone DDS with datagrams that fit an Ethernet packet.
const CYCLONE_TUNED: &str = "<CycloneDDS><Domain><General><MaxMessageSize>1400B</MaxMessageSize>\
     <FragmentSize>1300B</FragmentSize></General></Domain></CycloneDDS>";
/// Fast DDS with its own transports, shared memory and UDP, and socket buffers of one size. It ignores the participant's sizes for transports of its
/// own choice.
fn fastdds_with_buffers(bytes: u32) -> String {
    format!(
        "<?xml version=\"1.0\"?>
<dds xmlns=\"http://www.eprosima.com\"><profiles>
  <transport_descriptors>
    <transport_descriptor><transport_id>shm</transport_id><type>SHM</type></transport_descriptor>
    <transport_descriptor><transport_id>udp</transport_id><type>UDPv4</type>
      <sendBufferSize>{bytes}</sendBufferSize><receiveBufferSize>{bytes}</receiveBufferSize></transport_descriptor>
  </transport_descriptors>
  <participant profile_name=\"buffers\" is_default_profile=\"true\"><rtps>
    <userTransports><transport_id>shm</transport_id><transport_id>udp</transport_id></userTransports>
    <useBuiltinTransports>false</useBuiltinTransports>
  </rtps></participant>
</profiles></dds>
"
    )
}

/// The same of Cyclone DDS.
fn cyclone_with_buffers(bytes: u32) -> String {
    let size = format!("min=\"{bytes}B\" max=\"{bytes}B\"");
    format!(
        "<CycloneDDS><Domain><Internal><SocketReceiveBufferSize {size}/><SocketSendBufferSize {size}/></Internal></Domain></CycloneDDS>"
    )
}
const TCPROS_WORKER: &str = include_str!("../../../helpers/tcpros_worker.py");
const TCPROS_WORKER_FILE: &str = "tcpros_worker.py";

/// The task of one worker, which may run on another machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct WorkerSpec {
    /// The middleware and its settings.
    pub side: MiddlewareSide,
    /// Which side it is.
    pub role: Role,
    /// The topic's name.
    pub topic: String,
    /// The kind of messages.
    pub shape: Shape,
    /// Content of a message in bytes.
    pub bytes: usize,
    /// Messages a second.
    pub rate_hz: f64,
    /// Messages that are planned.
    pub count: u64,
    /// `KEEP_LAST` of this depth.
    pub depth: u64,
    /// Reliable, else best effort.
    pub is_reliable: bool,
    /// How many of the other side it waits for, and then sends nothing.
    pub others: Option<usize>,
    /// The address of the end that the worker runs on.
    pub own: IpAddr,
    /// Address where both sides meet, if they do not discover each other.
    pub meet: SocketAddr,
    /// This worker is the one that the others meet.
    pub is_met: bool,
    /// It must not communicate beyond this host.
    pub is_local: bool,
    /// Domain that separates it from other programs of this host.
    pub domain: Option<u32>,
}

/// The installed software of this machine for workers.
pub(super) struct Site {
    prefix: Option<RosPrefix>,
    ros1: Result<Ros1, String>,
    bench: PathBuf,
    /// The folder for settings.
    folder: PathBuf,
}

impl Site {
    /// Finds the installed software, and stores the settings in `folder`.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub(super) fn find(bench: &Path, python: Option<&Path>, folder: &Path) -> BenchResult<Self> {
        write_atomically_unsynced(&folder.join(FASTDDS_TUNED_FILE), FASTDDS_TUNED.as_bytes())?;
        write_atomically_unsynced(&folder.join(TCPROS_WORKER_FILE), TCPROS_WORKER.as_bytes())?;
        Ok(Self {
            prefix: RosPrefix::find(python),
            ros1: Ros1::find(),
            bench: bench.to_owned(),
            folder: folder.to_owned(),
        })
    }

    /// Why one side cannot be run here.
    pub(super) fn absence(&self, side: &MiddlewareSide) -> Option<String> {
        match &side.kind {
            MiddlewareKind::Rmw { library, .. } => match &self.prefix {
                None => Some(
                    "no ROS 2 with headers was found: none sourced, no Python with rclpy, none below /opt/ros".to_owned(),
                ),
                Some(prefix) => prefix.missing(library),
            },
            MiddlewareKind::Transport(id) => {
                let is_built = transports().iter().any(|entry| entry.id == *id && entry.is_built());
                (!is_built).then(|| format!("this build has no transport {id}"))
            }
            MiddlewareKind::Tcpros => self.ros1.as_ref().err().cloned(),
            MiddlewareKind::Udp | MiddlewareKind::Tcp | MiddlewareKind::Memory => None,
        }
    }

    /// The special settings of each side here, once.
    pub(super) fn settings_of<'s>(
        &self,
        sides: impl IntoIterator<Item = &'s MiddlewareSide>,
    ) -> Vec<(String, String)> {
        let mut all: Vec<(String, String)> = Vec::new();
        for side in sides {
            if all.iter().all(|(name, _)| *name != side.name) {
                all.push((side.name.clone(), self.settings(side)));
            }
        }
        all
    }

    /// The special settings of a side here, for people.
    fn settings(&self, side: &MiddlewareSide) -> String {
        let tuned = |text: &str| match side.settings {
            Settings::Tuned => format!("; {text}"),
            Settings::Buffers(bytes) => {
                format!("; socket buffers of {} asked for", format_bytes(u64::from(bytes)))
            }
            Settings::Typed => "; its defaults; structures that its type support serializes".to_owned(),
            Settings::Default | Settings::Drop => "; its defaults".to_owned(),
        };
        match &side.kind {
            MiddlewareKind::Rmw {
                library,
                publication_mode,
            } => {
                let title = match &self.prefix {
                    Some(prefix) => prefix.title(library),
                    None => library.clone(),
                };
                let mode = publication_mode.map_or(String::new(), |mode| {
                    format!(", RMW_FASTRTPS_PUBLICATION_MODE={mode}")
                });
                format!(
                    "{title}{mode}{}",
                    tuned("datagrams of 1400 bytes, socket buffers of 4 MiB")
                )
            }
            MiddlewareKind::Transport("dds") if matches!(side.settings, Settings::Buffers(_)) => {
                format!("Cyclone DDS of this program{}", tuned(""))
            }
            MiddlewareKind::Transport("dds") => format!(
                "Cyclone DDS of this program, whose readers ask for socket buffers of 32 MiB and get buffers {}{}",
                socket_buffers(),
                tuned("datagrams of 1400 bytes")
            ),
            MiddlewareKind::Transport(id) => match side.settings {
                Settings::Drop => format!("{id} of this program; a full network drops messages"),
                _ => format!("{id} of this program; reliable topics block when the network is full"),
            },
            MiddlewareKind::Udp => {
                "datagrams of 1472 bytes without repair; a message counts when all have arrived".to_owned()
            }
            MiddlewareKind::Tcp => "one stream without Nagle's algorithm".to_owned(),
            MiddlewareKind::Tcpros => format!(
                "rospy of ROS 1, a publisher with a queue{}",
                tuned("without Nagle's algorithm, a receive buffer of two messages")
            ),
            MiddlewareKind::Memory => "a copy in memory: what the measurement itself costs".to_owned(),
        }
    }

    /// The command of one worker, which stores its records in `records`.
    ///
    /// # Errors
    /// A worker that cannot be started here.
    pub(super) fn command(&self, spec: &WorkerSpec, records: &Path) -> BenchResult<Command> {
        let mut command = self.program(spec)?;
        // Over TCP only messages that the publisher does not wait for are lost.
        let is_reliable = spec.is_reliable && spec.side.settings != Settings::Drop;
        let reliability = if is_reliable { "reliable" } else { "best-effort" };
        command
            .args(["--role", spec.role.name(), "--topic", &spec.topic])
            .args([
                "--bytes",
                &spec.bytes.to_string(),
                "--rate",
                &spec.rate_hz.to_string(),
            ])
            .args([
                "--count",
                &spec.count.to_string(),
                "--depth",
                &spec.depth.to_string(),
            ])
            .args(["--reliability", reliability])
            .arg("--records")
            .arg(records);
        if spec.shape != Shape::Bytes {
            command.args(["--message", spec.shape.name()]);
        }
        if let Some(others) = spec.others {
            command.args(["--nodes", &others.to_string()]);
        }
        let range = if spec.is_local { "LOCALHOST" } else { "SUBNET" };
        command.env("ROS_AUTOMATIC_DISCOVERY_RANGE", range);
        if let Some(domain) = spec.domain {
            command.env("ROS_DOMAIN_ID", domain.to_string());
        }
        let meet = format!("[\"tcp/{}\"]", spec.meet);
        command.env("ZENOH_ROUTER_CHECK_ATTEMPTS", "-1").env(
            "ZENOH_CONFIG_OVERRIDE",
            if spec.is_met {
                // Nodes learn of each other from a router only, and this one is it.
                let mode = if spec.others.is_some() {
                    "mode=\"router\";"
                } else {
                    ""
                };
                format!("{mode}listen/endpoints={meet};connect/endpoints=[]")
            } else if spec.others.is_some() {
                format!(
                    "listen/endpoints=[\"tcp/{}:0\"];connect/endpoints={meet}",
                    spec.own
                )
            } else {
                format!("listen/endpoints=[];connect/endpoints={meet}")
            },
        );
        Ok(command)
    }

    /// The program of a side with its settings.
    fn program(&self, spec: &WorkerSpec) -> BenchResult<Command> {
        let side = &spec.side;
        match (&side.kind, &self.prefix, &self.ros1) {
            (
                MiddlewareKind::Rmw {
                    library,
                    publication_mode,
                },
                Some(prefix),
                _,
            ) => {
                let mut command = self.own_command(spec);
                prefix.prepare(&mut command, library);
                if let Some(mode) = publication_mode {
                    command.env("RMW_FASTRTPS_PUBLICATION_MODE", mode);
                }
                match side.settings {
                    Settings::Tuned => {
                        let profiles = self.folder.join(FASTDDS_TUNED_FILE);
                        command.env("FASTRTPS_DEFAULT_PROFILES_FILE", profiles);
                    }
                    Settings::Buffers(bytes) if publication_mode.is_some() => {
                        let profiles = self.folder.join(format!("fastdds-{bytes}.xml"));
                        write_atomically_unsynced(&profiles, fastdds_with_buffers(bytes).as_bytes())?;
                        command.env("FASTRTPS_DEFAULT_PROFILES_FILE", profiles);
                    }
                    Settings::Buffers(bytes) => {
                        command.env("CYCLONEDDS_URI", cyclone_with_buffers(bytes));
                    }
                    Settings::Typed => {
                        command.env("HOLDALL_RMW_STRUCTURES", "1");
                    }
                    Settings::Default | Settings::Drop => {}
                }
                Ok(command)
            }
            (MiddlewareKind::Tcpros, _, Ok(ros1)) => {
                let mut command = ros1.python();
                command
                    .arg(self.folder.join(TCPROS_WORKER_FILE))
                    .env("ROS_MASTER_URI", format!("http://{}", spec.meet))
                    .env("ROS_IP", spec.own.to_string());
                if spec.is_met {
                    command.args(["--master", &spec.meet.port().to_string()]);
                }
                if side.settings == Settings::Tuned {
                    command.args(["--tuned", "1"]);
                }
                Ok(command)
            }
            (MiddlewareKind::Rmw { .. } | MiddlewareKind::Tcpros, ..) => {
                let reason = self.absence(side).unwrap_or_default();
                Err(BenchError::program(&side.name, reason))
            }
            _ => Ok(self.own_command(spec)),
        }
    }

    fn own_command(&self, spec: &WorkerSpec) -> Command {
        let mut command = Command::new(&self.bench);
        command.arg("worker");
        match &spec.side.kind {
            MiddlewareKind::Transport(id) => {
                command.args(["--transport", id]);
                match spec.side.settings {
                    Settings::Tuned => {
                        command.env("CYCLONEDDS_URI", CYCLONE_TUNED);
                    }
                    Settings::Buffers(bytes) => {
                        command.env("CYCLONEDDS_URI", cyclone_with_buffers(bytes));
                    }
                    Settings::Default | Settings::Drop | Settings::Typed => {}
                }
            }
            MiddlewareKind::Udp => {
                command.args(["--udp", &spec.meet.to_string()]);
            }
            MiddlewareKind::Tcp => {
                command.args(["--tcp", &spec.meet.to_string()]);
            }
            // Without anything between, or named by the caller.
            MiddlewareKind::Memory | MiddlewareKind::Rmw { .. } | MiddlewareKind::Tcpros => {}
        }
        command
    }
}

/// The address where both sides of a middleware without discovery meet: on the subscriber's end of a link, a port for each pair of programs, or a
/// free port of this host. Another program may take that before its owner does; the owner then reports it.
pub(super) fn meeting_place(is_linked: bool, pair: u16) -> BenchResult<SocketAddr> {
    if is_linked {
        return Ok(SocketAddr::from((ADDRESSES[1], PORT + pair)));
    }
    free_place(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

/// A free port at an address of this host.
pub(super) fn free_place(own: IpAddr) -> BenchResult<SocketAddr> {
    TcpListener::bind((own, 0))
        .and_then(|listener| listener.local_addr())
        .map_err(BenchError::io("listen on", own.to_string()))
}
