//! The discovery thread: lists services, opens and leaves them, follows their publishers, gives subscriptions
//! their subscribers, and cleans up after dead nodes. Every iceoryx2 call that may wait for files is made
//! here.

use super::{
    ffi::Service,
    folders::{self, PATH_BYTES_MAX},
    names,
    publishers::{KnownService, Nodes},
    service::ServiceFacts,
    subscription::{Receiving, Slot},
};
use crate::GraphEvent;
use holdall_io::{
    clock::Clock,
    fs::{FolderNews, FolderWatch},
    mutex::lock,
};
use iceoryx2::{
    node::Node,
    prelude::{CallbackProgression, Service as _},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

/// Time between two polls of services and publishers.
const LOOK: Duration = Duration::from_millis(100);

/// Polls between two clean-ups after dead nodes.
const LOOKS_PER_CLEANUP: u32 = 10;

/// Polls between two lists of services where the folder of services has not changed: each reads a file of every service.
const LOOKS_PER_LIST: u32 = 50;

/// Polls that must find a service without publishers and without other nodes before it is left, so that it
/// can end or be created anew.
const DESERTED_LOOKS: u32 = 5;

/// Requests to the discovery thread.
#[derive(Default)]
struct Wanted {
    stop: bool,
    look: bool,
}

/// Wakes the discovery thread.
#[derive(Default)]
pub(super) struct DiscoveryWake {
    wanted: Mutex<Wanted>,
    changed: Condvar,
}

impl DiscoveryWake {
    /// Makes it poll at once.
    pub fn wake(&self) {
        self.lock().look = true;
        self.changed.notify_all();
    }

    /// Makes it end.
    pub fn stop(&self) {
        self.lock().stop = true;
        self.changed.notify_all();
    }

    /// Waits until the next poll is due; false when it is to end.
    fn wait(&self) -> bool {
        let wanted = self.lock();
        let is_idle = |wanted: &mut Wanted| !wanted.stop && !wanted.look;
        let waited = self.changed.wait_timeout_while(wanted, LOOK, is_idle);
        let (mut wanted, _) = waited.unwrap_or_else(PoisonError::into_inner);
        wanted.look = false;
        !wanted.stop
    }

    fn lock(&self) -> MutexGuard<'_, Wanted> {
        lock(&self.wanted)
    }
}

/// The discovery thread's state.
pub(super) struct Discovery {
    pub node: Arc<Node<Service>>,
    pub clock: Arc<dyn Clock>,
    pub receiving: Arc<Receiving>,
    pub wake: Arc<DiscoveryWake>,
    /// The queue from which the recorder takes its events.
    pub events: Arc<Mutex<Vec<GraphEvent>>>,
}

/// The services that it has found.
#[derive(Default)]
struct Seen {
    /// Known services by name.
    services: BTreeMap<String, KnownService>,
    /// Services that could not be opened, so that each is logged once.
    refused: BTreeSet<String>,
    /// Topics whose subscribers could not be made, so that each is logged once.
    unheard: BTreeSet<String>,
    nodes: Nodes,
    looks: u32,
    /// The folder of services, once there is one.
    folder: Option<FolderWatch>,
    list_failure_is_told: bool,
    overlong_is_reported: bool,
}

impl Discovery {
    /// Starts the thread.
    pub fn start(self) -> std::io::Result<JoinHandle<()>> {
        std::thread::Builder::new()
            .name("iceoryx2-graph".to_owned())
            .spawn(move || self.run())
    }

    fn run(self) {
        let mut seen = Seen::default();
        loop {
            self.poll(&mut seen);
            if !self.wake.wait() {
                break;
            }
        }
        for slot in self.receiving.open_slots() {
            slot.detach();
        }
    }

    fn poll(&self, seen: &mut Seen) {
        let is_cleanup = seen.looks.is_multiple_of(LOOKS_PER_CLEANUP);
        let is_due = seen.looks.is_multiple_of(LOOKS_PER_LIST);
        seen.looks = seen.looks.wrapping_add(1);
        let mut events = Vec::new();
        // One that was refused may have become ready without a change.
        let is_listing = self.has_folder_changed(seen) || is_due || !seen.refused.is_empty();
        if (is_cleanup || is_listing) && self.folders_are_sound(seen) {
            if is_cleanup {
                seen.nodes.note_dead(self.node.config());
                self.clean_up();
            }
            if is_listing && let Some(listed) = self.listed(seen) {
                self.follow(seen, listed, &mut events);
            }
        }
        seen.nodes.begin_poll();
        let now = self.clock.now();
        for service in seen.services.values_mut() {
            service.poll(&self.node, &mut seen.nodes, now, &mut events);
        }
        self.leave_deserted(seen, &mut events);
        lock(&self.events).append(&mut events);
        self.serve_slots(seen);
    }

    /// Whether services may have come, gone or become ready since the last call.
    fn has_folder_changed(&self, seen: &mut Seen) -> bool {
        match seen.folder.as_mut().map(FolderWatch::look) {
            Some(FolderNews::Nothing) => return false,
            Some(FolderNews::Changed) => return true,
            Some(FolderNews::Gone) | None => {}
        }
        // If it cannot be watched, the services are listed at each poll.
        let folder = self.node.config().global.service_dir().to_string();
        seen.folder = FolderWatch::open(Path::new(&folder)).ok();
        true
    }

