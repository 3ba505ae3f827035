//! A line for a shell that is run for each of many things, some at a time: never waits for one.

use std::{
    collections::VecDeque,
    ffi::OsString,
    io::{self, stderr},
    os::{fd::AsFd, unix::process::CommandExt},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

/// Commands that run at the same time.
const RUNNING_MAX: usize = 4;

/// Commands that wait here; the recording keeps further ones.
const WAITING_MAX: usize = 1024;

/// A command that runs for longer is named in the log, once.
const SLOW_AFTER: Duration = Duration::from_secs(60);

/// The word that a command is about, in its line.
const PLACEHOLDER: &str = "{}";

/// What one command is about.
pub(super) struct Subject {
    /// For the log.
    pub name: String,
    /// Replaces `{}` in the line.
    pub word: OsString,
    pub variables: Vec<(&'static str, OsString)>,
}

struct Running {
    child: Child,
    name: String,
    since: Duration,
    is_slow: bool,
}

/// Runs a line for each subject that it is given. Never waits: call [`LineCommand::step`] now and then.
///
/// `{}` is the subject's word as one word, however it is quoted. The command has no input, its output goes to standard error, and a Ctrl-C of
/// the terminal does not reach it.
pub(super) struct LineCommand {
    /// A program and its arguments before the line.
    shell: [String; 2],
    line: String,
    waiting: VecDeque<Subject>,
    running: Vec<Running>,
}

impl LineCommand {
    /// Runs this line by a shell: its path, and the argument that precedes a line.
    pub fn new(shell: [&str; 2], line: &str) -> Self {
        let word = "\"$1\"";
        let quoted = [format!("\"{PLACEHOLDER}\""), format!("'{PLACEHOLDER}'")];
        let line = quoted
            .iter()
            .fold(line.to_owned(), |line, it| line.replace(it, word));
        Self {
            shell: shell.map(str::to_owned),
            line: line.replace(PLACEHOLDER, word),
            waiting: VecDeque::new(),
            running: Vec::new(),
        }
    }

    /// Whether it accepts more now.
    pub fn has_room(&self) -> bool {
        self.waiting.len() < WAITING_MAX
    }

    /// Adds subjects; their commands are started in this order.
    pub fn add(&mut self, subjects: impl IntoIterator<Item = Subject>) {
        self.waiting.extend(subjects);
    }

    /// Notes which commands have ended and starts others. `now` is monotonic.
    pub fn step(&mut self, now: Duration) {
        self.running.retain_mut(|running| match running.child.try_wait() {
            Ok(None) => {
                if !running.is_slow && now.saturating_sub(running.since) >= SLOW_AFTER {
                    running.is_slow = true;
                    let seconds = SLOW_AFTER.as_secs();
                    tracing::warn!("the command for {} has not ended after {seconds} s", running.name);
                }
                true
            }
            Ok(Some(status)) => {
                report_end(&running.name, status);
                false
            }
            Err(error) => {
                tracing::warn!("how the command for {} ended is unknown: {error}", running.name);
                false
            }
        });
        while self.running.len() < RUNNING_MAX
            && let Some(subject) = self.waiting.pop_front()
        {
            match self.start(&subject) {
                Ok(child) => self.running.push(Running {
                    child,
                    name: subject.name,
                    since: now,
                    is_slow: false,
                }),
                Err(error) => tracing::warn!("the command for {} was not started: {error}", subject.name),
            }
        }
    }

    fn start(&self, subject: &Subject) -> io::Result<Child> {
        let output = || stderr().as_fd().try_clone_to_owned().map(Stdio::from);
        let [shell, before_line] = &self.shell;
        Command::new(shell)
            .args([before_line, &self.line, shell])
            .arg(&subject.word)
            .envs(subject.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(output()?)
            .stderr(output()?)
            // A Ctrl-C is for the recorder, which then waits for the command.
            .process_group(0)
            .spawn()
    }

    /// Whether all commands have ended.
    pub fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    /// Logs commands that have not ended. They continue to run.
    pub fn report_unfinished(&self) {
        for running in &self.running {
            tracing::warn!("the command for {} still runs", running.name);
        }
        for subject in &self.waiting {
            tracing::warn!("the command for {} was not run", subject.name);
        }
    }
}

fn report_end(name: &str, status: ExitStatus) {
    match status.code() {
        Some(0) => tracing::debug!("the command for {name} has ended"),
        Some(code) => tracing::warn!("the command for {name} failed with exit code {code}"),
        None => tracing::warn!("the command for {name} was killed: {status}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervise::command_tests::{SH, run};
    use std::fs;

    #[test]
    fn some_run_at_a_time_whether_they_fail_or_not() {
        let folder = tempfile::tempdir().unwrap();
        let gate = folder.path().join("gate");
        // Each waits for the gate; without it they would run for a minute.
        let line =
            "for _ in $(seq 6000); do [ -e \"$GATE\" ] && echo {} >> \"$GATE\" && exit 3; sleep 0.01; done";
        let mut command = LineCommand::new(SH, line);
        let subject = |number: i32| Subject {
            name: number.to_string(),
            word: number.to_string().into(),
            variables: vec![("GATE", gate.clone().into())],
        };
        command.add((0..10).map(subject));
        command.step(Duration::ZERO);
        assert_eq!(
            (command.running.len(), command.waiting.len()),
            (RUNNING_MAX, 10 - RUNNING_MAX)
        );
        command.step(SLOW_AFTER);
        assert!(command.running.iter().all(|running| running.is_slow));
        fs::write(&gate, "").unwrap();
        run(&mut command);
        assert_eq!(fs::read_to_string(&gate).unwrap().lines().count(), 10);
    }
}
