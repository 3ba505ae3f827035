//! A command for each complete file of a recording: runs during the recording, some at a time; only the end waits for it.

use std::{
    collections::VecDeque,
    io::{self, stderr},
    os::{fd::AsFd, unix::process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

/// Commands that run at the same time.
const RUNNING_MAX: usize = 4;

/// Files that wait for a command here; the recording keeps the names of further ones.
const WAITING_MAX: usize = 1024;

/// A command that runs for longer is named in the log, once.
const SLOW_AFTER: Duration = Duration::from_secs(60);

/// The file's path, as the command sees it.
pub const FILE_VARIABLE: &str = "HOLDALL_FILE";

/// The bag's directory, as the command sees it.
pub const BAG_VARIABLE: &str = "HOLDALL_BAG";

/// The file's path in a command.
const PLACEHOLDER: &str = "{}";

struct Running {
    child: Child,
    file: PathBuf,
    since: Duration,
    is_slow: bool,
}

/// Runs a command for each file that it is given. Never waits: call [`FileCommand::step`] now and then.
///
/// The command is a line for a shell: `{}` is the file's path as one word, however it is quoted; the environment has it as `HOLDALL_FILE`, and
/// the bag's directory as `HOLDALL_BAG`. It has no input, its output goes to standard error, and a Ctrl-C of the terminal does not reach it.
pub struct FileCommand {
    /// A program and its arguments before the line.
    shell: [String; 2],
    line: String,
    waiting: VecDeque<PathBuf>,
    running: Vec<Running>,
    failed: u64,
}

impl FileCommand {
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
            failed: 0,
        }
    }

    /// Whether it accepts more files now.
    pub(super) fn has_room(&self) -> bool {
        self.waiting.len() < WAITING_MAX
    }

    /// Adds files; their commands are started in this order.
    pub fn add(&mut self, files: impl IntoIterator<Item = PathBuf>) {
        self.waiting.extend(files);
    }

    /// Notes which commands have ended and starts others. `now` is monotonic.
    pub fn step(&mut self, now: Duration) {
        let failed = &mut self.failed;
        self.running.retain_mut(|running| match running.child.try_wait() {
            Ok(None) => {
                if !running.is_slow && now.saturating_sub(running.since) >= SLOW_AFTER {
                    running.is_slow = true;
                    let seconds = SLOW_AFTER.as_secs();
                    tracing::warn!(
                        "the command for {} has not ended after {seconds} s",
                        running.file.display()
                    );
                }
                true
            }
            Ok(Some(status)) => {
                *failed += u64::from(!status.success());
                report_end(&running.file, status);
                false
            }
            Err(error) => {
                *failed += 1;
                tracing::warn!(
                    "how the command for {} ended is unknown: {error}",
                    running.file.display()
                );
                false
            }
        });
        while self.running.len() < RUNNING_MAX
            && let Some(file) = self.waiting.pop_front()
        {
            match self.start(&file) {
                Ok(child) => self.running.push(Running {
                    child,
                    file,
                    since: now,
                    is_slow: false,
                }),
                Err(error) => {
                    self.failed += 1;
                    tracing::warn!("the command for {} was not started: {error}", file.display());
                }
            }
        }
    }

    fn start(&self, file: &Path) -> io::Result<Child> {
        let file = std::path::absolute(file)?;
        let bag = file.parent().unwrap_or(&file);
        let output = || stderr().as_fd().try_clone_to_owned().map(Stdio::from);
        let [shell, before_line] = &self.shell;
        Command::new(shell)
            .args([before_line, &self.line, shell])
            .arg(&file)
            .env(FILE_VARIABLE, &file)
            .env(BAG_VARIABLE, bag)
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

    /// Commands that failed so far.
    pub fn failed(&self) -> u64 {
        self.failed
    }

    /// Logs commands that have not ended. They continue to run.
    pub(super) fn report_unfinished(&self) {
        for running in &self.running {
            tracing::warn!("the command for {} still runs", running.file.display());
        }
        for file in &self.waiting {
            tracing::warn!("the command for {} was not run", file.display());
        }
    }
}

fn report_end(file: &Path, status: ExitStatus) {
    let file = file.display();
    match status.code() {
        Some(0) => tracing::debug!("the command for {file} has ended"),
        Some(code) => tracing::warn!("the command for {file} failed with exit code {code}"),
        None => tracing::warn!("the command for {file} was killed: {status}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_io::clock::{Clock, SystemClock};
    use std::fs;

    const SH: [&str; 2] = ["/bin/sh", "-c"];

    fn run(command: &mut FileCommand) {
        let deadline = SystemClock.monotonic() + Duration::from_secs(20);
        while !command.is_idle() {
            assert!(SystemClock.monotonic() < deadline, "the commands do not end");
            command.step(SystemClock.monotonic());
            std::thread::yield_now();
        }
    }

    #[test]
    fn the_path_is_one_word_and_in_the_environment() {
        let folder = tempfile::tempdir().unwrap();
        let bag = folder.path().join("a bag; $(echo x)");
        fs::create_dir(&bag).unwrap();
        let file = bag.join("it's \"0\".mcap");
        for word in ["{}", "\"{}\"", "'{}'", "\"$1\"", "\"$HOLDALL_FILE\""] {
            fs::write(&file, "content").unwrap();
            let mut command = FileCommand::new(SH, &format!("cp {word} \"$HOLDALL_BAG\"/copy"));
            command.add([file.clone()]);
            run(&mut command);
            assert_eq!(command.failed(), 0, "{word}");
            assert_eq!(fs::read_to_string(bag.join("copy")).unwrap(), "content", "{word}");
            fs::remove_file(bag.join("copy")).unwrap();
        }
    }

    #[test]
    fn some_run_at_a_time_and_failures_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let gate = folder.path().join("gate");
        // Each waits for the gate; without it they would run for a minute.
        let line = "for _ in $(seq 6000); do [ -e \"${HOLDALL_BAG}/gate\" ] && exit 3; sleep 0.01; done";
        let mut command = FileCommand::new(SH, line);
        command.add((0..10).map(|number| folder.path().join(number.to_string())));
        command.step(Duration::ZERO);
        assert_eq!(
            (command.running.len(), command.waiting.len()),
            (RUNNING_MAX, 10 - RUNNING_MAX)
        );
        command.step(SLOW_AFTER);
        assert!(command.running.iter().all(|running| running.is_slow));
        fs::write(&gate, "").unwrap();
        run(&mut command);
        assert_eq!(command.failed(), 10);
    }
}
