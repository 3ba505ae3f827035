//! The terminal: what is shown on it while a verb runs, keys read from it, and its mode, which is always
//! restored.

pub mod events;
mod frame;
pub mod keyboard;
pub mod log;
pub mod mode;
pub mod progress;
pub mod screen;
pub mod signals;
