//! Points in the Cloudini format: coordinates as multiples of a resolution, differences between points, all of it by zstd. Version 3 is written.
//!
//! A head of text (`CLOUDINI_V03`, fields with their resolutions), then for each 32 768 points the length of a chunk and the chunk. A float with a
//! resolution is a number of variable length: the zigzag of its difference plus 1, in groups of 7 bits; 0 is NaN. Whole numbers of two and more bytes are
//! differences in the same way, doubles the XOR with the one before, all else is copied.

mod read;

pub use read::decode;

use super::{Cloud, Field, Kind};
use std::fmt::Write;

/// The format text of messages with it.
pub const FORMAT: &str = "cloudini";

/// How the data of all versions begins; two digits come after it.
pub(super) const MAGIC: &str = "CLOUDINI_V";
/// Points of a chunk.
const CHUNK_POINTS: usize = 32 * 1024;
/// The largest multiple of the resolution: all differences fit into 32 bits.
const MULTIPLE_MAX: f32 = (1 << 30) as f32;
/// Resolutions that are tried for floats that are not rounded: whole numbers, decimals, parts of 256.
const EXACT: [f32; 5] = [1.0, 0.1, 0.01, 0.001, 1.0 / 256.0];
const LEVEL: i32 = 3;

/// What is done to the values first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Copied,
    Lossy,
    Lossless,
}

/// How a field is stored.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Copied(usize),
    /// Bytes, and whether it is signed.
    Difference(usize, bool),
    /// Whole numbers with this many bytes, after all points of a chunk.
    Apart(usize),
    /// Floats with this many bytes, and their resolution.
    Multiple(usize, f32),
    Xor(usize),
    /// Doubles, of which the bits are stored that differ.
    Window,
}

/// A field with its way.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stored {
    offset: usize,
    way: Way,
}

/// Names of types in the head.
const TYPES: [&str; 8] = [
    "INT8", "UINT8", "INT16", "UINT16", "INT32", "UINT32", "FLOAT32", "FLOAT64",
];

fn type_name(datatype: u8) -> Option<&'static str> {
    TYPES.get(usize::from(datatype).wrapping_sub(1)).copied()
}

/// `None` for 4-byte floats of version 3 without loss: Cloudini before 1.1 copied them, later ones XOR them, and their heads are the same.
const fn way(version: u8, stage: Stage, kind: Kind, resolution: Option<f32>) -> Option<Way> {
    Some(match (stage, kind, resolution) {
        (Stage::Copied, ..) | (_, Kind::Whole(1, _), _) => Way::Copied(kind.bytes()),
        (Stage::Lossy, Kind::Whole(bytes, _), _) if version >= 5 => Way::Apart(bytes),
        (_, Kind::Whole(bytes, is_signed), _) => Way::Difference(bytes, is_signed),
        (Stage::Lossy, Kind::Float(bytes), Some(resolution)) => Way::Multiple(bytes, resolution),
        (Stage::Lossy, Kind::Float(4), None) => Way::Copied(4),
        (Stage::Lossless, Kind::Float(4), _) if version < 4 => return None,
        (Stage::Lossless, Kind::Float(4), _) => Way::Xor(4),
        (_, Kind::Float(_), None) if version >= 4 => Way::Window,
        (_, Kind::Float(_), _) => Way::Xor(8),
    })
}

/// Whether a field is a coordinate, which is rounded.
pub fn is_rounded(field: &Field<'_>) -> bool {
    matches!(field.name, "x" | "y" | "z") && field.datatype == 7
}

/// A float as a multiple of a resolution; NaN and numbers that are too large have none.
fn multiple(value: f32, resolution: f32) -> Option<i64> {
    let multiple = (value * (1.0 / resolution)).round_ties_even();
    (multiple.abs() <= MULTIPLE_MAX).then_some(multiple as i64)
}

/// A resolution that all values of a field are multiples of, bit for bit.
fn exact_resolution(cloud: &Cloud<'_>, field: &Field<'_>) -> Option<f32> {
    let points = || cloud.data.chunks_exact(cloud.point_step as usize);
    let is_exact = |point: &[u8], resolution: f32| {
        let value = f32_at(&point[field.offset as usize..]);
        let again = multiple(value, resolution).map_or(f32::NAN, |multiple| multiple as f32 * resolution);
        again.to_bits() == value.to_bits()
    };
    let mut tried = EXACT.into_iter().filter(|_| field.datatype == 7);
    tried.find(|resolution| points().all(|point| is_exact(point, *resolution)))
}

