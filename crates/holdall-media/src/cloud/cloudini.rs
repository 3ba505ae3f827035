//! Points in the Cloudini format, version 3: coordinates as multiples of a resolution, differences between points, all of it by zstd.
//!
//! A head of text (`CLOUDINI_V03`, fields with their resolutions), then for each 32 768 points the length of a chunk and the chunk. A coordinate is a
//! number of variable length: the zigzag of its difference plus 1, in groups of 7 bits; 0 is NaN. Whole numbers of two and more bytes are differences
//! in the same way, doubles the XOR with the one before, all else is copied.

use super::{Cloud, FIELDS_MAX, Field, Kind};
use std::fmt::Write;

/// The format text of messages with it.
pub const FORMAT: &str = "cloudini";

const MAGIC: &str = "CLOUDINI_V03\n";
/// Points of a chunk.
const CHUNK_POINTS: usize = 32 * 1024;
/// The largest multiple of the resolution: all differences fit into 32 bits.
const MULTIPLE_MAX: f32 = (1 << 30) as f32;
/// Bytes of a number.
const NUMBER_BYTES_MAX: usize = 10;
const LEVEL: i32 = 3;
/// Bytes of the head.
const HEAD_BYTES_MAX: usize = 1 << 16;

/// How a field is stored.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Copied(usize),
    /// Bytes, and whether it is signed.
    Difference(usize, bool),
    Multiple(f32),
    Xor,
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

fn way(datatype: u8, resolution: Option<f32>) -> Option<Way> {
    Some(match Kind::of(datatype)? {
        Kind::Whole(1, _) => Way::Copied(1),
        Kind::Whole(bytes, is_signed) => Way::Difference(bytes, is_signed),
        Kind::Float(4) => resolution.map_or(Way::Copied(4), Way::Multiple),
        Kind::Float(_) => Way::Xor,
    })
}

/// Whether a field is a coordinate, which is rounded.
pub fn is_rounded(field: &Field<'_>) -> bool {
    matches!(field.name, "x" | "y" | "z") && field.datatype == 7
}

