//! The bytes of LevelDB databases, and the names that rosbag2's LevelDB plugin uses.

pub mod log;
pub mod manifest;
pub mod table;

use std::path::{Path, PathBuf};

/// The id of this backend.
pub const STORAGE_ID: &str = "leveldb";

/// Suffix that the plugin appends to a topic's name for the database that describes the topic.
pub const METADATA_SUFFIX: &str = "_ldb_metadata";
/// Suffix that the plugin appends to a topic's name for the database of its messages.
pub const MESSAGE_SUFFIX: &str = "_ldb_message";

/// The comparator of message databases: it compares keys as 64-bit numbers. Its name is stored in the file.
pub(crate) const TIMESTAMP_COMPARATOR: &str = "Timestamp Comparator";
/// LevelDB's own comparator, used by databases that describe topics.
pub(crate) const BYTEWISE_COMPARATOR: &str = "leveldb.BytewiseComparator";

/// Keys of the database that describes a topic.
pub(crate) const KEY_NAME: &[u8] = b"N";
/// See [`KEY_NAME`].
pub(crate) const KEY_TYPE: &[u8] = b"T";
/// See [`KEY_NAME`].
pub(crate) const KEY_SERIALIZATION_FORMAT: &[u8] = b"SF";
/// See [`KEY_NAME`].
pub(crate) const KEY_QOS: &[u8] = b"QF";
/// The byte order of the stamps in the message database: `L` or `B`.
pub(crate) const KEY_BYTE_ORDER: &[u8] = b"E";

/// Our own file next to the databases, for data that LevelDB cannot store: one JSON object per line.
pub(crate) const RECORDS_FILE: &str = "holdall_records.jsonl";

/// Largest value that is read, in bytes.
pub(crate) const VALUE_BYTES_MAX: u64 = 1 << 30;

/// Invalid bytes: one clause each for the expected and the found ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Offset in the file in bytes.
    pub offset: u64,
    /// The bytes that the format requires.
    pub expected: String,
    /// The bytes found.
    pub found: String,
}

impl Malformed {
    /// Invalid bytes at an offset of the file.
    pub fn at(offset: u64, expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self {
            offset,
            expected: expected.into(),
            found: found.into(),
        }
    }
}

/// The CRC-32C of some pieces as LevelDB stores it: rotated and offset, so that the CRC of bytes that contain
/// a CRC stays useful.
pub(crate) fn masked_crc(pieces: &[&[u8]]) -> u32 {
    let crc = pieces
        .iter()
        .fold(0, |crc, piece| crc32c::crc32c_append(crc, piece));
    mask_crc(crc)
}

/// A checksum as LevelDB stores it.
pub(crate) fn mask_crc(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Takes a little-endian base-128 number from the front; `None` when it is invalid.
pub(crate) fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for place in 0..10 {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = u64::from(byte & 0x7f);
        if place == 9 && bits > 1 {
            return None;
        }
        value |= bits << (7 * place);
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// Takes bytes that are preceded by their length from the front; `None` when there are fewer.
pub(crate) fn take_bytes<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(take_varint(bytes)?).ok()?;
    let (taken, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(taken)
}

/// Takes a fixed number of bytes from the front.
pub(crate) fn take_array<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*taken)
}

/// Appends a little-endian base-128 number.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value as u8) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends bytes, preceded by their length.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Kind of an entry with a value; the other kind is a deletion.
const VALUE: u8 = 1;

/// An entry of a batch: key and value, borrowed from the batch.
pub struct BatchEntry<'a> {
    /// Its position in the order of all writes to the database.
    pub sequence: u64,
    /// The key.
    pub key: &'a [u8],
    /// The value; `None` for a deletion.
    pub value: Option<&'a [u8]>,
}

/// The entries of a batch in a log. A damaged rest is returned as an error in its place.
pub fn batch_entries(record: &[u8]) -> impl Iterator<Item = Result<BatchEntry<'_>, &'static str>> {
    let mut rest = record;
    let head = take_array::<8>(&mut rest).zip(take_array::<4>(&mut rest));
    let mut sequence = head.map(|(sequence, _)| u64::from_le_bytes(sequence));
    let mut failed = sequence.is_none();
    std::iter::from_fn(move || {
        if std::mem::take(&mut failed) {
            rest = &[];
            sequence = None;
            return Some(Err("a batch of writes"));
        }
        let number = sequence?;
        let kind = take_array::<1>(&mut rest)?[0];
        let entry = match kind {
            VALUE => take_bytes(&mut rest)
                .zip(take_bytes(&mut rest))
                .map(|(key, value)| (key, Some(value))),
            0 => take_bytes(&mut rest).map(|key| (key, None)),
            _ => None,
        };
        sequence = Some(number.wrapping_add(1));
        match entry {
            Some((key, value)) => Some(Ok(BatchEntry {
                sequence: number,
                key,
                value,
            })),
            None => {
                sequence = None;
                Some(Err("a key and a value"))
            }
        }
    })
}

