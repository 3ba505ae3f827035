//! What good recordings show of stamps, contents and transforms, and the rules that follow from it.

use super::{
    content::{Facts, Learnable},
    drift::Drift,
    tree::{self, Edge, TF_TOPICS},
};
use crate::{
    time::Timestamp,
    units::{counted, format_count},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// Windows over which drift is measured: the longer one is learned where there is enough of it.
const DRIFT_WINDOWS: [Duration; 2] = [Duration::from_secs(20), Duration::from_secs(60)];
/// Measurements from which on a bound is learned; a window has 24.
const DRIFTS_MIN: u64 = 12;
/// Larger drifts and steps of a good recording make no rule, in millionths and nanoseconds.
const PPM_MAX: f64 = 300.0;
const STEP_MAX: i64 = 10_000_000_000;
/// The smallest bounds: what is below is not noticed by anything.
const PPM_MIN: f64 = 10.0;
const STEP_MIN: i64 = 10_000_000;
/// The fewest equal messages in a row that are too many.
const RUN_MIN: u64 = 5;
/// Shares above this make no rule.
const SHARE_MAX: f64 = 0.9;
/// Encodings that are listed.
const NAMES_MAX: usize = 4;
/// Frames that are kept, and those that a rule lists.
const FRAMES_MAX: usize = 1000;
const FRAMES_LISTED_MAX: usize = 16;

/// A rule as text, and from how much data it is.
pub(super) type Learning = (String, String);

/// What the messages of a topic show.
#[derive(Debug, Default)]
pub(super) struct Content {
    drifts: [Option<Drift>; DRIFT_WINDOWS.len()],
    /// Measurements with each window, and the largest.
    slopes: [(u64, f64); DRIFT_WINDOWS.len()],
    /// The largest step of the latency from one message to the next.
    step: i64,
    steps: u64,
    last: Option<(Timestamp, i64)>,
    /// Messages in a row with the same content now, at most, and messages that were compared.
    run: u64,
    longest_run: u64,
    compared: u64,
    digest: Option<u64>,
    /// Messages with values that can be NaN, and the largest share of those that are not finite.
    finite: (u64, f64),
    images: Images,
}

#[derive(Debug, Default)]
struct Images {
    count: u64,
    encodings: BTreeSet<String>,
    sizes: BTreeSet<(u64, u64)>,
    /// Those whose pixels were judged, and the largest shares of black and of saturated ones.
    judged: u64,
    black: f64,
    saturated: f64,
}

impl Content {
    /// The next recording begins.
    pub fn begin_bag(&mut self) {
        *self = Self {
            drifts: Default::default(),
            last: None,
            run: 0,
            digest: None,
            ..std::mem::take(self)
        };
    }

    /// Takes a message, in the order of log times.
    pub fn message(&mut self, facts: &Facts, learnable: Learnable) {
        if let Some(stamp) = facts.stamp {
            self.stamp(facts.time, stamp);
        }
        self.compared += 1;
        self.run = if self.digest.replace(facts.digest) == Some(facts.digest) {
            self.run + 1
        } else {
            1
        };
        self.longest_run = self.longest_run.max(self.run);
        if let Some(share) = learnable.not_finite {
            self.finite = (self.finite.0 + 1, self.finite.1.max(share));
        }
        let Some(look) = learnable.image else { return };
        let images = &mut self.images;
        images.count += 1;
        if images.encodings.len() <= NAMES_MAX {
            images.encodings.insert(look.encoding);
            images.sizes.insert((look.width, look.height));
        }
        if let Some([black, saturated]) = look.shares {
            images.judged += 1;
            images.black = images.black.max(black);
            images.saturated = images.saturated.max(saturated);
        }
    }

    fn stamp(&mut self, time: Timestamp, stamp: i64) {
        let latency = time.as_nanos().saturating_sub(stamp);
        for ((drift, window), (count, most)) in
            self.drifts.iter_mut().zip(DRIFT_WINDOWS).zip(&mut self.slopes)
        {
            let drift = drift.get_or_insert_with(|| Drift::over(window));
            drift.time(time, &mut |_, ppm| {
                *count += 1;
                *most = most.max(ppm.abs());
            });
            drift.message(time, latency);
        }
        if let Some((_, last)) = self.last.replace((time, latency)) {
            self.steps += 1;
            self.step = self.step.max(latency.saturating_sub(last).saturating_abs());
        }
    }

    /// The rules about stamps, if there are some.
    pub fn of_stamps(&self) -> Vec<Learning> {
        let mut rules = Vec::new();
        if self.steps > 0 && self.step < STEP_MAX {
            let bound = (self.step * 2).max(STEP_MIN);
            rules.push((
                format!("jump: {}ms", (bound as f64 / 1e6).ceil()),
                format!(
                    "the largest of {} steps: {:.1} ms",
                    format_count(self.steps),
                    self.step as f64 / 1e6
                ),
            ));
        }
        let measured = self.slopes.iter().zip(DRIFT_WINDOWS).rev();
        let mut measured = measured.filter(|((count, most), _)| *count >= DRIFTS_MIN && *most < PPM_MAX);
        if let Some(((count, most), window)) = measured.next() {
            rules.push((
                format!(
                    "drift: {{ppm: {}, window: {}s}}",
                    (most * 2.0).max(PPM_MIN).ceil(),
                    window.as_secs()
                ),
                format!("the largest of {}: {most:.1} ppm", counted(*count, "measurement")),
            ));
        }
        rules
    }

    /// The rules about contents.
    pub fn of_contents(&self) -> Vec<Learning> {
        let mut rules = Vec::new();
        // What stays the same for long in good recordings may stay the same for longer.
        if self.longest_run * 10 <= self.compared {
            let run = counted(self.longest_run, "message");
            rules.push((
                format!("frozen: {}", (self.longest_run * 3).max(RUN_MIN)),
                format!(
                    "at most {run} in a row with the same content, of {}",
                    format_count(self.compared)
                ),
            ));
        }
        let (messages, share) = self.finite;
        if messages == self.compared && share < SHARE_MAX {
            let bound = if share == 0.0 {
                0.0
            } else {
                (share * 1.5 + 0.01).min(1.0)
            };
            rules.push((
                format!("non_finite: {}", percent(bound)),
                format!("at most {} in {}", percent(share), counted(messages, "message")),
            ));
        }
        rules.extend(self.images.rule());
        rules
    }
}

impl Images {
    fn rule(&self) -> Option<Learning> {
        let mut fields = Vec::new();
        if (1..=NAMES_MAX).contains(&self.encodings.len()) {
            let names: Vec<String> = self
                .encodings
                .iter()
                .map(|name| super::learn::quoted(name))
                .collect();
            fields.push(format!("encoding: [{}]", names.join(", ")));
        }
        if let (1, Some((width, height))) = (self.sizes.len(), self.sizes.first()) {
            fields.push(format!("width: {width}, height: {height}"));
        }
        let shares = [("black", self.black), ("saturated", self.saturated)];
        for (name, share) in shares
            .iter()
            .filter(|(_, share)| self.judged == self.count && *share < SHARE_MAX)
        {
            // Half way to an image that is nothing else.
            fields.push(format!("{name}: {}", percent((1.0 + share) / 2.0)));
        }
        let from = format!(
            "at most {} black and {} saturated in {}",
            percent(self.black),
            percent(self.saturated),
            counted(self.judged, "image")
        );
        let from = if self.judged == self.count {
            from
        } else {
            counted(self.count, "image")
        };
        (self.count > 0 && !fields.is_empty()).then(|| (format!("image: {{{}}}", fields.join(", ")), from))
    }
}

/// A share as whole percent, rounded up.
fn percent(share: f64) -> String {
    format!("{}%", (share * 100.0).ceil())
}

/// A frame and how it was attached.
#[derive(Debug)]
struct Attached {
    parents: BTreeSet<String>,
    is_static: bool,
    /// Recordings in which it was.
    bags: usize,
    /// When it came first after a start, at most, and the longest time between two transforms, in nanoseconds.
    first: i64,
    gap: i64,
    last: Option<Timestamp>,
}

/// The transforms of good recordings.
#[derive(Debug, Default)]
pub(super) struct Transforms {
    frames: BTreeMap<String, Attached>,
    bags: usize,
    is_in_bag: bool,
    count: u64,
}

impl Transforms {
    /// The next recording begins.
    pub fn begin_bag(&mut self) {
        self.is_in_bag = false;
        self.frames.values_mut().for_each(|attached| attached.last = None);
    }

    /// Takes the transforms of a message on a topic.
    pub fn message(&mut self, topic: &str, (start, time): (Timestamp, Timestamp), edges: &[Edge]) {
        if !TF_TOPICS.contains(&topic) || edges.is_empty() {
            return;
        }
        self.bags += usize::from(!std::mem::replace(&mut self.is_in_bag, true));
        let is_static = tree::is_static(topic);
        for Edge { child, parent } in edges {
            self.count += 1;
            if self.frames.len() >= FRAMES_MAX && !self.frames.contains_key(child) {
                continue;
            }
            let attached = self.frames.entry(child.clone()).or_insert_with(|| Attached {
                parents: BTreeSet::new(),
                is_static: true,
                bags: 0,
                first: 0,
                gap: 0,
                last: None,
            });
            attached.is_static &= is_static;
            if attached.parents.len() < 2 {
                attached.parents.insert(parent.clone());
            }
            match attached.last.replace(time) {
                Some(last) => {
                    attached.gap = attached.gap.max(time.as_nanos().saturating_sub(last.as_nanos()))
                }
                None => {
                    attached.bags += 1;
                    attached.first = attached
                        .first
                        .max(time.as_nanos().saturating_sub(start.as_nanos()));
                }
            }
        }
    }

    /// The rules: each tree that all recordings had, by its root and its leaves.
    pub fn rules(&self) -> Vec<Learning> {
        let is_steady = |attached: &&Attached| attached.parents.len() == 1 && attached.bags == self.bags;
        let parent_of = |frame: &str| self.frames.get(frame).filter(is_steady)?.parents.first();
        let mut trees: BTreeMap<&str, Vec<(&str, &Attached)>> = BTreeMap::new();
        for (frame, attached) in self.frames.iter().filter(|(_, attached)| is_steady(attached)) {
            let mut root = frame.as_str();
            // A ring of frames has no root.
            for _ in 0..self.frames.len() {
                let Some(parent) = parent_of(root) else { break };
                root = parent;
            }
            if parent_of(root).is_none() {
                trees.entry(root).or_default().push((frame, attached));
            }
        }
        trees
            .into_iter()
            .map(|(root, frames)| self.rule(root, &frames))
            .collect()
    }

    fn rule(&self, root: &str, frames: &[(&str, &Attached)]) -> Learning {
        let is_parent = |frame: &str| frames.iter().any(|(_, other)| other.parents.contains(frame));
        let leaves = frames
            .iter()
            .map(|(frame, _)| *frame)
            .filter(|frame| !is_parent(frame));
        let named = std::iter::once(root).chain(leaves).take(FRAMES_LISTED_MAX);
        let named: Vec<String> = named.map(super::learn::quoted).collect();
        let first = frames
            .iter()
            .map(|(_, attached)| attached.first)
            .max()
            .unwrap_or(0);
        let moving = frames.iter().filter(|(_, attached)| !attached.is_static);
        let gap = moving.map(|(_, attached)| attached.gap).max();
        let timeout = gap.map(|gap| format!(", timeout: {}s", (gap as f64 * 3.0 / 1e9).max(1.0).ceil()));
        let rule = format!(
            "{{connected: [{}]{}, within: {}s}}",
            named.join(", "),
            timeout.unwrap_or_default(),
            (first as f64 / 1e9 * 2.0 + 1.0).ceil()
        );
        let gap = gap.map_or(String::new(), |gap| {
            format!(", at most {:.2} s apart", gap as f64 / 1e9)
        });
        let from = format!(
            "{} in {}{gap}",
            counted(self.count, "transform"),
            counted(self.bags as u64, "bag")
        );
        (rule, from)
    }
}
