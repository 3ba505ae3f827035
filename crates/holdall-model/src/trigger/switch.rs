//! Episodes that run while a condition on the fields of a topic holds.

use super::{Condition, Conditions, Trigger, TriggerState};
use crate::{
    episode::EpisodeState,
    marker::Marker,
    message::PayloadRef,
    time::Timestamp,
    topic::{MessageDefinition, TopicId, TopicInfo},
};
use std::collections::BTreeSet;

/// The trigger that starts episodes; the other one stops them.
const STARTS: usize = 0;

/// Starts an episode when a condition becomes true, and stops it when that becomes false.
pub struct EpisodeSwitch {
    conditions: Conditions,
    /// Topics of which it gets messages before they are written.
    received: BTreeSet<TopicId>,
    /// When the last message came.
    last: Timestamp,
}

impl EpisodeSwitch {
    /// `None` for a silence or a rate: such a condition becomes true, and never false.
    pub fn new(trigger: &Trigger) -> Option<Self> {
        let Condition::Fields(expression) = &trigger.condition else {
            return None;
        };
        let stops = Trigger {
            condition: Condition::Fields(format!("!({expression})")),
            ..trigger.clone()
        };
        Some(Self {
            conditions: Conditions::new(&[trigger.clone(), stops]),
            received: BTreeSet::new(),
            last: Timestamp::default(),
        })
    }

    /// A topic is recorded from now on. `is_received`: [`Self::received`] gets its messages, [`Self::message`] ignores what is written of it.
    pub fn add_topic(&mut self, topic: TopicId, info: &TopicInfo, is_received: bool) {
        if self.received.contains(&topic) {
            return;
        }
        self.conditions.add_topic(topic, info);
        if is_received {
            self.received.insert(topic);
        }
    }

    /// The definition of a topic's type; returns why it starts no episodes, when that is news.
    pub fn define(&mut self, topic: TopicId, stored: &MessageDefinition) -> Option<String> {
        let before = self.state().fault;
        self.conditions.define_stored(topic, stored);
        self.state().fault.filter(|fault| before.as_ref() != Some(fault))
    }

    /// Takes note of a message, if it is one of the topic.
    #[inline]
    pub fn message(&mut self, topic: TopicId, time: Timestamp, payload: PayloadRef<'_>) {
        if self.conditions.watches(topic) && !self.received.contains(&topic) {
            self.received(topic, time, payload);
        }
    }

    /// As [`Self::message`], of a topic whose messages get another form before they are written.
    pub fn received(&mut self, topic: TopicId, time: Timestamp, payload: PayloadRef<'_>) {
        if self.conditions.watches(topic) {
            self.last = time;
            self.conditions.message(topic, time, payload);
        }
    }

    /// The episodes that have started and stopped since the last call, as markers. One that a person has started is left alone.
    pub fn take_markers(&mut self, episodes: &mut EpisodeState) -> Vec<Marker> {
        let mut markers = Vec::new();
        for fired in self.conditions.take_fired() {
            let event = match fired.trigger {
                STARTS => episodes.switch_on(fired.time).ok(),
                _ => episodes.switch_off(fired.time),
            };
            markers.extend(event.map(|event| Marker::of_episode(fired.time, event)));
        }
        markers
    }

    /// As [`Self::take_markers`] after the last message, with the end of an episode that runs on: that of the recording.
    pub fn end(&mut self, episodes: &mut EpisodeState) -> Vec<Marker> {
        let mut markers = self.take_markers(episodes);
        let until = episodes.ended().map_or(self.last, |ended| ended.max(self.last));
        let event = episodes.switch_off(until);
        markers.extend(event.map(|event| Marker::of_episode(until, event)));
        markers
    }

    /// Why the first message that cannot be decoded cannot, when that is news.
    pub fn take_broken(&mut self) -> Option<String> {
        let broken = self.conditions.take_broken();
        broken.into_iter().next().map(|(_, reason)| reason)
    }

    /// What it watches for.
    pub fn text(&self) -> &str {
        self.conditions.text(STARTS)
    }

    /// Whether it can start episodes.
    pub fn state(&self) -> TriggerState {
        self.conditions.states().next().cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        episode::{Episode, EpisodeChange, EpisodeEnd, EpisodeFields},
        marker::MARKERS_MAX,
        topic::DefinitionEncoding,
    };
    use proptest::prelude::*;

    const TOPIC: TopicId = TopicId(3);

    fn switch(text: &str) -> EpisodeSwitch {
        let mut switch = EpisodeSwitch::new(&Trigger::parse(text).unwrap()).unwrap();
        let info = TopicInfo {
            name: "/mode".to_owned(),
            serialization_format: "cdr".to_owned(),
            ..TopicInfo::default()
        };
        switch.add_topic(TOPIC, &info, false);
        let stored = MessageDefinition {
            type_name: "std_msgs/msg/Int32".to_owned(),
            encoding: DefinitionEncoding::Ros2Msg,
            text: "int32 data\n".to_owned(),
            ..MessageDefinition::default()
        };
        switch.define(TOPIC, &stored);
        switch
    }

    fn feed(switch: &mut EpisodeSwitch, time: i64, value: i32) {
        let mut payload = vec![0, 1, 0, 0];
        payload.extend(value.to_le_bytes());
        switch.message(TOPIC, Timestamp::from_nanos(time), PayloadRef::Bytes(&payload));
    }

