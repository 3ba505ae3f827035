//! The records of ROS 1 bags: a header of named fields and data, each preceded by its length.

/// The id of this backend.
pub const STORAGE_ID: &str = "rosbag1";

/// First bytes of a file of this format.
pub const MAGIC: &[u8] = b"#ROSBAG V2.0\n";

/// First bytes of ROS 1 bags of every version.
pub(crate) const MAGIC_ANY_VERSION: &[u8] = b"#ROSBAG V";

/// Kinds of records.
pub mod op {
    /// A message.
    pub const MESSAGE: u8 = 0x02;
    /// The first record of a file.
    pub(crate) const BAG_HEADER: u8 = 0x03;
    /// Places of a connection's messages in the preceding chunk.
    pub(crate) const INDEX_DATA: u8 = 0x04;
    /// Records, mostly compressed.
    pub const CHUNK: u8 = 0x05;
    /// Content of a chunk; at the end of the file.
    pub(crate) const CHUNK_INFO: u8 = 0x06;
    /// A publisher on a topic.
    pub(crate) const CONNECTION: u8 = 0x07;
}

/// Bytes of a length field.
pub(crate) const LENGTH_BYTES: u64 = 4;

/// Longest header of a record; the longest field is a topic name.
pub(crate) const HEADER_BYTES_MAX: u64 = 1 << 20;

/// Named fields in sequence: `u32 length`, `name=value`.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Iterator for Fields<'a> {
    /// Name and value; `None` for bytes that are not a field, after which the iteration ends.
    type Item = Option<(&'a [u8], &'a [u8])>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = take_field(&mut self.0);
        if field.is_none() {
            self.0 = &[];
        }
        Some(field)
    }
}

fn take_field<'a>(rest: &mut &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let (length, after) = rest.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    let (field, after) = after.split_at_checked(length)?;
    let equals = field.iter().position(|byte| *byte == b'=')?;
    *rest = after;
    Some((&field[..equals], &field[equals + 1..]))
}

/// The header of a record, with the fields that it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head<'a> {
    /// Its opcode, one of [`op`].
    pub op: u8,
    /// Number of the connection.
    pub connection: Option<u32>,
    /// Log time of a message in nanoseconds.
    pub time: Option<i64>,
    /// Topic of a connection.
    pub topic: Option<&'a [u8]>,
    /// Codec of a chunk.
    pub compression: Option<&'a [u8]>,
    /// Length of a chunk's records before compression.
    pub size: Option<u32>,
    /// Offset of a chunk in the file.
    pub chunk_position: Option<u64>,
    /// Smallest log time of a chunk.
    pub start_time: Option<i64>,
    /// Largest log time of a chunk.
    pub end_time: Option<i64>,
    /// Number of entries in the data of an index or chunk info record.
    pub count: Option<u32>,
    /// Offset of the connections and chunk infos; 0 in a file that was not closed.
    pub index_position: Option<u64>,
    /// Number of connections of the file.
    pub connection_count: Option<u32>,
    /// Number of chunks of the file.
    pub chunk_count: Option<u32>,
    /// Name of the encryptor.
    pub encryptor: Option<&'a [u8]>,
}

impl<'a> Head<'a> {
    /// Reads a record's header; `None` for other bytes.
    pub fn decode(header: &'a [u8]) -> Option<Self> {
        let mut head = Self::default();
        for field in Fields(header) {
            let (name, value) = field?;
            match name {
                b"op" => head.op = *value.first()?,
                b"conn" => head.connection = Some(number(value)?),
                b"time" => head.time = Some(nanos(value)?),
                b"topic" => head.topic = Some(value),
                b"compression" => head.compression = Some(value),
                b"size" => head.size = Some(number(value)?),
                b"chunk_pos" => head.chunk_position = Some(long_number(value)?),
                b"start_time" => head.start_time = Some(nanos(value)?),
                b"end_time" => head.end_time = Some(nanos(value)?),
                b"count" => head.count = Some(number(value)?),
                b"index_pos" => head.index_position = Some(long_number(value)?),
                b"conn_count" => head.connection_count = Some(number(value)?),
                b"chunk_count" => head.chunk_count = Some(number(value)?),
                b"encryptor" => head.encryptor = Some(value),
                _ => {}
            }
        }
        (head.op != 0).then_some(head)
    }
}

/// A number of 4 bytes.
pub(crate) fn number(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

fn long_number(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// Seconds and nanoseconds, 4 bytes each.
fn nanos(bytes: &[u8]) -> Option<i64> {
    let (seconds, nanoseconds) = bytes.split_at_checked(4)?;
    // Both are below 2^32: the sum is below 2^63.
    Some(i64::from(number(seconds)?) * 1_000_000_000 + i64::from(number(nanoseconds)?))
}

/// A record in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its header.
    pub head: Head<'a>,
    /// Offset of its data from the start of the record.
    pub data_start: usize,
    /// Its data.
    pub data: &'a [u8],
}

impl Record<'_> {
    /// Length of the whole record in bytes.
    pub fn len(&self) -> usize {
        self.data_start + self.data.len()
    }

    /// Always false: a record has at least two lengths.
    pub fn is_empty(&self) -> bool {
        false
    }
}

/// Reads the record at the start of `bytes`.
///
/// # Errors
/// The bytes found instead, one clause.
pub(crate) fn decode_record(bytes: &[u8]) -> Result<Record<'_>, &'static str> {
    let (header, after) = split_length(bytes).ok_or("a header that exceeds the end")?;
    let head = Head::decode(header).ok_or("bytes that are not a record header")?;
    let (data, _) = split_length(after).ok_or("data that exceeds the end")?;
    Ok(Record {
        head,
        data_start: header.len() + 2 * LENGTH_BYTES as usize,
        data,
    })
}

/// Splits off the bytes whose length is at the front.
fn split_length(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, after) = bytes.split_first_chunk::<4>()?;
    after.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(name: &str, value: &[u8]) -> Vec<u8> {
        let body = [name.as_bytes(), b"=", value].concat();
        [&(body.len() as u32).to_le_bytes()[..], &body].concat()
    }

    #[test]
    fn fields_may_come_in_any_order_and_hold_any_byte() {
        let header = [
            field("time", &[1, 0, 0, 0, 2, 0, 0, 0]),
            field("unknown", b"a=b"),
            field("op", &[2]),
            field("conn", &[61, 0, 0, 0]),
        ]
        .concat();
        let head = Head::decode(&header).unwrap();
        assert_eq!(
            (head.op, head.connection, head.time),
            (op::MESSAGE, Some(61), Some(1_000_000_002))
        );
    }

    #[test]
    fn what_is_no_record_is_refused() {
        assert_eq!(decode_record(&[1, 2]), Err("a header that exceeds the end"));
        assert_eq!(decode_record(&[0; 8]), Err("bytes that are not a record header"));
        let header = field("op", &[2]);
        let cut = [
            &(header.len() as u32).to_le_bytes()[..],
            &header,
            &[9, 0, 0, 0, 1],
        ]
        .concat();
        assert_eq!(decode_record(&cut), Err("data that exceeds the end"));
        for wrong in [
            field("conn", &[1, 2]),
            vec![200, 0, 0, 0],
            b"\x02\0\0\0ab".to_vec(),
        ] {
            assert_eq!(Head::decode(&wrong), None);
        }
    }
}
