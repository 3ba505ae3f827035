//! Triggers over the past: the events that a recorder would have waited for, in bags that exist.

use super::contract::for_each;
use holdall_bag::reader::{Bag, BagSet, MessageFilter, ReadError};
use holdall_model::{
    topic::TopicId,
    trigger::{Found, PastEvents, Trigger},
};
use std::{
    cell::RefCell,
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

/// Finds the events of a bag; `before` and `after` each is what a recorder would have kept.
///
/// # Errors
/// A file that cannot be read.
pub fn find(bag: &Bag, triggers: &[Trigger], before: Duration, after: Duration) -> Result<Found, ReadError> {
    let jumps = bag.clock_jumps();
    let watched: BTreeSet<String> = triggers.iter().map(|trigger| trigger.topic.clone()).collect();
    let filter = MessageFilter {
        // Where the clock jumped is seen in the order of all messages.
        topics: jumps.is_empty().then(|| Arc::new(watched)),
        ..MessageFilter::default()
    };
    let bags = BagSet::from(vec![bag.clone()]);
    let past = RefCell::new(PastEvents::new(triggers, before, after, jumps));
    let mut known = HashMap::new();
    for_each(
        &bags,
        &filter,
        |info, plan| {
            // A recorder watches a topic's own type only.
            let topic = TopicId(u32::try_from(known.len()).unwrap_or(u32::MAX));
            if known.insert(info.name.clone(), topic).is_none() {
                past.borrow_mut().add_topic(topic, info, plan);
            }
            topic
        },
        |topic, arrival, payload| past.borrow_mut().message(topic, arrival.log_time, payload),
    )?;
    Ok(past.into_inner().end(bags.log_times().map(|(_, last)| last)))
}