/// The compressed points of a cloud, coordinates rounded to multiples of `resolution`.
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
        "{MAGIC}version: 3\nwidth: {}\nheight: {}\npoint_step: {}\nencoding_opt: LOSSY\ncompression_opt: ZSTD\nfields:\n",
        cloud.width, cloud.height, cloud.point_step
    );
    let mut stored = Vec::new();
    for field in &cloud.fields {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if field.count != 1 || field.name.is_empty() || !field.name.chars().all(is_plain) {
            return Err(format!(
                "its field {:?} is not one value with a plain name",
                field.name
            ));
        }
        let rounded = is_rounded(field).then_some(resolution);
        let (Some(way), Some(type_name)) = (
            way(field.datatype, rounded),
            TYPES.get(usize::from(field.datatype).wrapping_sub(1)),
        ) else {
            return Err(format!("its field {:?} has an unknown type", field.name));
        };
        let said = rounded.map_or_else(|| "null".to_owned(), |resolution| resolution.to_string());
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
                Way::Multiple(resolution) => {
                    let value = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                    if value.is_nan() {
                        out.push(0);
                        *last = 0;
                        continue;
                    }
                    let multiple = (value * (1.0 / resolution)).round_ties_even();
                    if multiple.abs() > MULTIPLE_MAX {
                        return Err(format!(
                            "a coordinate of {value} is too large for multiples of {resolution}"
                        ));
                    }
                    put_number(&mut out, multiple as i64 - *last);
                    *last = multiple as i64;
                }
                Way::Xor => {
                    let value = whole(&bytes[..8], true);
                    out.extend((value ^ *last).to_le_bytes());
                    *last = value;
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

/// The next number; `Some(None)` for NaN, `None` at the end of the data.
fn take_number(data: &mut &[u8]) -> Option<Option<i64>> {
    let mut value = 0_u64;
    for place in 0..NUMBER_BYTES_MAX {
        let (byte, rest) = data.split_first()?;
        *data = rest;
        value |= u64::from(byte & 0x7f).checked_shl(7 * place as u32)?;
        if byte & 0x80 == 0 {
            let zigzag = value.checked_sub(1);
            return Some(zigzag.map(|zigzag| (zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed()));
        }
    }
    None
}

/// The fields that the head names, and the chunks after it.
fn read_head<'a>(cloud: &Cloud<'_>, packed: &'a [u8]) -> Result<(Vec<Stored>, bool, &'a [u8]), String> {
    let end = packed.iter().take(HEAD_BYTES_MAX).position(|byte| *byte == 0);
    let head = end.and_then(|end| std::str::from_utf8(&packed[..end]).ok());
    let (Some(end), Some(text)) = (end, head.and_then(|head| head.strip_prefix(MAGIC))) else {
        return Err("it has no head of Cloudini, version 3".to_owned());
    };
    let mut fields: Vec<(Option<usize>, Option<u8>, Option<f32>)> = Vec::new();
    let mut is_packed = None;
    for line in text.lines() {
        let (key, value) = line
            .trim_start_matches(['-', ' '])
            .split_once(':')
            .unwrap_or((line, ""));
        let value = value.trim();
        let damaged = || format!("the line {line:?} of its head is not known");
        match (key, fields.last_mut()) {
            ("width", None) if value != cloud.width.to_string() => return Err(damaged()),
            ("height", None) if value != cloud.height.to_string() => return Err(damaged()),
            ("point_step", None) if value != cloud.point_step.to_string() => return Err(damaged()),
            ("encoding_opt", None) if value != "LOSSY" && value != "LOSSLESS" => return Err(damaged()),
            ("compression_opt", None) => {
                is_packed = match value {
                    "ZSTD" => Some(true),
                    "NONE" => Some(false),
                    _ => return Err(damaged()),
                }
            }
            ("name", _) => fields.push((None, None, None)),
            ("offset", Some(field)) => field.0 = value.parse().ok(),
            ("type", Some(field)) => {
                let place = TYPES.iter().position(|name| *name == value);
                field.1 = place.and_then(|place| u8::try_from(place + 1).ok());
            }
            ("resolution", Some(field)) if value != "null" => {
                field.2 = Some(value.parse().map_err(|_| damaged())?)
            }
            _ => {}
        }
    }
    let stored = fields.into_iter().map(|(offset, datatype, resolution)| {
        let (offset, datatype) = offset.zip(datatype)?;
        let fits = offset.checked_add(Kind::of(datatype)?.bytes())? <= cloud.point_step as usize;
        let way = way(datatype, resolution)?;
        fits.then_some(Stored { offset, way })
    });
    let stored: Option<Vec<_>> = stored.collect();
    let is_packed = is_packed.ok_or("its head names no compression")?;
    let stored = stored.ok_or("a field in its head is damaged")?;
    if stored.is_empty() || stored.len() > FIELDS_MAX {
        return Err(format!("its head names {} fields", stored.len()));
    }
    Ok((stored, is_packed, &packed[end + 1..]))
}

/// The points again, with zeros between the fields. `cloud` has everything but the points.
///
/// # Errors
/// One clause: data that is cut off or damaged, or of a kind that is not read (LZ4).
pub fn decode(cloud: &Cloud<'_>, packed: &[u8]) -> Result<Vec<u8>, String> {
    let points = cloud.points()?;
    let (fields, is_packed, mut rest) = read_head(cloud, packed)?;
    let step = cloud.point_step as usize;
    // Each value takes a byte at least: a head that states more points than there are bytes for is not believed.
    let mut data = Vec::new();
    let mut left = points;
    while left > 0 {
        let torn = || "its points are cut off".to_owned();
        let (length, after) = rest.split_first_chunk::<4>().ok_or_else(torn)?;
        let chunk = after
            .get(..u32::from_le_bytes(*length) as usize)
            .ok_or_else(torn)?;
        rest = &after[chunk.len()..];
        let count = left.min(CHUNK_POINTS);
        left -= count;
        let unpacked;
        let mut numbers = if is_packed {
            let length_max = count * fields.len() * NUMBER_BYTES_MAX;
            unpacked = zstd::bulk::decompress(chunk, length_max).map_err(|error| error.to_string())?;
            unpacked.as_slice()
        } else {
            chunk
        };
        let begin = data.len();
        data.resize(begin + count * step, 0);
        decode_chunk(&mut numbers, &mut data[begin..], step, &fields).ok_or_else(torn)?;
    }
    Ok(data)
}

fn decode_chunk(numbers: &mut &[u8], points: &mut [u8], step: usize, fields: &[Stored]) -> Option<()> {
    let mut last = vec![0_i64; fields.len()];
    for point in points.chunks_exact_mut(step) {
        for (field, last) in fields.iter().zip(&mut last) {
            let to = point.get_mut(field.offset..)?;
            match field.way {
                Way::Copied(length) => {
                    to.get_mut(..length)?.copy_from_slice(numbers.get(..length)?);
                    *numbers = &numbers[length..];
                }
                Way::Difference(length, _) => {
                    *last = last.wrapping_add(take_number(numbers)??);
                    to.get_mut(..length)?
                        .copy_from_slice(&last.to_le_bytes()[..length]);
                }
                Way::Multiple(resolution) => {
                    let value = match take_number(numbers)? {
                        Some(difference) => {
                            *last = last.wrapping_add(difference);
                            *last as f32 * resolution
                        }
                        None => {
                            *last = 0;
                            f32::NAN
                        }
                    };
                    to.get_mut(..4)?.copy_from_slice(&value.to_le_bytes());
                }
                Way::Xor => {
                    let (bytes, rest) = numbers.split_first_chunk::<8>()?;
                    *last ^= i64::from_le_bytes(*bytes);
                    *numbers = rest;
                    to.get_mut(..8)?.copy_from_slice(&last.to_le_bytes());
                }
            }
        }
    }
    Some(())
}

/// The largest error of a coordinate after decoding; a clause if another value differs, or one that is not a number.
///
/// # Errors
/// As said.
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
    fn numbers_are_as_the_format_has_them() {
        for (value, bytes) in [
            (0, &[0x01][..]),
            (1, &[0x03]),
            (-1, &[0x02]),
            (127, &[0xff, 0x01]),
            (1000, &[0xd1, 0x0f]),
            (-100_000, &[0xc0, 0x9a, 0x0c]),
        ] {
            let mut out = Vec::new();
            put_number(&mut out, value);
            assert_eq!(out, bytes, "{value}");
            assert_eq!(take_number(&mut out.as_slice()), Some(Some(value)));
        }
        assert_eq!(take_number(&mut &[0][..]), Some(None));
        assert_eq!(take_number(&mut &[0xff; 20][..]), None);
        assert_eq!(take_number(&mut &[0x80][..]), None);
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
