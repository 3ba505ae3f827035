//! Point clouds in messages, and two smaller forms of their points: columns without loss, and the Cloudini format with a bound. A third is only read: Draco.

pub mod cloudini;
pub mod columns;
pub mod draco;

use crate::carried::Head;
use holdall_model::cdr::{CdrError, CdrReader, CdrWriter};

/// Clouds as points.
pub const CLOUD: &str = "sensor_msgs/msg/PointCloud2";
/// Clouds in a smaller form.
pub use crate::carried::COMPRESSED_CLOUD;

/// Fields of a point.
const FIELDS_MAX: usize = 256;
/// Values of a point: a field may have many.
const COLUMNS_MAX: usize = 1 << 16;
/// Points of a cloud.
const POINTS_MAX: usize = 1 << 26;
/// Bytes of a cloud.
const BYTES_MAX: usize = 1 << 30;

/// A field of a point, as the message has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// Its name.
    pub name: &'a str,
    /// Where it begins in a point.
    pub offset: u32,
    /// The number of its type.
    pub datatype: u8,
    /// Its elements.
    pub count: u32,
}

/// The types of fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A whole number with this many bytes; signed or not.
    Whole(usize, bool),
    /// A float with this many bytes.
    Float(usize),
}

impl Kind {
    fn of(datatype: u8) -> Option<Self> {
        Some(match datatype {
            1 => Self::Whole(1, true),
            2 => Self::Whole(1, false),
            3 => Self::Whole(2, true),
            4 => Self::Whole(2, false),
            5 => Self::Whole(4, true),
            6 => Self::Whole(4, false),
            7 => Self::Float(4),
            8 => Self::Float(8),
            _ => return None,
        })
    }

    /// Bytes of a value.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Whole(bytes, _) | Self::Float(bytes) => bytes,
        }
    }
}

/// The values of one element of all points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Where it begins in a point.
    pub offset: usize,
    /// Its type.
    pub kind: Kind,
}

/// A cloud in a message of either type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cloud<'a> {
    /// When and where it was measured.
    pub head: Head<'a>,
    /// Rows.
    pub height: u32,
    /// Points in a row.
    pub width: u32,
    /// The fields of a point.
    pub fields: Vec<Field<'a>>,
    /// As the message has it.
    pub is_bigendian: u8,
    /// Bytes of a point.
    pub point_step: u32,
    /// Bytes of a row.
    pub row_step: u32,
    /// All points, or what they were compressed to.
    pub data: &'a [u8],
    /// As the message has it.
    pub is_dense: u8,
    /// How `data` is compressed; `None` for points.
    pub format: Option<&'a str>,
}

impl<'a> Cloud<'a> {
    /// Reads a payload.
    ///
    /// # Errors
    /// A payload of another type, or one that is cut off.
    pub fn read(payload: &'a [u8], is_compressed: bool) -> Result<Self, CdrError> {
        /// A name of one byte with its NUL, and three numbers.
        const FIELD_BYTES_MIN: usize = 14;
        let mut reader = CdrReader::new(payload)?;
        let head = Head::read(&mut reader)?;
        let (height, width) = (reader.u32()?, reader.u32()?);
        let fields = reader.sequence_len(FIELD_BYTES_MIN)?;
        let mut field = || {
            Ok(Field {
                name: reader.text()?,
                offset: reader.u32()?,
                datatype: reader.u8()?,
                count: reader.u32()?,
            })
        };
        let fields = (0..fields).map(|_| field()).collect::<Result<_, CdrError>>()?;
        let is_bigendian = reader.u8()?;
        let (point_step, row_step) = (reader.u32()?, reader.u32()?);
        let length = reader.sequence_len(1)?;
        let data = reader.bytes(length)?;
        let is_dense = reader.u8()?;
        let format = is_compressed.then(|| reader.text()).transpose()?;
        Ok(Self {
            head,
            height,
            width,
            fields,
            is_bigendian,
            point_step,
            row_step,
            data,
            is_dense,
            format,
        })
    }

