//! A topic of a simulated robot: its contents, its publisher, its link and clock, and the bounds that a contract has for it.

use super::{
    fleet::{MILLI, Plan},
    planter::{Cdr, Fault, Random, SECOND, START},
};
use crate::qos::Durability;
use std::fmt::Write as _;

impl Random {
    pub fn span(&mut self, from: i64, to: i64) -> i64 {
        from + self.below(to - from + 1)
    }

    pub fn real(&mut self, from: f64, to: f64) -> f64 {
        from + self.unit() * (to - from)
    }

    pub fn is(&mut self, share: f64) -> bool {
        self.unit() < share
    }

    pub fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as i64) as usize]
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Content {
    Points,
    Imu,
    Scan,
    Camera { width: u32, height: u32 },
}

impl Content {
    pub fn type_name(self) -> &'static str {
        match self {
            Self::Points => "geometry_msgs/msg/PointStamped",
            Self::Imu => "sensor_msgs/msg/Imu",
            Self::Scan => "sensor_msgs/msg/LaserScan",
            Self::Camera { .. } => "sensor_msgs/msg/Image",
        }
    }

    /// Floating-point values of a message.
    pub fn floats(self) -> u32 {
        match self {
            Self::Points => 3,
            Self::Imu => 37,
            Self::Scan => 67,
            Self::Camera { .. } => 0,
        }
    }

    /// A message, whose content is decided by a number, with `bad` values that are not finite or pixels that are black.
    pub fn payload(self, stamp: i64, content: u64, bad: u32) -> Vec<u8> {
        let mut random = Random(content);
        let mut out = Cdr::new().header(stamp, "sensor");
        let mut value = |at: u32| match at < bad {
            true if content.is_multiple_of(2) => f64::NAN,
            true => f64::INFINITY,
            false => random.unit(),
        };
        match self {
            Self::Points | Self::Imu => (0..self.floats()).fold(out, |out, at| out.f64(value(at))).0,
            Self::Scan => {
                // The angles and bounds of a scan, its 60 ranges, no intensities.
                for at in (60..67).chain(0..60) {
                    if at == 0 {
                        out = out.u32(60);
                    }
                    out = out.put(&(value(at) as f32).to_le_bytes());
                }
                out.u32(0).0
            }
            Self::Camera { width, height } => {
                let pixels = width * height;
                let mut out = out
                    .u32(height)
                    .u32(width)
                    .text("mono8")
                    .put(&[0])
                    .u32(width)
                    .u32(pixels);
                let mut word = random.next();
                out.0.extend((0..pixels).map(|at| {
                    word = word.rotate_left(5).wrapping_add(0x9e37_79b9);
                    (word % 200) as u8 / if at < bad { 25 } else { 1 } + if at < bad { 0 } else { 20 }
                }));
                out.0
            }
        }
    }
}

/// A topic without faults, and the contract's bounds.
#[derive(Clone, Debug)]
pub struct Stream {
    pub name: String,
    pub content: Content,
    pub period: i64,
    /// Shares of the period, and of the messages.
    pub jitter: f64,
    pub loss: f64,
    /// The latency is this, an exponential part with this mean, and stalls up to this length.
    pub latency: i64,
    pub delay: f64,
    pub stall: i64,
    pub ppm: f64,
    /// Messages whose content is that of the one before, at most, in a row.
    pub still: u64,
    /// Values or pixels that are bad in each message.
    pub bad: u32,
    pub rate: (f64, f64, i64),
    pub gap: i64,
    pub jump: i64,
    pub drift: (f64, i64),
    pub frozen: u64,
    /// Share of NaN or of black pixels.
    pub share: f64,
    pub durability: Durability,
}

impl Stream {
    pub fn new(random: &mut Random, name: String, content: Content) -> Self {
        let is_camera = matches!(content, Content::Camera { .. });
        let hertz = match is_camera {
            true => random.real(3.0, 15.0),
            false => random.real(5.0, 50.0),
        };
        let period = (1e9 / hertz) as i64;
        let stall = match random.is(0.4) {
            true => random.span(20, 200) * MILLI,
            false => 0,
        };
        let still = if random.is(0.3) {
            random.span(1, 6) as u64
        } else {
            0
        };
        let mut stream = Self {
            name,
            content,
            period,
            jitter: random.real(0.0, 0.3),
            loss: random.real(0.0, 0.01),
            latency: random.span(-20, 40) * MILLI,
            delay: random.real(5e4, 1e6),
            stall,
            ppm: 0.0,
            still,
            bad: 0,
            rate: (0.0, 0.0, 0),
            gap: (period * 5 + stall + 20 * MILLI) * random.span(100, 300) / 100,
            jump: (stall + 40 * MILLI) * random.span(130, 250) / 100,
            drift: (0.0, 0),
            frozen: still + random.span(3, 20) as u64,
            share: 0.0,
            durability: random.one(&[Durability::Volatile, Durability::TransientLocal]),
        };
        stream.rate = stream.rates(random);
        // The slope of the shortest latencies of a 24th of the window has to show 25 ppm.
        let per_second = stream.delay / hertz / 1e3 + 20.0;
        let least = (per_second * 24.0 / 25.0).sqrt() * 3.0;
        stream.drift = (
            random.real(20.0, 30.0),
            ((least * 1e3) as i64).max(random.span(12_000, 30_000)) * MILLI,
        );
        stream.ppm = random.real(-0.3, 0.3) * stream.drift.0;
        (stream.share, stream.bad) = match content {
            Content::Scan if random.is(0.5) => (random.real(0.05, 0.3), random.span(0, 2) as u32),
            Content::Camera { width, height } => {
                let share = random.real(0.6, 0.98);
                let bad = random.real(0.0, share - 0.1) * f64::from(width * height);
                (share, bad as u32)
            }
            _ => (0.0, 0),
        };
        stream
    }

