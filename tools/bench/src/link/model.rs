//! The fate of each packet on a link: delivered at a time, or dropped for a reason. Pure: no clock, no device.

use super::spec::{Bottleneck, LinkSpec};
use fastrand::Rng;
use std::time::Duration;

/// Bytes that an Ethernet header adds to each packet: rates of networks include it.
pub const ETHERNET_BYTES: u64 = 14;

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// Lost at random.
    Loss,
    /// The queue before the rate was full.
    Queue,
    /// During an outage.
    Outage,
}

/// The fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrives at this time.
    Deliver(Duration),
    /// It never arrives.
    Drop(DropReason),
}

/// One direction of a link.
#[derive(Clone, Debug)]
pub struct LinkModel {
    spec: LinkSpec,
    rng: Rng,
    /// Nanoseconds that a byte takes; zero without a rate, or where the sender's interface limits.
    nanos_per_byte: f64,
    /// When the rate is free for the next packet, in nanoseconds.
    free_at: f64,
    /// The last packet in order arrives then: no later one arrives before it.
    latest: Duration,
    /// In a burst of losses.
    is_bad: bool,
}

impl LinkModel {
    /// The direction with this number, 0 or 1: each has separate random numbers.
    pub fn new(spec: &LinkSpec, direction: u64) -> Self {
        let rate = spec
            .rate_bits_per_s
            .filter(|_| spec.bottleneck == Bottleneck::Path);
        Self {
            spec: spec.clone(),
            rng: Rng::with_seed(spec.seed.wrapping_mul(2).wrapping_add(direction)),
            nanos_per_byte: rate.map_or(0.0, |bits| 8e9 / bits as f64),
            free_at: 0.0,
            latest: Duration::ZERO,
            is_bad: false,
        }
    }

    /// The fate of a packet of this length that enters at `now`; `now` never decreases.
    ///
    /// A lost packet takes its share of the rate, like one damaged on the air; one that the queue drops does not.
    pub fn fate(&mut self, now: Duration, bytes: usize) -> Fate {
        let mut at = now;
        if self.nanos_per_byte > 0.0 {
            let now_nanos = now.as_nanos() as f64;
            let begins = self.free_at.max(now_nanos);
            if begins - now_nanos > self.spec.queue.as_nanos() as f64 {
                return Fate::Drop(DropReason::Queue);
            }
            self.free_at = begins + (bytes as u64 + ETHERNET_BYTES) as f64 * self.nanos_per_byte;
            at = Duration::from_nanos(self.free_at.ceil() as u64).max(now);
        }
        // Whether there is an outage does not change which packets are lost at random.
        let is_lost = self.is_lost();
        if self
            .spec
            .outages
            .iter()
            .any(|outage| (outage.at..outage.at + outage.lasts).contains(&now))
        {
            return Fate::Drop(DropReason::Outage);
        }
        if is_lost {
            return Fate::Drop(DropReason::Loss);
        }
        if self.spec.reorder > 0.0 && self.rng.f64() < self.spec.reorder {
            return Fate::Deliver(at);
        }
        at += self.delay();
        self.latest = self.latest.max(at);
        Fate::Deliver(self.latest)
    }

    fn delay(&mut self) -> Duration {
        if self.spec.jitter.is_zero() {
            return self.spec.delay;
        }
        self.spec.delay - self.spec.jitter + (self.spec.jitter * 2).mul_f64(self.rng.f64())
    }

