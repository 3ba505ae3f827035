//! Finished rounds of `bench storage`, kept next to its results until the last one, so that an interrupted
//! run can be resumed.

use super::{measure::StorageBenchOptions, report::StorageRun};
use crate::error::{BenchError, BenchResult};
use holdall_io::fs::write_atomically_unsynced;
use serde::{Deserialize, Serialize};
use std::{fs, io::ErrorKind, path::Path};

const FILE: &str = "rounds.json";

/// What was measured, and its rounds.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Rounds {
    cells: Vec<String>,
    total_bytes: u64,
    content: String,
    disk: String,
    seed: u64,
    rounds: Vec<Vec<StorageRun>>,
}

/// The finished rounds of an interrupted run with the same options if it is to be resumed; else none. Removes
/// the file, and the interrupted run's unfinished output.
///
/// # Errors
/// Rounds of another run, or a file that cannot be read.
pub(super) fn load(options: &StorageBenchOptions, cells: &[String]) -> BenchResult<Rounds> {
    let wanted = Rounds {
        cells: cells.to_vec(),
        total_bytes: options.total_bytes,
        content: options.content.to_string(),
        disk: format!("{:?}", options.disk),
        seed: options.seed,
        rounds: Vec::new(),
    };
    let path = options.out.join(FILE);
    if !options.resume || !path.is_file() {
        return Ok(wanted);
    }
    let text = fs::read_to_string(&path).map_err(BenchError::io("read", &path))?;
    let found: Rounds = serde_json::from_str(&text).map_err(|error| BenchError::Verify {
        path: path.clone(),
        reason: format!("does not hold rounds of bench storage: {error}"),
    })?;
    let is_whole = found.rounds.iter().all(|runs| runs.len() == cells.len());
    let same = |rounds: &Rounds| {
        (
            rounds.cells.clone(),
            rounds.total_bytes,
            rounds.content.clone(),
            rounds.disk.clone(),
            rounds.seed,
        )
    };
    if !is_whole || same(&found) != same(&wanted) {
        return Err(BenchError::Option {
            option: "--resume",
            expected: "the same sizes, batches, configurations and total as the run that was interrupted"
                .to_owned(),
            found: format!("different ones in {}", path.display()),
        });
    }
    if !options.keep {
        let files = options.out.join("files");
        match fs::remove_dir_all(&files) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(BenchError::io("remove", &files)(error));
            }
            _ => {}
        }
    }
    remove(&options.out)?;
    Ok(found)
}

/// Removes the file, if it exists.
pub(super) fn remove(out: &Path) -> BenchResult<()> {
    let path = out.join(FILE);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(BenchError::io("remove", &path)(error)),
        _ => Ok(()),
    }
}

impl Rounds {
    /// All rounds in order.
    pub fn rounds(&self) -> impl Iterator<Item = &[StorageRun]> {
        self.rounds.iter().map(Vec::as_slice)
    }

    /// Number of rounds.
    pub fn count(&self) -> u32 {
        u32::try_from(self.rounds.len()).unwrap_or(u32::MAX)
    }

    /// Adds a round.
    pub fn push(&mut self, runs: Vec<StorageRun>) {
        self.rounds.push(runs);
    }

    /// Keeps them in the folder, if there are any.
    pub fn store(&self, out: &Path) -> BenchResult<()> {
        if self.rounds.is_empty() {
            return Ok(());
        }
        let path = out.join(FILE);
        let text = serde_json::to_string(self).map_err(|error| BenchError::Verify {
            path: path.clone(),
            reason: error.to_string(),
        })?;
        Ok(write_atomically_unsynced(&path, text.as_bytes())?)
    }
}
