//! Payloads that identify themselves: every byte follows from publisher, sequence number and length.

use holdall_io::sim::SimRng;

/// A payload has room for its name.
pub const PAYLOAD_BYTES_MIN: usize = 16;

/// The CDR header (little endian) that a reader expects in front.
const ENCAPSULATION: [u8; 4] = [0, 1, 0, 0];

/// The payload of message `sequence` of publisher `life`, `len` bytes long.
pub fn of(life: usize, sequence: u64, len: usize) -> Vec<u8> {
    let len = len.max(PAYLOAD_BYTES_MIN);
    let mut bytes = Vec::with_capacity(len + 8);
    bytes.extend_from_slice(&ENCAPSULATION);
    bytes.extend_from_slice(&(life as u32).to_le_bytes());
    bytes.extend_from_slice(&sequence.to_le_bytes());
    let mut rng = SimRng::new(((life as u64) << 40) ^ sequence);
    // Every other publisher sends compressible payloads.
    let compressible = life % 2 == 1;
    let mut word = rng.next_u64();
    while bytes.len() < len {
        bytes.extend_from_slice(&word.to_le_bytes());
        if !compressible {
            word = rng.next_u64();
        }
    }
    bytes.truncate(len);
    bytes
}

/// The publisher and sequence number that this payload states.
pub fn name(bytes: &[u8]) -> Option<(usize, u64)> {
    let life = u32::from_le_bytes(bytes.get(4..8)?.try_into().ok()?);
    let sequence = u64::from_le_bytes(bytes.get(8..16)?.try_into().ok()?);
    (bytes[..4] == ENCAPSULATION).then_some((life as usize, sequence))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_states_its_name_and_no_two_are_alike() {
        let one = of(3, 77, 1001);
        assert_eq!((one.len(), name(&one)), (1001, Some((3, 77))));
        assert_ne!(one[16..], of(3, 78, 1001)[16..]);
        assert_eq!(name(&[0; 20]), None);
    }
}
