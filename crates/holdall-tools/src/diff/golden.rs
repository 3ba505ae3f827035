//! Compares recorded outputs with those of a golden bag, message by message and within tolerances.

use super::{
    counts,
    fields::{compare, value},
};
use holdall_bag::{
    decode::{Decoder, Decoders, HeaderStamp},
    reader::{BagMessage, BagSet, MessageFilter, Messages, ReadError},
};
use holdall_model::{
    regress::{MessageDifference, Tolerance, Tolerances, TopicComparison},
    topic::TopicInfo,
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    iter::Peekable,
    sync::Arc,
};

/// Pairs that are listed for each topic, and fields of each.
const LISTED_MAX: usize = 10;
const FIELDS_MAX: usize = 20;

/// One topic in one of the bags.
struct Side {
    messages: Peekable<Messages>,
    decoder: Decoder,
    stamp: Option<HeaderStamp>,
}

/// Compares topics of `found` with those of a golden bag. The first messages of a topic are compared with each other, and so on; where one bag has
/// more of them, those with the same `header.stamp`, if they have one. Receive times are not compared.
///
/// Returns the comparison of each topic, and what keeps topics from being compared, one sentence each.
///
/// # Errors
/// A file that cannot be read.
pub fn compare_outputs(
    golden: &BagSet,
    found: &BagSet,
    topics: &[String],
    tolerances: &BTreeMap<String, Tolerances>,
) -> Result<(BTreeMap<String, TopicComparison>, Vec<String>), ReadError> {
    let of_bags = [golden.topics(), found.topics()];
    let counts = [counts(golden), counts(found)];
    let mut decoders = [Decoders::new(golden.clone()), Decoders::new(found.clone())];
    let (mut compared, mut problems) = (BTreeMap::new(), Vec::new());
    for name in topics {
        let count = |side: usize| counts[side].get(name).copied().unwrap_or(0);
        let mut comparison = TopicComparison {
            golden: count(0),
            found: count(1),
            ..TopicComparison::default()
        };
        let infos = [0, 1].map(|side: usize| of_bags[side].iter().find(|info| info.name == *name));
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
        let none = Tolerances::default();
        let tolerances = tolerances.get(name).unwrap_or(&none);
        let [of_golden, of_found] = &mut decoders;
        let mut sides = [side(golden, first, of_golden)?, side(found, second, of_found)?];
        run(&mut comparison, &mut sides, tolerances)?;
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

fn side(bags: &BagSet, topic: &TopicInfo, decoders: &mut Decoders) -> Result<Side, ReadError> {
    let filter = MessageFilter {
        topics: Some(Arc::new(BTreeSet::from([topic.name.clone()]))),
        ..MessageFilter::default()
    };
    let decoder = decoders.find(topic)?;
    Ok(Side {
        messages: bags.messages(&filter).peekable(),
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

/// Compares the messages of a topic.
fn run(
    comparison: &mut TopicComparison,
    sides: &mut [Side; 2],
    tolerances: &Tolerances,
) -> Result<(), ReadError> {
    let by_stamp = comparison.golden != comparison.found;
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
                pair(comparison, number, [&first, &second], decoders, tolerances);
            }
        }
    }
}

/// Compares two messages.
fn pair(
    comparison: &mut TopicComparison,
    number: u64,
    messages: [&BagMessage; 2],
    decoders: [&Decoder; 2],
    tolerances: &Tolerances,
) {
    if messages[0].payload == messages[1].payload {
        return;
    }
    let mut fields = BTreeMap::new();
    let values = [0, 1].map(|side: usize| value(decoders[side], &messages[side].payload));
    if values.iter().any(Option::is_none) {
        let bytes = |side: usize| Value::from(format!("{} bytes", messages[side].payload.len()));
        fields.insert("(bytes that cannot be decoded)".to_owned(), (bytes(0), bytes(1)));
    }
    let both = |side: usize| values[side].as_ref().filter(|_| fields.is_empty());
    let (golden, found) = (both(0), both(1));
    compare("", golden, found, &mut |field, golden, found| {
        let tolerance = tolerances.of(field);
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
