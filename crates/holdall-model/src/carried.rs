//! The messages that carry images, read and written as CDR.

use crate::{
    cdr::{CdrError, CdrReader, CdrWriter},
    elementary::{Codec, Unit},
    interface::{Definition, InterfaceSource, SourceFormat, bundle::Bundle},
    topic::MessageDefinition,
};

/// Images as pixels.
pub const IMAGE: &str = "sensor_msgs/msg/Image";
/// Images as files.
pub const COMPRESSED_IMAGE: &str = "sensor_msgs/msg/CompressedImage";
/// Images as pictures of a video.
pub const COMPRESSED_VIDEO: &str = "foxglove_msgs/msg/CompressedVideo";

/// Images as packets of the package `ffmpeg_image_transport`.
pub const FFMPEG_PACKET: &str = "ffmpeg_image_transport_msgs/msg/FFMPEGPacket";

/// Point clouds in a smaller form.
pub const COMPRESSED_CLOUD: &str = "point_cloud_interfaces/msg/CompressedPointCloud2";

/// Definitions of types that ROS 2's own packages do not have.
const OTHERS: [(&str, &str); 3] = [
    (
        FFMPEG_PACKET,
        "std_msgs/Header header\nint32 width\nint32 height\nstring encoding\nuint64 pts\nuint8 flags\nbool is_bigendian\nuint8[] data\n",
    ),
    (
        COMPRESSED_VIDEO,
        "builtin_interfaces/Time timestamp\nstring frame_id\nuint8[] data\nstring format\n",
    ),
    (
        COMPRESSED_CLOUD,
        "std_msgs/Header header\nuint32 height\nuint32 width\nsensor_msgs/PointField[] fields\nbool is_bigendian\nuint32 point_step\n\
         uint32 row_step\nuint8[] compressed_data\nbool is_dense\nstring format\n",
    ),
];

/// The definition of a type that messages get here.
pub fn definition(type_name: &str) -> MessageDefinition {
    let source = |name: &str| {
        let other = OTHERS.iter().find(|(known, _)| *known == name);
        let other = other.map(|(_, text)| InterfaceSource {
            format: SourceFormat::Msg,
            text: (*text).into(),
        });
        other.or_else(|| Bundle::embedded().get(name))
    };
    Definition::resolve(type_name, source).map_or_else(
        |_| MessageDefinition::unknown(type_name),
        |found| found.message_definition(),
    )
}

/// When and where an image was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head<'a> {
    /// Seconds, as the message has them.
    pub sec: u32,
    /// Nanoseconds.
    pub nanosec: u32,
    /// The coordinate frame.
    pub frame_id: &'a str,
}

impl<'a> Head<'a> {
    /// Reads the first fields of a message.
    ///
    /// # Errors
    /// A payload that is cut off.
    pub fn read(reader: &mut CdrReader<'a>) -> Result<Self, CdrError> {
        Ok(Self {
            sec: reader.u32()?,
            nanosec: reader.u32()?,
            frame_id: reader.text()?,
        })
    }

    /// Writes the first fields of a message.
    pub fn write(&self, writer: &mut CdrWriter) {
        writer.u32(self.sec);
        writer.u32(self.nanosec);
        writer.text(self.frame_id);
    }
}

fn data<'a>(reader: &mut CdrReader<'a>) -> Result<&'a [u8], CdrError> {
    let length = reader.sequence_len(1)?;
    reader.bytes(length)
}

fn put_data(writer: &mut CdrWriter, data: &[u8]) {
    writer.sequence_len(data.len());
    writer.bytes(data);
}

/// `sensor_msgs/msg/Image`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Image<'a> {
    /// When and where.
    pub head: Head<'a>,
    /// Rows.
    pub height: u32,
    /// Pixels in a row.
    pub width: u32,
    /// How pixels are stored.
    pub encoding: &'a str,
    /// As the message has it.
    pub is_bigendian: u8,
    /// Bytes in a row.
    pub step: u32,
    /// All rows.
    pub data: &'a [u8],
}

impl<'a> Image<'a> {
    /// Reads a payload.
    ///
    /// # Errors
    /// A payload of another type, or one that is cut off.
    pub fn read(payload: &'a [u8]) -> Result<Self, CdrError> {
        let mut reader = CdrReader::new(payload)?;
        Ok(Self {
            head: Head::read(&mut reader)?,
            height: reader.u32()?,
            width: reader.u32()?,
            encoding: reader.text()?,
            is_bigendian: reader.u8()?,
            step: reader.u32()?,
            data: data(&mut reader)?,
        })
    }

