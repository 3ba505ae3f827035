//! The text that describes a link: `rate=54Mb/s,loss=10%/burst=20,delay=5ms±1ms,queue=200ms,bottleneck=path`.

use std::{str::FromStr, time::Duration};

/// The place where packets wait for the link's rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Bottleneck {
    /// On the way, as at a radio access point: a full queue drops arriving packets.
    #[default]
    Path,
    /// At the sender's own interface, as with a slow network card: a full queue makes `send` wait.
    Nic,
}

/// The code that decides about packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// The model of this program.
    #[default]
    Holdall,
    /// The kernel's netem, if it has one: it drops without giving a reason.
    Netem,
}

/// How packets are lost at random.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Loss {
    /// Share of packets, 0 to 1.
    pub share: f64,
    /// Mean number of packets lost one after the other (Gilbert's model); `None` loses each by itself.
    pub burst: Option<f64>,
}

impl Loss {
    /// Gilbert's model: chances that a burst begins and ends at a packet, so that the share is lost; without bursts the chance of each packet.
    pub(super) fn chances(self) -> (f64, Option<f64>) {
        let Some(length) = self.burst else {
            return (self.share, None);
        };
        let ends = 1.0 / length;
        let begins = if self.share < 1.0 {
            self.share * ends / (1.0 - self.share)
        } else {
            1.0
        };
        (begins, Some(ends))
    }
}

/// A time without any delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Outage {
    /// Its beginning, from the start of the link.
    pub at: Duration,
    /// How long it lasts.
    pub lasts: Duration,
}

/// A link, the same in both directions.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct LinkSpec {
    /// Bits a second, counted with the 14 bytes of an Ethernet header for each packet; `None` does not limit.
    pub rate_bits_per_s: Option<u64>,
    /// Loss at random.
    pub loss: Loss,
    /// Mean time on the way, beyond waiting for the rate.
    pub delay: Duration,
    /// The delay of each packet is between `delay - jitter` and `delay + jitter`, evenly; packets stay in order.
    pub jitter: Duration,
    /// Share of packets that overtake: they are not delayed. 0 to 1.
    pub reorder: f64,
    /// How long a packet may wait for the rate; longer queues drop it.
    pub queue: Duration,
    /// The place where it waits.
    pub bottleneck: Bottleneck,
    /// Times without delivery.
    pub outages: Vec<Outage>,
    /// Largest packet in bytes, IP header included.
    pub mtu: u16,
    /// Seed of all random numbers: the same seed loses the same packets.
    pub seed: u64,
    /// The backend that decides about packets.
    pub backend: Backend,
    /// The link does not sleep for this long before a packet is due: it keeps a processor busy, and avoids the delay of waking up.
    pub spin: Duration,
    /// Packets that are due soon after each other are delivered together, each up to this much late: waking up for each one costs more processor
    /// time.
    pub group: Duration,
}

impl Default for LinkSpec {
    fn default() -> Self {
        Self {
            rate_bits_per_s: None,
            loss: Loss::default(),
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            reorder: 0.0,
            queue: Duration::from_millis(200),
            bottleneck: Bottleneck::Path,
            outages: Vec::new(),
            mtu: 1500,
            seed: 1,
            backend: Backend::Holdall,
            spin: Duration::ZERO,
            group: Duration::from_micros(100),
        }
    }
}

/// A part of a link's description that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("link {part:?}: expected {expected}")]
pub struct LinkSpecError {
    /// The part as it was given.
    pub part: String,
    /// The form that would be accepted.
    pub expected: &'static str,
}

/// Links by name, of the three kinds that comparisons of middlewares use. The figures are typical ones, chosen here.
const PRESETS: [(&str, &str); 3] = [
    ("ethernet", "rate=1000Mb/s,delay=200us,bottleneck=nic"),
    ("wifi", "rate=54Mb/s,loss=1%/burst=5,delay=3ms±2ms"),
    ("4g", "rate=30Mb/s,loss=0.1%,delay=30ms±10ms"),
];

/// Every key with an example.
const KEYS: &str = "one of rate=54Mb/s, loss=10%, loss=10%/burst=20, delay=5ms, delay=5ms±1ms, reorder=1%, queue=200ms, bottleneck=path, \
     bottleneck=nic, down=5s@20s, mtu=1500, seed=1, backend=netem, spin=500us, group=100us; or ethernet, wifi or 4g alone";

/// Rates from a slow radio to the fastest that this program forwards.
const RATE_BITS: std::ops::RangeInclusive<f64> = 1e3..=1e11;
const RATE: &str = "a rate from 1kb/s to 100Gb/s, for example 54Mb/s";
const TIME: &str = "a time up to 1 h, for example 200us, 5ms or 1.5s";
const TIME_MAX: Duration = Duration::from_secs(3600);
/// Longer waits are slept.
const SPIN_MAX: Duration = Duration::from_millis(10);
/// Longest grouping; beyond it a run would be invalid.
const GROUP_MAX: Duration = Duration::from_millis(10);
const SHARE: &str = "a share from 0% to 100%";
/// The smallest that IPv6 allows to the largest packet of IPv4.
const MTU: std::ops::RangeInclusive<u16> = 576..=65_535;

