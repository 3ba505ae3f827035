//! Input of the resolution of a command line in addition to its words: environment, local time, files;
//! replaceable in tests.

use holdall::node::Distribution;
pub use holdall_program::settings::read_small_file;
use jiff::civil::DateTime;
use std::{ffi::OsString, io, path::Path};

/// The surroundings of a run.
pub struct Surroundings<'a> {
    /// Value of an environment variable.
    pub environment: &'a dyn Fn(&str) -> Option<OsString>,
    /// The local time.
    pub local_time: DateTime,
    /// Reads a text file.
    pub read_file: &'a dyn Fn(&Path) -> io::Result<String>,
    /// Returns whether something is at a path (a dangling link counts).
    pub exists: &'a dyn Fn(&Path) -> bool,
}

impl Surroundings<'_> {
    /// Value of an environment variable as text; `None` if it is not set or empty.
    pub fn variable(&self, name: &str) -> Option<String> {
        (self.environment)(name)
            .map(|value| value.to_string_lossy().into_owned())
            .filter(|value| !value.is_empty())
    }

    /// The distribution of ROS 2 that is sourced, where `ROS_DISTRO` has one.
    pub fn distribution(&self) -> Option<Distribution> {
        let name = self.variable("ROS_DISTRO")?;
        Some(Distribution::from_name(&name))
    }
}

/// The real surroundings; `now` is the time of day.
pub fn real(now: holdall_model::time::Timestamp) -> Surroundings<'static> {
    let local_time = jiff::Timestamp::from_nanosecond(i128::from(now.as_nanos()))
        .unwrap_or(jiff::Timestamp::UNIX_EPOCH)
        .to_zoned(jiff::tz::TimeZone::system())
        .datetime();
    Surroundings {
        environment: &|name| std::env::var_os(name),
        local_time,
        read_file: &read_small_file,
        exists: &|path| path.symlink_metadata().is_ok(),
    }
}

#[cfg(test)]
pub mod fake {
    //! Surroundings made up for tests.

    use super::Surroundings;
    use std::{collections::BTreeMap, io, path::Path};

    /// The surroundings of a test.
    #[derive(Default)]
    pub struct Fake {
        /// Environment variables.
        pub variables: BTreeMap<&'static str, &'static str>,
        /// Files with their texts.
        pub files: BTreeMap<&'static str, &'static str>,
    }

    impl Fake {
        /// Calls `test` with these surroundings, at 2024-03-09 08:07:06 local time.
        pub fn with<T>(&self, test: impl FnOnce(&Surroundings<'_>) -> T) -> T {
            let read_file = |path: &Path| {
                let text = path.to_str().and_then(|path| self.files.get(path));
                text.map(ToString::to_string)
                    .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
            };
            test(&Surroundings {
                environment: &|name| self.variables.get(name).map(Into::into),
                local_time: jiff::civil::date(2024, 3, 9).at(8, 7, 6, 0),
                read_file: &read_file,
                exists: &|path| path.to_str().is_some_and(|path| self.files.contains_key(path)),
            })
        }
    }
}
