//! How faithfully the messages of a topic were sent: their lateness, and the error of the spans between them.

use super::status::{Lateness, LatenessMeter};
use std::time::Duration;

/// When a message was to be sent, and when it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Planned {
    pub due: Duration,
    pub sent: Duration,
}

impl Planned {
    /// How much too late it was.
    pub fn lateness(self) -> Duration {
        self.sent.saturating_sub(self.due)
    }

    /// How much longer or shorter than planned the span since `before` was.
    fn spacing_error(self, before: Self) -> Duration {
        let planned = self.due.saturating_sub(before.due);
        planned.abs_diff(self.sent.saturating_sub(before.sent))
    }
}

/// The meters of one topic; they take memory from its first message on.
#[derive(Debug, Default)]
pub(super) struct Fidelity {
    before: Option<Planned>,
    meters: Option<Box<(LatenessMeter, LatenessMeter)>>,
}

impl Fidelity {
    /// Notes a message; returns the error of the span since the one before, if that is known.
    pub fn measure(&mut self, planned: Planned) -> Option<Duration> {
        let error = self
            .before
            .replace(planned)
            .map(|before| planned.spacing_error(before));
        let coarse = || Box::new((LatenessMeter::coarse(), LatenessMeter::coarse()));
        let (lateness, spacing) = &mut **self.meters.get_or_insert_with(coarse);
        lateness.record(planned.lateness());
        if let Some(error) = error {
            spacing.record(error);
        }
        error
    }

    /// The next message has no span before it: bag time has jumped.
    pub fn forget_spacing(&mut self) {
        self.before = None;
    }

    /// Lateness and spacing error.
    pub fn summary(&self) -> (Lateness, Lateness) {
        let meters = self.meters.as_deref();
        meters.map_or_else(Default::default, |(lateness, spacing)| {
            (lateness.summary(), spacing.summary())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_message_makes_the_span_before_it_too_long_and_the_one_after_it_too_short() {
        let micros = Duration::from_micros;
        let mut topic = Fidelity::default();
        let mut measure = |due, sent| {
            let (due, sent) = (micros(due), micros(sent));
            topic.measure(Planned { due, sent })
        };
        assert_eq!(measure(1000, 1000), None);
        assert_eq!(measure(2000, 2300), Some(micros(300)));
        assert_eq!(measure(3000, 3000), Some(micros(300)));
        topic.forget_spacing();
        assert_eq!(
            topic.measure(Planned {
                due: micros(9000),
                sent: micros(9000)
            }),
            None
        );
        let (lateness, spacing) = topic.summary();
        assert_eq!((lateness.count, spacing.count), (4, 2));
        assert!(lateness.max.abs_diff(micros(300)) < micros(5));
    }
}