    pub fn hertz(&self) -> f64 {
        1e9 / self.period as f64
    }

    /// Messages that a window may have more or less than its length times the rate.
    pub fn slack(&self, window: i64) -> f64 {
        let messages = window as f64 / self.period as f64;
        2.0 + self.stall as f64 / self.period as f64 + 5.0 * (self.loss * messages).sqrt()
    }

    fn rates(&self, random: &mut Random) -> (f64, f64, i64) {
        let mut window = random.span(20, 80) * 100 * MILLI;
        while self.slack(window) > 0.2 * window as f64 / self.period as f64 {
            window += SECOND;
        }
        let share = self.slack(window) * self.period as f64 / window as f64;
        let min = self.hertz() * (1.0 - share) * random.real(0.75, 0.98);
        (min, self.hertz() * (1.0 + share) * random.real(1.02, 1.4), window)
    }

    pub fn rules(&self) -> String {
        let (min, max, window) = self.rate;
        let mut out = format!(
            "  {}:\n    required: true\n    type: {}\n    qos: {{reliability: reliable, durability: {}, depth: 5}}\n    \
             rate: {{min: {min:.4}, max: {max:.4}, window: {}ms}}\n    gap: {}ms\n    frozen: {}\n",
            self.name,
            self.content.type_name(),
            self.durability.as_str(),
            window / MILLI,
            self.gap / MILLI,
            self.frozen,
        );
        let done = match self.content {
            Content::Camera { width, height } => writeln!(
                out,
                "    image: {{encoding: mono8, width: {width}, height: {height}, black: {:.4}}}",
                self.share
            ),
            _ => writeln!(
                out,
                "    jump: {}ms\n    non_finite: {:.4}\n    drift: {{ppm: {:.2}, window: {}ms}}\n    frame: sensor",
                self.jump / MILLI,
                self.share,
                self.drift.0,
                self.drift.1 / MILLI
            ),
        };
        done.unwrap();
        out
    }
}

/// A message on its way.
pub struct Sent {
    pub emitted: i64,
    pub time: i64,
    pub stamp: i64,
    pub content: u64,
    pub bad: u32,
}

/// A publisher, its link and its clock.
pub struct Source<'a> {
    stream: &'a Stream,
    tick: i64,
    last: i64,
    /// The stall that is, or the next one: from when to when.
    stall: (i64, i64),
    content: u64,
    still: u64,
    is_frozen: bool,
    frozen_stamp: Option<i64>,
}

impl<'a> Source<'a> {
    pub fn new(stream: &'a Stream, random: &mut Random) -> Self {
        Self {
            stream,
            tick: START + random.below(stream.period),
            last: START,
            stall: (START, START),
            content: random.next(),
            still: 0,
            is_frozen: false,
            frozen_stamp: None,
        }
    }

    pub fn next(&mut self, plan: &Plan, end: i64, random: &mut Random) -> Option<Sent> {
        let stream = self.stream;
        loop {
            let is_faulty = plan.is_in(self.tick);
            let factor = if is_faulty && plan.fault == Fault::Rate {
                plan.size
            } else {
                1.0
            };
            self.tick += (stream.period as f64 * factor) as i64;
            let emitted =
                self.tick + (stream.period as f64 * factor * stream.jitter * (random.unit() - 0.5)) as i64;
            let delay =
                (-(1.0 - random.unit()).ln() * stream.delay) as i64 + stream.latency.max(0) / 4 + 20_000;
            let mut time = emitted + delay;
            while time > self.stall.1 && stream.stall > 0 {
                let begin = self.stall.1 + random.span(2, 12) * SECOND;
                self.stall = (begin, begin + random.below(stream.stall));
            }
            if (self.stall.0..self.stall.1).contains(&time) {
                time = self.stall.1;
            }
            self.last = time.max(self.last + 10_000);
            if self.last > end {
                return None;
            }
            if random.is(stream.loss) {
                continue;
            }
            let is_frozen = plan.fault == Fault::Freeze && plan.is_in(emitted);
            self.next_content(is_frozen, random);
            let since = (emitted - START) as f64;
            let mut stamp = emitted - stream.latency + (since * stream.ppm / 1e6) as i64;
            if is_frozen && plan.way == 1 {
                stamp = *self.frozen_stamp.get_or_insert(stamp);
            }
            return Some(Sent {
                emitted,
                time: self.last,
                stamp,
                content: self.content,
                bad: stream.bad,
            });
        }
    }

    /// Content stays the same for a while at times, and in a freeze until it is over.
    fn next_content(&mut self, is_frozen: bool, random: &mut Random) {
        if self.is_frozen && is_frozen {
            return;
        }
        self.is_frozen = is_frozen;
        if !is_frozen && self.still > 0 {
            self.still -= 1;
            return;
        }
        self.content = random.next();
        self.still = match is_frozen || random.is(0.95) {
            true => 0,
            false => self.stream.still,
        };
    }
}

impl Stream {
    /// Too slow or too fast: by what the period is multiplied.
    pub fn rate_factor(&self, is_slow: bool, random: &mut Random) -> f64 {
        let (min, max, window) = self.rate;
        let margin = (self.slack(window) + 1.0) * 1e9 / window as f64;
        let wanted = match is_slow {
            true => (min - margin).max(0.1) * random.real(0.3, 1.0),
            false => (max + margin / (1.0 - self.loss)) * random.real(1.02, 2.0),
        };
        self.hertz() / wanted
    }
}
