//! Starts the program `ffmpeg` and keeps its report of errors; ends it when it makes no progress.

use crate::{
    compressed::DecodedImage,
    elementary::{Codec, Unit, before_missing, framed},
    pixels::Pixels,
};
use bytes::Bytes;
use holdall_io::{
    clock::{Clock, SystemClock},
    unfinished::StartedProgram,
};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::{
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::process::{CommandExt, ExitStatusExt},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, SyncSender},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// The program.
pub const PROGRAM: &str = "ffmpeg";
/// Pixels of a picture that is decoded: a stream from outside says how large its pictures are.
const PIXELS_MAX: &str = "67108864";
/// Bytes of a picture at most: a damaged stream may state any size.
pub(crate) const PICTURE_BYTES_MAX: u64 = 1 << 30;
/// Length of the head of a picture as `ffmpeg` writes it.
const HEAD_BYTES_MAX: u64 = 64;
/// Bytes of a report of errors that are shown.
const REPORT_BYTES_MAX: u64 = 2048;

/// A program that takes and makes nothing for this long is ended.
pub(crate) const STALL: Duration = Duration::from_secs(20);
/// Time between two looks whether it has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(2);
/// Address space of a decoder: what it decodes may come from anywhere.
const DECODER_BYTES_MAX: u64 = 4 << 30;
/// Processor time of a decoder: more than the longest group of large pictures needs.
const DECODER_CPU_S_MAX: u64 = 600;
/// How the system ends a program that has used it up.
const KILLED: i32 = 9;
/// Parts of the input that are on their way.
const PARTS_MAX: usize = 2;
/// Steps of a filter that were not yet looked at.
const STEPS_MAX: usize = 64;
/// Bytes of the output that are read at once.
const READ_BYTES: usize = 1 << 18;

/// The reason of a failure.
#[derive(Debug)]
pub enum FfmpegError {
    /// It is in no folder of PATH.
    Missing,
    /// Its report.
    Failed(String),
}

impl std::fmt::Display for FfmpegError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Missing => f.write_str("the program ffmpeg is not installed"),
            Self::Failed(reason) => write!(f, "ffmpeg: {}", holdall_model::text::one_line(reason)),
        }
    }
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
fn picture_decoder(stream: &str, filter: &str, [of_input, of_output]: [&[&str]; 2]) -> Command {
    let mut command = Command::new(PROGRAM);
    command
        .args(["-hide_banner", "-loglevel", "error", "-max_pixels", PIXELS_MAX])
        .args(of_input)
        .args(["-f", stream, "-i", "-", "-vf", filter, "-r", "1/1000"])
        .args(of_output)
        .args(["-c:v", "ppm", "-pix_fmt", "rgb24", "-f", "image2pipe", "-"]);
    command
}

/// The filter of a decoder that gives the pictures from `first` on, 1000 s apart: `ffmpeg` shows the last one of a video again until its time in the
/// video is over.
fn from_picture(first: usize) -> String {
    format!("select=gte(n\\,{first}),settb=1000,setpts=N")
}

/// Time between two looks whether a filter is to be stopped.
const STOP_LOOK: Duration = Duration::from_millis(50);

/// Ends filters from another thread.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// What runs with it is ended soon, by force.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether that was requested.
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A running `ffmpeg`. It is ended by force when this is dropped.
pub struct Ffmpeg {
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
            // Ctrl-C is for this program, which then wants what was encoded.
            .process_group(0)
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

    /// The last line that it has reported, after its end.
    fn last_report(&mut self) -> Option<String> {
        let report = self.report.take().and_then(|report| report.join().ok());
        let report = report.unwrap_or_default();
        let last = report.lines().rfind(|line| !line.trim().is_empty());
        last.map(|line| line.trim().to_owned())
    }

    /// Waits for its end; returns the last line that it has reported.
    pub fn finish(mut self) -> Result<Option<String>, FfmpegError> {
        let status = self.child.wait()?;
        let last = self.last_report();
        if status.success() {
            return Ok(last);
        }
        Err(FfmpegError::Failed(last.unwrap_or_else(|| match status.signal() {
            Some(KILLED) => format!(
                "the system ended it: a decoder has {DECODER_CPU_S_MAX} s of processor time, or memory was short"
            ),
            _ => status.to_string(),
        })))
    }

