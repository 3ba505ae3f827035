//! Re-encodes one payload by a plan, within bounds for any payload.

use super::plan::{Operation, Plan};

/// Encapsulation header of little-endian CDR, which every ROS 2 middleware writes before the message.
const ENCAPSULATION: [u8; 4] = [0, 1, 0, 0];

/// Nanoseconds of a second.
const NANOS: i64 = 1_000_000_000;

/// Most elements and values of one message that take no byte of ROS 1: nothing else bounds them.
const EMPTY_ELEMENTS_MAX: u64 = 1 << 16;

/// A payload that does not fit the definition of its type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a message of type {type_name} does not fit its definition at byte {offset}: expected {expected}, found {found}"
)]
pub struct ConversionError {
    /// The ROS 1 type.
    pub type_name: String,
    /// Offset in the payload, in bytes.
    pub offset: usize,
    /// The bytes that the definition requires there.
    pub expected: String,
    /// The bytes found there.
    pub found: String,
}

/// Converts `source` into `out`, which is overwritten.
pub(super) fn run(plan: &Plan, source: &[u8], out: &mut Vec<u8>) -> Result<(), ConversionError> {
    out.clear();
    // Texts grow by one byte, and gaps are less than an eighth of most messages: mostly one allocation.
    out.reserve(source.len() + source.len() / 8 + 64);
    out.extend_from_slice(&ENCAPSULATION);
    let mut run = Run {
        plan,
        source,
        at: 0,
        out,
        rounds: (source.len() as u64).saturating_add(EMPTY_ELEMENTS_MAX),
    };
    run.all(&plan.operations)?;
    if run.at < source.len() {
        let left = source.len() - run.at;
        return Err(run.wrong("the end of the message".into(), format!("{left} more bytes")));
    }
    Ok(())
}

struct Run<'a> {
    plan: &'a Plan,
    source: &'a [u8],
    /// Offset in the source.
    at: usize,
    out: &'a mut Vec<u8>,
    /// Loop rounds, and values that read nothing, that are still allowed: at most the message's bytes, and
    /// some more.
    rounds: u64,
}

