//! Experiment files: several loads and benchmarks under one name, with their published figures.

use super::{
    BenchmarkConfig, ConfigError, ProducerConfig, PublisherKind, RecorderKind, Setting, Transport,
    keys::{Keys, decimal, named},
};
use holdall_model::yaml::{self, Node, YamlError};
use std::path::Path;

/// One load.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Its name in tables.
    pub label: String,
    /// The publishers.
    pub producers: ProducerConfig,
    /// Its position in its file, from 0: the name of its results' folder, whichever cases are run.
    pub place: usize,
    /// Cases of one ladder are the same load in growing amounts; the report finds the first loss on it.
    pub ladder: Option<String>,
}

/// A figure of a published report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Published {
    /// The case's label.
    pub case: String,
    /// Of this recorder only.
    pub recorder: Option<RecorderKind>,
    /// Of this storage only.
    pub storage_id: Option<String>,
    /// Of this preset only (empty for none).
    pub storage_preset_profile: Option<String>,
    /// Of this cache only, in bytes.
    pub max_cache_size_bytes: Option<u64>,
    /// With this transport, or without one, only.
    pub transport: Option<Transport>,
    /// With these publishers only.
    pub publishers: Option<PublisherKind>,
    /// Messages recorded, in percent of those sent.
    pub recorded_percent: f64,
}

impl Published {
    /// Whether the figure belongs to these settings.
    pub fn is_of(&self, case: &str, transport: Transport, setting: &Setting) -> bool {
        fn fits<T: PartialEq>(wanted: Option<&T>, found: &T) -> bool {
            wanted.is_none_or(|wanted| wanted == found)
        }
        let preset = setting.storage_preset_profile.clone().unwrap_or_default();
        self.case == case
            && fits(self.transport.as_ref(), &transport)
            && fits(self.publishers.as_ref(), &setting.publishers)
            && fits(self.recorder.as_ref(), &setting.recorder)
            && fits(self.storage_id.as_ref(), &setting.storage_id)
            && fits(self.storage_preset_profile.as_ref(), &preset)
            && fits(self.max_cache_size_bytes.as_ref(), &setting.max_cache_size_bytes)
    }
}

/// Loads and benchmarks that belong together: every case runs with every combination of every benchmark.
#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    /// Its short name, for example `A6`.
    pub id: String,
    /// What it shows, one clause.
    pub title: String,
    /// Where it was published.
    pub source: Option<String>,
    /// What is published.
    pub cases: Vec<Case>,
    /// The benchmarks.
    pub benchmarks: Vec<BenchmarkConfig>,
    /// Published figures.
    pub published: Vec<Published>,
    /// The file's text, kept with the results; empty for two files of rosbag2_performance_benchmarking.
    pub text: Option<String>,
}

impl Experiment {
    /// Reads an experiment file.
    ///
    /// # Errors
    /// A file that cannot be read, or an unknown key or value in it.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        ConfigError::of_file(path, Self::parse)
    }

    /// Reads the text of such a file.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn parse(text: &str) -> Result<Self, YamlError> {
        let root = yaml::parse(text)?;
        let mut keys = Keys::of(&root)?;
        let cases = keys.required("cases")?;
        let benchmarks = keys.required("benchmarks")?;
        let experiment = Self {
            id: keys.required("experiment")?.as_str()?.to_owned(),
            title: keys.required("title")?.as_str()?.to_owned(),
            source: keys
                .optional("source")
                .map(|node| node.as_str().map(str::to_owned))
                .transpose()?,
            cases: cases
                .as_sequence()?
                .iter()
                .enumerate()
                .map(|(place, node)| read_case(place, node))
                .collect::<Result<_, _>>()?,
            benchmarks: benchmarks
                .as_sequence()?
                .iter()
                .map(BenchmarkConfig::from_node)
                .collect::<Result<_, _>>()?,
            published: match keys.optional("published") {
                Some(node) => node
                    .as_sequence()?
                    .iter()
                    .map(read_published)
                    .collect::<Result<_, _>>()?,
                None => Vec::new(),
            },
            text: Some(text.to_owned()),
        };
        keys.finish()?;
        if experiment.cases.is_empty() {
            return Err(cases.error("expected at least one case, found none"));
        }
        if experiment.benchmarks.is_empty() {
            return Err(benchmarks.error("expected at least one benchmark, found none"));
        }
        Ok(experiment)
    }

    /// A producer and a benchmark file of rosbag2_performance_benchmarking as an experiment of one case.
    pub fn of_files(id: &str, producers: ProducerConfig, benchmark: BenchmarkConfig) -> Self {
        Self {
            id: id.to_owned(),
            title: format!("files of {id}"),
            source: None,
            cases: vec![Case {
                label: id.to_owned(),
                producers,
                place: 0,
                ladder: None,
            }],
            benchmarks: vec![benchmark],
            published: Vec::new(),
            text: None,
        }
    }

    /// The same over another transport; recorders that it cannot reach are left out.
    ///
    /// # Errors
    /// When no recorder is left.
    pub fn over(mut self, transport: Transport) -> Result<Self, String> {
        for benchmark in &mut self.benchmarks {
            benchmark.transport = transport;
            let plays = benchmark.plays();
            let settings = &mut benchmark.settings;
            settings.retain(|setting| setting.recorder.is_reached_over(transport));
            if plays && transport != Transport::None {
                return Err(format!(
                    "{}: what is played back is recorded without a transport",
                    self.id
                ));
            }
        }
        self.benchmarks.retain(|benchmark| !benchmark.settings.is_empty());
        // Benchmarks that differed only by their transport are now duplicates.
        let mut distinct: Vec<BenchmarkConfig> = Vec::new();
        for benchmark in self.benchmarks {
            if !distinct.contains(&benchmark) {
                distinct.push(benchmark);
            }
        }
        self.benchmarks = distinct;
        if self.benchmarks.is_empty() {
            return Err(format!("{}: no recorder is left without its transport", self.id));
        }
        Ok(self)
    }

    /// The same with these recorders only.
    ///
    /// # Errors
    /// When it has none of them.
    pub fn recorded_by(mut self, recorders: &[RecorderKind]) -> Result<Self, String> {
        for benchmark in &mut self.benchmarks {
            let settings = &mut benchmark.settings;
            settings.retain(|setting| recorders.contains(&setting.recorder));
        }
        self.benchmarks.retain(|benchmark| !benchmark.settings.is_empty());
        if self.benchmarks.is_empty() {
            let names: Vec<String> = recorders.iter().map(ToString::to_string).collect();
            return Err(format!(
                "{}: nothing is recorded by {}",
                self.id,
                names.join(", ")
            ));
        }
        Ok(self)
    }

    /// The same with fewer or more messages of each publisher.
    pub(crate) fn scaled(mut self, scale: f64) -> Self {
        for case in &mut self.cases {
            case.producers = case.producers.scaled(scale);
        }
        self
    }
}

