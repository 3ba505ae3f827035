//! Writes image messages, also those of video, as PNG and JPEG files that are named by their time in nanoseconds.

use super::ExistingFiles;
use super::{ExportError, Finished, Sink, folder::FilesByTime, video::Video};
use holdall_bag::reader::BagMessage;
use holdall_media::{
    carried::Image,
    compressed::{Compressed, is_file},
    elementary::Codec,
    picture_file::{ImageFormat, encode},
    pixels::{Pixels, convert},
};
use holdall_model::dynamic::{FieldPlan, Primitives, Scalar, StructPlan, TypePlan, Visitor};
use std::{borrow::Cow, path::Path, sync::Arc};

/// Writes one topic.
pub(super) struct ImageSink {
    plan: Arc<TypePlan>,
    files: FilesByTime,
    format: ImageFormat,
    existing: ExistingFiles,
    source: Source,
    video: Option<Video>,
}

/// The kind of a topic's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Raw,
    /// A file, or a picture of a video.
    Compressed,
    Video,
}

impl Source {
    fn of(type_name: &str) -> Option<Self> {
        match type_name {
            "sensor_msgs/msg/Image" => Some(Self::Raw),
            "sensor_msgs/msg/CompressedImage" => Some(Self::Compressed),
            "foxglove_msgs/msg/CompressedVideo" | "ffmpeg_image_transport_msgs/msg/FFMPEGPacket" => {
                Some(Self::Video)
            }
            _ => None,
        }
    }
}

/// Whether messages of a type may be pictures of a video.
pub(super) fn may_be_video(type_name: &str) -> bool {
    matches!(Source::of(type_name), Some(Source::Video | Source::Compressed))
}

impl ImageSink {
    /// `None` for types that are not images.
    pub fn create(
        plan: Arc<TypePlan>,
        folder: &Path,
        format: ImageFormat,
        existing: ExistingFiles,
    ) -> Result<Option<Self>, ExportError> {
        let Some(source) = Source::of(plan.type_name()) else {
            return Ok(None);
        };
        Ok(Some(Self {
            plan,
            files: FilesByTime::create(folder, existing)?,
            format,
            existing,
            source,
            video: None,
        }))
    }

    fn write_video(&mut self, codec: Codec, nanos: i64, data: &[u8]) -> Result<(), ExportError> {
        if self.video.is_none() {
            self.video = Some(Video::new(
                codec,
                nanos,
                self.files.path(),
                self.existing,
                self.format,
            )?);
        }
        let video = self.video.as_mut();
        video.map_or(Ok(()), |video| video.write(codec, nanos, data))
    }
}

impl Sink for ImageSink {
    fn write(&mut self, message: &BagMessage) -> Result<(), ExportError> {
        let mut fields = ImageFields::default();
        self.plan
            .walk(&message.payload, &mut fields)
            .map_err(ExportError::message)?;
        let nanos = message.stamp.as_nanos();
        if let Some(codec) = fields.codec(self.source).map_err(ExportError::message)? {
            return self.write_video(codec, nanos, fields.data);
        }
        let (extension, bytes) = if self.source == Source::Compressed {
            match fields.compressed().map_err(ExportError::message)? {
                Compressed::File(extension, bytes) => (extension, Cow::Borrowed(bytes)),
                Compressed::Depth(depth) => {
                    let (extension, bytes) =
                        encode(&depth.pixels(), self.format).map_err(ExportError::message)?;
                    (extension, Cow::Owned(bytes))
                }
            }
        } else {
            let pixels = fields.pixels().map_err(ExportError::message)?;
            let (extension, bytes) = encode(&pixels, self.format).map_err(ExportError::message)?;
            (extension, Cow::Owned(bytes))
        };
        let mut file = self.files.begin(nanos, extension)?;
        file.append(&bytes)?;
        file.finish_unsynced()
    }

    fn finish(self: Box<Self>) -> Result<Finished, ExportError> {
        let lost = self.video.map(Video::finish).transpose()?;
        Ok(Finished {
            path: self.files.finish()?,
            lost: lost.unwrap_or_default(),
        })
    }
}

/// The fields of both image messages, by their names.
#[derive(Default)]
pub(crate) struct ImageFields<'a> {
    field: String,
    depth: usize,
    width: u32,
    height: u32,
    encoding: String,
    format: String,
    is_big_endian: bool,
    step: u32,
    /// The pixels, or what is compressed.
    pub data: &'a [u8],
}

impl<'a> ImageFields<'a> {
    /// The pixels of an image that is not compressed.
    pub fn pixels(&self) -> Result<Pixels, String> {
        convert(&Image {
            width: self.width,
            height: self.height,
            encoding: &self.encoding,
            is_bigendian: self.is_big_endian.into(),
            step: self.step,
            data: self.data,
            ..Image::default()
        })
    }

    /// The codec if the message is a picture of a video. A file is recognized by its first bytes, whatever the format text states.
    fn codec(&self, source: Source) -> Result<Option<Codec>, String> {
        let format = self.stated();
        match source {
            Source::Raw => Ok(None),
            Source::Compressed => Ok(Codec::named(format).filter(|_| !is_file(self.data))),
            Source::Video => Codec::named(format).map(Some).ok_or_else(|| {
                format!("video of format {format:?} is not decoded; H.264, H.265, VP9 and AV1 are")
            }),
        }
    }

    /// The codec if a message of this type is a picture of a video.
    pub fn video(&self, type_name: &str) -> Result<Option<Codec>, String> {
        self.codec(Source::of(type_name).unwrap_or(Source::Raw))
    }

    /// The encoding or format that the message states.
    pub fn stated(&self) -> &str {
        if self.format.is_empty() {
            &self.encoding
        } else {
            &self.format
        }
    }

    /// Contents of a compressed image.
    pub fn compressed(&self) -> Result<Compressed<'a>, String> {
        Compressed::read(self.data, &self.format)
    }
}

impl<'a> Visitor<'a> for ImageFields<'a> {
    fn wants_field(&mut self, field: &FieldPlan) -> bool {
        self.field.clone_from(&field.name);
        self.depth == 1
    }

    fn scalar(&mut self, value: Scalar<'a>) {
        match (self.field.as_str(), value) {
            ("width", Scalar::U32(value)) => self.width = value,
            ("height", Scalar::U32(value)) => self.height = value,
            ("step", Scalar::U32(value)) => self.step = value,
            ("is_bigendian", Scalar::U8(value)) => self.is_big_endian = value != 0,
            ("encoding", Scalar::Text(text)) => self.encoding = text.to_str().into_owned(),
            ("format", Scalar::Text(text)) => self.format = text.to_str().into_owned(),
            _ => {}
        }
    }

    fn primitives(&mut self, field: &FieldPlan, values: Primitives<'a>) {
        if field.name == "data" && values.is_octets() {
            self.data = values.bytes();
        }
    }

    fn begin_struct(&mut self, _: &StructPlan) {
        self.depth += 1;
    }

    fn end_struct(&mut self, _: &StructPlan) {
        self.depth -= 1;
    }

    fn begin_list(&mut self, _: &FieldPlan, _: u64) {}

    fn end_list(&mut self, _: &FieldPlan, _: u64) {}
}