    /// Gilbert's model: a burst ends with probability 1/length, and begins as often as the share requires.
    fn is_lost(&mut self) -> bool {
        let loss = self.spec.loss;
        if loss.share <= 0.0 {
            return false;
        }
        let chance = self.rng.f64();
        let (begins, Some(ends)) = loss.chances() else {
            return chance < loss.share;
        };
        self.is_bad = if self.is_bad {
            chance >= ends
        } else {
            chance < begins
        };
        self.is_bad
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn model(text: &str) -> LinkModel {
        LinkModel::new(&text.parse().unwrap(), 0)
    }

    /// Fates of packets of `bytes` that enter every `gap`.
    fn fates(model: &mut LinkModel, count: u64, gap: Duration, bytes: usize) -> Vec<(Duration, Fate)> {
        (0..count)
            .map(|number| {
                let now = gap * u32::try_from(number).unwrap();
                (now, model.fate(now, bytes))
            })
            .collect()
    }

    fn count(fates: &[(Duration, Fate)], wanted: Fate) -> usize {
        fates.iter().filter(|(_, fate)| *fate == wanted).count()
    }

    #[test]
    fn an_ideal_link_delivers_at_once() {
        let mut ideal = model("");
        let now = Duration::from_millis(3);
        assert_eq!(ideal.fate(now, 1500), Fate::Deliver(now));
    }

    #[test]
    fn a_saturated_link_delivers_its_rate_and_drops_the_rest() {
        // 1486 + 14 bytes at 12 Mb/s take 1 ms; twice as many come.
        let mut slow = model("rate=12Mb/s,queue=10ms");
        let all = fates(&mut slow, 4000, Duration::from_micros(500), 1486);
        let arrived = all
            .iter()
            .filter(|(_, fate)| matches!(fate, Fate::Deliver(_)))
            .count();
        assert!((2000..=2011).contains(&arrived), "{arrived}");
        assert_eq!(arrived + count(&all, Fate::Drop(DropReason::Queue)), 4000);
        for (now, fate) in all {
            if let Fate::Deliver(at) = fate {
                assert!(at - now <= Duration::from_micros(11_001), "{now:?} {at:?}");
            }
        }
    }

    #[test]
    fn at_the_senders_interface_the_model_does_not_limit() {
        let mut nic = model("rate=1Mb/s,bottleneck=nic");
        assert_eq!(nic.fate(Duration::ZERO, 60_000), Fate::Deliver(Duration::ZERO));
    }

    #[test]
    fn outages_drop_everything_and_change_no_other_loss() {
        let gap = Duration::from_millis(1);
        let with = fates(&mut model("loss=20%,down=1s@2s"), 5000, gap, 100);
        let without = fates(&mut model("loss=20%"), 5000, gap, 100);
        for ((now, with), (_, without)) in with.iter().zip(&without) {
            if (2000..3000).contains(&now.as_millis()) {
                assert_eq!(*with, Fate::Drop(DropReason::Outage));
            } else {
                assert_eq!(with, without);
            }
        }
    }

    #[test]
    fn bursts_have_the_share_and_the_length_that_were_asked_for() {
        const COUNT: u64 = 2_000_000;
        for (share, length) in [(0.1, 1.5), (0.1, 20.0), (0.4, 5.0), (0.01, 100.0)] {
            let mut bursts = model(&format!("loss={}%/burst={length}", share * 100.0));
            let all = fates(&mut bursts, COUNT, Duration::from_nanos(1), 100);
            let lost = all
                .iter()
                .map(|(_, fate)| *fate == Fate::Drop(DropReason::Loss))
                .collect::<Vec<_>>();
            let total = lost.iter().filter(|lost| **lost).count() as f64;
            let runs = lost.windows(2).filter(|pair| pair[0] && !pair[1]).count() as f64;
            // Lengths are geometric: their deviation is about the length itself.
            let mean = total / runs;
            assert!(
                (mean - length).abs() <= 4.0 * length / runs.sqrt(),
                "{mean} of {length}"
            );
            let found = total / COUNT as f64;
            let deviation = (share * (1.0 - share) * 2.0 * length / COUNT as f64).sqrt();
            assert!((found - share).abs() <= 4.0 * deviation, "{found} of {share}");
        }
    }

    #[test]
    fn all_and_nothing_are_shares_too() {
        let gap = Duration::from_micros(10);
        assert_eq!(
            count(
                &fates(&mut model("loss=100%"), 1000, gap, 10),
                Fate::Drop(DropReason::Loss)
            ),
            1000
        );
        assert_eq!(
            count(
                &fates(&mut model("loss=0%"), 1000, gap, 10),
                Fate::Drop(DropReason::Loss)
            ),
            0
        );
    }

    #[test]
    fn packets_that_overtake_are_as_many_as_were_asked_for() {
        let all = fates(
            &mut model("delay=20ms,reorder=10%"),
            100_000,
            Duration::from_micros(100),
            100,
        );
        let early = all
            .iter()
            .filter(|(now, fate)| *fate == Fate::Deliver(*now))
            .count();
        assert!((9_600..=10_400).contains(&early), "{early}");
    }

    proptest! {
        #[test]
        fn delays_stay_within_their_bounds_and_packets_in_order(
            delay in 0u64..50_000, jitter in 0u64..50_000, seed in any::<u64>(),
            steps in prop::collection::vec((0u64..5_000, 1usize..1500), 1..200),
        ) {
            let jitter = jitter.min(delay);
            let mut link = model(&format!("rate=100Mb/s,queue=1s,delay={delay}us±{jitter}us,seed={seed}"));
            let (mut now, mut last) = (Duration::ZERO, Duration::ZERO);
            let mut sent = 0.0;
            for (step, bytes) in steps {
                now += Duration::from_micros(step);
                sent += (bytes as f64 + 14.0) * 80.0;
                let Fate::Deliver(at) = link.fate(now, bytes) else {
                    return Err(TestCaseError::fail("nothing drops here"));
                };
                prop_assert!(at >= last, "in order");
                prop_assert!(at >= now + Duration::from_micros(delay - jitter));
                let most = now + Duration::from_nanos(sent as u64 + 300) + Duration::from_micros(delay + jitter);
                prop_assert!(at <= most.max(last));
                last = at;
            }
        }

        #[test]
        fn one_seed_has_one_fate(text in "loss=[1-9][0-9]%", seed in any::<u64>()) {
            let text = format!("{text},delay=2ms±1ms,reorder=5%,seed={seed}");
            let gap = Duration::from_micros(50);
            prop_assert_eq!(fates(&mut model(&text), 300, gap, 99), fates(&mut model(&text), 300, gap, 99));
        }
    }
}
