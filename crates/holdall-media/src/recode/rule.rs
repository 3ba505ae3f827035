//! Which topics get which form, as a user writes it: `TOPICS=h264,quality=23`, `TOPICS=cloudini,resolution=0.001`.

use super::{
    VideoOptions,
    encoder::{HARDWARE, PRESETS, encoders, quality_max},
};
use crate::{
    carried::{COMPRESSED_IMAGE, COMPRESSED_VIDEO, FFMPEG_PACKET, IMAGE},
    cloud::CLOUD,
    elementary::Codec,
};
use holdall_bag::reader::WholePattern;
use holdall_model::topic::TopicInfo;

/// The quality of lossy video: high enough that differences are hard to see.
const QUALITY: u8 = 23;
/// The same for VP9 and AV1, whose numbers go further.
const QUALITY_OF_63: u8 = 32;
const PRESET: &str = "veryfast";
/// The resolution of coordinates in metres.
const RESOLUTION: f32 = 0.001;

/// The messages that carry video.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Carrier {
    /// `foxglove_msgs/msg/CompressedVideo`.
    #[default]
    Foxglove,
    /// `ffmpeg_image_transport_msgs/msg/FFMPEGPacket`.
    FfmpegImageTransport,
    /// `sensor_msgs/msg/CompressedImage`, with the codec as its format.
    CompressedImage,
}

impl Carrier {
    /// Their type.
    pub(super) const fn type_name(self) -> &'static str {
        match self {
            Self::Foxglove => COMPRESSED_VIDEO,
            Self::FfmpegImageTransport => FFMPEG_PACKET,
            Self::CompressedImage => COMPRESSED_IMAGE,
        }
    }
}

/// How points become fewer bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CloudOptions {
    /// All fields bit for bit.
    Lossless,
    /// Coordinates as multiples of this many metres.
    Rounded(f32),
}

/// The new form.
#[derive(Clone, Debug, PartialEq)]
pub enum How {
    /// Of images.
    Video(VideoOptions),
    /// Of point clouds.
    Cloud(CloudOptions),
}

/// Topics and their new form.
#[derive(Clone, Debug)]
pub struct Rule {
    topics: WholePattern,
    how: How,
}

/// The topics, the codec, and its settings.
fn parts<'a>(
    text: &'a str,
    example: &str,
) -> Result<(WholePattern, &'a str, std::str::Split<'a, char>), String> {
    let (topics, how) = text
        .split_once('=')
        .ok_or_else(|| format!("expected topics, = and a codec, for example {example}"))?;
    let topics = WholePattern::new(topics).map_err(|error| error.to_string())?;
    let mut words = how.split(',');
    let name = words.next().unwrap_or_default();
    Ok((topics, name, words))
}

/// An encoder of a codec, by its name in ffmpeg.
fn known_encoder(codec: Codec, name: &str) -> Result<String, String> {
    let (software, hardware) = encoders(codec);
    let mut all = [HARDWARE].iter().chain(hardware).chain(software);
    if all.clone().any(|known| *known == name) {
        return Ok(name.to_owned());
    }
    let first = all.next().copied().unwrap_or_default();
    let all = all.fold(first.to_owned(), |all, one| format!("{all}, {one}"));
    Err(format!(
        "encoder {name:?} is unknown for {}: expected {all}",
        codec.format()
    ))
}

impl Rule {
    /// Reads `TOPICS=CODEC[,quality=N][,preset=NAME][,encoder=NAME]`; the topics are a pattern that matches the whole name.
    ///
    /// # Errors
    /// Text of any other form, as one clause.
    pub fn video(text: &str) -> Result<Self, String> {
        let (topics, name, words) = parts(text, "/camera/.*=h264,quality=23")?;
        let (codec, quality) = match name {
            "h264" => (Codec::H264, Some(QUALITY)),
            "h265" => (Codec::H265, Some(QUALITY)),
            "vp9" => (Codec::Vp9, Some(QUALITY_OF_63)),
            "av1" => (Codec::Av1, Some(QUALITY_OF_63)),
            "lossless" => (Codec::H264, None),
            other => {
                return Err(format!(
                    "{other:?} is unknown: expected h264, h265, av1, vp9 or lossless"
                ));
            }
        };
        let mut options = VideoOptions {
            codec,
            quality,
            preset: PRESET.to_owned(),
            encoder: None,
            carrier: Carrier::default(),
        };
        for word in words {
            match word.split_once('=') {
                Some(("quality", number)) if quality.is_some() => {
                    let most = quality_max(codec);
                    let number = number.parse().ok().filter(|number| *number <= most);
                    let number = number
                        .ok_or_else(|| format!("{word:?}: expected a quality of 0 (best) to {most}"))?;
                    options.quality = Some(number);
                }
                Some(("preset", preset)) if PRESETS.iter().any(|(known, _)| *known == preset) => {
                    preset.clone_into(&mut options.preset);
                }
                Some(("encoder", encoder)) if quality.is_some() => {
                    options.encoder = Some(known_encoder(codec, encoder)?);
                }
                _ => {
                    let presets = PRESETS.map(|(name, _)| name).join("|");
                    return Err(format!(
                        "{word:?} is not a setting of {name}: expected preset={presets}, or where something may be lost quality=N or encoder=NAME"
                    ));
                }
            }
        }
        let how = How::Video(options);
        Ok(Self { topics, how })
    }

