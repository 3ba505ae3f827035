//! What a regression run has found.

use super::{Tolerance, TrajectoryComparison};
use crate::{time::Timestamp, units::counted};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// How a case ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CaseOutcome {
    /// The outputs are as they should be.
    Passed,
    /// They are not.
    Failed,
    /// It could not be run to its end: nothing can be said of the outputs.
    #[default]
    Error,
}

/// One case that was run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CaseResult {
    /// Its name.
    pub case: String,
    /// How it ended.
    pub outcome: CaseOutcome,
    /// Why it could not be run, or what is wrong with the outputs: one sentence each.
    pub problems: Vec<String>,
    /// What a reader has to know beside them: figures that were judged, and what could not be seen. One sentence each.
    #[serde(default)]
    pub notes: Vec<String>,
    /// How long it took.
    pub seconds: f64,
    /// The report of the playback, as `holdall play --json` has it.
    pub play: Value,
    /// The outputs beside those of the golden bag, by topic.
    pub topics: BTreeMap<String, TopicComparison>,
}

/// A topic of the outputs beside that of the golden bag.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TopicComparison {
    /// Messages of the golden bag.
    pub golden: u64,
    /// Messages of the outputs.
    pub found: u64,
    /// Messages of the golden bag that have none beside them.
    pub missing: u64,
    /// The same of the outputs.
    pub extra: u64,
    /// Pairs that differ by more than the tolerances.
    pub different: u64,
    /// The first of them.
    pub first: Vec<MessageDifference>,
    /// How far numbers are from each other, by field without indexes, whether that is within the tolerance or not.
    pub distances: BTreeMap<String, FieldDistance>,
    /// Its poses, where they have limits: its messages are not compared one by one then.
    #[serde(default)]
    pub trajectory: Option<TrajectoryComparison>,
    /// Its images, where they have limits.
    #[serde(default)]
    pub images: Option<ImageComparison>,
    /// How much the numbers of messages may differ; `None` if each message has to have one beside it.
    #[serde(default)]
    pub counts: Option<Tolerance>,
    /// Its messages per second, where they have a limit.
    #[serde(default)]
    pub rate: Option<RateComparison>,
}

/// Messages per second of a topic beside those of the golden bag, by the times of receipt; `None` with fewer than two of these.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RateComparison {
    /// Those of the golden bag.
    pub golden_hz: Option<f64>,
    /// Those of the outputs.
    pub found_hz: Option<f64>,
    /// How much they may differ.
    pub limit: Tolerance,
}

impl RateComparison {
    /// Both, one clause.
    fn figures(&self) -> String {
        let [golden, found] = [self.golden_hz, self.found_hz].map(|rate| match rate {
            Some(hertz) => format!("{hertz:.3}"),
            None => "no".to_owned(),
        });
        format!(
            "{found} messages per second beside {golden}, at most {} apart",
            self.limit
        )
    }

    fn is_near(&self) -> bool {
        match (self.golden_hz, self.found_hz) {
            (Some(golden), Some(found)) => self.limit.takes_numbers(golden, found),
            (None, None) => true,
            _ => self.limit == Tolerance::Any,
        }
    }
}

/// How similar images are to the golden ones.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ImageComparison {
    /// The least similarity that is allowed.
    pub limit: f64,
    /// Pairs whose similarity is known.
    pub images: u64,
    /// The sum of their similarities.
    sum: f64,
    /// The least.
    pub ssim_min: f64,
    /// Which pair has it, from 1.
    pub worst: u64,
}

impl ImageComparison {
    /// No image yet.
    pub fn new(limit: f64) -> Self {
        Self {
            limit,
            ssim_min: 1.0,
            ..Self::default()
        }
    }

    /// Takes the similarity of a pair by its number; whether it is enough.
    pub fn note(&mut self, number: u64, ssim: f64) -> bool {
        self.images += 1;
        self.sum += ssim;
        if self.worst == 0 || ssim < self.ssim_min {
            (self.ssim_min, self.worst) = (ssim, number);
        }
        ssim >= self.limit
    }

