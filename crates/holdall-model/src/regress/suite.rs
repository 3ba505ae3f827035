//! A suite of regression runs, as its YAML file has it.

use super::{Tolerance, Tolerances, TrajectoryLimits};
use crate::{
    YamlError,
    names::validate_full_name,
    yaml::{Node, Value, parse, read_node},
};
use serde::{Deserialize, Deserializer, de::Error};
use std::{collections::BTreeMap, time::Duration};

/// All cases.
#[derive(Clone, Debug)]
pub struct Suite {
    /// In the order of the file.
    pub cases: Vec<Case>,
}

/// One bag against one start of the software.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Also the name of its folder.
    #[serde(skip)]
    pub name: String,
    /// The flags of `holdall play`: which part of the bag, which topics under which names, in which pace.
    #[serde(skip, default = "no_flags")]
    pub play: Node,
    /// The bag: a path from the folder of the suite, or a URL.
    pub bag: String,
    /// A line for the shell that starts the software.
    pub command: String,
    /// Environment variables for it.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// What the case waits for before the first message.
    #[serde(default)]
    pub ready: Ready,
    /// Topics to record; at least one.
    pub outputs: Vec<String>,
    /// The bag with the outputs as they should be.
    pub golden: Option<String>,
    /// How much they may differ from it, by topic.
    #[serde(default)]
    pub tolerances: BTreeMap<String, Tolerances>,
    /// How much the number of messages may differ from it, by topic; which of them have none beside them then does not count.
    #[serde(default)]
    pub counts: BTreeMap<String, Tolerance>,
    /// How much the messages per second may differ from it, by topic.
    #[serde(default)]
    pub rates: BTreeMap<String, Tolerance>,
    /// Topics whose poses are compared as a trajectory, instead of message by message.
    #[serde(default)]
    pub trajectories: BTreeMap<String, TrajectoryLimits>,
    /// Topics whose pixels are compared by their similarity.
    #[serde(default)]
    pub images: BTreeMap<String, ImageLimits>,
    /// `TOPIC: CONDITION` that each message of the topic has to fulfil.
    #[serde(default)]
    pub must: Vec<String>,
    /// A file with a contract for the outputs.
    pub contract: Option<String>,
    /// The case is ended after this time.
    #[serde(default = "limit", deserialize_with = "seconds")]
    pub limit: Duration,
    /// How long outputs are recorded after the last message of the bag.
    #[serde(default = "settle", deserialize_with = "seconds")]
    pub settle: Duration,
}

/// How similar images have to be to the golden ones.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageLimits {
    /// The least structural similarity of brightness, above 0 and at most 1.
    #[serde(deserialize_with = "similarity")]
    pub ssim: f64,
}

fn similarity<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let ssim = f64::deserialize(deserializer)?;
    match ssim > 0.0 && ssim <= 1.0 {
        true => Ok(ssim),
        false => Err(D::Error::custom(format!(
            "expected an SSIM above 0 and at most 1, found {ssim}"
        ))),
    }
}

/// What a case waits for before the first message. Without names: a publisher of each output.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ready {
    /// Full names of nodes.
    pub nodes: Vec<String>,
    /// Topics that have a publisher.
    pub topics: Vec<String>,
    /// Services that have a server.
    pub services: Vec<String>,
    /// Longest wait for it.
    #[serde(deserialize_with = "seconds")]
    pub within: Duration,
}

impl Default for Ready {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            topics: Vec::new(),
            services: Vec::new(),
            within: Duration::from_secs(60),
        }
    }
}

fn no_flags() -> Node {
    Node {
        line: 0,
        value: Value::Map(Vec::new()),
    }
}

fn limit() -> Duration {
    Duration::from_secs(600)
}

fn settle() -> Duration {
    Duration::from_secs(1)
}

/// The longest time, which can be added to a clock.
const SECONDS_MAX: f64 = 1e9;

fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let seconds = f64::deserialize(deserializer)?;
    let span = Duration::try_from_secs_f64(seconds).ok();
    span.filter(|_| seconds <= SECONDS_MAX).ok_or_else(|| {
        D::Error::custom(format!(
            "expected seconds, at most {SECONDS_MAX}, found {seconds}"
        ))
    })
}

