//! Decodes messages that are pictures of a video with the program `ffmpeg`.
//!
//! The stream goes in, pictures come out; the n-th belongs to the n-th message. This can be checked only when a segment of the stream has ended:
//! until then its files are in a folder of their own. A damaged stream has fewer pictures than messages, and the images of that segment are refused,
//! because any of them could have the time of another one.

use super::{ExistingFiles, ExportError, file::PartialFile, folder::FilesByTime};
use holdall_io::fs;
use holdall_media::{
    elementary::{Codec, Unit, lead},
    ffmpeg::{Ffmpeg, FfmpegError, next_picture, picture_decoder},
    picture_file::{ImageFormat, encode},
};
use holdall_tools::tools::Staged;
use std::{
    io::{self, BufReader, Write},
    path::{Path, PathBuf},
    process::{ChildStdin, ChildStdout, Stdio},
    sync::mpsc::{self, Receiver, SyncSender},
    thread::{self, JoinHandle},
};

/// A segment ends before the first key frame after this many pictures.
const SEGMENT_PICTURES: u64 = 300;
/// Pictures that ffmpeg may have and not yet returned; it keeps some tens.
const PICTURES_IN_FLIGHT_MAX: usize = 1 << 14;
/// A segment ends after this many pictures at the latest: each of them has a path in memory.
const SEGMENT_PICTURES_MAX: u64 = 1 << 20;

/// The video of one topic.
pub(super) struct Video {
    folder: PathBuf,
    existing: ExistingFiles,
    format: ImageFormat,
    staged: Staged,
    codec: Codec,
    /// The latest parameters of the sequence.
    parameters: Option<Vec<u8>>,
    decoder: Option<Decoder>,
    /// `None` while the decoder's thread has them.
    files: Option<FilesByTime>,
    /// Time of the first message.
    first: i64,
    has_begun: bool,
    lost: Lost,
}

/// Messages that `write` has taken and that are not in the output.
#[derive(Debug, Default)]
pub(super) struct Lost {
    /// Messages before the first key frame, and those without a picture.
    pub left_out: u64,
    /// Messages that `ffmpeg` gave no picture for.
    pub failed: u64,
    /// Time in nanoseconds and reason.
    pub failure: Option<(i64, String)>,
}

/// A running `ffmpeg`: of one segment.
struct Decoder {
    ffmpeg: Ffmpeg,
    input: ChildStdin,
    stamps: SyncSender<i64>,
    images: JoinHandle<(FilesByTime, Result<Vec<PathBuf>, ExportError>)>,
    first: i64,
    pictures: u64,
}

impl Video {
    /// Images will be in `folder`; `first` is the time of the first message in nanoseconds.
    pub fn new(
        codec: Codec,
        first: i64,
        folder: &Path,
        existing: ExistingFiles,
        format: ImageFormat,
    ) -> Result<Self, ExportError> {
        let failed = |error: String| ExportError::io("make", folder, io::Error::other(error));
        let staged = Staged::begin(&folder.join("video")).map_err(|error| failed(error.to_string()))?;
        let files = FilesByTime::create(staged.directory(), ExistingFiles::Refuse)?;
        Ok(Self {
            folder: folder.to_owned(),
            existing,
            format,
            staged,
            codec,
            parameters: None,
            decoder: None,
            files: Some(files),
            first,
            has_begun: false,
            lost: Lost::default(),
        })
    }

    /// Takes the data of a message of `nanos`.
    pub fn write(&mut self, codec: Codec, nanos: i64, data: &[u8]) -> Result<(), ExportError> {
        let unit = Unit::read(codec, data).map_err(ExportError::message)?;
        if unit.pictures > 1 {
            return Err(ExportError::message(format!(
                "video with {} pictures in a message: none of them has a time",
                unit.pictures
            )));
        }
        if unit.is_reordered {
            return Err(ExportError::message(
                "video with B-frames: its pictures are in another order than its messages",
            ));
        }
        // Parameters may come in a message of their own before the key frame.
        let can_begin = unit.parameters.is_some() && (unit.is_key || unit.pictures == 0);
        let is_new = codec != self.codec || (unit.parameters.is_some() && unit.parameters != self.parameters);
        if self.decoder.as_ref().is_some_and(|decoder| {
            let is_long = decoder.pictures >= SEGMENT_PICTURES && can_begin;
            (is_new && (decoder.pictures > 0 || codec != self.codec)) || is_long
        }) {
            self.end_segment()?;
        }
        if is_new {
            self.codec = codec;
            self.parameters.clone_from(&unit.parameters);
        }
        if self.decoder.is_none() {
            if !can_begin {
                return self.leave_out();
            }
            self.decoder = Some(self.begin_segment(nanos)?);
        }
        self.feed(&unit, nanos, data)
    }

    /// Before the first key frame a message is left out; after a failed segment it is an error.
    fn leave_out(&mut self) -> Result<(), ExportError> {
        if self.has_begun {
            return Err(ExportError::message("video that no key frame precedes"));
        }
        self.lost.left_out += 1;
        Ok(())
    }

