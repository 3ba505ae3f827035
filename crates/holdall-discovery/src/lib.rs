//! From the graph of topics, publishers and services to what is recorded. Nothing here subscribes, or waits.

pub mod decisions;
pub mod services;
