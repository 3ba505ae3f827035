//! Real DDS through Cyclone DDS: the ROS graph, subscriptions without types, publishers, type descriptions.
//!
//! Three layers: `ffi*` is all that is unsafe, and offers owned, safe entities; the other files build the
//! transport from those.
//! Files that do not need Cyclone are also built for unit tests without the feature `dds`.
#![cfg_attr(
    not(feature = "dds"),
    allow(dead_code, reason = "only unit tests use it without the feature")
)]

mod announced;
mod config;
mod far_peers;
mod for_fast_dds;
mod handshake_names;
mod keys;
mod lives;
mod locators;
mod log_limit;
mod networks;
mod node_graph;
mod other_types;
mod processes;
mod qos;
mod repeats;
mod reply_identity;
mod security;
mod service_header;
mod way_back;

pub use config::DdsEnvironment;
#[cfg(test)]
pub(crate) use node_graph::NodeEntities;
#[cfg(feature = "rmw")]
pub(crate) use node_graph::{GRAPH_TOPIC, ParticipantEntities};
pub use security::Security;

#[cfg(feature = "dds")]
mod announcement;
#[cfg(feature = "dds")]
mod discovery;
#[cfg(feature = "dds")]
mod ffi_alloc;
#[cfg(feature = "dds")]
mod ffi_announcing;
#[cfg(feature = "dds")]
mod ffi_announcing_again;
#[cfg(feature = "dds")]
mod ffi_drops;
mod ffi_entity;
#[cfg(feature = "dds")]
mod ffi_globals;
#[cfg(feature = "sros2")]
mod ffi_handshake;
#[cfg(feature = "dds")]
mod ffi_hosts;
#[cfg(feature = "dds")]
mod ffi_log;
#[cfg(feature = "dds")]
mod ffi_qos;
#[cfg(feature = "dds")]
mod ffi_sertype;
#[cfg(feature = "dds")]
mod ffi_service;
#[cfg(feature = "dds")]
mod ffi_trial;
#[cfg(feature = "dds")]
mod peers;
#[cfg(feature = "dds")]
mod publisher;
#[cfg(feature = "dds")]
mod service;
#[cfg(feature = "dds")]
mod service_inbox;
#[cfg(feature = "dds")]
mod subscription;
#[cfg(feature = "dds")]
mod transport;
#[cfg(feature = "dds")]
mod type_description;
mod unheard;

#[cfg(feature = "dds")]
pub(crate) use transport::BACKEND;
#[cfg(feature = "dds")]
pub use transport::{DdsOptions, DdsTransport};
