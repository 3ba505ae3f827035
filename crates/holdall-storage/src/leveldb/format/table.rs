//! LevelDB's tables: sorted keys in blocks, an index of the blocks at the end.

use super::{Malformed, VALUE_BYTES_MAX, key_tag, mask_crc, masked_crc, put_varint, split_key, take_varint};
use bytes::Bytes;

/// Last bytes of a table.
const MAGIC: u64 = 0xdb47_7524_8b80_fb57;
/// Length of the footer.
pub(crate) const FOOTER_BYTES: usize = 48;
/// Kind of compression and CRC after each block.
const TRAILER_BYTES: usize = 5;
/// Number of entries after which a key is stored whole.
const RESTART_INTERVAL: usize = 16;
/// Approximate upper bound of the bytes that one byte of snappy unpacks to.
const SNAPPY_RATIO_MAX: u64 = 64;

/// The place of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockHandle {
    /// Offset from the start of the file.
    pub offset: u64,
    /// Its length without trailer.
    pub bytes: u64,
}

impl BlockHandle {
    fn take(bytes: &mut &[u8]) -> Option<Self> {
        Some(Self {
            offset: take_varint(bytes)?,
            bytes: take_varint(bytes)?,
        })
    }

    fn put(self, out: &mut Vec<u8>) {
        put_varint(out, self.offset);
        put_varint(out, self.bytes);
    }

    /// Its length with trailer; `None` if it exceeds the file.
    pub(crate) fn stored_bytes(self, file_bytes: u64) -> Option<usize> {
        let bytes = self.bytes.checked_add(TRAILER_BYTES as u64)?;
        let end = self.offset.checked_add(bytes)?;
        (end <= file_bytes).then_some(bytes as usize)
    }
}

/// Reads the index's place from a table's footer.
///
/// # Errors
/// A file of another format.
pub(crate) fn index_handle(footer: &[u8; FOOTER_BYTES], file_bytes: u64) -> Result<BlockHandle, Malformed> {
    let at = file_bytes.saturating_sub(FOOTER_BYTES as u64);
    let magic = footer.last_chunk::<8>().copied().map(u64::from_le_bytes);
    if magic != Some(MAGIC) {
        return Err(Malformed::at(at, "the end of a table", "other bytes"));
    }
    let mut rest = &footer[..];
    let handles = BlockHandle::take(&mut rest).and_then(|_| BlockHandle::take(&mut rest));
    handles.ok_or_else(|| Malformed::at(at, "the place of the index", "other bytes"))
}

/// Checks a stored block, including its trailer, and unpacks it.
///
/// # Errors
/// A wrong checksum; an unknown or damaged compression, or an implausible ratio.
pub fn open_block(stored: Vec<u8>, offset: u64) -> Result<Bytes, Malformed> {
    let Some(bytes) = stored.len().checked_sub(TRAILER_BYTES) else {
        return Err(Malformed::at(offset, "a block", "too few bytes"));
    };
    let (kind, crc) = (
        stored[bytes],
        stored.last_chunk::<4>().copied().map(u32::from_le_bytes),
    );
    if crc != Some(masked_crc(&[&stored[..=bytes]])) {
        return Err(Malformed::at(offset, "a block", "a wrong checksum"));
    }
    match kind {
        0 => Ok(Bytes::from(stored).slice(..bytes)),
        1 => {
            let packed = &stored[..bytes];
            let stated = snap::raw::decompress_len(packed).unwrap_or(usize::MAX) as u64;
            let limit = VALUE_BYTES_MAX.min((bytes as u64 + 1) * SNAPPY_RATIO_MAX);
            if stated > limit {
                let found = format!("{bytes} that state {stated}");
                return Err(Malformed::at(offset, format!("at most {limit} bytes"), found));
            }
            let unpacked = snap::raw::Decoder::new().decompress_vec(packed);
            unpacked
                .map(Bytes::from)
                .map_err(|error| Malformed::at(offset, "a block packed with snappy", error.to_string()))
        }
        other => Err(Malformed::at(
            offset,
            "a block without compression or packed with snappy",
            format!("compression {other}"),
        )),
    }
}

/// Iterates over the keys and values of an unpacked block.
#[derive(Clone, Debug)]
pub struct BlockEntries {
    block: Bytes,
    place: usize,
    end: usize,
    key: Vec<u8>,
}

