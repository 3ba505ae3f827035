//! The records that open a torn file at once: an anchor in its head that points to the last durable
//! checkpoint, and checkpoints, each with the index since the previous one. Other readers skip both, as the
//! format requires for opcodes from 0x80 on.

use super::{Fields, FormatError, RECORD_PREFIX_BYTES, encode::put_record, op};

/// Offsets of the anchor's two slots, each in its own sector: one is rewritten while the other stays valid.
pub(crate) const SLOT_OFFSETS: [u64; 2] = [4096, 6144];
/// Length of the header, the anchor and its slots; bytes after it are never rewritten.
pub const HEAD_BYTES: usize = 8192;
/// The part of the head that is rewritten: one disk block.
pub(crate) const ANCHOR_BLOCK: std::ops::Range<usize> = 4096..8192;

/// First bytes of the content of an anchor and of a checkpoint.
const ANCHOR_MAGIC: &[u8; 8] = b"holdallA";
const CHECKPOINT_MAGIC: &[u8; 8] = b"holdallC";
const SLOT_BYTES: usize = 8 + 8 + 8 + 8 + 4;

/// One slot of the anchor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Number of slots written; the slot with the higher number is valid.
    pub number: u64,
    /// Offset of the checkpoint record.
    pub checkpoint: u64,
    /// Its length, including opcode and length.
    pub length: u64,
}

impl Slot {
    /// Encodes the slot.
    pub fn encode(&self) -> [u8; SLOT_BYTES] {
        let mut bytes = [0; SLOT_BYTES];
        bytes[..8].copy_from_slice(ANCHOR_MAGIC);
        bytes[8..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.checkpoint.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.length.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..32]);
        bytes[32..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads a slot; `None` when it was never written or is torn.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..SLOT_BYTES)?;
        let mut fields = Fields::new(bytes);
        let magic = fields.take(8, "slot magic").ok()?;
        let slot = Self {
            number: fields.u64("slot number").ok()?,
            checkpoint: fields.u64("checkpoint").ok()?,
            length: fields.u64("checkpoint length").ok()?,
        };
        let crc = fields.u32("slot crc").ok()?;
        (magic == ANCHOR_MAGIC && crc == crc32fast::hash(&bytes[..32])).then_some(slot)
    }
}

/// Pads `start` (a file's magic and header) to [`HEAD_BYTES`] with an anchor whose slots are empty.
pub(crate) fn append_anchor(start: &mut Vec<u8>) {
    let body_bytes = HEAD_BYTES - start.len() - RECORD_PREFIX_BYTES;
    put_record(start, op::ANCHOR, |out| out.resize(out.len() + body_bytes, 0));
}

/// The whole slots of a file's head, newest first.
pub(crate) fn newest_slots(head: &[u8]) -> Vec<Slot> {
    let at = |offset: &u64| head.get(usize::try_from(*offset).ok()?..).and_then(Slot::decode);
    let mut slots: Vec<Slot> = SLOT_OFFSETS.iter().filter_map(at).collect();
    slots.sort_by_key(|slot| std::cmp::Reverse(slot.number));
    slots
}

/// A checkpoint: the part of the file before it that no earlier checkpoint lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint<'a> {
    /// Offset of this record: distinguishes it from a copy.
    pub offset: u64,
    /// Offset and length of the previous checkpoint.
    pub previous: Option<(u64, u64)>,
    /// CRC-32 of the file from [`HEAD_BYTES`] to this record, when the data section has one.
    pub crc: Option<u32>,
    /// Whole records as in the summary: statistics of the whole file; schemas, channels, chunk and
    /// metadata indexes since the previous checkpoint.
    pub records: &'a [u8],
}

impl<'a> Checkpoint<'a> {
    /// Appends the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_record(out, op::CHECKPOINT, |out| {
            let start = out.len();
            out.extend_from_slice(CHECKPOINT_MAGIC);
            out.extend_from_slice(&self.offset.to_le_bytes());
            let (previous, length) = self.previous.unwrap_or((0, 0));
            out.extend_from_slice(&previous.to_le_bytes());
            out.extend_from_slice(&length.to_le_bytes());
            out.push(u8::from(self.crc.is_some()));
            out.extend_from_slice(&self.crc.unwrap_or(0).to_le_bytes());
            out.extend_from_slice(self.records);
            let crc = crc32fast::hash(&out[start..]);
            out.extend_from_slice(&crc.to_le_bytes());
        });
    }

    /// Reads a record's body.
    ///
    /// # Errors
    /// Bytes that are not a whole checkpoint at `offset`.
    pub fn decode(body: &'a [u8], offset: u64) -> Result<Self, FormatError> {
        let broken = |what: &str| FormatError {
            offset: 0,
            expected: "a checkpoint".to_owned(),
            found: what.to_owned(),
        };
        let Some((content, crc)) = body.split_last_chunk::<4>() else {
            return Err(broken("fewer bytes"));
        };
        if crc32fast::hash(content) != u32::from_le_bytes(*crc) {
            return Err(broken("another checksum"));
        }
        let mut fields = Fields::new(content);
        let magic = fields.take(8, "checkpoint magic")?;
        let own = fields.u64("checkpoint offset")?;
        if magic != CHECKPOINT_MAGIC || own != offset {
            return Err(broken("a checkpoint of another offset"));
        }
        let previous = (fields.u64("previous")?, fields.u64("previous length")?);
        let has_crc = fields.u8("has crc")? == 1;
        let crc = fields.u32("crc")?;
        Ok(Self {
            offset,
            previous: (previous.0 > 0).then_some(previous),
            crc: has_crc.then_some(crc),
            records: fields.rest(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_has_two_slots_and_the_newest_whole_one_counts() {
        let mut head = vec![1; 50];
        append_anchor(&mut head);
        assert_eq!(head.len(), HEAD_BYTES);
        assert!(newest_slots(&head).is_empty());
        for number in [7, 8] {
            let slot = Slot {
                number,
                checkpoint: number * 1000,
                length: 99,
            };
            let at = SLOT_OFFSETS[number as usize % 2] as usize;
            head[at..at + SLOT_BYTES].copy_from_slice(&slot.encode());
        }
        assert_eq!(
            newest_slots(&head)
                .iter()
                .map(|slot| slot.number)
                .collect::<Vec<_>>(),
            [8, 7]
        );
        head[SLOT_OFFSETS[0] as usize + 17] ^= 1;
        assert_eq!(newest_slots(&head)[0].checkpoint, 7000, "the torn one does not");
        assert!(newest_slots(&head[..100]).is_empty());
    }

    #[test]
    fn a_checkpoint_is_read_back_at_its_place_only() {
        for previous in [None, Some((8192, 70))] {
            let checkpoint = Checkpoint {
                offset: 9000,
                previous,
                crc: previous.map(|_| 5),
                records: b"records",
            };
            let mut bytes = Vec::new();
            checkpoint.encode(&mut bytes);
            let body = &bytes[RECORD_PREFIX_BYTES..];
            assert_eq!(Checkpoint::decode(body, 9000).unwrap(), checkpoint);
            assert!(Checkpoint::decode(body, 9001).is_err());
            for len in 0..body.len() {
                assert!(Checkpoint::decode(&body[..len], 9000).is_err(), "cut to {len}");
            }
        }
    }
}
