//! `holdall bench storage`: raw write rates of storages alone, after the storage plugin comparison of rosbag2.

mod configuration;
mod measure;
mod report;

pub use configuration::{StorageConfiguration, default_configurations};
pub use measure::{StorageBenchOptions, run};
pub use report::{Cell, StorageReport, StorageRun, batch_label};
