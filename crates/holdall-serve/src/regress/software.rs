//! The software under test: started by a shell in a group of its own, and ended with all that it has started.

use holdall_io::{
    clock::Clock,
    process::{EndSignal, end_group, group_exists},
};
use std::{
    collections::BTreeMap,
    io,
    os::unix::process::{CommandExt, ExitStatusExt},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

/// How long it may take to end after each way of asking.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long what it has started may take once it has ended itself.
const ORPHANS: Duration = Duration::from_secs(1);

/// Time between two looks whether it has ended.
const POLL: Duration = Duration::from_millis(20);

/// A running command line.
pub(super) struct Software {
    child: Child,
    ended: Option<ExitStatus>,
}

impl Software {
    /// Starts a line in a folder; what it writes goes to a file.
    pub fn start(line: &str, env: &BTreeMap<String, String>, folder: &Path, log: &Path) -> io::Result<Self> {
        let log = holdall_io::fs::create_for_others(log)?;
        let child = Command::new("/bin/sh")
            .args(["-c", line])
            .current_dir(folder)
            .envs(env)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()?;
        Ok(Self { child, ended: None })
    }

    /// The number of its process and of its group.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it has ended, in words; `None` while it runs.
    pub fn ended(&mut self) -> Option<String> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
        }
        let status = self.ended?;
        Some(match (status.code(), status.signal()) {
            (Some(code), _) => format!("with exit code {code}"),
            (None, Some(signal)) => format!("by signal {signal}"),
            (None, None) => "in an unknown way".to_owned(),
        })
    }

    /// Ends it and what it has started, however long it takes.
    pub fn end(&mut self, clock: &dyn Clock) {
        for signal in [EndSignal::Interrupt, EndSignal::Terminate, EndSignal::Kill] {
            // Children of a shell that has ended are still in its group.
            end_group(self.child.id(), signal);
            let asked = clock.monotonic();
            let mut ended = None;
            while clock.monotonic() < ended.map_or(asked + PATIENCE, |at: Duration| at + ORPHANS) {
                if self.ended().is_some() {
                    if !group_exists(self.child.id()) {
                        return;
                    }
                    ended.get_or_insert(clock.monotonic());
                }
                clock.sleep_until(clock.monotonic() + POLL);
            }
        }
    }
}

impl Drop for Software {
    fn drop(&mut self) {
        // The number of a process that was waited for may be that of another one by now.
        if self.ended().is_none() {
            end_group(self.child.id(), EndSignal::Kill);
            // It cannot refuse.
            let _ = self.child.wait();
        }
    }
}
