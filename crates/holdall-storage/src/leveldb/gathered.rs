//! Messages that wait to be sorted into a table.

use holdall_model::message::PayloadRef;

/// Memory of a message in addition to its bytes.
const ENTRY_BYTES: usize = size_of::<Entry>();

/// The place of a message.
struct Entry {
    stamp: i64,
    sequence: u64,
    /// Offset in the payloads.
    start: usize,
    bytes: usize,
}

/// Messages by stamp, with their payloads one after the other in one piece of memory, in order of arrival.
#[derive(Default)]
pub(super) struct Gathered {
    payloads: Vec<u8>,
    /// Entries by stamp: nearly all arrive in that order.
    entries: Vec<Entry>,
}

impl Gathered {
    /// Bytes of memory that the messages use; some more while it grows.
    pub fn bytes(&self) -> usize {
        self.payloads.len() + self.entries.len() * ENTRY_BYTES
    }

    /// Whether there is a message with this stamp.
    pub fn contains(&self, stamp: i64) -> bool {
        self.place(stamp).is_ok()
    }

    /// Adds a message, in the place of one with the same stamp; returns its payload.
    pub fn insert(&mut self, stamp: i64, sequence: u64, payload: PayloadRef<'_>) -> &[u8] {
        let place = self.place(stamp);
        let entry = Entry {
            stamp,
            sequence,
            start: self.payloads.len(),
            bytes: payload.len(),
        };
        let start = entry.start;
        payload.for_each_slice(|slice| self.payloads.extend_from_slice(slice));
        match place {
            Ok(place) => self.entries[place] = entry,
            Err(place) => self.entries.insert(place, entry),
        }
        &self.payloads[start..]
    }

    /// The place of a stamp (`Ok`), or the place to insert it (`Err`).
    fn place(&self, stamp: i64) -> Result<usize, usize> {
        match self.entries.last() {
            Some(last) if last.stamp >= stamp => {
                self.entries.binary_search_by_key(&stamp, |entry| entry.stamp)
            }
            _ => Err(self.entries.len()),
        }
    }

    /// The first and the last stamp.
    pub fn range(&self) -> Option<(i64, i64)> {
        let (first, last) = self.entries.first().zip(self.entries.last())?;
        Some((first.stamp, last.stamp))
    }

    /// Stamp, sequence and payload of each message, by stamp.
    pub fn iter(&self) -> impl Iterator<Item = (i64, u64, &[u8])> {
        self.entries.iter().map(|entry| {
            let payload = &self.payloads[entry.start..entry.start + entry.bytes];
            (entry.stamp, entry.sequence, payload)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn it_is_a_map_by_stamp(stamps in prop::collection::vec(-20_i64..20, 0..60)) {
            let (mut gathered, mut model) = (Gathered::default(), BTreeMap::new());
            for (sequence, stamp) in stamps.into_iter().enumerate() {
                let payload = vec![sequence as u8; sequence % 5];
                prop_assert_eq!(gathered.contains(stamp), model.contains_key(&stamp));
                gathered.insert(stamp, sequence as u64, PayloadRef::Bytes(&payload));
                model.insert(stamp, (sequence as u64, payload));
            }
            let range = model.first_key_value().zip(model.last_key_value());
            prop_assert_eq!(gathered.range(), range.map(|((first, _), (last, _))| (*first, *last)));
            let found: Vec<_> = gathered.iter().map(|(stamp, sequence, payload)| (stamp, (sequence, payload.to_vec()))).collect();
            prop_assert_eq!(found, model.into_iter().collect::<Vec<_>>());
        }
    }
}
