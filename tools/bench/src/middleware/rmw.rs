//! Workers for rmw implementations: finds ROS 2, and gives a program the variables that it needs.

use crate::suite::live::installed::find_rclpy;
use holdall_transport::registry;
use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The transport that calls them.
const TRANSPORT: &str = "rmw";

/// A ROS 2 with headers.
#[derive(Clone, Debug)]
pub(crate) struct RosPrefix {
    path: PathBuf,
    /// Every prefix, if it was sourced; else this one.
    prefixes: OsString,
    /// Folders with libraries: its own, those that Python packages bring, and those that the environment names.
    libraries: OsString,
}

impl RosPrefix {
    /// Searches the prefixes of `AMENT_PREFIX_PATH`, the Python with rclpy, and the folders below `/opt/ros`, in this
    /// order.
    pub(crate) fn find(python: Option<&Path>) -> Option<Self> {
        let sourced = env::var_os("AMENT_PREFIX_PATH").unwrap_or_default();
        let python = find_rclpy(python).and_then(|python| Some(python.parent()?.parent()?.to_owned()));
        let mut installed: Vec<PathBuf> = entries(Path::new("/opt/ros")).collect();
        installed.sort();
        let of_environment: Vec<PathBuf> = env::split_paths(&sourced).collect();
        let candidates = of_environment.iter().cloned().chain(python);
        let path = candidates
            .chain(installed.into_iter().rev())
            .find(|path| path.join("include/rmw/rmw/rmw.h").is_file())?;
        let prefixes = if of_environment.contains(&path) {
            sourced
        } else {
            path.clone().into_os_string()
        };
        let packages = entries(&path.join("lib")).map(|python| python.join("site-packages"));
        let bundled = packages.flat_map(|packages| entries(&packages).collect::<Vec<_>>());
        let bundled = bundled.filter(|path| path.extension().is_some_and(|extension| extension == "libs"));
        let inherited = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        let libraries = std::iter::once(path.join("lib"))
            .chain(bundled)
            .chain(env::split_paths(&inherited));
        let libraries = env::join_paths(libraries).ok()?;
        Some(Self {
            path,
            prefixes,
            libraries,
        })
    }
    /// Why a worker of an implementation cannot be started. Compiles the parts that it needs, if not done yet.
    pub(crate) fn missing(&self, library: &str) -> Option<String> {
        let variable = |name: &str| {
            let own = self.variables(library).into_iter().find(|(key, _)| *key == name);
            let value = own.map(|(_, value)| value).or_else(|| env::var_os(name))?;
            Some(value.to_string_lossy().into_owned()).filter(|value| !value.is_empty())
        };
        registry::missing(TRANSPORT, &variable)
    }

    /// An implementation with its version, as its package states it. Results are read elsewhere: where it is installed is of no use there.
    pub(crate) fn title(&self, library: &str) -> String {
        let about = fs::read_to_string(self.path.join("share").join(library).join("package.xml"));
        let about = about.unwrap_or_default();
        let version = about
            .split_once("<version>")
            .and_then(|(_, rest)| rest.split_once('<'));
        version.map_or(library.to_owned(), |(version, _)| {
            format!("{library} {}", version.trim())
        })
    }

    /// Lets `command`, a worker of this program, use an implementation.
    pub(crate) fn prepare(&self, command: &mut Command, library: &str) {
        command
            .args(["--transport", TRANSPORT])
            .envs(self.variables(library));
    }

    fn variables(&self, library: &str) -> [(&'static str, OsString); 3] {
        [
            ("AMENT_PREFIX_PATH", self.prefixes.clone()),
            ("LD_LIBRARY_PATH", self.libraries.clone()),
            ("RMW_IMPLEMENTATION", library.into()),
        ]
    }
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path())
}
