//! zenoh as rmw_zenoh speaks it: the graph from liveliness tokens, data by key, sequence number, stamp and GID from each attachment.
//!
//! `token`, `qos` and `attachment` are the formats; `discovery` follows the graph, `subscription` and `history` receive, `publisher` sends.

mod attachment;
mod config;
mod discovery;
mod history;
mod links;
mod loan;
mod publisher;
mod qos;
mod routers;
mod service;
mod session;
mod subscription;
mod token;
mod transport;
mod type_description;

pub use config::ZenohEnvironment;
pub(crate) use transport::BACKEND;
pub use transport::{ZenohOptions, ZenohTransport};
