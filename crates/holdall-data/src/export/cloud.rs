//! Writes point clouds, plain and compressed, as PCD 0.7 (binary) and PLY (binary little endian), a file for each message.
//!
//! Both have the points one after another, little endian and without padding. PCD has the cloud's own fields, its width and its height. PLY has a
//! property for each number; `rgb` and `rgba`, which are packed into four bytes, become colours there.

use super::{ExistingFiles, ExportError, Finished, Sink, folder::FilesByTime};
use holdall_bag::reader::BagMessage;
use holdall_media::cloud::{self as packed, CLOUD, COMPRESSED_CLOUD};
use holdall_model::dynamic::{FieldPlan, Primitives, Scalar, StructPlan, TypePlan, Visitor};
use holdall_model::text::Outside;
use std::{collections::HashSet, fmt::Write, path::Path, sync::Arc};

/// The format of point clouds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloudFormat {
    /// The format of the Point Cloud Library.
    Pcd,
    /// Stanford's polygon format, without the order of points in rows.
    Ply,
}

impl CloudFormat {
    const fn extension(self) -> &'static str {
        match self {
            Self::Pcd => "pcd",
            Self::Ply => "ply",
        }
    }
}

/// Fields that a cloud has at most.
const FIELDS_MAX: usize = 256;
/// Numbers that a point has at most.
const NUMBERS_MAX: usize = 4096;
/// Bytes of a field's name that are written.
const NAME_BYTES_MAX: usize = 128;
/// Bytes that are gathered before they are written.
const GATHERED_BYTES: usize = 64 * 1024;

/// Writes one topic.
pub(super) struct CloudSink {
    plan: Arc<TypePlan>,
    files: FilesByTime,
    format: CloudFormat,
}

impl CloudSink {
    /// `None` for other types.
    pub fn create(
        plan: Arc<TypePlan>,
        folder: &Path,
        format: CloudFormat,
        existing: ExistingFiles,
    ) -> Result<Option<Self>, ExportError> {
        if !matches!(plan.type_name(), CLOUD | COMPRESSED_CLOUD) {
            return Ok(None);
        }
        Ok(Some(Self {
            plan,
            files: FilesByTime::create(folder, existing)?,
            format,
        }))
    }
}

impl Sink for CloudSink {
    fn write(&mut self, message: &BagMessage) -> Result<(), ExportError> {
        let mut unpacked = Vec::new();
        let cloud = Cloud::read(&self.plan, &message.payload, &mut unpacked);
        let cloud = cloud.map_err(ExportError::message)?;
        let points = cloud.points(self.format).map_err(ExportError::message)?;
        let mut file = self
            .files
            .begin(message.stamp.as_nanos(), self.format.extension())?;
        file.append(points.head.as_bytes())?;
        points.each_part(|part| file.append(part))?;
        file.finish_unsynced()
    }

    fn finish(self: Box<Self>) -> Result<Finished, ExportError> {
        Ok(self.files.finish()?.into())
    }
}

/// A number of `sensor_msgs/msg/PointField`: its bytes, and its names in PCD and PLY.
#[derive(Clone, Copy, Debug)]
struct Number {
    bytes: usize,
    pcd: char,
    ply: &'static str,
}

impl Number {
    fn of(datatype: u8) -> Option<Self> {
        let (bytes, pcd, ply) = match datatype {
            1 => (1, 'I', "char"),
            2 => (1, 'U', "uchar"),
            3 => (2, 'I', "short"),
            4 => (2, 'U', "ushort"),
            5 => (4, 'I', "int"),
            6 => (4, 'U', "uint"),
            7 => (4, 'F', "float"),
            8 => (8, 'F', "double"),
            _ => return None,
        };
        Some(Self { bytes, pcd, ply })
    }

    /// Its value of bytes of which the lowest is the first.
    fn value(self, bytes: [u8; 8]) -> f64 {
        let bits = u64::from_le_bytes(bytes);
        match (self.pcd, self.bytes) {
            ('F', 4) => f64::from(f32::from_bits(bits as u32)),
            ('F', _) => f64::from_bits(bits),
            ('I', 1) => f64::from(bits as i8),
            ('I', 2) => f64::from(bits as i16),
            ('I', _) => f64::from(bits as i32),
            _ => bits as f64,
        }
    }
}

