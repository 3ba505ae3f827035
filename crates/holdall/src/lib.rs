//! Recording, playing and working on bags: the library of the `holdall` command. It owns no terminal.
#![forbid(unsafe_code)]

pub mod decode;
pub mod diff;
pub mod export;
pub mod live;
pub mod play;
pub mod reader;
pub mod record;
pub mod rescue;
pub mod supervise;
pub mod tools;
pub mod writer;
