//! Frames at a fixed rate out of messages at any: which message of each feature a frame takes, and how far away it is.

use super::mapping::{Missing, Sample};
use serde::Serialize;
use std::collections::VecDeque;

/// How frames are made.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameRule {
    pub fps: u32,
    pub tolerance_ns: i64,
    pub sample: Sample,
    pub missing: Missing,
}

/// How well the messages of a feature fit the frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Fit {
    /// Frames.
    pub frames: u64,
    /// Of these, frames whose message is further away than the tolerance: the last one before was held.
    pub held: u64,
    /// The greatest distance in nanoseconds.
    pub distance_ns_max: i64,
    /// The sum of all distances in nanoseconds.
    pub distance_ns_sum: i64,
}

impl Fit {
    fn count(&mut self, distance_ns: i64, is_held: bool) {
        self.frames += 1;
        self.held += u64::from(is_held);
        self.distance_ns_max = self.distance_ns_max.max(distance_ns);
        self.distance_ns_sum = self.distance_ns_sum.saturating_add(distance_ns);
    }
}

/// A frame: its time in nanoseconds and the message of each feature.
pub(super) type Frame<T> = (i64, Vec<T>);

/// Outcome at the next time of a frame.
pub(super) enum Step<T> {
    /// A frame.
    Frame(Frame<T>),
    /// A feature, by number, has no message within the tolerance, and the episode ends or the export fails.
    Missing {
        /// The feature.
        feature: usize,
        /// The time in nanoseconds.
        at: i64,
    },
}

/// The messages of a feature that may still be taken.
struct Track<T> {
    before: Option<(i64, T)>,
    after: VecDeque<(i64, T)>,
}

/// Makes the frames of one bag, episode after episode.
pub(super) struct Sampler<T> {
    rule: FrameRule,
    tracks: Vec<Track<T>>,
    fits: Vec<Fit>,
    /// When the episode begins at the earliest; `None` between episodes.
    begin: Option<i64>,
    /// The time of frame 0.
    start: Option<i64>,
    next: i64,
}

impl<T: Clone> Sampler<T> {
    pub fn new(rule: FrameRule, features: usize) -> Self {
        let track = || Track {
            before: None,
            after: VecDeque::new(),
        };
        Self {
            rule,
            tracks: (0..features).map(|_| track()).collect(),
            fits: vec![Fit::default(); features],
            begin: None,
            start: None,
            next: 0,
        }
    }

    /// How well the messages fit so far, for each feature.
    pub fn fits(&self) -> &[Fit] {
        &self.fits
    }

    /// Begins an episode. Its first frame is when every feature has had a message.
    pub fn begin(&mut self, at: i64) {
        (self.begin, self.start, self.next) = (Some(at), None, 0);
    }

    /// Ends the episode: no frame until the next begins.
    pub fn end(&mut self) {
        self.begin = None;
        for track in &mut self.tracks {
            if let Some(last) = track.after.drain(..).next_back() {
                track.before = Some(last);
            }
        }
    }

    /// Forgets all messages until `at`, so that the next frame has newer ones only.
    pub fn forget(&mut self, at: i64) {
        for track in &mut self.tracks {
            track.before = None;
            track.after.retain(|(stamp, _)| *stamp > at);
        }
        self.begin(at);
    }

    /// A message of a feature. Stamps come in order.
    pub fn push(&mut self, feature: usize, stamp: i64, value: T) {
        let track = &mut self.tracks[feature];
        if self.begin.is_none() {
            track.before = Some((stamp, value));
        } else {
            track.after.push_back((stamp, value));
        }
    }

    /// The next frame whose messages are all known when all messages until `now` were pushed; `is_end` when no others come.
    pub fn step(&mut self, now: i64, is_end: bool) -> Option<Step<T>> {
        let begin = self.begin?;
        let start = match self.start {
            Some(start) => start,
            None => *self.start.insert(self.first(begin)?),
        };
        let at = start.saturating_add(self.next.saturating_mul(1_000_000_000) / i64::from(self.rule.fps));
        let known = if is_end || self.rule.sample == Sample::Latest {
            at
        } else {
            at.saturating_add(self.rule.tolerance_ns)
        };
        // With a message after the frame of every feature none that is nearer can come: memory does not grow with the tolerance.
        let mut lasts = self.tracks.iter().map(|track| track.after.back());
        let is_known = known < now || lasts.all(|last| last.is_some_and(|(stamp, _)| *stamp > at));
        if !is_known {
            return None;
        }
        let mut chosen = Vec::with_capacity(self.tracks.len());
        for (feature, track) in self.tracks.iter_mut().enumerate() {
            let (distance_ns, value) = track.choose(at, &self.rule)?;
            let is_held = distance_ns > self.rule.tolerance_ns;
            if is_held && self.rule.missing != Missing::Hold {
                return Some(Step::Missing { feature, at });
            }
            chosen.push((distance_ns, is_held, value));
        }
        self.next += 1;
        let counted = chosen.into_iter().zip(&mut self.fits);
        let values = counted.map(|((distance_ns, is_held, value), fit)| {
            fit.count(distance_ns, is_held);
            value
        });
        Some(Step::Frame((at, values.collect())))
    }

