//! Resolves which events `holdall record` waits for, and which topics it watches.

use super::UsageError;
use crate::args::record::RecordArguments;
use holdall::record::options::{CacheOptions, PromoteOptions, Trigger, TriggerOptions};
use holdall_model::trigger::Condition;

const FLAG: &str = "--trigger";

/// A quarter of the cache's memory is for messages that wait for the disk, the rest for those that wait for an event.
const CACHE_PARTS: usize = 4;

/// The events, and the memory that messages wait for them in, which is taken from the cache's; `None` if everything is recorded.
///
/// # Errors
/// An expression that cannot be parsed, and flags that exclude each other.
pub(super) fn triggers(
    args: &RecordArguments,
    cache: &mut CacheOptions,
) -> Result<Option<TriggerOptions>, UsageError> {
    if !is_partial(args) {
        return Ok(None);
    }
    if args.cache.snapshot_mode {
        return Err(UsageError::Clash {
            first: FLAG,
            second: "--snapshot-mode",
            reason: "a snapshot is an event of --trigger, with --before for what it holds",
        });
    }
    if args.cache.max_cache_size == Some(0) {
        return Err(UsageError::Needs {
            flag: FLAG,
            needs: "memory: --max-cache-size greater than 0",
        });
    }
    let defaults = TriggerOptions::default();
    let for_disk = cache.bytes_max / CACHE_PARTS;
    let ring_bytes_max = cache.bytes_max - for_disk;
    cache.bytes_max = for_disk;
    Ok(Some(TriggerOptions {
        triggers: parse(FLAG, &args.events.trigger)?,
        before: args.events.before.unwrap_or(defaults.before),
        after: args.events.after.unwrap_or(defaults.after),
        ring_bytes_max,
    }))
}

/// Whether only what is around events is recorded.
fn is_partial(args: &RecordArguments) -> bool {
    let events = &args.events;
    let has_span = events.before.is_some() || events.after.is_some();
    !events.trigger.is_empty() || has_span && args.split.promote_on.is_empty()
}

/// The events of which a part of the ring is copied.
///
/// # Errors
/// An expression that cannot be parsed, a recording without a ring or contract, and flags that leave out of it what would be copied.
pub(super) fn promote(args: &RecordArguments) -> Result<Option<PromoteOptions>, UsageError> {
    const FLAG: &str = "--promote-on";
    const CONTRACT: &str = "contract";
    let (contract, triggers): (Vec<String>, Vec<String>) = args
        .split
        .promote_on
        .iter()
        .cloned()
        .partition(|text| text == CONTRACT);
    if contract.is_empty() && triggers.is_empty() {
        return Ok(None);
    }
    let needs = |flag, needs| Err(UsageError::Needs { flag, needs });
    if args.split.ring.is_none() {
        return needs(FLAG, "--ring, of which it copies a part");
    }
    if !contract.is_empty() && args.running.contract.is_none() {
        return needs("--promote-on contract", "--contract with the rules");
    }
    let has_triggers = !args.events.trigger.is_empty();
    let partial = has_triggers.then_some(self::FLAG);
    if let Some(second) = partial.or(args.cache.snapshot_mode.then_some("--snapshot-mode")) {
        return Err(UsageError::Clash {
            first: FLAG,
            second,
            reason: "it copies a part of a ring that has everything",
        });
    }
    let defaults = TriggerOptions::default();
    Ok(Some(PromoteOptions {
        triggers: parse(FLAG, &triggers)?,
        on_contract: !contract.is_empty(),
        before: args.events.before.unwrap_or(defaults.before),
        after: args.events.after.unwrap_or(defaults.after),
    }))
}

/// The triggers of a flag.
///
/// # Errors
/// An expression that cannot be parsed.
pub fn parse(flag: &'static str, texts: &[String]) -> Result<Vec<Trigger>, UsageError> {
    let parse = |text: &String| {
        Trigger::parse(text).map_err(|error| UsageError::BadValue {
            flag,
            value: text.clone(),
            reason: error.to_string(),
        })
    };
    texts.iter().map(parse).collect()
}

/// The topics that should not fall silent or below a rate.
///
/// # Errors
/// An expression that cannot be parsed, or one over fields.
pub(super) fn alarms(texts: &[String]) -> Result<Vec<Trigger>, UsageError> {
    const FLAG: &str = "--alarm";
    let alarms = parse(FLAG, texts)?;
    let of_fields = |alarm: &&Trigger| matches!(alarm.condition, Condition::Fields(_));
    match alarms.iter().find(of_fields) {
        Some(alarm) => Err(UsageError::BadValue {
            flag: FLAG,
            value: alarm.text.clone(),
            reason: "an alarm is silent or rate; fields are for --trigger".to_owned(),
        }),
        None => Ok(alarms),
    }
}

/// The condition that starts and stops episodes.
///
/// # Errors
/// An expression that cannot be parsed, one that is not over fields, and a recording that leaves out what is between.
pub(super) fn episode_when(args: &RecordArguments) -> Result<Option<Trigger>, UsageError> {
    const FLAG: &str = "--episode-when";
    let Some(text) = &args.events.episode_when else {
        return Ok(None);
    };
    let mode = is_partial(args).then_some(self::FLAG);
    if let Some(second) = mode.or(args.cache.snapshot_mode.then_some("--snapshot-mode")) {
        return Err(UsageError::Clash {
            first: FLAG,
            second,
            reason: "episodes are for recordings of everything",
        });
    }
    let trigger = parse(FLAG, std::slice::from_ref(text))?.pop();
    match trigger.filter(|trigger| matches!(trigger.condition, Condition::Fields(_))) {
        None => Err(UsageError::BadValue {
            flag: FLAG,
            value: text.clone(),
            reason: "expected a topic and an expression over its fields, for example /mode: data == 1"
                .to_owned(),
        }),
        trigger => Ok(trigger),
    }
}
