//! A transport over the user's own ROS 2: any installed rmw implementation, with all its transports, discovery servers and settings.
//!
//! `installation` finds the sourced installation and compiles `shim.c` with `services.c` against its headers, once; `ffi` loads the result. `types`
//! finds type supports, `discovery` compares states of the graph, `receiving` waits and takes on a separate thread (docs/adr/0021).

mod discovery;
mod farewells;
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
