//! Compares recorded outputs with those of a golden bag, message by message and within tolerances.

use super::{
    counts,
    fields::{compare, value},
    trajectory::trajectory,
};
use holdall_bag::{
    decode::{Decoder, Decoders, HeaderStamp},
    reader::{BagMessage, BagSet, MessageFilter, Messages, ReadError},
};
use holdall_model::{
    regress::{
        Case, ImageComparison, MessageDifference, RateComparison, Tolerance, Tolerances, TopicComparison,
        Trajectory, TrajectoryComparison, TrajectoryLimits,
    },
    time::Timestamp,
    topic::TopicInfo,
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    iter::Peekable,
    sync::Arc,
};

/// Pairs that are listed for each topic, and fields of each.
const LISTED_MAX: usize = 10;
const FIELDS_MAX: usize = 20;

/// How similar the images in a message of the golden bag and in one of the outputs are, or one clause.
pub type Likeness<'a> = dyn Fn([&BagMessage; 2]) -> Result<f64, String> + 'a;

/// What images are compared by, beside their other fields.
const SSIM: &str = "SSIM";
/// The distances of pairs of poses.
const APART: &str = "(distance of poses in m)";
/// What images lack of being the same.
const UNLIKE: &str = "(1 - SSIM)";

/// One topic in one of the bags.
pub(super) struct Side {
    pub messages: Peekable<Messages>,
    pub decoder: Decoder,
    stamp: Option<HeaderStamp>,
}

/// How the messages of a topic are compared.
struct Rules<'a> {
    tolerances: &'a Tolerances,
    likeness: Option<&'a Likeness<'a>>,
}

/// Compares the outputs of a case in `found` with those of a golden bag. The first messages of a topic are compared with each other, and so on;
/// where one bag has more of them, or `counts` allows that, those with the same `header.stamp`, if they have one. Receive times are not compared. Topics with
/// limits of a trajectory are compared by their poses only, and images with limits by their similarity instead of their data.
///
/// Returns the comparison of each topic, and what keeps topics from being compared, one sentence each.
///
/// # Errors
/// A file that cannot be read.
pub fn compare_outputs(
    golden: &BagSet,
    found: &BagSet,
    case: &Case,
    likeness: &Likeness<'_>,
) -> Result<(BTreeMap<String, TopicComparison>, Vec<String>), ReadError> {
    let of_bags = [golden.topics(), found.topics()];
    let counts = [counts(golden), counts(found)];
    let mut decoders = [Decoders::new(golden.clone()), Decoders::new(found.clone())];
    let (mut compared, mut problems) = (BTreeMap::new(), Vec::new());
    for name in &case.outputs {
        let count = |side: usize| counts[side].get(name).copied().unwrap_or(0);
        let mut comparison = TopicComparison {
            golden: count(0),
            found: count(1),
            counts: case.counts.get(name).copied(),
            rate: rates(golden, found, name, case)?,
            ..TopicComparison::default()
        };
        let infos = [0, 1].map(|side: usize| of_bags[side].iter().find(|info| info.name == *name));
        let is_limited = comparison.counts.is_some() || comparison.rate.is_some();
        let has_limits = is_limited || case.trajectories.contains_key(name) || case.images.contains_key(name);
        if has_limits && count(0) == 0 && infos[0].is_some() {
            problems.push(format!("{name} has limits, and no message in the golden bag"));
        }
        let [Some(first), Some(second)] = infos else {
            (comparison.missing, comparison.extra) = (count(0), count(1));
            if infos[0].is_none() {
                problems.push(format!("{name} is not in the golden bag"));
            }
            compared.insert(name.clone(), comparison);
            continue;
        };
        if let Some(problem) = other_type(first, second) {
            problems.push(format!("{name}: {problem}"));
        }
        let [of_golden, of_found] = &mut decoders;
        if let Some(limits) = case.trajectories.get(name) {
            let both = [
                trajectory(golden, first, of_golden, limits)?,
                trajectory(found, second, of_found, limits)?,
            ];
            let why = of_poses(&mut comparison, both, limits);
            problems.extend(why.map(|why| format!("{name}: {why}")));
        } else {
            let (none, images) = (Tolerances::default(), case.images.get(name));
            let rules = Rules {
                tolerances: case.tolerances.get(name).unwrap_or(&none),
                likeness: images.map(|_| likeness),
            };
            comparison.images = images.map(|images| ImageComparison::new(images.ssim));
            let mut sides = [side(golden, first, of_golden)?, side(found, second, of_found)?];
            run(&mut comparison, &mut sides, &rules)?;
        }
        compared.insert(name.clone(), comparison);
    }
    Ok((compared, problems))
}