    /// Limits what it may take: it decodes what may come from anywhere.
    fn limit(&self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        for (resource, max) in [
            (Resource::As, DECODER_BYTES_MAX),
            (Resource::Cpu, DECODER_CPU_S_MAX),
        ] {
            let limit = Rlimit {
                current: Some(max),
                maximum: Some(max),
            };
            // A system that refuses leaves `-max_pixels` and the limits of time and output.
            let _ = prlimit(pid, resource, limit);
        }
    }

    /// Waits for its end; false if it still runs after the time of a stall.
    fn ends(&mut self, stall: Duration, stop: &Stop) -> bool {
        let until = SystemClock.monotonic() + stall;
        loop {
            match self.child.try_wait() {
                Ok(None) if SystemClock.monotonic() < until && !stop.is_stopped() => {
                    SystemClock.sleep_until(SystemClock.monotonic() + LOOK_AGAIN);
                }
                Ok(None) => return false,
                Ok(Some(_)) | Err(_) => return true,
            }
        }
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

/// The next picture in PPM; `None` at the end, also in the middle of one.
fn next_picture(output: &mut impl BufRead) -> io::Result<Option<Pixels>> {
    let mut head = Vec::new();
    for _ in 0..3 {
        output
            .by_ref()
            .take(HEAD_BYTES_MAX)
            .read_until(b'\n', &mut head)?;
    }
    if head.is_empty() {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&head);
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let sizes = match words[..] {
        ["P6", width, height, "255"] => width.parse().ok().zip(height.parse().ok()),
        _ => None,
    };
    let unknown = || io::Error::other("it is not a picture");
    let (width, height): (u32, u32) = sizes.ok_or_else(unknown)?;
    let length = 3 * u64::from(width) * u64::from(height);
    if length > PICTURE_BYTES_MAX {
        return Err(unknown());
    }
    let mut bytes = Vec::with_capacity(length as usize);
    output.by_ref().take(length).read_to_end(&mut bytes)?;
    let is_whole = bytes.len() as u64 == length;
    Ok(is_whole.then_some(Pixels {
        width,
        height,
        channels: 3,
        is_deep: false,
        bytes,
    }))
}

/// What a filter did.
enum Step {
    /// It took a part of its input.
    Took,
    /// It made a part of its output.
    Made(Vec<u8>),
    /// Its output has ended.
    Ended(io::Result<()>),
}

/// A running `ffmpeg` whose input and output come in parts; both are bounded, and so is its time without progress.
pub struct Filter {
    ffmpeg: Ffmpeg,
    parts: Option<SyncSender<Bytes>>,
    steps: Receiver<Step>,
    in_flight: usize,
    /// What was not taken of its output, and how much that may be.
    output: Vec<u8>,
    output_bytes_max: u64,
    has_ended: bool,
    /// Without progress for this long it is ended.
    stall: Duration,
    stop: Stop,
}

impl Filter {
    /// Starts it; `command` has its arguments. At most `output_bytes_max` of its output may wait.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(command: &mut Command, output_bytes_max: u64, stop: &Stop) -> Result<Self, FfmpegError> {
        let mut ffmpeg = Ffmpeg::start(command, Stdio::piped())?;
        let (Some(mut input), Some(output)) = (ffmpeg.take_input(), ffmpeg.take_output()) else {
            return Err(FfmpegError::Failed("it has no pipe".to_owned()));
        };
        let (parts, received) = mpsc::sync_channel::<Bytes>(PARTS_MAX);
        let (made, steps) = mpsc::sync_channel(STEPS_MAX);
        let took = made.clone();
        let feed = move || {
            for part in received {
                if input.write_all(&part).is_err() || took.send(Step::Took).is_err() {
                    break;
                }
            }
        };
        let collect = move || {
            let ended = read_all(output, |part| made.send(Step::Made(part)).is_ok());
            let _ = made.send(Step::Ended(ended));
        };
        let name = |what: &str| thread::Builder::new().name(format!("ffmpeg-{what}"));
        name("input").spawn(feed)?;
        name("output").spawn(collect)?;
        Ok(Self {
            ffmpeg,
            parts: Some(parts),
            steps,
            in_flight: 0,
            output: Vec::new(),
            output_bytes_max,
            has_ended: false,
            stall: STALL,
            stop: stop.clone(),
        })
    }

    /// Changes how long it may make no progress.
    pub(crate) const fn within(mut self, stall: Duration) -> Self {
        self.stall = stall;
        self
    }

    /// As [`Filter::start`], of a decoder.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start_decoder(
        command: &mut Command,
        output_bytes_max: u64,
        stop: &Stop,
    ) -> Result<Self, FfmpegError> {
        let filter = Self::start(command, output_bytes_max, stop)?;
        filter.ffmpeg.limit();
        Ok(filter)
    }

