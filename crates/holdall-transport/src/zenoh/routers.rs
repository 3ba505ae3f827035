//! Whether routers are connected: one line when the last path to the others is lost, and one when it is back.

use ::zenoh::{
    Session, Wait,
    config::WhatAmI,
    sample::SampleKind,
    session::{TransportEvent, TransportEventsListener},
};
use holdall_io::mutex::lock;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

/// How long a session may need to reach its first router or peer before a user is warned.
const PATIENCE: Duration = Duration::from_secs(3);

/// Changes since the last poll: router to whether it is connected now.
#[derive(Default)]
struct Changes {
    routers: BTreeMap<String, bool>,
    reached: bool,
}

/// Follows the routers of a session.
pub(super) struct RouterWatch {
    changes: Arc<Mutex<Changes>>,
    _listener: TransportEventsListener<()>,
    /// Routers that were lost and are not back.
    missing: Vec<String>,
    /// When to warn that nothing has been reached; `None` once warned, or once a router or peer was reached.
    warn_at: Option<Duration>,
    /// The routers or peers that the configuration names.
    endpoints: String,
}

impl RouterWatch {
    /// Starts to follow at `now` (monotonic time).
    pub(super) fn new(
        session: &Session,
        endpoints: String,
        expects_router: bool,
        now: Duration,
    ) -> ::zenoh::Result<Self> {
        let changes = Arc::<Mutex<Changes>>::default();
        let noted = Arc::clone(&changes);
        let listener = session
            .info()
            .transport_events_listener()
            .history(true)
            .callback(move |event: TransportEvent| {
                let here = event.kind() == SampleKind::Put;
                let mut changes = lock(&noted);
                changes.reached |= here;
                if event.transport().whatami() == WhatAmI::Router {
                    changes.routers.insert(event.transport().zid().to_string(), here);
                }
            })
            .wait()?;
        Ok(Self {
            changes,
            _listener: listener,
            missing: Vec::new(),
            warn_at: expects_router.then_some(now + PATIENCE),
            endpoints,
        })
    }

    /// Logs changes.
    pub(super) fn check(&mut self, now: Duration) {
        let mut changes = lock(&self.changes);
        let routers = std::mem::take(&mut changes.routers);
        let reached = changes.reached;
        drop(changes);
        for (router, here) in routers {
            let missing = self.missing.iter().position(|other| *other == router);
            match (here, missing) {
                (false, None) => {
                    tracing::warn!(
                        "lost zenoh router {router}; until it is back, only what reaches this session without it is recorded"
                    );
                    // Routers that never come back must not fill memory.
                    self.missing.truncate(15);
                    self.missing.push(router);
                }
                (true, _) if !self.missing.is_empty() => {
                    // A router that was restarted has another id.
                    tracing::warn!("zenoh router {router} is back");
                    self.missing.clear();
                }
                _ => {}
            }
        }
        if reached {
            self.warn_at = None;
        } else if self.warn_at.is_some_and(|at| now >= at) {
            self.warn_at = None;
            tracing::warn!(
                "no zenoh router or peer reached yet (connect/endpoints {}); is a router running, `ros2 run rmw_zenoh_cpp rmw_zenohd` or `zenohd`?",
                self.endpoints
            );
        }
    }
}