/// A field as the message has it.
#[derive(Clone, Debug, Default)]
struct Field {
    name: String,
    offset: u32,
    datatype: u8,
    count: u32,
}

/// A field that was checked.
struct Checked<'c> {
    name: &'c str,
    number: Number,
    offset: usize,
    count: usize,
}

/// Bytes that are copied for each point: from `offset` on, `bytes` at once, in the other order where `is_swapped`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Copied {
    offset: usize,
    bytes: usize,
    is_swapped: bool,
}

/// The output of a cloud.
struct Points<'a> {
    head: String,
    copied: Vec<Copied>,
    rows: usize,
    row_bytes: usize,
    /// Bytes from the begin of a row to the next one.
    row_step: usize,
    point_step: usize,
    data: &'a [u8],
}

impl Points<'_> {
    /// Hands out the points in the layout of the file.
    fn each_part(&self, mut write: impl FnMut(&[u8]) -> Result<(), ExportError>) -> Result<(), ExportError> {
        let mut part = Vec::with_capacity(GATHERED_BYTES);
        for row in 0..self.rows {
            let row = &self.data[row * self.row_step..][..self.row_bytes];
            for point in row.chunks_exact(self.point_step) {
                for copied in &self.copied {
                    let bytes = &point[copied.offset..][..copied.bytes];
                    if copied.is_swapped {
                        part.extend(bytes.iter().rev());
                    } else {
                        part.extend_from_slice(bytes);
                    }
                }
                if part.len() >= GATHERED_BYTES {
                    write(&part)?;
                    part.clear();
                }
            }
        }
        write(&part)
    }
}

/// The fields of a cloud, by their names.
#[derive(Default)]
struct Cloud<'a> {
    field: String,
    depth: usize,
    width: u32,
    height: u32,
    is_big_endian: bool,
    point_step: u32,
    row_step: u32,
    fields: Vec<Field>,
    data: &'a [u8],
    /// How the data of a compressed one is stored.
    format: String,
}

impl<'a> Cloud<'a> {
    /// A cloud of a message, of which `unpacked` gets the points if it is compressed.
    fn read(plan: &TypePlan, payload: &'a [u8], unpacked: &'a mut Vec<u8>) -> Result<Self, String> {
        let mut cloud = Self::default();
        plan.walk(payload, &mut cloud)
            .map_err(|error| error.to_string())?;
        if plan.type_name() == COMPRESSED_CLOUD {
            *unpacked = cloud.packed().unpacked()?;
            cloud.row_step = cloud.width.saturating_mul(cloud.point_step);
            cloud.data = unpacked;
        }
        Ok(cloud)
    }

