//! The only door to disk and clock: everything that touches a file or asks the time goes through here.

pub mod clock;
