//! The committed baseline: the costs of messages when it was last renewed.

use crate::{
    engine::load,
    error::{BenchError, BenchResult},
};
use holdall_io::fs::write_atomically;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, path::Path};

/// The costs of one message of a workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// Instructions in our code.
    pub instructions: f64,
    /// Allocations, growing of existing ones included.
    pub allocations: f64,
    /// Bytes that went through memcpy and its like, in payloads: 1 is one copy of the message. Non-temporal
    /// copies and those of a few bytes count as our instructions instead.
    pub copies: f64,
    /// Payload bytes a second divided by the speed of memcpy in the same run.
    pub ratio_to_memcpy: f64,
    /// Instructions by function: the relevant ones, largest first.
    pub functions: Functions,
}

/// Instructions of a message by function.
pub type Functions = BTreeMap<String, f64>;

/// Costs of all workloads, and the facts they depend on in addition to the code.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    /// `rustc --version` of the compiler.
    pub rustc: String,
    /// Architecture of the processor.
    pub architecture: String,
    /// Version of valgrind.
    pub valgrind: String,
    /// Costs by workload.
    pub workloads: BTreeMap<String, Costs>,
}

impl Baseline {
    /// Reads a baseline.
    ///
    /// # Errors
    /// A file that cannot be read or is not a baseline.
    pub fn load(path: &Path) -> BenchResult<Self> {
        load(path, "a baseline of the gate")
    }

    /// Writes it, completely or not at all.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn store(&self, path: &Path) -> BenchResult<()> {
        let text = serde_json::to_string_pretty(&self.rounded()).map_err(BenchError::json(path))?;
        Ok(write_atomically(path, (text + "\n").as_bytes())?)
    }

    /// Rounds to significant digits, so that a renewed file differs only where the costs have changed.
    fn rounded(&self) -> Self {
        let digits = |value: f64, factor: f64| (value * factor).round() / factor;
        let costs = |costs: &Costs| Costs {
            instructions: digits(costs.instructions, 10.0),
            allocations: digits(costs.allocations, 1e3),
            copies: digits(costs.copies, 1e3),
            ratio_to_memcpy: digits(costs.ratio_to_memcpy, 1e3),
            functions: costs
                .functions
                .iter()
                .map(|(name, instructions)| (name.clone(), digits(*instructions, 10.0)))
                .collect(),
        };
        let mut rounded = self.clone();
        rounded.workloads.values_mut().for_each(|one| *one = costs(one));
        rounded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_baseline_is_stored_with_few_digits_and_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("baseline.json");
        let costs = Costs {
            instructions: 312.345,
            copies: 1.000_04,
            functions: [("holdall::offer".to_owned(), 101.26)].into(),
            ..Costs::default()
        };
        let baseline = Baseline {
            rustc: "rustc 1.95.0".to_owned(),
            workloads: [("offer-100B".to_owned(), costs)].into(),
            ..Baseline::default()
        };
        baseline.store(&path).unwrap();
        let read = Baseline::load(&path).unwrap();
        let costs = &read.workloads["offer-100B"];
        assert_eq!((costs.instructions, costs.copies), (312.3, 1.0));
        assert_eq!(costs.functions["holdall::offer"], 101.3);
        std::fs::write(&path, "{}").unwrap();
        let sentence = Baseline::load(&path).unwrap_err().to_string();
        assert!(sentence.contains("is not a baseline"), "{sentence}");
    }
}
