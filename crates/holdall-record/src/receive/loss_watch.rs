//! Logs that messages are being lost: when a loss begins, not for every message.

use crate::Setting;
use holdall_model::loss::durability::not_running;
use holdall_model::loss::{LossStage, LossSums, ledger::Ledger};
use std::{collections::BTreeSet, time::Duration};

/// Losses that were already logged.
#[derive(Debug, Default)]
pub(crate) struct LossWatch {
    logged: BTreeSet<(usize, LossStage)>,
}

impl LossWatch {
    /// Logs each topic and stage that has its first loss; returns how many were logged. `absence` is how long this process has just not
    /// run, which explains what the system could not hold meanwhile.
    pub(crate) fn log_new(&mut self, ledger: &Ledger, absence: Option<Duration>) -> usize {
        let before = self.logged.len();
        for (index, topic) in ledger.topics.iter().enumerate() {
            for (&stage, count) in &topic.missing {
                if stage == LossStage::Policy || !self.logged.insert((index, stage)) {
                    continue;
                }
                match (stage, absence) {
                    // Almost every node that starts during a recording sends some messages on
                    // /parameter_events.
                    (LossStage::Head, _) => tracing::info!(
                        "{}: {count} messages so far were {}, before the publisher and the recorder had discovered each other",
                        topic.name,
                        LossSums::BEFORE_MATCH
                    ),
                    (LossStage::Cache, _) => tracing::warn!(
                        setting = Setting::CacheBytesMax.name(),
                        "{}: {count} messages lost so far: {}",
                        topic.name,
                        reason(stage)
                    ),
                    (LossStage::Transport, Some(span)) => tracing::warn!(
                        "{}: {count} messages lost so far: sent while {}",
                        topic.name,
                        not_running(span)
                    ),
                    _ => tracing::warn!("{}: {count} messages lost so far: {}", topic.name, reason(stage)),
                }
            }
        }
        self.logged.len() - before
    }
}

/// Meaning of a stage for a user, and advice.
const fn reason(stage: LossStage) -> &'static str {
    match stage {
        LossStage::Head => LossSums::BEFORE_MATCH,
        LossStage::Transport => {
            "sent and never received; a larger socket receive buffer may help (net.core.rmem_max)"
        }
        LossStage::Cache => "the disk is too slow for what arrives and the cache is full",
        LossStage::Compression => "compression is too slow for what arrives",
        LossStage::Storage => "the bag cannot be written",
        LossStage::Split => "received while files were switched",
        LossStage::Shutdown => "received while the recording was being closed",
        LossStage::Tail => "sent and not received before the end",
        LossStage::Policy => "left out on request",
        LossStage::NotBelievable => {
            "claimed by a sequence number that no publisher can have reached; something forges or damages DDS packets"
        }
        LossStage::AnotherType => {
            "of another type than their topic's, for which the storage has no place (storage mcap has)"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_model::{loss::ledger::Interval, time::Timestamp};

    #[test]
    fn each_kind_of_loss_is_logged_once() {
        let mut ledger = Ledger::new();
        let topic = ledger.add_topic("/t");
        let publisher = ledger.add_publisher(topic, None);
        let mut watch = LossWatch::default();
        assert_eq!(watch.log_new(&ledger, None), 0);
        for (stage, logged) in [
            (LossStage::Cache, 1),
            (LossStage::Cache, 0),
            (LossStage::Policy, 0),
            (LossStage::Head, 1),
        ] {
            ledger.miss(
                topic,
                publisher,
                Interval::of_message(stage, None, Timestamp::from_nanos(1)),
            );
            assert_eq!(watch.log_new(&ledger, None), logged, "{stage:?}");
        }
    }
}
