//! `holdall bench storage`: raw write rates of storages alone, like rosbag2's storage plugin comparison.

mod comparison;
mod comparison_config;
mod configuration;
mod measure;
mod report;
mod rounds;

pub use comparison::ComparisonReport;
pub use comparison::ComparisonRun;
pub use comparison::{ComparisonOptions, run_comparison};
pub use comparison_config::ComparisonConfig;
pub use comparison_config::ComparisonTopic;
pub use configuration::{StorageConfiguration, absent_configurations, default_configurations};
use measure::LIMIT_BYTES_MIN;
pub use measure::{StorageBenchOptions, run};
pub use report::Cell;
pub use report::StorageReport;
pub use report::StorageRun;
pub(crate) use report::batch_label;
