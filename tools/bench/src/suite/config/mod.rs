//! Configuration of the suite: producer, benchmark and experiment files in YAML, in the format of
//! rosbag2_performance_benchmarking.

mod benchmark;
mod experiment;
mod producers;
mod setting;
pub(crate) mod values;

pub use benchmark::BenchmarkConfig;
pub use experiment::{Case, Experiment, Published};
pub(crate) use producers::MSG_TYPE_DEFAULT;
pub use producers::ProducerConfig;
pub use producers::PublisherGroup;
pub use setting::PlayRate;
pub use setting::PublisherKind;
pub use setting::SelectionKind;
pub use setting::{RecorderKind, Setting, Transport};

use holdall_model::yaml::YamlError;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// A configuration file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {source}", path.display())]
pub struct ConfigError {
    /// The file.
    pub path: PathBuf,
    /// The line and the fault.
    pub source: YamlError,
}

impl ConfigError {
    /// Reads a file and parses its text with `parse`.
    ///
    /// # Errors
    /// A file that cannot be read, or the error of `parse`, with the file's name.
    pub fn of_file<T>(path: &Path, parse: impl FnOnce(&str) -> Result<T, YamlError>) -> Result<T, Self> {
        let text =
            fs::read_to_string(path).map_err(|error| YamlError::new(1, format!("cannot be read: {error}")));
        text.and_then(|text| parse(&text)).map_err(Self::at(path))
    }

    /// Adds the name of the file to an error.
    pub fn at(path: &Path) -> impl FnOnce(YamlError) -> Self {
        let path = path.to_owned();
        move |source| Self { path, source }
    }
}