    /// Reads `TOPICS=lossless` or `TOPICS=cloudini[,resolution=METRES]`.
    ///
    /// # Errors
    /// Text of any other form, as one clause.
    pub fn cloud(text: &str) -> Result<Self, String> {
        let (topics, name, mut words) = parts(text, "/lidar/.*=cloudini,resolution=0.001")?;
        let setting = words.next();
        let options = match (name, setting.map(|word| word.split_once('=')), words.next()) {
            ("lossless", None, None) => CloudOptions::Lossless,
            ("cloudini", None, None) => CloudOptions::Rounded(RESOLUTION),
            ("cloudini", Some(Some(("resolution", metres))), None) => {
                let metres: Option<f32> = metres.parse().ok();
                let metres = metres.filter(|metres| (1e-6..=10.0).contains(metres));
                CloudOptions::Rounded(metres.ok_or("expected a resolution of 0.000001 to 10 metres")?)
            }
            _ => return Err("expected lossless, cloudini, or cloudini,resolution=METRES".to_owned()),
        };
        let how = How::Cloud(options);
        Ok(Self { topics, how })
    }

    /// The same, with its video in other messages.
    #[must_use]
    pub fn carried_by(mut self, carrier: Carrier) -> Self {
        if let How::Video(options) = &mut self.how {
            options.carrier = carrier;
        }
        self
    }

    /// The pattern.
    pub fn topics(&self) -> &str {
        self.topics.as_str()
    }

    /// The new form.
    pub const fn how(&self) -> &How {
        &self.how
    }

    /// What messages of its topics are.
    pub const fn what(&self) -> &'static str {
        match self.how {
            How::Video(_) => "images",
            How::Cloud(_) => "point clouds",
        }
    }

    /// Whether messages of a type can have the new form.
    pub fn suits(&self, topic: &TopicInfo) -> bool {
        let types: &[&str] = match self.how {
            How::Video(_) => &[IMAGE, COMPRESSED_IMAGE],
            How::Cloud(_) => &[CLOUD],
        };
        types.contains(&topic.type_name.as_str())
    }

    /// Whether the messages of a topic get it.
    pub fn takes(&self, topic: &TopicInfo) -> bool {
        self.suits(topic) && self.topics.matches(&topic.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_has_topics_a_codec_and_settings() {
        let rule = Rule::video("/camera/.*=h265,quality=30,preset=slow").unwrap();
        assert_eq!(rule.topics(), "/camera/.*");
        let How::Video(options) = rule.how() else {
            panic!("{rule:?}")
        };
        assert_eq!(
            (options.codec, options.quality, options.preset.as_str()),
            (Codec::H265, Some(30), "slow")
        );
        assert!(matches!(
            Rule::video("/a=lossless").unwrap().how(),
            How::Video(VideoOptions { quality: None, .. })
        ));
        let cloud = |text: &str| Rule::cloud(text).unwrap().how().clone();
        assert_eq!(cloud("/l=lossless"), How::Cloud(CloudOptions::Lossless));
        assert_eq!(cloud("/l=cloudini"), How::Cloud(CloudOptions::Rounded(0.001)));
        assert_eq!(
            cloud("/l=cloudini,resolution=0.05"),
            How::Cloud(CloudOptions::Rounded(0.05))
        );
        let image = |name: &str, type_name: &str| TopicInfo {
            name: name.to_owned(),
            type_name: type_name.to_owned(),
            ..TopicInfo::default()
        };
        assert!(
            rule.takes(&image("/camera/left", IMAGE)) && rule.takes(&image("/camera/left", COMPRESSED_IMAGE))
        );
        assert!(
            !rule.takes(&image("/camera", IMAGE))
                && !rule.takes(&image("/camera/left", "sensor_msgs/msg/Imu"))
        );
    }

    #[test]
    fn other_texts_are_refused_with_a_clause() {
        for (text, word) in [
            ("/camera", "expected topics"),
            ("/camera=vp8", "unknown"),
            ("/camera=av1,quality=64", "0 (best) to 63"),
            ("/camera=h264,encoder=hevc_nvenc", "expected hardware, h264_nvenc"),
            ("/camera=lossless,encoder=libx264", "not a setting"),
            ("/camera=h264,quality=99", "quality"),
            ("/camera=lossless,quality=9", "not a setting"),
            ("/camera=h264,speed=9", "not a setting"),
            ("/camera=h264x", "unknown"),
            ("/(=h264", "/("),
        ] {
            let reason = Rule::video(text).unwrap_err();
            assert!(reason.contains(word), "{text}: {reason}");
        }
        for text in [
            "/l",
            "/l=draco",
            "/l=cloudini,resolution=0",
            "/l=cloudini,resolution=NaN",
            "/l=lossless,resolution=1",
        ] {
            assert!(Rule::cloud(text).unwrap_err().contains("expected"), "{text}");
        }
    }
}
