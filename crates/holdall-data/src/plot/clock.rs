//! The clock of the horizontal axis: which messages, from when to when.

use super::{PlotError, PlotOptions};
use holdall_bag::{
    decode::{ChoiceError, Decoders, MessageChoice, TimeBase},
    reader::{BagMessage, BagSet, Moment, PlacementError},
};
use holdall_model::{time::Timestamp, topic::TopicInfo};

/// Messages by a clock other than the recorder's.
pub(super) struct Clocked {
    choice: MessageChoice,
    pub remarks: Vec<String>,
}

impl Clocked {
    /// `None` for log times.
    pub fn of(bags: &BagSet, options: &PlotOptions, topics: &[TopicInfo]) -> Result<Option<Self>, PlotError> {
        if options.time == TimeBase::LogTime {
            return Ok(None);
        }
        let named = if options.wanted.is_empty() { &[] } else { topics };
        let choice = MessageChoice {
            topics: named.iter().map(|topic| topic.name.clone()).collect(),
            time: options.time,
            ..MessageChoice::default()
        };
        let mut decoders = Decoders::new(bags.clone());
        drop(choice.messages_of_each(bags, &mut decoders)?);
        Ok(Some(Self {
            choice,
            remarks: decoders.take_notices(),
        }))
    }

    pub fn messages(
        &self,
        bags: &BagSet,
    ) -> Result<impl Iterator<Item = Result<BagMessage, ChoiceError>> + use<>, ChoiceError> {
        self.choice
            .messages_of_each(bags, &mut Decoders::new(bags.clone()))
    }

    /// The first and the last time of all messages, which must be read for it.
    pub fn ends(&self, bags: &BagSet) -> Result<Option<(Timestamp, Timestamp)>, ChoiceError> {
        let stamps = self
            .messages(bags)?
            .filter_map(|message| Some(message.ok()?.stamp));
        Ok(stamps.fold(None, |ends, stamp| match ends {
            None => Some((stamp, stamp)),
            Some((first, last)) => Some((stamp.min(first), stamp.max(last))),
        }))
    }
}

/// The first and the last log time, from the bags' own metadata.
pub(super) fn recorded(bags: &BagSet) -> Option<(Timestamp, Timestamp)> {
    let filled = || bags.bags().iter().filter(|bag| bag.metadata().message_count > 0);
    let start = filled().filter_map(|bag| bag.metadata().starting_time).min()?;
    let end = filled().filter_map(|bag| bag.metadata().ending_time()).max()?;
    Some((start, end))
}

/// Time of the left end, and the span.
///
/// # Errors
/// A time outside of these.
pub(super) fn bounds(
    ends: Option<(Timestamp, Timestamp)>,
    options: &PlotOptions,
    bags: &BagSet,
) -> Result<Option<(i64, i64)>, PlacementError> {
    let Some((start, end)) = ends else { return Ok(None) };
    let within = |moment: &Option<Moment>, what| {
        let moment = moment.as_ref();
        moment
            .map(|moment| moment.within(ends, || bags.markers(), what))
            .transpose()
    };
    let from = within(&options.start, "start")?.unwrap_or(start.saturating_add(options.start_offset));
    let until = within(&options.end, "end")?.unwrap_or_else(|| {
        let by_span = options.duration.map(|span| from.saturating_add(span));
        by_span.map_or(end, |by_span| by_span.min(end))
    });
    Ok((until >= from).then(|| {
        (
            from.as_nanos(),
            until.as_nanos().saturating_sub(from.as_nanos()).max(1),
        )
    }))
}
