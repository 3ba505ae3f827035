//! Publishers that went silent, and the last messages of all of them.

use super::{RecordedTopic, Session};
use crate::receive::{
    discovery::{Departure, GraphDecision},
    intake::PastTime,
};
use holdall_model::units::counted;
use holdall_model::{loss::UnknownEnds, text::Outside, time::Timestamp, topic::Gid};
use std::{collections::BTreeSet, time::Duration};

/// Topics that a line of the log names.
const TOPICS_LISTED_MAX: usize = 8;

/// The time of day this long ago.
fn time_before(now: Timestamp, ago: Duration) -> Timestamp {
    let ago = i64::try_from(ago.as_nanos()).unwrap_or(i64::MAX);
    Timestamp::from_nanos(now.as_nanos().saturating_sub(ago))
}

/// A publisher that went silent without a farewell.
pub(super) struct SilentPublisher {
    topic: String,
    /// Since when, in monotonic time: the time of day may have been set since.
    since: Duration,
}

impl Session {
    /// Notes that a publisher is gone.
    pub(super) fn publisher_gone(&mut self, topic: &str, gid: Gid, departure: Departure) {
        let last = self
            .topics
            .get(topic)
            .and_then(|topic| self.last_message(topic, gid));
        let Some(recorded) = self.topics.get_mut(topic) else {
            return;
        };
        if let Some(since) = recorded.publisher_gone(gid, departure, last, self.clock.now()) {
            self.silent.push(self.silent_since(topic, since));
        }
    }

    fn silent_since(&self, topic: &str, since: PastTime) -> SilentPublisher {
        SilentPublisher {
            topic: topic.to_owned(),
            since: self.clock.monotonic().saturating_sub(since.ago),
        }
    }

    /// When the last message of a publisher came.
    fn last_message(&self, topic: &RecordedTopic, gid: Gid) -> Option<PastTime> {
        let time = topic.intake.last_message(gid)?;
        let ago = self.parts.time.ago(time);
        Some(PastTime { time, ago })
    }

    /// Logs which publishers went silent since the last call: one line, as a computer that leaves takes all of its publishers with it.
    pub(super) fn report_silent(&mut self) {
        let silent = std::mem::take(&mut self.silent);
        self.warn_of(&silent, "went silent without a farewell");
    }

    fn warn_of(&self, silent: &[SilentPublisher], what: &str) {
        let Some(since) = silent.iter().map(|one| one.since).min() else {
            return;
        };
        let topics: BTreeSet<&str> = silent.iter().map(|one| &*one.topic).collect();
        let named: Vec<String> = topics
            .iter()
            .take(TOPICS_LISTED_MAX)
            .map(|topic| Outside(topic).to_string())
            .collect();
        let more = match topics.len() - named.len() {
            0 => String::new(),
            more => format!(" and {more} more topics"),
        };
        let publishers = counted(silent.len() as u64, "publisher");
        let ago = self.clock.monotonic().saturating_sub(since);
        tracing::warn!(
            "{}: {publishers} ({}{more}) {what}; what was sent in the last {:.1} s is not known",
            UnknownEnds::SILENT,
            named.join(", "),
            ago.as_secs_f64()
        );
    }

    /// The recording was asked to end: from now on each publisher whose end is not known is watched for a later message.
    pub(crate) fn note_stop(&self) {
        let now = self.clock.now();
        self.topics.values().for_each(|topic| topic.intake.note_stop(now));
    }

    /// Asks publishers how many messages they have sent, and notes those that have left since; true if an end was shown.
    pub(crate) fn ask_ends(&mut self) -> bool {
        self.follow_departures();
        let mut is_news = false;
        for topic in self.topics.values_mut() {
            is_news |= topic.ask_ends();
        }
        is_news
    }

    /// True while a publisher that can answer has not.
    pub(crate) fn awaits_answer(&self) -> bool {
        let mut topics = self.topics.values();
        topics.any(|topic| !topic.intake.ends_asked().is_empty())
    }

    /// True while one of them that was heard within the last `span` has not.
    pub(crate) fn awaits_answer_of_living(&self, span: Duration) -> bool {
        self.topics.values().any(|topic| {
            let mut asked = topic.intake.ends_asked().into_iter();
            asked.any(|gid| self.heard_ago(topic, gid).is_some_and(|ago| ago <= span))
        })
    }

    /// How long ago a publisher gave its last sign of life, if its transport knows it.
    fn heard_ago(&self, topic: &RecordedTopic, gid: Gid) -> Option<Duration> {
        let transport = &self.sources[topic.transport_of(gid)?].transport;
        transport.silent_for(gid)
    }

    /// True while a later message can show the end of a publisher.
    pub(crate) fn awaits_later_message(&self) -> bool {
        let mut topics = self.topics.values();
        topics.any(|topic| topic.intake.awaits_later_message())
    }

    /// Notes which publishers have not answered.
    pub(crate) fn end_questions(&self) {
        let now = self.clock.now();
        let mut silent = Vec::new();
        for topic in self.topics.values() {
            for gid in topic.intake.ends_asked() {
                let heard = || {
                    PastTime::new(
                        time_before(now, self.heard_ago(topic, gid).unwrap_or_default()),
                        now,
                    )
                };
                let since = self.last_message(topic, gid).unwrap_or_else(heard);
                topic.intake.not_answered(gid, since.time);
                silent.push(self.silent_since(&topic.name, since));
            }
        }
        self.warn_of(&silent, "did not answer at the end");
    }

    /// Applies arrivals and departures on recorded topics: the time of arrival decides which messages are missing. No more topics are added.
    fn follow_departures(&mut self) {
        for number in 0..self.sources.len() {
            let source = &mut self.sources[number];
            if source.failure.is_some() {
                continue;
            }
            let mut events = Vec::new();
            if let Err(error) = source.transport.poll_graph(&mut events) {
                self.transport_failed(number, &error);
                continue;
            }
            source.discovery.close();
            let mut decisions = source.discovery.apply(events);
            decisions.retain(|decision| match decision {
                GraphDecision::Publisher(publisher) => self.topics.contains_key(&publisher.topic),
                GraphDecision::PublisherGone { .. } => true,
                _ => false,
            });
            self.defer(number, decisions);
        }
        self.execute_decided();
        self.report_silent();
    }
}
