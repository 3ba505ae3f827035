//! Videos: the pixels of a camera go into the program `ffmpeg`, which encodes the frames of many episodes into one file; recorded pictures are copied into others.

use super::{Column, FileNumber, Kind, Place, TrainingError, VIDEO_FILE_MIB, VideoPlace};
use crate::{
    export::{ExistingFiles, ExportError, PartialFile},
    training::{
        copies::{Copied, Following, PIXEL_FORMAT, Recorded},
        mapping::VideoOptions,
        picture::Picture,
    },
};
use holdall_io::fs;
use holdall_media::{
    elementary::Codec,
    ffmpeg::{Ffmpeg, FfmpegError, PROGRAM},
    mp4::Mp4,
};
use std::{
    io::{self, Write},
    path::PathBuf,
    process::{ChildStdin, Command, Stdio},
};

/// The encoder that LeRobot uses, the one that every ffmpeg for training has, and one for videos of which other episodes are copied.
const CODECS: [(&str, &str); 3] = [("libsvtav1", "av1"), ("libx264", "h264"), ("libx265", "hevc")];
/// Those of them that are used by themselves.
const DEFAULTS: usize = 2;
/// Quality, and frames from a key frame to the next: LeRobot's defaults.
const CRF: u32 = 30;
const GOP: u32 = 2;
/// Units of time for a frame of a copied video.
const UNITS: u32 = 1000;

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
    let candidates = wanted.into_iter().chain(
        CODECS[..DEFAULTS]
            .iter()
            .map(|(name, _)| *name)
            .filter(|_| wanted.is_none()),
    );
    let found = candidates.into_iter().find(|name| has(name));
    found.map(str::to_owned).ok_or_else(|| TrainingError::Ffmpeg {
        reason: match wanted {
            Some(name) => format!("it has no encoder {name}"),
            None => format!("it has neither the encoder {} nor {}", CODECS[0].0, CODECS[1].0),
        },
    })
}