impl BlockEntries {
    /// Starts at the first entry; a block without its restart points is empty.
    pub fn new(block: Bytes) -> Self {
        let restarts = block
            .last_chunk::<4>()
            .map_or(0, |count| u64::from(u32::from_le_bytes(*count)));
        let tail = (restarts + 1).saturating_mul(4);
        let end = (block.len() as u64).saturating_sub(tail) as usize;
        Self {
            block,
            place: 0,
            end,
            key: Vec::new(),
        }
    }

    /// The next entry: the key, and the value as a slice of the block. `None` at the end, `Some(None)` where
    /// the block is damaged.
    #[allow(clippy::option_option, reason = "the end and a damage are different things")]
    pub fn next_entry(&mut self) -> Option<Option<(&[u8], Bytes)>> {
        if self.place >= self.end {
            return None;
        }
        let range = self.take_entry();
        if range.is_none() {
            self.place = self.end;
        }
        Some(range.map(|range| (&self.key[..], self.block.slice(range))))
    }

    fn take_entry(&mut self) -> Option<std::ops::Range<usize>> {
        let mut rest = self.block.get(self.place..self.end)?;
        let before = rest.len();
        let shared = usize::try_from(take_varint(&mut rest)?).ok()?;
        let unshared = usize::try_from(take_varint(&mut rest)?).ok()?;
        let value_bytes = usize::try_from(take_varint(&mut rest)?).ok()?;
        let (unshared, rest) = rest.split_at_checked(unshared)?;
        if shared > self.key.len() || value_bytes > rest.len() {
            return None;
        }
        let value = self.place + before - rest.len();
        self.key.truncate(shared);
        self.key.extend_from_slice(unshared);
        self.place = value + value_bytes;
        Some(value..value + value_bytes)
    }
}

/// The blocks of a table with the last key of each, from its index block.
///
/// # Errors
/// A damaged index.
pub(crate) fn index_entries(index: Bytes, offset: u64) -> Result<Vec<(Vec<u8>, BlockHandle)>, Malformed> {
    let mut entries = BlockEntries::new(index);
    let mut blocks = Vec::new();
    let damaged = || Malformed::at(offset, "an index of blocks", "other bytes");
    while let Some(entry) = entries.next_entry() {
        let (key, value) = entry.ok_or_else(damaged)?;
        let handle = BlockHandle::take(&mut &value[..]).ok_or_else(damaged)?;
        blocks.push((key.to_vec(), handle));
    }
    Ok(blocks)
}

/// Builds blocks, one after the other: keys in order, each with the length of the prefix that it shares with the previous one.
#[derive(Default)]
struct BlockBuilder {
    bytes: Vec<u8>,
    /// Where the block being built begins.
    start: usize,
    restarts: Vec<u32>,
    entries: usize,
    last_key: Vec<u8>,
}

impl BlockBuilder {
    /// Bytes of the block being built.
    fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    fn add(&mut self, key: &[u8], value: &[u8]) {
        let mut shared = 0;
        if self.entries.is_multiple_of(RESTART_INTERVAL) {
            // Blocks are closed at a few kilobytes; only the value of the last entry exceeds that.
            self.restarts.push(self.len() as u32);
        } else {
            shared = key.iter().zip(&self.last_key).take_while(|(a, b)| a == b).count();
        }
        put_varint(&mut self.bytes, shared as u64);
        put_varint(&mut self.bytes, (key.len() - shared) as u64);
        put_varint(&mut self.bytes, value.len() as u64);
        self.bytes.extend_from_slice(&key[shared..]);
        self.bytes.extend_from_slice(value);
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        self.entries += 1;
    }

    /// Ends the block with its trailer; its bytes begin at offset `base` of the file.
    fn finish(&mut self, base: u64) -> BlockHandle {
        if self.restarts.is_empty() {
            self.restarts.push(0);
        }
        for restart in &self.restarts {
            self.bytes.extend(restart.to_le_bytes());
        }
        self.bytes.extend((self.restarts.len() as u32).to_le_bytes());
        let handle = BlockHandle {
            offset: base + self.start as u64,
            bytes: self.len() as u64,
        };
        self.bytes.push(0);
        let crc = masked_crc(&[&self.bytes[self.start..]]);
        self.bytes.extend(crc.to_le_bytes());
        self.start = self.bytes.len();
        self.restarts.clear();
        self.last_key.clear();
        self.entries = 0;
        handle
    }

