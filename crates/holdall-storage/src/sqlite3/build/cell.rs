//! Rows and keys as SQLite has them in its pages (https://sqlite.org/fileformat2.html): integers, records, and the part of a row that stays in its page.

use rusqlite::types::Value;

/// First bytes of pages.
pub(super) const TABLE_INTERIOR: u8 = 0x05;
pub(super) const TABLE_LEAF: u8 = 0x0d;
pub(super) const INDEX_INTERIOR: u8 = 0x02;
pub(super) const INDEX_LEAF: u8 = 0x0a;

/// Bytes of the header of a leaf, and of an interior page, which ends with the page of its last child.
pub(super) const LEAF_HEAD_BYTES: usize = 8;
pub(super) const INTERIOR_HEAD_BYTES: usize = 12;
/// Bytes of a pointer to a cell.
pub(super) const POINTER_BYTES: usize = 2;
/// Bytes of a page's number.
pub(super) const NUMBER_BYTES: usize = 4;

/// The two bytes at `at`, or zero after the end.
pub(super) fn short(bytes: &[u8], at: usize) -> usize {
    let short = bytes.get(at..).and_then(|bytes| bytes.first_chunk().copied());
    usize::from(short.map_or(0, u16::from_be_bytes))
}

/// The page number at `at`, or zero after the end.
pub(super) fn number(bytes: &[u8], at: usize) -> u32 {
    let number = bytes.get(at..).and_then(|bytes| bytes.first_chunk().copied());
    number.map_or(0, u32::from_be_bytes)
}

/// Stores two bytes; 65536 becomes 0, as SQLite has it.
pub(super) fn put_short(bytes: &mut [u8], at: usize, value: usize) {
    // The low bits: no page is longer than 65536 bytes.
    bytes[at..at + 2].copy_from_slice(&(value as u16).to_be_bytes());
}

/// Stores a page number.
pub(super) fn put_number(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + NUMBER_BYTES].copy_from_slice(&value.to_be_bytes());
}

/// Appends an integer of variable length: seven bits a byte, the highest first, and eight in a ninth.
pub(super) fn put_varint(to: &mut Vec<u8>, value: u64) {
    if value < 0x80 {
        to.push(value as u8);
        return;
    }
    if value >> 56 != 0 {
        to.extend((1..=8).map(|place| (value >> (64 - 7 * place)) as u8 | 0x80));
        to.push(value as u8);
        return;
    }
    let bytes = varint_bytes(value);
    for place in (1..bytes).rev() {
        to.push((value >> (7 * place)) as u8 | 0x80);
    }
    to.push(value as u8 & 0x7f);
}

/// How many bytes [`put_varint`] appends.
pub(super) fn varint_bytes(value: u64) -> usize {
    match value {
        0 => 1,
        value => (64 - value.leading_zeros() as usize).div_ceil(7).min(9),
    }
}

/// The integer at the start of `bytes`, and its length.
pub(in crate::sqlite3) fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0u64;
    for (place, byte) in bytes.iter().take(9).enumerate() {
        if place == 8 {
            return Some((value << 8 | u64::from(*byte), 9));
        }
        value = value << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return Some((value, place + 1));
        }
    }
    None
}

/// The kind that a record's header has for an integer, and how many of its low bytes follow.
fn integer(value: i64) -> (u8, usize) {
    // Bits without the sign.
    let bits = 64 - (value ^ (value >> 63)).leading_zeros();
    match bits {
        _ if value == 0 => (8, 0),
        _ if value == 1 => (9, 0),
        0..=7 => (1, 1),
        8..=15 => (2, 2),
        16..=23 => (3, 3),
        24..=31 => (4, 4),
        32..=47 => (5, 6),
        _ => (6, 8),
    }
}

fn put_integer(to: &mut Vec<u8>, value: i64) {
    let (_, bytes) = integer(value);
    to.extend_from_slice(&value.to_be_bytes()[8 - bytes..]);
}

/// The integer of a record's field, and its length.
fn integer_of(kind: u64, bytes: &[u8]) -> Option<(i64, usize)> {
    let count = match kind {
        8 => return Some((0, 0)),
        9 => return Some((1, 0)),
        1..=4 => usize::try_from(kind).ok()?,
        5 => 6,
        6 => 8,
        _ => return None,
    };
    let bytes = bytes.get(..count)?;
    let sign = if bytes[0] & 0x80 == 0 { 0 } else { -1 };
    let value = bytes
        .iter()
        .fold(sign, |value, byte| value << 8 | i64::from(*byte));
    Some((value, count))
}