    #[test]
    fn silences_and_rates_are_not_for_episodes_and_a_field_that_is_missing_is_a_fault() {
        assert!(EpisodeSwitch::new(&Trigger::parse("/mode silent 2s").unwrap()).is_none());
        assert!(switch("/mode: data == 1").state().fault.is_none());
        assert!(switch("/mode: speed == 1").state().fault.is_some());
    }

    #[test]
    fn a_topic_that_is_seen_when_it_is_received_is_not_seen_again_when_it_is_written() {
        let (mut switch, mut state) = (switch("/mode: data == 1"), EpisodeState::default());
        let again = TopicInfo::default();
        switch.received.insert(TOPIC);
        switch.add_topic(TOPIC, &again, false);
        let payload = [0, 1, 0, 0, 1, 0, 0, 0];
        switch.received(TOPIC, Timestamp::from_nanos(10), PayloadRef::Bytes(&payload));
        assert_eq!(switch.take_markers(&mut state).len(), 1);
        feed(&mut switch, 5, 0);
        assert!(switch.take_markers(&mut state).is_empty());
        assert_eq!(switch.end(&mut state)[0].time, Timestamp::from_nanos(10));
    }

    #[test]
    fn an_episode_of_a_person_is_left_alone() {
        let (mut switch, mut state) = (switch("/mode: data == 1"), EpisodeState::default());
        state
            .change(
                EpisodeChange::Start,
                Timestamp::from_nanos(5),
                EpisodeFields::new(),
            )
            .unwrap();
        feed(&mut switch, 10, 1);
        feed(&mut switch, 20, 0);
        assert!(switch.take_markers(&mut state).is_empty() && state.open().is_some());
        // And one that it has started, and a person has ended, has one end.
        state
            .change(
                EpisodeChange::Stop,
                Timestamp::from_nanos(25),
                EpisodeFields::new(),
            )
            .unwrap();
        feed(&mut switch, 30, 1);
        assert_eq!(switch.take_markers(&mut state).len(), 1);
        state
            .change(
                EpisodeChange::Discard,
                Timestamp::from_nanos(35),
                EpisodeFields::new(),
            )
            .unwrap();
        feed(&mut switch, 40, 0);
        assert!(switch.end(&mut state).is_empty());
    }

    #[test]
    fn messages_that_still_wait_at_the_end_stop_and_start_episodes_where_they_do() {
        let (mut switch, mut state) = (switch("/mode: data == 1"), EpisodeState::default());
        feed(&mut switch, 10, 1);
        let mut markers = switch.take_markers(&mut state);
        assert!(state.end(Timestamp::from_nanos(90)).is_none());
        for (time, value) in [(20, 0), (30, 1)] {
            feed(&mut switch, time, value);
        }
        markers.extend(switch.end(&mut state));
        let events = markers
            .iter()
            .filter_map(|marker| Some((marker.time, marker.episode.as_ref()?)));
        let spans: Vec<_> = Episode::list(events)
            .iter()
            .map(|one| (one.start.as_nanos(), one.until.unwrap().as_nanos()))
            .collect();
        assert_eq!(spans, [(10, 20), (30, 90)]);
    }

    #[test]
    fn a_condition_that_changes_without_end_starts_a_bounded_number() {
        let (mut switch, mut state) = (switch("/mode: data == 1"), EpisodeState::default());
        let mut count = 0;
        for time in 0..4000 {
            feed(&mut switch, time, (time % 2) as i32);
            count += switch.take_markers(&mut state).len();
        }
        assert_eq!(count, 2 * MARKERS_MAX);
        assert_eq!(state.open(), None);
    }

    #[test]
    fn a_message_that_cannot_be_decoded_is_news_once() {
        let mut switch = switch("/mode: data == 1");
        for time in 0..2 {
            switch.message(
                TOPIC,
                Timestamp::from_nanos(time),
                PayloadRef::Bytes(&[0, 1, 0, 0]),
            );
            assert_eq!(switch.take_broken().is_some(), time == 0);
        }
    }

    proptest! {
        #[test]
        fn episodes_are_the_spans_in_which_the_condition_holds(
            values in prop::collection::vec(0..3_i32, 0..40),
            taken in prop::collection::vec(any::<bool>(), 40),
        ) {
            let (mut switch, mut state) = (switch("/mode: data == 1 or data == 2"), EpisodeState::default());
            let mut markers = Vec::new();
            let mut wanted: Vec<(i64, i64)> = Vec::new();
            let mut holds = false;
            for (time, (value, take)) in (0_i64..).zip(values.iter().zip(taken)) {
                feed(&mut switch, time, *value);
                let held = std::mem::replace(&mut holds, *value != 0);
                match wanted.last_mut() {
                    Some(last) if held => last.1 = time,
                    _ if holds => wanted.push((time, time)),
                    _ => {}
                }
                if take {
                    markers.extend(switch.take_markers(&mut state));
                }
            }
            markers.extend(switch.end(&mut state));
            let events = markers.iter().filter_map(|marker| Some((marker.time, marker.episode.as_ref()?)));
            let found = Episode::list(events);
            prop_assert!(found.iter().all(|episode| episode.end == EpisodeEnd::Stopped));
            let spans: Vec<_> = found.iter().map(|one| (one.start.as_nanos(), one.until.unwrap().as_nanos())).collect();
            prop_assert_eq!(spans, wanted);
        }
    }
}
