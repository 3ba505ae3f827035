//! Eclipse Cyclone DDS 11.0.0, built from source: its public interface, and typed functions for the parts that it leaves out.
//!
//! The functions `holdall_*` are in `c/`, with their documentation in `c/holdall.h`. They are compiled against Cyclone's own headers, by its
//! own build: where one of its structs or functions changes, the build fails, on every architecture.
#![allow(
    non_upper_case_globals,
    non_camel_case_types,
    non_snake_case,
    missing_docs,
    unsafe_code,
    unsafe_op_in_unsafe_fn,
    clippy::all,
    clippy::pedantic,
    clippy::nursery,
    clippy::restriction,
    reason = "the names and shapes are those of C"
)]

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