    /// Waits for what it does next.
    fn next_step(&mut self) -> Result<(), FfmpegError> {
        let until = SystemClock.monotonic() + self.stall;
        loop {
            if self.stop.is_stopped() {
                return Err(FfmpegError::Failed("it was ended".to_owned()));
            }
            match self.steps.recv_timeout(STOP_LOOK) {
                Ok(step) => return self.note(step),
                Err(RecvTimeoutError::Timeout) if SystemClock.monotonic() < until => {}
                Err(RecvTimeoutError::Timeout) => {
                    let seconds = self.stall.as_secs();
                    return Err(FfmpegError::Failed(format!(
                        "it did nothing for {seconds} s and was ended"
                    )));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(FfmpegError::Failed("its output ended".to_owned()));
                }
            }
        }
    }

    fn note(&mut self, step: Step) -> Result<(), FfmpegError> {
        match step {
            Step::Took => self.in_flight = self.in_flight.saturating_sub(1),
            Step::Made(part) if (self.output.len() + part.len()) as u64 > self.output_bytes_max => {
                let limit = self.output_bytes_max;
                return Err(FfmpegError::Failed(format!(
                    "its output is larger than {limit} bytes"
                )));
            }
            Step::Made(part) => self.output.extend(part),
            Step::Ended(ended) => {
                self.has_ended = true;
                ended?;
            }
        }
        Ok(())
    }

    /// Takes what it has made so far, without waiting.
    ///
    /// # Errors
    /// It ended before its input did.
    pub fn take(&mut self) -> Result<Vec<u8>, FfmpegError> {
        while let Ok(step) = self.steps.try_recv() {
            self.note(step)?;
        }
        match self.has_ended {
            true => Err(self.early_end()),
            false => Ok(std::mem::take(&mut self.output)),
        }
    }

