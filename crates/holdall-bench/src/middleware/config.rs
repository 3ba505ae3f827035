//! Experiment files of the kind `middleware`: loads, links and middlewares, each with each.

use crate::{
    link::spec::LinkSpec,
    suite::config::keys::{Keys, decimal, positive},
};
use holdall_model::yaml::{self, Node, YamlError};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr, time::Duration};

/// Shortest measured time at any scale.
const DURATION_MIN: Duration = Duration::from_secs(1);

/// One load.
#[derive(Clone, Debug, PartialEq)]
pub struct MiddlewareCase {
    /// Its name in tables.
    pub label: String,
    /// Content of a message in bytes.
    pub bytes: usize,
    /// Messages a second.
    pub rate_hz: f64,
    /// Reliable, else best effort.
    pub is_reliable: bool,
    /// `KEEP_LAST` of this depth.
    pub depth: u64,
    /// A node without any topic, alone: what it costs by itself.
    pub is_idle: bool,
    /// Its position in its file, from 0: the name of its results' folder, whichever cases are run.
    pub place: usize,
}

/// One link.
#[derive(Clone, Debug, PartialEq)]
pub struct EvaluatedLink {
    /// Its name in tables.
    pub label: String,
    /// The link; `None` is this host by itself.
    pub spec: Option<LinkSpec>,
    /// Its position in its file, from 0.
    pub place: usize,
}

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
    /// A copy in memory.
    Memory,
}

/// What one side of a run is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MiddlewareSide {
    pub(crate) name: String,
    pub(crate) kind: MiddlewareKind,
    /// With documented settings instead of its defaults.
    pub(crate) is_tuned: bool,
}

/// A middleware in one of its forms, or two that meet on one wire: `cyclone>fastdds-sync`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Middleware {
    name: String,
    /// The publisher's side and the subscriber's.
    pub(crate) sides: [MiddlewareSide; 2],
}

/// Appended to a name.
const TUNED: &str = "-tuned";
/// Between the publisher's name and the subscriber's.
const TO: char = '>';
const NAMES: &str = "fastdds-sync, fastdds-async, cyclone (each also with -tuned), zenoh, iceoryx2, udp, tcp, memory, the name of an rmw \
     implementation such as rmw_cyclonedds_cpp, or two of them as in cyclone>fastdds-sync";

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
            MiddlewareKind::Memory => "memory",
        }
    }
}

