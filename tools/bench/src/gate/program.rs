//! The program with the workloads: builds it from the source tree, lists its workloads, runs them.

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

/// Path of the baseline in the source tree.
pub const BASELINE_FILE: &str = "tools/bench/gate/baseline.json";

/// The source tree that contains `from`.
///
/// # Errors
/// When none is found.
pub fn source_tree(from: &Path) -> BenchResult<PathBuf> {
    let has_workloads = |folder: &&Path| folder.join("crates").join(CRATE).join("Cargo.toml").is_file();
    let found = from.ancestors().find(has_workloads);
    found.map(Path::to_owned).ok_or_else(|| {
        let expected = "to be run in holdall's source tree, whose baseline it compares with";
        BenchError::option("bench gate", expected, from.display().to_string())
    })
}

/// A workload, and its default number of messages.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Workload {
    pub name: String,
    pub messages: u64,
}

/// The output of a plain run.
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
    /// `rustc --version` of its compiler.
    pub rustc: String,
}

/// A line of `cargo build --message-format=json`, with the fields that are used.
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
/// No cargo; code that does not compile (cargo's errors are on standard error).
pub fn build(tree: &Path) -> BenchResult<WorkloadProgram> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(&cargo)
        .current_dir(tree)
        .args(["build", "--quiet", "--package", CRATE, "--profile", PROFILE])
        .arg("--message-format=json-render-diagnostics")
        // With incremental compilation rustc inlines less across crates: up to 15 % more instructions were counted.
        .env("CARGO_INCREMENTAL", "0")
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(BenchError::io("start", PathBuf::from(&cargo)))?;
    let program = format!("cargo build --package {CRATE} --profile {PROFILE}");
    let failed = |reason| BenchError::program(&program, reason);
    if !output.status.success() {
        return Err(failed("failed; its errors are above"));
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let path = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<CargoMessage>(line).ok())
        .filter(|message| message.target.as_ref().is_some_and(|target| target.name == CRATE))
        .find_map(|message| message.executable)
        .ok_or_else(|| failed("reported no program"))?;
    WorkloadProgram::built(path, tree)
}

impl WorkloadProgram {
    /// One that was already built from `tree`.
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
        self.query(&["list"])
    }

    /// Runs a workload without valgrind.
    pub(super) fn run(&self, name: &str, messages: u64) -> BenchResult<PlainRun> {
        self.query(&[name, &messages.to_string()])
    }

    /// How fast memory is copied here, in bytes a second.
    pub(super) fn memcpy_bytes_per_s(&self) -> BenchResult<f64> {
        self.query(&["memcpy"])
    }

    fn query<T: DeserializeOwned>(&self, arguments: &[&str]) -> BenchResult<T> {
        let output = Command::new(&self.path)
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .map_err(BenchError::io("start", &self.path))?;
        let program = format!("{} {}", self.path.display(), arguments.join(" "));
        let failed = |reason: String| BenchError::program(&program, reason);
        if !output.status.success() {
            let printed = String::from_utf8_lossy(&output.stderr);
            return Err(failed(format!(
                "failed with: {}",
                printed.lines().last().unwrap_or("nothing")
            )));
        }
        serde_json::from_slice(&output.stdout)
            .map_err(|error| failed(format!("gave an invalid answer: {error}")))
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
