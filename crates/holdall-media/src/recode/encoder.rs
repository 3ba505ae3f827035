//! The encoders of `ffmpeg` and of this program: their names, their arguments, and which of them works on this computer.

#[cfg(feature = "openh264")]
use super::inside;
use super::{image::Raw, video::VideoOptions};
use crate::{
    elementary::{Codec, Pictures, Unit},
    ffmpeg::{Filter, PROGRAM, STALL, Stop},
};
use bytes::Bytes;
use holdall_io::mutex::lock;
use std::{
    process::Command,
    sync::{Arc, Mutex},
    time::Duration,
};

/// Any encoder of the graphics or video processor, as a user writes it.
pub(super) const HARDWARE: &str = "hardware";
/// The encoder of this program, where it was built with it.
pub(super) const OWN: &str = "openh264";
/// Presets, from the fastest to the one with the smallest output, with the numbers that the encoders of AV1 (SVT and libaom) and VP9 have for them.
pub(super) const PRESETS: [(&str, [u8; 3]); 9] = [
    ("ultrafast", [12, 10, 9]),
    ("superfast", [11, 9, 8]),
    ("veryfast", [10, 8, 7]),
    ("faster", [9, 7, 6]),
    ("fast", [8, 6, 5]),
    ("medium", [7, 6, 5]),
    ("slow", [6, 5, 4]),
    ("slower", [5, 4, 3]),
    ("veryslow", [4, 3, 2]),
];
/// What each step of a lower quality adds to its number.
const STEP_QUALITY: u8 = 4;
/// Pictures that an encoder is tried with, and those of a group: some send their parameters only once.
const TRIED: usize = 4;
const TRIED_GROUP: usize = 2;
/// One of the hardware that makes nothing for this long when it is tried while images come does not work.
const TRIAL: Duration = Duration::from_secs(2);

/// The encoders of a codec: those of the program's libraries, the first that works counts, and those of the hardware.
pub(super) const fn encoders(codec: Codec) -> (&'static [&'static str], &'static [&'static str]) {
    match codec {
        Codec::H264 => (
            if cfg!(feature = "openh264") {
                &["libx264", OWN]
            } else {
                &["libx264"]
            },
            &["h264_nvenc", "h264_nvmpi", "h264_v4l2m2m", "h264_vaapi"],
        ),
        Codec::H265 => (
            &["libx265"],
            &["hevc_nvenc", "hevc_nvmpi", "hevc_v4l2m2m", "hevc_vaapi"],
        ),
        Codec::Vp9 => (&["libvpx-vp9"], &["vp9_vaapi"]),
        Codec::Av1 => (&["libsvtav1", "libaom-av1"], &["av1_nvenc", "av1_vaapi"]),
    }
}

/// The worst quality of a codec.
pub(super) const fn quality_max(codec: Codec) -> u8 {
    match codec {
        Codec::H264 | Codec::H265 => 51,
        Codec::Vp9 | Codec::Av1 => 63,
    }
}

/// A stream that is to be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Pictures a second.
    pub rate: usize,
    /// Pictures from a key frame to the next.
    pub group: usize,
    /// Pictures come out soon after they went in.
    pub is_live: bool,
    /// Steps by which the quality is lower than requested.
    pub ease: u8,
}

impl Shape {
    /// Pictures that the encoder reads ahead, so that it knows what is needed later; `None` leaves that to it.
    fn ahead(&self) -> Option<usize> {
        self.is_live.then(|| (self.rate / 6).min(self.group / 2))
    }
}

/// Encoders that are tried one after the other.
fn candidates(options: &VideoOptions) -> Vec<&str> {
    let (software, hardware) = encoders(options.codec);
    let is_lossy = options.quality.is_some();
    let software = software.iter().copied().filter(|name| is_lossy || *name != OWN);
    match options.encoder.as_deref() {
        None => software.collect(),
        Some(HARDWARE) => hardware.iter().copied().chain(software).collect(),
        Some(name) => {
            let others = software.filter(|other| *other != name);
            [name].into_iter().chain(others).collect()
        }
    }
}

/// Whether the encoder of this program may be used: without `ffmpeg`.
pub(super) fn may_be_own(options: &VideoOptions) -> bool {
    candidates(options).contains(&OWN)
}