    /// Ends the only block and appends it to `out`, which starts at offset `base` of the file.
    fn finish_at(&mut self, out: &mut Vec<u8>, base: u64) -> BlockHandle {
        let handle = self.finish(base + out.len() as u64);
        out.extend_from_slice(&self.bytes);
        handle
    }
}

/// Builds a table without compression, like the plugin's.
#[derive(Default)]
pub(crate) struct TableBuilder {
    /// Offset of the blocks' bytes in the table: those before it were taken.
    base: u64,
    block: BlockBuilder,
    index: BlockBuilder,
    block_bytes_max: usize,
    smallest: Vec<u8>,
    largest: Vec<u8>,
}

/// The end of a table, to be written.
pub(crate) struct BuiltTable {
    /// All its bytes that were not taken before.
    pub bytes: Vec<u8>,
    /// Its first key with tag.
    pub smallest: Vec<u8>,
    /// Its last key with tag.
    pub largest: Vec<u8>,
}

impl TableBuilder {
    /// An empty table with blocks of about `block_bytes_max`.
    pub fn new(block_bytes_max: usize) -> Self {
        Self {
            block_bytes_max,
            ..Self::default()
        }
    }

    /// Adds a key, which must be greater than all others in the comparator's order.
    pub fn add(&mut self, key: &[u8], sequence: u64, value: &[u8]) {
        self.largest.clear();
        self.largest.extend_from_slice(key);
        self.largest.extend(key_tag(sequence));
        if self.smallest.is_empty() {
            self.smallest.clone_from(&self.largest);
        }
        self.block.add(&self.largest, value);
        if self.block.len() >= self.block_bytes_max {
            self.end_block();
        }
    }

    fn end_block(&mut self) {
        if self.block.entries > 0 {
            let handle = self.block.finish(self.base);
            let mut place = Vec::new();
            handle.put(&mut place);
            self.index.add(&self.largest, &place);
        }
    }

    /// Complete blocks that were not taken yet.
    pub fn complete(&self) -> &[u8] {
        &self.block.bytes[..self.block.start]
    }

    /// Forgets the bytes of [`Self::complete`], which the caller has written.
    pub fn forget_complete(&mut self) {
        let taken = std::mem::take(&mut self.block.start);
        self.base += taken as u64;
        self.block.bytes.drain(..taken);
    }

    /// The rest of the table.
    pub fn finish(mut self) -> BuiltTable {
        self.end_block();
        let mut bytes = self.block.bytes;
        append_end(&mut bytes, self.base, &mut self.index);
        BuiltTable {
            bytes,
            smallest: self.smallest,
            largest: self.largest,
        }
    }
}

/// Appends the records after the blocks of a table: metaindex, index and footer.
fn append_end(out: &mut Vec<u8>, base: u64, index: &mut BlockBuilder) {
    let metaindex = BlockBuilder::default().finish_at(out, base);
    let index = index.finish_at(out, base);
    let mut footer = Vec::new();
    metaindex.put(&mut footer);
    index.put(&mut footer);
    footer.resize(FOOTER_BYTES - 8, 0);
    footer.extend(MAGIC.to_le_bytes());
    out.extend(footer);
}

/// A table of one entry; the caller writes the value between head and tail, so that a large one is not
/// copied.
pub(crate) struct LoneTable {
    /// The key with its tag.
    pub key: Vec<u8>,
    /// The bytes before the value.
    pub head: Vec<u8>,
    value_bytes: u64,
}

impl LoneTable {
    /// Creates a table for a key and a value of `value_bytes` bytes.
    pub fn new(key: &[u8], sequence: u64, value_bytes: u64) -> Self {
        let mut tagged = key.to_vec();
        tagged.extend(key_tag(sequence));
        let mut head = Vec::new();
        put_varint(&mut head, 0);
        put_varint(&mut head, tagged.len() as u64);
        put_varint(&mut head, value_bytes);
        head.extend_from_slice(&tagged);
        Self {
            key: tagged,
            head,
            value_bytes,
        }
    }

