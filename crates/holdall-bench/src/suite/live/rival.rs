//! The rivals' writers over a live transport: a process that subscribes to the load and stores it with a
//! double or a synchronous buffer.

use super::super::{
    config::{RecorderKind, Setting},
    load::{Frame, PublishPlan},
};
use crate::{
    candidate::{double_buffered::DoubleBuffered, storing::StoredCounts, synchronous::Synchronous},
    error::{BenchError, BenchResult},
    measure::LatencySummary,
    suite::run::bare::bare_writer,
};
use holdall_io::clock::Clock;
use holdall_model::{qos::Reliability, topic::TopicInfo};
use holdall_storage::writer::ChannelInfo;
use holdall_transport::{Sink, SubscribeRequest, Subscription, Transport};
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
    /// Messages in the file, by topic.
    pub stored: Vec<u64>,
    /// Messages that found the buffer full, by topic.
    pub lost: Vec<u64>,
    /// How long its storage took for each batch.
    pub write: Option<LatencySummary>,
}

enum Buffer {
    Double(DoubleBuffered),
    Synchronous(Synchronous),
}

/// A recording rival.
pub struct Rival {
    buffer: Buffer,
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
        let (channels, depths) = channels(&plan.load)?;
        let writer = bare_writer(&plan.setting, &plan.folder, &channels)?;
        let cache = plan.setting.max_cache_size_bytes;
        let buffer = if plan.setting.recorder == RecorderKind::Synchronous {
            Buffer::Synchronous(Synchronous::start(writer, &depths, cache, Arc::clone(clock))?)
        } else {
            Buffer::Double(DoubleBuffered::start(
                writer,
                channels.len(),
                cache,
                Arc::clone(clock),
            )?)
        };
        let sinks: &[Arc<dyn Sink>] = match &buffer {
            Buffer::Double(buffer) => buffer.sinks(),
            Buffer::Synchronous(buffer) => buffer.sinks(),
        };
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
        let StoredCounts { stored, lost, writes } = match self.buffer {
            Buffer::Double(buffer) => buffer.close()?,
            Buffer::Synchronous(buffer) => buffer.close()?,
        };
        Ok(RivalReport {
            stored,
            lost,
            write: writes.summary(),
        })
    }
}

/// Channels and queue depths of all topics, in the order in which publishers count them.
fn channels(plan: &PublishPlan) -> BenchResult<(Vec<ChannelInfo>, Vec<u64>)> {
    let (mut channels, mut depths) = (Vec::new(), Vec::new());
    for group in &plan.producers().groups {
        let frame = Frame::new(&group.msg_type, 0).map_err(|source| BenchError::Option {
            option: "msg_type",
            expected: "a message type that can be made".to_owned(),
            found: source.to_string(),
        })?;
        let definition = frame.definition.message_definition();
        for place in 1..=group.publishers_count {
            depths.push(group.qos.depth);
            channels.push(ChannelInfo {
                topic: TopicInfo {
                    name: format!("{}/{}_{place}", super::super::load::NODE, group.topic_root),
                    type_name: group.msg_type.clone(),
                    serialization_format: "cdr".to_owned(),
                    offered_qos_profiles: vec![group.qos],
                    type_description_hash: definition.type_description_hash.clone(),
                    ..TopicInfo::default()
                },
                definition: definition.clone(),
            });
        }
    }
    Ok((channels, depths))
}