fn other_type(golden: &TopicInfo, found: &TopicInfo) -> Option<String> {
    if golden.type_name != found.type_name {
        return Some(format!(
            "its type was {} and is {}",
            golden.type_name, found.type_name
        ));
    }
    let hashes = [&golden.type_description_hash, &found.type_description_hash];
    let is_other = hashes.iter().all(|hash| !hash.is_empty()) && hashes[0] != hashes[1];
    is_other.then(|| format!("the definition of {} has changed", golden.type_name))
}

/// The messages per second of a topic in both bags, if they have a limit.
fn rates(
    golden: &BagSet,
    found: &BagSet,
    name: &str,
    case: &Case,
) -> Result<Option<RateComparison>, ReadError> {
    let Some(limit) = case.rates.get(name) else {
        return Ok(None);
    };
    let rate = |bags: &BagSet| {
        let (mut first, mut last, mut steps) = (None, Timestamp::default(), 0_u64);
        for message in messages(bags, name) {
            last = message?.log_time;
            steps += u64::from(first.is_some());
            first.get_or_insert(last);
        }
        let seconds = last.saturating_since(first.unwrap_or(last)).as_secs_f64();
        Ok::<_, ReadError>((seconds > 0.0).then(|| steps as f64 / seconds))
    };
    Ok(Some(RateComparison {
        golden_hz: rate(golden)?,
        found_hz: rate(found)?,
        limit: *limit,
    }))
}

fn messages(bags: &BagSet, topic: &str) -> Messages {
    bags.messages(&MessageFilter {
        topics: Some(Arc::new(BTreeSet::from([topic.to_owned()]))),
        ..MessageFilter::default()
    })
}

pub(super) fn side(bags: &BagSet, topic: &TopicInfo, decoders: &mut Decoders) -> Result<Side, ReadError> {
    let decoder = decoders.find(topic)?;
    Ok(Side {
        messages: messages(bags, &topic.name).peekable(),
        stamp: decoder
            .clone()
            .fields()
            .ok()
            .and_then(|fields| HeaderStamp::of(&fields)),
        decoder,
    })
}

impl Side {
    /// The stamp of the next message, if it has one.
    fn stamp(&mut self) -> Option<i64> {
        let Some(Ok(message)) = self.messages.peek() else {
            return None;
        };
        let stamp = self.stamp.as_ref()?.read(&message.payload).ok()?;
        Some(stamp.as_nanos())
    }

    fn next(&mut self) -> Result<Option<BagMessage>, ReadError> {
        self.messages.next().transpose()
    }
}

/// Compares the poses of a topic; one clause if they cannot be.
fn of_poses(
    comparison: &mut TopicComparison,
    both: [Result<Trajectory, String>; 2],
    limits: &TrajectoryLimits,
) -> Option<String> {
    let both = match both {
        [Ok(golden), Ok(found)] => [golden, found],
        [Err(reason), _] | [_, Err(reason)] => return Some(reason),
    };
    let errors = comparison.distances.entry(APART.to_owned()).or_default();
    comparison.trajectory = Some(TrajectoryComparison::of(limits, both, errors));
    None
}

