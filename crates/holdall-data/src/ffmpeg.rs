//! Starts the program `ffmpeg` and keeps its report of errors.

use holdall_io::unfinished::StartedProgram;
use std::{
    io::{self, Read},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    thread::{self, JoinHandle},
};

/// The program.
pub(crate) const PROGRAM: &str = "ffmpeg";
/// Pixels of a picture that is decoded: a stream from outside says how large its pictures are.
const PIXELS_MAX: &str = "67108864";
/// Bytes of a report of errors that are shown.
const REPORT_BYTES_MAX: u64 = 2048;

/// The reason of a failure.
#[derive(Debug)]
pub(crate) enum FfmpegError {
    /// It is in no folder of PATH.
    Missing,
    /// Its report.
    Failed(String),
}

impl From<io::Error> for FfmpegError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::Missing,
            _ => Self::Failed(error.to_string()),
        }
    }
}

/// A decoder of a stream from its input, filtered, into pictures without loss on its output; with more flags for its input and its output.
pub(crate) fn picture_decoder(stream: &str, filter: &str, [of_input, of_output]: [&[&str]; 2]) -> Command {
    let mut command = Command::new(PROGRAM);
    command
        .args(["-hide_banner", "-loglevel", "error", "-max_pixels", PIXELS_MAX])
        .args(of_input)
        .args(["-f", stream, "-i", "-", "-vf", filter, "-r", "25"])
        .args(of_output)
        .args(["-c:v", "ppm", "-pix_fmt", "rgb24", "-f", "image2pipe", "-"]);
    command
}

/// A running `ffmpeg`. It is ended by force when this is dropped.
pub(crate) struct Ffmpeg {
    child: Child,
    report: Option<JoinHandle<String>>,
    _started: StartedProgram,
}

impl Ffmpeg {
    /// Starts it with a pipe to its input; `command` has its arguments.
    pub fn start(command: &mut Command, output: Stdio) -> Result<Self, FfmpegError> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(output)
            .stderr(Stdio::piped())
            .spawn()?;
        let started = StartedProgram::new(child.id());
        let report = child.stderr.take().and_then(|stderr| {
            let read = move || {
                let mut text = Vec::new();
                let mut stderr = stderr.take(REPORT_BYTES_MAX);
                // The rest must not fill the pipe.
                let _ = stderr.read_to_end(&mut text);
                let _ = io::copy(&mut stderr.into_inner(), &mut io::sink());
                String::from_utf8_lossy(&text).into_owned()
            };
            thread::Builder::new()
                .name("ffmpeg-report".into())
                .spawn(read)
                .ok()
        });
        Ok(Self {
            child,
            report,
            _started: started,
        })
    }

    /// Its input; dropping that is its end.
    pub fn take_input(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Its output, if that is a pipe.
    pub fn take_output(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Waits for its end; returns the last line that it has reported.
    pub fn finish(mut self) -> Result<Option<String>, FfmpegError> {
        let status = self.child.wait()?;
        let report = self.report.take().and_then(|report| report.join().ok());
        let report = report.unwrap_or_default();
        let last = report.lines().rfind(|line| !line.trim().is_empty());
        let last = last.map(|line| line.trim().to_owned());
        if status.success() {
            return Ok(last);
        }
        Err(FfmpegError::Failed(last.unwrap_or_else(|| status.to_string())))
    }
}

impl Drop for Ffmpeg {
    fn drop(&mut self) {
        // After an error elsewhere: without the end of its input it would wait for more.
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