    /// The bytes after the value. `crc` is the CRC-32C of head and value.
    pub fn tail(&self, crc: u32) -> Vec<u8> {
        // One restart point, at the start, and the kind of compression.
        let mut tail = [0u32.to_le_bytes(), 1u32.to_le_bytes()].concat();
        tail.push(0);
        let crc = mask_crc(crc32c::crc32c_append(crc, &tail));
        let block_bytes = self.head.len() as u64 + self.value_bytes + 8;
        tail.extend(crc.to_le_bytes());
        let (mut index, mut place) = (BlockBuilder::default(), Vec::new());
        let handle = BlockHandle {
            offset: 0,
            bytes: block_bytes,
        };
        handle.put(&mut place);
        index.add(&self.key, &place);
        append_end(&mut tail, block_bytes - 8, &mut index);
        tail
    }
}

/// Reads all entries of a table in memory, for tests and small tables: user key, sequence, value.
///
/// # Errors
/// A damaged table.
pub fn read_all(table: &[u8]) -> Result<Vec<(Vec<u8>, u64, Bytes)>, Malformed> {
    let file_bytes = table.len() as u64;
    let footer = table
        .last_chunk::<FOOTER_BYTES>()
        .ok_or_else(|| Malformed::at(0, "a table", "too few bytes"))?;
    let stored = |handle: BlockHandle| {
        let bytes = handle.stored_bytes(file_bytes);
        let place = bytes.and_then(|bytes| {
            let begin = usize::try_from(handle.offset).ok()?;
            table.get(begin..begin + bytes)
        });
        let place = place.ok_or_else(|| Malformed::at(handle.offset, "a block in the file", "none"))?;
        open_block(place.to_vec(), handle.offset)
    };
    let index = index_handle(footer, file_bytes)?;
    let mut found = Vec::new();
    for (_, handle) in index_entries(stored(index)?, index.offset)? {
        let mut entries = BlockEntries::new(stored(handle)?);
        while let Some(entry) = entries.next_entry() {
            let damaged = || Malformed::at(handle.offset, "a key and a value", "other bytes");
            let (key, value) = entry.ok_or_else(damaged)?;
            let (key, sequence, _) = split_key(key).ok_or_else(damaged)?;
            found.push((key.to_vec(), sequence, value));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(count: u64) -> BuiltTable {
        let mut builder = TableBuilder::new(1000);
        for n in 0..count {
            builder.add(&n.to_be_bytes(), n + 1, &vec![n as u8; (n * 13 % 700) as usize]);
        }
        builder.finish()
    }

    #[test]
    fn keys_and_values_are_read_back() {
        for count in [0, 1, 17, 500] {
            let found = read_all(&table(count).bytes).unwrap();
            assert_eq!(found.len() as u64, count);
            for (n, (key, sequence, value)) in (0..).zip(found) {
                assert_eq!((key, sequence), (u64::to_be_bytes(n).to_vec(), n + 1));
                assert_eq!(value, vec![n as u8; (n * 13 % 700) as usize]);
            }
        }
    }

    #[test]
    fn a_table_of_one_entry_is_what_the_builder_makes() {
        let value = vec![7; 5_000];
        let mut builder = TableBuilder::new(1000);
        builder.add(b"key", 9, &value);
        let built = builder.finish();
        let lone = LoneTable::new(b"key", 9, 5_000);
        let crc = crc32c::crc32c_append(crc32c::crc32c(&lone.head), &value);
        assert_eq!([&lone.head[..], &value, &lone.tail(crc)].concat(), built.bytes);
        assert_eq!((&lone.key, &lone.key), (&built.smallest, &built.largest));
    }

    #[test]
    fn every_changed_byte_is_found_or_does_no_harm() {
        let built = table(40).bytes;
        let whole = read_all(&built).unwrap();
        for place in 0..built.len() {
            let mut changed = built.clone();
            changed[place] ^= 0x41;
            if let Ok(found) = read_all(&changed) {
                assert_eq!(found, whole, "byte {place}");
            }
        }
    }

    #[test]
    fn blocks_packed_with_snappy_are_read_and_wrong_lengths_refused() {
        let mut stored = snap::raw::Encoder::new().compress_vec(&[5; 4000]).unwrap();
        stored.push(1);
        stored.extend(masked_crc(&[&stored]).to_le_bytes());
        assert_eq!(open_block(stored, 0).unwrap(), vec![5; 4000]);
        let mut lie = vec![0xff, 0xff, 0xff, 0xff, 0x0f, 0, 1];
        lie.extend(masked_crc(&[&lie]).to_le_bytes());
        assert!(open_block(lie, 9).unwrap_err().expected.contains("at most"));
    }
}
