//! Objects in buckets (S3, Google Cloud Storage, Azure) and on web servers as files of `holdall-io`; the only crate with an async runtime.
//!
//! [`install`] makes the client that `holdall_io::fs` uses for paths like `s3://bucket/run7`. It takes credentials from where the vendors'
//! tools take them: environment variables, and for S3 also `~/.aws`. docs/adr/0023 states why this crate has a runtime.
#![forbid(unsafe_code)]

mod ahead;
mod client;
mod config;
mod connection;
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

use std::sync::Arc;

/// Makes this the client for objects of this process. Nothing is read or connected before the first URL is used.
pub fn install() {
    holdall_io::remote::install(Arc::new(Client::default()));
}
