//! Playing: reader -> read-ahead -> schedule -> publications.

pub mod options;
