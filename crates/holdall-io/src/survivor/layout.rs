//! The bytes of a region: a header, a table with an entry for each slot, the slots, and the buffers.

use std::{fs, io, io::Read};

/// Bytes of the header.
pub(super) const HEADER_BYTES: usize = 4096;

/// Bytes of an entry in the table: order, length, kind, and a word for later use.
pub(super) const SLOT_ENTRY_BYTES: usize = 32;

/// Words of an entry. The order is 0 in a slot that holds nothing.
pub(super) const WORD_ORDER: usize = 0;
/// Bytes of the slot that are valid.
pub(super) const WORD_LEN: usize = 1;
/// Their kind.
pub(super) const WORD_KIND: usize = 2;

const MAGIC: &[u8; 8] = b"HOLDALL\x01";

/// The values in a region's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// The boot of the machine that it belongs to.
    pub boot: [u8; 16],
    /// A random number, which a reference to the region must contain.
    pub id: [u8; 16],
    pub slots: u64,
    pub slot_bytes: u64,
    pub data_offset: u64,
    /// Bytes of all buffers, which follow the slots.
    pub buffers_bytes: u64,
}

impl Header {
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..24].copy_from_slice(&self.boot);
        bytes[24..40].copy_from_slice(&self.id);
        bytes[40..48].copy_from_slice(&self.slots.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.slot_bytes.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.data_offset.to_le_bytes());
        bytes[64..72].copy_from_slice(&self.buffers_bytes.to_le_bytes());
        bytes
    }

    /// `None` when the bytes are not a header of this version.
    pub fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let half = |at: usize| bytes[at..].first_chunk::<16>().copied().unwrap_or_default();
        let word = |at: usize| {
            bytes[at..]
                .first_chunk()
                .map_or(0, |word| u64::from_le_bytes(*word))
        };
        (bytes[..8] == *MAGIC).then(|| Self {
            boot: half(8),
            id: half(24),
            slots: word(40),
            slot_bytes: word(48),
            data_offset: word(56),
            // 0 in the memory of a recorder that had none.
            buffers_bytes: word(64),
        })
    }
}

/// The machine's present boot.
pub(super) fn boot_id() -> io::Result<[u8; 16]> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    unhex(&digits)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the boot id is not 16 bytes long"))
}

/// A number that cannot be guessed.
pub(super) fn random_id() -> io::Result<[u8; 16]> {
    let mut id = [0; 16];
    fs::File::open("/dev/urandom")?.read_exact(&mut id)?;
    Ok(id)
}

pub(super) fn hex(bytes: &[u8; 16]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn unhex(digits: &str) -> Option<[u8; 16]> {
    let value = u128::from_str_radix(digits, 16).ok()?;
    (digits.len() == 32).then(|| value.to_be_bytes())
}