fn read_case(place: usize, node: &Node) -> Result<Case, YamlError> {
    let mut keys = Keys::of(node)?;
    let case = Case {
        label: keys.required("label")?.as_str()?.to_owned(),
        producers: ProducerConfig::from_node(keys.required("publishers")?)?,
        place,
        ladder: keys
            .optional("ladder")
            .map(|node| node.as_str().map(str::to_owned))
            .transpose()?,
    };
    keys.finish()?;
    Ok(case)
}

fn read_published(node: &Node) -> Result<Published, YamlError> {
    let mut keys = Keys::of(node)?;
    let text = |node: &Node| node.as_str().map(str::to_owned);
    let published = Published {
        case: text(keys.required("case")?)?,
        recorder: keys.optional("recorder").map(named).transpose()?,
        storage_id: keys.optional("storage_id").map(text).transpose()?,
        storage_preset_profile: keys.optional("storage_preset_profile").map(text).transpose()?,
        max_cache_size_bytes: keys.optional("max_cache_size").map(Node::as_number).transpose()?,
        transport: match keys.optional("no_transport").map(Node::as_bool).transpose()? {
            Some(true) => Some(Transport::None),
            Some(false) => Some(Transport::Dds),
            None => keys.optional("transport").map(Transport::read).transpose()?,
        },
        publishers: keys.optional("publishers").map(named).transpose()?,
        recorded_percent: decimal(keys.required("recorded_percent")?)?,
    };
    keys.finish()?;
    Ok(published)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"
experiment: X1
title: one load, two recorders
source: nowhere
cases:
  - label: tiny
    publishers:
      publisher_groups: [all]
      all: {publishers_count: 2, topic_root: t, msg_size_bytes: 100, msg_count_each: 10, rate_hz: 100}
benchmarks:
  - repeat_each: 3
    parameters: {recorder: [synchronous, holdall], max_cache_size: [1000000, 100000000]}
published:
  - {case: tiny, recorder: synchronous, max_cache_size: 1000000, recorded_percent: 58.66}
"#;

    #[test]
    fn published_figures_find_their_settings() {
        let experiment = Experiment::parse(SMALL).unwrap();
        let settings = &experiment.benchmarks[0].settings;
        assert_eq!(settings.len(), 4);
        let found: Vec<_> = settings
            .iter()
            .filter(|setting| experiment.published[0].is_of("tiny", Transport::None, setting))
            .collect();
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].recorder, found[0].max_cache_size_bytes),
            (RecorderKind::Synchronous, 1_000_000)
        );
    }

    #[test]
    fn an_experiment_without_cases_is_refused() {
        let text = SMALL.replace("cases:\n  - label: tiny\n    publishers:\n      publisher_groups: [all]\n      all: {publishers_count: 2, topic_root: t, msg_size_bytes: 100, msg_count_each: 10, rate_hz: 100}", "cases: []");
        assert!(
            Experiment::parse(&text)
                .unwrap_err()
                .to_string()
                .contains("at least one case")
        );
    }
}
