//! Farewells over rmw: which publishers a participant has taken out of its `ros_discovery_info`.
//!
//! rmw's graph shows that a publisher is gone, and not why. Implementations on a DDS publish what each participant has whenever that changes,
//! and a publisher that is destroyed leaves that list before it goes. One whose process was killed or whose lease has expired stays in it.
//!
//! A process that ends takes its publishers out one by one and then leaves. On a busy machine the last lists come too late: Fast DDS gives up the
//! participant first, on another thread. A list is also a sign of life, and leases are longer than [`LEASE_MIN`]: what is gone sooner after one was
//! taken away.

use crate::{Sink, dds::ParticipantEntities};
use holdall_io::{clock::Clock, mutex::lock};
use holdall_model::{
    message::{MessageHeader, Payload},
    topic::Gid,
};
use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex},
    time::Duration,
};

/// Participants and farewells that are remembered. What is forgotten counts as silent when it goes.
const REMEMBERED_MAX: usize = 1 << 14;

/// No participant is given up sooner after its last sign of life. Implementations wait for 10 s and more; a lease can be set to less.
const LEASE_MIN: Duration = Duration::from_secs(1);

/// What a participant has.
struct List {
    writers: HashSet<Gid>,
    /// In monotonic time.
    came_at: Duration,
}

#[derive(Default)]
struct State {
    /// The last list of each participant.
    lists: HashMap<Gid, List>,
    said: HashSet<Gid>,
}

/// Publishers that were taken out of their participants' lists.
pub(super) struct Farewells {
    state: Mutex<State>,
    clock: Arc<dyn Clock>,
}

impl Farewells {
    /// No list has come yet.
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            state: Mutex::default(),
            clock,
        }
    }

    /// Whether a publisher that is gone since `gone_at` (monotonic time) has sent a farewell; asked once.
    pub(super) fn take(&self, publisher: Gid, gone_at: Duration) -> bool {
        let mut state = lock(&self.state);
        let was_alive = |list: &List| list.writers.contains(&publisher) && gone_at < list.came_at + LEASE_MIN;
        state.said.remove(&publisher) || state.lists.values().any(was_alive)
    }

    /// Notes a farewell.
    #[cfg(test)]
    pub(super) fn say(&self, publisher: Gid) {
        lock(&self.state).said.insert(publisher);
    }

    fn note(&self, info: ParticipantEntities, came_at: Duration) {
        let mut state = lock(&self.state);
        let State { lists, said } = &mut *state;
        let writers: HashSet<Gid> = info.nodes.into_iter().flat_map(|node| node.writers).collect();
        let before = lists.remove(&info.participant);
        let before = before.map(|list| list.writers).unwrap_or_default();
        if said.len() + before.len() > REMEMBERED_MAX {
            said.clear();
        }
        said.extend(before.difference(&writers));
        said.retain(|publisher| !writers.contains(publisher));
        if lists.len() >= REMEMBERED_MAX {
            lists.clear();
        }
        if !writers.is_empty() {
            lists.insert(info.participant, List { writers, came_at });
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
            Ok(info) => self.note(info, self.clock.monotonic()),
            Err(error) => tracing::debug!("rmw: a message of ros_discovery_info cannot be read: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dds::NodeEntities;
    use holdall_io::clock::SystemClock;
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

    const START: Duration = Duration::from_secs(100);

    fn farewells() -> Farewells {
        Farewells::new(Arc::new(SystemClock))
    }

    #[test]
    fn a_publisher_that_leaves_the_list_has_said_farewell_once() {
        let farewells = farewells();
        let took = |number: u8| farewells.take(Gid([number; 16]), START + LEASE_MIN);
        farewells.note(info(&[1, 2]), START);
        assert!(!took(1));
        farewells.note(info(&[2]), START);
        assert!(took(1) && !took(1) && !took(2));
        farewells.note(info(&[]), START);
        farewells.note(info(&[2]), START);
        assert!(!took(2), "it is back");
        // Never listed: another kind of program.
        assert!(!took(3));
    }

    #[test]
    fn a_publisher_that_is_gone_at_once_after_a_sign_of_life_has_said_farewell() {
        let farewells = farewells();
        farewells.note(info(&[1, 2]), START);
        let gone_after = |millis| farewells.take(Gid([2; 16]), START + Duration::from_millis(millis));
        assert!(gone_after(999) && !gone_after(1000), "a lease may have ended");
        // The list was taken later than the graph was looked at.
        assert!(farewells.take(Gid([1; 16]), START - Duration::from_millis(200)));
        assert!(!farewells.take(Gid([3; 16]), START));
    }
}
