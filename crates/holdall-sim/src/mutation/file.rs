//! Finished MCAP files with one field that is wrong: a checksum, an index entry, a count.

/// Opcodes of the MCAP specification.
const CHUNK: u8 = 0x06;
const MESSAGE_INDEX: u8 = 0x07;
const STATISTICS: u8 = 0x0b;

/// Offset and bytes of a write.
type Change = Option<(usize, Vec<u8>)>;

/// Bodies of all records of one kind: place and length.
fn bodies(bytes: &[u8], opcode: u8) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut at = 8;
    while let Some(head) = bytes.get(at..at + 9) {
        let mut length = [0; 8];
        length.copy_from_slice(&head[1..]);
        let Ok(length) = usize::try_from(u64::from_le_bytes(length)) else {
            break;
        };
        if length > bytes.len() {
            break;
        }
        if head[0] == opcode {
            found.push((at + 9, length));
        }
        at += 9 + length;
    }
    found
}

/// Changes the checksum of the middle chunk: it follows two times and the length of its records.
pub fn wrong_checksum(bytes: &[u8]) -> Change {
    let chunks = bodies(bytes, CHUNK);
    let (body, _) = chunks.get(chunks.len() / 2)?;
    let at = body + 24;
    Some((at, vec![bytes.get(at)? ^ 0x40]))
}

/// Moves the last entry of the first message index that has one by a byte: entries are pairs of log time and offset.
pub fn index_off_by_one(bytes: &[u8]) -> Change {
    let (body, length) = bodies(bytes, MESSAGE_INDEX)
        .into_iter()
        .find(|(_, length)| *length >= 6 + 16)?;
    let at = body + length - 8;
    Some((at, vec![bytes.get(at)?.wrapping_add(1)]))
}

/// Adds one to the number of messages.
pub fn wrong_statistics(bytes: &[u8]) -> Change {
    let (body, _) = *bodies(bytes, STATISTICS).first()?;
    Some((body, vec![bytes.get(body)?.wrapping_add(1)]))
}
