//! Configuration of the suite: producer, benchmark and experiment files in YAML, as rosbag2_performance_benchmarking has them.

mod benchmark;
mod experiment;
mod keys;
mod producers;
mod setting;

pub use benchmark::{BenchmarkConfig, Matrix};
pub use experiment::{Case, Experiment, Published};
pub(crate) use keys::{Keys, decimal};
pub use producers::{MSG_TYPE_DEFAULT, ProducerConfig, PublisherGroup};
pub use setting::{PlayRate, PublisherKind, RecorderKind, SelectionKind, Setting, Transport};

use holdall_model::yaml::YamlError;
use std::{
    fs,
    path::{Path, PathBuf},
};

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
    /// Reads a file and makes of its text what `parse` does.
    ///
    /// # Errors
    /// A file that cannot be read, or what `parse` refuses, with the file's name.
    pub fn of_file<T>(path: &Path, parse: impl FnOnce(&str) -> Result<T, YamlError>) -> Result<T, Self> {
        let text =
            fs::read_to_string(path).map_err(|error| YamlError::new(1, format!("cannot be read: {error}")));
        text.and_then(|text| parse(&text)).map_err(Self::at(path))
    }

    /// Puts the name of a file to what is wrong in it.
    pub fn at(path: &Path) -> impl FnOnce(YamlError) -> Self {
        let path = path.to_owned();
        move |source| Self { path, source }
    }
}
