//! The evaluation of middlewares: two workers on the two ends of a link, one publishes to a schedule, one receives, and every planned message
//! is accounted for.

mod account;
mod charts;
mod config;
mod name;
mod published;
mod result;
mod rmw;
mod run;
mod table;
pub mod worker;

pub use account::{Account, account};
pub(crate) use charts::{Context, charts};
pub use config::{CaseKind, EvaluatedLink, Evaluation, MiddlewareCase};
pub use name::Middleware;
pub use published::PublishedEvaluation;
pub use result::{ClockOffset, Discovery, EvaluationResult, MiddlewareRun, RESULT_FILE, WorkerCost};
pub use run::{CONTROL_PORT, run, serve};
pub use table::evaluation_table;
pub(crate) use table::{Cell, WORDS, cells, sheets};
