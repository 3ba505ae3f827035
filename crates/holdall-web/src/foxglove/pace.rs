//! Sends no faster than the connection drains, so that new messages do not wait in a full queue of the network.

use holdall_io::{
    clock::{Clock, SystemClock},
    socket::{shortest_round_trip, unacknowledged_bytes},
};
use std::{
    io::{self, Write},
    net::TcpStream,
    time::Duration,
};

/// How much longer than a round trip written bytes may stay unacknowledged.
const QUEUE_MAX: Duration = Duration::from_millis(30);

/// Bytes that may be unacknowledged at least, and before the rate is known.
const LIMIT_MIN: u64 = 32 * 1024;
const LIMIT_FIRST: u64 = 128 * 1024;

/// Bytes that are written at once.
const PIECE_BYTES: u64 = 256 * 1024;

/// The rate is measured over this span.
const SPAN: Duration = Duration::from_millis(50);

/// How much a new measurement counts against all before.
const WEIGHT: f64 = 0.3;

/// The other side may acknowledge its last packets late: two of them count as acknowledged.
const ACKNOWLEDGED_LATE: u64 = 2 * 1500;

/// Shortest and longest wait for acknowledgements.
const WAIT_MIN: Duration = Duration::from_millis(1);
const WAIT_MAX: Duration = Duration::from_millis(20);

/// The rate that a connection drains at, and the limits that follow from it. Reads no clock and no socket.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Bytes given to the kernel so far.
    written: u64,
    /// Bytes a second.
    rate: Option<f64>,
    /// Beginning of the present measurement: when, and the bytes acknowledged by then.
    begin: Option<(Duration, u64)>,
    /// When the acknowledged bytes last grew, and their number then.
    progress: Option<(Duration, u64)>,
    round_trip: Duration,
}

impl Pace {
    /// Bytes a second that the connection drains; `None` until it was measured.
    pub(super) fn rate(&self) -> Option<f64> {
        self.rate
    }

    /// Notes that so many of the bytes that were written are not acknowledged at `now`.
    fn note(&mut self, now: Duration, queued: u64) {
        let acknowledged = self.written.saturating_sub(queued);
        if self.progress.is_none_or(|(_, before)| acknowledged > before) || queued == 0 {
            self.progress = Some((now, acknowledged));
        }
        let Some((since, before)) = self.begin else {
            self.begin = Some((now, acknowledged));
            return;
        };
        let span = now.saturating_sub(since);
        if span < SPAN {
            return;
        }
        self.begin = Some((now, acknowledged));
        let measured = acknowledged.saturating_sub(before) as f64 / span.as_secs_f64();
        self.rate = match self.rate {
            None if queued > 0 => Some(measured),
            // A connection that has nothing to do drains at least so fast.
            Some(rate) if queued > 0 || measured > rate => Some(rate + WEIGHT * (measured - rate)),
            kept => kept,
        };
    }

    /// The connection was idle: the next bytes begin a new measurement.
    fn rest(&mut self) {
        self.begin = None;
    }

    /// Bytes that may be unacknowledged.
    fn limit(&self) -> u64 {
        let span = self.round_trip + QUEUE_MAX;
        self.rate.map_or(LIMIT_FIRST, |rate| {
            ((rate * span.as_secs_f64()) as u64).max(LIMIT_MIN)
        })
    }

    /// With `left` bytes to write and `queued` unacknowledged: the number of bytes to write now, or else how long to wait.
    fn next(&self, left: u64, queued: u64) -> Result<u64, Duration> {
        let limit = self.limit();
        // A few bytes at a time would cost more than they are worth.
        let room = limit.saturating_sub(queued);
        if room >= left || room >= limit / 4 {
            return Ok(left.min(room).clamp(1, PIECE_BYTES));
        }
        let rate = self.rate.unwrap_or(f64::MAX).max(1.0);
        let excess = (limit / 4).saturating_sub(room) as f64;
        let wait = Duration::try_from_secs_f64(excess / rate).unwrap_or(WAIT_MAX);
        Err(wait.clamp(WAIT_MIN, WAIT_MAX))
    }