/// Encoders that do not work here, and why; one that takes the place of another one knows them too.
#[derive(Clone, Default)]
pub(super) struct Refused(Arc<Mutex<Vec<(String, String)>>>);

impl Refused {
    /// Adds one; returns that as a clause.
    pub fn add(&self, name: &str, reason: &str) -> String {
        let clause = format!("{name} does not work here ({reason})");
        lock(&self.0).push((name.to_owned(), clause.clone()));
        clause
    }

    fn has(&self, name: &str) -> bool {
        lock(&self.0).iter().any(|(refused, _)| refused == name)
    }

    /// A clause for each.
    pub fn clauses(&self) -> Vec<String> {
        lock(&self.0).iter().map(|(_, clause)| clause.clone()).collect()
    }
}

/// Encodes images one after the other; an error is one clause.
pub(super) trait Engine: Send {
    /// Encodes the next image. After an error no more can be encoded.
    fn feed(&mut self, pixels: Bytes) -> Result<(), String>;

    /// Returns what was encoded so far and not returned yet.
    fn take(&mut self) -> Result<Vec<u8>, String>;

    /// Ends the encoder and returns the rest.
    fn finish(self: Box<Self>) -> Result<Vec<u8>, String>;
}

impl Engine for Filter {
    fn feed(&mut self, pixels: Bytes) -> Result<(), String> {
        Self::feed(self, pixels).map_err(|error| error.to_string())
    }

    fn take(&mut self) -> Result<Vec<u8>, String> {
        Self::take(self).map_err(|error| error.to_string())
    }

    fn finish(self: Box<Self>) -> Result<Vec<u8>, String> {
        Self::finish(*self).map_err(|error| error.to_string())
    }
}

/// Starts an encoder for images like this one; at most `bytes_max` of what it made may wait, and it is ended after a `stall`.
///
/// # Errors
/// One clause: why it cannot be started.
pub(super) fn start(
    (options, name): (&VideoOptions, &str),
    image: &Raw,
    shape: &Shape,
    (bytes_max, stall, stop): (usize, Duration, &Stop),
) -> Result<Box<dyn Engine>, String> {
    #[cfg(feature = "openh264")]
    if name == OWN {
        return inside::start(options, image, shape);
    }
    let filter = Filter::start(&mut command(options, name, image, shape), bytes_max as u64, stop);
    let filter = filter.map_err(|error| error.to_string())?;
    Ok(Box::new(filter.within(stall)))
}

/// Whether another encoder can take the place of one.
pub(super) fn is_followed(options: &VideoOptions, name: &str) -> bool {
    candidates(options).last().is_some_and(|last| *last != name)
}

/// The first encoder that works here; those before it are refused from now on, with a warning.
///
/// # Errors
/// One clause if this was to stop.
pub(super) fn choose(
    options: &VideoOptions,
    image: &Raw,
    refused: &Refused,
    (is_live, stop): (bool, &Stop),
) -> Result<String, String> {
    let candidates = candidates(options);
    // The last one is tried by its first pictures.
    let (last, others) = candidates.split_last().ok_or("no encoder is known")?;
    let (_, hardware) = encoders(options.codec);
    let (mut new, mut chosen) = (Vec::new(), *last);
    for name in others.iter().copied().filter(|name| !refused.has(name)) {
        let is_hardware = hardware.contains(&name);
        let stall = if is_live && is_hardware { TRIAL } else { STALL };
        match trial((options, name), image, stall, stop) {
            Ok(()) => {
                chosen = name;
                break;
            }
            Err(reason) if stop.is_stopped() => {
                // A library is only late where the computer is busy.
                if is_hardware {
                    let clause = refused.add(name, "it made no picture in time");
                    tracing::warn!("{clause}; it is not tried again");
                }
                return Err(reason);
            }
            Err(reason) => new.push(refused.add(name, &reason)),
        }
    }
    for clause in new {
        tracing::warn!("{clause}; {chosen} encodes");
    }
    Ok(chosen.to_owned())
}

