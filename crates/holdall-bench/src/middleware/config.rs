//! Experiment files of the kind `middleware`: loads, links and middlewares, each with each.

use super::Middleware;
use crate::{
    link::spec::LinkSpec,
    suite::config::keys::{Keys, decimal, positive},
};
use holdall_model::yaml::{self, Node, YamlError};
use std::{str::FromStr, time::Duration};

/// Shortest measured time at any scale.
const DURATION_MIN: Duration = Duration::from_secs(1);

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaseKind {
    /// Messages from a publisher to a subscriber.
    Load,
    /// A node without any topic, alone: what it costs by itself.
    Idle,
    /// Nodes that start at the same time, each with a publisher and a subscription of one topic, until each knows all.
    Discovery {
        /// Their number.
        nodes: u32,
    },
}

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
    /// What is measured.
    pub kind: CaseKind,
    /// A second load at the same time, between two further programs.
    pub beside: Option<Box<MiddlewareCase>>,
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

/// Content of a message in bytes: its number at least.
const BYTES: std::ops::RangeInclusive<usize> = 8..=1 << 30;

fn read_case((place, node): (usize, &Node)) -> Result<MiddlewareCase, YamlError> {
    /// All are processes of this machine.
    const NODES: std::ops::RangeInclusive<u32> = 2..=100;
    let mut keys = Keys::of(node)?;
    let is_idle = keys.optional("idle").map(Node::as_bool).transpose()? == Some(true);
    let kind = match keys.optional("nodes") {
        Some(node) => {
            let nodes: u32 = node.as_number()?;
            if !NODES.contains(&nodes) {
                return Err(node.expected("a number of nodes from 2 to 100"));
            }
            CaseKind::Discovery { nodes }
        }
        None if is_idle => CaseKind::Idle,
        None => CaseKind::Load,
    };
    let mut case = MiddlewareCase {
        label: keys.required("label")?.as_str()?.to_owned(),
        bytes: *BYTES.start(),
        rate_hz: 1.0,
        is_reliable: true,
        depth: 1,
        kind,
        beside: None,
        place,
    };
    if kind == CaseKind::Load {
        read_load(&mut case, &mut keys)?;
        if let Some(node) = keys.optional("beside") {
            case.beside = Some(Box::new(read_case((place, node))?));
        }
    }
    keys.finish()?;
    match &case.beside {
        Some(beside) if beside.kind != CaseKind::Load || beside.beside.is_some() => {
            Err(node.error("beside: expected one load".to_owned()))
        }
        Some(beside) if beside.label == case.label => {
            Err(node.error("beside: expected another label, so that results can be distinguished".to_owned()))
        }
        _ => Ok(case),
    }
}

fn read_load(case: &mut MiddlewareCase, keys: &mut Keys<'_>) -> Result<(), YamlError> {
    let (bytes, rate, reliability) = (
        keys.required("bytes")?,
        keys.required("rate_hz")?,
        keys.required("reliability")?,
    );
    case.bytes = bytes.as_number()?;
    case.rate_hz = decimal(rate)?;
    case.is_reliable = match reliability.as_str()? {
        "reliable" => true,
        "best_effort" => false,
        _ => return Err(reliability.expected("reliable or best_effort")),
    };
    case.depth = positive(keys.required("depth")?)?;
    if !BYTES.contains(&case.bytes) {
        return Err(bytes.expected("a number of bytes from 8 to 1073741824"));
    }
    if !(0.01..=1e6).contains(&case.rate_hz) {
        return Err(rate.expected("a rate from 0.01 to 1000000"));
    }
    Ok(())
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
    use crate::middleware::name::Settings;

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
        assert_eq!(evaluation.middlewares[0].sides[1].settings, Settings::Tuned);
        assert_eq!(evaluation.middlewares[2].to_string(), "rmw_zenoh_cpp");
        assert_eq!(evaluation.clone().scaled(0.5).duration, Duration::from_secs(2));
        assert_eq!(evaluation.scaled(0.01).duration, Duration::from_secs(1));
    }

    #[test]
    fn an_idle_node_has_no_load() {
        let load = "label: c, bytes: 1024, rate_hz: 10, reliability: reliable, depth: 10";
        let idle = Evaluation::parse(&SMALL.replace(load, "label: c, idle: true")).unwrap();
        assert_eq!(idle.cases[0].kind, CaseKind::Idle);
        assert_eq!(Evaluation::parse(SMALL).unwrap().cases[0].kind, CaseKind::Load);
        let nodes = Evaluation::parse(&SMALL.replace(load, "label: c, nodes: 20")).unwrap();
        assert_eq!(nodes.cases[0].kind, CaseKind::Discovery { nodes: 20 });
        let both = SMALL.replace(load, &format!("{load}, idle: true"));
        assert!(
            Evaluation::parse(&both)
                .unwrap_err()
                .to_string()
                .contains("unknown key")
        );
    }

    #[test]
    fn a_load_may_have_another_beside_it() {
        let more = "depth: 10, beside: {label: d, bytes: 8, rate_hz: 5, reliability: best_effort, depth: 1}}";
        let evaluation = Evaluation::parse(&SMALL.replace("depth: 10}", more)).unwrap();
        let beside = evaluation.cases[0].beside.as_ref().unwrap();
        assert_eq!(
            (beside.label.as_str(), beside.bytes, beside.is_reliable),
            ("d", 8, false)
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (from, to, expected) in [
            (
                "depth: 10}",
                "depth: 10, beside: {label: d, nodes: 3}}",
                "expected one load",
            ),
            (
                "depth: 10}",
                "depth: 10, beside: {label: c, bytes: 8, rate_hz: 5, reliability: reliable, depth: 1}}",
                "another label",
            ),
            (
                "bytes: 1024, rate_hz: 10, reliability: reliable, depth: 10",
                "nodes: 1",
                "from 2 to 100",
            ),
            (
                " udp]",
                " cyclone-drop]",
                "no choice between waiting and dropping",
            ),
            (" udp]", " zenoh-typed]", "no type support"),
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
