//! A position in a payload, with aligned and checked reads.

use super::{
    encode::{Representation, WideSlots},
    error::DecodeError,
    primitives::Primitives,
    value::{Scalar, Text, WideText, scalar_of, size_of},
};
use crate::interface::Primitive;

/// Most bytes of padding after the last value: some writers align the end to eight.
pub(super) const PADDING_BYTES_MAX: usize = 7;

/// Bytes before the values: the encapsulation header, from whose end alignment is counted.
pub(super) const HEAD_BYTES: usize = 4;

/// How a payload is encoded, and how far it has been read.
#[derive(Clone, Debug)]
pub(super) struct Cursor<'a> {
    body: &'a [u8],
    at: usize,
    little_endian: bool,
    /// Plain XCDR2: nothing is aligned beyond four, lists of structs and texts have their length in bytes
    /// before them.
    second_version: bool,
    wide_slot_bytes: usize,
    /// Bytes that `rmw_serialize` of Fast DDS may add at the end: it estimates the length, aligns also for
    /// elements that are not there, and reserves four bytes for each wide character and a zero.
    slack: usize,
}

impl<'a> Cursor<'a> {
    /// Reads the encapsulation.
    pub fn open(payload: &'a [u8]) -> Result<Self, DecodeError> {
        let Some((head, body)) = payload.split_at_checked(HEAD_BYTES) else {
            let found = format!("{} bytes", payload.len());
            return Err(DecodeError::new(0, "a CDR head of 4 bytes", found));
        };
        let (little_endian, second_version) = match (head[0], head[1]) {
            (0, 0) => (false, false),
            (0, 1) => (true, false),
            (0, 6) => (false, true),
            (0, 7) => (true, true),
            (first, second) => {
                let name = match (first, second) {
                    (0, 2 | 3) => " (parameter list, PL_CDR)",
                    (0, 8 | 9) => " (delimited, D_CDR2)",
                    (0, 10 | 11) => " (parameter list, PL_CDR2)",
                    _ => "",
                };
                let found = format!("{first:02x} {second:02x}{name}");
                let expected = "plain CDR: 00 00, 00 01, 00 06 or 00 07";
                return Err(DecodeError::new(0, expected, found));
            }
        };
        Ok(Self {
            body,
            at: 0,
            little_endian,
            second_version,
            wide_slot_bytes: 2,
            slack: 0,
        })
    }

    /// The same start, with wide characters of `bytes` bytes.
    pub(crate) fn with_wide_slots(mut self, bytes: usize) -> Self {
        self.wide_slot_bytes = bytes;
        self
    }

    /// Bytes of a character of a `wstring`.
    pub(super) fn wide_slot_bytes(&self) -> usize {
        self.wide_slot_bytes
    }

    /// Bytes that were read after the head.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    /// The same payload from another position on.
    pub(super) fn moved_to(mut self, at: usize) -> Self {
        self.at = at;
        self
    }

    /// Bytes of the payload that were read, head included.
    pub fn offset(&self) -> usize {
        HEAD_BYTES + self.at
    }

    /// Bytes not read yet.
    pub fn remaining(&self) -> usize {
        self.body.len().saturating_sub(self.at)
    }

    /// At the end of a message: true when more bytes are left than any writer of this message adds, so that it
    /// was probably written with another definition.
    pub fn is_longer(&self) -> bool {
        self.remaining() > PADDING_BYTES_MAX.saturating_add(self.slack)
    }

    /// Alignment of the next value's offset, 0 to 7.
    pub fn phase(&self) -> usize {
        self.at & 7
    }

    /// How the payload is encoded.
    pub fn representation(&self) -> Representation {
        Representation {
            little_endian: self.little_endian,
            second_version: self.second_version,
            wide_slots: if self.wide_slot_bytes == 4 {
                WideSlots::Four
            } else {
                WideSlots::Two
            },
        }
    }

    /// True for XCDR2, for which the sizes of XCDR1 do not hold.
    pub(crate) fn is_second_version(&self) -> bool {
        self.second_version
    }

    /// Moves to a multiple of `size`, at most eight (four in XCDR2). May move beyond the end; `take` checks
    /// that.
    #[inline]
    fn align(&mut self, size: usize) {
        let most = if self.second_version { 4 } else { 8 };
        let to = size.min(most);
        self.at = (self.at + to - 1) & !(to - 1);
    }

