//! The state of a recording: the counters of all its parts, put together on request.

use super::{
    receive::session::{LiveTopic, Parts},
    status::{RecordStatus, TopicStatus},
};
use holdall_io::clock::Clock;
use holdall_io::mutex::lock;
use holdall_model::{
    loss::{LossStage, ledger::TopicAccount},
    qos::{History, QosProfile},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

/// State needed to report on a recording.
#[derive(Clone)]
pub(super) struct View {
    pub parts: Parts,
    pub clock: Arc<dyn Clock>,
    pub started: Duration,
}

/// Returns a recording's state, from any thread. Cheap to clone; of a recording that has ended it returns the
/// final state.
#[derive(Clone)]
pub struct RecordObserver(pub(super) View);

impl RecordObserver {
    /// The recording's present state.
    pub fn status(&self) -> RecordStatus {
        self.0.status()
    }

    /// The QoS that publishers have offered, as one line each, by topic.
    pub fn offered_qos(&self) -> BTreeMap<String, Vec<String>> {
        let topics = lock(&self.0.parts.topics);
        let offers = |topic: &LiveTopic| topic.offered.iter().map(one_line).collect();
        topics
            .iter()
            .map(|topic| (topic.name.clone(), offers(topic)))
            .collect()
    }

    /// The nodes that are known to publish on each topic, by topic; discovery reports some of them after
    /// their first messages.
    pub fn nodes(&self) -> BTreeMap<String, BTreeSet<String>> {
        let ledger = lock(&self.0.parts.ledger);
        let nodes = |topic: &TopicAccount| topic.publishers.iter().filter_map(|it| it.node.clone()).collect();
        let topics = ledger.topics.iter();
        topics.map(|topic| (topic.name.clone(), nodes(topic))).collect()
    }
}

fn one_line(qos: &QosProfile) -> String {
    let (reliability, durability) = (qos.reliability.as_str(), qos.durability.as_str());
    match qos.history {
        // Fast DDS does not announce it.
        History::Unknown => format!("{reliability}, {durability}"),
        history => format!("{reliability}, {durability}, {} {}", history.as_str(), qos.depth),
    }
}

impl View {
    /// The last look for alarms, when all accounts are closed.
    pub(super) fn finish_alarms(&self) {
        let (now, time) = (self.clock.monotonic(), self.clock.now());
        self.parts.alarms.finish(&self.parts, now, time);
    }

    pub(super) fn status(&self) -> RecordStatus {
        let parts = &self.parts;
        let drain = parts.drain.status();
        // Copied out, so that no lock is taken inside of another.
        let live = lock(&parts.topics).clone();
        let counts: Vec<(u64, usize)> = live
            .iter()
            .map(|topic| (topic.intake.received(), topic.intake.publishers()))
            .collect();
        let rates = parts.alarms.rates(self.clock.monotonic());
        let alarms = parts.alarms.status();
        let ledger = lock(&parts.ledger);
        let topics = live.iter().zip(&counts).zip(&ledger.topics).enumerate().map(
            |(index, ((live, (received, publishers)), account))| {
                let (rate_hz, age) = rates.get(index).copied().unwrap_or_default();
                TopicStatus {
                    durable: drain.durable.get(index).copied().unwrap_or(0),
                    rate_hz,
                    age,
                    ..topic_status(live, *received, *publishers, account)
                }
            },
        );
        RecordStatus {
            elapsed: self.clock.monotonic().saturating_sub(self.started),
            paused: parts.gate.is_paused(),
            recorded: ledger.recorded(),
            recorded_bytes: ledger.topics.iter().map(|topic| topic.recorded_bytes).sum(),
            written_bytes: drain.written_bytes.load(Ordering::Relaxed),
            cache_bytes: parts.cache.held_bytes(),
            cache_bytes_max: parts.cache.bytes_max(),
            cache_survives: parts.cache.source().survival(),
            lost: ledger.lost(),
            disk_available_bytes: drain.available_bytes,
            disk_full_in: drain.full_in,
            write_path: drain.write_path.clone(),
            current_file: drain.current_file.clone(),
            durability: drain.durability.clone(),
            must_end: drain.must_end.clone(),
            unheard_services: parts.drain.unheard_services(),
            not_heard: parts.drain.not_heard(),
            networks: parts.drain.networks(),
            triggered: drain.triggered.clone(),
            alarms,
            contract: parts.judging.as_ref().map(|judging| judging.status()),
            clock_jumps: parts.time.jumps(),
            waits_for_clock: parts.gate.waits_for_clock(),
            topics: topics.collect(),
        }
    }
}

fn topic_status(live: &LiveTopic, received: u64, publishers: usize, account: &TopicAccount) -> TopicStatus {
    let mut lost = account.missing.clone();
    let left_out = lost.remove(&LossStage::Policy).unwrap_or(0);
    TopicStatus {
        name: live.name.clone(),
        type_name: live.type_name.clone(),
        publishers,
        received,
        rate_hz: 0.0,
        age: None,
        recorded: account.recorded,
        durable: 0,
        recorded_bytes: account.recorded_bytes,
        lost,
        left_out,
        expired: account.expired,
        loss_unknown: account.loss_unknown,
        ends: account.unknown_ends(),
    }
}
