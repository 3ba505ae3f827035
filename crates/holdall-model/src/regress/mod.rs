//! Regression runs: what a suite asks for, how values are compared, and what a run has found.

mod frames;
mod junit;
mod page;
mod result;
mod rigid;
mod suite;
mod tolerance;
mod trajectory;

pub use frames::Frames;
pub use junit::junit;
pub use page::page;
pub use result::{
    CaseOutcome, CaseResult, FieldDistance, ImageComparison, MessageDifference, RateComparison,
    TopicComparison,
};
pub use suite::{Case, ImageLimits, Ready, Suite};
pub use tolerance::{Tolerance, Tolerances};
pub use trajectory::{Pose, Trajectory, TrajectoryComparison, TrajectoryLimits};
