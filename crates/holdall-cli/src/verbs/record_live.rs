//! Status lines and supervision of a running recording.

use crate::{
    render::{self, paint::Paint, rate::RateMeter, unheard::Request},
    terminal::screen::{self, Screen},
};
use holdall::{
    record::{RecordControl, Recorder, status::RecordStatus},
    supervise::Supervision,
};
use holdall_io::clock::{Clock, SystemClock};
use std::time::Duration;

/// Time between two reads of the state without a terminal: with many topics each is a good part of the cost of a recording at rest.
const UNSEEN_INTERVAL: Duration = Duration::from_millis(500);

/// Longest usual time until a publisher is discovered.
const SEEN_WITHIN: Duration = Duration::from_secs(5);

/// The status lines, if there is a terminal to draw them on.
pub struct Live {
    screen: Option<Screen>,
    rates: RateMeter,
    /// The line below the status.
    pub hint: &'static str,
    /// Work in addition to the recording.
    pub supervision: Supervision,
    /// Topics asked for, until those that were not seen are named.
    awaited: Option<Request>,
    /// When the state is read again if nothing waits for it (monotonic time).
    next_update: Duration,
}

impl Live {
    /// Nothing is shown yet.
    pub fn new(hint: &'static str, supervision: Supervision, request: Request) -> Self {
        Self {
            screen: Screen::open(),
            rates: RateMeter::default(),
            hint,
            supervision,
            awaited: Some(request),
            next_update: Duration::ZERO,
        }
    }

    /// Shows the state of the recording, and has it supervised.
    pub fn update(&mut self, recorder: &Recorder, control: &RecordControl) {
        let now = SystemClock.monotonic();
        let is_waited_for = self.screen.is_some() || self.supervision.is_waited_for();
        if !is_waited_for && now < self.next_update {
            return;
        }
        self.next_update = now + UNSEEN_INTERVAL;
        let status = recorder.status();
        self.supervision.check(&status, control, now);
        self.name_awaited(&status);
        self.draw(&status);
    }

    /// Names the topics that were asked for and not seen soon: a name that was mistyped never is.
    fn name_awaited(&mut self, status: &RecordStatus) {
        if status.elapsed >= SEEN_WITHIN
            && let Some(request) = self.awaited.take()
            && let Some(line) = request.awaited(status)
        {
            tracing::warn!("{line}");
        }
    }

    /// Notes a wait that began at `before`.
    pub fn waited(&mut self, planned: Duration, before: Duration) {
        let took = SystemClock.monotonic().saturating_sub(before);
        self.supervision.waited(planned, took);
    }

    fn draw(&mut self, status: &RecordStatus) {
        if let Some(screen) = &self.screen {
            let rates = self
                .rates
                .update(status.elapsed, status.recorded, status.recorded_bytes);
            screen.show(render::record::live(
                status,
                rates,
                &self.supervision.past().fallen(),
                self.hint,
                Paint::stderr(),
                screen::columns(),
            ));
        }
    }
}
