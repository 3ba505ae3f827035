//! Objects in buckets (S3, Google Cloud Storage, Azure) and on web servers as files of `holdall-io`; the only crate with an async runtime.
//!
//! [`install`] makes the client that `holdall_io::fs` uses for paths like `s3://bucket/run7`. It takes credentials from the same places as
//! the vendors' tools: environment variables, which the program passes in, and for S3 also `~/.aws`. docs/adr/0023 states why this crate
//! has a runtime.
#![forbid(unsafe_code)]

mod ahead;
mod client;
mod config;
mod connection;
mod environment;
mod error;
mod known;
mod object;
mod pieces;
mod profile;
mod region;
mod runtime;
mod secrets;
mod store;
mod target;

pub use client::Client;

use std::{ffi::OsString, sync::Arc};

/// Makes this the client for objects of this process. Nothing is read or connected before the first URL is used; `environment` is called
/// then, for the variables of the program. Only the first call of a process has an effect on them.
pub fn install(environment: fn() -> Vec<(OsString, OsString)>) {
    environment::choose(environment);
    holdall_io::remote::install(Arc::new(Client::default()));
}
