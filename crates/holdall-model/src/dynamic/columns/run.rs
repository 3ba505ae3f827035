//! Runs the steps of a type over a payload, and gives a sink the wanted values.

use super::{
    array::Buffers,
    compile::{Load, Program, Run, Step},
};
use crate::{
    dynamic::{
        TypePlan,
        encode::WideSlots,
        value::{Scalar, WideText, scalar_of, size_of},
    },
    interface::{Arity, Primitive},
};

/// Bytes before the values: the encapsulation header.
const HEAD_BYTES: usize = 4;

/// Receives the wanted values of a payload, in the order of the definition.
pub(in crate::dynamic) trait Sink {
    /// A number, a boolean, or an array of them.
    fn values(&mut self, load: &Load, from: &[u8], little_endian: bool);

    /// A text.
    fn text(&mut self, into: (usize, usize), text: &str);

    /// A sequence of `count` numbers or booleans; `load` has its bytes.
    fn sequence(&mut self, offsets: usize, count: u64, load: &Load, from: &[u8], little_endian: bool);

    /// An array or a sequence of texts or structs begins.
    fn begin_list(&mut self) {}

    /// An element of the list begins.
    fn begin_item(&mut self) {}

    /// The list ends, after `count` elements; `offsets` if it is a wanted sequence.
    fn end_list(&mut self, offsets: Option<usize>, count: u64);
}

/// A payload that is being read.
struct Reading<'a, 'b, S> {
    body: &'a [u8],
    at: usize,
    little_endian: bool,
    second_version: bool,
    wide_slot_bytes: usize,
    sink: &'b mut S,
}

/// Gives the values of a payload to `sink`, and returns the number of bytes after the last field. `None` for a payload that does not fit, of
/// which the sink may have some values then.
pub(in crate::dynamic) fn run(
    plan: &TypePlan,
    programs: &[Program; 2],
    sink: &mut impl Sink,
    payload: &[u8],
) -> Option<usize> {
    let (head, body) = payload.split_at_checked(HEAD_BYTES)?;
    let (little_endian, second_version) = match (head[0], head[1]) {
        (0, 0) => (false, false),
        (0, 1) => (true, false),
        (0, 6) => (false, true),
        (0, 7) => (true, true),
        _ => return None,
    };
    let mut wide_slot_bytes = 2;
    if plan.has_wide_text() {
        let slots = plan.cursor(payload).ok()?.representation().wide_slots;
        wide_slot_bytes = if slots == WideSlots::Four { 4 } else { 2 };
    }
    let mut reading = Reading {
        body,
        at: 0,
        little_endian,
        second_version,
        wide_slot_bytes,
        sink,
    };
    reading.steps(&programs[usize::from(second_version)])?;
    Some(body.len().saturating_sub(reading.at))
}

impl Sink for Buffers {
    #[inline]
    fn values(&mut self, load: &Load, from: &[u8], little_endian: bool) {
        append(&mut self.bytes[load.into], load, from, little_endian);
    }

    fn text(&mut self, (offsets, bytes): (usize, usize), text: &str) {
        let all = &mut self.bytes[bytes];
        all.extend_from_slice(text.as_bytes());
        self.offsets[offsets].push(all.len() as i64);
    }

    #[inline]
    fn sequence(&mut self, offsets: usize, count: u64, load: &Load, from: &[u8], little_endian: bool) {
        self.values(load, from, little_endian);
        self.end_list(Some(offsets), count);
    }

    fn end_list(&mut self, offsets: Option<usize>, count: u64) {
        if let Some(offsets) = offsets {
            let offsets = &mut self.offsets[offsets];
            let begin = offsets.last().copied().unwrap_or_default();
            offsets.push(begin.saturating_add_unsigned(count));
        }
    }
}

