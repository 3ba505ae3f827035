//! Work on whole bags: convert, filter, merge, split, check, repair, compare, upload. Its users see it through `holdall`.
#![forbid(unsafe_code)]

pub mod diff;
pub mod tools;
pub mod upload;
