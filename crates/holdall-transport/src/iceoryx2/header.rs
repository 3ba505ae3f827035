//! User headers that contain a message's send time and its publisher's sequence number.

use holdall_model::{time::Timestamp, topic::Gid};

/// `{int64 source_timestamp, uint64 sequence}`, nanoseconds since 1970 and 1, 2, 3, ...: the header of `rmw_iceoryx2`, which
/// this transport uses, too.
pub(super) const STAMP_AND_SEQUENCE: &str = "rmw_iceoryx2/MessageInfoHeader";

/// `{uint8[16] gid, int64 source_timestamp, uint64 sequence}`: the header of messages that come through
/// iceoryx2's ROS 2 tunnel.
const GID_STAMP_AND_SEQUENCE: &str = "RosHeader";

/// Service attribute that declares a header of another name to have the layout of [`STAMP_AND_SEQUENCE`].
pub(super) const LAYOUT_ATTRIBUTE: &str = "user_header";

/// Its value.
pub(super) const LAYOUT_VALUE: &str = "source_timestamp,sequence";

/// How a user header is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderLayout {
    /// No header.
    Empty,
    /// [`STAMP_AND_SEQUENCE`].
    StampAndSequence,
    /// [`GID_STAMP_AND_SEQUENCE`].
    GidStampAndSequence,
    /// Bytes of the application, not interpreted.
    Unknown,
}

/// The values in a header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HeaderFacts {
    pub publisher: Option<Gid>,
    pub publish_time: Option<Timestamp>,
    pub sequence: Option<u64>,
}

impl HeaderLayout {
    /// The layout of a header type; `is_declared`: an attribute of the service declares
    /// [`Self::StampAndSequence`].
    pub fn of(type_name: &str, size: usize, is_declared: bool) -> Self {
        match (type_name, size) {
            (_, 0) => Self::Empty,
            (STAMP_AND_SEQUENCE, 16) => Self::StampAndSequence,
            (_, 16) if is_declared => Self::StampAndSequence,
            (GID_STAMP_AND_SEQUENCE, 32) => Self::GidStampAndSequence,
            _ => Self::Unknown,
        }
    }

    /// Whether the bag's own fields for stamp, sequence and publisher hold everything in it.
    pub(crate) fn is_reported_whole(self) -> bool {
        self != Self::Unknown
    }

    /// Reads a header.
    pub fn read(self, bytes: &[u8]) -> HeaderFacts {
        let word = |at: usize| -> Option<[u8; 8]> { bytes.get(at..at + 8)?.try_into().ok() };
        let facts = |at: usize| HeaderFacts {
            publisher: None,
            publish_time: word(at).map(|bytes| Timestamp::from_nanos(i64::from_ne_bytes(bytes))),
            sequence: word(at + 8).map(u64::from_ne_bytes),
        };
        match self {
            Self::Empty | Self::Unknown => HeaderFacts::default(),
            Self::StampAndSequence => facts(0),
            Self::GidStampAndSequence => HeaderFacts {
                publisher: bytes
                    .get(..16)
                    .and_then(|gid| Some(Gid(gid.try_into().ok()?)))
                    .filter(|gid| gid.0 != [0; 16]),
                ..facts(16)
            },
        }
    }

    /// Writes a header for our publishers; the layout must not be [`Self::Unknown`].
    pub fn write(self, gid: Gid, stamp: Timestamp, sequence: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(32);
        if self == Self::GidStampAndSequence {
            bytes.extend(gid.0);
        }
        if self != Self::Empty {
            bytes.extend(stamp.as_nanos().to_ne_bytes());
            bytes.extend(sequence.to_ne_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let (gid, stamp) = (Gid([7; 16]), Timestamp::from_nanos(-5));
        for (name, size, publisher) in [
            (STAMP_AND_SEQUENCE, 16, None),
            (GID_STAMP_AND_SEQUENCE, 32, Some(gid)),
        ] {
            let layout = HeaderLayout::of(name, size, false);
            let bytes = layout.write(gid, stamp, 9);
            assert_eq!(bytes.len(), size);
            let expected = HeaderFacts {
                publisher,
                publish_time: Some(stamp),
                sequence: Some(9),
            };
            assert_eq!(layout.read(&bytes), expected);
        }
    }

    #[test]
    fn a_header_of_another_name_or_size_is_not_guessed_at() {
        for (name, size) in [(STAMP_AND_SEQUENCE, 24), ("Imu", 16), ("RosHeader", 16)] {
            assert_eq!(HeaderLayout::of(name, size, false), HeaderLayout::Unknown);
        }
        assert_eq!(HeaderLayout::of("()", 0, false), HeaderLayout::Empty);
        assert_eq!(HeaderLayout::of("Imu", 16, true), HeaderLayout::StampAndSequence);
        assert_eq!(HeaderLayout::Unknown.read(&[1; 16]), HeaderFacts::default());
    }

    #[test]
    fn a_header_that_is_too_short_reports_nothing() {
        assert_eq!(
            HeaderLayout::StampAndSequence.read(&[0; 3]),
            HeaderFacts::default()
        );
    }
}
