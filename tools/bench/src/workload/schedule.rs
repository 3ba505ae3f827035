//! When messages are due: an open-loop schedule in nanoseconds that does not wait for late producers.

use std::time::Duration;

/// Evenly spaced points in time. Each is computed from its number, so that rounding never adds up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    start: Duration,
    rate_millihz: u64,
}

impl Schedule {
    /// Points from `start` on, `rate_hz` a second; `None` for a rate that is not positive or below a
    /// thousandth of a hertz.
    ///
    /// Each of `sharers` equal schedules begins a part of a period later, so that they are not due at the
    /// same time.
    pub fn new(start: Duration, rate_hz: f64, sharer: u32, sharers: u32) -> Option<Self> {
        let rate_millihz = rate_millihz(rate_hz)?;
        let period = Duration::from_nanos(u64::try_from(1_000_000_000_000 / u128::from(rate_millihz)).ok()?);
        let phase = period.mul_f64(f64::from(sharer) / f64::from(sharers.max(1)));
        Some(Self {
            start: start + phase,
            rate_millihz,
        })
    }

    /// When message `index` is due.
    pub fn due(&self, index: u64) -> Duration {
        let nanos = u128::from(index) * 1_000_000_000_000 / u128::from(self.rate_millihz);
        // 584 years fit; a longer schedule stays at its last point.
        self.start + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// The rate in thousandths of a hertz; `None` when it is not positive, not finite or too small to represent.
pub(crate) fn rate_millihz(rate_hz: f64) -> Option<u64> {
    let scaled = rate_hz * 1000.0;
    // In range, so the conversion keeps the value.
    (scaled.is_finite() && (1.0..1e15).contains(&scaled)).then_some(scaled.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_messages_at_thirty_hertz_end_on_the_nanosecond() {
        let schedule = Schedule::new(Duration::from_secs(1), 30.0, 0, 1).unwrap();
        assert_eq!(schedule.due(0), Duration::from_secs(1));
        assert_eq!(schedule.due(1), Duration::from_nanos(1_033_333_333));
        assert_eq!(schedule.due(3_000_000), Duration::from_secs(1 + 100_000));
    }

    #[test]
    fn sharers_are_spread_over_one_period() {
        let due = |sharer| Schedule::new(Duration::ZERO, 100.0, sharer, 4).unwrap().due(0);
        assert_eq!(
            (due(0), due(1), due(3)),
            (
                Duration::ZERO,
                Duration::from_micros(2500),
                Duration::from_micros(7500)
            )
        );
    }

    #[test]
    fn rates_without_a_period_are_refused() {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-9] {
            assert_eq!(Schedule::new(Duration::ZERO, rate, 0, 1), None, "{rate}");
        }
    }
}