    /// When every feature has had a message.
    fn first(&self, begin: i64) -> Option<i64> {
        let firsts = self.tracks.iter().map(|track| match &track.before {
            Some((stamp, _)) => Some(*stamp),
            None => track.after.front().map(|(stamp, _)| *stamp),
        });
        let latest = firsts.collect::<Option<Vec<i64>>>()?.into_iter().max()?;
        Some(latest.max(begin))
    }
}

impl<T: Clone> Track<T> {
    /// The message for a frame, and its distance; those before it are let go.
    fn choose(&mut self, at: i64, rule: &FrameRule) -> Option<(i64, T)> {
        while let Some(passed) = self.after.pop_front_if(|(stamp, _)| *stamp <= at) {
            self.before = Some(passed);
        }
        let before = self.before.as_ref().map(|(stamp, value)| (at - stamp, value));
        let after = self.after.front().map(|(stamp, value)| (stamp - at, value));
        let after =
            after.filter(|(distance, _)| rule.sample == Sample::Nearest && *distance <= rule.tolerance_ns);
        let chosen = match (before, after) {
            (Some(before), Some(after)) if after.0 < before.0 => after,
            (Some(before), _) => before,
            (None, after) => after?,
        };
        Some((chosen.0, chosen.1.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The frames of messages `(feature, stamp)`, in milliseconds.
    fn frames(
        sample: Sample,
        missing: Missing,
        messages: &[(usize, i64)],
    ) -> (Vec<(i64, Vec<i64>)>, Vec<Fit>) {
        let rule = FrameRule {
            fps: 100,
            tolerance_ns: 10_000_000,
            sample,
            missing,
        };
        let mut sampler = Sampler::new(rule, 2);
        sampler.begin(0);
        let mut found = Vec::new();
        let end = messages.last().map_or(0, |(_, stamp)| stamp + 1);
        let all = messages.iter().map(|message| (Some(message), false));
        for (message, is_end) in all.chain([(None, true)]) {
            let now = message.map_or(end, |(_, stamp)| *stamp) * 1_000_000;
            if let Some((feature, stamp)) = message {
                sampler.push(*feature, now, *stamp);
            }
            while let Some(step) = sampler.step(now, is_end) {
                match step {
                    Step::Frame((at, values)) => found.push((at / 1_000_000, values)),
                    Step::Missing { at, .. } => {
                        found.push((-1, Vec::new()));
                        sampler.forget(at);
                    }
                }
            }
        }
        (found, sampler.fits().to_vec())
    }

    #[test]
    fn a_frame_takes_the_nearest_or_the_latest_message_of_each_feature() {
        let messages = [
            (0, 0),
            (1, 4),
            (0, 11),
            (1, 13),
            (0, 23),
            (1, 24),
            (0, 33),
            (1, 35),
        ];
        let (nearest, fits) = frames(Sample::Nearest, Missing::Hold, &messages);
        assert_eq!(
            nearest,
            [
                (4, vec![0, 4]),
                (14, vec![11, 13]),
                (24, vec![23, 24]),
                (34, vec![33, 35])
            ]
        );
        assert_eq!(
            (fits[0].frames, fits[0].held, fits[0].distance_ns_max),
            (4, 0, 4_000_000)
        );
        let (latest, _) = frames(Sample::Latest, Missing::Hold, &messages);
        assert_eq!(latest[3], (34, vec![33, 24]));
    }

    #[test]
    fn a_pause_of_one_feature_is_held_and_counted_or_divides() {
        let mut messages: Vec<(usize, i64)> = (0..9).map(|step| (0, step * 10)).collect();
        messages.extend([(1, 0), (1, 10), (1, 70), (1, 80)]);
        messages.sort_by_key(|(_, stamp)| *stamp);
        let (held, fits) = frames(Sample::Nearest, Missing::Hold, &messages);
        assert_eq!(held.len(), 9);
        assert_eq!(
            (fits[1].held, fits[1].distance_ns_max, fits[0].held),
            (3, 40_000_000, 0)
        );
        let (split, _) = frames(Sample::Nearest, Missing::Split, &messages);
        let times: Vec<i64> = split.iter().map(|(at, _)| *at).collect();
        assert_eq!(times, [0, 10, 20, -1, 70, 80]);
    }
}
