//! Configuration of the suite: producer, benchmark and experiment files in YAML, as rosbag2_performance_benchmarking has them.

mod benchmark;
mod experiment;
mod keys;
mod producers;
mod setting;

pub use benchmark::{BenchmarkConfig, Matrix};
pub use experiment::{Case, Experiment, Published};
pub use producers::{MSG_TYPE_DEFAULT, ProducerConfig, PublisherGroup};
pub use setting::{PlayRate, PublisherKind, RecorderKind, SelectionKind, Setting, Transport};

use holdall_model::yaml::YamlError;
use std::path::{Path, PathBuf};

/// A configuration file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {source}", path.display())]
pub struct ConfigError {
    /// Which file.
    pub path: PathBuf,
    /// Where in it, and what is wrong.
    pub source: YamlError,
}

impl ConfigError {
    /// Puts the name of a file to what is wrong in it.
    pub fn at(path: &Path) -> impl FnOnce(YamlError) -> Self {
        let path = path.to_owned();
        move |source| Self { path, source }
    }
}
