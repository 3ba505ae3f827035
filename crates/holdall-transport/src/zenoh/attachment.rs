//! The attachment of rmw_zenoh to each message: sequence number, source time and the publisher's GID.

use holdall_model::topic::Gid;

/// An attachment: `i64` sequence, `i64` nanoseconds, the GID's length (16) and the GID, little-endian, without alignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attachment {
    /// The publisher's sequence number; rmw_zenoh begins with 1.
    pub sequence: u64,
    /// When it was sent, in nanoseconds since 1970; `None` if the publisher sends none (0 or less).
    pub source_nanos: Option<i64>,
    /// Its publisher.
    pub gid: Gid,
}

/// Why bytes are not an attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum AttachmentError {
    /// Neither 33 bytes, nor the 32 of versions without the length.
    #[error("an attachment has 33 or 32 bytes, not {found}")]
    Len {
        /// How many there are.
        found: usize,
    },
    /// The length of the GID is not 16.
    #[error("the GID at byte 16 has 16 bytes, not {found}")]
    GidLen {
        /// The length found.
        found: u8,
    },
    /// A negative sequence number.
    #[error("the sequence number at byte 0 is {found}")]
    Sequence {
        /// The number found.
        found: i64,
    },
}

const LEN: usize = 33;
const LEN_WITHOUT_GID_LEN: usize = 32;

impl Attachment {
    /// Reads an attachment of either size.
    ///
    /// # Errors
    /// The fault and its place.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, AttachmentError> {
        let number = |at: usize| {
            let mut field = [0; 8];
            field.copy_from_slice(&bytes[at..at + 8]);
            i64::from_le_bytes(field)
        };
        let gid_bytes = match bytes.len() {
            LEN if bytes[16] == 16 => &bytes[17..],
            LEN => return Err(AttachmentError::GidLen { found: bytes[16] }),
            LEN_WITHOUT_GID_LEN => &bytes[16..],
            found => return Err(AttachmentError::Len { found }),
        };
        let mut gid = [0; 16];
        gid.copy_from_slice(gid_bytes);
        let found = number(0);
        let sequence = u64::try_from(found).map_err(|_| AttachmentError::Sequence { found })?;
        let nanos = number(8);
        Ok(Self {
            sequence,
            source_nanos: (nanos > 0).then_some(nanos),
            gid: Gid(gid),
        })
    }

    /// Writes the form of 33 bytes, which all versions read.
    pub(super) fn encode(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        // Sequence numbers beyond 63 bits are some thousand years away.
        let sequence = i64::try_from(self.sequence).unwrap_or(i64::MAX);
        bytes[..8].copy_from_slice(&sequence.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.source_nanos.unwrap_or(0).to_le_bytes());
        bytes[16] = 16;
        bytes[17..].copy_from_slice(&self.gid.0);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: Attachment = Attachment {
        sequence: 258,
        source_nanos: Some(1_700_000_000_000_000_001),
        gid: Gid([0xA5; 16]),
    };

    #[test]
    fn both_sizes_are_read() {
        let long = WHOLE.encode();
        assert_eq!(long[..8], [2, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(long[16], 16);
        assert_eq!(Attachment::decode(&long), Ok(WHOLE));
        let short = [&long[..16], &long[17..]].concat();
        assert_eq!(Attachment::decode(&short), Ok(WHOLE));
    }

    #[test]
    fn a_publisher_that_does_not_tell_the_time_has_none() {
        let silent = Attachment {
            source_nanos: None,
            ..WHOLE
        };
        assert_eq!(Attachment::decode(&silent.encode()), Ok(silent));
    }

    #[test]
    fn malformed_ones_are_refused() {
        let long = WHOLE.encode();
        for len in (0..32).chain([34, 100]) {
            let bytes: Vec<u8> = long.iter().copied().cycle().take(len).collect();
            assert_eq!(
                Attachment::decode(&bytes),
                Err(AttachmentError::Len { found: len })
            );
        }
        let mut other = long;
        other[16] = 24;
        assert_eq!(
            Attachment::decode(&other),
            Err(AttachmentError::GidLen { found: 24 })
        );
        let mut negative = long;
        negative[7] = 0xFF;
        assert!(matches!(
            Attachment::decode(&negative),
            Err(AttachmentError::Sequence { found }) if found < 0
        ));
    }
}
