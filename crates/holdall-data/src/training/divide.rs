//! Division of a bag into episodes: by those that were recorded as such, its markers, a field of a topic, pauses, or not at all.

use super::{
    TrainingError,
    episodes::Cutter,
    mapping::{Divider, Dtype, Episodes, Feature},
    values::{Extractor, Values},
};
use holdall_bag::{
    decode::{Decoders, Fields},
    reader::{Bag, BagSet, WholePattern},
};
use holdall_model::{
    episode::{Episode, EpisodeEnd, OUTCOME, TASK},
    marker::Marker,
    topic::TopicInfo,
};

/// The field that divides a bag: as text, or as a number.
pub(super) struct DividingField {
    text: Option<Extractor>,
    number: Extractor,
}

impl DividingField {
    fn new(fields: &Fields, field: &str) -> Result<Self, TrainingError> {
        let reason = |reason| TrainingError::Episodes { reason };
        let reading = |dtype| {
            let feature = Feature {
                topic: String::new(),
                stamp: None,
                fields: vec![field.to_owned()],
                dtype,
                names: Vec::new(),
                names_field: None,
                video: false,
            };
            Extractor::new(fields, &feature).map_err(reason)
        };
        Ok(Self {
            text: Some(reading(Dtype::String)?),
            number: reading(Dtype::Float64)?,
        })
    }

    /// The value; `None` if it is false, 0 or empty.
    pub fn read(&mut self, payload: &[u8]) -> Result<Option<String>, String> {
        if let Some(Ok(Values::Text(text))) = self.text.as_mut().map(|text| text.read(payload)) {
            return Ok(Some(text).filter(|text| !text.is_empty()));
        }
        self.text = None;
        let Values::Numbers(numbers) = self.number.read(payload)? else {
            return Ok(None);
        };
        let first = numbers.first().map(|number| number.as_f64());
        Ok(first.filter(|value| *value != 0.0).map(|value| value.to_string()))
    }
}

/// A division of a bag.
pub(super) fn cutter(episodes: &Episodes, bag: &Bag) -> Result<Cutter, TrainingError> {
    Ok(match episodes.by {
        Divider::Bag => Cutter::whole(),
        Divider::Topic => Cutter::by_value(),
        Divider::Gap => Cutter::by_gap(episodes.gap_s.unwrap_or_default()),
        Divider::Marker => {
            let (start, end) = (pattern(&episodes.start)?, pattern(&episodes.end)?);
            // Those of episodes are for `by: episode`.
            let marks = bag
                .markers()?
                .into_iter()
                .filter(|marker| marker.episode.is_none());
            Cutter::by_marks(
                marks.map(|marker| (marker.time.as_nanos(), marker.name)),
                |name| start.as_ref().is_none_or(|start| start.matches(name)),
                |name| end.as_ref().is_some_and(|end| end.matches(name)),
            )
        }
        Divider::Episode => {
            let outcome = pattern(&episodes.outcome)?;
            let fits = |episode: &Episode| match &outcome {
                Some(wanted) => episode
                    .fields
                    .get(OUTCOME)
                    .is_some_and(|found| wanted.matches(found)),
                None => true,
            };
            let mut all = Marker::episodes(&bag.markers()?);
            let recorded = all.len();
            // One on a clock that was set back has no span.
            let has_span = |episode: &Episode| episode.duration().is_some_and(|span| !span.is_zero());
            all.retain(|episode| episode.end == EpisodeEnd::Stopped && has_span(episode) && fits(episode));
            let left_out = (recorded - all.len()) as u64;
            let mut cutter = Cutter::by_spans(all.into_iter().filter_map(|mut episode| {
                let until = episode.until?.as_nanos();
                Some((episode.start.as_nanos(), until, episode.fields.remove(TASK)))
            }));
            cutter.left_out = left_out;
            cutter
        }
    })
}

fn pattern(text: &Option<String>) -> Result<Option<WholePattern>, TrainingError> {
    let compile = |text: &String| {
        WholePattern::new(text).map_err(|error| TrainingError::Episodes {
            reason: error.to_string(),
        })
    };
    text.as_ref().map(compile).transpose()
}

/// The field that divides a bag, if one does.
pub(super) fn dividing_field(
    episodes: &Episodes,
    bags: &BagSet,
    decoders: &mut Decoders,
) -> Result<Option<DividingField>, TrainingError> {
    let (Some(topic), Some(field)) = (&episodes.topic, &episodes.field) else {
        return Ok(None);
    };
    let failed = |reason| TrainingError::Episodes { reason };
    let fields = fields_of(bags, decoders, topic, TopicInfo::clone, failed)?;
    DividingField::new(&fields, field).map(Some)
}

/// The fields of a topic's messages, which may be read as those of another type.
pub(super) fn fields_of(
    bags: &BagSet,
    decoders: &mut Decoders,
    topic: &str,
    shown: impl Fn(&TopicInfo) -> TopicInfo,
    failed: impl Fn(String) -> TrainingError,
) -> Result<Fields, TrainingError> {
    let found = bags.topics().into_iter().find(|known| known.name == topic);
    let found = found.unwrap_or_default();
    let fields = decoders.find(&shown(&found))?.fields();
    fields.map_err(|reason| failed(format!("{topic}: {reason}")))
}
