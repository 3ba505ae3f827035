//! Experiment files: several loads and benchmarks under one name, with their published figures.

use super::{BenchmarkConfig, ProducerConfig, PublisherKind, RecorderKind, Setting, Transport, values::some};
use holdall_model::yaml::{YamlError, read_into};
use serde::Deserialize;

/// One load.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Its name in tables.
    pub label: String,
    /// The publishers.
    #[serde(rename = "publishers")]
    pub producers: ProducerConfig,
    /// Its position in its file, from 0: the name of its results' folder, whichever cases are run.
    #[serde(skip)]
    pub place: usize,
    /// Cases of one ladder are the same load in growing amounts; the report finds the first loss on it.
    pub ladder: Option<String>,
}

/// A figure of a published report.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// The case's label.
    pub case: String,
    /// Applies to this recorder only.
    pub recorder: Option<RecorderKind>,
    /// Applies to this storage only.
    pub storage_id: Option<String>,
    /// Applies to this preset only (empty for none).
    pub storage_preset_profile: Option<String>,
    /// Applies to this cache size only, in bytes.
    #[serde(rename = "max_cache_size")]
    pub max_cache_size_bytes: Option<u64>,
    /// Applies without a transport only, or over DDS only.
    pub no_transport: Option<bool>,
    /// Applies to this transport only.
    pub transport: Option<Transport>,
    /// Applies to these publishers only.
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
        let is_none = self.no_transport;
        let transport_by_key = is_none.map(|is_none| if is_none { Transport::None } else { Transport::Dds });
        self.case == case
            && fits(transport_by_key.or(self.transport).as_ref(), &transport)
            && fits(self.publishers.as_ref(), &setting.publishers)
            && fits(self.recorder.as_ref(), &setting.recorder)
            && fits(self.storage_id.as_ref(), &setting.storage_id)
            && fits(self.storage_preset_profile.as_ref(), &preset)
            && fits(self.max_cache_size_bytes.as_ref(), &setting.max_cache_size_bytes)
    }
}

/// Loads and benchmarks that belong together: every case runs with every combination of every benchmark.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Its short name, for example `A6`.
    #[serde(rename = "experiment")]
    pub id: String,
    /// Its purpose, one clause.
    pub title: String,
    /// The publication it follows.
    pub source: Option<String>,
    /// The load.
    #[serde(deserialize_with = "some")]
    pub cases: Vec<Case>,
    /// The benchmarks.
    #[serde(deserialize_with = "some")]
    pub benchmarks: Vec<BenchmarkConfig>,
    /// Published figures.
    #[serde(default)]
    pub published: Vec<Published>,
    /// The file's text, kept with the results; empty for two files of rosbag2_performance_benchmarking.
    #[serde(skip)]
    pub text: Option<String>,
}

impl Experiment {
    /// Reads the text of an experiment file.
    ///
    /// # Errors
    /// An unknown key or value.
    pub fn parse(text: &str) -> Result<Self, YamlError> {
        let mut experiment: Self = read_into(text)?;
        for (place, case) in experiment.cases.iter_mut().enumerate() {
            case.place = place;
        }
        experiment.text = Some(text.to_owned());
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
    /// When no recorder remains.
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

    /// The same with fewer or more messages of each publisher. A shorter load gets caches that are as much smaller, but for the largest message, so that
    /// they are as soon full.
    pub(crate) fn scaled(mut self, scale: f64) -> Self {
        for case in &mut self.cases {
            case.producers = case.producers.scaled(scale);
        }
        let groups = self.cases.iter().flat_map(|case| &case.producers.groups);
        let message_bytes = groups.map(|group| group.msg_size_bytes as u64).max().unwrap_or(0);
        let smaller = |bytes: &mut u64| {
            let scaled = (*bytes as f64 * scale.min(1.0)).round() as u64;
            *bytes = scaled.max(message_bytes.min(*bytes));
        };
        let settings = self
            .benchmarks
            .iter_mut()
            .flat_map(|benchmark| &mut benchmark.settings);
        settings.for_each(|setting| smaller(&mut setting.max_cache_size_bytes));
        let published = self.published.iter_mut();
        published
            .filter_map(|one| one.max_cache_size_bytes.as_mut())
            .for_each(smaller);
        self
    }
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
    fn a_shorter_load_has_smaller_caches_that_hold_a_message() {
        let caches = |scale| {
            let scaled = Experiment::parse(SMALL).unwrap().scaled(scale);
            let settings = scaled.benchmarks[0].settings.clone();
            let found = |setting: &&Setting| scaled.published[0].is_of("tiny", Transport::None, setting);
            assert_eq!(settings.iter().filter(found).count(), 1, "{scale}");
            let bytes = settings.iter().map(|setting| setting.max_cache_size_bytes);
            bytes
                .collect::<std::collections::BTreeSet<_>>()
                .into_iter()
                .collect::<Vec<_>>()
        };
        assert_eq!(caches(0.1), [100_000, 10_000_000]);
        assert_eq!(caches(0.000_01), [100, 1000]);
        assert_eq!(caches(3.0), [1_000_000, 100_000_000]);
    }

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
                .contains("cases: expected at least one")
        );
    }
}
