//! Experiment files of the kind `middleware`: loads, links and middlewares, each with each.

use super::{Middleware, worker::Shape};
use crate::{
    link::spec::LinkSpec,
    suite::config::values::{positive, some},
};
use holdall_model::yaml::{self, YamlError};
use serde::{Deserialize, Deserializer, de::Error};
use std::{ops::RangeInclusive, time::Duration};

/// Shortest measured time at any scale.
const DURATION_MIN: Duration = Duration::from_secs(1);

/// Time after an outage that belongs to what is measured.
const AFTER_OUTAGE: Duration = Duration::from_secs(5);

/// What a run takes beside its messages: the link, two programs, their discovery and their end.
const AROUND_A_RUN: Duration = Duration::from_secs(3);

/// The kind of measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaseKind {
    /// Messages from a publisher to a subscriber.
    Load,
    /// A node without any topic, alone: its costs by itself.
    Idle,
    /// Nodes that start at the same time, each with a publisher and a subscription of one topic, until each knows all.
    Discovery {
        /// Their number.
        nodes: u32,
    },
}

/// One load.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "CaseKeys")]
pub struct MiddlewareCase {
    /// Its name in tables.
    pub label: String,
    /// The kind of messages.
    pub shape: Shape,
    /// Content of a message in bytes.
    pub bytes: usize,
    /// Messages a second.
    pub rate_hz: f64,
    /// Reliable, else best effort.
    pub is_reliable: bool,
    /// `KEEP_LAST` of this depth.
    pub depth: u64,
    /// The kind of measurement.
    pub kind: CaseKind,
    /// A second load at the same time, between two further programs.
    pub beside: Option<Box<MiddlewareCase>>,
    /// Its position in its file, from 0: the name of its results' folder, whichever cases are run.
    pub place: usize,
}

/// One link.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvaluatedLink {
    /// Its name in tables.
    pub label: String,
    /// The link; `None` is this host by itself.
    #[serde(rename = "link", default, deserialize_with = "link")]
    pub spec: Option<LinkSpec>,
    /// Its position in its file, from 0.
    #[serde(skip)]
    pub place: usize,
}

/// A figure of a published report.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CitedFigure {
    /// The case's label; all cases without one.
    pub case: Option<String>,
    /// The link's label.
    pub link: String,
    /// The middleware's name.
    pub middleware: String,
    /// Messages received a second.
    pub received_per_s: f64,
}

impl CitedFigure {
    /// Whether it is of this case, link and middleware.
    pub(crate) fn is_of(&self, case: &str, link: &str, middleware: &str) -> bool {
        self.case.as_ref().is_none_or(|wanted| wanted == case)
            && self.link == link
            && self.middleware == middleware
    }
}

/// Loads, links and middlewares: every case over every link with every middleware.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evaluation {
    #[serde(rename = "kind")]
    _kind: Kind,
    /// Its short name, for example `D3`.
    #[serde(rename = "experiment")]
    pub id: String,
    /// Its purpose, one clause.
    pub title: String,
    /// The publication it follows.
    pub source: Option<String>,
    /// The loads.
    #[serde(deserialize_with = "some")]
    pub cases: Vec<MiddlewareCase>,
    /// The links.
    #[serde(deserialize_with = "some")]
    pub links: Vec<EvaluatedLink>,
    /// The middlewares.
    #[serde(deserialize_with = "some")]
    pub middlewares: Vec<Middleware>,
    /// Repetitions of everything.
    #[serde(deserialize_with = "positive")]
    pub repeat_each: u32,
    /// Measured time of a run.
    #[serde(rename = "duration_s", deserialize_with = "seconds")]
    pub duration: Duration,
    /// Time before it that does not count.
    #[serde(rename = "warm_up_s", deserialize_with = "seconds")]
    pub warm_up: Duration,
    /// Figures that were published.
    #[serde(default)]
    pub published: Vec<CitedFigure>,
    /// The file's text, kept with the results.
    #[serde(skip)]
    pub text: String,
}

/// The field that distinguishes these files from those of recorders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Middleware,
}

fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    f64::deserialize(deserializer).map(|seconds| Duration::from_secs_f64(seconds.clamp(0.0, 86_400.0)))
}

fn link<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<LinkSpec>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map(|text| text.parse())
        .transpose()
        .map_err(D::Error::custom)
}

impl Evaluation {
    /// Runs of all cases over all links with all middlewares.
    pub fn run_count(&self) -> usize {
        let places = self.cases.len() * self.links.len();
        places * self.middlewares.len() * self.repeat_each as usize
    }

    /// Whether a text describes an evaluation of middlewares and not of recorders.
    pub fn is_one(text: &str) -> bool {
        yaml::parse(text).is_ok_and(|root| root.get("kind").is_some())
    }

