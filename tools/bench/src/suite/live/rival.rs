//! The rivals' writers over a live transport: a process that subscribes to the load and stores it with a
//! double or a synchronous buffer, or counts and drops it.

use super::super::{
    config::Setting,
    load::{PublishPlan, channels},
};
use crate::{
    candidate::buffered::{Buffered, StoredCounts},
    error::BenchResult,
    measure::LatencySummary,
    suite::run::bare,
};
use holdall_io::clock::Clock;
use holdall_model::qos::Reliability;
use holdall_transport::{SubscribeRequest, Subscription, Transport};
use serde::{Deserialize, Serialize};
use std::{path::PathBuf, sync::Arc};

/// The plan of such a process, on one line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RivalPlan {
    /// The publishers.
    pub load: PublishPlan,
    /// Recorder, storage and cache.
    pub setting: Setting,
    /// The bag's folder, which exists.
    pub folder: PathBuf,
}

/// Its report at the end, on one line.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RivalReport {
    /// Messages in the file, by topic; messages taken if it writes no file.
    pub stored: Vec<u64>,
    /// Messages that found the buffer full, by topic.
    pub lost: Vec<u64>,
    /// How long its storage took for each batch.
    pub write: Option<LatencySummary>,
}

/// A recording rival.
pub struct Rival {
    buffer: Buffered,
    subscriptions: Vec<Box<dyn Subscription>>,
}

impl Rival {
    /// Subscribes to all topics of the plan.
    ///
    /// # Errors
    /// A transport that refuses, a file that cannot be made.
    pub fn start(
        plan: &RivalPlan,
        transport: &mut dyn Transport,
        clock: &Arc<dyn Clock>,
    ) -> BenchResult<Self> {
        let channels = channels(&plan.load.producers())?;
        let buffer = bare::start(&plan.setting, &plan.folder, &channels, clock)?;
        let sinks = buffer.sinks();
        let mut subscriptions = Vec::new();
        for (channel, sink) in channels.iter().zip(sinks) {
            let mut qos = channel
                .topic
                .offered_qos_profiles
                .first()
                .copied()
                .unwrap_or_default();
            if qos.reliability != Reliability::BestEffort {
                qos.reliability = Reliability::Reliable;
            }
            let request = SubscribeRequest {
                topic: channel.topic.name.clone(),
                type_name: channel.topic.type_name.clone(),
                qos,
            };
            subscriptions.push(transport.subscribe(&request, Arc::clone(sink))?);
        }
        Ok(Self {
            buffer,
            subscriptions,
        })
    }

    /// Moves the messages of transports that do not push them; returns how many.
    pub fn pump(&mut self) -> usize {
        self.subscriptions
            .iter_mut()
            .map(|subscription| subscription.pump())
            .sum()
    }

    /// Ends the subscriptions, stores the waiting messages, closes the file.
    ///
    /// # Errors
    /// The storage's error.
    pub fn close(self) -> BenchResult<RivalReport> {
        drop(self.subscriptions);
        let StoredCounts { stored, lost, writes } = self.buffer.close()?;
        Ok(RivalReport {
            stored,
            lost,
            write: writes.summary(),
        })
    }
}