/// Whether an encoder makes pictures of images of this size.
fn trial(
    (options, name): (&VideoOptions, &str),
    image: &Raw,
    stall: Duration,
    stop: &Stop,
) -> Result<(), String> {
    let shape = Shape {
        rate: 30,
        group: TRIED_GROUP,
        is_live: false,
        ease: 0,
    };
    let bytes_max = 4 * TRIED * image.bytes.len() + (1 << 20);
    let mut engine = start((options, name), image, &shape, (bytes_max, stall, stop))?;
    for _ in 0..TRIED {
        engine.feed(image.bytes.clone())?;
    }
    let made = engine.finish()?;
    let made = Pictures::new(options.codec, bytes_max).add(&made, true)?;
    check(options.codec, &made, TRIED)?;
    let mut groups = made.chunks(TRIED_GROUP);
    groups.try_for_each(|group| check(options.codec, group, TRIED_GROUP))
}

/// Whether pictures are what the schema of their messages demands; the first one begins a group.
///
/// # Errors
/// One clause: what they are instead.
pub(super) fn check(codec: Codec, made: &[Vec<u8>], pictures: usize) -> Result<(), String> {
    if made.len() != pictures {
        return Err(format!(
            "the encoder made {} pictures of {pictures} images",
            made.len()
        ));
    }
    for (number, data) in made.iter().enumerate() {
        let unit = Unit::read(codec, data)?;
        let is_right = unit.pictures == 1
            && !unit.is_reordered
            && (number > 0 || unit.is_key)
            && (!unit.is_key || unit.parameters.is_some());
        if !is_right {
            return Err(format!(
                "picture {number} that the encoder made is not as its message needs it"
            ));
        }
    }
    Ok(())
}

/// The number of the quality.
pub(super) fn quality_of(options: &VideoOptions, shape: &Shape) -> u8 {
    let quality = options.quality.unwrap_or(0);
    (quality + STEP_QUALITY * shape.ease).min(quality_max(options.codec))
}

/// The process of an encoder. Its flags are those that versions from 4.4 on know.
fn command(options: &VideoOptions, name: &str, pixels: &Raw, shape: &Shape) -> Command {
    let is_grey = pixels.order == "gray";
    let size = format!("{}x{}", pixels.width, pixels.height);
    let mut command = Command::new(PROGRAM);
    command.args(["-hide_banner", "-loglevel", "error"]);
    if name.ends_with("_vaapi") {
        command.args(["-vaapi_device", "/dev/dri/renderD128"]);
    }
    command
        .args(["-f", "rawvideo", "-pix_fmt", pixels.order])
        .args(["-video_size", &size, "-framerate", &shape.rate.to_string()])
        .args(["-i", "-"]);
    match options.quality {
        Some(_) => lossy(&mut command, name, (options, pixels, shape)),
        None if is_grey => {
            command.args(["-c:v", "libx264", "-qp", "0", "-pix_fmt", "gray"]);
            libx26x(&mut command, "-x264-params", options, shape);
        }
        None => {
            command.args(["-c:v", "libx264rgb", "-qp", "0", "-pix_fmt", "rgb24"]);
            libx26x(&mut command, "-x264-params", options, shape);
        }
    }
    command
        .args(["-flush_packets", "1"])
        .args(["-f", options.codec.stream(), "-"]);
    command
}

/// The preset that is faster by this many steps.
fn preset(options: &VideoOptions, ease: u8) -> &'static (&'static str, [u8; 3]) {
    let place = PRESETS.iter().position(|(name, _)| *name == options.preset);
    &PRESETS[place.unwrap_or(0).saturating_sub(usize::from(ease))]
}

/// What an encoder is given, in the words of its own arguments.
pub(super) fn settings(options: &VideoOptions, name: &str) -> String {
    let (preset, [svt, aom, vpx]) = preset(options, 0);
    let Some(quality) = options.quality else {
        return format!("lossless, preset {preset}");
    };
    match (name, name.rsplit('_').next()) {
        ("libx264" | "libx265", _) => format!("crf {quality}, preset {preset}"),
        ("libsvtav1", _) => format!("crf {quality}, preset {svt}"),
        ("libaom-av1", _) => format!("crf {quality}, cpu-used {aom}"),
        ("libvpx-vp9", _) => format!("crf {quality}, cpu-used {vpx}"),
        (OWN, _) => format!("qp {quality}, preset {preset}"),
        (_, Some("nvenc")) => format!("cq {quality}"),
        (_, Some("vaapi")) => format!("global_quality {quality}"),
        _ => format!("a bit rate for quality {quality}"),
    }
}

