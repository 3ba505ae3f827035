//! How exactly this machine keeps to a link: each promise of the model measured with real packets.

use super::{
    LinkRunError, carry,
    model::ETHERNET_BYTES,
    qdisc,
    spec::{LinkSpec, Loss},
};
use crate::sheet::{Column, Sheet};
use holdall_io::{
    clock::{Clock, SystemClock},
    link::{self, ADDRESSES, LinkEnd},
};
use serde::Serialize;
use std::{
    io,
    net::{SocketAddr, UdpSocket},
    thread,
    time::Duration,
};

/// Length of the IP and UDP headers of a datagram.
const HEADER_BYTES: u64 = 28;
/// Number and time of sending.
const STAMP_BYTES: usize = 16;
/// The datagram that fills an Ethernet packet.
const FULL_BYTES: usize = 1472;
const PORT: u16 = 5000;
/// Datagrams received before this do not count: queues fill first.
const WARM_UP: Duration = Duration::from_millis(500);
/// No datagram arrives after a silence of this length.
const SILENCE: Duration = Duration::from_millis(300);
const RECEIVE_BUFFER_BYTES: usize = 64 << 20;

/// The datagrams sent over a link.
#[derive(Clone, Copy)]
struct Flow {
    bytes: usize,
    /// Time between two datagrams; `None` sends as fast as the socket takes them.
    gap: Option<Duration>,
    lasts: Duration,
    /// The receiver does not sleep: how late it wakes up is not the link's.
    is_watched: bool,
}

/// One datagram that came.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    number: u64,
    sent: Duration,
    arrived: Duration,
}

/// The number of datagrams sent, and the arrivals.
struct Probe {
    sent: u64,
    arrivals: Vec<Arrival>,
}

/// One promise and the measured figure.
#[derive(Clone, Debug, Serialize)]
pub struct LinkCheck {
    /// The link.
    pub link: &'static str,
    /// The property measured.
    pub what: &'static str,
    /// The promised figure.
    pub expected: f64,
    /// The measured figure.
    pub found: f64,
    /// Largest difference allowed between the two.
    pub tolerance: f64,
    /// Unit of all three figures.
    pub unit: &'static str,
    /// Whether it is within the tolerance.
    pub is_kept: bool,
}

impl LinkCheck {
    fn new(
        link: &'static str,
        what: &'static str,
        unit: &'static str,
        [expected, found, tolerance]: [f64; 3],
    ) -> Self {
        Self {
            link,
            what,
            expected,
            found,
            tolerance,
            unit,
            is_kept: (found - expected).abs() <= tolerance,
        }
    }
}

/// The results on this machine.
#[derive(Clone, Debug, Serialize)]
pub struct LinkChecks {
    /// Every promise.
    pub checks: Vec<LinkCheck>,
    /// How late a thread of the link's priority that only sleeps wakes up, in microseconds: 99 of 100 times not later. No delay can be kept
    /// more exactly.
    pub sleep_p99_us: f64,
}

impl LinkChecks {
    /// Whether every promise is kept.
    pub fn are_kept(&self) -> bool {
        self.checks.iter().all(|check| check.is_kept)
    }
}

/// Measures every promise, in about half a minute. `progress` gets each link before it is measured.
///
/// # Errors
/// A system that does not allow links.
pub fn check(progress: &mut dyn FnMut(&str)) -> Result<LinkChecks, LinkRunError> {
    let mut checks = Vec::new();
    for (text, tolerance) in [
        ("rate=54Mb/s", 0.001),
        ("rate=300Mb/s", 0.001),
        ("rate=1000Mb/s", 0.01),
        ("rate=54Mb/s,bottleneck=nic", 0.02),
        ("rate=300Mb/s,bottleneck=nic", 0.02),
    ] {
        progress(text);
        checks.push(check_rate(text, tolerance)?);
    }
    for text in [
        "delay=1ms",
        "delay=20ms",
        "delay=1ms,spin=1ms",
        "delay=20ms,spin=1ms",
    ] {
        progress(text);
        checks.push(check_delay(text)?);
    }
    for text in ["loss=10%", "loss=10%/burst=20"] {
        progress(text);
        checks.extend(check_loss(text)?);
    }
    let sleep_p99_us = thread::scope(|scope| scope.spawn(sleep_p99).join())
        .map_err(|_| LinkRunError::Forward(io::Error::other("a thread panicked")))?
        .as_secs_f64()
        * 1e6;
    Ok(LinkChecks { checks, sleep_p99_us })
}

/// How late 99 of 100 sleeps of 2 ms end.
fn sleep_p99() -> Duration {
    link::be_punctual();
    let clock = SystemClock;
    let start = clock.monotonic();
    let late = |number: u32| {
        let due = start + Duration::from_millis(2) * number;
        clock.sleep_until(due);
        clock.monotonic() - due
    };
    p99((0..1000).map(late).collect())
}

fn p99(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() * 99 / 100).copied().unwrap_or_default()
}

