//! Points as columns without loss: of each value the difference to the one before, its bytes apart, all of it by zstd. Bytes between fields are
//! left out (docs/formats/recoded.md).

use super::{Cloud, Column, Kind};

/// The format text of messages with it.
pub const FORMAT: &str = "holdall columns 1";

/// A level that is fast, and after which little is gained.
const LEVEL: i32 = 3;

/// The compressed points of a cloud.
///
/// # Errors
/// As [`Cloud::whole`] and [`Cloud::columns`]; fields that overlap until they are too large.
pub fn encode(cloud: &Cloud<'_>) -> Result<Vec<u8>, String> {
    let points = cloud.whole()?;
    let columns = cloud.columns()?;
    let mut planes = vec![0; bytes_of(&columns, points)?];
    let mut rest = planes.as_mut_slice();
    for column in &columns {
        let bytes = column.kind.bytes();
        let (plane, after) = rest.split_at_mut(points * bytes);
        rest = after;
        let mut last = 0;
        for (number, point) in cloud.data.chunks_exact(cloud.point_step as usize).enumerate() {
            let value = value(point, *column, cloud.is_bigendian != 0);
            let difference = difference(value, last, column.kind);
            last = value;
            for byte in 0..bytes {
                plane[byte * points + number] = (difference >> (8 * byte)) as u8;
            }
        }
    }
    zstd::bulk::compress(&planes, LEVEL).map_err(|error| error.to_string())
}

/// The points again, with zeros between the fields. `cloud` has everything but the points.
///
/// # Errors
/// One clause: data that is cut off or damaged.
pub fn decode(cloud: &Cloud<'_>, packed: &[u8]) -> Result<Vec<u8>, String> {
    let points = cloud.points()?;
    let columns = cloud.columns()?;
    let length = bytes_of(&columns, points)?;
    let planes = zstd::bulk::decompress(packed, length).map_err(|error| error.to_string())?;
    if planes.len() != length {
        return Err(format!("{} bytes of columns, expected {length}", planes.len()));
    }
    let step = cloud.point_step as usize;
    let mut data = vec![0; points * step];
    let mut rest = planes.as_slice();
    for column in &columns {
        let bytes = column.kind.bytes();
        let (plane, after) = rest.split_at(points * bytes);
        rest = after;
        let mut last = 0;
        for (number, point) in data.chunks_exact_mut(step).enumerate() {
            let difference = (0..bytes).fold(0, |all, byte| {
                all | u64::from(plane[byte * points + number]) << (8 * byte)
            });
            last = sum(difference, last, column.kind);
            put(point, *column, last, cloud.is_bigendian != 0);
        }
    }
    Ok(data)
}

/// Bytes of all columns.
fn bytes_of(columns: &[Column], points: usize) -> Result<usize, String> {
    let bytes: usize = columns.iter().map(|column| column.kind.bytes()).sum();
    let length = points.checked_mul(bytes);
    let length = length.filter(|length| *length <= 2 * super::BYTES_MAX);
    length.ok_or_else(|| "a cloud that is too large".to_owned())
}

fn value(point: &[u8], column: Column, is_big_endian: bool) -> u64 {
    let bytes = &point[column.offset..column.offset + column.kind.bytes()];
    let add = |all: u64, byte: &u8| (all << 8) | u64::from(*byte);
    if is_big_endian {
        bytes.iter().fold(0, add)
    } else {
        bytes.iter().rev().fold(0, add)
    }
}

fn put(point: &mut [u8], column: Column, value: u64, is_big_endian: bool) {
    let length = column.kind.bytes();
    let bytes = &mut point[column.offset..column.offset + length];
    for (place, byte) in bytes.iter_mut().enumerate() {
        let place = if is_big_endian { length - 1 - place } else { place };
        *byte = (value >> (8 * place)) as u8;
    }
}

fn difference(value: u64, last: u64, kind: Kind) -> u64 {
    match kind {
        Kind::Whole(..) => value.wrapping_sub(last),
        Kind::Float(_) => value ^ last,
    }
}

fn sum(difference: u64, last: u64, kind: Kind) -> u64 {
    let whole = match kind {
        Kind::Whole(..) => difference.wrapping_add(last),
        Kind::Float(_) => difference ^ last,
    };
    match kind.bytes() {
        8 => whole,
        bytes => whole & ((1 << (8 * bytes)) - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests, *};

    #[test]
    fn fields_come_back_bit_for_bit() {
        let data = tests::points(5000);
        for is_bigendian in [0, 1] {
            let cloud = Cloud {
                is_bigendian,
                ..tests::cloud(&data)
            };
            let packed = encode(&cloud).unwrap();
            assert_eq!(decode(&cloud, &packed).unwrap(), cloud.bare().unwrap());
            assert!(
                packed.len() * 2 < data.len(),
                "{} of {}",
                packed.len(),
                data.len()
            );
        }
        let empty = tests::cloud(&[]);
        assert_eq!(decode(&empty, &encode(&empty).unwrap()).unwrap(), [0; 0]);
    }

    #[test]
    fn damaged_columns_are_refused() {
        let data = tests::points(500);
        let cloud = tests::cloud(&data);
        let packed = encode(&cloud).unwrap();
        for length in 0..packed.len() {
            assert!(decode(&cloud, &packed[..length]).is_err());
        }
        let larger = Cloud {
            width: 501,
            ..cloud.clone()
        };
        assert!(decode(&larger, &packed).is_err());
        let smaller = Cloud { width: 499, ..cloud };
        assert!(decode(&smaller, &packed).is_err());
    }
}
