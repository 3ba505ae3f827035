//! The contract of a recording: what is written into the bag is judged beside it by another thread, which nothing waits for.

mod judging;
mod tap;

pub(crate) use judging::Judging;
pub(crate) use tap::Tap;
