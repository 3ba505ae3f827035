//! Regression runs: what a suite asks for, how values are compared, and what a run has found.

mod junit;
mod page;
mod result;
mod suite;
mod tolerance;

pub use junit::junit;
pub use page::page;
pub use result::{CaseOutcome, CaseResult, FieldDistance, MessageDifference, TopicComparison};
pub use suite::{Case, Ready, Suite};
pub use tolerance::{Tolerance, Tolerances};