    /// Writes all bytes, unless `is_over` or nothing was acknowledged for `silence_max`.
    pub(super) fn send(
        &mut self,
        mut client: &TcpStream,
        mut bytes: &[u8],
        silence_max: Duration,
        is_over: impl Fn() -> bool,
    ) -> io::Result<()> {
        if unacknowledged_bytes(client)? == 0 {
            self.rest();
        }
        self.progress = None;
        self.round_trip = shortest_round_trip(client).unwrap_or_default();
        while !bytes.is_empty() {
            let (now, queued) = (SystemClock.monotonic(), unacknowledged_bytes(client)?);
            self.note(now, queued);
            match self.next(bytes.len() as u64, queued) {
                Ok(count) => {
                    let count = usize::try_from(count).unwrap_or(bytes.len());
                    client.write_all(&bytes[..count])?;
                    self.written += count as u64;
                    bytes = &bytes[count..];
                }
                Err(wait) => {
                    if self.silent(now) > silence_max || is_over() {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    SystemClock.sleep_until(now + wait);
                }
            }
        }
        Ok(())
    }

    /// For how long nothing was acknowledged.
    fn silent(&self, now: Duration) -> Duration {
        self.progress
            .map_or(Duration::ZERO, |(at, _)| now.saturating_sub(at))
    }

    /// Writes all bytes and waits until they are acknowledged; returns the bytes a second at which the second half of them was, `None` if that
    /// took no time.
    ///
    /// # Errors
    /// As `send`.
    pub(super) fn measure(
        &mut self,
        client: &TcpStream,
        bytes: &[u8],
        silence_max: Duration,
        is_over: impl Fn() -> bool,
    ) -> io::Result<Option<f64>> {
        self.send(client, bytes, silence_max, &is_over)?;
        let mut begin = None;
        let (end, last) = loop {
            let (now, queued) = (SystemClock.monotonic(), unacknowledged_bytes(client)?);
            self.note(now, queued);
            if queued <= ACKNOWLEDGED_LATE {
                break (now, queued);
            }
            if begin.is_none() && queued <= bytes.len() as u64 / 2 {
                begin = Some((now, queued));
            }
            if self.silent(now) > silence_max || is_over() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            SystemClock.sleep_until(now + WAIT_MIN);
        };
        self.rate =
            begin.map(|(at, queued)| (queued - last) as f64 / end.saturating_sub(at).as_secs_f64().max(1e-6));
        Ok(self.rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link with this rate and round trip: returns the longest queue beyond the round trip, in seconds, once the rate is known.
    fn longest_queue(rate: f64, round_trip: Duration) -> (f64, f64) {
        let mut pace = Pace {
            round_trip,
            ..Pace::default()
        };
        let step = Duration::from_millis(1);
        let (mut now, mut drained, mut worst) = (Duration::ZERO, 0.0_f64, 0.0_f64);
        // Bytes that the link has drained are acknowledged a round trip later.
        let mut acknowledged = std::collections::VecDeque::new();
        let mut acked = 0.0;
        let mut wait_until = Duration::ZERO;
        for _ in 0..8000 {
            now += step;
            drained = (drained + rate * step.as_secs_f64()).min(pace.written as f64);
            acknowledged.push_back((now + round_trip, drained));
            while acknowledged.front().is_some_and(|(at, _)| *at <= now) {
                acked = acknowledged.pop_front().map_or(acked, |(_, bytes)| bytes);
            }
            let queued = pace.written - acked as u64;
            pace.note(now, queued);
            while now >= wait_until {
                match pace.next(1 << 30, pace.written - acked as u64) {
                    Ok(count) => pace.written += count,
                    Err(wait) => wait_until = now + wait,
                }
            }
            if now > Duration::from_secs(4) {
                worst = worst.max((pace.written as f64 - drained) / rate);
            }
        }
        (worst, pace.rate.unwrap_or(0.0))
    }

    #[test]
    fn a_link_is_full_and_its_queue_short() {
        for (rate, round_trip) in [(2.5e6, 1), (2.5e6, 40), (1e5, 20), (50e6, 10)] {
            let (queue, measured) = longest_queue(rate, Duration::from_millis(round_trip));
            let most = 0.1_f64.max(2.0 * LIMIT_MIN as f64 / rate);
            assert!(queue < most, "{rate} {round_trip}: a queue of {queue} s");
            assert!(
                measured > rate * 0.8 && measured < rate * 1.2,
                "{rate} {round_trip}: measured {measured}"
            );
        }
    }

    #[test]
    fn what_is_acknowledged_at_once_is_fast() {
        use std::io::Read;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut reader, _) = listener.accept().unwrap();
        let bytes = vec![0; 64 * 1024];
        let mut pace = Pace::default();
        // Bytes that fit the reader's buffer are acknowledged at once.
        let none = pace.measure(&client, &bytes, Duration::from_secs(20), || false);
        assert!(none.unwrap().is_none_or(|rate| rate > 1e6));
        let thread = std::thread::spawn(move || {
            let mut all = Vec::new();
            reader.read_to_end(&mut all).unwrap();
            all.len()
        });
        client.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(thread.join().unwrap(), bytes.len());
    }

    #[test]
    fn a_connection_that_acknowledges_nothing_is_given_up_and_one_that_ends_at_once() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (_silent, _) = listener.accept().unwrap();
        client
            .set_write_timeout(Some(Duration::from_millis(100)))
            .unwrap();
        let bytes = vec![0; 64 << 20];
        let mut pace = Pace::default();
        assert!(
            pace.send(&client, &bytes, Duration::from_millis(100), || false)
                .is_err()
        );
        assert!(
            pace.send(&client, &bytes, Duration::from_secs(1000), || true)
                .is_err()
        );
    }
}