    /// The payload.
    pub fn write(&self) -> Vec<u8> {
        let mut writer = CdrWriter::new();
        self.head.write(&mut writer);
        writer.u32(self.height);
        writer.u32(self.width);
        writer.sequence_len(self.fields.len());
        for field in &self.fields {
            writer.text(field.name);
            writer.u32(field.offset);
            writer.u8(field.datatype);
            writer.u32(field.count);
        }
        writer.u8(self.is_bigendian);
        writer.u32(self.point_step);
        writer.u32(self.row_step);
        writer.sequence_len(self.data.len());
        writer.bytes(self.data);
        writer.u8(self.is_dense);
        if let Some(format) = self.format {
            writer.text(format);
        }
        writer.finish()
    }

    /// Number of points, checked: all of them fit into what is taken for a cloud.
    ///
    /// # Errors
    /// One clause.
    pub fn points(&self) -> Result<usize, String> {
        let points = u64::from(self.width) * u64::from(self.height);
        let bytes = points.saturating_mul(u64::from(self.point_step));
        match usize::try_from(points) {
            Ok(points) if points <= POINTS_MAX && bytes <= BYTES_MAX as u64 && self.point_step > 0 => {
                Ok(points)
            }
            _ => Err(format!(
                "a cloud of {} x {} points of {} bytes",
                self.width, self.height, self.point_step
            )),
        }
    }

    /// The columns of its fields.
    ///
    /// # Errors
    /// One clause: too many fields or values, a type that is unknown, a field beyond the end of a point.
    pub fn columns(&self) -> Result<Vec<Column>, String> {
        if self.fields.len() > FIELDS_MAX {
            return Err(format!("its points have {} fields", self.fields.len()));
        }
        let mut columns = Vec::new();
        for field in &self.fields {
            let kind = Kind::of(field.datatype).ok_or_else(|| {
                format!(
                    "its field {:?} has the unknown type {}",
                    field.name, field.datatype
                )
            })?;
            // Older drivers leave the count out.
            let count = field.count.max(1);
            let bytes = u64::from(count) * kind.bytes() as u64;
            if u64::from(field.offset) + bytes > u64::from(self.point_step) {
                return Err(format!("its field {:?} ends after the point", field.name));
            }
            // A cloud without points may state points of any size.
            if columns.len() + count as usize > COLUMNS_MAX {
                return Err(format!("its points have more than {COLUMNS_MAX} values"));
            }
            for element in 0..count as usize {
                columns.push(Column {
                    offset: field.offset as usize + element * kind.bytes(),
                    kind,
                });
            }
        }
        Ok(columns)
    }

    /// The points of one in a smaller form, in rows without bytes between them; zeros are between the fields.
    ///
    /// # Errors
    /// One clause: a format that is not decoded, data that is cut off or damaged.
    pub fn unpacked(&self) -> Result<Vec<u8>, String> {
        match self.format {
            Some(columns::FORMAT) => columns::decode(self, self.data),
            Some(cloudini::FORMAT) => cloudini::decode(self, self.data),
            Some(draco::FORMAT) => draco::decode(self, self.data),
            // Cloudini's own publisher names no format.
            Some("") if self.data.starts_with(cloudini::MAGIC.as_bytes()) => {
                cloudini::decode(self, self.data)
            }
            other => Err(format!(
                "clouds of format {:?} are not decoded",
                other.unwrap_or_default()
            )),
        }
    }

    /// Its points, if they are in rows without bytes between them.
    ///
    /// # Errors
    /// One clause.
    pub fn whole(&self) -> Result<usize, String> {
        let points = self.points()?;
        let is_whole = u64::from(self.row_step) == u64::from(self.width) * u64::from(self.point_step)
            && self.data.len() == points * self.point_step as usize;
        if is_whole {
            return Ok(points);
        }
        Err(format!(
            "a cloud of {} x {} points of {} bytes with {} bytes a row does not fit its {} bytes of data",
            self.width,
            self.height,
            self.point_step,
            self.row_step,
            self.data.len()
        ))
    }