impl FromStr for MiddlewareSide {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let (base, is_tuned) = name
            .strip_suffix(TUNED)
            .map_or((name, false), |base| (base, true));
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
        let has_tuning = matches!(
            &kind,
            MiddlewareKind::Rmw {
                publication_mode: Some(_),
                ..
            } | MiddlewareKind::Transport("dds")
        );
        if is_tuned && !has_tuning {
            return Err(format!(
                "middleware {name:?}: has no tuned settings; expected one of {NAMES}"
            ));
        }
        Ok(Self {
            name: name.to_owned(),
            kind,
            is_tuned,
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

/// A figure of a published report.
#[derive(Clone, Debug, PartialEq)]
pub struct CitedFigure {
    /// The link's label.
    pub link: String,
    /// The middleware's name.
    pub middleware: String,
    /// Messages received a second.
    pub received_per_s: f64,
}

/// Loads, links and middlewares: every case over every link with every middleware.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// Its short name, for example `D3`.
    pub id: String,
    /// What it shows, one clause.
    pub title: String,
    /// Where it was published.
    pub source: Option<String>,
    /// The loads.
    pub cases: Vec<MiddlewareCase>,
    /// The links.
    pub links: Vec<EvaluatedLink>,
    /// The middlewares.
    pub middlewares: Vec<Middleware>,
    /// Repetitions of everything.
    pub repeat_each: u32,
    /// Measured time of a run.
    pub duration: Duration,
    /// Time before it that does not count.
    pub warm_up: Duration,
    /// Figures that were published.
    pub published: Vec<CitedFigure>,
    /// The file's text, kept with the results.
    pub text: String,
}

impl Evaluation {
    /// Whether a text describes an evaluation of middlewares and not of recorders.
    pub fn is_one(text: &str) -> bool {
        yaml::parse(text).is_ok_and(|root| root.get("kind").is_some())
    }

    /// Reads the text of an experiment file.
    ///
    /// # Errors
    /// An unknown key or value.
    pub fn parse(text: &str) -> Result<Self, YamlError> {
        let root = yaml::parse(text)?;
        let mut keys = Keys::of(&root)?;
        let kind = keys.required("kind")?;
        if kind.as_str()? != "middleware" {
            return Err(kind.expected("middleware"));
        }
        let list = |node: &Node, what| match node.as_sequence()? {
            [] => Err(node.error(format!("expected at least one {what}, found none"))),
            nodes => Ok(nodes.to_vec()),
        };
        let seconds = |node: &Node| Ok(Duration::from_secs_f64(decimal(node)?.clamp(0.0, 86_400.0)));
        let evaluation = Self {
            id: keys.required("experiment")?.as_str()?.to_owned(),
            title: keys.required("title")?.as_str()?.to_owned(),
            source: keys
                .optional("source")
                .map(|node| node.as_str().map(str::to_owned))
                .transpose()?,
            cases: list(keys.required("cases")?, "case")?
                .iter()
                .enumerate()
                .map(read_case)
                .collect::<Result<_, _>>()?,
            links: list(keys.required("links")?, "link")?
                .iter()
                .enumerate()
                .map(read_link)
                .collect::<Result<_, _>>()?,
            middlewares: list(keys.required("middlewares")?, "middleware")?
                .iter()
                .map(|node| node.as_str()?.parse().map_err(|error: String| node.error(error)))
                .collect::<Result<_, _>>()?,
            repeat_each: positive(keys.required("repeat_each")?)?,
            duration: seconds(keys.required("duration_s")?)?.max(DURATION_MIN),
            warm_up: seconds(keys.required("warm_up_s")?)?,
            published: match keys.optional("published") {
                Some(node) => node
                    .as_sequence()?
                    .iter()
                    .map(read_cited)
                    .collect::<Result<_, _>>()?,
                None => Vec::new(),
            },
            text: text.to_owned(),
        };
        keys.finish()?;
        Ok(evaluation)
    }

    /// The same with shorter runs: a second at least.
    #[must_use]
    pub(crate) fn scaled(mut self, scale: f64) -> Self {
        self.duration = self
            .duration
            .mul_f64(scale)
            .clamp(DURATION_MIN, Duration::from_secs(86_400));
        self
    }
}

fn read_case((place, node): (usize, &Node)) -> Result<MiddlewareCase, YamlError> {
    /// The number of a message is in its content.
    const BYTES: std::ops::RangeInclusive<usize> = 8..=1 << 30;
    let mut keys = Keys::of(node)?;
    if keys.optional("idle").map(Node::as_bool).transpose()? == Some(true) {
        let case = MiddlewareCase {
            label: keys.required("label")?.as_str()?.to_owned(),
            bytes: *BYTES.start(),
            rate_hz: 1.0,
            is_reliable: true,
            depth: 1,
            is_idle: true,
            place,
        };
        keys.finish()?;
        return Ok(case);
    }
    let (bytes, rate, reliability) = (
        keys.required("bytes")?,
        keys.required("rate_hz")?,
        keys.required("reliability")?,
    );
    let case = MiddlewareCase {
        label: keys.required("label")?.as_str()?.to_owned(),
        bytes: bytes.as_number()?,
        rate_hz: decimal(rate)?,
        is_reliable: match reliability.as_str()? {
            "reliable" => true,
            "best_effort" => false,
            _ => return Err(reliability.expected("reliable or best_effort")),
        },
        depth: positive(keys.required("depth")?)?,
        is_idle: false,
        place,
    };
    keys.finish()?;
    if !BYTES.contains(&case.bytes) {
        return Err(bytes.expected("a number of bytes from 8 to 1073741824"));
    }
    if !(0.01..=1e6).contains(&case.rate_hz) {
        return Err(rate.expected("a rate from 0.01 to 1000000"));
    }
    Ok(case)
}

fn read_link((place, node): (usize, &Node)) -> Result<EvaluatedLink, YamlError> {
    let mut keys = Keys::of(node)?;
    let spec = keys.optional("link");
    let link = EvaluatedLink {
        label: keys.required("label")?.as_str()?.to_owned(),
        spec: match spec {
            Some(node) => {
                Some(LinkSpec::from_str(node.as_str()?).map_err(|error| node.error(error.to_string()))?)
            }
            None => None,
        },
        place,
    };
    keys.finish()?;
    Ok(link)
}

fn read_cited(node: &Node) -> Result<CitedFigure, YamlError> {
    let mut keys = Keys::of(node)?;
    let cited = CitedFigure {
        link: keys.required("link")?.as_str()?.to_owned(),
        middleware: keys.required("middleware")?.as_str()?.to_owned(),
        received_per_s: decimal(keys.required("received_per_s")?)?,
    };
    keys.finish()?;
    Ok(cited)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = "\
experiment: X
kind: middleware
title: t
repeat_each: 2
duration_s: 4
warm_up_s: 0.5
cases:
  - {label: c, bytes: 1024, rate_hz: 10, reliability: reliable, depth: 10}
links:
  - {label: here}
  - {label: bad, link: \"rate=54Mb/s,loss=10%\"}
middlewares: [fastdds-sync-tuned, cyclone>fastdds-sync, rmw_zenoh_cpp, udp]
";

    #[test]
    fn a_file_is_read() {
        let evaluation = Evaluation::parse(SMALL).unwrap();
        assert!(Evaluation::is_one(SMALL) && !Evaluation::is_one("experiment: A1"));
        assert_eq!(
            (evaluation.links.len(), evaluation.links[0].spec.is_some()),
            (2, false)
        );
        assert!(evaluation.middlewares[0].sides[1].is_tuned);
        assert_eq!(evaluation.middlewares[2].to_string(), "rmw_zenoh_cpp");
        assert_eq!(evaluation.clone().scaled(0.5).duration, Duration::from_secs(2));
        assert_eq!(evaluation.scaled(0.01).duration, Duration::from_secs(1));
    }

    #[test]
    fn an_idle_node_has_no_load() {
        let load = "label: c, bytes: 1024, rate_hz: 10, reliability: reliable, depth: 10";
        let idle = Evaluation::parse(&SMALL.replace(load, "label: c, idle: true")).unwrap();
        assert!(idle.cases[0].is_idle && !Evaluation::parse(SMALL).unwrap().cases[0].is_idle);
        let both = SMALL.replace(load, &format!("{load}, idle: true"));
        assert!(
            Evaluation::parse(&both)
                .unwrap_err()
                .to_string()
                .contains("unknown key")
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (from, to, expected) in [
            ("loss=10%", "loss=x", "a share from 0% to 100%"),
            ("cyclone>", "cyclon>", "expected one of fastdds-sync"),
            ("cyclone>", "zenoh>", "do not meet on one wire"),
            (" udp]", " udp-tuned]", "has no tuned settings"),
            ("bytes: 1024", "bytes: 4", "from 8 to"),
            ("reliability: reliable", "reliability: good", "best_effort"),
            ("kind: middleware", "kind: x", "middleware"),
            ("depth: 10", "depth: 0", "one or more"),
            ("title: t", "title: t\nmore: 1", "unknown key more"),
        ] {
            let error = Evaluation::parse(&SMALL.replace(from, to))
                .unwrap_err()
                .to_string();
            assert!(error.contains(expected), "{to}: {error}");
        }
    }
}
