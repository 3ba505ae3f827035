//! Names of middlewares, as experiment files and `--middleware` write them.

use super::worker::Shape;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// How a middleware's publisher and subscriber are run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MiddlewareKind {
    /// A library below rmw, with the mode of Fast DDS where it has one.
    Rmw {
        library: String,
        publication_mode: Option<&'static str>,
    },
    /// A transport of this program.
    Transport(&'static str),
    /// Datagrams without repair.
    Udp,
    /// A stream.
    Tcp,
    /// A stream with ROS 1's header, between two nodes of `rospy`.
    Tcpros,
    /// A copy in memory.
    Memory,
}

impl MiddlewareKind {
    /// Fast DDS in one of its modes.
    fn is_fastdds(&self) -> bool {
        matches!(
            self,
            Self::Rmw {
                publication_mode: Some(_),
                ..
            }
        )
    }

    /// Cyclone DDS, of this program or below rmw.
    fn is_cyclone(&self) -> bool {
        match self {
            Self::Rmw { library, .. } => library == "rmw_cyclonedds_cpp",
            kind => *kind == Self::Transport("dds"),
        }
    }
}

/// The special settings of a side; the suffix of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settings {
    /// The middleware's default settings.
    Default,
    /// One to three documented settings changed.
    Tuned,
    /// Socket buffers of this many bytes asked for, for sending and receiving.
    Buffers(u32),
    /// A full network drops messages instead of making the publisher wait.
    Drop,
    /// Messages are structures that the type support serializes, instead of serialized bytes.
    Typed,
}

impl Settings {
    /// Every setting with its suffix, but for the default without one.
    const SUFFIXES: [(&'static str, Self); 5] = [
        ("-tuned", Self::Tuned),
        ("-208k", Self::Buffers(208 << 10)),
        ("-4m", Self::Buffers(4 << 20)),
        ("-drop", Self::Drop),
        ("-typed", Self::Typed),
    ];

    /// The name without its suffix, and the suffix's meaning.
    fn split(name: &str) -> (&str, Self) {
        let found = Self::SUFFIXES
            .iter()
            .find_map(|(suffix, settings)| Some((name.strip_suffix(suffix)?, *settings)));
        found.unwrap_or((name, Self::Default))
    }

    /// Whether a kind of middleware has them.
    fn are_valid_for(self, kind: &MiddlewareKind) -> bool {
        match self {
            Self::Default => true,
            Self::Tuned => {
                kind.is_fastdds() || matches!(kind, MiddlewareKind::Transport("dds") | MiddlewareKind::Tcpros)
            }
            Self::Buffers(_) => kind.is_fastdds() || kind.is_cyclone(),
            Self::Drop => *kind == MiddlewareKind::Transport("zenoh"),
            Self::Typed => matches!(kind, MiddlewareKind::Rmw { .. }),
        }
    }

    /// Their name in an error.
    fn noun(self) -> &'static str {
        match self {
            Self::Default | Self::Tuned => "tuned settings",
            Self::Buffers(_) => "setting for socket buffers",
            Self::Drop => "choice between waiting and dropping",
            Self::Typed => "type support that serializes",
        }
    }
}

/// One side of a run: its middleware and settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct MiddlewareSide {
    pub(crate) name: String,
    pub(crate) kind: MiddlewareKind,
    pub(crate) settings: Settings,
}

/// A middleware in one of its forms, or two that meet on one wire: `cyclone>fastdds-sync`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Middleware {
    name: String,
    /// The publisher's side and the subscriber's.
    pub(crate) sides: [MiddlewareSide; 2],
}

/// Separator of the publisher's name and the subscriber's.
const TO: char = '>';
const NAMES: &str = "fastdds-sync, fastdds-async, cyclone, tcpros (each also with -tuned, those of DDS with -208k or -4m, socket buffers), zenoh (also with -drop), iceoryx2, udp, tcp, memory, \
     the name of an rmw implementation such as rmw_cyclonedds_cpp (as fastdds-*, also with -typed), or two of them as in cyclone>fastdds-sync";

impl Middleware {
    /// Whether messages can cross a network.
    pub(crate) fn crosses_networks(&self) -> bool {
        self.sides
            .iter()
            .all(|side| side.kind != MiddlewareKind::Transport("iceoryx2"))
    }

    /// Whether both sides are one process, without anything between.
    pub(crate) fn is_memory(&self) -> bool {
        self.sides[0].kind == MiddlewareKind::Memory
    }

    /// Whether its nodes find each other on a network.
    pub(crate) fn discovers(&self) -> bool {
        self.sides.iter().all(MiddlewareSide::discovers)
    }

