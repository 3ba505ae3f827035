//! Messages of a file one after another: extents are loaded when they are due, and merged.

use super::{
    McapReaderOptions,
    extent::{Entry, Records, Wanted},
    index::{Extent, FileIndex},
};
use crate::{
    error::StorageResult,
    reader::{ReadMessage, ReadOrder, ReadQuery},
};
use std::{cmp::Reverse, collections::BinaryHeap, sync::Arc};

/// How often the read-ahead doubles until it has its full length.
const DOUBLINGS: u32 = 3;

/// An extent whose messages are being returned.
struct Active {
    extent: Extent,
    entries: Vec<Entry>,
    next: usize,
    /// `None` when evicted; loaded again when needed.
    records: Option<Records>,
}

/// Time of the next message, offset of its extent in the file, position in the list of active extents.
type Head = Reverse<(u64, u64, usize)>;

/// The iteration.
pub(super) struct Cursor {
    index: Arc<FileIndex>,
    options: McapReaderOptions,
    wanted: Wanted,
    /// Extents that are not loaded yet, the next one last, each with its earliest possible time.
    pending: Vec<(u64, Extent)>,
    active: Vec<Option<Active>>,
    free: Vec<usize>,
    heads: BinaryHeap<Head>,
    loaded_bytes: u64,
    /// Extents at the end of `pending` that the system was asked to read, and their bytes.
    asked: usize,
    asked_bytes: u64,
    /// Extents after which the file was read ahead.
    activated: u32,
}

impl Cursor {
    pub fn new(index: Arc<FileIndex>, options: McapReaderOptions, query: &ReadQuery) -> StorageResult<Self> {
        let wanted = Wanted::new(&index, query);
        let extents = index.extents()?;
        let mut pending = Vec::new();
        for extent in extents.iter().filter(|extent| wanted.may_be_in(extent)) {
            let time = match wanted.order {
                ReadOrder::LogTime => extent.times.0,
                ReadOrder::File => extent.start,
                ReadOrder::PublishTime => match earliest(&index, options, &wanted, extent) {
                    Some(time) => time,
                    None => continue,
                },
            };
            pending.push((time, extent.clone()));
        }
        pending.sort_by_key(|(time, extent)| Reverse((*time, extent.start)));
        Ok(Self {
            index,
            options,
            wanted,
            pending,
            active: Vec::new(),
            free: Vec::new(),
            heads: BinaryHeap::new(),
            loaded_bytes: 0,
            asked: 0,
            asked_bytes: 0,
            activated: 0,
        })
    }

    /// Whether the next extent may have a message that precedes all loaded ones.
    fn must_activate(&self) -> bool {
        let Some((time, _)) = self.pending.last() else {
            return false;
        };
        match (self.heads.peek(), self.wanted.order) {
            (None, _) => true,
            (Some(_), ReadOrder::File) => false,
            (Some(Reverse((head, ..))), _) => time <= head,
        }
    }

    fn activate(&mut self, extent: Extent) -> StorageResult<()> {
        let (records, entries) = Records::find(&self.index, self.options, &extent, &self.wanted)?;
        self.read_ahead(records.loaded_bytes > 0);
        let Some(first) = entries.first() else {
            return Ok(());
        };
        let head = (first.time, extent.start);
        self.loaded_bytes += records.loaded_bytes;
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
        self.push_head(head, slot);
        self.make_room(slot);
        Ok(())
    }

    /// Asks the system to read ahead while the current messages are processed: each extent once, because the system searches all its pages
    /// for those that it lacks (a fifth of the time of a pass, when it was asked again for each extent). Where extents are not loaded whole, only
    /// those whose messages are all wanted are read ahead, with their message indexes.
    fn read_ahead(&mut self, is_loaded: bool) {
        let source = &self.index.source;
        self.activated = self.activated.saturating_add(1);
        let bytes_max = source.read_ahead_bytes();
        while self.asked_bytes < read_ahead_bytes(self.activated, bytes_max) {
            let Some((_, extent)) = self.pending.iter().rev().nth(self.asked) else {
                return;
            };
            if is_loaded {
                source.will_need(extent.start, extent.length.min(bytes_max));
            } else if self.wanted.takes_all(extent) {
                source.will_need(extent.start, extent.length_with_indexes().min(bytes_max));
            }
            self.asked += 1;
            self.asked_bytes += extent.length;
        }
    }

    /// Takes the next extent that is not loaded.
    fn take_pending(&mut self) -> Option<Extent> {
        let (_, extent) = self.pending.pop()?;
        if self.asked > 0 {
            self.asked -= 1;
            self.asked_bytes = self.asked_bytes.saturating_sub(extent.length);
        }
        Some(extent)
    }

    fn push_head(&mut self, (time, start): (u64, u64), slot: usize) {
        // In file order an extent's next message always precedes the next extent.
        let time = if self.wanted.order == ReadOrder::File {
            0
        } else {
            time
        };
        self.heads.push(Reverse((time, start, slot)));
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
                .filter(|active| {
                    active
                        .records
                        .as_ref()
                        .is_some_and(|records| records.loaded_bytes > 0)
                })
                .max_by_key(|active| active.entries.get(active.next).map_or(0, |entry| entry.time));
            let Some(records) = latest.and_then(|active| active.records.take()) else {
                return;
            };
            self.loaded_bytes -= records.loaded_bytes;
        }
    }

    /// Returns the next message of the extent in `slot`.
    fn take(&mut self, slot: usize) -> StorageResult<Option<ReadMessage>> {
        let Some(mut active) = self.active.get_mut(slot).and_then(Option::take) else {
            return Ok(None);
        };
        let records = match active.records.take() {
            Some(records) => records,
            None => {
                let records = Records::load(&self.index, self.options, &active.extent)?;
                self.loaded_bytes += records.loaded_bytes;
                records
            }
        };
        let Some(entry) = active.entries.get(active.next) else {
            return Ok(None);
        };
        let message = records.message(&self.index, entry.offset);
        active.next += 1;
        match active.entries.get(active.next) {
            Some(next) => {
                let head = (next.time, active.extent.start);
                active.records = Some(records);
                self.active[slot] = Some(active);
                self.push_head(head, slot);
                self.make_room(slot);
            }
            None => {
                self.loaded_bytes -= records.loaded_bytes;
                self.free.push(slot);
            }
        }
        message.map(Some)
    }
}

/// How far to read ahead of the extent with this number, from 1 on: a caller that wants one message pays for no other.
fn read_ahead_bytes(activated: u32, bytes_max: u64) -> u64 {
    match activated.checked_sub(2) {
        None => 0,
        Some(doubled) => bytes_max >> DOUBLINGS.saturating_sub(doubled),
    }
}

/// The smallest publish time of the wanted messages; `None` without any. An unreadable extent sorts first, so
/// that its error comes early.
fn earliest(index: &FileIndex, options: McapReaderOptions, wanted: &Wanted, extent: &Extent) -> Option<u64> {
    let entries = Records::load(index, options, extent).and_then(|records| records.entries(wanted));
    entries.map_or(Some(0), |entries| entries.first().map(|entry| entry.time))
}

impl Iterator for Cursor {
    type Item = StorageResult<ReadMessage>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            while self.must_activate() {
                let extent = self.take_pending()?;
                // A damaged extent is one error; the iteration continues after it.
                if let Err(error) = self.activate(extent) {
                    return Some(Err(error));
                }
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
