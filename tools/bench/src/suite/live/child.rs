//! A program in the background: its output, its use of the machine, its end.

use crate::{
    error::{BenchError, BenchResult},
    measure::{ProcessUse, process_use},
};
use holdall_io::mutex::lock;
use holdall_io::{clock::Clock, unfinished::StartedProgram};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Read, Write},
    process::{ChildStdin, Command, Stdio},
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

/// Number of lines kept; older ones are dropped, so that a verbose program takes little memory. The report of a thousand topics has 30 000.
const LINES_MAX: usize = 100_000;

/// A longer line is cut: our own reports of a thousand topics are far below it.
const LINE_BYTES_MAX: u64 = 16 << 20;

/// Time between two checks whether a program has ended.
const POLL_PERIOD: Duration = Duration::from_millis(2);

/// Lines with their numbers, and whether more can come.
#[derive(Default)]
struct Lines {
    kept: VecDeque<(u64, String)>,
    next: u64,
    open_streams: usize,
}

#[derive(Default)]
struct Output {
    lines: Mutex<Lines>,
    changed: Condvar,
}

/// The program; killed when dropped before its end.
pub(crate) struct Program {
    name: String,
    process: std::process::Child,
    pid: Pid,
    stdin: Option<ChildStdin>,
    output: Arc<Output>,
    readers: Vec<JoinHandle<()>>,
    clock: Arc<dyn Clock>,
    /// `None` after it was waited for.
    running: Option<StartedProgram>,
}

/// How a program ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Exit code; absent after a signal.
    pub code: Option<i32>,
    /// Resources that it used.
    pub used: ProcessUse,
    /// The last lines of its output, standard output and standard error in the order of arrival.
    pub lines: Vec<String>,
}

impl Program {
    /// Starts it; `name` is its name in errors.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(name: &str, command: &mut Command, clock: &Arc<dyn Clock>) -> BenchResult<Self> {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(BenchError::io("start", command.get_program()))?;
        let running = Some(StartedProgram::new(process.id()));
        let output = Arc::new(Output::default());
        lock(&output.lines).open_streams = 2;
        let stdout: Option<Box<dyn Read + Send>> = process.stdout.take().map(|stream| Box::new(stream) as _);
        let stderr: Option<Box<dyn Read + Send>> = process.stderr.take().map(|stream| Box::new(stream) as _);
        let readers = [stdout, stderr]
            .into_iter()
            .flatten()
            .filter_map(|stream| {
                let output = Arc::clone(&output);
                let builder = thread::Builder::new().name("suite-lines".to_owned());
                builder.spawn(move || read_lines(stream, &output)).ok()
            })
            .collect();
        Ok(Self {
            name: name.to_owned(),
            pid: Pid::from_child(&process),
            stdin: process.stdin.take(),
            process,
            output,
            readers,
            clock: Arc::clone(clock),
            running,
        })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Writes a line to its standard input, which stays open.
    ///
    /// # Errors
    /// When it has closed its input.
    pub fn send(&mut self, line: &str) -> BenchResult<()> {
        let Some(stdin) = &mut self.stdin else {
            return Ok(());
        };
        writeln!(stdin, "{line}")
            .and_then(|()| stdin.flush())
            .map_err(|error| self.failed(&format!("does not read its input: {error}")))
    }

