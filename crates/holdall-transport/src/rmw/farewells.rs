//! Farewells over rmw: which publishers a participant has taken out of its `ros_discovery_info`.
//!
//! rmw's graph shows that a publisher is gone, and not why. Implementations on a DDS publish what each participant has whenever that changes,
//! and a publisher that is destroyed leaves that list before it goes. One whose process was killed or whose lease has expired stays in it.

use crate::{Sink, dds::ParticipantEntities};
use holdall_io::mutex::lock;
use holdall_model::{
    message::{MessageHeader, Payload},
    topic::Gid,
};
use std::{
    collections::{HashMap, HashSet},
    sync::Mutex,
};

/// Participants and farewells that are remembered. What is forgotten counts as silent when it goes.
const REMEMBERED_MAX: usize = 1 << 14;

#[derive(Default)]
struct State {
    /// The last list of each participant.
    writers_of: HashMap<Gid, HashSet<Gid>>,
    said: HashSet<Gid>,
}

/// Publishers that were taken out of their participants' lists.
#[derive(Default)]
pub(super) struct Farewells(Mutex<State>);

impl Farewells {
    /// Whether a publisher has sent a farewell; asked once.
    pub(super) fn take(&self, publisher: Gid) -> bool {
        lock(&self.0).said.remove(&publisher)
    }

    /// Notes a farewell.
    #[cfg(test)]
    pub(super) fn say(&self, publisher: Gid) {
        lock(&self.0).said.insert(publisher);
    }

    fn note(&self, info: ParticipantEntities) {
        let mut state = lock(&self.0);
        let State { writers_of, said } = &mut *state;
        let now: HashSet<Gid> = info.nodes.into_iter().flat_map(|node| node.writers).collect();
        let before = writers_of.remove(&info.participant).unwrap_or_default();
        if said.len() + before.len() > REMEMBERED_MAX {
            said.clear();
        }
        said.extend(before.difference(&now));
        said.retain(|publisher| !now.contains(publisher));
        if writers_of.len() >= REMEMBERED_MAX {
            writers_of.clear();
        }
        if !now.is_empty() {
            writers_of.insert(info.participant, now);
        }
    }
}

impl Sink for Farewells {
    fn offer(&self, _header: MessageHeader, payload: Payload<'_>) {
        let decoded = match payload {
            Payload::Borrowed(bytes) => ParticipantEntities::decode(bytes),
            Payload::Loaned(loan) => {
                let mut bytes = Vec::with_capacity(loan.len());
                loan.for_each_slice(&mut |slice| bytes.extend_from_slice(slice));
                ParticipantEntities::decode(&bytes)
            }
        };
        match decoded {
            Ok(info) => self.note(info),
            Err(error) => tracing::debug!("rmw: a message of ros_discovery_info cannot be read: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dds::NodeEntities;
    use holdall_model::topic::NodeName;

    fn info(writers: &[u8]) -> ParticipantEntities {
        ParticipantEntities {
            participant: Gid([9; 16]),
            nodes: vec![NodeEntities {
                node: NodeName::in_root("talker"),
                readers: Vec::new(),
                writers: writers.iter().map(|number| Gid([*number; 16])).collect(),
            }],
        }
    }

    #[test]
    fn a_publisher_that_leaves_the_list_has_said_farewell_once() {
        let farewells = Farewells::default();
        let took = |number: u8| farewells.take(Gid([number; 16]));
        farewells.note(info(&[1, 2]));
        assert!(!took(1));
        farewells.note(info(&[2]));
        assert!(took(1) && !took(1) && !took(2));
        farewells.note(info(&[]));
        farewells.note(info(&[2]));
        assert!(!took(2), "it is back");
        // Never listed: another kind of program.
        assert!(!took(3));
    }
}
