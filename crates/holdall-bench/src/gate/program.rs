//! The program with the workloads: built from the source tree, asked which there are, run.

use crate::error::{BenchError, BenchResult};
use serde::{Deserialize, de::DeserializeOwned};
use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The crate of the workloads, and the name of its program.
const CRATE: &str = "holdall-gate";

/// The profile that it is built with.
const PROFILE: &str = "gate";

/// Where the baseline is in the source tree.
pub const BASELINE_FILE: &str = "crates/holdall-bench/gate/baseline.json";

/// The source tree that `from` is in.
///
/// # Errors
/// When it is in none.
pub fn source_tree(from: &Path) -> BenchResult<PathBuf> {
    let has_workloads = |folder: &&Path| folder.join("crates").join(CRATE).join("Cargo.toml").is_file();
    let found = from.ancestors().find(has_workloads);
    found.map(Path::to_owned).ok_or_else(|| BenchError::Option {
        option: "bench gate",
        expected: "to be run in holdall's source tree, whose baseline it compares with".to_owned(),
        found: from.display().to_string(),
    })
}

/// A workload, and how many messages of it are enough.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Workload {
    pub name: String,
    pub messages: u64,
}

/// What a plain run tells.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) struct PlainRun {
    pub bytes: u64,
    pub allocations: u64,
    pub elapsed_s: f64,
}

/// The program.
#[derive(Clone, Debug)]
pub struct WorkloadProgram {
    /// Its file.
    pub path: PathBuf,
    /// `rustc --version` of the compiler that has built it.
    pub rustc: String,
}

/// A line of `cargo build --message-format=json`, as far as it matters here.
#[derive(Deserialize)]
struct CargoMessage {
    #[serde(default)]
    executable: Option<PathBuf>,
    #[serde(default)]
    target: Option<CargoTarget>,
}

#[derive(Deserialize)]
struct CargoTarget {
    name: String,
}

/// Builds the workloads of a source tree.
///
/// # Errors
/// No cargo; code that does not compile, of which cargo has told more on standard error.
pub fn build(tree: &Path) -> BenchResult<WorkloadProgram> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(&cargo)
        .current_dir(tree)
        .args(["build", "--quiet", "--package", CRATE, "--profile", PROFILE])
        .arg("--message-format=json-render-diagnostics")
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(BenchError::io("start", PathBuf::from(&cargo)))?;
    let failed = |reason: &str| BenchError::Program {
        program: format!("cargo build --package {CRATE} --profile {PROFILE}"),
        reason: reason.to_owned(),
    };
    if !output.status.success() {
        return Err(failed("failed; what it said is above"));
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let path = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<CargoMessage>(line).ok())
        .filter(|message| message.target.as_ref().is_some_and(|target| target.name == CRATE))
        .find_map(|message| message.executable)
        .ok_or_else(|| failed("told of no program"))?;
    WorkloadProgram::built(path, tree)
}

impl WorkloadProgram {
    /// One that was built from `tree` before.
    ///
    /// # Errors
    /// No rustc.
    pub fn built(path: PathBuf, tree: &Path) -> BenchResult<Self> {
        let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let version = Command::new(&rustc)
            .current_dir(tree)
            .arg("--version")
            .output()
            .map_err(BenchError::io("start", PathBuf::from(&rustc)))?;
        Ok(Self {
            // As callgrind names it.
            path: path.canonicalize().map_err(BenchError::io("find", &path))?,
            rustc: String::from_utf8_lossy(&version.stdout).trim().to_owned(),
        })
    }

    /// Its workloads.
    pub(super) fn workloads(&self) -> BenchResult<Vec<Workload>> {
        self.ask(&["list"])
    }

    /// Runs a workload without valgrind.
    pub(super) fn run(&self, name: &str, messages: u64) -> BenchResult<PlainRun> {
        self.ask(&[name, &messages.to_string()])
    }

    /// How fast memory is copied here, in bytes a second.
    pub(super) fn memcpy_bytes_per_s(&self) -> BenchResult<f64> {
        self.ask(&["memcpy"])
    }

    fn ask<T: DeserializeOwned>(&self, arguments: &[&str]) -> BenchResult<T> {
        let output = Command::new(&self.path)
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .map_err(BenchError::io("start", &self.path))?;
        let failed = |reason: String| BenchError::Program {
            program: format!("{} {}", self.path.display(), arguments.join(" ")),
            reason,
        };
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(failed(format!(
                "failed; it said: {}",
                said.lines().last().unwrap_or("nothing")
            )));
        }
        serde_json::from_slice(&output.stdout)
            .map_err(|error| failed(format!("gave an answer that is none: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_tree_is_found_from_within_and_missed_from_outside() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let tree = source_tree(here).unwrap();
        assert!(tree.join(BASELINE_FILE).parent().unwrap().is_dir());
        let error = source_tree(Path::new("/")).unwrap_err();
        assert!(
            error.is_refusal() && error.to_string().contains("source tree"),
            "{error}"
        );
    }

    #[test]
    fn cargos_answer_names_the_program() {
        let line = r#"{"reason":"compiler-artifact","package_id":"x","target":{"kind":["bin"],"name":"holdall-gate"},"executable":"/t/holdall-gate","fresh":true}"#;
        let message: CargoMessage = serde_json::from_str(line).unwrap();
        assert_eq!(message.executable, Some("/t/holdall-gate".into()));
        let other: CargoMessage =
            serde_json::from_str(r#"{"reason":"build-finished","success":true}"#).unwrap();
        assert!(other.executable.is_none() && other.target.is_none());
    }
}
