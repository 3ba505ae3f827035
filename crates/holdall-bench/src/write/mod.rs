//! `holdall bench write`: producers, cache, drain and storage compared with the limits of the machine.

mod measure;
mod options;
mod report;

pub use measure::{Progress, run};
pub use options::{WriteCandidate, WriteOptions};
pub use report::{BOOTSTRAP_SEED, CandidateReport, Comparison, OptionsReport, Run, WriteReport};