    /// Gives it the next part of its input, when it has taken those before.
    ///
    /// # Errors
    /// It ended before, or does nothing; it is of no use then.
    pub fn feed(&mut self, part: Bytes) -> Result<(), FfmpegError> {
        while self.in_flight >= PARTS_MAX {
            self.next_step()?;
            if self.has_ended {
                return Err(self.early_end());
            }
        }
        self.in_flight += 1;
        match &self.parts {
            // Its thread has ended with the program: the end of the output says why.
            Some(parts) if parts.send(part).is_err() => {
                self.in_flight = PARTS_MAX;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Why it ended before its input did.
    fn early_end(&mut self) -> FfmpegError {
        let early = || "it ended before its input did".to_owned();
        FfmpegError::Failed(if self.ffmpeg.ends(self.stall, &self.stop) {
            self.ffmpeg.last_report().unwrap_or_else(early)
        } else {
            early()
        })
    }

    /// Ends its input and returns the rest of its output.
    ///
    /// # Errors
    /// It failed, or did not end.
    pub fn finish(mut self) -> Result<Vec<u8>, FfmpegError> {
        self.parts = None;
        while !self.has_ended {
            self.next_step()?;
        }
        if !self.ffmpeg.ends(self.stall, &self.stop) {
            return Err(FfmpegError::Failed("it did not end".to_owned()));
        }
        self.ffmpeg.finish()?;
        Ok(self.output)
    }
}

/// Reads to the end; `each` gets each part, and ends the reading with false.
fn read_all(mut output: ChildStdout, each: impl Fn(Vec<u8>) -> bool) -> io::Result<()> {
    let mut part = vec![0; READ_BYTES];
    loop {
        let count = output.read(&mut part)?;
        if count == 0 || !each(part[..count].to_vec()) {
            return Ok(());
        }
    }
}

/// The program with its version, as it says it: `ffmpeg version 7.1`.
///
/// # Errors
/// It cannot be started, or says nothing.
pub fn version(stop: &Stop) -> Result<String, FfmpegError> {
    const WORDS: usize = 3;
    let mut command = Command::new(PROGRAM);
    let bytes_max = REPORT_BYTES_MAX * 16;
    let said = Filter::start(command.arg("-version"), bytes_max, stop)?.finish()?;
    let said = String::from_utf8_lossy(&said);
    let words: Vec<&str> = said.split_whitespace().take(WORDS).collect();
    match words[..] {
        ["ffmpeg", "version", _] => Ok(words.join(" ")),
        _ => Err(FfmpegError::Failed("it does not say its version".to_owned())),
    }
}

/// The format of a video's pixels, as `ffmpeg` names it (`yuv420p`), from a key frame with its parameters; `None` where it does not say.
pub fn pixel_format(codec: Codec, key: &[u8]) -> Option<String> {
    let mut command = Command::new(PROGRAM);
    command.args([
        "-hide_banner",
        "-max_pixels",
        PIXELS_MAX,
        "-f",
        codec.stream(),
        "-i",
        "-",
    ]);
    let mut ffmpeg = Ffmpeg::start(&mut command, Stdio::null()).ok()?;
    ffmpeg.limit();
    // Without an output it ends when it knows its input, maybe before it has read all.
    let _ = ffmpeg.take_input()?.write_all(key);
    let report = ffmpeg.report.take()?.join().ok()?;
    let (_, described) = report.split_once("Video: ")?;
    let format = described.split(", ").nth(1)?;
    format.split(['(', '\n']).next().map(str::to_owned)
}

/// Decodes pictures of a video, the first of which is a key frame, in a process of its own, with limits of its own, into exactly as many
/// as are from picture `first` on (0 is the key frame).
///
/// # Errors
/// One clause: `ffmpeg` is not installed, what it reports, or another number of pictures.
pub fn decode(
    codec: Codec,
    units: &[impl AsRef<[u8]>],
    (first, bytes_max): (usize, usize),
    stop: &Stop,
) -> Result<Vec<Pixels>, String> {
    let wanted = units.len().saturating_sub(first);
    let said = |error: FfmpegError| error.to_string();
    let mut command = picture_decoder(codec.stream(), &from_picture(first), [&["-threads", "2"], &[]]);
    let mut filter = Filter::start_decoder(&mut command, bytes_max as u64, stop).map_err(said)?;
    filter.feed(framed(codec, units).into()).map_err(said)?;
    let output = filter.finish().map_err(said)?;
    let (mut output, mut pictures) = (io::Cursor::new(output), Vec::new());
    while let Some(picture) = next_picture(&mut output).map_err(|error| error.to_string())? {
        pictures.push(picture);
    }
    match pictures.len() {
        found if found == wanted => Ok(pictures),
        found => Err(format!("ffmpeg decoded {found} pictures of {wanted}")),
    }
}

/// Decodes as [`decode`], picture by picture while it runs: a few of them are in memory. `each` returns false when it needs no more.
///
/// # Errors
/// One clause, after the pictures that were decoded: `ffmpeg` is not installed, what it reports, or it does nothing.
pub fn decode_each(
    codec: Codec,
    units: &[impl AsRef<[u8]>],
    each: &mut dyn FnMut(&Pixels) -> bool,
) -> Result<(), String> {
    decode_from(codec, units, (0, STALL), each)
}

/// As [`decode_each`], from picture `first` on (0 is the key frame); each may take `within`.
///
/// # Errors
/// As [`decode_each`].
pub fn decode_from(
    codec: Codec,
    units: &[impl AsRef<[u8]>],
    (first, within): (usize, Duration),
    each: &mut dyn FnMut(&Pixels) -> bool,
) -> Result<(), String> {
    let said = |error: FfmpegError| error.to_string();
    // After what is damaged, pictures could be taken for others. Only a decoder finds a lost picture of H.265.
    let flags = ["-threads", "2", "-xerror", "-err_detect", "explode"];
    let count = if codec == Codec::H265 { 5 } else { 3 };
    let mut command = picture_decoder(codec.stream(), &from_picture(first), [&flags[..count], &[]]);
    let mut ffmpeg = Ffmpeg::start(&mut command, Stdio::piped()).map_err(said)?;
    ffmpeg.limit();
    let (Some(mut input), Some(output)) = (ffmpeg.take_input(), ffmpeg.take_output()) else {
        return Err("ffmpeg has no pipe".to_owned());
    };
    let (made, pictures) = mpsc::sync_channel(1);
    let stream = framed(codec, units);
    let feed = move || drop(input.write_all(&stream));
    let read = move || {
        let mut output = BufReader::with_capacity(READ_BYTES, output);
        loop {
            let picture = next_picture(&mut output);
            let is_last = !matches!(picture, Ok(Some(_)));
            if made.send(picture).is_err() || is_last {
                return;
            }
        }
    };
    let name = |what: &str| thread::Builder::new().name(format!("ffmpeg-{what}"));
    let started = name("input").spawn(feed).and_then(|_| name("output").spawn(read));
    started.map_err(|error| format!("no thread can be started: {error}"))?;
    loop {
        match pictures.recv_timeout(within) {
            Ok(Ok(Some(picture))) if each(&picture) => {}
            // Dropped, ffmpeg is ended, and both threads with it.
            Ok(Ok(Some(_))) => return Ok(()),
            Ok(Ok(None)) => return ffmpeg.finish().map(drop).map_err(said),
            Ok(Err(error)) => return Err(format!("ffmpeg: {error}")),
            Err(_) => {
                return Err(format!(
                    "ffmpeg did nothing for {} s and was ended",
                    within.as_secs()
                ));
            }
        }
    }
}

/// Bytes that the pictures of a group may have.
const GROUP_BYTES_MAX: usize = 1 << 31;

fn codec(format: &str) -> Result<Codec, String> {
    Codec::named(format)
        .ok_or_else(|| format!("video of format {format:?} is not decoded; H.264, H.265, VP9 and AV1 are"))
}

/// Whether decoding can begin with a picture of a video.
///
/// # Errors
/// One clause for a format that is not decoded, and for what is not a picture.
pub fn begins_video(data: &[u8], format: &str) -> Result<bool, String> {
    let unit = Unit::read(codec(format)?, data)?;
    Ok(unit.is_key && unit.parameters.is_some())
}

/// Decodes pictures of a video, the first of which is a key frame: an image of each picture from `first` on that is before the first gap.
///
/// # Errors
/// One clause: no `ffmpeg`, a format that is not decoded, a damaged stream.
pub fn decode_video(units: &[Vec<u8>], format: &str, first: usize) -> Result<Vec<DecodedImage>, String> {
    let codec = codec(format)?;
    let whole = &units[..before_missing(codec, units)];
    if first >= whole.len() {
        return Ok(Vec::new());
    }
    let pictures = decode(codec, whole, (first, GROUP_BYTES_MAX), &Stop::default())?;
    let images = pictures.into_iter().map(|picture| DecodedImage {
        width: picture.width,
        height: picture.height,
        encoding: "rgb8".to_owned(),
        is_bigendian: 0,
        step: picture.width.saturating_mul(3),
        data: picture.bytes,
    });
    Ok(images.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decoder_has_limits_of_memory_and_processor_time() {
        let filter = Filter::start_decoder(&mut Command::new("cat"), 1 << 20, &Stop::default()).unwrap();
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", filter.ffmpeg.child.id())).unwrap();
        let of = |name: &str| -> Vec<String> {
            let line = limits.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_whitespace().map(str::to_owned).collect()
        };
        assert_eq!(of("Max cpu time"), ["600", "600", "seconds"]);
        assert_eq!(of("Max address space"), ["4294967296", "4294967296", "bytes"]);
    }
}
