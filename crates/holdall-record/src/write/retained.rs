//! Arenas whose messages were given to the storage writer and which the system does not have yet: kept for a rescue, not used again.

use crate::cache::{ArenaSource, KeptBytes, Segment, SegmentShape};
use holdall_bag::rescue::{RUN_HEADER_BYTES, forget_ranges, run_header};
use holdall_io::survivor::{Arena, Region};
use std::collections::VecDeque;

/// Most bytes of arenas, and of the transport memory to which they refer, to keep; at half of that the storage writer is
/// asked to hand over its buffered data.
pub(crate) const RETAINED_BYTES_MAX: usize = 128 << 20;

/// Gathered messages refer to at most about so much of the transport's memory: it is released together.
const GATHERED_KEPT_BYTES_MAX: usize = 8 << 20;

/// Empty arenas that are kept for the next segments, in bytes.
const SPARE_BYTES_MAX: usize = 16 << 20;

/// Condition that an arena waits for.
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

/// Messages that are kept.
struct Held {
    stage: Stage,
    // Cleared before the memory to which it refers is released.
    arena: Arena,
    kept: KeptBytes,
}

impl Held {
    /// Notes how far the drain is; true if the system has the messages.
    fn advance(&mut self, at: Progress) -> bool {
        if self.stage == Stage::Waiting && !at.has_waiting {
            self.stage = if at.packing > at.packed {
                Stage::Packing(at.packing)
            } else {
                Stage::Written(at.written)
            };
        }
        if let Stage::Packing(packing) = self.stage
            && at.packed >= packing
        {
            self.stage = Stage::Written(at.written);
        }
        matches!(self.stage, Stage::Written(written) if at.handed >= written)
    }

    fn clear(&mut self) {
        self.arena.clear();
        self.kept.clear();
    }
}

/// The arenas, oldest first.
pub(crate) struct Retained {
    source: ArenaSource,
    shape: SegmentShape,
    arenas: VecDeque<Held>,
    /// Runs of segments that were not full, one after the other.
    gathered: Option<Held>,
    spare: Vec<Arena>,
    /// See [`RETAINED_BYTES_MAX`].
    bytes_max: usize,
    /// Messages that the system did not have were dropped, or could not be kept.
    is_incomplete: bool,
    /// Large messages were kept by their headers only.
    has_forgotten: bool,
    /// Large messages were received into other memory.
    lacks_buffers: bool,
}