/// Parameters of the libraries x264 and x265.
fn libx26x(command: &mut Command, flag: &str, options: &VideoOptions, shape: &Shape) {
    let group = shape.group;
    let mut all =
        format!("keyint={group}:min-keyint={group}:scenecut=0:bframes=0:aud=1:repeat-headers=1:open-gop=0");
    if flag == "-x265-params" {
        all.push_str(":log-level=none");
    }
    if let Some(ahead) = shape.ahead() {
        // Whole pictures in several threads would come out later by as many.
        let threads = match flag {
            "-x265-params" => "frame-threads=1",
            _ => "sync-lookahead=0:sliced-threads=1",
        };
        all.push_str(&format!(":rc-lookahead={ahead}:{threads}"));
    }
    command.args([flag, &all, "-preset", preset(options, shape.ease).0]);
}

/// Colours, rate and groups of lossy video.
fn lossy(command: &mut Command, name: &str, (options, pixels, shape): (&VideoOptions, &Raw, &Shape)) {
    let upload = if name.ends_with("_vaapi") {
        ",format=nv12,hwupload"
    } else {
        ""
    };
    // Exact rounding would be 0.05 dB better, for a third more processor time of the conversion.
    let filter = format!("scale=out_color_matrix=bt709:out_range=tv:flags=bicubic,format=yuv420p{upload}");
    // Stated in the stream, so that players do not guess the colours by the size.
    command
        .args(["-vf", &filter, "-color_primaries", "bt709", "-color_trc", "bt709"])
        .args(["-colorspace", "bt709", "-color_range", "tv"])
        .args(["-c:v", name]);
    let (quality, group) = (quality_of(options, shape).to_string(), shape.group.to_string());
    let [svt, aom, vpx] = preset(options, shape.ease).1.map(|number| number.to_string());
    let group = ["-g", &group, "-keyint_min", &group];
    match name {
        "libx264" => libx26x(command.args(["-crf", &quality]), "-x264-params", options, shape),
        "libx265" => libx26x(command.args(["-crf", &quality]), "-x265-params", options, shape),
        "libsvtav1" => {
            command
                .args(["-crf", &quality, "-preset", &svt])
                .args(&group[..2])
                // No picture depends on a later one, and groups do not on others.
                .args([
                    "-svtav1-params",
                    "pred-struct=1:lookahead=0:scd=0:irefresh-type=2",
                ]);
        }
        "libaom-av1" | "libvpx-vp9" => {
            let (usage, speed, alone): (_, _, &[&str]) = match name {
                "libaom-av1" => ("-usage", &aom, &[]),
                _ => ("-deadline", &vpx, &["-auto-alt-ref", "0"]),
            };
            command
                .args([
                    "-crf",
                    &quality,
                    "-b:v",
                    "0",
                    usage,
                    "realtime",
                    "-cpu-used",
                    speed,
                ])
                .args(["-lag-in-frames", "0", "-row-mt", "1"])
                .args(alone)
                .args(group);
        }
        _ => of_hardware(command.args(group), name, &quality, (options, pixels, shape)),
    }
}