    /// Waits for a line that `pick` accepts.
    ///
    /// # Errors
    /// When it ends before, or prints no such line in time.
    pub fn wait_for<T>(&self, within: Duration, mut pick: impl FnMut(&str) -> Option<T>) -> BenchResult<T> {
        let deadline = self.clock.monotonic() + within;
        let mut seen = 0;
        let mut lines = lock(&self.output.lines);
        loop {
            let new = lines.kept.iter().filter(|(number, _)| *number >= seen);
            if let Some(found) = new.map(|(_, line)| line).find_map(|line| pick(line)) {
                return Ok(found);
            }
            seen = lines.next;
            let left = deadline.saturating_sub(self.clock.monotonic());
            if lines.open_streams == 0 || left.is_zero() {
                let what = if left.is_zero() {
                    "was not ready in time"
                } else {
                    "ended early"
                };
                return Err(self.failed(&format!("{what}; its output: {}", last_words(&lines))));
            }
            let waited = self.output.changed.wait_timeout(lines, left);
            (lines, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Asks it to end, as Ctrl-C does.
    pub fn interrupt(&self) {
        // A program that has ended needs no signal.
        let _gone = kill_process(self.pid, Signal::INT).is_err();
    }

    /// Closes its standard input.
    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When it does not end in time; it is killed then.
    pub fn finish(mut self, within: Duration) -> BenchResult<Ended> {
        self.stdin = None;
        let deadline = self.clock.monotonic() + within;
        // Left unreaped after its end, so that its use can still be read.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        while matches!(waitid(WaitId::Pid(self.pid), options), Ok(None)) {
            let now = self.clock.monotonic();
            if now >= deadline {
                let words = last_words(&lock(&self.output.lines));
                return Err(self.failed(&format!("did not end in time; its output: {words}")));
            }
            self.clock.sleep_until(now + POLL_PERIOD);
        }
        let used = process_use(&self.name, self.id());
        let status = self
            .process
            .wait()
            .map_err(BenchError::io("wait for", self.name.clone()))?;
        self.running = None;
        for reader in self.readers.drain(..) {
            // A reader does not panic; if it did, only its lines would be missing.
            let _panicked = reader.join().is_err();
        }
        Ok(Ended {
            code: status.code(),
            used,
            lines: lock(&self.output.lines)
                .kept
                .iter()
                .map(|(_, line)| line.clone())
                .collect(),
        })
    }

    fn failed(&self, reason: &str) -> BenchError {
        BenchError::program(&self.name, reason)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if self.running.is_some() {
            // It may have ended by itself.
            let _gone = self.process.kill().is_err();
            let _gone = self.process.wait().is_err();
        }
    }
}

fn read_lines(stream: Box<dyn Read + Send>, output: &Output) {
    let mut reader = BufReader::new(stream);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        let read = (&mut reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut bytes);
        let mut lines = lock(&output.lines);
        if !matches!(read, Ok(1..)) {
            lines.open_streams -= 1;
            output.changed.notify_all();
            return;
        }
        let number = lines.next;
        lines.next += 1;
        let text = String::from_utf8_lossy(&bytes).trim_end().to_owned();
        lines.kept.push_back((number, text));
        if lines.kept.len() > LINES_MAX {
            lines.kept.pop_front();
        }
        output.changed.notify_all();
    }
}

fn last_words(lines: &Lines) -> String {
    const SHOWN: usize = 4;
    let from = lines.kept.len().saturating_sub(SHOWN);
    let shown: Vec<&str> = lines.kept.range(from..).map(|(_, line)| line.as_str()).collect();
    if shown.is_empty() {
        "nothing".to_owned()
    } else {
        shown.join(" | ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_io::clock::SystemClock;

    fn shell(script: &str) -> Program {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        Program::start("sh", Command::new("sh").args(["-c", script]), &clock).unwrap()
    }

    #[test]
    fn output_lines_are_found_and_the_exit_is_reported() {
        let mut program = shell("echo ready; read x; echo got $x; exit 3");
        program
            .wait_for(Duration::from_secs(20), |line| (line == "ready").then_some(()))
            .unwrap();
        program.send("this").unwrap();
        let ended = program.finish(Duration::from_secs(20)).unwrap();
        assert_eq!(ended.code, Some(3));
        assert_eq!(ended.lines, ["ready", "got this"]);
    }

    #[test]
    fn the_report_of_a_thousand_topics_is_kept_whole() {
        let ended = shell("seq 30000").finish(Duration::from_secs(20)).unwrap();
        assert_eq!((ended.lines.len(), ended.lines[0].as_str()), (30_000, "1"));
    }

    #[test]
    fn a_program_that_ends_early_is_quoted() {
        let error = shell("echo no licence >&2")
            .wait_for(Duration::from_secs(20), |_| None::<()>)
            .unwrap_err()
            .to_string();
        assert!(error.contains("no licence"), "{error}");
    }

    #[test]
    fn processor_time_is_read_after_the_end() {
        let program = shell("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done");
        let ended = program.finish(Duration::from_secs(60)).unwrap();
        assert!(ended.used.cpu_s > 0.0, "{:?}", ended.used);
    }
}
