//! The suite: runs experiments of the published reports and unchanged files of
//! rosbag2_performance_benchmarking.

pub mod config;
mod disk_sheet;
pub mod experiments;
pub mod ladders;
pub mod live;
pub mod load;
pub mod noise;
pub mod report;
pub mod result;
pub mod run;
pub mod table;