    /// The payload.
    pub fn write(&self) -> Vec<u8> {
        let mut writer = CdrWriter::new();
        self.head.write(&mut writer);
        writer.u32(self.height);
        writer.u32(self.width);
        writer.text(self.encoding);
        writer.u8(self.is_bigendian);
        writer.u32(self.step);
        put_data(&mut writer, self.data);
        writer.finish()
    }
}

/// `sensor_msgs/msg/CompressedImage`, or `foxglove_msgs/msg/CompressedVideo`, which have the same fields in another order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coded<'a> {
    /// When and where.
    pub head: Head<'a>,
    /// How `data` is coded.
    pub format: &'a str,
    /// A file, or a picture.
    pub data: &'a [u8],
}

impl<'a> Coded<'a> {
    /// Reads a payload of `type_name`.
    ///
    /// # Errors
    /// A payload of another type, or one that is cut off.
    pub fn read(type_name: &str, payload: &'a [u8]) -> Result<Self, CdrError> {
        let mut reader = CdrReader::new(payload)?;
        let head = Head::read(&mut reader)?;
        if type_name == COMPRESSED_VIDEO {
            let data = data(&mut reader)?;
            let format = reader.text()?;
            return Ok(Self { head, format, data });
        }
        if type_name == FFMPEG_PACKET {
            let _size = (reader.u32()?, reader.u32()?);
        }
        let format = reader.text()?;
        if type_name == FFMPEG_PACKET {
            let _picture = (reader.u64()?, reader.u8()?, reader.u8()?);
        }
        let data = data(&mut reader)?;
        Ok(Self { head, format, data })
    }

    /// The payload as `type_name`; as a packet it needs more.
    pub fn write(&self, type_name: &str) -> Vec<u8> {
        let mut writer = CdrWriter::new();
        self.head.write(&mut writer);
        if type_name == COMPRESSED_VIDEO {
            put_data(&mut writer, self.data);
            writer.text(self.format);
        } else {
            writer.text(self.format);
            put_data(&mut writer, self.data);
        }
        writer.finish()
    }

    /// The payload as a packet: with the size of the picture, its number among those of its topic, and whether it is a key frame.
    pub fn write_packet(&self, [width, height]: [u32; 2], number: u64, is_key: bool) -> Vec<u8> {
        let mut writer = CdrWriter::new();
        self.head.write(&mut writer);
        writer.u32(width);
        writer.u32(height);
        writer.text(self.format);
        writer.u64(number);
        // AV_PKT_FLAG_KEY, and the order of bytes of the images.
        writer.u8(is_key.into());
        writer.u8(0);
        put_data(&mut writer, self.data);
        writer.finish()
    }
}

/// Whether messages of a type may be pictures of a video.
pub fn may_be_video(type_name: &str) -> bool {
    [COMPRESSED_VIDEO, FFMPEG_PACKET, COMPRESSED_IMAGE].contains(&type_name)
}

/// What a message has of a video, with its data; `None` for one that is not part of a video that can be decoded here.
pub fn video_unit<'a>(type_name: &str, payload: &'a [u8]) -> Option<(Unit, &'a [u8])> {
    if !may_be_video(type_name) {
        return None;
    }
    let coded = Coded::read(type_name, payload).ok()?;
    let unit = Unit::read(Codec::named(coded.format)?, coded.data).ok()?;
    Some((unit, coded.data))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_a_definition_and_its_hash() {
        for type_name in [
            IMAGE,
            COMPRESSED_IMAGE,
            COMPRESSED_VIDEO,
            COMPRESSED_CLOUD,
            FFMPEG_PACKET,
        ] {
            let found = definition(type_name);
            assert!(found.text.contains("frame_id"), "{found:?}");
            assert!(found.type_description_hash.starts_with("RIHS01_"), "{found:?}");
        }
    }

    #[test]
    fn messages_are_read_as_they_were_written() {
        let head = Head {
            sec: 5,
            nanosec: 7,
            frame_id: "lens",
        };
        let image = Image {
            head,
            height: 2,
            width: 1,
            encoding: "mono8",
            is_bigendian: 1,
            step: 1,
            data: &[3, 4],
        };
        assert_eq!(Image::read(&image.write()), Ok(image));
        for type_name in [COMPRESSED_IMAGE, COMPRESSED_VIDEO] {
            let coded = Coded {
                head,
                format: "h264",
                data: &[9; 5],
            };
            let payload = coded.write(type_name);
            assert_eq!(Coded::read(type_name, &payload), Ok(coded));
            assert!(Coded::read(type_name, &payload[..payload.len() - 6]).is_err());
            let packet = coded.write_packet([4, 2], 7, true);
            assert_eq!(Coded::read(FFMPEG_PACKET, &packet), Ok(coded));
        }
        assert!(Image::read(&image.write()[..20]).is_err());
    }
}
