//! Reads versions 3 to 5, as holdall, Cloudini and others write them: a head that does not fit its message, or is not known to the last line, is refused.

use super::{CHUNK_POINTS, MAGIC, Stage, Stored, Way, type_name, way};
use crate::cloud::{Cloud, FIELDS_MAX, Kind};
use std::borrow::Cow;

/// Bytes of the head.
const HEAD_BYTES_MAX: usize = 1 << 16;
/// Bytes of a number.
const NUMBER_BYTES_MAX: usize = 10;
/// Bytes of a value, which may have the length of a run, and of what is before the values of a field that is apart.
const VALUE_BYTES_MAX: usize = 12;
const BEFORE_BYTES_MAX: usize = 16;
/// Encoders cut the multiples of 4-byte floats to 32 bits: from here on a value is not what was measured.
const MULTIPLE_END: u64 = i32::MAX as u64;

const TORN: &str = "its points are cut off or damaged";

/// What is done to a chunk at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packing {
    Unpacked,
    Lz4,
    Zstd,
}

impl Packing {
    fn unpack(self, chunk: &[u8], length_max: usize) -> Result<Cow<'_, [u8]>, String> {
        let unpacked = match self {
            Self::Unpacked => return Ok(chunk.into()),
            Self::Lz4 => lz4::block::decompress(chunk, Some(i32::try_from(length_max).unwrap_or(i32::MAX))),
            Self::Zstd => zstd::bulk::decompress(chunk, length_max),
        };
        unpacked.map(Cow::Owned).map_err(|error| error.to_string())
    }
}

/// The version, the text of the head, and the chunks.
fn parts(packed: &[u8]) -> Result<(u8, &str, &[u8]), String> {
    let after = packed.strip_prefix(MAGIC.as_bytes());
    let after = after.ok_or("it does not begin with a head of Cloudini")?;
    let end = after.iter().take(HEAD_BYTES_MAX).position(|byte| *byte == 0);
    let head = end.and_then(|end| std::str::from_utf8(&after[..end]).ok());
    let (version, text) = head.and_then(|head| head.split_once('\n')).unwrap_or_default();
    let version = match version {
        "03" => 3,
        "04" => 4,
        "05" => 5,
        _ => {
            let found = String::from_utf8_lossy(&after[..after.len().min(2)]);
            return Err(format!(
                "its head names version {found:?} of Cloudini or is not text; versions 03, 04 and 05 are read"
            ));
        }
    };
    Ok((version, text, &after[end.map_or(0, |end| end + 1)..]))
}

/// What a head says beyond what its message has.
#[derive(Debug, Default)]
struct Head {
    stage: Option<Stage>,
    packing: Option<Packing>,
    /// By field.
    resolutions: Vec<Option<f32>>,
}

impl Head {
    /// Takes a line; false for one that is not known or not as the message has it.
    fn take(&mut self, key: &str, value: &str, cloud: &Cloud<'_>) -> bool {
        if key == "name" {
            self.resolutions.push(None);
        }
        let Some(place) = self.resolutions.len().checked_sub(1) else {
            return match key {
                "version" | "fields" => true,
                "encoding_config" => value.is_empty(),
                "width" => value == cloud.width.to_string(),
                "height" => value == cloud.height.to_string(),
                "point_step" => value == cloud.point_step.to_string(),
                "encoding_opt" => {
                    self.stage = match value {
                        "NONE" => Some(Stage::Copied),
                        "LOSSY" => Some(Stage::Lossy),
                        "LOSSLESS" => Some(Stage::Lossless),
                        _ => None,
                    };
                    self.stage.is_some()
                }
                "compression_opt" => {
                    self.packing = match value {
                        "NONE" => Some(Packing::Unpacked),
                        "LZ4" => Some(Packing::Lz4),
                        "ZSTD" => Some(Packing::Zstd),
                        _ => None,
                    };
                    self.packing.is_some()
                }
                _ => false,
            };
        };
        let Some(field) = cloud.fields.get(place) else {
            return false;
        };
        match key {
            "name" => value == field.name,
            "offset" => value == field.offset.to_string(),
            "type" => type_name(field.datatype) == Some(value),
            "resolution" => {
                let number = value.parse::<f32>().ok();
                let number = number.filter(|number| number.is_finite() && *number > 0.0);
                self.resolutions[place] = number;
                number.is_some() || value == "null"
            }
            _ => false,
        }
    }

