//! The kinds of messages: bytes, points, or structures that are serialized value by value.

use holdall_model::cdr::CdrWriter;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// A pose: three coordinates and four of a quaternion.
const POSE_BYTES: usize = 7 * 8;
/// Size of a point: `float32` x, y, z and intensity.
const POINT_BYTES: usize = 16;
const FLOAT32: u8 = 7;

/// The type of a topic. Every message has a number, which differs from one to the next; its other content does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// `std_msgs/UInt8MultiArray`, which every ROS has; begins with the number.
    #[default]
    Bytes,
    /// `sensor_msgs/PointCloud2`, whose data has the size; the number is its time stamp.
    PointCloud,
    /// `geometry_msgs/PoseArray`: as many poses as fit, 56 bytes each; the number is its time stamp.
    Poses,
}

impl Shape {
    /// Every shape.
    pub(crate) const ALL: [Self; 3] = [Self::Bytes, Self::PointCloud, Self::Poses];

    /// The name for flags and files.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::PointCloud => "point_cloud",
            Self::Poses => "poses",
        }
    }

    /// Its ROS type.
    pub fn type_name(self) -> &'static str {
        match self {
            Self::Bytes => "std_msgs/msg/UInt8MultiArray",
            Self::PointCloud => "sensor_msgs/msg/PointCloud2",
            Self::Poses => "geometry_msgs/msg/PoseArray",
        }
    }

    /// Offset of the number in a serialized message.
    pub(super) fn number_at(self) -> usize {
        match self {
            // After encapsulation, no dimension, offset and length.
            Self::Bytes => 16,
            Self::PointCloud | Self::Poses => 4,
        }
    }

    /// A serialized message of 8 bytes of content or more, which do not compress. Its number is any.
    pub fn message(self, bytes: usize) -> Vec<u8> {
        let mut content = vec![0; bytes];
        fastrand::Rng::with_seed(1).fill(&mut content);
        let mut writer = CdrWriter::new();
        match self {
            Self::Bytes => {
                writer.bytes(&[0; 8]);
                writer.sequence_len(bytes);
                writer.bytes(&content);
            }
            Self::PointCloud => write_points(&mut writer, &content),
            Self::Poses => {
                write_header(&mut writer);
                let poses = bytes / POSE_BYTES;
                writer.sequence_len(poses);
                if poses > 0 {
                    writer.align(8);
                }
                writer.bytes(&content[..poses * POSE_BYTES]);
            }
        }
        writer.finish()
    }
}

fn write_header(writer: &mut CdrWriter) {
    writer.bytes(&[0; 8]);
    writer.text("map");
}

fn write_points(writer: &mut CdrWriter, content: &[u8]) {
    write_header(writer);
    let size = |bytes| u32::try_from(bytes).unwrap_or(u32::MAX);
    writer.u32(1);
    writer.u32(size(content.len() / POINT_BYTES));
    let fields = [("x", 0), ("y", 4), ("z", 8), ("intensity", 12)];
    writer.sequence_len(fields.len());
    for (name, offset) in fields {
        writer.text(name);
        writer.u32(offset);
        writer.u8(FLOAT32);
        writer.u32(1);
    }
    writer.u8(0);
    writer.u32(size(POINT_BYTES));
    writer.u32(size(content.len()));
    writer.sequence_len(content.len());
    writer.bytes(content);
    writer.u8(1);
}

impl fmt::Display for Shape {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.pad(self.name())
    }
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|shape| shape.name() == text);
        found.ok_or_else(|| {
            format!(
                "expected {}, found {text:?}",
                Self::ALL.map(Self::name).join(", ")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_model::cdr::CdrReader;

    #[test]
    fn messages_are_serialized_as_their_types_are() {
        let message = Shape::Bytes.message(100);
        assert_eq!((message.len(), &message[12..16]), (116, &[100, 0, 0, 0][..]));
        let points = Shape::PointCloud.message(160);
        let mut reader = CdrReader::new(&points).unwrap();
        assert_eq!((reader.u32(), reader.u32()), (Ok(0), Ok(0)));
        assert_eq!(reader.text(), Ok("map"));
        assert_eq!((reader.u32(), reader.u32(), reader.u32()), (Ok(1), Ok(10), Ok(4)));
        for (name, offset) in [("x", 0), ("y", 4), ("z", 8), ("intensity", 12)] {
            assert_eq!((reader.text(), reader.u32()), (Ok(name), Ok(offset)));
            assert_eq!((reader.u8(), reader.u32()), (Ok(FLOAT32), Ok(1)));
        }
        assert_eq!(
            (reader.u8(), reader.u32(), reader.u32()),
            (Ok(0), Ok(16), Ok(160))
        );
        assert_eq!(reader.u32(), Ok(160));
        assert_eq!(reader.remaining(), 161);
    }

    #[test]
    fn poses_are_whole_and_aligned() {
        let message = Shape::Poses.message(256);
        assert_eq!(message.len(), 4 + 24 + 4 * POSE_BYTES);
        assert_eq!(message[20..24], [4, 0, 0, 0]);
        assert_eq!(Shape::Poses.message(8).len(), 24);
    }

    #[test]
    fn names_are_read_again() {
        for shape in Shape::ALL {
            assert_eq!(shape.to_string().parse(), Ok(shape));
            assert_eq!(serde_json::to_value(shape).unwrap(), shape.name());
        }
        assert!(
            "x".parse::<Shape>()
                .unwrap_err()
                .contains("bytes, point_cloud, poses")
        );
    }
}
