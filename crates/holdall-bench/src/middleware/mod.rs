//! The evaluation of middlewares: two workers on the two ends of a link, one publishes to a schedule, one receives, and every planned message
//! is accounted for.

mod account;
mod config;
mod plots;
mod published;
mod raster;
mod result;
mod rmw;
mod run;
mod table;
pub mod worker;

pub use account::{Account, account};
pub use config::{EvaluatedLink, Evaluation, Middleware, MiddlewareCase};
pub(crate) use plots::{Context, plots};
pub use published::PublishedEvaluation;
pub use result::{EvaluationResult, MiddlewareRun, RESULT_FILE, WorkerCost};
pub use run::{EvaluationOptions, EvaluationProgress, run};
pub use table::evaluation_table;
pub(crate) use table::{WORDS, sheets};