impl Suite {
    /// Reads a suite.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line.
    pub fn parse(text: &str) -> Result<Self, YamlError> {
        let root = parse(text)?;
        let known = ["version", "defaults", "cases"];
        let unknown = |(name, _): &&(String, Node)| !known.contains(&name.as_str());
        if let Some((name, node)) = root.as_map()?.iter().find(unknown) {
            return Err(node.error(format!(
                "a suite has no {name}; expected one of {}",
                known.join(", ")
            )));
        }
        let version = root.require("version")?;
        if version.as_str()? != "1" {
            return Err(version.expected("version 1, the only one"));
        }
        let nothing = no_flags();
        let defaults = root.get("defaults").unwrap_or(&nothing);
        let nodes = root.require("cases")?;
        let case = |(name, node): &(String, Node)| Case::read(name, with_defaults(node, defaults)?);
        let cases: Vec<Case> = nodes.as_map()?.iter().map(case).collect::<Result<_, _>>()?;
        match cases.is_empty() {
            true => Err(nodes.expected("at least one case")),
            false => Ok(Self { cases }),
        }
    }
}

/// A case with what it lacks of the defaults; the flags of `play` one by one.
fn with_defaults(node: &Node, defaults: &Node) -> Result<Node, YamlError> {
    let mut entries = node.as_map()?.to_vec();
    for (name, default) in defaults.as_map()? {
        match entries.iter_mut().find(|(known, _)| known == name) {
            None => entries.push((name.clone(), default.clone())),
            Some((_, own)) if name == "play" => *own = with_defaults(own, default)?,
            Some(_) => {}
        }
    }
    let value = Value::Map(entries);
    Ok(Node { value, ..*node })
}

impl Case {
    fn read(name: &str, mut node: Node) -> Result<Self, YamlError> {
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        if name.is_empty() || name.starts_with('.') || !name.chars().all(is_part) {
            return Err(node.error(format!(
                "{name:?} cannot name a case, which is the name of a folder too; expected letters, digits, - and _"
            )));
        }
        let named = |error: YamlError| YamlError::new(error.line, format!("{name}: {}", error.reason));
        let mut play = no_flags();
        if let Value::Map(entries) = &mut node.value
            && let Some(place) = entries.iter().position(|(key, _)| key == "play")
        {
            play = entries.remove(place).1;
        }
        let case: Self = read_node(&node).map_err(named)?;
        case.check().map_err(|reason| named(node.error(reason)))?;
        Ok(Self {
            name: name.to_owned(),
            play,
            ..case
        })
    }

    fn check(&self) -> Result<(), String> {
        let lists = [
            &self.outputs,
            &self.ready.nodes,
            &self.ready.topics,
            &self.ready.services,
        ];
        let limited = [
            ("tolerances", self.tolerances.keys().collect::<Vec<_>>()),
            ("counts", self.counts.keys().collect()),
            ("rates", self.rates.keys().collect()),
            ("trajectories", self.trajectories.keys().collect()),
            ("images", self.images.keys().collect()),
        ];
        let in_limits = limited.iter().flat_map(|(_, topics)| topics.iter().copied());
        for name in lists.into_iter().flatten().chain(in_limits) {
            validate_full_name(name)
                .map_err(|error| format!("{name:?} is not a full name: {}", error.kind))?;
        }
        if self.outputs.is_empty() {
            return Err("outputs has no topic".to_owned());
        }
        for (key, topics) in &limited {
            if let Some(topic) = topics.iter().find(|topic| !self.outputs.contains(topic)) {
                return Err(format!("{key} has {topic}, which is none of the outputs"));
            }
            if self.golden.is_none() && !topics.is_empty() && *key != "tolerances" {
                return Err(format!("{key} are compared with a golden bag; expected golden"));
            }
        }
        let is_compared =
            |topic: &&String| self.tolerances.contains_key(*topic) || self.images.contains_key(*topic);
        if let Some(topic) = self.trajectories.keys().find(is_compared) {
            return Err(format!(
                "{topic} is compared as a trajectory, not message by message: it needs no tolerances"
            ));
        }
        if self.golden.is_none() && self.must.is_empty() && self.contract.is_none() {
            return Err("nothing is compared; expected golden, must or contract".to_owned());
        }
        Ok(())
    }

