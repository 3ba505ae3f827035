//! Writes the pictures of H.264 and H.265 in messages as one MP4 for each topic, without decoding them.

use super::{ExistingFiles, ExportError, Finished, Lost, Sink, file::PartialFile, image::ImageFields};
use holdall_bag::reader::BagMessage;
use holdall_media::{
    elementary::{Chain, Codec, MISSING, Unit},
    mp4::Mp4,
};
use holdall_model::{carried::may_be_video, dynamic::TypePlan};
use std::{path::Path, sync::Arc};

/// Another publisher takes the place of one that sent nothing for this long: a file has one video.
const SILENT_NANOS: i64 = 2_000_000_000;

/// Writes one topic.
pub(super) struct Mp4Sink {
    plan: Arc<TypePlan>,
    file: PartialFile,
    video: Option<(Codec, Mp4)>,
    chain: Chain,
    /// Whose video it is, where the bag says so, and the time of its last picture.
    publisher: (Option<String>, i64),
    /// A picture is missing since the last key frame.
    is_broken: bool,
    left_out: u64,
}

impl Mp4Sink {
    /// `None` for types that have no video.
    pub fn create(
        plan: Arc<TypePlan>,
        path: &Path,
        existing: ExistingFiles,
    ) -> Result<Option<Self>, ExportError> {
        if !may_be_video(plan.type_name()) {
            return Ok(None);
        }
        Ok(Some(Self {
            plan,
            file: PartialFile::create(path, existing)?,
            video: None,
            chain: Chain::default(),
            publisher: (None, 0),
            is_broken: false,
            left_out: 0,
        }))
    }
}

impl Sink for Mp4Sink {
    fn write(&mut self, message: &BagMessage) -> Result<(), ExportError> {
        let mut fields = ImageFields::default();
        self.plan
            .walk(&message.payload, &mut fields)
            .map_err(ExportError::message)?;
        let codec = fields
            .video(self.plan.type_name())
            .map_err(ExportError::message)?
            .ok_or_else(|| ExportError::message("it is not a picture of a video"))?;
        let unit = Unit::read(codec, fields.data).map_err(ExportError::message)?;
        if unit.pictures > 1 || unit.is_reordered {
            return Err(ExportError::message(
                "video with several pictures in a message, or with B-frames: its pictures have no time",
            ));
        }
        let nanos = message.stamp.as_nanos();
        let can_begin = unit.is_key && unit.parameters.is_some();
        if unit.pictures == 0 || (self.video.is_none() && !can_begin) {
            self.left_out += 1;
            return Ok(());
        }
        let publisher = message.topic.publisher.as_ref();
        let publisher = publisher.map(|publisher| publisher.gid.clone());
        let is_silent = can_begin && nanos.saturating_sub(self.publisher.1) > SILENT_NANOS;
        if self.video.is_some() && publisher != self.publisher.0 && !is_silent {
            return Err(ExportError::message(
                "it is of another publisher than the pictures before it, a file has those of one",
            ));
        }
        let (begun, video) = match &mut self.video {
            Some(video) => video,
            none => {
                let video = Mp4::begin(codec, nanos, fields.data).map_err(ExportError::message)?;
                none.insert((codec, video))
            }
        };
        if *begun != codec {
            return Err(ExportError::message("its codec is another one, a file has one"));
        }
        self.publisher = (publisher, nanos);
        self.is_broken |= self.chain.has_gap_before(codec, fields.data);
        self.is_broken &= !unit.is_key;
        if self.is_broken {
            return Err(ExportError::message(MISSING));
        }
        let complete = video
            .add(nanos, fields.data, unit.is_key)
            .map_err(ExportError::message)?;
        self.file.append(&complete)
    }

    fn is_void(&self) -> bool {
        self.video.is_none()
    }

    fn finish(mut self: Box<Self>) -> Result<Finished, ExportError> {
        if let Some((_, video)) = self.video.take() {
            self.file.append(&video.finish(None))?;
        }
        Ok(Finished {
            path: self.file.finish()?,
            lost: Lost {
                left_out: self.left_out,
                ..Lost::default()
            },
        })
    }
}