    /// How the fields of the message are stored.
    fn stored(&self, version: u8, stage: Stage, cloud: &Cloud<'_>) -> Result<Vec<Stored>, String> {
        let (named, fields) = (self.resolutions.len(), cloud.fields.len());
        if named != fields || !(1..=FIELDS_MAX).contains(&named) {
            return Err(format!("its head names {named} fields, the message {fields}"));
        }
        let mut stored = Vec::with_capacity(fields);
        for (field, resolution) in cloud.fields.iter().zip(&self.resolutions) {
            let clause = |what: &str| format!("its field {:?} {what}", field.name);
            let kind = Kind::of(field.datatype).ok_or_else(|| clause("has an unknown type"))?;
            let offset = field.offset as usize;
            if field.count > 1 {
                return Err(clause("has more than one value, and Cloudini keeps one"));
            }
            if offset.saturating_add(kind.bytes()) > cloud.point_step as usize {
                return Err(clause("ends after the point"));
            }
            let way = way(version, stage, kind, *resolution).ok_or_else(|| {
                clause("is stored without loss, which programs do in two ways in version 03 of Cloudini")
            })?;
            stored.push(Stored { offset, way });
        }
        Ok(stored)
    }
}

/// The fields, the packing and the chunks.
fn read_head<'a>(cloud: &Cloud<'_>, packed: &'a [u8]) -> Result<(Vec<Stored>, Packing, &'a [u8]), String> {
    let (version, text, chunks) = parts(packed)?;
    let mut head = Head::default();
    for line in text.lines() {
        let bare = line.trim_start_matches(['-', ' ']);
        let (key, value) = bare.split_once(':').unwrap_or((bare, ""));
        if !head.take(key, value.trim(), cloud) {
            return Err(format!(
                "the line {line:?} of its head is not known or not as the message has it"
            ));
        }
    }
    let kinds = head.stage.zip(head.packing);
    let (stage, packing) = kinds.ok_or("its head names no encoding or no compression")?;
    Ok((head.stored(version, stage, cloud)?, packing, chunks))
}

/// The points again, with zeros between the fields. `cloud` has everything but the points.
///
/// # Errors
/// One clause: data that is cut off, damaged, or of a version that is not read.
pub fn decode(cloud: &Cloud<'_>, packed: &[u8]) -> Result<Vec<u8>, String> {
    let points = cloud.points()?;
    // Cloudini writes no head for a cloud without points.
    if points == 0 && packed.is_empty() {
        return Ok(Vec::new());
    }
    if cloud.is_bigendian != 0 {
        return Err("its points are big endian, which Cloudini does not know".to_owned());
    }
    let (fields, packing, mut rest) = read_head(cloud, packed)?;
    let step = cloud.point_step as usize;
    // Chunk by chunk: a head that states more points than there are chunks for takes no memory for them.
    let mut data = Vec::new();
    let mut left = points;
    while left > 0 {
        let (length, after) = rest.split_first_chunk::<4>().ok_or(TORN)?;
        let chunk = after.get(..u32::from_le_bytes(*length) as usize).ok_or(TORN)?;
        rest = &after[chunk.len()..];
        let count = left.min(CHUNK_POINTS);
        left -= count;
        let length_max = (count * VALUE_BYTES_MAX + BEFORE_BYTES_MAX) * fields.len();
        let numbers = packing.unpack(chunk, length_max)?;
        let begin = data.len();
        data.resize(begin + count * step, 0);
        decode_chunk(Numbers(&numbers), &mut data[begin..], step, &fields)?;
    }
    match rest {
        [] => Ok(data),
        _ => Err("it has data after its last point".to_owned()),
    }
}

/// What a field had last.
#[derive(Clone, Debug, Default)]
struct Last {
    value: i64,
    is_begun: bool,
    /// The bits that differed: how many, and how many are after them.
    window: Option<(u32, u32)>,
}

fn decode_chunk(
    mut numbers: Numbers<'_>,
    points: &mut [u8],
    step: usize,
    fields: &[Stored],
) -> Result<(), &'static str> {
    let put = |point: &mut [u8], offset: usize, length: usize, value: i64| {
        point[offset..offset + length].copy_from_slice(&value.to_le_bytes()[..length]);
    };
    let mut lasts = vec![Last::default(); fields.len()];
    for point in points.chunks_exact_mut(step) {
        for (field, last) in fields.iter().zip(&mut lasts) {
            let (length, value) = match field.way {
                Way::Apart(_) => continue,
                Way::Copied(length) => (length, numbers.raw(length)?),
                Way::Multiple(length, resolution) => (length, numbers.multiple(last, length, resolution)?),
                Way::Difference(length, _) => {
                    last.value = last.value.wrapping_add(numbers.number()?.ok_or(TORN)?);
                    (length, last.value)
                }
                Way::Xor(length) => {
                    last.value ^= numbers.raw(length)?;
                    (length, last.value)
                }
                Way::Window => (8, numbers.window(last)?),
            };
            put(point, field.offset, length, value);
        }
    }
    for field in fields {
        if let Way::Apart(length) = field.way {
            let count = points.len() / step;
            let mut points = points.chunks_exact_mut(step);
            numbers.apart(length, count, |value| {
                if let Some(point) = points.next() {
                    put(point, field.offset, length, value);
                }
            })?;
        }
    }
    if numbers.0.is_empty() { Ok(()) } else { Err(TORN) }
}

