//! What the tests of commands have in common.

use super::line_command::LineCommand;
use holdall_io::clock::{Clock, SystemClock};
use std::time::Duration;

pub const SH: [&str; 2] = ["/bin/sh", "-c"];

pub fn run(command: &mut LineCommand) {
    let deadline = SystemClock.monotonic() + Duration::from_secs(20);
    while !command.is_idle() {
        assert!(SystemClock.monotonic() < deadline, "the commands do not end");
        command.step(SystemClock.monotonic());
        std::thread::yield_now();
    }
}