    /// The topics of [`Ready`] that must have a publisher.
    pub fn awaited_topics(&self) -> &[String] {
        let names = [&self.ready.nodes, &self.ready.topics, &self.ready.services];
        match names.iter().all(|names| names.is_empty()) {
            true => &self.outputs,
            false => &self.ready.topics,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = "
version: 1
defaults:
  command: ros2 run tracker tracker
  outputs: [/tracks]
  play: {pace: listeners, step-by: [/scan=/tracks]}
cases:
  yard:
    bag: bags/yard
    golden: golden/yard
    tolerances: {/tracks: {pose.position: 0.01, header.stamp: any}}
  street:
    bag: s3://drives/street
    must: ['/tracks: x < 1']
    play: {pace: time, start: 10}
    ready: {nodes: [/tracker], within: 5}
    limit: 30
";

    #[test]
    fn cases_take_what_they_lack_from_the_defaults() {
        let suite = Suite::parse(SMALL).unwrap();
        let [yard, street] = suite.cases.as_slice() else {
            panic!("two cases")
        };
        assert_eq!(
            (yard.name.as_str(), yard.awaited_topics()),
            ("yard", &["/tracks".to_owned()][..])
        );
        assert_eq!(yard.play.get("pace").unwrap().as_str().unwrap(), "listeners");
        let tolerances = &yard.tolerances["/tracks"];
        assert_eq!(tolerances.of("pose.position.x"), Some(Tolerance::Absolute(0.01)));
        assert_eq!(street.play.get("pace").unwrap().as_str().unwrap(), "time");
        assert!(street.play.get("step-by").is_some() && street.awaited_topics().is_empty());
        assert_eq!(
            (street.ready.within, street.limit),
            (Duration::from_secs(5), Duration::from_secs(30))
        );
        assert_eq!(street.command, "ros2 run tracker tracker");
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (from, to, word) in [
            ("version: 1", "version: 2", "version 1"),
            ("golden: golden/yard", "goldn: x", "goldn"),
            ("golden: golden/yard", "limit: 5", "nothing is compared"),
            ("  yard:", "  ../yard:", "cannot name a case"),
            ("[/tracks]", "[]", "outputs has no topic"),
            ("[/tracks]", "[tracks]", "not a full name"),
            ("{/tracks: {", "{/other: {", "none of the outputs"),
            ("0.01", "little", "is not a tolerance"),
            (
                "golden: golden/yard",
                "golden: golden/yard\n    trajectories: {/tracks: {ate: 1}}",
                "as a trajectory, not message by message",
            ),
            (
                "must: [",
                "trajectories: {/tracks: {ate: 1}}\n    must: [",
                "expected golden",
            ),
            (
                "golden: golden/yard",
                "golden: golden/yard\n    images: {/tracks: {ssim: 1.1}}",
                "at most 1",
            ),
            (
                "golden: golden/yard",
                "golden: golden/yard\n    images: {/other: {ssim: 1}}",
                "none of the outputs",
            ),
            (
                "golden: golden/yard",
                "golden: golden/yard\n    counts: {/other: 5}",
                "counts has /other, which is none of the outputs",
            ),
            ("must: [", "rates: {/tracks: 5%}\n    must: [", "expected golden"),
            ("within: 5", "within: -5", "within"),
            ("limit: 30", "limit: 1e18", "limit"),
            ("cases:", "case:", "a suite has no case"),
        ] {
            let found = Suite::parse(&SMALL.replacen(from, to, 1));
            let error = found.expect_err(to).to_string();
            assert!(error.contains(word) && error.contains("line"), "{to}: {error}");
        }
        let error = Suite::parse("version: 1\ncases: {}").unwrap_err().to_string();
        assert!(error.contains("at least one case"), "{error}");
    }
}