    /// The figures, one clause.
    fn figures(&self) -> String {
        let mean = self.sum / self.images.max(1) as f64;
        format!(
            "SSIM {:.4} at worst (pair {}) and {mean:.4} on average of {}, at least {}",
            self.ssim_min,
            self.worst,
            counted(self.images, "image"),
            self.limit
        )
    }
}

/// How far the numbers of a field are from those of the golden bag.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FieldDistance {
    /// The largest distance.
    pub largest: f64,
    /// Pairs of messages in each of `values`.
    pub each: u64,
    /// The largest distance in each group of pairs, in their order.
    pub values: Vec<f64>,
}

/// Values of a [`FieldDistance`].
const VALUES_MAX: usize = 512;

/// A distance as JSON can have it: it has no infinity and no NaN, as the largest numbers make them.
pub(super) fn finite(distance: f64) -> f64 {
    distance.min(1e300)
}

impl Default for FieldDistance {
    fn default() -> Self {
        Self {
            largest: 0.0,
            each: 1,
            values: Vec::new(),
        }
    }
}

impl FieldDistance {
    /// Takes the distance in a pair of messages, by its number from 1.
    pub fn note(&mut self, number: u64, distance: f64) {
        let distance = finite(distance);
        self.largest = self.largest.max(distance);
        let place = |each| usize::try_from(number.saturating_sub(1) / each).unwrap_or(usize::MAX);
        while place(self.each) >= VALUES_MAX {
            let merge = |pair: &[f64]| pair.iter().copied().fold(0.0, f64::max);
            self.values = self.values.chunks(2).map(merge).collect();
            self.each *= 2;
        }
        let place = place(self.each);
        if self.values.len() <= place {
            self.values.resize(place + 1, 0.0);
        }
        self.values[place] = self.values[place].max(distance);
    }
}

/// Two messages that differ.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MessageDifference {
    /// Which pair it is, from 1.
    pub number: u64,
    /// When that of the golden bag was received.
    pub time: Timestamp,
    /// The fields that differ: golden, found.
    pub fields: BTreeMap<String, (Value, Value)>,
}

impl TopicComparison {
    /// What is wrong, one clause; `None` if nothing is.
    pub fn problem(&self) -> Option<String> {
        let mut parts = Vec::new();
        let pairs = self.golden.saturating_sub(self.missing);
        match self.counts {
            Some(limit) if limit.takes_numbers(self.golden as f64, self.found as f64) => {}
            Some(_) => parts.extend(self.count_figures()),
            None => {
                if self.missing > 0 {
                    let golden = counted(self.golden, "message");
                    parts.push(format!("{} of {golden} missing", self.missing));
                }
                if self.extra > 0 {
                    parts.push(format!("{} more", counted(self.extra, "message")));
                }
            }
        }
        if self.counts.is_some() && self.trajectory.is_none() && self.golden > 0 && pairs == 0 {
            parts.push("no message has the stamp of a golden one, so that nothing was compared".to_owned());
        }
        let rate = self.rate.iter().filter(|rate| !rate.is_near());
        parts.extend(rate.map(RateComparison::figures));
        if self.different > 0 {
            let of = format!("{} of {pairs} differ", self.different);
            let first = self.first.first().and_then(|first| first.fields.iter().next());
            parts.push(match first {
                Some((field, (golden, found))) => {
                    format!("{of}, the first in {field}: {golden} became {found}")
                }
                None => of,
            });
        }
        parts.extend(self.trajectory.iter().flat_map(TrajectoryComparison::problems));
        (!parts.is_empty()).then(|| parts.join(", "))
    }

    /// How many messages there are, where that has a limit, one clause.
    fn count_figures(&self) -> Option<String> {
        let limit = self.counts?;
        let found = counted(self.found, "message");
        Some(format!(
            "{found} beside {} golden ones, at most {limit} apart",
            self.golden
        ))
    }