    /// False while a file in iceoryx2's folders has a path that is longer than iceoryx2 can hold: listing them would panic.
    fn folders_are_sound(&self, seen: &mut Seen) -> bool {
        let root = self.node.config().global.root_path().to_string();
        let Some(path) = folders::overlong_path(&root) else {
            seen.overlong_is_reported = false;
            return true;
        };
        if !std::mem::replace(&mut seen.overlong_is_reported, true) {
            tracing::warn!(
                "iceoryx2: the path {:?} is longer than {PATH_BYTES_MAX} bytes; no new services are found until it is removed",
                path.display().to_string()
            );
        }
        false
    }

    /// Frees everything that dead nodes hold (ports, samples, places in services).
    fn clean_up(&self) {
        let cleaned = self.node.try_cleanup_dead_nodes();
        if cleaned.cleanups > 0 {
            tracing::info!(
                "iceoryx2: cleaned up after {} node(s) that died",
                cleaned.cleanups
            );
        }
    }

    /// All publish-subscribe services that exist; `None` when they cannot be listed.
    fn listed(&self, seen: &mut Seen) -> Option<BTreeMap<String, ServiceFacts>> {
        let mut listed = BTreeMap::new();
        let listing = Service::list(self.node.config(), |service| {
            if let Some(facts) = ServiceFacts::of(&service.static_details) {
                listed.insert(facts.name.clone(), facts);
            }
            CallbackProgression::Continue
        });
        if let Err(error) = listing {
            if !std::mem::replace(&mut seen.list_failure_is_told, true) {
                tracing::warn!("iceoryx2 cannot list all services ({error:?}); new ones may be missed");
            }
            return None;
        }
        seen.list_failure_is_told = false;
        Some(listed)
    }

    fn follow(&self, seen: &mut Seen, listed: BTreeMap<String, ServiceFacts>, events: &mut Vec<GraphEvent>) {
        let is_gone = |service: &KnownService| listed.get(&service.facts.name) != Some(&service.facts);
        self.leave(seen, events, is_gone);
        seen.refused.retain(|name| listed.contains_key(name));
        for (name, facts) in listed {
            if seen.services.contains_key(&name) {
                continue;
            }
            let mut topic = names::topic_of_service(&name);
            if seen.services.values().any(|other| other.topic == topic) {
                topic.push_str("_2");
                if seen.refused.insert(name.clone()) {
                    tracing::warn!(
                        "iceoryx2: service {name:?} is recorded as {topic}: another service has its topic"
                    );
                }
            }
            match KnownService::open(&self.node, facts, topic) {
                Ok(service) => {
                    seen.services.insert(name, service);
                }
                Err(reason) if seen.refused.insert(name.clone()) => {
                    tracing::warn!(
                        "iceoryx2: service {name:?} cannot be opened ({reason}); it is not recorded"
                    );
                }
                Err(_) => {}
            }
        }
    }

    /// Leaves services that no other node uses, because they would never end otherwise.
    fn leave_deserted(&self, seen: &mut Seen, events: &mut Vec<GraphEvent>) {
        self.leave(seen, events, |service| service.deserted >= DESERTED_LOOKS);
    }

    fn leave(&self, seen: &mut Seen, events: &mut Vec<GraphEvent>, is_left: impl Fn(&KnownService) -> bool) {
        let slots = self.receiving.open_slots();
        let nodes = &seen.nodes;
        seen.services.retain(|_, service| {
            if !is_left(service) {
                return true;
            }
            for slot in slots.iter().filter(|slot| slot.topic == service.topic) {
                slot.detach();
            }
            events.extend(service.end(nodes));
            self.receiving.changed();
            false
        });
    }

    /// Creates a subscriber for each subscription that waits for one.
    fn serve_slots(&self, seen: &mut Seen) {
        for slot in self.receiving.open_slots() {
            let is_its = |service: &&KnownService| {
                service.topic == slot.topic && service.facts.type_name() == slot.type_name
            };
            let Some(service) = seen.services.values().find(is_its) else {
                continue;
            };
            slot.matched_publishers
                .store(service.publisher_count(), std::sync::atomic::Ordering::Release);
            if slot.receiver().is_some() {
                continue;
            }
            self.serve(&slot, service, &mut seen.unheard);
        }
    }

    fn serve(&self, slot: &Slot, service: &KnownService, unheard: &mut BTreeSet<String>) {
        match service.receiver(&self.node, Arc::clone(&self.clock)) {
            Ok(receiver) => {
                unheard.remove(&slot.topic);
                slot.attach(receiver);
                self.receiving.changed();
            }
            Err(reason) if unheard.insert(slot.topic.clone()) => tracing::warn!(
                "{}: cannot create a subscriber for service {:?} ({reason}); it is not recorded until that works",
                slot.topic,
                service.facts.name
            ),
            Err(_) => {}
        }
    }
}
