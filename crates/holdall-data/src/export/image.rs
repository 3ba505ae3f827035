//! Writes image messages, also those of video, as PNG and JPEG files that are named by their time in nanoseconds.

use super::{ExistingFiles, ExportError, Finished, Lost, Sink, folder::FilesByTime};
use holdall_bag::reader::{BagMessage, BagSet};
use holdall_media::{
    carried::{IMAGE, Image},
    compressed::{Compressed, is_file},
    elementary::Codec,
    ffmpeg::{FfmpegError, Stop, version},
    picture_file::{ImageFormat, encode},
    pixels::{Pixels, convert},
    recode::{Plain, is_beside},
};
use holdall_model::dynamic::{FieldPlan, Primitives, Scalar, StructPlan, TypePlan, Visitor};
use std::{path::Path, sync::Arc};

/// Writes one topic.
pub(super) struct ImageSink {
    plan: Arc<TypePlan>,
    files: FilesByTime,
    format: ImageFormat,
    source: Source,
    bags: BagSet,
    /// What decodes video.
    plain: Option<Plain>,
    /// Pictures of video that were written.
    pictures: u64,
    /// Messages of video without a picture, and the time of the first.
    left_out: u64,
    first_left_out: Option<i64>,
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

impl ImageSink {
    /// `None` for types that are not images.
    pub fn create(
        plan: Arc<TypePlan>,
        bags: &BagSet,
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
            source,
            bags: bags.clone(),
            plain: None,
            pictures: 0,
            left_out: 0,
            first_left_out: None,
        }))
    }

    fn write_file(&mut self, message: &BagMessage, extension: &str, bytes: &[u8]) -> Result<(), ExportError> {
        let mut file = self.files.begin(message.stamp.as_nanos(), extension)?;
        file.append(bytes)?;
        file.finish_unsynced()
    }

    /// The picture of a message of video, decoded from the key frame before; `None` if it has none.
    fn picture(&mut self, message: &BagMessage) -> Result<Option<Pixels>, ExportError> {
        if self.plain.is_none() {
            version(&Stop::default()).map_err(|error| match error {
                FfmpegError::Missing => ExportError::NoFfmpeg,
                FfmpegError::Failed(reason) => ExportError::Ffmpeg { reason },
            })?;
        }
        let plain = match &mut self.plain {
            Some(plain) => plain,
            none => {
                let found = Plain::find(&self.bags, &[(*message.topic).clone()]);
                none.insert(found.map_err(ExportError::message)?)
            }
        };
        match plain.decode(message.clone()) {
            Ok(made) if made.topic.type_name == IMAGE => {
                self.pictures += 1;
                let image = Image::read(&made.payload).map_err(ExportError::message)?;
                convert(&image).map(Some).map_err(ExportError::message)
            }
            Ok(_) => Err(ExportError::message(
                "the topic does not begin with a picture of a video",
            )),
            Err(reason) if is_beside(&reason) => {
                self.left_out += 1;
                self.first_left_out.get_or_insert(message.stamp.as_nanos());
                Ok(None)
            }
            Err(reason) => Err(ExportError::message(reason)),
        }
    }
}

impl Sink for ImageSink {
    fn write(&mut self, message: &BagMessage) -> Result<(), ExportError> {
        let mut fields = ImageFields::default();
        self.plan
            .walk(&message.payload, &mut fields)
            .map_err(ExportError::message)?;
        let pixels = if fields.codec(self.source).map_err(ExportError::message)?.is_some() {
            match self.picture(message)? {
                Some(pixels) => pixels,
                None => return Ok(()),
            }
        } else if self.source == Source::Compressed {
            match fields.compressed().map_err(ExportError::message)? {
                Compressed::File(extension, bytes) => return self.write_file(message, extension, bytes),
                packed => packed.pixels().map_err(ExportError::message)?,
            }
        } else {
            fields.pixels().map_err(ExportError::message)?
        };
        let (extension, bytes) = encode(&pixels, self.format).map_err(ExportError::message)?;
        self.write_file(message, extension, &bytes)
    }

    fn finish(self: Box<Self>) -> Result<Finished, ExportError> {
        let mut lost = Lost {
            left_out: self.left_out,
            ..Lost::default()
        };
        if let Some(first) = self.first_left_out.filter(|_| self.pictures == 0) {
            lost.failed = std::mem::take(&mut lost.left_out);
            lost.failure = Some((first, "no message has a key frame with its parameters".to_owned()));
        }
        Ok(Finished {
            path: self.files.finish()?,
            lost,
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
