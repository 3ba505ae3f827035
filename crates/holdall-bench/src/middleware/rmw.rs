//! The worker for rmw implementations: found headers and libraries, and a program compiled against them.

use crate::{
    error::{BenchError, BenchResult},
    suite::live::installed::find_rclpy,
};
use holdall_io::fs::write_atomically_unsynced;
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

const SOURCE: &str = include_str!("../../helpers/rmw_worker.c");
/// Linked beside the implementation itself.
const LIBRARIES: [&str; 5] = [
    "librmw.so",
    "librcutils.so",
    "libstd_msgs__rosidl_typesupport_c.so",
    "libstd_msgs__rosidl_generator_c.so",
    "librosidl_runtime_c.so",
];

/// A ROS 2 that a worker can be compiled against.
#[derive(Clone, Debug)]
pub(crate) struct RosPrefix {
    path: PathBuf,
    /// Folders with libraries: its own, and those that Python packages bring.
    libraries: Vec<PathBuf>,
}

impl RosPrefix {
    /// The prefixes of `AMENT_PREFIX_PATH`, the Python with rclpy, and what is below `/opt/ros`, in this order.
    pub(crate) fn find(python: Option<&Path>) -> Option<Self> {
        let sourced = env::var_os("AMENT_PREFIX_PATH").unwrap_or_default();
        let python = find_rclpy(python).and_then(|python| Some(python.parent()?.parent()?.to_owned()));
        let mut installed: Vec<PathBuf> = entries(Path::new("/opt/ros")).collect();
        installed.sort();
        let candidates = env::split_paths(&sourced)
            .collect::<Vec<_>>()
            .into_iter()
            .chain(python)
            .chain(installed.into_iter().rev());
        candidates
            .filter(|path| path.join("include/rmw/rmw/rmw.h").is_file())
            .find_map(|path| {
                let path = path.canonicalize().ok()?;
                let packages = entries(&path.join("lib")).filter(|path| path.join("site-packages").is_dir());
                let bundled =
                    packages.flat_map(|python| entries(&python.join("site-packages")).collect::<Vec<_>>());
                let bundled =
                    bundled.filter(|path| path.extension().is_some_and(|extension| extension == "libs"));
                let libraries = std::iter::once(path.join("lib")).chain(bundled).collect();
                Some(Self { path, libraries })
            })
    }

    /// Whether an implementation is installed.
    pub(crate) fn has(&self, library: &str) -> bool {
        self.path.join("lib").join(format!("lib{library}.so")).is_file()
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Compiles the worker for an implementation into `folder`, unless that was done before.
    ///
    /// # Errors
    /// No C compiler, or one that fails: one sentence.
    pub(crate) fn worker(&self, library: &str, folder: &Path) -> BenchResult<PathBuf> {
        let program = folder.join(format!("worker_{library}"));
        // Stored after the compiler has ended: an interrupted one may leave a part.
        let compiled = program.with_extension("compiled");
        if compiled.is_file() {
            return Ok(program);
        }
        let source = folder.join("rmw_worker.c");
        write_atomically_unsynced(&source, SOURCE.as_bytes())?;
        let mut command = Command::new(env::var_os("CC").unwrap_or_else(|| "cc".into()));
        // An undeclared function would be called with wrong types.
        command.args(["-std=gnu11", "-O2", "-Werror=implicit-function-declaration"]);
        let include = self.path.join("include");
        command.arg("-I").arg(&include);
        for folder in entries(&include).filter(|path| path.is_dir()) {
            command.arg("-I").arg(folder);
        }
        command.arg(&source).arg("-o").arg(&program);
        command
            .arg("-L")
            .arg(self.path.join("lib"))
            .arg(format!("-l:lib{library}.so"));
        command.args(LIBRARIES.map(|name| format!("-l:{name}")));
        // What these libraries need themselves is found when the program starts.
        command.arg("-Wl,--allow-shlib-undefined").stdin(Stdio::null());
        let failed = |reason: String| BenchError::Program {
            program: format!("the C compiler, for {library}"),
            reason,
        };
        let output = command
            .output()
            .map_err(|error| failed(format!("cannot be started: {error}")))?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            let first = text
                .lines()
                .find(|line| line.contains("error"))
                .unwrap_or("no reason printed");
            return Err(failed(first.to_owned()));
        }
        write_atomically_unsynced(&compiled, self.path.to_string_lossy().as_bytes())?;
        Ok(program)
    }

    /// Lets the program of `command` find its libraries.
    pub(crate) fn prepare(&self, command: &mut Command) {
        let own = self.libraries.iter().cloned();
        let inherited = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        let all: Vec<PathBuf> = own.chain(env::split_paths(&inherited)).collect();
        if let Ok(joined) = env::join_paths(all) {
            command.env("LD_LIBRARY_PATH", joined);
        }
        command.env("AMENT_PREFIX_PATH", &self.path);
    }
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path())
}
