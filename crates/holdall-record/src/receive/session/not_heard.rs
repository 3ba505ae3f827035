//! Live nodes and publishers that no transport of the recording receives: each is reported once.

use super::sources::Sources;
use crate::receive::discovery::GraphDecision;
use holdall_model::unheard::{NotHeard, NotHeardKind};
use holdall_transport::{TransportError, Unreached};
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

impl NotHeardWatch {
    /// What is not heard at all, among what single transports (by their numbers) do not reach. At the end of the recording also what other
    /// transports had no time to show.
    pub fn find(
        &mut self,
        unreached: Vec<(usize, Unreached)>,
        sources: &Sources,
        now: Duration,
        is_end: bool,
    ) -> Vec<NotHeard> {
        let mut found = Vec::new();
        let is_alone = sources.len() == 1;
        let mut since = BTreeMap::new();
        for (number, one) in unreached {
            if self.heard.contains(&one.about) {
                continue;
            }
            if !is_alone && sources.is_heard_by_others(number, &one.identity) {
                self.heard.insert(one.about);
                continue;
            }
            let first = self.since.get(&one.about).copied().unwrap_or(now);
            if is_alone || is_end || now >= first + OTHERS_LATE_MAX {
                found.push(one.about.clone());
            }
            since.insert(one.about, first);
        }
        self.since = since;
        found
    }
}

/// The publisher that a refused decision was about, whose messages are not received: a topic that the enclave's permissions forbid, for
/// example. The error itself is reported where it is handled.
pub(super) fn refused(decision: &GraphDecision, error: &TransportError) -> Option<NotHeard> {
    let (GraphDecision::Publisher(publisher), TransportError::Topic { topic, reason }) = (decision, error)
    else {
        return None;
    };
    let node = publisher.node.as_ref().map(ToString::to_string);
    Some(NotHeard {
        who: node.unwrap_or_else(|| format!("publisher {}", publisher.gid)),
        kind: NotHeardKind::Refused,
        reason: reason.clone(),
        topics: vec![topic.clone()],
    })
}