/// Arguments of encoders of the hardware, and of others that a user names.
fn of_hardware(
    command: &mut Command,
    name: &str,
    quality: &str,
    (options, pixels, shape): (&VideoOptions, &Raw, &Shape),
) {
    command.args(["-bf", "0"]);
    match name.rsplit('_').next() {
        Some("nvenc") => {
            command.args(["-rc", "vbr", "-cq", quality, "-b:v", "0", "-forced-idr", "1"]);
        }
        Some("vaapi") => {
            command.args(["-rc_mode", "CQP", "-global_quality", quality]);
        }
        _ => {
            // They only know a rate: a tenth of a bit for each pixel at quality 23, half of it six steps later.
            let quality: f64 = quality.parse().unwrap_or(23.0);
            let pixels = f64::from(pixels.width) * f64::from(pixels.height) * shape.rate as f64;
            let bits = pixels * 0.1 * ((23.0 - quality) / 6.0).exp2();
            command.args(["-b:v", &format!("{bits:.0}")]);
        }
    }
    let delimiters = match options.codec {
        Codec::H264 => "dump_extra=freq=keyframe,h264_metadata=aud=insert",
        Codec::H265 => "dump_extra=freq=keyframe,hevc_metadata=aud=insert",
        Codec::Vp9 | Codec::Av1 => return,
    };
    command.args(["-bsf:v", delimiters]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recode::{How, Rule};

    fn options(text: &str) -> VideoOptions {
        match Rule::video(text).unwrap().how() {
            How::Video(options) => options.clone(),
            How::Cloud(_) => panic!(),
        }
    }

    fn arguments(text: &str, shape: Shape) -> String {
        let options = options(text);
        let name = candidates(&options)[0].to_owned();
        let pixels = Raw {
            width: 100,
            height: 50,
            order: "bgr24",
            bytes: Bytes::new(),
        };
        let command = command(&options, &name, &pixels, &shape);
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    }

    #[test]
    fn live_video_reads_little_ahead_and_an_easier_one_is_faster_and_coarser() {
        let shape = |is_live, ease| Shape {
            rate: 30,
            group: 30,
            is_live,
            ease,
        };
        let whole = arguments("/a=h264,quality=20,preset=fast", shape(false, 0));
        assert!(
            whole.contains("-crf 20 ") && !whole.contains("lookahead"),
            "{whole}"
        );
        let live = arguments("/a=h264,quality=20,preset=fast", shape(true, 2));
        assert!(
            live.contains("-crf 28 ") && live.contains("rc-lookahead=5"),
            "{live}"
        );
        assert!(live.contains("-preset veryfast"), "{live}");
        assert!(
            live.contains("-f rawvideo -pix_fmt bgr24 -video_size 100x50"),
            "{live}"
        );
        let most = arguments("/a=av1,quality=60", shape(true, 9));
        assert!(most.contains("-crf 63 -preset 12 -g 30 -svtav1-params"), "{most}");
    }

    #[test]
    fn encoders_of_the_hardware_are_tried_before_those_of_libraries() {
        assert_eq!(candidates(&options("/a=av1")), ["libsvtav1", "libaom-av1"]);
        assert_eq!(
            candidates(&options("/a=h264,encoder=h264_vaapi"))[..2],
            ["h264_vaapi", "libx264"]
        );
        let all = candidates(&options("/a=h264,encoder=hardware"))
            .into_iter()
            .map(str::to_owned)
            .collect::<Vec<_>>();
        assert!(all[..4].iter().all(|name| name.starts_with("h264_")) && all[4] == "libx264");
        let shape = Shape {
            rate: 10,
            group: 10,
            is_live: true,
            ease: 0,
        };
        let rate = arguments("/a=h264,quality=23,encoder=h264_v4l2m2m", shape);
        assert!(
            rate.contains("-b:v 5000 ") && rate.contains("aud=insert"),
            "{rate}"
        );
    }

    #[test]
    fn settings_are_those_that_an_encoder_is_given() {
        let shape = Shape {
            rate: 30,
            group: 30,
            is_live: false,
            ease: 0,
        };
        for (rule, said, given) in [
            (
                "h264,quality=20,preset=slow",
                "crf 20, preset slow",
                "-crf 20 -x264-params",
            ),
            (
                "av1,quality=30,preset=medium",
                "crf 30, preset 7",
                "-crf 30 -preset 7",
            ),
            (
                "vp9,quality=30,preset=medium",
                "crf 30, cpu-used 5",
                "-cpu-used 5",
            ),
            ("h264,quality=20,encoder=h264_nvenc", "cq 20", "-cq 20"),
            (
                "h264,quality=20,encoder=h264_vaapi",
                "global_quality 20",
                "-global_quality 20",
            ),
            (
                "h264,quality=20,encoder=h264_v4l2m2m",
                "a bit rate for quality 20",
                "-b:v",
            ),
            ("lossless,preset=fast", "lossless, preset fast", "-qp 0"),
        ] {
            let rule = format!("/a={rule}");
            let options = options(&rule);
            assert_eq!(settings(&options, candidates(&options)[0]), said);
            let words = arguments(&rule, shape);
            assert!(words.contains(given), "{words}");
        }
    }
}