impl FromStr for LinkSpec {
    type Err = LinkSpecError;

    fn from_str(text: &str) -> Result<Self, LinkSpecError> {
        let mut spec = Self::default();
        let preset = PRESETS.iter().find(|(name, _)| *name == text.trim());
        let text = preset.map_or(text, |(_, link)| *link);
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            spec.set(part).map_err(|expected| LinkSpecError {
                part: part.to_owned(),
                expected,
            })?;
        }
        if spec.bottleneck == Bottleneck::Nic && spec.rate_bits_per_s.is_none() {
            return Err(LinkSpecError {
                part: "bottleneck=nic".to_owned(),
                expected: "a rate, too: without one nothing waits",
            });
        }
        if spec.backend == Backend::Netem && (spec.bottleneck == Bottleneck::Nic || !spec.outages.is_empty())
        {
            return Err(LinkSpecError {
                part: "backend=netem".to_owned(),
                expected: "neither bottleneck=nic nor down: netem has no such thing",
            });
        }
        Ok(spec)
    }
}

impl LinkSpec {
    fn set(&mut self, part: &str) -> Result<(), &'static str> {
        let (key, value) = part.split_once('=').ok_or(KEYS)?;
        match key.trim() {
            "rate" => self.rate_bits_per_s = Some(rate(value).ok_or(RATE)?),
            "loss" => self.loss = loss(value)?,
            "delay" => {
                let (delay, jitter) = value
                    .split_once('±')
                    .or(value.split_once("+-"))
                    .unwrap_or((value, "0s"));
                (self.delay, self.jitter) = (time(delay).ok_or(TIME)?, time(jitter).ok_or(TIME)?);
                if self.jitter > self.delay {
                    return Err("a delay that is not shorter than its jitter");
                }
            }
            "reorder" => self.reorder = share(value).ok_or(SHARE)?,
            "queue" => self.queue = time(value).ok_or(TIME)?,
            "bottleneck" => {
                self.bottleneck = match value.trim() {
                    "path" => Bottleneck::Path,
                    "nic" => Bottleneck::Nic,
                    _ => return Err("path or nic"),
                }
            }
            "down" => {
                const DOWN: &str = "a length and a beginning, for example 5s@20s";
                let (lasts, at) = value.split_once('@').ok_or(DOWN)?;
                let (at, lasts) = (time(at).ok_or(DOWN)?, time(lasts).ok_or(DOWN)?);
                self.outages.push(Outage { at, lasts });
            }
            "mtu" => {
                let mtu = value.trim().parse().ok().filter(|mtu| MTU.contains(mtu));
                self.mtu = mtu.ok_or("a number of bytes from 576 to 65535")?;
            }
            "seed" => self.seed = value.trim().parse().map_err(|_| "a whole number")?,
            "backend" => {
                self.backend = match value.trim() {
                    "holdall" => Backend::Holdall,
                    "netem" => Backend::Netem,
                    _ => return Err("holdall or netem"),
                }
            }
            "spin" => {
                let spin = time(value).filter(|spin| *spin <= SPIN_MAX);
                self.spin = spin.ok_or("a time up to 10ms, for example 500us")?;
            }
            "group" => {
                let group = time(value).filter(|group| *group <= GROUP_MAX);
                self.group = group.ok_or("a time up to 10ms, for example 100us")?;
            }
            _ => return Err(KEYS),
        }
        Ok(())
    }

    /// The part left for this program's model: nothing if the kernel's netem decides.
    pub(super) fn of_model(&self) -> Self {
        match self.backend {
            Backend::Holdall => self.clone(),
            Backend::Netem => Self {
                queue: self.longest(),
                mtu: self.mtu,
                spin: self.spin,
                group: self.group,
                ..Self::default()
            },
        }
    }

    /// The longest that a packet can be on the way.
    pub fn longest(&self) -> Duration {
        self.queue + self.delay + self.jitter
    }
}

fn loss(value: &str) -> Result<Loss, &'static str> {
    const LOSS: &str = "a share from 0% to 100%, also with a mean length of bursts: 10%/burst=20";
    let (share_text, burst) = value
        .split_once('/')
        .map_or((value, None), |(share, burst)| (share, Some(burst)));
    let share = share(share_text).ok_or(LOSS)?;
    let burst = match burst {
        Some(text) => {
            let length = text
                .trim()
                .strip_prefix("burst=")
                .and_then(|text| text.parse::<f64>().ok());
            Some(length.filter(|length| (1.0..=1e6).contains(length)).ok_or(LOSS)?)
        }
        None => None,
    };
    // Between two bursts there is at least one packet.
    match burst {
        Some(length) if share > length / (length + 1.0) => {
            Err("a smaller share, or longer bursts: between two bursts a packet arrives")
        }
        _ => Ok(Loss { share, burst }),
    }
}

