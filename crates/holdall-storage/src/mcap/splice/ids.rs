//! Numbers the channels and schemas of several files for one output, keeping as many numbers as possible.

use super::SpliceInput;
use crate::chunks::SpliceChoice;
use crate::{
    error::{StorageError, StorageResult},
    mcap::{
        format::{Channel, Schema},
        reader::index::SchemaText,
    },
    writer::ChannelInfo,
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::Path,
};

/// The output's numbers.
pub(super) struct Numbers {
    /// By input and channel index: the number in the output; `None` when the channel is not selected.
    pub of_channel: Vec<Vec<Option<u16>>>,
    /// By input: true when all its definitions keep their numbers, so that its chunks can be copied unread.
    pub is_kept: Vec<bool>,
    /// Schema records and channel records.
    pub schemas: Vec<u8>,
    pub channels: Vec<u8>,
    /// Both, for the data section.
    pub records: Vec<u8>,
    pub schema_count: u16,
    pub channel_count: u32,
    /// Each channel's number and description.
    infos: Vec<(u16, ChannelInfo)>,
}

/// Definitions in the output, by number.
#[derive(Default)]
struct Taken {
    schemas: BTreeMap<u16, SchemaText>,
    channels: BTreeMap<u16, Channel>,
    /// Numbers of schemas by name and of channels by topic: files with tens of thousands of them are compared in time.
    schemas_of_name: HashMap<String, Vec<u16>>,
    channels_of_topic: HashMap<String, Vec<u16>>,
    /// All smaller numbers of schemas and of channels are taken.
    schemas_free_from: u16,
    channels_free_from: u16,
    /// Numbers of channels that are in copied chunks but not in the output.
    reserved: BTreeSet<u16>,
}

impl Numbers {
    /// Assigns numbers: to the inputs with most bytes first, because unpacking them costs most.
    pub fn assign(inputs: &[&SpliceInput], choice: &SpliceChoice, path: &Path) -> StorageResult<Self> {
        let mut order: Vec<usize> = (0..inputs.len()).collect();
        // A file that is still written may have much more space than it uses.
        let used = |place: &usize| -> u64 {
            let extents = inputs[*place].index.extents();
            extents.map_or(0, |extents| extents.iter().map(|extent| extent.length).sum())
        };
        order.sort_by_cached_key(|place| std::cmp::Reverse(used(place)));
        let mut taken = Taken::default();
        let mut of_channel: Vec<Vec<Option<u16>>> = vec![Vec::new(); inputs.len()];
        let mut is_kept = vec![false; inputs.len()];
        let wanted = |place: usize, channel: usize| {
            let taken = choice.channels.get(place).and_then(|taken| taken.get(channel));
            taken.copied().unwrap_or(false)
        };
        for &place in &order {
            if taken.keeps(inputs[place]) {
                is_kept[place] = true;
                of_channel[place] = taken.keep(inputs[place], |channel| wanted(place, channel));
            }
        }
        for &place in order.iter().filter(|place| !is_kept[**place]) {
            of_channel[place] = taken
                .renumber(inputs[place], |channel| wanted(place, channel))
                .ok_or_else(|| StorageError::TooMany {
                    path: path.to_owned(),
                    what: "channels or schemas",
                    limit: u64::from(u16::MAX),
                })?;
        }
        Ok(taken.numbers(inputs, of_channel, is_kept))
    }

    /// Topics with their number of messages.
    pub fn counted(&self, counts: &BTreeMap<u16, u64>) -> Vec<(ChannelInfo, u64)> {
        let counted = self.infos.iter();
        counted
            .map(|(id, info)| (info.clone(), counts.get(id).copied().unwrap_or(0)))
            .collect()
    }
}

impl Taken {
    /// True when every definition of the input can keep its number.
    fn keeps(&self, input: &SpliceInput) -> bool {
        let definitions = &input.index.definitions;
        let schemas = definitions.schemas.iter().all(|(id, schema)| {
            let known = self.schemas.get(id);
            *id != 0 && known.is_none_or(|known| known == schema)
        });
        schemas
            && definitions.channels.iter().all(|(id, channel)| {
                let known = self.channels.get(id);
                !self.reserved.contains(id) && known.is_none_or(|known| known == channel)
            })
    }

    fn keep(&mut self, input: &SpliceInput, wanted: impl Fn(usize) -> bool) -> Vec<Option<u16>> {
        let definitions = &input.index.definitions;
        for (id, schema) in &definitions.schemas {
            if !self.schemas.contains_key(id) {
                self.add_schema(*id, schema.clone());
            }
        }
        let ids = input.index.ids.iter().enumerate();
        ids.map(|(place, id)| {
            let channel = definitions.channels.get(id).filter(|_| wanted(place));
            match channel {
                Some(channel) => {
                    if !self.channels.contains_key(id) {
                        self.add_channel(*id, channel.clone());
                    }
                    Some(*id)
                }
                // A channel that another input brings into the output stays in it.
                None => {
                    if !self.channels.contains_key(id) {
                        self.reserved.insert(*id);
                    }
                    None
                }
            }
        })
        .collect()
    }

