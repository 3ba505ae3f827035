//! Live nodes and publishers that no transport of the recording receives: each is reported once.

use super::Session;
use crate::receive::discovery::GraphDecision;
use holdall_model::unheard::{NotHeard, NotHeardKind};
use holdall_transport::{Identity, TransportError, Unreached};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// How long another transport may take to show endpoints that one cannot receive.
const OTHERS_LATE_MAX: Duration = Duration::from_secs(5);

/// Findings that may still be heard over another transport.
#[derive(Debug, Default)]
pub(super) struct NotHeardWatch {
    since: BTreeMap<NotHeard, Duration>,
    /// Nodes and publishers that another transport has shown; it may have stopped showing them because they are gone.
    heard: BTreeSet<NotHeard>,
}

impl Session {
    /// Reports nodes and publishers that cannot be heard, each once, and stores all of them for the bag. At the end of the recording those that
    /// other transports had no time to show, too.
    pub(super) fn report_not_heard(&mut self, now: Duration, is_end: bool) {
        let mut unreached: Vec<(usize, Unreached)> = Vec::new();
        let mut networks = Vec::new();
        for (number, source) in self.sources.iter_mut().enumerate() {
            if source.failure.is_none() {
                let found = source.transport.not_heard();
                unreached.extend(found.into_iter().map(|one| (number, one)));
                networks.extend(source.transport.networks());
            }
        }
        self.parts.drain.set_networks(networks);
        if let Some(complement) = &mut self.complement {
            let of_others = unreached
                .iter()
                .filter(|(number, _)| *number != complement.number);
            complement.set_unreached(of_others.map(|(_, one)| one.identity.clone()).collect());
        }
        let mut found: Vec<NotHeard> = Vec::new();
        let is_alone = self.sources.len() == 1;
        let mut since = BTreeMap::new();
        for (number, one) in unreached {
            if self.not_heard.heard.contains(&one.about) {
                continue;
            }
            if !is_alone && self.is_heard_by_others(number, &one.identity) {
                self.not_heard.heard.insert(one.about);
                continue;
            }
            let first = self.not_heard.since.get(&one.about).copied().unwrap_or(now);
            if is_alone || is_end || now >= first + OTHERS_LATE_MAX {
                found.push(one.about.clone());
            }
            since.insert(one.about, first);
        }
        self.not_heard.since = since;
        for topic in self.topics.values_mut() {
            for (gid, about) in topic.newly_unmatched(now) {
                let complement = self.complement.as_mut();
                if !complement.is_some_and(|complement| complement.is_unmatched(gid)) {
                    found.push(about);
                }
            }
        }
        for new in self.parts.drain.add_not_heard(found) {
            tracing::warn!("not heard: {new}");
        }
    }

    /// Notes the publisher that a refused decision was about, whose messages are not received: a topic that the enclave's permissions forbid, for
    /// example. The error itself is reported where it is handled.
    pub(super) fn note_refused(&mut self, decision: &GraphDecision, error: &TransportError) {
        let (GraphDecision::Publisher(publisher), TransportError::Topic { topic, reason }) =
            (decision, error)
        else {
            return;
        };
        let node = publisher.node.as_ref().map(ToString::to_string);
        let about = NotHeard {
            who: node.unwrap_or_else(|| format!("publisher {}", publisher.gid)),
            kind: NotHeardKind::Refused,
            reason: reason.clone(),
            topics: vec![topic.clone()],
        };
        self.parts.drain.add_not_heard(vec![about]);
    }

    fn is_heard_by_others(&self, number: usize, identity: &Identity) -> bool {
        let others = self
            .sources
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != number);
        let mut living = others
            .map(|(_, source)| source)
            .filter(|source| source.failure.is_none());
        living.any(|source| {
            source
                .discovery
                .endpoints()
                .any(|endpoint| identity.has(endpoint))
        })
    }
}
