//! Point clouds in a smaller form and back; each is decoded again before it is taken.

use super::{Coder, Key, Sent, image::has_no_more, rule::CloudOptions};
use crate::cloud::{Cloud, cloudini, columns};
use bytes::Bytes;
use holdall_bag::reader::BagMessage;
use holdall_model::recoding::{Exactness, Recoding};

/// Encodes the clouds of a topic, each on its own.
pub(super) struct Encoder {
    options: CloudOptions,
    error_max: f64,
}

impl Encoder {
    pub const fn new(options: CloudOptions) -> Self {
        Self {
            options,
            error_max: 0.0,
        }
    }

    /// Continues what another one began, of which `before` is the description.
    pub fn after(options: CloudOptions, before: &Recoding) -> Self {
        Self {
            options,
            error_max: before.error_max.unwrap_or_default(),
        }
    }

    fn encode(&mut self, message: &BagMessage) -> Result<Vec<u8>, String> {
        let cloud = read(message, false)?;
        let bare = cloud.bare()?;
        let again = Cloud {
            data: &bare,
            ..cloud.clone()
        };
        // What the payload has beyond its fields would be lost.
        if !has_no_more(&message.payload, &cloud.write()) {
            return Err("its payload has more than its fields".to_owned());
        }
        let (format, data) = match self.options {
            CloudOptions::Lossless => {
                let data = columns::encode(&again)?;
                if columns::decode(&cloud, &data)? != bare {
                    return Err("decoded again it differs".to_owned());
                }
                (columns::FORMAT, data)
            }
            CloudOptions::Rounded(resolution) => {
                let data = cloudini::encode(&again, resolution)?;
                let error = cloudini::error_of(&again, &cloudini::decode(&cloud, &data)?)?;
                if error > f64::from(resolution) {
                    return Err(format!("decoded again a coordinate differs by {error}"));
                }
                self.error_max = self.error_max.max(error);
                (cloudini::FORMAT, data)
            }
        };
        let packed = Cloud {
            data: &data,
            format: Some(format),
            ..cloud
        };
        Ok(packed.write())
    }
}

fn read(message: &BagMessage, is_compressed: bool) -> Result<Cloud<'_>, String> {
    if message.topic.serialization_format != "cdr" {
        return Err(format!(
            "its messages are {}, not CDR",
            message.topic.serialization_format
        ));
    }
    Cloud::read(&message.payload, is_compressed).map_err(|error| error.to_string())
}

impl Coder for Encoder {
    fn take(&mut self, message: &BagMessage, sent: &mut Sent<'_>) {
        sent.send(Key::of(message), self.encode(message).map(Bytes::from));
    }

    fn end(&mut self, _: &mut Sent<'_>) {}

    fn describe(&self, about: &mut Recoding) {
        about.encoder = format!("holdall {}", env!("CARGO_PKG_VERSION"));
        match self.options {
            CloudOptions::Lossless => {
                "columns".clone_into(&mut about.codec);
                "fields bit for bit, bytes between them dropped".clone_into(&mut about.settings);
            }
            CloudOptions::Rounded(resolution) => {
                "cloudini".clone_into(&mut about.codec);
                about.settings = format!("x, y, z as multiples of {resolution} m, other fields bit for bit");
                about.exactness = Exactness::Lossy;
                about.error_bound = Some(f64::from(resolution));
                about.error_max = Some(self.error_max);
            }
        }
    }
}

/// Decodes what an [`Encoder`] made.
pub(super) struct Decoder;

impl Decoder {
    fn decode(message: &BagMessage) -> Result<Vec<u8>, String> {
        let packed = read(message, true)?;
        let data = packed.unpacked()?;
        let cloud = Cloud {
            // Publishers copy that of a cloud with longer rows.
            row_step: packed.width.saturating_mul(packed.point_step),
            data: &data,
            format: None,
            ..packed
        };
        Ok(cloud.write())
    }
}

impl Coder for Decoder {
    fn take(&mut self, message: &BagMessage, sent: &mut Sent<'_>) {
        sent.send(Key::of(message), Self::decode(message).map(Bytes::from));
    }

    fn end(&mut self, _: &mut Sent<'_>) {}

    fn describe(&self, _: &mut Recoding) {}
}
