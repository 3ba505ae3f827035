//! What the user's own ROS 2 can hear: any rmw implementation that is installed, with all its transports, discovery servers and settings.
//!
//! `installation` finds what is sourced and compiles `shim.c` with `services.c` against its headers, once; `ffi` loads that. `types` finds type supports,
//! `discovery` compares what the graph shows, `receiving` waits and takes on a thread of its own (docs/adr/0021).

mod discovery;
mod ffi;
mod ffi_entity;
mod ffi_service;
mod ffi_structure;
mod installation;
mod publisher;
mod qos;
mod receiving;
mod service;
mod structures;
mod subscription;
mod transport;
mod types;

pub(crate) use transport::BACKEND;
pub use transport::{RmwOptions, RmwTransport};