    fn feed(&mut self, unit: &Unit, nanos: i64, data: &[u8]) -> Result<(), ExportError> {
        let Some(decoder) = &mut self.decoder else {
            return Ok(());
        };
        let is_first = decoder.pictures == 0;
        if unit.pictures == 0 || (is_first && !unit.is_key) {
            self.lost.left_out += 1;
        } else {
            self.has_begun = true;
            decoder.pictures += 1;
            // Before the picture can come. A receiver that has ended, or too many pictures that ffmpeg has not returned, are seen at the end
            // of the segment, by the number of its images.
            let _ = decoder.stamps.try_send(nanos);
        }
        if unit.pictures == 1 && is_first && !unit.is_key {
            return Ok(());
        }
        // A pipe that was closed: the reason is what ffmpeg reports.
        let lead = lead(self.codec, is_first, data.len());
        let written = decoder
            .input
            .write_all(&lead)
            .and_then(|()| decoder.input.write_all(data));
        let is_over = written.is_err() || decoder.pictures >= SEGMENT_PICTURES_MAX;
        if is_over { self.end_segment() } else { Ok(()) }
    }

    fn begin_segment(&mut self, first: i64) -> Result<Decoder, ExportError> {
        // Each picture once, whatever rate the stream states.
        let mut command = picture_decoder(self.codec.stream(), "settb=1/25,setpts=N", [&[], &[]]);
        let mut ffmpeg = Ffmpeg::start(&mut command, Stdio::piped()).map_err(|error| match error {
            FfmpegError::Missing => ExportError::NoFfmpeg,
            FfmpegError::Failed(reason) => ExportError::Ffmpeg { reason },
        })?;
        let (Some(input), Some(output)) = (ffmpeg.take_input(), ffmpeg.take_output()) else {
            return Err(ExportError::Ffmpeg {
                reason: "it has no pipe".to_owned(),
            });
        };
        let (stamps, received) = mpsc::sync_channel(PICTURES_IN_FLIGHT_MAX);
        let Some(mut files) = self.files.take() else {
            return Err(ExportError::Ffmpeg {
                reason: "it runs already".to_owned(),
            });
        };
        let format = self.format;
        let images = thread::Builder::new()
            .name("video-images".into())
            .spawn(move || {
                let written = write_images(output, &received, &mut files, format);
                (files, written)
            })
            .map_err(|error| ExportError::io("start a thread for", &self.folder, error))?;
        Ok(Decoder {
            ffmpeg,
            input,
            stamps,
            images,
            first,
            pictures: 0,
        })
    }

    /// Publishes the images of the segment, if there is one for each message.
    fn end_segment(&mut self) -> Result<(), ExportError> {
        let Some(decoder) = self.decoder.take() else {
            return Ok(());
        };
        drop((decoder.input, decoder.stamps));
        let (files, written) = decoder.images.join().map_err(|_| ExportError::Ffmpeg {
            reason: "the thread that reads its pictures has failed".to_owned(),
        })?;
        self.files = Some(files);
        let report = match decoder.ffmpeg.finish() {
            Ok(report) => report,
            Err(FfmpegError::Failed(reason)) => Some(reason),
            Err(FfmpegError::Missing) => None,
        };
        let images = match written {
            Ok(images) if images.len() as u64 == decoder.pictures => return self.publish(&images),
            Ok(images) => format!("{} images", images.len()),
            Err(ExportError::Message { reason }) => reason,
            Err(error) => return Err(error),
        };
        for entry in fs::list_dir(self.staged.directory())? {
            fs::remove_file(&entry.path)?;
        }
        let report = report.map_or_else(String::new, |report| {
            format!(" ({})", holdall_model::text::one_line(&report))
        });
        let reason = format!(
            "ffmpeg gave {images} for {} pictures of video, so that no image has a certain time{report}",
            decoder.pictures
        );
        self.lost.failed += decoder.pictures;
        self.lost.failure.get_or_insert((decoder.first, reason));
        Ok(())
    }

    fn publish(&self, images: &[PathBuf]) -> Result<(), ExportError> {
        for image in images {
            let Some(name) = image.file_name() else { continue };
            let path = self.folder.join(name);
            match self.existing {
                ExistingFiles::Replace => fs::rename_over(image, &path)?,
                ExistingFiles::Refuse if fs::exists(&path)? => return Err(ExportError::Exists { path }),
                ExistingFiles::Refuse => fs::rename_new(image, &path)?,
            }
        }
        Ok(())
    }

    /// Ends the last segment.
    pub fn finish(mut self) -> Result<Lost, ExportError> {
        self.end_segment()?;
        let mut lost = self.lost;
        if !self.has_begun && lost.left_out > 0 {
            lost.failed += std::mem::take(&mut lost.left_out);
            lost.failure = Some((
                self.first,
                "no message has a key frame with its parameters".to_owned(),
            ));
        }
        Ok(lost)
    }
}

/// Writes a file for each picture; returns their paths.
fn write_images(
    output: ChildStdout,
    stamps: &Receiver<i64>,
    files: &mut FilesByTime,
    format: ImageFormat,
) -> Result<Vec<PathBuf>, ExportError> {
    let mut output = BufReader::new(output);
    let mut paths = Vec::new();
    while let Some(pixels) = next_picture(&mut output).map_err(|error| ExportError::Ffmpeg {
        reason: format!("its output cannot be read: {error}"),
    })? {
        let nanos = stamps
            .try_recv()
            .map_err(|_| ExportError::message("more images"))?;
        let (extension, bytes) = encode(&pixels, format).map_err(ExportError::message)?;
        let mut file: PartialFile = files.begin(nanos, extension)?;
        file.append(&bytes)?;
        paths.push(file.path().to_owned());
        file.finish_unsynced()?;
    }
    Ok(paths)
}