fn f32_at(bytes: &[u8]) -> f32 {
    f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// The compressed points of a cloud, coordinates rounded to multiples of `resolution`. Other floats are multiples too where that keeps all their bits.
///
/// # Errors
/// One clause for a cloud that this format cannot hold.
pub fn encode(cloud: &Cloud<'_>, resolution: f32) -> Result<Vec<u8>, String> {
    cloud.whole()?;
    cloud.columns()?;
    if cloud.is_bigendian != 0 {
        return Err("its points are big endian".to_owned());
    }
    let mut head = format!(
        "{MAGIC}03\nversion: 3\nwidth: {}\nheight: {}\npoint_step: {}\nencoding_opt: LOSSY\ncompression_opt: ZSTD\nfields:\n",
        cloud.width, cloud.height, cloud.point_step
    );
    let mut stored = Vec::new();
    for field in &cloud.fields {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if field.count > 1 || field.name.is_empty() || !field.name.chars().all(is_plain) {
            return Err(format!(
                "its field {:?} is not one value with a plain name",
                field.name
            ));
        }
        let rounded = is_rounded(field).then_some(resolution);
        let resolution = rounded.or_else(|| exact_resolution(cloud, field));
        let way = Kind::of(field.datatype).and_then(|kind| way(3, Stage::Lossy, kind, resolution));
        let (Some(way), Some(type_name)) = (way, type_name(field.datatype)) else {
            return Err(format!("its field {:?} has an unknown type", field.name));
        };
        let said = resolution.map_or_else(|| "null".to_owned(), |resolution| resolution.to_string());
        // Writing to a text does not fail.
        let _ = write!(
            head,
            "  - name: {}\n    offset: {}\n    type: {type_name}\n    resolution: {said}\n",
            field.name, field.offset
        );
        stored.push(Stored {
            offset: field.offset as usize,
            way,
        });
    }
    let mut out = head.into_bytes();
    out.push(0);
    for points in cloud.data.chunks(CHUNK_POINTS * cloud.point_step as usize) {
        let chunk = encode_chunk(points, cloud.point_step as usize, &stored)?;
        let packed = zstd::bulk::compress(&chunk, LEVEL).map_err(|error| error.to_string())?;
        let length = u32::try_from(packed.len()).map_err(|error| error.to_string())?;
        out.extend(length.to_le_bytes());
        out.extend(packed);
    }
    Ok(out)
}

fn encode_chunk(points: &[u8], step: usize, fields: &[Stored]) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(points.len());
    let mut last = vec![0_i64; fields.len()];
    for point in points.chunks_exact(step) {
        for (field, last) in fields.iter().zip(&mut last) {
            let bytes = &point[field.offset..];
            match field.way {
                Way::Copied(length) => out.extend_from_slice(&bytes[..length]),
                Way::Difference(length, is_signed) => {
                    let value = whole(&bytes[..length], is_signed);
                    put_number(&mut out, value - *last);
                    *last = value;
                }
                Way::Multiple(4, resolution) => {
                    let value = f32_at(bytes);
                    if value.is_nan() {
                        out.push(0);
                        *last = 0;
                        continue;
                    }
                    let multiple = multiple(value, resolution).ok_or_else(|| {
                        format!("a coordinate of {value} is too large for multiples of {resolution}")
                    })?;
                    put_number(&mut out, multiple - *last);
                    *last = multiple;
                }
                Way::Xor(length) => {
                    let value = whole(&bytes[..length], true);
                    out.extend_from_slice(&(value ^ *last).to_le_bytes()[..length]);
                    *last = value;
                }
                Way::Multiple(..) | Way::Apart(_) | Way::Window => {
                    return Err("it has a field that version 3 is not written with".to_owned());
                }
            }
        }
    }
    Ok(out)
}

fn whole(bytes: &[u8], is_signed: bool) -> i64 {
    let mut all = [0; 8];
    all[..bytes.len()].copy_from_slice(bytes);
    let unused = 64 - 8 * bytes.len() as u32;
    let value = i64::from_le_bytes(all);
    if is_signed {
        value << unused >> unused
    } else {
        value
    }
}

