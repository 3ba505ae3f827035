//! `holdall bench write`: producers, cache, drain and storage compared with the limits of the machine.

mod measure;
mod options;
mod report;

pub use measure::{Progress, run};
pub use options::WriteCandidate;
pub use options::WriteOptions;
pub(crate) use report::BOOTSTRAP_SEED;
pub use report::CandidateReport;
pub use report::OptionsReport;
pub use report::WriteReport;
pub use report::{Comparison, Run};
