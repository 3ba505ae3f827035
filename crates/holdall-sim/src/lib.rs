//! Whole recordings in one seeded thread: the real recorder, cache, drain, writer and repair on a simulated network, disk and clock.
#![forbid(unsafe_code)]

pub mod account;
pub mod aftermath;
pub mod clocks;
pub mod death;
pub mod durable;
pub mod ends;
pub mod folder;
pub mod found;
pub mod judge;
pub mod mutation;
pub mod network;
pub mod payload;
pub mod plan;
pub mod promote;
pub mod repair;
pub mod rescue;
pub mod ring_day;
pub mod run;
pub mod shrink;
pub mod types;
pub mod verdict;
pub mod world;
