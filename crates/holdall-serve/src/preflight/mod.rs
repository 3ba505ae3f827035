//! Will a recording fit? A trial with the real recorder, and a forecast from its figures.
//!
//! [`measure`] records for a while into a scratch bag of bounded size where the bag will be, and returns what came, what it cost, and what disk and
//! machine have. [`forecast()`] is a pure function of that: how many times the load can be recorded before the first message is lost, how long the disk
//! lasts, which topic costs most, and what must change.

mod arrivals;
mod figures;
mod forecast;
mod trial;

pub use figures::{
    BURST_MS, DiskFigures, MachineFigures, Measured, RecorderFigures, TopicFigures, TotalFigures,
};
pub use forecast::{Answer, Forecast, Limit, LimitKind, Problem, ProblemKind, TopicCost, by_cost, forecast};
pub use trial::{PreflightError, Progress, measure};