/// Encodes a batch of values for a log.
pub fn batch<'a>(sequence: u64, entries: impl ExactSizeIterator<Item = (&'a [u8], &'a [u8])>) -> Vec<u8> {
    let mut out = sequence.to_le_bytes().to_vec();
    // Batches have few entries.
    out.extend((entries.len() as u32).to_le_bytes());
    for (key, value) in entries {
        out.push(VALUE);
        put_bytes(&mut out, key);
        put_bytes(&mut out, value);
    }
    out
}

/// Appends a batch of one entry but for its value of `value_bytes`, which follows.
pub(crate) fn begin_lone_batch(out: &mut Vec<u8>, sequence: u64, key: &[u8], value_bytes: usize) {
    out.extend(sequence.to_le_bytes());
    out.extend(1_u32.to_le_bytes());
    out.push(VALUE);
    put_bytes(out, key);
    put_varint(out, value_bytes as u64);
}

/// The tail of a key in a table: sequence and kind.
pub(crate) fn key_tag(sequence: u64) -> [u8; 8] {
    ((sequence << 8) | u64::from(VALUE)).to_le_bytes()
}

/// Splits a table's key into the user's key, the sequence, and whether it has a value.
pub(crate) fn split_key(key: &[u8]) -> Option<(&[u8], u64, bool)> {
    let (user, tag) = key.split_last_chunk::<8>()?;
    let tag = u64::from_le_bytes(*tag);
    Some((user, tag >> 8, tag as u8 == VALUE))
}

/// The byte order of stamps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ByteOrder {
    /// `L`.
    #[default]
    Little,
    /// `B`.
    Big,
}

impl ByteOrder {
    /// The stamp in a key; `None` for a key of another length.
    pub fn stamp(self, key: &[u8]) -> Option<i64> {
        let bytes: [u8; 8] = key.try_into().ok()?;
        Some(match self {
            Self::Little => i64::from_le_bytes(bytes),
            Self::Big => i64::from_be_bytes(bytes),
        })
    }
}

/// A file of a database by its number.
pub fn numbered(directory: &Path, number: u64, extension: &str) -> PathBuf {
    directory.join(format!("{number:06}.{extension}"))
}

/// The number and extension of a database's file; `None` for a file of another kind.
pub fn number_of(path: &Path) -> Option<(u64, &str)> {
    let number = path.file_stem()?.to_str()?.parse().ok()?;
    Some((number, path.extension()?.to_str()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_bytes_are_read_back() {
        let mut out = Vec::new();
        let numbers = [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX];
        for number in numbers {
            put_varint(&mut out, number);
        }
        put_bytes(&mut out, b"abc");
        let mut rest = &out[..];
        assert_eq!(numbers.map(|_| take_varint(&mut rest).unwrap()), numbers);
        assert_eq!(take_bytes(&mut rest), Some(&b"abc"[..]));
        assert_eq!(take_varint(&mut rest), None);
        assert_eq!(take_bytes(&mut &[5, 1][..]), None, "fewer than stated");
        assert_eq!(take_varint(&mut &[0xff; 11][..]), None, "too long");
    }

    #[test]
    fn checksums_are_those_of_leveldb() {
        // CRC-32C of 32 zeros is 0x8a9136aa (RFC 3720), then masked.
        let crc = 0x8a91_36aau32;
        let masked = crc.rotate_right(15).wrapping_add(0xa282_ead8);
        assert_eq!(masked_crc(&[&[0; 20], &[0; 12]]), masked);
    }

    #[test]
    fn batches_are_read_back_and_damaged_ones_reported() {
        let record = batch(7, [(&b"k"[..], &b"v"[..]), (b"l", b"")].into_iter());
        let found: Vec<_> = batch_entries(&record)
            .map(|entry| entry.map(|entry| (entry.sequence, entry.key, entry.value)))
            .collect();
        assert_eq!(
            found,
            [Ok((7, &b"k"[..], Some(&b"v"[..]))), Ok((8, b"l", Some(&b""[..])))]
        );
        for cut in 0..record.len() {
            let whole = batch_entries(&record[..cut]).filter(Result::is_ok).count();
            assert!(whole < 2, "{cut}");
            let count = batch_entries(&record[..cut]).count();
            assert!(count <= 2, "{cut}");
        }
    }
}
