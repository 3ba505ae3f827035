//! What surrounds a running recording or playback: services, status, live figures, forecasts. Its users see it through `holdall`.
#![forbid(unsafe_code)]

pub mod listen;
pub mod node;
pub mod preflight;
pub mod regress;
pub mod supervise;