    fn packed(&self) -> packed::Cloud<'_> {
        let fields = self.fields.iter().map(|field| packed::Field {
            name: &field.name,
            offset: field.offset,
            datatype: field.datatype,
            count: field.count,
        });
        packed::Cloud {
            height: self.height,
            width: self.width,
            fields: fields.collect(),
            is_bigendian: self.is_big_endian.into(),
            point_step: self.point_step,
            row_step: self.row_step,
            data: self.data,
            format: Some(&self.format),
            ..packed::Cloud::default()
        }
    }

    /// The output; one clause when the cloud does not fit its own fields.
    fn points(&self, format: CloudFormat) -> Result<Points<'a>, String> {
        let (width, height) = (self.width as usize, self.height as usize);
        let (point_step, row_step) = (self.point_step as usize, self.row_step as usize);
        let fields = self.checked()?;
        let is_empty = width == 0 || height == 0;
        let row_bytes = width.saturating_mul(point_step);
        let needed = match height {
            1 => row_bytes,
            _ => (height.saturating_sub(1).saturating_mul(row_step)).saturating_add(row_bytes),
        };
        if !is_empty && height > 1 && row_step < row_bytes {
            return Err(format!(
                "a cloud of {width} x {height} points with {point_step} bytes a point needs {row_bytes} bytes a row, found row_step {row_step}"
            ));
        }
        if !is_empty && needed > self.data.len() {
            return Err(format!(
                "a cloud of {width} x {height} points with {point_step} bytes a point and {row_step} bytes a row needs {needed} bytes of data, \
                 found {}",
                self.data.len()
            ));
        }
        let (head, copied) = match format {
            CloudFormat::Pcd => self.pcd(&fields),
            CloudFormat::Ply => self.ply(&fields),
        };
        Ok(Points {
            head,
            copied: merged(copied),
            rows: if is_empty { 0 } else { height },
            row_bytes,
            row_step,
            point_step,
            data: self.data,
        })
    }

    fn checked(&self) -> Result<Vec<Checked<'_>>, String> {
        if self.fields.is_empty() {
            return Err("a cloud without fields: its bytes have no meaning".to_owned());
        }
        if self.fields.len() > FIELDS_MAX {
            return Err(format!("a cloud has more than {FIELDS_MAX} fields"));
        }
        let mut checked = Vec::with_capacity(self.fields.len());
        let mut numbers = 0;
        for field in &self.fields {
            let number = Number::of(field.datatype).ok_or_else(|| {
                format!(
                    "field {} of a cloud has datatype {}, expected 1 to 8",
                    Outside(&field.name),
                    field.datatype
                )
            })?;
            // Older drivers leave the count out.
            let (offset, count) = (field.offset as usize, field.count.max(1) as usize);
            let end = offset.saturating_add(count.saturating_mul(number.bytes));
            if end > self.point_step as usize {
                return Err(format!(
                    "field {} of a cloud ends at byte {end} of a point, which has {} bytes (point_step)",
                    Outside(&field.name),
                    self.point_step
                ));
            }
            numbers += count;
            if numbers > NUMBERS_MAX {
                return Err(format!("a point of a cloud has more than {NUMBERS_MAX} numbers"));
            }
            checked.push(Checked {
                name: &field.name,
                number,
                offset,
                count,
            });
        }
        Ok(checked)
    }

    fn count(&self) -> u64 {
        u64::from(self.width) * u64::from(self.height)
    }

    fn copied(&self, number: Number, offset: usize, count: usize) -> impl Iterator<Item = Copied> + use<> {
        let is_swapped = self.is_big_endian && number.bytes > 1;
        (0..count).map(move |place| Copied {
            offset: offset + place * number.bytes,
            bytes: number.bytes,
            is_swapped,
        })
    }

    fn pcd(&self, fields: &[Checked<'_>]) -> (String, Vec<Copied>) {
        let mut names = Names::default();
        let names: Vec<String> = fields.iter().map(|field| names.unique(field.name)).collect();
        let each = |text: &dyn Fn(&Checked<'_>) -> String| {
            let texts: Vec<String> = fields.iter().map(text).collect();
            texts.join(" ")
        };
        let head = format!(
            "# .PCD v0.7 - Point Cloud Data file format\nVERSION 0.7\nFIELDS {}\nSIZE {}\nTYPE {}\nCOUNT {}\nWIDTH {}\nHEIGHT {}\n\
             VIEWPOINT 0 0 0 1 0 0 0\nPOINTS {}\nDATA binary\n",
            names.join(" "),
            each(&|field| field.number.bytes.to_string()),
            each(&|field| field.number.pcd.to_string()),
            each(&|field| field.count.to_string()),
            self.width,
            self.height,
            self.count(),
        );
        let copied = fields
            .iter()
            .flat_map(|field| self.copied(field.number, field.offset, field.count));
        (head, copied.collect())
    }

    fn ply(&self, fields: &[Checked<'_>]) -> (String, Vec<Copied>) {
        let mut names = Names::default();
        let mut head = format!(
            "ply\nformat binary_little_endian 1.0\nelement vertex {}\n",
            self.count()
        );
        let mut copied = Vec::new();
        let mut property = |kind: &str, name: &str| {
            let _ = writeln!(head, "property {kind} {}", names.unique(name));
        };
        for field in fields {
            let colours: &[(&str, usize)] = match field.name {
                // Bytes of the packed number, the lowest first: blue, green, red, alpha.
                "rgb" => &[("red", 2), ("green", 1), ("blue", 0)],
                "rgba" => &[("red", 2), ("green", 1), ("blue", 0), ("alpha", 3)],
                _ => &[],
            };
            if field.number.bytes == 4 && field.count == 1 && !colours.is_empty() {
                for (name, place) in colours {
                    property("uchar", name);
                    let place = if self.is_big_endian { 3 - place } else { *place };
                    copied.push(Copied {
                        offset: field.offset + place,
                        bytes: 1,
                        is_swapped: false,
                    });
                }
                continue;
            }
            for place in 0..field.count {
                match field.count {
                    1 => property(field.number.ply, field.name),
                    _ => property(field.number.ply, &format!("{}_{place}", field.name)),
                }
            }
            copied.extend(self.copied(field.number, field.offset, field.count));
        }
        head.push_str("end_header\n");
        (head, copied)
    }
}

/// Hands out the values of these fields for each point of a cloud, of at most about `points_max`; NaN for a field that the cloud lacks. Returns which it
/// has.
///
/// # Errors
/// One clause when the cloud does not fit its own fields.
pub(crate) fn each_point<const N: usize>(
    plan: &TypePlan,
    payload: &[u8],
    names: [&str; N],
    points_max: usize,
    mut each: impl FnMut([f64; N]),
) -> Result<([bool; N], u64), String> {
    let mut unpacked = Vec::new();
    let cloud = Cloud::read(plan, payload, &mut unpacked)?;
    let points = cloud.points(CloudFormat::Pcd)?;
    let fields = cloud.checked()?;
    let wanted = names.map(|name| fields.iter().find(|field| field.name == name));
    let stride = (cloud.count() as usize).div_ceil(points_max.max(1)).max(1);
    let value = |point: &[u8], field: &Checked<'_>| {
        let bytes = &point[field.offset..][..field.number.bytes];
        let mut little = [0; 8];
        little[..bytes.len()].copy_from_slice(bytes);
        if cloud.is_big_endian {
            little[..bytes.len()].reverse();
        }
        field.number.value(little)
    };
    let mut number = 0_usize;
    for row in 0..points.rows {
        let row = &points.data[row * points.row_step..][..points.row_bytes];
        for point in row.chunks_exact(points.point_step) {
            if number.is_multiple_of(stride) {
                each(wanted.map(|field| field.map_or(f64::NAN, |field| value(point, field))));
            }
            number += 1;
        }
    }
    Ok((wanted.map(|field| field.is_some()), number as u64))
}

