//! Videos: plain pixels go into the program `ffmpeg`, one for each camera, which encodes the frames of many episodes into one file.

use super::{Column, FileNumber, Kind, Place, TrainingError, VIDEO_FILE_MIB, VideoPlace};
use crate::training::mapping::VideoOptions;
use holdall_io::fs;
use holdall_media::ffmpeg::{Ffmpeg, FfmpegError, PROGRAM};
use std::{
    io::{self, Write},
    path::PathBuf,
    process::{ChildStdin, Command, Stdio},
};

/// The encoder that LeRobot uses, and the one that every ffmpeg for training has.
const CODECS: [(&str, &str); 2] = [("libsvtav1", "av1"), ("libx264", "h264")];

/// The encoder that is used.
///
/// # Errors
/// No `ffmpeg`; one without the encoder.
pub(super) fn codec(options: &VideoOptions) -> Result<String, TrainingError> {
    let listed = Command::new(PROGRAM)
        .args(["-hide_banner", "-encoders"])
        .stdin(Stdio::null())
        .output()
        .map_err(not_started)?;
    let listed = String::from_utf8_lossy(&listed.stdout);
    let has = |name: &str| {
        listed
            .lines()
            .any(|line| line.split_whitespace().nth(1) == Some(name))
    };
    let wanted = options.codec.as_deref();
    let candidates = wanted
        .into_iter()
        .chain(CODECS.iter().map(|(name, _)| *name).filter(|_| wanted.is_none()));
    let found = candidates.into_iter().find(|name| has(name));
    found.map(str::to_owned).ok_or_else(|| TrainingError::Ffmpeg {
        reason: match wanted {
            Some(name) => format!("it has no encoder {name}"),
            None => format!("it has neither the encoder {} nor {}", CODECS[0].0, CODECS[1].0),
        },
    })
}

fn not_started(error: io::Error) -> TrainingError {
    failed(error.into())
}

fn failed(error: FfmpegError) -> TrainingError {
    match error {
        FfmpegError::Missing => TrainingError::NoFfmpeg,
        FfmpegError::Failed(reason) => TrainingError::Ffmpeg { reason },
    }
}

/// The videos of one camera.
pub(super) struct Video {
    folder: PathBuf,
    arguments: Vec<String>,
    codec: String,
    fps: f64,
    number: FileNumber,
    encoder: Option<Encoder>,
    /// Frames in the file.
    frames: u64,
}

/// A running `ffmpeg`.
struct Encoder {
    ffmpeg: Ffmpeg,
    pixels: Option<ChildStdin>,
    path: PathBuf,
}

impl Video {
    pub fn new(place: &Place<'_>, column: &Column) -> Result<Self, TrainingError> {
        let Kind::Images {
            width,
            height,
            channels,
            ..
        } = column.kind
        else {
            return Err(TrainingError::Feature {
                feature: column.name.clone(),
                reason: "a video is made of images".to_owned(),
            });
        };
        let options = &place.mapping.video;
        let codec = codec(options)?;
        let pixels = if channels == 1 { "gray" } else { "rgb24" };
        let mut settings = vec![
            ("loglevel", "error".to_owned()),
            ("f", "rawvideo".to_owned()),
            ("pix_fmt", pixels.to_owned()),
            ("s", format!("{width}x{height}")),
            ("r", place.mapping.fps.to_string()),
            ("i", "-".to_owned()),
            ("c:v", codec.clone()),
            ("pix_fmt", "yuv420p".to_owned()),
            ("g", options.gop.to_string()),
            ("crf", options.crf.to_string()),
        ];
        if codec == CODECS[0].0 {
            // As fast as LeRobot has it.
            settings.push(("preset", "12".to_owned()));
        }
        let settings = settings
            .into_iter()
            .flat_map(|(name, value)| [format!("-{name}"), value]);
        let arguments = ["-hide_banner", "-nostdin"].map(str::to_owned).into_iter();
        let known = CODECS.iter().find(|(name, _)| *name == codec);
        Ok(Self {
            folder: place.folder.join("videos").join(&column.name),
            arguments: arguments.chain(settings).collect(),
            codec: known.map_or(codec.clone(), |(_, name)| (*name).to_owned()),
            fps: f64::from(place.mapping.fps),
            number: FileNumber::default(),
            encoder: None,
            frames: 0,
        })
    }

    /// Begins another file where the one at hand is large.
    pub fn begin_episode(&mut self) -> Result<(), TrainingError> {
        let is_large =
            |encoder: &Encoder| fs::file_len(&encoder.path).is_ok_and(|bytes| bytes >= VIDEO_FILE_MIB << 20);
        if self.encoder.as_ref().is_some_and(is_large) {
            self.end_file()?;
            self.number.0 += 1;
        }
        if self.encoder.is_none() {
            let path = self.folder.join(self.number.path("mp4"));
            self.encoder = Some(Encoder::start(&self.arguments, path)?);
            self.frames = 0;
        }
        Ok(())
    }

    /// Appends a frame.
    pub fn frame(&mut self, pixels: &[u8]) -> Result<(), TrainingError> {
        self.frames += 1;
        let Some(encoder) = &mut self.encoder else {
            return Ok(());
        };
        let written = encoder.pixels.as_mut().map(|into| into.write_all(pixels));
        match written {
            Some(Err(error)) => Err(self.end_file().err().unwrap_or(TrainingError::Ffmpeg {
                reason: error.to_string(),
            })),
            _ => Ok(()),
        }
    }

    /// Where the last `frames` frames are.
    pub fn place_of(&self, frames: u64) -> VideoPlace {
        VideoPlace {
            number: self.number,
            from: self.frames.saturating_sub(frames) as f64 / self.fps,
            to: self.frames as f64 / self.fps,
        }
    }

    /// Completes the last file; returns the name of the codec.
    pub fn finish(mut self) -> Result<String, TrainingError> {
        self.end_file()?;
        Ok(self.codec)
    }

    fn end_file(&mut self) -> Result<(), TrainingError> {
        match self.encoder.take() {
            Some(encoder) => encoder.finish(),
            None => Ok(()),
        }
    }
}

impl Encoder {
    fn start(arguments: &[String], path: PathBuf) -> Result<Self, TrainingError> {
        if let Some(folder) = path.parent() {
            fs::create_dirs(folder)?;
        }
        let mut command = Command::new(PROGRAM);
        // Keeps this encoder's log out of the error output.
        command.args(arguments).arg(&path).env("SVT_LOG", "1");
        let mut ffmpeg = Ffmpeg::start(&mut command, Stdio::null()).map_err(failed)?;
        Ok(Self {
            pixels: ffmpeg.take_input(),
            ffmpeg,
            path,
        })
    }

    fn finish(self) -> Result<(), TrainingError> {
        // The end of its input.
        drop(self.pixels);
        self.ffmpeg.finish().map_err(failed)?;
        Ok(fs::make_durable(&self.path)?)
    }
}