/// The encoder that makes video of a codec.
///
/// # Errors
/// As [`codec`].
pub(super) fn encoder_of(wanted: Codec) -> Result<String, TrainingError> {
    let mut known = CODECS.iter();
    let known = known.find(|(_, name)| *name == wanted.name());
    codec(&VideoOptions {
        codec: known.map(|(encoder, _)| (*encoder).to_owned()),
        ..VideoOptions::default()
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
    feature: String,
    folder: PathBuf,
    arguments: Vec<String>,
    codec: String,
    fps: u32,
    /// Recorded video that is copied.
    copied: Option<Copied>,
    following: Following,
    number: FileNumber,
    output: Option<Output>,
    /// Frames in the file.
    frames: u64,
}

/// A file that is being written.
enum Output {
    Encoded(Encoder),
    Copied(Box<Copying>),
}

/// Recorded pictures in a file.
struct Copying {
    file: PartialFile,
    video: Option<Mp4>,
    bytes: u64,
}

/// A running `ffmpeg`.
struct Encoder {
    ffmpeg: Ffmpeg,
    pixels: Option<ChildStdin>,
    path: PathBuf,
}

impl Video {
    pub fn new(place: &Place<'_>, column: &Column, copied: Option<Copied>) -> Result<Self, TrainingError> {
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
        let is_encoded = |copied: &&Copied| copied.episodes.contains(&false);
        let codec = match copied.as_ref().filter(is_encoded) {
            Some(copied) => encoder_of(copied.codec)?,
            None => codec(options)?,
        };
        let pixels = if channels == 1 { "gray" } else { "rgb24" };
        let mut settings = vec![
            ("loglevel", "error".to_owned()),
            ("f", "rawvideo".to_owned()),
            ("pix_fmt", pixels.to_owned()),
            ("s", format!("{width}x{height}")),
            ("r", place.mapping.fps.to_string()),
            ("i", "-".to_owned()),
            ("c:v", codec.clone()),
            ("pix_fmt", PIXEL_FORMAT.to_owned()),
            ("g", options.gop.unwrap_or(GOP).to_string()),
            ("crf", options.crf.unwrap_or(CRF).to_string()),
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
            feature: column.name.clone(),
            folder: place.folder.join("videos").join(&column.name),
            arguments: arguments.chain(settings).collect(),
            codec: known.map_or(codec.clone(), |(_, name)| (*name).to_owned()),
            fps: place.mapping.fps,
            copied,
            following: Following::default(),
            number: FileNumber::default(),
            output: None,
            frames: 0,
        })
    }

    /// Begins another file where the one at hand is large, or of the other kind.
    pub fn begin_episode(&mut self, episode: u64) -> Result<(), TrainingError> {
        let copies = self.copied.as_ref().map(|copied| &copied.episodes);
        let is_copied = copies.is_some_and(|copies| copies.get(episode as usize) == Some(&true));
        self.following = Following::default();
        let output = self.output.as_ref();
        if output.is_some_and(|output| output.is_copied() != is_copied || output.is_large()) {
            self.end_file()?;
            self.number.0 += 1;
        }
        if self.output.is_none() {
            let path = self.folder.join(self.number.path("mp4"));
            if let Some(folder) = path.parent() {
                fs::create_dirs(folder)?;
            }
            self.output = Some(match is_copied {
                true => Output::Copied(Box::new(Copying {
                    file: PartialFile::create(&path, ExistingFiles::Refuse)?,
                    video: None,
                    bytes: 0,
                })),
                false => Output::Encoded(Encoder::start(&self.arguments, path)?),
            });
            self.frames = 0;
        }
        Ok(())
    }

    /// Appends a frame.
    pub fn frame(&mut self, picture: &Picture) -> Result<(), TrainingError> {
        let at = self.nanos();
        self.frames += 1;
        match &mut self.output {
            Some(Output::Copied(copy)) => {
                let recorded = picture.recorded.as_ref();
                let complete = self.following.next(recorded);
                let complete = complete.and_then(|()| copy.add(recorded, at, self.fps));
                let complete = complete.map_err(|reason| TrainingError::Copy {
                    feature: self.feature.clone(),
                    reason,
                })?;
                Ok(copy.append(&complete)?)
            }
            Some(Output::Encoded(encoder)) => {
                let into = encoder.pixels.as_mut();
                match into.map(|into| into.write_all(&picture.bytes)) {
                    Some(Err(error)) => Err(self.end_file().err().unwrap_or(TrainingError::Ffmpeg {
                        reason: error.to_string(),
                    })),
                    _ => Ok(()),
                }
            }
            None => Ok(()),
        }
    }

    /// Where the next frame begins in its file.
    fn nanos(&self) -> i64 {
        (self.frames * 1_000_000_000 / u64::from(self.fps)).cast_signed()
    }

    /// Where the last `frames` frames are.
    pub fn place_of(&self, frames: u64) -> VideoPlace {
        let fps = f64::from(self.fps);
        VideoPlace {
            number: self.number,
            from: self.frames.saturating_sub(frames) as f64 / fps,
            to: self.frames as f64 / fps,
        }
    }

    /// Completes the last file; returns the name of the codec, and the format of pixels.
    pub fn finish(mut self) -> Result<(String, String), TrainingError> {
        self.end_file()?;
        Ok(match self.copied {
            Some(copied) => (copied.codec.name().to_owned(), copied.pixel_format),
            None => (self.codec, PIXEL_FORMAT.to_owned()),
        })
    }

    fn end_file(&mut self) -> Result<(), TrainingError> {
        let end = self.nanos();
        match self.output.take() {
            Some(Output::Encoded(encoder)) => encoder.finish(),
            Some(Output::Copied(mut copy)) => {
                let rest = copy.video.take().map(|video| video.finish(Some(end)));
                copy.append(&rest.unwrap_or_default())?;
                copy.file.finish()?;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl Output {
    const fn is_copied(&self) -> bool {
        matches!(self, Self::Copied(_))
    }

    fn is_large(&self) -> bool {
        let bytes = match self {
            Self::Encoded(encoder) => fs::file_len(&encoder.path).unwrap_or(0),
            Self::Copied(copy) => copy.bytes,
        };
        bytes >= VIDEO_FILE_MIB << 20
    }
}

impl Copying {
    /// Adds a picture that is shown from `at` on; returns what is complete.
    fn add(&mut self, recorded: Option<&Recorded>, at: i64, fps: u32) -> Result<Vec<u8>, String> {
        let Some(recorded) = recorded else {
            return Ok(Vec::new());
        };
        let video = match &mut self.video {
            Some(video) => video,
            none => {
                let video = Mp4::begin(recorded.codec, at, &recorded.data)?;
                none.insert(video.with_table(fps * UNITS))
            }
        };
        video.add(at, &recorded.data, recorded.is_key())
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), ExportError> {
        self.bytes += bytes.len() as u64;
        self.file.append(bytes)
    }
}

impl Encoder {
    fn start(arguments: &[String], path: PathBuf) -> Result<Self, TrainingError> {
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
