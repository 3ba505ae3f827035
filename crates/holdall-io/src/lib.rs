//! The only access to disk and clock: all code that touches a file or reads the time uses this crate.

pub mod block;
pub mod clock;
pub mod copy;
pub mod disk;
pub mod disk_conformance;
mod file_state;
pub mod fs;
pub mod limits;
pub mod link;
pub mod lock;
pub mod memory;
pub mod mutex;
pub mod new_file;
pub mod os;
pub mod output;
pub mod process;
pub mod queue;
pub mod random;
pub mod read_ahead;
pub mod scratch;
pub mod sim;
pub mod socket;
pub mod stream;
pub mod survivor;
pub mod thread;
pub mod unfinished;
pub mod wait;