    /// The figures that were judged beside fields, one clause; `None` without such limits.
    pub fn figures(&self) -> Option<String> {
        let counts = self.count_figures().map(|counts| match self.trajectory {
            Some(_) => counts,
            None => format!(
                "{counts}, {} compared",
                counted(self.golden.saturating_sub(self.missing), "pair")
            ),
        });
        let rate = self.rate.iter().map(RateComparison::figures);
        let trajectory = self.trajectory.iter().map(TrajectoryComparison::figures);
        let images = self.images.iter().filter(|images| images.images > 0);
        let images = images.map(ImageComparison::figures);
        let figures: Vec<String> = counts
            .into_iter()
            .chain(rate)
            .chain(trajectory)
            .chain(images)
            .collect();
        (!figures.is_empty()).then(|| figures.join("; "))
    }
}

impl CaseResult {
    /// A case that could not be run.
    pub fn error(case: &str, reasons: impl Into<Vec<String>>) -> Self {
        Self {
            case: case.to_owned(),
            problems: reasons.into(),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_kept_with_a_bound_and_none_is_hidden() {
        let mut distance = FieldDistance::default();
        for number in 1..=5000 {
            distance.note(number, if number == 3001 { 7.0 } else { 0.5 });
        }
        assert_eq!((distance.largest, distance.each), (7.0, 16));
        assert_eq!(distance.values.len(), 5000_usize.div_ceil(16));
        assert_eq!(distance.values[3000 / 16], 7.0);
        assert_eq!(distance.values.iter().filter(|value| **value > 0.5).count(), 1);
    }

    #[test]
    fn the_least_similar_images_are_named() {
        let mut images = ImageComparison::new(0.9);
        assert!(images.note(1, 1.0) && images.note(2, 0.95) && !images.note(3, 0.5));
        let comparison = TopicComparison {
            images: Some(images),
            ..TopicComparison::default()
        };
        assert_eq!(
            comparison.figures().unwrap(),
            "SSIM 0.5000 at worst (pair 3) and 0.8167 on average of 3 images, at least 0.9"
        );
    }

    #[test]
    fn what_is_wrong_with_a_topic_is_one_clause() {
        let comparison = TopicComparison {
            golden: 10,
            found: 9,
            missing: 2,
            extra: 1,
            different: 1,
            first: vec![MessageDifference {
                number: 3,
                fields: [("x".to_owned(), (1.into(), 2.into()))].into(),
                ..MessageDifference::default()
            }],
            ..TopicComparison::default()
        };
        let problem = comparison.problem().unwrap();
        assert_eq!(
            problem,
            "2 of 10 messages missing, 1 message more, 1 of 8 differ, the first in x: 1 became 2"
        );
        assert_eq!(TopicComparison::default().problem(), None);
    }

    #[test]
    fn counts_and_rates_are_judged_by_their_limits() {
        let limit = |text: &str| Some(Tolerance::try_from(text.to_owned()).unwrap());
        let comparison = |counts: &str, rate: &str| TopicComparison {
            golden: 60,
            found: 54,
            missing: 10,
            extra: 4,
            counts: limit(counts),
            rate: Some(RateComparison {
                golden_hz: Some(10.0),
                found_hz: Some(9.0),
                limit: limit(rate).unwrap(),
            }),
            ..TopicComparison::default()
        };
        let near = comparison("10%", "10%");
        assert_eq!(near.problem(), None);
        assert_eq!(
            near.figures().unwrap(),
            "54 messages beside 60 golden ones, at most 10% apart, 50 pairs compared; \
             9.000 messages per second beside 10.000, at most 10% apart"
        );
        assert_eq!(
            comparison("5", "0.5").problem().unwrap(),
            "54 messages beside 60 golden ones, at most 5 apart, 9.000 messages per second beside 10.000, at most 0.5 apart"
        );
        let mut silent = comparison("any", "50%");
        silent.rate.as_mut().unwrap().found_hz = None;
        assert_eq!(
            silent.problem().unwrap(),
            "no messages per second beside 10.000, at most 50% apart"
        );
        let text = serde_json::to_string(&silent).unwrap();
        assert_eq!(serde_json::from_str::<TopicComparison>(&text).unwrap(), silent);
    }
}
