//! Transports: from live topics to subscriptions, and from bags to publishers. Each backend is a folder with the same files.

#[cfg(any(test, feature = "dds", feature = "rmw"))]
pub mod dds;
#[cfg_attr(
    not(any(test, feature = "dds", feature = "rmw")),
    allow(dead_code, reason = "only these transports know of changes")
)]
mod graph_news;
#[cfg(feature = "iceoryx2")]
pub mod iceoryx2;
pub mod memory;
pub mod registry;
#[cfg(feature = "rmw")]
pub mod rmw;
mod service;
mod transport;
#[cfg(any(test, feature = "dds", feature = "zenoh"))]
#[cfg_attr(
    not(all(feature = "dds", feature = "zenoh")),
    allow(dead_code, reason = "each transport uses a part of it")
)]
mod type_messages;
mod unreached;
#[cfg(feature = "zenoh")]
pub mod zenoh;

pub use graph_news::GraphWake;
pub use service::{
    LayoutReplies, LayoutReply, RequestId, SERVICE_BYTES_MAX, SERVICE_WAITING_MAX, ServiceClient,
    ServiceDescription, ServiceReply, ServiceRequest, ServiceServer, ServiceWake,
};
pub use transport::*;
pub use unreached::{Identity, Unreached};