    /// Numbers for the channels of an input whose own are already in use; `None` when none are left.
    fn renumber(&mut self, input: &SpliceInput, wanted: impl Fn(usize) -> bool) -> Option<Vec<Option<u16>>> {
        let definitions = &input.index.definitions;
        let mut schema_of: HashMap<u16, u16> = HashMap::from([(0, 0)]);
        let mut numbers = Vec::with_capacity(input.index.ids.len());
        for (place, id) in input.index.ids.iter().enumerate() {
            let Some(channel) = definitions.channels.get(id).filter(|_| wanted(place)) else {
                numbers.push(None);
                continue;
            };
            let schema_id = match schema_of.get(&channel.schema_id) {
                Some(known) => *known,
                None => {
                    let schema = definitions
                        .schemas
                        .get(&channel.schema_id)
                        .cloned()
                        .unwrap_or_default();
                    let number = self.schema(schema)?;
                    schema_of.insert(channel.schema_id, number);
                    number
                }
            };
            let renumbered = Channel {
                schema_id,
                ..channel.clone()
            };
            numbers.push(Some(self.channel(renumbered)?));
        }
        Some(numbers)
    }

    fn schema(&mut self, schema: SchemaText) -> Option<u16> {
        let named = self
            .schemas_of_name
            .get(schema.name.as_str())
            .into_iter()
            .flatten();
        if let Some(id) = named.copied().find(|id| self.schemas.get(id) == Some(&schema)) {
            return Some(id);
        }
        let id = (self.schemas_free_from.max(1)..=u16::MAX).find(|id| !self.schemas.contains_key(id))?;
        self.schemas_free_from = id;
        self.add_schema(id, schema);
        Some(id)
    }

    fn add_schema(&mut self, id: u16, schema: SchemaText) {
        self.schemas_of_name
            .entry(schema.name.as_str().to_owned())
            .or_default()
            .push(id);
        self.schemas.insert(id, schema);
    }

    fn channel(&mut self, channel: Channel) -> Option<u16> {
        let is_same = |known: &Channel| {
            known.schema_id == channel.schema_id
                && known.topic == channel.topic
                && known.message_encoding == channel.message_encoding
                && known.metadata == channel.metadata
        };
        let of_topic = self.channels_of_topic.get(&channel.topic).into_iter().flatten();
        if let Some(id) = of_topic
            .copied()
            .find(|id| self.channels.get(id).is_some_and(is_same))
        {
            return Some(id);
        }
        let is_free = |id: &u16| !self.channels.contains_key(id) && !self.reserved.contains(id);
        let id = match Some(channel.id).filter(is_free) {
            Some(own) => own,
            None => {
                let found = (self.channels_free_from.max(1)..=u16::MAX).find(is_free)?;
                self.channels_free_from = found;
                found
            }
        };
        self.add_channel(id, Channel { id, ..channel });
        Some(id)
    }

    fn add_channel(&mut self, id: u16, channel: Channel) {
        self.channels_of_topic
            .entry(channel.topic.clone())
            .or_default()
            .push(id);
        self.channels.insert(id, channel);
    }

    fn numbers(
        self,
        inputs: &[&SpliceInput],
        of_channel: Vec<Vec<Option<u16>>>,
        is_kept: Vec<bool>,
    ) -> Numbers {
        let (mut schemas, mut channels) = (Vec::new(), Vec::new());
        for (id, schema) in &self.schemas {
            Schema {
                id: *id,
                name: schema.name.as_str().into(),
                encoding: schema.encoding.as_str().into(),
                data: schema.data.as_ref().into(),
            }
            .encode(&mut schemas);
        }
        self.channels
            .values()
            .for_each(|channel| channel.encode(&mut channels));
        let mut infos: BTreeMap<u16, ChannelInfo> = BTreeMap::new();
        for (input, numbers) in inputs.iter().zip(&of_channel) {
            for (summary, id) in input.index.summary.channels.iter().zip(numbers) {
                if let Some(id) = id {
                    infos.entry(*id).or_insert_with(|| summary.info.clone());
                }
            }
        }
        let mut records = schemas.clone();
        records.extend_from_slice(&channels);
        Numbers {
            of_channel,
            is_kept,
            schema_count: u16::try_from(self.schemas.len()).unwrap_or(u16::MAX),
            // At most 65536.
            channel_count: self.channels.len() as u32,
            schemas,
            channels,
            records,
            infos: infos.into_iter().collect(),
        }
    }
}
