//! Reads and writes plain CDR (XCDR1) for the few ROS types that holdall itself uses; every read is bounded.

/// Why bytes could not be read as CDR.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CdrError {
    /// The data ends early.
    #[error("data ends at byte {len}, expected {needed} bytes at byte {offset}")]
    Truncated {
        /// Offset of the read, from the end of the encapsulation header.
        offset: usize,
        /// Bytes the read needs.
        needed: usize,
        /// Length of the data.
        len: usize,
    },
    /// A representation other than plain CDR.
    #[error("representation {found:#06x} is not plain CDR")]
    Representation {
        /// The one that the header names.
        found: u16,
    },
    /// A length that is impossible.
    #[error("length {found} at byte {offset} is more than the data can hold")]
    Length {
        /// Offset of the length, from the end of the encapsulation header.
        offset: usize,
        /// The length.
        found: usize,
    },
    /// A text that is not UTF-8 or lacks its final NUL.
    #[error("text at byte {offset} is malformed")]
    Text {
        /// Offset of the text, from the end of the encapsulation header.
        offset: usize,
    },
}

/// Size of the encapsulation header in bytes.
pub(crate) const ENCAPSULATION_BYTES: usize = 4;

/// Reads values one after the other; alignment counts from the end of the encapsulation header.
pub struct CdrReader<'a> {
    body: &'a [u8],
    offset: usize,
    big_endian: bool,
}

impl<'a> CdrReader<'a> {
    /// Starts after the encapsulation header.
    ///
    /// # Errors
    /// A payload without one, or another representation.
    pub fn new(payload: &'a [u8]) -> Result<Self, CdrError> {
        let Some((header, body)) = payload.split_first_chunk::<ENCAPSULATION_BYTES>() else {
            return Err(CdrError::Truncated {
                offset: 0,
                needed: ENCAPSULATION_BYTES,
                len: payload.len(),
            });
        };
        match u16::from_be_bytes([header[0], header[1]]) {
            0 => Ok(Self {
                body,
                offset: 0,
                big_endian: true,
            }),
            1 => Ok(Self {
                body,
                offset: 0,
                big_endian: false,
            }),
            found => Err(CdrError::Representation { found }),
        }
    }

    /// Bytes that are left.
    pub fn remaining(&self) -> usize {
        self.body.len().saturating_sub(self.offset)
    }

    /// The next `len` bytes.
    ///
    /// # Errors
    /// When the data does not hold it.
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], CdrError> {
        let truncated = CdrError::Truncated {
            offset: self.offset,
            needed: len,
            len: self.body.len(),
        };
        let end = self.offset.checked_add(len).ok_or(truncated.clone())?;
        let bytes = self.body.get(self.offset..end).ok_or(truncated)?;
        self.offset = end;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], CdrError> {
        self.offset = self.offset.next_multiple_of(N);
        let bytes = self.bytes(N)?;
        let mut array = [0; N];
        array.copy_from_slice(bytes);
        if !self.big_endian {
            array.reverse();
        }
        Ok(array)
    }

    /// `octet`, `boolean`.
    ///
    /// # Errors
    /// When the data does not hold it.
    pub fn u8(&mut self) -> Result<u8, CdrError> {
        self.array::<1>().map(u8::from_be_bytes)
    }

    /// `unsigned long`.
    ///
    /// # Errors
    /// When the data does not hold it.
    pub fn u32(&mut self) -> Result<u32, CdrError> {
        self.array::<4>().map(u32::from_be_bytes)
    }

    /// `unsigned long long`.
    ///
    /// # Errors
    /// When the data does not hold it.
    pub fn u64(&mut self) -> Result<u64, CdrError> {
        self.array::<8>().map(u64::from_be_bytes)
    }

    /// The length of a sequence whose elements take at least `element_bytes_min` each.
    ///
    /// # Errors
    /// When the data does not hold it.
    pub fn sequence_len(&mut self, element_bytes_min: usize) -> Result<usize, CdrError> {
        let found = self.u32()? as usize;
        if found.saturating_mul(element_bytes_min.max(1)) > self.remaining() {
            return Err(CdrError::Length {
                offset: self.offset,
                found,
            });
        }
        Ok(found)
    }

    /// `string`.
    ///
    /// # Errors
    /// When the data does not hold it.
    pub fn text(&mut self) -> Result<&'a str, CdrError> {
        let len = self.sequence_len(1)?;
        let offset = self.offset;
        // Some writers send an empty text as length 0 instead of 1 and a NUL.
        let Some((last, text)) = self.bytes(len)?.split_last() else {
            return Ok("");
        };
        if *last != 0 {
            return Err(CdrError::Text { offset });
        }
        std::str::from_utf8(text).map_err(|_| CdrError::Text { offset })
    }
}

