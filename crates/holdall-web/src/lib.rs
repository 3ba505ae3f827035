//! A running recording or playback in a browser: a page, its state for programs, and the requests of the control socket, over HTTP; its messages in
//! viewers such as Foxglove, over WebSocket.
//!
//! Separate threads read the state that the recording offers to every observer. Requests and unread answers of a client never reach the
//! receive path: connections, requests and queues have limits.
#![forbid(unsafe_code)]

mod address;
pub mod dashboard;
pub mod folder;
pub mod foxglove;
#[doc(hidden)]
pub mod fuzzing;
mod http;
mod listen;
mod look;
mod token;

pub use address::{AddressError, DEFAULT_WEB, parse_address};
pub use http::{OriginError, ViewerOrigin};
pub use listen::WebError;
pub use token::{Token, TokenError};

/// Prefix of the names of this crate's threads: a bug in one of them ends that thread, not the recording.
pub const THREADS: &str = "web ";