impl Retained {
    /// Nothing is kept; `None` if nothing can be, because `source` has no memory that survives.
    pub fn new(source: &ArenaSource, shape: SegmentShape) -> Option<Self> {
        source.region()?;
        Some(Self {
            source: source.clone(),
            shape,
            arenas: VecDeque::new(),
            gathered: None,
            spare: Vec::new(),
            bytes_max: RETAINED_BYTES_MAX,
            is_incomplete: false,
            has_forgotten: false,
            lacks_buffers: false,
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
            let mut kept = KeptBytes::default();
            kept.append(segment.kept());
            self.arenas.push_back(Held {
                stage,
                arena: segment.exchange_arena(empty),
                kept,
            });
        }
    }

    fn gather(&mut self, segment: &mut Segment, stage: Stage) {
        let needed = RUN_HEADER_BYTES + segment.bytes().len();
        let fits = |gathered: &Held| {
            self.shape.arena_bytes - gathered.arena.len() >= needed
                && gathered.kept.bytes() <= GATHERED_KEPT_BYTES_MAX
        };
        if !self.gathered.as_ref().is_some_and(fits) {
            self.arenas.extend(self.gathered.take());
            self.gathered = self.empty_arena().map(|arena| Held {
                stage,
                arena,
                kept: KeptBytes::default(),
            });
        }
        let Some(gathered) = &mut self.gathered else {
            return;
        };
        // A reader of both skips the run: it repeats the segment's messages.
        gathered.arena.append(
            &run_header(segment.order(), segment.bytes().len()),
            segment.bytes(),
        );
        gathered.kept.append(segment.kept());
        if gathered.stage != Stage::Waiting {
            gathered.stage = stage;
        }
    }

    fn empty_arena(&mut self) -> Option<Arena> {
        if let Some(arena) = self.spare.pop() {
            return Some(arena);
        }
        let Some(mut arena) = self.source.surviving_arena() else {
            self.report_incomplete("the shared memory is full");
            return None;
        };
        arena.touch();
        Some(arena)
    }

    /// Warns once, and marks the account of surviving messages: a rescue does not find all of them.
    #[cold]
    fn report_incomplete(&mut self, reason: &str) {
        if !std::mem::replace(&mut self.is_incomplete, true) {
            tracing::warn!(
                "{reason}: if this process is killed before the storage has written them, some messages are lost"
            );
            self.source.report_incomplete();
        }
    }

    /// Releases messages that the system has.
    pub fn release(&mut self, at: Progress) {
        if let Some(gathered) = &mut self.gathered
            && !gathered.arena.is_empty()
            && gathered.advance(at)
        {
            gathered.clear();
            // Until the next run sets what it waits for.
            gathered.stage = Stage::Written(0);
        }
        for index in (0..self.arenas.len()).rev() {
            if self.arenas[index].advance(at)
                && let Some(held) = self.arenas.remove(index)
            {
                self.put_back(held);
            }
        }
        self.forget_oldest();
        if self.source.region().is_some_and(Region::lacks_buffers) {
            report_lost(&mut self.lacks_buffers, "the shared memory is full");
        }
        while self.bytes() > self.bytes_max
            && let Some(oldest) = self.arenas.pop_front()
        {
            self.report_incomplete("the storage is too slow");
            self.put_back(oldest);
        }
    }

    /// Releases memory of the transport to which the oldest messages refer, until there is room for others: those survive by their headers only,
    /// so that the account can list the missing ones.
    fn forget_oldest(&mut self) {
        let mut surplus = self.bytes().saturating_sub(self.bytes_max);
        for held in self.arenas.iter_mut().filter(|held| held.kept.bytes() > 0) {
            if surplus == 0 {
                return;
            }
            report_lost(&mut self.has_forgotten, "the storage is too slow");
            forget_ranges(&mut held.arena);
            surplus = surplus.saturating_sub(held.kept.bytes());
            held.kept.clear();
        }
    }

    fn put_back(&mut self, mut held: Held) {
        held.clear();
        let arena = held.arena;
        if (self.spare.len() + 1) * self.shape.arena_bytes <= SPARE_BYTES_MAX {
            self.spare.push(arena);
        }
    }

    /// Memory of kept messages, in bytes.
    pub fn bytes(&self) -> usize {
        let kept = self.arenas.iter().chain(&self.gathered);
        self.arenas.len() * self.shape.arena_bytes + kept.map(|held| held.kept.bytes()).sum::<usize>()
    }

    /// Whether the storage writer must hand over its buffered data.
    pub(crate) fn is_pressing(&self) -> bool {
        self.bytes() > self.bytes_max / 2
    }
}

/// Warns once that only the headers of large messages survive: the account lists the missing payloads.
#[cold]
fn report_lost(is_reported: &mut bool, reason: &str) {
    if !std::mem::replace(is_reported, true) {
        tracing::warn!(
            "{reason}: if this process is killed before the storage has written them, messages of 64 KiB and more are lost"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cache::CacheOptions, tests::rescue::copy_sparse, write::survival::Survival};
    use holdall_bag::rescue::{CacheEntry, Event, KIND_LOG};
    use holdall_io::survivor::{RegionShape, Survivor, own_user};
    use holdall_model::{loss::ledger::PublisherIndex, time::Timestamp, topic::TopicId};
    use std::path::Path;

    fn survival_in(directory: &Path) -> (Survival, SegmentShape) {
        let cache = CacheOptions {
            bytes_max: 64 << 10,
            ..CacheOptions::default()
        };
        let shape = SegmentShape::for_cache(cache.bytes_max);
        (Survival::begin(Some(directory), &cache), shape)
    }

    /// Keeps an arena with the `written` first messages.
    fn keep_one(retained: &mut Retained, source: &ArenaSource, shape: SegmentShape, written: u64) {
        let mut segment = Segment::new(shape, source);
        let entry = CacheEntry {
            log_time: Timestamp::from_nanos(1),
            publish_time: None,
            sequence: None,
            topic: TopicId(0),
            publisher: PublisherIndex(0),
        };
        segment.push_copy(entry, &vec![7; shape.arena_bytes / 2]);
        let at = Progress {
            written,
            ..Progress::default()
        };
        retained.keep(&mut segment, false, at);
    }

    /// Whether the log that a rescue reads is marked as incomplete. Ends the recording's use of the memory.
    fn is_marked(survival: Survival, retained: Retained) -> bool {
        let region = survival.source.region().unwrap().clone();
        let copy = region.path().with_extension("copy");
        // As a kill leaves it: the copy is locked by no process.
        copy_sparse(region.path(), &copy);
        drop((survival, retained));
        let survivor = Survivor::open(&copy, &region.id(), own_user().unwrap()).unwrap();
        let slots = survivor.slots().iter().filter(|slot| slot.kind == KIND_LOG);
        let log: Vec<u8> = slots.flat_map(|slot| survivor.read(slot).unwrap()).collect();
        log.split(|byte| *byte == b'\n')
            .any(|line| matches!(serde_json::from_slice(line), Ok(Event::Incomplete)))
    }

    #[test]
    fn an_arena_that_is_dropped_before_the_system_has_it_marks_the_account_incomplete() {
        for (handed, is_incomplete) in [(0, true), (3, false)] {
            let memory = tempfile::tempdir().unwrap();
            let (survival, shape) = survival_in(memory.path());
            let mut retained = Retained::new(&survival.source, shape).unwrap();
            retained.bytes_max = 2 * shape.arena_bytes;
            for written in 1..=3 {
                keep_one(&mut retained, &survival.source, shape, written);
            }
            retained.release(Progress {
                written: 3,
                handed,
                ..Progress::default()
            });
            assert!(retained.bytes() <= retained.bytes_max, "handed {handed}");
            assert_eq!(is_marked(survival, retained), is_incomplete, "handed {handed}");
        }
    }

    #[test]
    fn messages_for_which_there_is_no_memory_mark_the_account_incomplete() {
        let memory = tempfile::tempdir().unwrap();
        let (survival, shape) = survival_in(memory.path());
        // Memory for one segment, and none to keep its messages in when it is given back.
        let region = RegionShape {
            slot_bytes: shape.arena_bytes,
            slots_max: 1,
            buffers_max: 0,
        };
        let source = ArenaSource::of_region(Region::create(memory.path(), region).unwrap());
        let log = survival.log.clone();
        source.on_incomplete(move || log.mark_incomplete());
        let mut retained = Retained::new(&source, shape).unwrap();
        keep_one(&mut retained, &source, shape, 1);
        assert!(is_marked(survival, retained));
    }
}