/// What is left of a chunk.
struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn byte(&mut self) -> Result<u8, &'static str> {
        let (byte, rest) = self.0.split_first().ok_or(TORN)?;
        self.0 = rest;
        Ok(*byte)
    }

    /// The next bytes, the lowest first.
    fn raw(&mut self, length: usize) -> Result<i64, &'static str> {
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(TORN)?;
        self.0 = rest;
        Ok(bytes
            .iter()
            .rev()
            .fold(0, |all, byte| (all << 8) | i64::from(*byte)))
    }

    /// A number in groups of 7 bits.
    fn groups(&mut self) -> Result<u64, &'static str> {
        let mut value = 0_u64;
        for place in 0..NUMBER_BYTES_MAX {
            let byte = u64::from(self.byte()?);
            // The last one has a single bit.
            if place + 1 == NUMBER_BYTES_MAX && byte > 1 {
                break;
            }
            value |= (byte & 0x7f) << (7 * place);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(TORN)
    }

    /// The next number; `None` for NaN.
    fn number(&mut self) -> Result<Option<i64>, &'static str> {
        let zigzag = self.groups()?.checked_sub(1);
        Ok(zigzag.map(|zigzag| (zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed()))
    }

    /// The bits of a multiple of a resolution.
    fn multiple(&mut self, last: &mut Last, length: usize, resolution: f32) -> Result<i64, &'static str> {
        let difference = self.number()?;
        last.value = difference.map_or(0, |difference| last.value.wrapping_add(difference));
        if length == 8 {
            let multiple = last.value as f64 * f64::from(resolution);
            let value = difference.map_or(f64::NAN, |_| multiple);
            return Ok(value.to_bits().cast_signed());
        }
        if last.value.unsigned_abs() >= MULTIPLE_END {
            return Err("a coordinate has more multiples of its resolution than 32 bits hold");
        }
        let value = difference.map_or(f32::NAN, |_| last.value as f32 * resolution);
        Ok(value.to_bits().into())
    }

    /// A double of which the bits are stored that differ from the one before; each begins with a byte.
    fn window(&mut self, last: &mut Last) -> Result<i64, &'static str> {
        if !last.is_begun {
            last.is_begun = true;
            last.value = self.raw(8)?;
            return Ok(last.value);
        }
        let mut bits = Bits::of(self);
        if bits.take(1)? == 0 {
            return Ok(last.value);
        }
        if bits.take(1)? == 1 {
            let before = bits.take(5)? as u32;
            let count = bits.take(6)? as u32 + 1;
            last.window = Some((count, 64_u32.checked_sub(before + count).ok_or(TORN)?));
        }
        let (count, after) = last.window.ok_or(TORN)?;
        last.value ^= (bits.take(count)? << after).cast_signed();
        Ok(last.value)
    }

    /// The whole numbers of a field of version 5: differences, places in a list of values, or values or differences with how often they come.
    fn apart(&mut self, length: usize, count: usize, mut put: impl FnMut(i64)) -> Result<(), &'static str> {
        let mode = self.byte()?;
        if mode == 1 {
            let values = self.raw(2)?;
            let values = (0..values).map(|_| self.raw(length));
            let values = values.collect::<Result<Vec<i64>, _>>()?;
            let width = usize::BITS - values.len().saturating_sub(1).leading_zeros();
            let mut places = Bits::of(self);
            for _ in 0..count {
                let place = usize::try_from(places.take(width)?).map_err(|_| TORN)?;
                put(*values.get(place).ok_or(TORN)?);
            }
            return Ok(());
        }
        let runs = match mode {
            0 => count as i64,
            2 | 3 => self.raw(4)?,
            _ => return Err(TORN),
        };
        let (mut left, mut last) = (count as u64, 0_i64);
        for _ in 0..runs {
            let next = match mode {
                2 => self.raw(length)?,
                _ => self.number()?.ok_or(TORN)?,
            };
            let run = if mode == 0 { 1 } else { self.groups()? };
            left = left.checked_sub(run).ok_or(TORN)?;
            for _ in 0..run {
                last = if mode == 2 { next } else { last.wrapping_add(next) };
                put(last);
            }
        }
        if left == 0 { Ok(()) } else { Err(TORN) }
    }
}

/// Bits, the lowest of a byte first.
struct Bits<'n, 'a> {
    numbers: &'n mut Numbers<'a>,
    held: u128,
    count: u32,
}

impl<'n, 'a> Bits<'n, 'a> {
    const fn of(numbers: &'n mut Numbers<'a>) -> Self {
        Self {
            numbers,
            held: 0,
            count: 0,
        }
    }