/// Compares the messages of a topic.
fn run(comparison: &mut TopicComparison, sides: &mut [Side; 2], rules: &Rules<'_>) -> Result<(), ReadError> {
    let by_stamp = comparison.golden != comparison.found || comparison.counts.is_some();
    let mut number = 0;
    loop {
        let [golden, found] = sides;
        if by_stamp && let (Some(first), Some(second)) = (golden.stamp(), found.stamp()) {
            if first < second {
                comparison.missing += 1;
                golden.next()?;
                continue;
            }
            if second < first {
                comparison.extra += 1;
                found.next()?;
                continue;
            }
        }
        match (golden.next()?, found.next()?) {
            (None, None) => return Ok(()),
            (Some(_), None) => comparison.missing += 1,
            (None, Some(_)) => comparison.extra += 1,
            (Some(first), Some(second)) => {
                number += 1;
                let decoders = [&sides[0].decoder, &sides[1].decoder];
                pair(comparison, number, [&first, &second], decoders, rules);
            }
        }
    }
}

/// Compares the images of two messages, where they have a limit; whether it was done.
fn likeness(
    comparison: &mut TopicComparison,
    number: u64,
    messages: [&BagMessage; 2],
    rules: &Rules<'_>,
    fields: &mut BTreeMap<String, (Value, Value)>,
) -> bool {
    let Some((likeness, images)) = rules.likeness.zip(comparison.images.as_mut()) else {
        return false;
    };
    match likeness(messages) {
        Ok(ssim) => {
            if !images.note(number, ssim) {
                fields.insert(SSIM.to_owned(), (json!(1), json!(ssim)));
            }
            let distance = comparison.distances.entry(UNLIKE.to_owned()).or_default();
            distance.note(number, (1.0 - ssim).max(0.0));
        }
        Err(reason) => _ = fields.insert(SSIM.to_owned(), (json!(1), json!(reason))),
    }
    true
}

/// Compares two messages.
fn pair(
    comparison: &mut TopicComparison,
    number: u64,
    messages: [&BagMessage; 2],
    decoders: [&Decoder; 2],
    rules: &Rules<'_>,
) {
    let mut fields = BTreeMap::new();
    let is_image = likeness(comparison, number, messages, rules, &mut fields);
    if messages[0].payload == messages[1].payload && fields.is_empty() {
        return;
    }
    let values = [0, 1].map(|side: usize| value(decoders[side], &messages[side].payload));
    if values.iter().any(Option::is_none) {
        let bytes = |side: usize| Value::from(format!("{} bytes", messages[side].payload.len()));
        fields.insert("(bytes that cannot be decoded)".to_owned(), (bytes(0), bytes(1)));
    }
    let is_read = values.iter().all(Option::is_some);
    let both = |side: usize| values[side].as_ref().filter(|_| is_read);
    let (golden, found) = (both(0), both(1));
    compare("", golden, found, &mut |field, golden, found| {
        if is_image && field == "data" {
            return;
        }
        let tolerance = rules.tolerances.of(field);
        let numbers = golden.and_then(Value::as_f64).zip(found.and_then(Value::as_f64));
        if let Some((golden, found)) = numbers.filter(|_| tolerance != Some(Tolerance::Any)) {
            let name = Tolerances::name(field).into_owned();
            let distance = comparison.distances.entry(name).or_default();
            distance.note(number, (golden - found).abs());
        }
        let is_near = match (tolerance, golden, found) {
            (Some(tolerance), Some(golden), Some(found)) => tolerance.takes(golden, found),
            (Some(Tolerance::Any), _, _) => true,
            _ => false,
        };
        if !is_near && fields.len() < FIELDS_MAX {
            let shown = |value: Option<&Value>| value.cloned().unwrap_or(Value::Null);
            fields.insert(field.to_owned(), (shown(golden), shown(found)));
        }
    });
    if fields.is_empty() {
        return;
    }
    comparison.different += 1;
    if comparison.first.len() < LISTED_MAX {
        comparison.first.push(MessageDifference {
            number,
            time: messages[0].log_time,
            fields,
        });
    }
}
