//! Messages of a bag one after another: parts are loaded when they are due, and merged.

use super::{
    Rosbag1ReaderOptions,
    chunk::{Entry, Records, Wanted},
    reader::FileIndex,
};
use crate::{
    error::{StorageError, StorageResult},
    reader::{ReadMessage, ReadOrder},
};
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    ops::Range,
    sync::Arc,
};

/// Read-ahead in bytes of the file.
const READ_AHEAD_BYTES: u64 = 16 << 20;

/// A part whose messages are being returned.
struct Active {
    extent: usize,
    entries: Vec<Entry>,
    next: usize,
    /// `None` when evicted; loaded again when needed.
    records: Option<Records>,
}

/// The iteration. ROS 1 bags do not store when a message was sent, so the order of publish times is that of
/// log times.
pub(super) struct Cursor {
    index: Arc<FileIndex>,
    options: Rosbag1ReaderOptions,
    wanted: Wanted,
    by_time: bool,
    /// Parts that are not loaded yet, the next one last.
    pending: Vec<usize>,
    active: Vec<Option<Active>>,
    free: Vec<usize>,
    /// Time of the next message, index of its part, position in the list of active parts.
    heads: BinaryHeap<Reverse<(i64, usize, usize)>>,
    loaded_bytes: u64,
    /// The bytes that the system was asked to read last.
    asked: Range<u64>,
    /// Damage that was found but not returned yet.
    damages: VecDeque<StorageError>,
}

impl Cursor {
    pub fn new(
        index: Arc<FileIndex>,
        options: Rosbag1ReaderOptions,
        wanted: Wanted,
        order: ReadOrder,
    ) -> Self {
        let by_time = order != ReadOrder::File;
        let mut pending: Vec<usize> = (0..index.extents.len())
            .filter(|place| wanted.may_be_in(&index.extents[*place]))
            .collect();
        pending.sort_by_key(|place| {
            let time = if by_time { index.extents[*place].times.0 } else { 0 };
            Reverse((time, *place))
        });
        Self {
            index,
            options,
            wanted,
            by_time,
            pending,
            active: Vec::new(),
            free: Vec::new(),
            heads: BinaryHeap::new(),
            loaded_bytes: 0,
            asked: 0..0,
            damages: VecDeque::new(),
        }
    }

    /// Whether the next part may have a message that precedes all loaded ones.
    fn must_activate(&self) -> bool {
        match (self.pending.last(), self.heads.peek()) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(place), Some(Reverse((time, ..)))) => {
                self.by_time && self.index.extents[*place].times.0 <= *time
            }
        }
    }

    fn load(&mut self, extent: usize) -> StorageResult<Records> {
        let records = Records::load(&self.index.source, self.options, &self.index.extents[extent])?;
        self.loaded_bytes += records.0.len() as u64;
        Ok(records)
    }

    fn activate(&mut self, extent: usize) -> StorageResult<()> {
        let records = self.load(extent)?;
        self.read_ahead();
        let (mut entries, damage) = records.entries(&self.index, &self.index.extents[extent], &self.wanted);
        self.damages.extend(damage);
        if self.by_time {
            // Stable: equal stamps keep the file's order.
            entries.sort_by_key(|entry| entry.time);
        }
        let Some(first) = entries.first() else {
            self.loaded_bytes -= records.0.len() as u64;
            return Ok(());
        };
        let time = first.time;
        let active = Active {
            extent,
            entries,
            next: 0,
            records: Some(records),
        };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.active.push(None);
            self.active.len() - 1
        });
        self.active[slot] = Some(active);
        self.push_head(time, extent, slot);
        self.make_room(slot);
        Ok(())
    }

    /// Asks the system to read ahead while the current messages are processed; it searches all pages that it is asked for again.
    fn read_ahead(&mut self) {
        let extents = &self.index.extents;
        let Some(first) = self.pending.last() else {
            return;
        };
        // The lengths of chunks are in their records; offsets are sufficient here.
        let start = extents[*first].start;
        let last = self.pending.iter().rev().nth(16).unwrap_or(first);
        let span = extents[*last].start.saturating_sub(start).max(1 << 20);
        let end = start + span.min(READ_AHEAD_BYTES);
        let next = if self.asked.contains(&start) {
            self.asked.end
        } else {
            start
        };
        if next < end {
            self.index.source.will_need(next, end - next);
            self.asked = start..end;
        }
    }

    fn push_head(&mut self, time: i64, extent: usize, slot: usize) {
        // In file order a part's next message always precedes the next part.
        let time = if self.by_time { time } else { 0 };
        self.heads.push(Reverse((time, extent, slot)));
    }

    /// Evicts the records that are needed last, until the rest is within bounds.
    fn make_room(&mut self, keep: usize) {
        while self.loaded_bytes > self.options.loaded_bytes_max {
            let latest = self
                .active
                .iter_mut()
                .enumerate()
                .filter(|(slot, _)| *slot != keep)
                .filter_map(|(_, active)| active.as_mut())
                .filter(|active| active.records.is_some())
                .max_by_key(|active| active.entries.get(active.next).map_or(0, |entry| entry.time));
            let Some(records) = latest.and_then(|active| active.records.take()) else {
                return;
            };
            self.loaded_bytes -= records.0.len() as u64;
        }
    }

    /// Returns the next message of the part in `slot`.
    fn take(&mut self, slot: usize) -> StorageResult<Option<ReadMessage>> {
        let Some(mut active) = self.active.get_mut(slot).and_then(Option::take) else {
            return Ok(None);
        };
        let records = match active.records.take() {
            Some(records) => records,
            None => self.load(active.extent)?,
        };
        let message = active
            .entries
            .get(active.next)
            .map(|entry| records.message(*entry));
        active.next += 1;
        match active.entries.get(active.next) {
            Some(next) => {
                let (time, extent) = (next.time, active.extent);
                active.records = Some(records);
                self.active[slot] = Some(active);
                self.push_head(time, extent, slot);
                self.make_room(slot);
            }
            None => {
                self.loaded_bytes -= records.0.len() as u64;
                self.free.push(slot);
            }
        }
        Ok(message)
    }
}

impl Iterator for Cursor {
    type Item = StorageResult<ReadMessage>;

    fn next(&mut self) -> Option<Self::Item> {
        // Each pass loads a part or returns a message.
        loop {
            while self.must_activate() {
                let extent = self.pending.pop()?;
                // A damaged part is one error; the iteration continues after it.
                if let Err(error) = self.activate(extent) {
                    return Some(Err(error));
                }
            }
            if let Some(damage) = self.damages.pop_front() {
                return Some(Err(damage));
            }
            let Reverse((_, _, slot)) = self.heads.pop()?;
            match self.take(slot) {
                Ok(Some(message)) => return Some(Ok(message)),
                Ok(None) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