fn rate(text: &str) -> Option<u64> {
    let text = text.trim();
    let bits = text
        .strip_suffix("b/s")
        .or(text.strip_suffix("bit/s"))
        .or(text.strip_suffix("bit"))?;
    let (number, factor) = match bits.char_indices().next_back()? {
        (at, 'k' | 'K') => (&bits[..at], 1e3),
        (at, 'M' | 'm') => (&bits[..at], 1e6),
        (at, 'G' | 'g') => (&bits[..at], 1e9),
        _ => (bits, 1.0),
    };
    let bits = number.trim().parse::<f64>().ok()? * factor;
    RATE_BITS.contains(&bits).then_some(bits as u64)
}

fn time(text: &str) -> Option<Duration> {
    let text = text.trim();
    let units = [("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let (number, factor) = units
        .iter()
        .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)))?;
    let seconds = number.trim().parse::<f64>().ok()? * factor;
    let time = Duration::try_from_secs_f64(seconds).ok()?;
    (time <= TIME_MAX).then_some(time)
}

fn share(text: &str) -> Option<f64> {
    let percent = text.trim().strip_suffix('%')?.trim().parse::<f64>().ok()?;
    (0.0..=100.0).contains(&percent).then_some(percent / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_key_is_read() {
        let spec: LinkSpec = "rate=54Mb/s, loss=10%/burst=20, delay=5ms±1ms, queue=100ms, bottleneck=nic, reorder=2%, down=5s@20s, down=1s@60s, mtu=9000, seed=7, group=1ms"
            .parse()
            .unwrap();
        assert_eq!(spec.rate_bits_per_s, Some(54_000_000));
        assert_eq!(
            spec.loss,
            Loss {
                share: 0.1,
                burst: Some(20.0)
            }
        );
        assert_eq!(
            (spec.delay, spec.jitter),
            (Duration::from_millis(5), Duration::from_millis(1))
        );
        assert_eq!(
            (spec.queue, spec.bottleneck, spec.reorder),
            (Duration::from_millis(100), Bottleneck::Nic, 0.02)
        );
        assert_eq!(spec.outages.len(), 2);
        assert_eq!((spec.mtu, spec.seed), (9000, 7));
        assert_eq!(spec.group, Duration::from_millis(1));
        assert_eq!("".parse(), Ok(LinkSpec::default()));
        assert_eq!(
            "delay=2ms+-1ms".parse::<LinkSpec>().unwrap().jitter,
            Duration::from_millis(1)
        );
    }

    #[test]
    fn the_links_that_have_a_name_are_valid() {
        for (name, link) in PRESETS {
            assert_eq!(name.parse::<LinkSpec>().unwrap(), link.parse().unwrap());
        }
        assert!("wifi,loss=2%".parse::<LinkSpec>().is_err());
    }

    #[test]
    fn each_broken_part_is_named_with_what_is_expected() {
        for (text, named) in [
            (
                "rate=fast",
                "link \"rate=fast\": expected a rate from 1kb/s to 100Gb/s, for example 54Mb/s",
            ),
            ("rate=0Mb/s", "expected a rate"),
            ("rate=54MB/s", "expected a rate"),
            ("loss=10", "expected a share from 0% to 100%"),
            ("loss=101%", "expected a share"),
            ("loss=90%/burst=2", "expected a smaller share, or longer bursts"),
            ("loss=10%/burst=0.5", "expected a share"),
            ("delay=5", "expected a time up to 1 h"),
            ("delay=-5ms", "expected a time"),
            (
                "delay=1ms±2ms",
                "expected a delay that is not shorter than its jitter",
            ),
            ("queue=1e9s", "expected a time"),
            ("bottleneck=middle", "expected path or nic"),
            ("bottleneck=nic", "expected a rate, too"),
            ("down=5s", "expected a length and a beginning"),
            ("mtu=100", "expected a number of bytes"),
            ("backend=tc", "expected holdall or netem"),
            (
                "backend=netem,down=5s@20s",
                "expected neither bottleneck=nic nor down",
            ),
            ("spin=1s", "expected a time up to 10ms"),
            ("group=11ms", "expected a time up to 10ms"),
            ("speed=5", "expected one of rate=54Mb/s, loss=10%"),
            ("loss", "expected one of"),
        ] {
            let error = text.parse::<LinkSpec>().unwrap_err().to_string();
            assert!(error.contains(named), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange(text in "\\PC{0,60}") {
            let _ = text.parse::<LinkSpec>();
        }
    }
}