    /// Its points with zeros between the fields.
    ///
    /// # Errors
    /// As [`Cloud::whole`] and [`Cloud::columns`].
    pub fn bare(&self) -> Result<Vec<u8>, String> {
        self.whole()?;
        let columns = self.columns()?;
        let step = self.point_step as usize;
        let mut bare = vec![0; self.data.len()];
        for (from, to) in self.data.chunks_exact(step).zip(bare.chunks_exact_mut(step)) {
            for column in &columns {
                let place = column.offset..column.offset + column.kind.bytes();
                to[place.clone()].copy_from_slice(&from[place]);
            }
        }
        Ok(bare)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Points of a turning scanner: x, y, z, a gap of 4 bytes, intensity, ring, time.
    pub fn points(count: usize) -> Vec<u8> {
        let mut data = Vec::new();
        for number in 0..count {
            let angle = number as f32 * 0.001;
            let range = 10.0 + (angle * 3.0).sin() + (number % 16) as f32 * 0.01;
            let point = match number % 97 {
                0 => [f32::NAN; 3],
                _ => [
                    range * angle.cos(),
                    range * angle.sin(),
                    (number % 16) as f32 * 0.2 - 1.0,
                ],
            };
            point.iter().for_each(|value| data.extend(value.to_le_bytes()));
            data.extend([7, 7, 7, 7]);
            data.extend(((number % 50) as f32).to_le_bytes());
            data.extend(((number % 16) as u16).to_le_bytes());
            data.extend((number as f64 * 1e-5).to_le_bytes());
        }
        data
    }

    pub fn cloud(data: &[u8]) -> Cloud<'_> {
        let field = |name, offset, datatype| Field {
            name,
            offset,
            datatype,
            count: 1,
        };
        Cloud {
            head: Head {
                sec: 1,
                nanosec: 2,
                frame_id: "lidar",
            },
            height: 1,
            width: data.len() as u32 / 30,
            fields: vec![
                field("x", 0, 7),
                field("y", 4, 7),
                field("z", 8, 7),
                field("intensity", 16, 7),
                field("ring", 20, 4),
                field("time", 22, 8),
            ],
            point_step: 30,
            row_step: data.len() as u32,
            data,
            is_dense: 0,
            ..Cloud::default()
        }
    }

    #[test]
    fn messages_are_read_as_they_were_written() {
        let data = points(10);
        let cloud = cloud(&data);
        let payload = cloud.write();
        assert_eq!(Cloud::read(&payload, false), Ok(cloud.clone()));
        let packed = Cloud {
            format: Some("cloudini"),
            ..cloud.clone()
        };
        assert_eq!(Cloud::read(&packed.write(), true), Ok(packed.clone()));
        for length in 0..payload.len() - 1 {
            assert!(Cloud::read(&payload[..length], false).is_err());
        }
        assert_eq!(cloud.whole(), Ok(10));
        let bare = cloud.bare().unwrap();
        assert_eq!((&bare[..12], &bare[12..16]), (&data[..12], &[0; 4][..]));
        let mut uncounted = cloud.clone();
        uncounted.fields[3].count = 0;
        assert_eq!(
            uncounted.bare().unwrap(),
            bare,
            "older drivers leave the count out"
        );
    }

    #[test]
    fn lying_clouds_have_one_clause() {
        let data = points(10);
        let good = cloud(&data);
        for lying in [
            Cloud {
                width: 11,
                ..good.clone()
            },
            Cloud {
                width: u32::MAX,
                height: u32::MAX,
                ..good.clone()
            },
            Cloud {
                point_step: 0,
                ..good.clone()
            },
            Cloud {
                row_step: 7,
                ..good.clone()
            },
        ] {
            assert!(lying.whole().is_err(), "{lying:?}");
        }
        let mut beyond = good.clone();
        beyond.fields[5].offset = 23;
        assert!(beyond.columns().unwrap_err().contains("ends after the point"));
        beyond.fields[5].datatype = 9;
        assert!(beyond.columns().unwrap_err().contains("unknown type 9"));
        let mut vast = Cloud {
            width: 0,
            point_step: u32::MAX,
            row_step: 0,
            data: &[],
            ..good
        };
        vast.fields[5] = Field {
            offset: 0,
            datatype: 1,
            count: u32::MAX,
            ..vast.fields[5]
        };
        assert_eq!(vast.whole(), Ok(0));
        assert!(vast.columns().unwrap_err().contains("more than 65536 values"));
    }
}