fn parsed(text: &str) -> Result<LinkSpec, LinkRunError> {
    text.parse()
        .map_err(|error| LinkRunError::Forward(io::Error::other(error)))
}

/// Offers 1.2 times the rate, or all that the socket takes.
fn check_rate(text: &'static str, tolerance: f64) -> Result<LinkCheck, LinkRunError> {
    let spec = parsed(text)?;
    let rate = spec.rate_bits_per_s.unwrap_or_default() as f64;
    let packet_bits = ((FULL_BYTES as u64 + HEADER_BYTES + ETHERNET_BYTES) * 8) as f64;
    let gap = qdisc(&spec)
        .is_none()
        .then(|| Duration::from_secs_f64(packet_bits / (1.2 * rate)));
    let flow = Flow {
        bytes: FULL_BYTES,
        gap,
        lasts: Duration::from_millis(2500),
        is_watched: false,
    };
    let found = rate_of(&probe(&spec, flow)?.arrivals, packet_bits);
    let [rate, found] = [rate / 1e6, found / 1e6];
    Ok(LinkCheck::new(
        text,
        "rate",
        "Mb/s",
        [rate, found, rate * tolerance],
    ))
}

/// Bits a second from the end of the warm-up until the last packet that was sent with others after it.
fn rate_of(arrivals: &[Arrival], packet_bits: f64) -> f64 {
    let Some((first, last)) = arrivals.first().zip(arrivals.last()) else {
        return 0.0;
    };
    let begin = first.arrived + WARM_UP;
    let counted: Vec<_> = arrivals
        .iter()
        .filter(|arrival| arrival.arrived >= begin && arrival.arrived <= last.sent)
        .collect();
    match counted.as_slice() {
        [first, .., last] => {
            (counted.len() - 1) as f64 * packet_bits / (last.arrived - first.arrived).as_secs_f64()
        }
        _ => 0.0,
    }
}

/// The 99th percentile of the time that packets take beyond the delay.
fn check_delay(text: &'static str) -> Result<LinkCheck, LinkRunError> {
    const TOLERANCE_US: f64 = 100.0;
    let spec = parsed(text)?;
    let flow = Flow {
        bytes: 100,
        gap: Some(Duration::from_millis(2)),
        lasts: Duration::from_secs(3),
        is_watched: true,
    };
    let arrivals = probe(&spec, flow)?.arrivals;
    let found = p99(arrivals
        .iter()
        .map(|arrival| arrival.arrived - arrival.sent)
        .collect());
    let [expected, found] = [spec.delay, found].map(|time| time.as_secs_f64() * 1e6);
    Ok(LinkCheck::new(
        text,
        "delay, p99",
        "µs",
        [expected, found, TOLERANCE_US],
    ))
}

fn check_loss(text: &'static str) -> Result<Vec<LinkCheck>, LinkRunError> {
    let spec = parsed(text)?;
    let flow = Flow {
        bytes: 100,
        gap: Some(Duration::from_micros(100)),
        lasts: Duration::from_secs(5),
        is_watched: false,
    };
    Ok(loss_of(text, spec.loss, &probe(&spec, flow)?))
}

/// Share, and mean length of bursts, each within three deviations.
fn loss_of(text: &'static str, loss: Loss, probe: &Probe) -> Vec<LinkCheck> {
    let sent = probe.sent as f64;
    let share = 1.0 - probe.arrivals.len() as f64 / sent;
    // Losses in bursts of this mean length scatter more.
    let inflation = loss.burst.map_or(1.0, |length| 2.0 * length);
    let deviation = (loss.share * (1.0 - loss.share) * inflation / sent).sqrt();
    let numbers = [loss.share, share, 3.0 * deviation].map(|share| share * 100.0);
    let mut checks = vec![LinkCheck::new(text, "loss", "%", numbers)];
    if let Some(length) = loss.burst {
        let gaps = probe
            .arrivals
            .windows(2)
            .map(|pair| pair[1].number - pair[0].number - 1);
        let bursts: Vec<u64> = gaps.filter(|gap| *gap > 0).collect();
        let count = (bursts.len() as f64).max(1.0);
        let mean = bursts.iter().sum::<u64>() as f64 / count;
        checks.push(LinkCheck::new(
            text,
            "length of bursts",
            "packets",
            [length, mean, 3.0 * length / count.sqrt()],
        ));
    }
    checks
}

/// Sends a flow from A to B over a new link.
fn probe(spec: &LinkSpec, flow: Flow) -> Result<Probe, LinkRunError> {
    let work = |ends: &[LinkEnd; 2]| -> io::Result<Probe> {
        let socket = |end: usize| {
            let address = SocketAddr::from((ADDRESSES[end], PORT));
            ends[end].udp_socket(address, RECEIVE_BUFFER_BYTES)
        };
        let (from, to) = (socket(0)?, socket(1)?);
        from.connect((ADDRESSES[1], PORT))?;
        thread::scope(|scope| {
            let receiving = scope.spawn(|| receive(&to, flow, spec));
            let sent = send(&from, flow)?;
            let panicked = || io::Error::other("a thread panicked");
            let arrivals = receiving.join().map_err(|_| panicked())??;
            Ok(Probe { sent, arrivals })
        })
    };
    carry(spec, work)?.0.map_err(LinkRunError::Forward)
}