/// Writes values one after the other as little-endian plain CDR, beginning with the encapsulation header.
pub struct CdrWriter(Vec<u8>);

impl Default for CdrWriter {
    fn default() -> Self {
        Self::new()
    }
}

impl CdrWriter {
    /// Starts with the encapsulation header.
    pub fn new() -> Self {
        Self(vec![0, 1, 0, 0])
    }

    /// Fills up to a multiple of `to` bytes after the header.
    pub fn align(&mut self, to: usize) {
        let len = (self.0.len() - ENCAPSULATION_BYTES).next_multiple_of(to) + ENCAPSULATION_BYTES;
        self.0.resize(len, 0);
    }

    /// Bytes, unchanged.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// `octet`, `boolean`.
    pub fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    /// `unsigned long`.
    pub fn u32(&mut self, value: u32) {
        self.align(4);
        self.bytes(&value.to_le_bytes());
    }

    /// `unsigned long long`.
    pub fn u64(&mut self, value: u64) {
        self.align(8);
        self.bytes(&value.to_le_bytes());
    }

    /// A sequence's length. Lengths beyond 32 bits do not occur here and are cut.
    pub fn sequence_len(&mut self, len: usize) {
        self.u32(u32::try_from(len).unwrap_or(u32::MAX));
    }

    /// `string`.
    pub fn text(&mut self, text: &str) {
        self.sequence_len(text.len() + 1);
        self.bytes(text.as_bytes());
        self.u8(0);
    }

    /// The payload.
    pub fn finish(self) -> Vec<u8> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_values_are_read_again() {
        let mut writer = CdrWriter::new();
        writer.u8(7);
        writer.text("abc");
        writer.u32(9);
        writer.u64(11);
        let payload = writer.finish();
        assert_eq!(&payload[..12], [0, 1, 0, 0, 7, 0, 0, 0, 4, 0, 0, 0]);
        let mut reader = CdrReader::new(&payload).unwrap();
        assert_eq!(reader.u8(), Ok(7));
        assert_eq!(reader.text(), Ok("abc"));
        assert_eq!(reader.u32(), Ok(9));
        assert_eq!(reader.u64(), Ok(11));
        assert_eq!(reader.remaining(), 0);
    }

    #[test]
    fn big_endian_is_read() {
        let mut reader = CdrReader::new(&[
            0, 0, 0, 0, 0, 0, 0, 2, b'x', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5,
        ])
        .unwrap();
        assert_eq!(reader.text(), Ok("x"));
        assert_eq!(reader.u64(), Ok(0));
    }

    #[test]
    fn bad_data_is_refused() {
        assert!(matches!(CdrReader::new(&[0, 1]), Err(CdrError::Truncated { .. })));
        assert!(matches!(
            CdrReader::new(&[0, 7, 0, 0]),
            Err(CdrError::Representation { found: 7 })
        ));
        let huge = [0, 1, 0, 0, 255, 255, 255, 255];
        assert!(matches!(
            CdrReader::new(&huge).unwrap().text(),
            Err(CdrError::Length { .. })
        ));
        let no_end = [0, 1, 0, 0, 1, 0, 0, 0, b'x'];
        assert!(matches!(
            CdrReader::new(&no_end).unwrap().text(),
            Err(CdrError::Text { .. })
        ));
        assert!(matches!(
            CdrReader::new(&[0, 1, 0, 0, 1]).unwrap().u32(),
            Err(CdrError::Truncated { .. })
        ));
    }
}
