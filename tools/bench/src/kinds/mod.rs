//! The kinds of experiments that run without a transport and in a separate folder: the recorder, storages
//! alone, work on bags.

pub mod storage;
pub mod tools;
pub mod write;