impl<'a, S: Sink> Reading<'a, '_, S> {
    fn steps(&mut self, steps: &[Step]) -> Option<()> {
        for step in steps {
            match step {
                Step::Run(run) => self.run(run)?,
                Step::Text { length_max, into } => self.text(*length_max, *into)?,
                Step::Wide { length_max, into } => self.wide(*length_max, *into)?,
                Step::Primitives {
                    kind,
                    count_max,
                    into,
                } => self.primitives(*kind, *count_max, *into)?,
                Step::Repeat {
                    arity,
                    bytes_min,
                    offsets,
                    body,
                } => self.repeat(*arity, *bytes_min, *offsets, body)?,
            }
        }
        Some(())
    }

    #[inline]
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(bytes)?;
        let taken = self.body.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    fn run(&mut self, run: &Run) -> Option<()> {
        let phase = self.at & 7;
        let block = self.take(run.bytes[phase])?;
        for load in &run.loads[phase] {
            let from = block.get(load.offset..load.offset + load.bytes)?;
            self.sink.values(load, from, self.little_endian);
        }
        Some(())
    }

    #[inline]
    fn u32(&mut self) -> Option<u32> {
        self.at = self.at.next_multiple_of(4);
        let bytes: [u8; 4] = self.take(4)?.try_into().ok()?;
        Some(if self.little_endian {
            u32::from_le_bytes(bytes)
        } else {
            u32::from_be_bytes(bytes)
        })
    }

    fn text(&mut self, length_max: Option<u64>, into: Option<(usize, usize)>) -> Option<()> {
        let length = self.u32()? as usize;
        let bytes = self.take(length)?;
        let text = bytes.strip_suffix(&[0]).unwrap_or(bytes);
        if length_max.is_some_and(|most| text.len() as u64 > most) {
            return None;
        }
        if let Some(into) = into {
            match std::str::from_utf8(text) {
                Ok(text) => self.sink.text(into, text),
                Err(_) => self.sink.text(into, &String::from_utf8_lossy(text)),
            }
        }
        Some(())
    }

    fn wide(&mut self, length_max: Option<u64>, into: Option<(usize, usize)>) -> Option<()> {
        let count = self.u32()? as usize;
        let bytes = self.take(count.checked_mul(self.wide_slot_bytes)?)?;
        let upper = if self.little_endian { 2..4 } else { 0..2 };
        let is_wider = |slot: &[u8]| slot[upper.clone()] != [0, 0];
        if self.wide_slot_bytes == 4 && bytes.chunks_exact(4).any(is_wider) {
            return None;
        }
        if length_max.is_some_and(|most| count as u64 > most) {
            return None;
        }
        if let Some(into) = into {
            let text = WideText {
                bytes,
                slot_bytes: self.wide_slot_bytes,
                little_endian: self.little_endian,
            };
            self.sink.text(into, &text.to_text());
        }
        Some(())
    }

    /// The number of a sequence's elements, when that many can follow.
    fn count(&mut self, count_max: Option<u64>, bytes_min: u64) -> Option<u64> {
        let count = u64::from(self.u32()?);
        if count_max.is_some_and(|most| count > most) {
            return None;
        }
        self.check_room(count, bytes_min)?;
        Some(count)
    }

    fn check_room(&self, count: u64, bytes_min: u64) -> Option<()> {
        let left = self.body.len().saturating_sub(self.at) as u64;
        (count.saturating_mul(bytes_min) <= left).then_some(())
    }

    fn primitives(
        &mut self,
        kind: Primitive,
        count_max: Option<u64>,
        into: Option<(usize, usize)>,
    ) -> Option<()> {
        let size = size_of(kind);
        let count = self.count(count_max, size as u64)?;
        if count > 0 {
            let most = if self.second_version { 4 } else { 8 };
            self.at = self.at.next_multiple_of(size.min(most));
        }
        let bytes = usize::try_from(count).ok()?.checked_mul(size)?;
        let from = self.take(bytes)?;
        if let Some((offsets, into)) = into {
            let load = Load {
                offset: 0,
                bytes,
                kind,
                into,
            };
            self.sink
                .sequence(offsets, count, &load, from, self.little_endian);
        }
        Some(())
    }

    fn repeat(&mut self, arity: Arity, bytes_min: u64, offsets: Option<usize>, body: &[Step]) -> Option<()> {
        if self.second_version {
            // In XCDR2 such lists begin with their length in bytes.
            self.u32()?;
        }
        let count = match arity {
            Arity::One => 1,
            Arity::Array(count) => {
                self.check_room(count, bytes_min)?;
                count
            }
            Arity::BoundedSequence(most) => self.count(Some(most), bytes_min)?,
            Arity::UnboundedSequence => self.count(None, bytes_min)?,
        };
        self.sink.begin_list();
        for _ in 0..count {
            self.sink.begin_item();
            self.steps(body)?;
        }
        self.sink.end_list(offsets, count);
        Some(())
    }
}

/// Appends values to a column.
#[inline]
fn append(column: &mut Vec<u8>, load: &Load, from: &[u8], little_endian: bool) {
    match (load.kind, from) {
        (Primitive::Boolean, _) => column.extend(from.iter().map(|value| u8::from(*value != 0))),
        (Primitive::LongDouble, _) => {
            for value in from.chunks_exact(16) {
                if let Scalar::F64(value) = scalar_of(Primitive::LongDouble, value, little_endian) {
                    column.extend_from_slice(&value.to_le_bytes());
                }
            }
        }
        // Lengths that are known here are copied without a call.
        (_, &[a, b, c, d, e, f, g, h]) if little_endian => {
            column.extend_from_slice(&[a, b, c, d, e, f, g, h])
        }
        (_, &[a, b, c, d]) if little_endian => column.extend_from_slice(&[a, b, c, d]),
        _ if little_endian => column.extend_from_slice(from),
        _ => {
            for value in from.chunks_exact(size_of(load.kind)) {
                column.extend(value.iter().rev());
            }
        }
    }
}