fn send(socket: &UdpSocket, flow: Flow) -> io::Result<u64> {
    let clock = SystemClock;
    let mut datagram = vec![0; flow.bytes];
    let start = clock.monotonic();
    let mut number: u64 = 0;
    loop {
        let due = flow.gap.map_or(Duration::ZERO, |gap| gap.mul_f64(number as f64));
        let mut now = clock.monotonic();
        if now.max(start + due) >= start + flow.lasts {
            return Ok(number);
        }
        if now < start + due {
            clock.sleep_until(start + due);
            now = clock.monotonic();
        }
        datagram[..8].copy_from_slice(&number.to_le_bytes());
        let nanos = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        datagram[8..STAMP_BYTES].copy_from_slice(&nanos.to_le_bytes());
        socket.send(&datagram)?;
        number += 1;
    }
}

/// Receives until no more datagrams arrive.
fn receive(socket: &UdpSocket, flow: Flow, spec: &LinkSpec) -> io::Result<Vec<Arrival>> {
    if flow.is_watched {
        socket.set_nonblocking(true)?;
    } else {
        link::be_punctual();
    }
    let mut arrivals = Vec::new();
    let mut datagram = [0; 2048];
    socket.set_read_timeout(Some(flow.lasts + spec.longest()))?;
    let mut quiet_until = SystemClock.monotonic() + flow.lasts + spec.longest();
    loop {
        let length = match socket.recv(&mut datagram) {
            Ok(length) => length,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                if flow.is_watched && SystemClock.monotonic() < quiet_until {
                    continue;
                }
                return Ok(arrivals);
            }
            Err(error) => return Err(error),
        };
        let arrived = SystemClock.monotonic();
        quiet_until = arrived + spec.longest() + SILENCE;
        if arrivals.is_empty() {
            socket.set_read_timeout(Some(spec.longest() + SILENCE))?;
        }
        let number = |at: usize| {
            datagram[..length]
                .get(at..at + 8)
                .and_then(|bytes| bytes.try_into().ok())
                .map(u64::from_le_bytes)
        };
        if let (Some(number), Some(nanos)) = (number(0), number(8)) {
            arrivals.push(Arrival {
                number,
                sent: Duration::from_nanos(nanos),
                arrived,
            });
        }
    }
}

/// The checks for people.
pub fn check_table(checks: &LinkChecks) -> String {
    let columns: [Column<LinkCheck>; 5] = [
        ("link", |one| one.link.to_owned()),
        ("", |one| one.what.to_owned()),
        ("expected", |one| format!("{:.2} {}", one.expected, one.unit)),
        ("found", |one| {
            let verdict = if one.is_kept { "" } else { " (missed)" };
            format!("{:.2} {}{verdict}", one.found, one.unit)
        }),
        ("within", |one| format!("± {:.2}", one.tolerance)),
    ];
    let table = Sheet::of("", 2, &columns, &checks.checks).text();
    let late = checks.sleep_p99_us;
    format!("{table}\nA thread that only sleeps wakes up {late:.0} µs late (p99).")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(number: u64) -> Arrival {
        Arrival {
            number,
            sent: Duration::from_millis(number),
            arrived: Duration::from_millis(number + 5),
        }
    }

    #[test]
    fn a_rate_is_that_after_the_warm_up() {
        // A packet of 12 000 bits each millisecond.
        let arrivals: Vec<_> = (0..2000).map(arrival).collect();
        assert!((rate_of(&arrivals, 12_000.0) - 12e6).abs() < 1.0);
        assert_eq!(rate_of(&[], 12_000.0), 0.0);
        assert_eq!(rate_of(&arrivals[..1], 12_000.0), 0.0);
    }

    #[test]
    fn loss_and_bursts_are_found_and_judged() {
        // In every twenty, two consecutive ones are lost.
        let arrivals = (0..20_000)
            .filter(|number| number % 20 > 1)
            .map(arrival)
            .collect();
        let probe = Probe {
            sent: 20_000,
            arrivals,
        };
        let loss = |share, burst| Loss { share, burst };
        let checks = loss_of("x", loss(0.1, Some(2.0)), &probe);
        assert!((checks[0].found - 10.0).abs() < 1e-6);
        assert_eq!(checks[1].found, 2.0);
        assert!(checks.iter().all(|check| check.is_kept));
        let checks = loss_of("x", loss(0.2, Some(3.0)), &probe);
        assert!(!checks[0].is_kept && !checks[1].is_kept);
        let checks = LinkChecks {
            checks,
            sleep_p99_us: 70.2,
        };
        let table = check_table(&checks);
        assert!(table.ends_with("wakes up 70 µs late (p99)."), "{table}");
        assert!(!checks.are_kept() && table.contains("10.00 % (missed)"));
    }
}
