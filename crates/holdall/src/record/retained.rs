//! Arenas whose messages were given to the storage writer and which the system does not have yet: kept for a rescue, not used again.

use super::cache::{ArenaSource, RUN_HEADER_BYTES, Segment, SegmentShape, run_header};
use holdall_io::survivor::Arena;
use std::collections::VecDeque;

/// Arenas are kept for at most so many bytes; from half of it on the storage writer is asked to hand over what it holds.
pub const RETAINED_BYTES_MAX: usize = 128 << 20;

/// Empty arenas that are kept for the next segments, in bytes.
const SPARE_BYTES_MAX: usize = 16 << 20;

/// What an arena waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Topics whose definition is asked for: their messages are in no file.
    Waiting,
    /// The packing of this many messages.
    Packing(u64),
    /// The system having this many messages of the bag.
    Written(u64),
}

/// How far the drain is with messages, each counted from the start of the recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Given to be packed.
    pub packing: u64,
    /// Came back from there, or were dropped.
    pub packed: u64,
    /// Given to the storage writer.
    pub written: u64,
    /// The system has them.
    pub handed: u64,
    /// Some topic waits for its definition.
    pub has_waiting: bool,
}

/// The arenas, oldest first.
pub struct Retained {
    source: ArenaSource,
    shape: SegmentShape,
    arenas: VecDeque<(Stage, Arena)>,
    /// Runs of segments that were not full, one after the other.
    gathered: Option<(Stage, Arena)>,
    spare: Vec<Arena>,
    /// Some were dropped because there were too many.
    overflowed: bool,
}

impl Retained {
    /// Nothing is kept; `None` where nothing can be, because `source` has no memory that survives.
    pub fn new(source: &ArenaSource, shape: SegmentShape) -> Option<Self> {
        source.region()?;
        Some(Self {
            source: source.clone(),
            shape,
            arenas: VecDeque::new(),
            gathered: None,
            spare: Vec::new(),
            overflowed: false,
        })
    }

    /// Slots of a region that arenas of this shape take at most, kept ones and empty ones.
    pub fn slots_max(shape: SegmentShape) -> usize {
        (RETAINED_BYTES_MAX + SPARE_BYTES_MAX) / shape.arena_bytes
    }

    /// Keeps the messages of a segment that was given to the storage writer, the packing, or the waiting
    /// topics. `holds_waiting` when some are of waiting topics.
    pub fn keep(&mut self, segment: &mut Segment, holds_waiting: bool, at: Progress) {
        if segment.is_empty() || !segment.survives() {
            return;
        }
        let stage = if holds_waiting {
            Stage::Waiting
        } else if at.packing > at.packed {
            Stage::Packing(at.packing)
        } else {
            Stage::Written(at.written)
        };
        // Many segments are taken before they are full: a copy of some messages instead of a whole arena for
        // each.
        if segment.bytes().len() <= self.shape.arena_bytes / 4 {
            self.gather(segment, stage);
        } else if let Some(empty) = self.empty_arena() {
            self.arenas.push_back((stage, segment.exchange_arena(empty)));
        }
    }

    fn gather(&mut self, segment: &Segment, stage: Stage) {
        let needed = RUN_HEADER_BYTES + segment.bytes().len();
        let fits = |gathered: &(Stage, Arena)| self.shape.arena_bytes - gathered.1.len() >= needed;
        if !self.gathered.as_ref().is_some_and(fits) {
            self.arenas.extend(self.gathered.take());
            self.gathered = self.empty_arena().map(|arena| (stage, arena));
        }
        let Some((kept, arena)) = &mut self.gathered else {
            return;
        };
        // A reader of both skips the run: it repeats the segment's messages.
        arena.append(
            &run_header(segment.order(), segment.bytes().len()),
            segment.bytes(),
        );
        if *kept != Stage::Waiting {
            *kept = stage;
        }
    }

    fn empty_arena(&mut self) -> Option<Arena> {
        if let Some(arena) = self.spare.pop() {
            return Some(arena);
        }
        let mut arena = self.source.surviving_arena()?;
        arena.touch();
        Some(arena)
    }

    /// Releases what the system has.
    pub fn release(&mut self, at: Progress) {
        let advance = |stage: &mut Stage| {
            if *stage == Stage::Waiting && !at.has_waiting {
                *stage = if at.packing > at.packed {
                    Stage::Packing(at.packing)
                } else {
                    Stage::Written(at.written)
                };
            }
            if let Stage::Packing(packing) = *stage
                && at.packed >= packing
            {
                *stage = Stage::Written(at.written);
            }
            matches!(*stage, Stage::Written(written) if at.handed >= written)
        };
        if let Some((stage, arena)) = &mut self.gathered
            && !arena.is_empty()
            && advance(stage)
        {
            arena.clear();
            // Until the next run says what it waits for.
            *stage = Stage::Written(0);
        }
        for index in (0..self.arenas.len()).rev() {
            if advance(&mut self.arenas[index].0)
                && let Some((_, arena)) = self.arenas.remove(index)
            {
                self.put_back(arena);
            }
        }
        while self.bytes() > RETAINED_BYTES_MAX
            && let Some((_, oldest)) = self.arenas.pop_front()
        {
            if !std::mem::replace(&mut self.overflowed, true) {
                tracing::warn!(
                    "the storage is so slow that some messages would be lost if this process were killed now"
                );
            }
            self.put_back(oldest);
        }
    }

    fn put_back(&mut self, mut arena: Arena) {
        arena.clear();
        if (self.spare.len() + 1) * self.shape.arena_bytes <= SPARE_BYTES_MAX {
            self.spare.push(arena);
        }
    }

    /// Memory of what is kept, in bytes.
    pub fn bytes(&self) -> usize {
        self.arenas.len() * self.shape.arena_bytes
    }

    /// Whether the storage writer must hand over what it holds.
    pub fn is_pressing(&self) -> bool {
        self.bytes() > RETAINED_BYTES_MAX / 2
    }
}
