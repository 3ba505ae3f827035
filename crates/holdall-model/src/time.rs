//! Points in time and spans between them, in nanoseconds, as bags store them.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Nanoseconds since the Unix epoch on the clock that stamped it (system time, or simulation time).
///
/// Signed as in rosbag2 (`rcutils_time_point_value_t`); MCAP stores the same value unsigned.
///
/// ```
/// use holdall_model::time::Timestamp;
/// use std::time::Duration;
///
/// let start = Timestamp::from_nanos(1_700_000_000_000_000_000);
/// let end = start.saturating_add(Duration::from_secs(2));
/// assert_eq!(end.saturating_since(start).as_secs(), 2);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// A time stamp from nanoseconds since the Unix epoch.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the Unix epoch.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// This point plus a span, at most the largest representable value.
    pub fn saturating_add(self, span: Duration) -> Self {
        Self(
            self.0
                .saturating_add(i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)),
        )
    }

    /// The span from `earlier` to this point; zero when `earlier` is later.
    pub fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0).max(0).unsigned_abs())
    }
}