/// Appends the record of a row of `messages` up to its payload; its first column is the row's id, which is not in the record.
pub(super) fn put_message_head(to: &mut Vec<u8>, topic_id: i64, timestamp: i64, payload_bytes: usize) {
    let at = to.len();
    to.extend_from_slice(&[0, 0, integer(topic_id).0, integer(timestamp).0]);
    put_varint(to, 12 + 2 * payload_bytes as u64);
    to[at] = (to.len() - at) as u8;
    put_integer(to, topic_id);
    put_integer(to, timestamp);
}

/// Appends the record of a row whose first column is its id.
pub(super) fn put_row(to: &mut Vec<u8>, values: &[Value]) {
    let mut kinds = vec![0];
    for value in values {
        let kind = match value {
            Value::Null => 0,
            Value::Integer(value) => u64::from(integer(*value).0),
            Value::Real(_) => 7,
            Value::Text(text) => 13 + 2 * text.len() as u64,
            Value::Blob(bytes) => 12 + 2 * bytes.len() as u64,
        };
        put_varint(&mut kinds, kind);
    }
    // The header's length is a part of it.
    let short = kinds.len() + 1;
    put_varint(to, (short + usize::from(short > 127)) as u64);
    to.extend_from_slice(&kinds);
    for value in values {
        match value {
            Value::Null => {}
            Value::Integer(value) => put_integer(to, *value),
            Value::Real(value) => to.extend_from_slice(&value.to_be_bytes()),
            Value::Text(text) => to.extend_from_slice(text.as_bytes()),
            Value::Blob(bytes) => to.extend_from_slice(bytes),
        }
    }
}

/// A key of the index by time: time, then row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) timestamp: i64,
    pub(super) row: i64,
}

impl Key {
    /// Length of its cell in a leaf.
    pub(super) fn cell_bytes(self) -> usize {
        4 + integer(self.timestamp).1 + integer(self.row).1
    }

    /// Appends its cell: the record's length, and the record.
    pub(super) fn put(self, to: &mut Vec<u8>) {
        let ((time, time_bytes), (row, row_bytes)) = (integer(self.timestamp), integer(self.row));
        to.extend_from_slice(&[(3 + time_bytes + row_bytes) as u8, 3, time, row]);
        put_integer(to, self.timestamp);
        put_integer(to, self.row);
    }

    /// The key of a cell without its child.
    pub(super) fn of(cell: &[u8]) -> Option<Self> {
        let (_, skip) = varint(cell)?;
        let record = cell.get(skip..)?;
        let [3, time, row, fields @ ..] = record else {
            return None;
        };
        let (timestamp, bytes) = integer_of(u64::from(*time), fields)?;
        let (row, _) = integer_of(u64::from(*row), &fields[bytes..])?;
        Some(Self { timestamp, row })
    }
}

/// How many bytes of a record in a leaf of a table stay there; the rest goes to pages of its own.
pub(super) fn local_bytes(record_bytes: usize, page_bytes: usize) -> usize {
    let local_max = page_bytes - 35;
    if record_bytes <= local_max {
        return record_bytes;
    }
    let local_min = (page_bytes - 12) * 32 / 255 - 23;
    let local = local_min + (record_bytes - local_min) % (page_bytes - NUMBER_BYTES);
    if local <= local_max { local } else { local_min }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn integers_and_keys_are_read_as_they_were_stored(
            value in any::<u64>(), shift in 0_u32..64, timestamp in any::<i64>(), row in any::<i64>()
        ) {
            let value = value >> shift;
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            prop_assert_eq!(bytes.len(), varint_bytes(value));
            prop_assert_eq!(varint(&bytes), Some((value, bytes.len())));
            let key = Key { timestamp: timestamp >> shift, row: row >> shift };
            bytes.clear();
            key.put(&mut bytes);
            prop_assert_eq!(bytes.len(), key.cell_bytes());
            prop_assert_eq!(Key::of(&bytes), Some(key));
        }
    }
}