    /// Whether its workers have messages of this shape.
    pub(crate) fn carries(&self, shape: Shape) -> bool {
        let is_of_ros1 = |side: &MiddlewareSide| side.kind == MiddlewareKind::Tcpros;
        shape == Shape::Bytes || !self.sides.iter().any(is_of_ros1)
    }

    /// Its name in paths.
    pub(crate) fn file_stem(&self) -> String {
        self.name.replace(TO, "_to_")
    }
}

impl MiddlewareSide {
    /// The wire that it speaks.
    fn wire(&self) -> &str {
        match &self.kind {
            MiddlewareKind::Rmw { library, .. } if library.contains("zenoh") => "zenoh of rmw",
            MiddlewareKind::Rmw { .. } | MiddlewareKind::Transport("dds") => "rtps",
            MiddlewareKind::Transport(id) => id,
            MiddlewareKind::Udp => "udp",
            MiddlewareKind::Tcp => "tcp",
            MiddlewareKind::Tcpros => "tcpros",
            MiddlewareKind::Memory => "memory",
        }
    }

    /// Whether a meeting place is for one publisher and one subscriber; ROS 1's master is for all.
    pub(crate) fn meets_in_pairs(&self) -> bool {
        self.kind != MiddlewareKind::Tcpros
    }

    /// Whether nodes find each other, so that there is something to measure.
    fn discovers(&self) -> bool {
        matches!(
            &self.kind,
            MiddlewareKind::Rmw { .. } | MiddlewareKind::Transport(_)
        )
    }
}

impl TryFrom<String> for MiddlewareSide {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        name.parse()
    }
}

impl From<MiddlewareSide> for String {
    fn from(side: MiddlewareSide) -> Self {
        side.name
    }
}

impl FromStr for MiddlewareSide {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let (base, settings) = Settings::split(name);
        let fastdds = |mode| MiddlewareKind::Rmw {
            library: "rmw_fastrtps_cpp".to_owned(),
            publication_mode: Some(mode),
        };
        let kind = match base {
            "fastdds-sync" => fastdds("SYNCHRONOUS"),
            "fastdds-async" => fastdds("ASYNCHRONOUS"),
            "cyclone" => MiddlewareKind::Transport("dds"),
            "zenoh" => MiddlewareKind::Transport("zenoh"),
            "iceoryx2" => MiddlewareKind::Transport("iceoryx2"),
            "udp" => MiddlewareKind::Udp,
            "tcp" => MiddlewareKind::Tcp,
            "tcpros" => MiddlewareKind::Tcpros,
            "memory" => MiddlewareKind::Memory,
            _ if base.starts_with("rmw_")
                && base
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') =>
            {
                MiddlewareKind::Rmw {
                    library: base.to_owned(),
                    publication_mode: None,
                }
            }
            _ => return Err(format!("middleware {name:?}: expected one of {NAMES}")),
        };
        if !settings.are_valid_for(&kind) {
            return Err(format!(
                "middleware {name:?}: has no {}; expected one of {NAMES}",
                settings.noun()
            ));
        }
        Ok(Self {
            name: name.to_owned(),
            kind,
            settings,
        })
    }
}

impl FromStr for Middleware {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let (publisher, subscriber) = name.split_once(TO).unwrap_or((name, name));
        let sides: [MiddlewareSide; 2] = [publisher.parse()?, subscriber.parse()?];
        let [publisher, subscriber] = sides.each_ref().map(MiddlewareSide::wire);
        if publisher != subscriber {
            return Err(format!(
                "middleware {name:?}: {publisher} and {subscriber} do not meet on one wire"
            ));
        }
        Ok(Self {
            name: name.to_owned(),
            sides,
        })
    }
}

impl fmt::Display for Middleware {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.pad(&self.name)
    }
}

impl TryFrom<String> for Middleware {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        name.parse()
    }
}

impl From<Middleware> for String {
    fn from(middleware: Middleware) -> Self {
        middleware.name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_machine_can_name_middlewares_and_nothing_else() {
        for name in ["cyclone", "udp", "rmw_fastrtps_cpp", "tcpros"] {
            assert!(name.parse::<MiddlewareSide>().is_ok(), "{name}");
        }
        for name in [
            "",
            "/bin/sh",
            "rmw_/../../tmp/evil",
            "rmw_a b",
            "rmw_a\0",
            "rmw_a.so",
            "tcpros; reboot",
            "../udp",
        ] {
            assert!(name.parse::<MiddlewareSide>().is_err(), "{name}");
        }
    }
}