fn put_number(out: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)).cast_unsigned().wrapping_add(1);
    while rest > 0x7f {
        out.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// The largest error of a coordinate after decoding.
///
/// # Errors
/// One clause: another value differs, or a coordinate is a number in one of them only.
pub fn error_of(cloud: &Cloud<'_>, decoded: &[u8]) -> Result<f64, String> {
    let bare = cloud.bare()?;
    let step = cloud.point_step as usize;
    let mut largest = 0.0_f64;
    let rounded: Vec<usize> = cloud
        .fields
        .iter()
        .filter(|field| is_rounded(field))
        .map(|field| field.offset as usize)
        .collect();
    if bare.len() != decoded.len() {
        return Err("decoded again it has another length".to_owned());
    }
    let mut same = Vec::with_capacity(step);
    for (before, after) in bare.chunks_exact(step).zip(decoded.chunks_exact(step)) {
        same.clear();
        same.extend_from_slice(after);
        for offset in &rounded {
            let place = *offset..offset + 4;
            let value = |bytes: &[u8]| bytes.try_into().map_or(0.0, f32::from_le_bytes);
            let (one, other) = (value(&before[place.clone()]), value(&after[place.clone()]));
            if one.is_nan() != other.is_nan() {
                return Err("decoded again a coordinate is not a number".to_owned());
            }
            if !one.is_nan() {
                largest = largest.max((f64::from(one) - f64::from(other)).abs());
            }
            same[place.clone()].copy_from_slice(&before[place]);
        }
        if same != before {
            return Err("decoded again a value differs that is not rounded".to_owned());
        }
    }
    Ok(largest)
}

#[cfg(test)]
mod tests {
    use super::{super::tests, *};

    #[test]
    fn coordinates_keep_their_bound_and_all_else_is_the_same() {
        let data = tests::points(70_000);
        let cloud = tests::cloud(&data);
        for resolution in [0.001, 0.01] {
            let packed = encode(&cloud, resolution).unwrap();
            let decoded = decode(&cloud, &packed).unwrap();
            let error = error_of(&cloud, &decoded).unwrap();
            assert!(error > 0.0 && error <= f64::from(resolution), "{error}");
            assert!(
                packed.len() * 2 < data.len(),
                "{} of {}",
                packed.len(),
                data.len()
            );
        }
        let large = 1e9_f32.to_le_bytes();
        let data = [&large[..], &data[4..30]].concat();
        assert!(
            encode(&tests::cloud(&data), 0.001)
                .unwrap_err()
                .contains("too large")
        );
    }

    #[test]
    fn floats_that_are_multiples_are_stored_as_these() {
        let data = tests::points(500);
        let head = |data: &[u8]| {
            let packed = encode(&tests::cloud(data), 0.001).unwrap();
            let decoded = decode(&tests::cloud(data), &packed).unwrap();
            assert!(error_of(&tests::cloud(data), &decoded).is_ok());
            let end = packed.iter().position(|byte| *byte == 0).unwrap();
            String::from_utf8(packed[..end].to_vec()).unwrap()
        };
        let intensity = |resolution: &str| {
            format!("- name: intensity\n    offset: 16\n    type: FLOAT32\n    resolution: {resolution}\n")
        };
        assert!(head(&data).contains(&intensity("1")));
        // One value decides for all: a third, minus zero, a NaN with contents.
        for (value, resolution) in [
            (3.0_f32 * 0.01, "0.01"),
            (0.5, "0.1"),
            (0.25, "0.01"),
            (0.75 / 64.0, "0.00390625"),
            (1.0 / 3.0, "null"),
            (-0.0, "null"),
            (f32::INFINITY, "null"),
            (f32::from_bits(0x7fc0_0001), "null"),
            (f32::NAN, "1"),
        ] {
            let mut data = tests::points(1);
            data[16..20].copy_from_slice(&value.to_le_bytes());
            let head = head(&data);
            assert!(head.contains(&intensity(resolution)), "{value}: {head}");
        }
    }

    #[test]
    fn damaged_data_is_refused() {
        let data = tests::points(300);
        let cloud = tests::cloud(&data);
        let packed = encode(&cloud, 0.001).unwrap();
        for length in 0..packed.len() {
            assert!(decode(&cloud, &packed[..length]).is_err(), "{length}");
        }
        for place in 0..packed.len() {
            let mut damaged = packed.clone();
            damaged[place] ^= 0x55;
            // It may be another cloud, but nothing worse.
            let _ = decode(&cloud, &damaged);
        }
        let wide = Cloud {
            width: 1 << 25,
            height: 1 << 25,
            ..cloud
        };
        assert!(decode(&wide, &packed).is_err());
    }
}