/// Neighbours that are copied at once.
fn merged(copied: Vec<Copied>) -> Vec<Copied> {
    let mut merged: Vec<Copied> = Vec::with_capacity(copied.len());
    for next in copied {
        match merged.last_mut() {
            Some(last) if !last.is_swapped && !next.is_swapped && last.offset + last.bytes == next.offset => {
                last.bytes += next.bytes;
            }
            _ => merged.push(next),
        }
    }
    merged
}

/// Names of fields as heads of files can have them: one word of ASCII, each another one.
#[derive(Default)]
struct Names(HashSet<String>);

impl Names {
    fn unique(&mut self, name: &str) -> String {
        let shown = |c: char| if c.is_ascii_graphic() { c } else { '_' };
        let plain: String = name.chars().take(NAME_BYTES_MAX).map(shown).collect();
        let plain = if plain.is_empty() { "_".to_owned() } else { plain };
        let mut name = plain.clone();
        let mut number = 1;
        while !self.0.insert(name.clone()) {
            number += 1;
            name = format!("{plain}_{number}");
        }
        name
    }
}

impl<'a> Visitor<'a> for Cloud<'a> {
    fn wants_field(&mut self, field: &FieldPlan) -> bool {
        self.field.clone_from(&field.name);
        // Its own, and those of its list of fields.
        self.depth == 2 || (self.depth == 1 && field.name != "header")
    }

    fn wants_item(&mut self, index: u64) -> bool {
        // One more than allowed, which is refused.
        index <= FIELDS_MAX as u64
    }

    fn scalar(&mut self, value: Scalar<'a>) {
        let name = self.field.as_str();
        match (self.depth, self.fields.last_mut()) {
            (2, Some(field)) => match (name, value) {
                ("name", Scalar::Text(text)) => field.name = text.to_str().into_owned(),
                ("offset", Scalar::U32(value)) => field.offset = value,
                ("datatype", Scalar::U8(value)) => field.datatype = value,
                ("count", Scalar::U32(value)) => field.count = value,
                _ => {}
            },
            _ => match (name, value) {
                ("width", Scalar::U32(value)) => self.width = value,
                ("height", Scalar::U32(value)) => self.height = value,
                ("is_bigendian", Scalar::Bool(value)) => self.is_big_endian = value,
                ("point_step", Scalar::U32(value)) => self.point_step = value,
                ("row_step", Scalar::U32(value)) => self.row_step = value,
                ("format", Scalar::Text(text)) => self.format = text.to_str().into_owned(),
                _ => {}
            },
        }
    }

    fn primitives(&mut self, field: &FieldPlan, values: Primitives<'a>) {
        let is_data = matches!(field.name.as_str(), "data" | "compressed_data");
        if self.depth == 1 && is_data && values.is_octets() {
            self.data = values.bytes();
        }
    }

    fn begin_struct(&mut self, _: &StructPlan) {
        self.depth += 1;
        if self.depth == 2 {
            self.fields.push(Field::default());
        }
    }

    fn end_struct(&mut self, _: &StructPlan) {
        self.depth -= 1;
    }

    fn begin_list(&mut self, _: &FieldPlan, _: u64) {}

    fn end_list(&mut self, _: &FieldPlan, _: u64) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cloud<'a>(fields: &[(&str, u32, u8, u32)], data: &'a [u8]) -> Cloud<'a> {
        let field = |(name, offset, datatype, count): &(&str, u32, u8, u32)| Field {
            name: (*name).to_owned(),
            offset: *offset,
            datatype: *datatype,
            count: *count,
        };
        Cloud {
            width: 1,
            height: 1,
            point_step: 8,
            fields: fields.iter().map(field).collect(),
            data,
            ..Cloud::default()
        }
    }

    fn written(cloud: &Cloud<'_>, format: CloudFormat) -> Result<(String, Vec<u8>), String> {
        let points = cloud.points(format)?;
        let mut bytes = Vec::new();
        points
            .each_part(|part| {
                bytes.extend_from_slice(part);
                Ok(())
            })
            .map_err(|error| error.to_string())?;
        Ok((points.head, bytes))
    }

    #[test]
    fn names_are_single_words_and_differ() {
        let mut names = Names::default();
        let found = ["x", "x", "a b\nc", "", "\u{fc}", "x_2"].map(|name| names.unique(name));
        assert_eq!(found, ["x", "x_2", "a_b_c", "_", "__2", "x_2_2"]);
    }

    #[test]
    fn neighbours_are_copied_at_once_and_swapped_ones_are_not() {
        let fields = [("x", 0, 4, 2), ("y", 4, 2, 1), ("z", 6, 4, 0)];
        let mut cloud = cloud(&fields, &[1, 2, 3, 4, 5, 6, 7, 8]);
        let points = cloud.points(CloudFormat::Pcd).unwrap();
        assert_eq!(
            points.copied.iter().map(|one| one.bytes).collect::<Vec<_>>(),
            [5, 2]
        );
        assert_eq!(
            written(&cloud, CloudFormat::Pcd).unwrap().1,
            [1, 2, 3, 4, 5, 7, 8]
        );
        cloud.is_big_endian = true;
        assert_eq!(
            written(&cloud, CloudFormat::Ply).unwrap().1,
            [2, 1, 4, 3, 5, 8, 7]
        );
    }

    #[test]
    fn clouds_that_do_not_fit_their_fields_are_refused() {
        let data = [0; 16];
        let x = ("x", 0, 7, 1);
        let many = vec![x; FIELDS_MAX + 1];
        let cases: [(&[_], &str); 5] = [
            (&[], "without fields"),
            (&[("x", 0, 9, 1)], "datatype 9, expected 1 to 8"),
            (&[("x", 6, 7, 1)], "ends at byte 10"),
            (&[("x", 0, 8, u32::MAX)], "(point_step)"),
            (&many, "more than 256 fields"),
        ];
        for (fields, word) in cases {
            let error = written(&cloud(fields, &data), CloudFormat::Pcd).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
        for (width, height, row_step, word) in [
            (3, 1, 24, Some("needs 24 bytes of data, found 16")),
            (1, 3, 8, Some("needs 24 bytes of data, found 16")),
            (1, 2, 4, Some("needs 8 bytes a row, found row_step 4")),
            (u32::MAX, u32::MAX, u32::MAX, Some("bytes a row")),
            (u32::MAX, 0, 0, None),
            (0, u32::MAX, 0, None),
            (2, 1, 0, None),
        ] {
            let cloud = Cloud {
                width,
                height,
                row_step,
                ..cloud(&[x], &data)
            };
            match (written(&cloud, CloudFormat::Ply), word) {
                (Err(error), Some(word)) => assert!(error.contains(word), "{error}"),
                (Ok((_, bytes)), None) => assert_eq!(bytes.len() as u64, 4 * cloud.count()),
                (found, _) => panic!("{width} x {height}: {found:?}"),
            }
        }
    }
}
