//! Joins the ROS graph with the transport that this build has.

use crate::exit::Failure;
use holdall_io::clock::Clock;
use holdall_transport::Transport;
use std::sync::Arc;

/// Joins the domain that the environment names, as a node of this name.
#[cfg(feature = "dds")]
pub fn join(node_name: &str, clock: Arc<dyn Clock>) -> Result<Box<dyn Transport>, Failure> {
    use holdall_transport::dds::{DdsOptions, DdsTransport};
    let options = DdsOptions::for_node(node_name);
    options.environment.check().map_err(Failure::refused)?;
    let transport = DdsTransport::new(&options, clock).map_err(Failure::failed)?;
    Ok(Box::new(transport))
}

/// Tells that there is none.
#[cfg(not(feature = "dds"))]
pub fn join(_node_name: &str, _clock: Arc<dyn Clock>) -> Result<Box<dyn Transport>, Failure> {
    Err(Failure::refused(
        "this build of holdall has no DDS, so it cannot reach live topics; build it with --features dds",
    ))
}
