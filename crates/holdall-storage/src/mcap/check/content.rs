//! The content of a file's records: definitions, and the messages of each channel as far as checks need it.

use crate::mcap::format::{Channel, MessageHeader, Schema};
use bytes::Bytes;
use std::collections::BTreeMap;

/// A checksum over entries that is independent of their order: equal sums and counts mean equal entries, up
/// to a probability of 2^-128.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct EntrySum {
    pub count: u64,
    sum: u128,
}

impl EntrySum {
    /// Adds an entry of two numbers.
    #[inline]
    pub fn add(&mut self, first: u64, second: u64) {
        self.count += 1;
        let low = mix(first ^ mix(second ^ 0x9e37_79b9_7f4a_7c15));
        let high = mix(second ^ mix(first ^ 0xd1b5_4a32_d192_ed03));
        self.sum = self.sum.wrapping_add((u128::from(high) << 64) | u128::from(low));
    }
}

/// The finalizer of splitmix64.
#[inline]
fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Known facts about a channel.
#[derive(Debug)]
pub(super) struct ChannelContent {
    pub id: u16,
    /// Its record; `None` when messages refer to a channel that was never defined.
    pub record: Option<Channel>,
    /// Offset of the record.
    pub defined_at: u64,
    pub messages: u64,
    pub last_time: u64,
    pub out_of_order: u64,
    /// `last_time` and `out_of_order` before the current chunk.
    before_chunk: (u64, u64),
    /// Entries of the current chunk.
    pub in_chunk: EntrySum,
    /// Entries of that chunk's message index; `None` until it was read.
    pub indexed: Option<EntrySum>,
}

/// Content of the data section.
#[derive(Debug, Default)]
pub(super) struct Content {
    pub schemas: BTreeMap<u16, (u64, SchemaRecord)>,
    /// Index in `channels` by id, plus one.
    places: Vec<u32>,
    pub channels: Vec<ChannelContent>,
    /// Indexes of the channels with messages in the current chunk.
    pub in_chunk: Vec<usize>,
    /// Smallest and largest log time.
    pub times: Option<(u64, u64)>,
    /// Smallest and largest log time of the current chunk.
    pub chunk_times: Option<(u64, u64)>,
    /// `times` before the current chunk.
    times_before: Option<(u64, u64)>,
    /// The messages of the current chunk were taken back.
    is_dropped: bool,
    /// Some part of the file cannot be read: its statistics count more than what was found.
    pub is_partial: bool,
}

/// A schema, owned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SchemaRecord {
    pub name: String,
    pub encoding: String,
    pub data: Bytes,
}

impl From<&Schema<'_>> for SchemaRecord {
    fn from(schema: &Schema<'_>) -> Self {
        Self {
            name: schema.name.clone().into_owned(),
            encoding: schema.encoding.clone().into_owned(),
            data: Bytes::copy_from_slice(&schema.data),
        }
    }
}

impl Content {
    /// The channel with this id, if known.
    pub fn channel(&self, id: u16) -> Option<&ChannelContent> {
        let place = *self.places.get(usize::from(id))?;
        self.channels.get((place as usize).checked_sub(1)?)
    }

    /// Index of the channel with this id, which is added when new.
    pub fn place(&mut self, id: u16) -> usize {
        if self.places.len() <= usize::from(id) {
            self.places.resize(usize::from(id) + 1, 0);
        }
        if self.places[usize::from(id)] == 0 {
            self.channels.push(ChannelContent {
                id,
                record: None,
                defined_at: 0,
                messages: 0,
                last_time: 0,
                out_of_order: 0,
                before_chunk: (0, 0),
                in_chunk: EntrySum::default(),
                indexed: None,
            });
            // At most 65536.
            self.places[usize::from(id)] = self.channels.len() as u32;
        }
        self.places[usize::from(id)] as usize - 1
    }

    /// Counts a message; `offset` is its offset in the chunk's records. True for the first one of a channel
    /// without a record.
    #[inline]
    pub fn message(&mut self, header: &MessageHeader, offset: Option<u64>) -> bool {
        let place = self.place(header.channel_id);
        let channel = &mut self.channels[place];
        let time = header.log_time;
        let is_unknown = channel.record.is_none() && channel.messages == 0;
        if offset.is_some() && channel.in_chunk.count == 0 {
            channel.before_chunk = (channel.last_time, channel.out_of_order);
            self.in_chunk.push(place);
        }
        channel.messages += 1;
        channel.out_of_order += u64::from(time < channel.last_time);
        channel.last_time = time;
        let widen = |times: &mut Option<(u64, u64)>| {
            *times = Some(times.map_or((time, time), |(min, max)| (min.min(time), max.max(time))));
        };
        widen(&mut self.times);
        if let Some(offset) = offset {
            channel.in_chunk.add(time, offset);
            widen(&mut self.chunk_times);
        }
        is_unknown
    }

    /// Takes the messages of the current chunk back: no reader gives them out.
    pub(super) fn drop_chunk(&mut self) {
        if std::mem::replace(&mut self.is_dropped, true) {
            return;
        }
        for place in &self.in_chunk {
            let channel = &mut self.channels[*place];
            channel.messages -= channel.in_chunk.count;
            (channel.last_time, channel.out_of_order) = channel.before_chunk;
        }
        self.times = self.times_before;
        self.is_partial = true;
    }

    /// Resets the state of the current chunk.
    pub(crate) fn end_chunk(&mut self) {
        for place in self.in_chunk.drain(..) {
            let channel = &mut self.channels[place];
            (channel.in_chunk, channel.indexed) = (EntrySum::default(), None);
        }
        (self.chunk_times, self.times_before, self.is_dropped) = (None, self.times, false);
    }

    /// The numbers of the channels that are defined.
    pub fn defined(&self) -> impl Iterator<Item = u16> {
        let defined = self.channels.iter().filter(|channel| channel.record.is_some());
        defined.map(|channel| channel.id)
    }

    /// Messages of all channels.
    pub fn message_count(&self) -> u64 {
        self.channels.iter().map(|channel| channel.messages).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_sums_distinguish_entries_but_not_their_order() {
        let sum = |entries: &[(u64, u64)]| {
            let mut sum = EntrySum::default();
            entries.iter().for_each(|&(a, b)| sum.add(a, b));
            sum
        };
        assert_eq!(sum(&[(1, 2), (3, 4)]), sum(&[(3, 4), (1, 2)]));
        assert_ne!(sum(&[(1, 2), (3, 4)]), sum(&[(1, 4), (3, 2)]));
        assert_ne!(sum(&[(1, 2)]), sum(&[(2, 1)]));
        assert_ne!(sum(&[(1, 2)]), sum(&[(1, 2), (1, 2)]));
    }
}
