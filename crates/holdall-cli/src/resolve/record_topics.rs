//! Which topics `holdall record` records, and how many messages of each.

use super::{UsageError, names, pattern};
use crate::args::record::{REPEAT_DEPTH_MAX, RecordArguments, RecordSelection};
use holdall::record::options::{RepeatOptions, TopicPriority};
use holdall_model::{
    quantity::parse_hertz,
    selection::{Selection, SelectionError, SelectionPart},
    topic::NodeName,
};
use std::{collections::BTreeMap, num::NonZeroU32};

/// The arguments with relative names completed by the namespace of the node.
pub(super) fn in_namespace(args: &RecordArguments, node: &NodeName) -> RecordArguments {
    let mut args = args.clone();
    for names in [
        &mut args.selection.positional_topics,
        &mut args.selection.topics,
        &mut args.selection.services,
        &mut args.selection.actions,
        &mut args.selection.exclude_topics,
        &mut args.selection.exclude_services,
        &mut args.selection.exclude_actions,
        &mut args.selection.topic_throttle_frequency,
        &mut args.cache.topic_priority,
        &mut args.compression.topic_compression,
        &mut args.split.repeat_transient_local,
    ] {
        names::complete(names, node);
    }
    args
}

/// Topics to record.
pub(super) fn selection(args: &RecordSelection) -> Result<Selection, UsageError> {
    let mut topics = names::full_names("topic", &args.positional_topics)?;
    topics.extend(names::full_names("--topics", &args.topics)?);
    let selection = Selection {
        all_topics: args.all || args.all_topics,
        all_services: args.all || args.all_services,
        all_actions: args.all || args.all_actions,
        topics,
        services: names::full_names("--services", &args.services)?,
        actions: names::full_names("--actions", &args.actions)?,
        topic_types: names::type_names("--topic-types", &args.topic_types)?,
        regex: pattern::compile("--regex", args.regex.as_deref())?,
        exclude_regex: pattern::compile("--exclude-regex", args.exclude_regex.as_deref())?,
        exclude_topics: names::full_names("--exclude-topics", &args.exclude_topics)?,
        exclude_services: names::full_names("--exclude-services", &args.exclude_services)?,
        exclude_actions: names::full_names("--exclude-actions", &args.exclude_actions)?,
        exclude_topic_types: names::type_names("--exclude-topic-types", &args.exclude_topic_types)?,
        include_hidden_topics: args.include_hidden_topics,
        include_unpublished_topics: args.include_unpublished_topics,
        ignore_leaf_topics: args.ignore_leaf_topics,
    };
    match selection.validate() {
        Err(SelectionError::NothingToExcludeFrom { part }) => Err(useless_exclusion(part)),
        _ => Ok(selection),
    }
}

/// The sentence for an exclusion that can have no effect, with the flags that would give it one.
fn useless_exclusion(part: SelectionPart) -> UsageError {
    let topics_broad = "-a, --all-topics, --topic-types or --regex";
    let (flag, broad) = match part {
        SelectionPart::ExcludedTopics => ("--exclude-topics", topics_broad),
        SelectionPart::ExcludedTopicTypes => ("--exclude-topic-types", topics_broad),
        SelectionPart::ExcludedServices => ("--exclude-services", "-a, --all-services or --regex"),
        SelectionPart::ExcludedActions => ("--exclude-actions", "-a, --all-actions or --regex"),
        _ => (
            "--exclude-regex",
            "-a, --all-topics, --all-services, --all-actions, --topic-types or --regex",
        ),
    };
    UsageError::ExcludeWithoutBroadChoice { flag, broad }
}

/// The greatest rate that can be given: one message each microsecond.
const THROTTLE_HERTZ_MAX: f64 = 1e6;

/// The least rate that can be given: one message in about twelve days.
const THROTTLE_HERTZ_MIN: f64 = 1e-6;

/// `TOPIC=PRIORITY` pairs; the last one of a topic counts.
pub(super) fn priorities(pairs: &[String]) -> Result<BTreeMap<String, TopicPriority>, UsageError> {
    const FLAG: &str = "--topic-priority";
    let priority = |pair: &String| {
        let (topic, name) = pair.rsplit_once('=').unwrap_or((pair, ""));
        let priority = match name.trim() {
            "low" => TopicPriority::Low,
            "normal" => TopicPriority::Normal,
            "high" => TopicPriority::High,
            _ => {
                return Err(UsageError::BadValue {
                    flag: FLAG,
                    value: pair.clone(),
                    reason: "expected TOPIC=low, TOPIC=normal or TOPIC=high".to_owned(),
                });
            }
        };
        Ok((names::full_name(FLAG, topic.trim())?, priority))
    };
    pairs.iter().map(priority).collect()
}

/// `TOPIC` or `TOPIC=N`; the last one of a topic counts.
pub(super) fn repeats(args: &RecordArguments) -> Result<RepeatOptions, UsageError> {
    const FLAG: &str = "--repeat-transient-local";
    let topic = |text: &String| {
        let (topic, depth) = match text.rsplit_once('=') {
            Some((topic, depth)) => (topic, depth.trim().parse().ok()),
            None => (text.as_str(), Some(1)),
        };
        let depth = depth
            .filter(|depth| *depth <= REPEAT_DEPTH_MAX)
            .and_then(NonZeroU32::new);
        let depth = depth.ok_or_else(|| UsageError::BadValue {
            flag: FLAG,
            value: text.clone(),
            reason: format!("expected TOPIC or TOPIC=N with N from 1 to {REPEAT_DEPTH_MAX}"),
        })?;
        Ok((names::full_name(FLAG, topic.trim())?, depth))
    };
    // The recording then begins anywhere: without the latched state of that time it cannot be used.
    let begins_anywhere = args.cache.snapshot_mode || !args.events.trigger.is_empty();
    let all = args.split.repeat_all_transient_local;
    Ok(RepeatOptions {
        topics: args
            .split
            .repeat_transient_local
            .iter()
            .map(topic)
            .collect::<Result<_, UsageError>>()?,
        all: all.or(begins_anywhere.then_some(1)).and_then(NonZeroU32::new),
    })
}

/// `TOPIC=HZ` pairs; the last one of a topic counts.
pub(super) fn throttles(pairs: &[String]) -> Result<BTreeMap<String, f64>, UsageError> {
    const FLAG: &str = "--topic-throttle-frequency";
    let throttle = |pair: &String| {
        let refuse = |reason: String| UsageError::BadValue {
            flag: FLAG,
            value: pair.clone(),
            reason,
        };
        let Some((topic, rate)) = pair.rsplit_once('=') else {
            return Err(refuse(
                "expected TOPIC=HZ, for example /camera/image=2.5".to_owned(),
            ));
        };
        let hertz = parse_hertz(rate).ok();
        let Some(hertz) = hertz.filter(|hertz| (THROTTLE_HERTZ_MIN..=THROTTLE_HERTZ_MAX).contains(hertz))
        else {
            return Err(refuse(format!(
                "a rate from {THROTTLE_HERTZ_MIN} to {THROTTLE_HERTZ_MAX} Hz is needed"
            )));
        };
        Ok((names::full_name(FLAG, topic.trim())?, hertz))
    };
    pairs.iter().map(throttle).collect()
}