impl Run<'_> {
    /// Recursion is as deep as the definition nests sequences, which is bounded.
    fn all(&mut self, operations: &[Operation]) -> Result<(), ConversionError> {
        let mut rest = operations;
        while let Some((operation, after)) = rest.split_first() {
            rest = after;
            match *operation {
                Operation::Copy { align, bytes } => self.copy(align, bytes)?,
                Operation::Leave { bytes } => drop(self.take(bytes)?),
                Operation::Zeros { align, bytes } => self.zeros(align, bytes)?,
                Operation::Moment { is_duration } => self.moment(is_duration)?,
                Operation::Text => self.text()?,
                Operation::EmptyText => {
                    self.spend(1)?;
                    self.align(4);
                    self.out.extend_from_slice(&[1, 0, 0, 0, 0]);
                }
                Operation::CopySequence { align, element_bytes } => {
                    let count = self.count(element_bytes)?;
                    if count > 0 {
                        self.copy(align, count * element_bytes)?;
                    }
                }
                Operation::Sequence {
                    body,
                    source_bytes_min,
                } => {
                    let count = self.count(source_bytes_min)?;
                    let (body, after) = rest.split_at(body);
                    self.repeat(body, count)?;
                    rest = after;
                }
                Operation::Array { count, body } => {
                    let (body, after) = rest.split_at(body);
                    self.repeat(body, count)?;
                    rest = after;
                }
            }
        }
        Ok(())
    }

    fn repeat(&mut self, body: &[Operation], count: u64) -> Result<(), ConversionError> {
        for _ in 0..count {
            self.spend(1)?;
            self.all(body)?;
        }
        Ok(())
    }

    fn spend(&mut self, rounds: u64) -> Result<(), ConversionError> {
        match self.rounds.checked_sub(rounds) {
            Some(left) => {
                self.rounds = left;
                Ok(())
            }
            None => Err(self.wrong(
                format!("at most {EMPTY_ELEMENTS_MAX} elements without content"),
                "more".into(),
            )),
        }
    }

    /// The next bytes of the source.
    fn take(&mut self, bytes: u64) -> Result<&[u8], ConversionError> {
        let left = &self.source[self.at..];
        let found = usize::try_from(bytes).ok().and_then(|bytes| left.get(..bytes));
        match found {
            Some(found) => {
                self.at += found.len();
                Ok(found)
            }
            None => Err(self.wrong(format!("{bytes} bytes"), format!("{} until the end", left.len()))),
        }
    }

    fn copy(&mut self, align: usize, bytes: u64) -> Result<(), ConversionError> {
        self.align(align);
        let begin = self.at;
        let end = begin + self.take(bytes)?.len();
        self.out.extend_from_slice(&self.source[begin..end]);
        Ok(())
    }

    fn zeros(&mut self, align: usize, bytes: u64) -> Result<(), ConversionError> {
        // The source does not bound these: they count as rounds.
        self.spend(1 + bytes / 64)?;
        self.align(align);
        let bytes = usize::try_from(bytes)
            .map_err(|_| self.wrong("a value that fits into memory".into(), "more".into()))?;
        self.out.resize(self.out.len() + bytes, 0);
        Ok(())
    }

    /// Two 32-bit words in both. ROS 2's nanoseconds are 0 to 999 999 999, also of a negative duration, and its seconds are signed: a later time than it
    /// has is its latest one.
    fn moment(&mut self, is_duration: bool) -> Result<(), ConversionError> {
        let (seconds, nanos) = (self.length()?, self.length()?);
        self.align(4);
        let signed = |word: u32| match is_duration {
            true => i64::from(word.cast_signed()),
            false => i64::from(word),
        };
        let all = signed(seconds) * NANOS + signed(nanos);
        let earliest = i64::from(i32::MIN) * NANOS;
        let latest = i64::from(i32::MAX) * NANOS + NANOS - 1;
        let all = all.clamp(earliest, latest);
        let (seconds, nanos) = (all.div_euclid(NANOS), all.rem_euclid(NANOS));
        self.out.extend_from_slice(&(seconds as i32).to_le_bytes());
        self.out.extend_from_slice(&(nanos as u32).to_le_bytes());
        Ok(())
    }

    fn text(&mut self) -> Result<(), ConversionError> {
        let begin = self.at;
        let bytes = self.length()?;
        let text_begin = self.at;
        let text_end = text_begin + self.take(u64::from(bytes))?.len();
        let stored = bytes
            .checked_add(1)
            .ok_or_else(|| self.wrong_at(begin, "a shorter text".into(), format!("{bytes} bytes")))?;
        self.align(4);
        self.out.extend_from_slice(&stored.to_le_bytes());
        self.out.extend_from_slice(&self.source[text_begin..text_end]);
        self.out.push(0);
        Ok(())
    }

    /// Copies a count, and checks that enough bytes are left for that many elements of this size.
    fn count(&mut self, source_bytes_min: u64) -> Result<u64, ConversionError> {
        let begin = self.at;
        let count = self.length()?;
        let left = (self.source.len() - self.at) as u64;
        if u64::from(count).saturating_mul(source_bytes_min) > left {
            let expected = format!("a count of elements that fit into {left} bytes");
            return Err(self.wrong_at(begin, expected, count.to_string()));
        }
        self.align(4);
        self.out.extend_from_slice(&count.to_le_bytes());
        Ok(u64::from(count))
    }

    fn length(&mut self) -> Result<u32, ConversionError> {
        let begin = self.at;
        let found = <[u8; 4]>::try_from(self.take(4)?).map(u32::from_le_bytes);
        found.map_err(|_| self.wrong_at(begin, "a length".into(), "fewer than 4 bytes".into()))
    }

    fn align(&mut self, align: usize) {
        let position = self.out.len() - ENCAPSULATION.len();
        let padded = position.next_multiple_of(align) + ENCAPSULATION.len();
        self.out.resize(padded, 0);
    }

    fn wrong(&self, expected: String, found: String) -> ConversionError {
        self.wrong_at(self.at, expected, found)
    }

    fn wrong_at(&self, offset: usize, expected: String, found: String) -> ConversionError {
        ConversionError {
            type_name: self.plan.type_name.clone(),
            offset,
            expected,
            found,
        }
    }
}
