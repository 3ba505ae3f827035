//! The parts of a recording that its threads share.

use crate::{
    alarm::Alarms,
    cache::SharedCache,
    clock_watch::ClockWatch,
    contract::Judging,
    receive::{gate::Gate, intake::Intake},
    requests::SessionRequests,
    step_wait::StepWait,
    write::{drain::DrainShared, latched::LatchedKeeper},
};
use holdall_model::{loss::ledger::Ledger, qos::QosProfile, topic::OFFERS_MAX};
use std::sync::{Arc, Mutex};

/// Data for a topic's row in the status.
#[derive(Clone)]
pub(crate) struct LiveTopic {
    pub name: String,
    pub type_name: String,
    pub intake: Arc<Intake>,
    /// QoS profiles that its publishers have offered, each once and at most [`OFFERS_MAX`].
    pub offered: Vec<QosProfile>,
}

impl LiveTopic {
    /// Notes the QoS that a publisher offers; true if no other publisher did before.
    pub(super) fn note_offer(&mut self, qos: QosProfile) -> bool {
        let is_new = self.offered.len() < OFFERS_MAX && !self.offered.contains(&qos);
        if is_new {
            // Most topics have one.
            self.offered.reserve_exact(1);
            self.offered.push(qos);
        }
        is_new
    }
}

/// The parts of a recording that its threads share.
#[derive(Clone)]
pub(crate) struct Parts {
    pub gate: Arc<Gate>,
    pub cache: Arc<SharedCache>,
    pub ledger: Arc<Mutex<Ledger>>,
    pub drain: Arc<DrainShared>,
    pub requests: Arc<SessionRequests>,
    pub time: Arc<ClockWatch>,
    pub wait: Arc<StepWait>,
    pub alarms: Arc<Alarms>,
    /// `None` without a contract.
    pub judging: Option<Arc<Judging>>,
    /// In the order of subscription, as in the ledger.
    pub topics: Arc<Mutex<Vec<LiveTopic>>>,
    /// `None` unless files repeat latched messages.
    pub latched: Option<Arc<LatchedKeeper>>,
}