    #[inline]
    fn take(&mut self, count: usize, what: &dyn Fn() -> String) -> Result<&'a [u8], DecodeError> {
        match self
            .at
            .checked_add(count)
            .and_then(|end| self.body.get(self.at..end))
        {
            Some(bytes) => {
                self.at += count;
                Ok(bytes)
            }
            None => Err(self.too_short(&what())),
        }
    }

    fn too_short(&self, expected: &str) -> DecodeError {
        let left = self.body.len().saturating_sub(self.at);
        let found = match left {
            0 => "the end of the message".to_owned(),
            1 => "1 byte before the end of the message".to_owned(),
            left => format!("{left} bytes before the end of the message"),
        };
        DecodeError::new(self.offset(), expected, found)
    }

    /// Moves by `count` bytes, which the caller knows to be padding and values.
    pub fn skip(&mut self, count: usize) -> Result<(), DecodeError> {
        self.block(count).map(drop)
    }

    /// The next `count` bytes, which the caller knows to be padding and values.
    pub fn block(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        self.take(count, &|| format!("{count} bytes"))
    }

    /// A plain value.
    #[inline]
    pub fn scalar(&mut self, kind: Primitive) -> Result<Scalar<'a>, DecodeError> {
        let size = size_of(kind);
        self.align(size);
        let bytes = self.take(size, &|| format!("{size} bytes"))?;
        Ok(scalar_of(kind, bytes, self.little_endian))
    }

    fn u32(&mut self, what: &str) -> Result<u32, DecodeError> {
        self.align(4);
        let bytes = self.take(4, &|| format!("4 bytes with {what}"))?;
        let bytes = [bytes[0], bytes[1], bytes[2], bytes[3]];
        Ok(if self.little_endian {
            u32::from_le_bytes(bytes)
        } else {
            u32::from_be_bytes(bytes)
        })
    }

    /// `count` plain values; empty lists are not aligned.
    pub fn primitives(&mut self, kind: Primitive, count: u64) -> Result<Primitives<'a>, DecodeError> {
        let size = size_of(kind);
        if count > 0 {
            self.align(size);
        } else if size >= 8 {
            self.slack += 8;
        }
        let wanted = usize::try_from(count)
            .ok()
            .and_then(|count| count.checked_mul(size));
        let bytes = match wanted {
            Some(wanted) => self.take(wanted, &|| format!("{count} values of {size} bytes"))?,
            None => return Err(self.too_short(&format!("{count} values of {size} bytes"))),
        };
        Ok(Primitives {
            kind,
            bytes,
            little_endian: self.little_endian,
        })
    }

    /// The number of elements of a sequence, accepted only when that many of `element_bytes_min` can follow.
    pub fn count(&mut self, bound: Option<u64>, element_bytes_min: u64) -> Result<u64, DecodeError> {
        let count = u64::from(self.u32("a number of elements")?);
        if let Some(bound) = bound.filter(|bound| count > *bound) {
            let expected = format!("at most {bound} elements");
            return Err(DecodeError::new(self.offset() - 4, expected, count.to_string()));
        }
        self.check_room(count, element_bytes_min)?;
        Ok(count)
    }

    /// Refuses a number of elements for which the payload has no room.
    pub(crate) fn check_room(&self, count: u64, element_bytes_min: u64) -> Result<(), DecodeError> {
        let left = self.body.len().saturating_sub(self.at) as u64;
        if count.saturating_mul(element_bytes_min) > left {
            let expected = format!("{count} elements of at least {element_bytes_min} bytes");
            return Err(self.too_short(&expected));
        }
        Ok(())
    }

    /// In XCDR2, lists of anything but plain values begin with their length in bytes.
    pub(crate) fn list_head(&mut self) -> Result<(), DecodeError> {
        if self.second_version {
            self.u32("the length of a list")?;
        }
        Ok(())
    }

    /// A `string`. Its zero at the end may be missing, as Fast-CDR accepts it.
    #[inline]
    pub fn text(&mut self, length_max: Option<u64>) -> Result<Text<'a>, DecodeError> {
        let bytes = self.text_with_end(length_max)?;
        Ok(Text(bytes.strip_suffix(&[0]).unwrap_or(bytes)))
    }

    /// A `string`, with the zero at its end if it has one.
    #[inline]
    pub(crate) fn text_with_end(&mut self, length_max: Option<u64>) -> Result<&'a [u8], DecodeError> {
        let length = self.u32("the length of a text")? as usize;
        let bytes = self.take(length, &|| format!("a text of {length} bytes"))?;
        let text_bytes = length - usize::from(bytes.last() == Some(&0));
        self.check_length(text_bytes, length_max, length)?;
        Ok(bytes)
    }

    /// A `wstring`.
    pub(crate) fn wide_text(&mut self, length_max: Option<u64>) -> Result<WideText<'a>, DecodeError> {
        let count = self.u32("the length of a wide text")? as usize;
        let slot_bytes = self.wide_slot_bytes;
        let bytes = match count.checked_mul(slot_bytes) {
            Some(length) => self.take(length, &|| format!("a wide text of {count} characters"))?,
            None => return Err(self.too_short(&format!("a wide text of {count} characters"))),
        };
        let text = WideText {
            bytes,
            slot_bytes,
            little_endian: self.little_endian,
        };
        // The upper half of a slot of four is never used for UTF-16; this distinguishes it from two slots of
        // two.
        let upper = if self.little_endian { 2..4 } else { 0..2 };
        if slot_bytes == 4 && bytes.chunks_exact(4).any(|slot| slot[upper.clone()] != [0, 0]) {
            let expected = "characters of 16 bits in 4 bytes";
            return Err(DecodeError::new(
                self.offset() - bytes.len(),
                expected,
                "more bits",
            ));
        }
        self.check_length(count, length_max, bytes.len())?;
        self.slack += 8 + (4 * count).saturating_sub(bytes.len());
        Ok(text)
    }

    fn check_length(&self, length: usize, length_max: Option<u64>, back: usize) -> Result<(), DecodeError> {
        match length_max.filter(|most| length as u64 > *most) {
            None => Ok(()),
            Some(most) => Err(DecodeError::new(
                self.offset() - back,
                format!("a text of at most {most} characters"),
                length.to_string(),
            )),
        }
    }
}
