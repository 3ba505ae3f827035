//! Real DDS through Cyclone DDS: the ROS graph, subscriptions without types, publishers, type descriptions.
//!
//! Floors, each of which names only those before it: `wire` (packets as bytes), `reach` (networks and who is heard), `settings`, `ffi` (all that is
//! unsafe: Cyclone as owned, safe entities), `graph`, `services`; the files beside them are the transport made of these.
//! Files that do not need Cyclone are also built for unit tests without the feature `dds`.
#![cfg_attr(
    not(feature = "dds"),
    allow(dead_code, reason = "only unit tests use it without the feature")
)]

mod ffi;
mod graph;
#[cfg(feature = "dds")]
mod publisher;
mod reach;
mod services;
mod settings;
#[cfg(feature = "dds")]
mod subscription;
#[cfg(feature = "dds")]
mod transport;
mod wire;

#[cfg(test)]
pub(crate) use graph::node_graph::NodeEntities;
#[cfg(feature = "rmw")]
pub(crate) use graph::node_graph::{GRAPH_TOPIC, ParticipantEntities};
pub use settings::config::DdsEnvironment;
pub use settings::security::Security;

#[cfg(feature = "dds")]
pub(crate) use transport::BACKEND;
#[cfg(feature = "dds")]
pub use transport::{DdsOptions, DdsTransport};