    /// The next bits, 64 at most.
    fn take(&mut self, count: u32) -> Result<u64, &'static str> {
        while self.count < count {
            self.held |= u128::from(self.numbers.byte()?) << self.count;
            self.count += 8;
        }
        let bits = self.held & ((1_u128 << count) - 1);
        self.held >>= count;
        self.count -= count;
        Ok(bits as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{super::Field, put_number},
        *,
    };

    /// Points with one field, and what was made of them.
    fn decoded(version: &str, stage: &str, datatype: u8, count: u32, chunk: &str) -> Result<Vec<u8>, String> {
        let step = Kind::of(datatype).unwrap().bytes();
        let cloud = Cloud {
            height: 1,
            width: count,
            point_step: step as u32,
            fields: vec![Field {
                name: "a",
                offset: 0,
                datatype,
                count: 1,
            }],
            ..Cloud::default()
        };
        let head = format!(
            "{MAGIC}{version}\nversion: 9\nwidth: {count}\nheight: 1\npoint_step: {step}\nencoding_opt: {stage}\ncompression_opt: NONE\nfields:\n  \
             - name: a\n    offset: 0\n    type: {}\n    resolution: null\n\0",
            type_name(datatype).unwrap()
        );
        let bytes = (0..chunk.len()).step_by(2);
        let bytes = bytes.map(|place| u8::from_str_radix(&chunk[place..place + 2], 16).unwrap());
        let packed: Vec<u8> = head.into_bytes().into_iter().chain(bytes).collect();
        decode(&cloud, &packed)
    }

    /// What pureini 0.10.0 makes of these values.
    #[test]
    fn versions_4_and_5_are_read() {
        let found = decoded(
            "04",
            "LOSSY",
            8,
            5,
            "1f000000000000000000f83f873500f15385f8010d000000000000833580f8a99a0301",
        );
        let values = [
            1.5,
            1_700_000_000.125,
            1_700_000_000.25,
            1_700_000_000.25,
            -5.0_f64,
        ];
        assert_eq!(found.unwrap(), values.map(f64::to_le_bytes).concat());
        let found = decoded("04", "LOSSLESS", 7, 4, "100000000000c03f0000e07f0000e03f0000e0bf");
        let values = [1.5, 2.5, f32::NAN, -2.5];
        assert_eq!(found.unwrap(), values.map(f32::to_le_bytes).concat());
        let chunk = "14000000020300000000286bee280100000028005ed0b228";
        let values = [4_000_000_000, 1, 3_000_000_000_u32].map(|value| value.to_le_bytes().repeat(40));
        assert_eq!(decoded("05", "LOSSY", 6, 120, chunk).unwrap(), values.concat());
        let places = [2, 2, 1, 2, 2, 2, 2, 2, 0, 1, 1, 1, 1, 0, 0, 2, 2, 1, 1, 0];
        let small = [5_u16, 1234, 60_000];
        let lines = [
            (
                "0e00000001030060ead20405001000562994",
                places.map(|place| small[place]).to_vec(),
            ),
            (
                "09000000030200000001010713",
                (0..20).map(|number| 3 * number).collect(),
            ),
        ];
        for (chunk, values) in lines {
            let found = decoded("05", "LOSSY", 4, values.len() as u32, chunk);
            let expected: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            assert_eq!(found.unwrap(), expected, "{chunk}");
        }
    }

    #[test]
    fn what_is_not_known_is_refused_by_its_name() {
        let chunk = "0400000000000000";
        for (version, stage, datatype, clause) in [
            ("02", "LOSSY", 7, "its head names version \"02\" of Cloudini"),
            ("06", "LOSSY", 7, "its head names version \"06\" of Cloudini"),
            ("03", "MAYBE", 7, "the line \"encoding_opt: MAYBE\""),
            ("03", "LOSSLESS", 7, "in two ways in version 03"),
            ("03", "LOSSY", 1, "damaged"),
            ("05", "LOSSY", 4, "damaged"),
        ] {
            let error = decoded(version, stage, datatype, 1, chunk).unwrap_err();
            assert!(error.contains(clause), "{error}");
        }
        assert!(decoded("03", "LOSSY", 7, 1, chunk).is_ok());
        let after = decoded("03", "LOSSY", 7, 1, &format!("{chunk}00")).unwrap_err();
        assert_eq!(after, "it has data after its last point");
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
            assert_eq!(Numbers(&out).number(), Ok(Some(value)));
        }
        assert_eq!(Numbers(&[0]).number(), Ok(None));
        assert_eq!(Numbers(&[0xff; 20]).number(), Err(TORN));
        assert_eq!(Numbers(&[0x80]).number(), Err(TORN));
    }
}
