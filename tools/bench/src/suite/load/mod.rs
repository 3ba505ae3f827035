//! The load of a case: publishers with valid messages of the requested sizes, sent on an open-loop schedule
//! by few threads.

mod frame;
mod generator;
mod plan;
mod publish;
pub mod publishers;

pub use frame::Frame;
pub use frame::FrameError;
pub use generator::{Sent, generate};
pub use plan::PublishReport;
pub use plan::{PublishEvent, PublishPlan};
pub use publish::publish;
pub(crate) use publishers::channels;
pub use publishers::{Publisher, Publishers};

/// The ROS node whose topics are recorded; users' regular expressions name it.
pub(crate) const NODE: &str = "/rosbag2_performance_benchmarking_node";