    /// Reads the text of an experiment file.
    ///
    /// # Errors
    /// An unknown key or value.
    pub fn parse(text: &str) -> Result<Self, YamlError> {
        let mut evaluation: Self = yaml::read_into(text)?;
        for (place, case) in evaluation.cases.iter_mut().enumerate() {
            case.place = place;
        }
        for (place, link) in evaluation.links.iter_mut().enumerate() {
            link.place = place;
        }
        evaluation.duration = evaluation.duration.max(DURATION_MIN);
        text.clone_into(&mut evaluation.text);
        Ok(evaluation)
    }

    /// The smallest scale at which every outage begins and ends while it is measured; `None` when no link has one.
    pub(crate) fn scale_min(&self) -> Option<f64> {
        let specs = self.links.iter().filter_map(|link| link.spec.as_ref());
        let ends = specs
            .flat_map(|spec| &spec.outages)
            .map(|outage| outage.at + outage.lasts);
        let last = ends.max()?;
        // What an outage costs shows after it: a middleware that has given its peer up finds it again late.
        Some((last + AFTER_OUTAGE).as_secs_f64() / self.duration.as_secs_f64())
    }

    /// How long all runs take together, about: what is measured, the warm-up and [`AROUND_A_RUN`].
    pub fn time(&self) -> Duration {
        self.time_of(self.run_count())
    }

    /// How long this number of runs takes together.
    pub(crate) fn time_of(&self, runs: usize) -> Duration {
        (self.duration + self.warm_up + AROUND_A_RUN) * u32::try_from(runs).unwrap_or(u32::MAX)
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
const BYTES: RangeInclusive<usize> = 8..=1 << 30;
/// All are processes of this machine.
const NODES: RangeInclusive<u32> = 2..=100;
const RATES_HZ: RangeInclusive<f64> = 0.01..=1e6;

/// A case as a file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseKeys {
    label: String,
    #[serde(default)]
    idle: bool,
    nodes: Option<u32>,
    #[serde(default, rename = "message")]
    shape: Shape,
    bytes: Option<usize>,
    rate_hz: Option<f64>,
    reliability: Option<ReliabilityName>,
    depth: Option<u64>,
    beside: Option<Box<MiddlewareCase>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ReliabilityName {
    Reliable,
    BestEffort,
}

impl TryFrom<CaseKeys> for MiddlewareCase {
    type Error = String;

    fn try_from(keys: CaseKeys) -> Result<Self, String> {
        let kind = match keys.nodes {
            Some(nodes) if !NODES.contains(&nodes) => {
                return Err(format!("nodes: expected a number from 2 to 100, found {nodes}"));
            }
            Some(nodes) => CaseKind::Discovery { nodes },
            None if keys.idle => CaseKind::Idle,
            None => CaseKind::Load,
        };
        let load = (keys.bytes, keys.rate_hz, keys.reliability, keys.depth);
        let (bytes, rate_hz, reliability, depth) = match (kind, load) {
            (CaseKind::Load, (Some(bytes), Some(rate_hz), Some(reliability), Some(depth))) => {
                (bytes, rate_hz, reliability, depth)
            }
            (CaseKind::Load, _) => {
                return Err("a load needs bytes, rate_hz, reliability and depth".to_owned());
            }
            (_, (None, None, None, None)) => (*BYTES.start(), 1.0, ReliabilityName::Reliable, 1),
            _ => return Err("nodes and an idle node have no load of their own".to_owned()),
        };
        if !BYTES.contains(&bytes) {
            return Err(format!(
                "bytes: expected a number from 8 to 1073741824, found {bytes}"
            ));
        }
        if !RATES_HZ.contains(&rate_hz) {
            return Err(format!(
                "rate_hz: expected a rate from 0.01 to 1000000, found {rate_hz}"
            ));
        }
        if depth == 0 {
            return Err("depth: expected a number of one or more, found 0".to_owned());
        }
        match &keys.beside {
            Some(beside)
                if kind != CaseKind::Load || beside.kind != CaseKind::Load || beside.beside.is_some() =>
            {
                return Err("beside: expected one load".to_owned());
            }
            Some(beside) if beside.label == keys.label => {
                return Err(
                    "beside: expected another label, so that results can be distinguished".to_owned(),
                );
            }
            _ => {}
        }
        Ok(Self {
            label: keys.label,
            shape: keys.shape,
            bytes,
            rate_hz,
            is_reliable: reliability == ReliabilityName::Reliable,
            depth,
            kind,
            beside: keys.beside,
            place: 0,
        })
    }
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
                .contains("no load of their own")
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
            ("kind: middleware", "kind: x", "expected `middleware`"),
            ("depth: 10", "depth: 0", "one or more"),
            ("title: t", "title: t\nmore: 1", "unknown field `more`"),
        ] {
            let error = Evaluation::parse(&SMALL.replace(from, to))
                .unwrap_err()
                .to_string();
            assert!(error.contains(expected), "{to}: {error}");
        }
    }
}
