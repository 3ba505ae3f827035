//! Message sizes: one, or several in stated shares of the bytes, evenly interleaved.

/// One size of a mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeClass {
    /// Payload length in bytes.
    pub bytes: usize,
    /// How many of each cycle's messages have it.
    pub per_cycle: u32,
}

/// Message sizes in a repeating, evenly interleaved order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizeMix {
    classes: Vec<SizeClass>,
    /// The class of each message of a cycle.
    order: Vec<u8>,
}

impl SizeMix {
    /// Messages of one size.
    pub fn single(bytes: usize) -> Self {
        Self {
            classes: vec![SizeClass { bytes, per_cycle: 1 }],
            order: vec![0],
        }
    }

    /// The mix of the storage plugin comparison: 70 % of the bytes in messages of 1 000 000 B, 20 % in 10 000
    /// B, 10 % in 100 B.
    pub fn mixed() -> Self {
        Self::interleaved(vec![
            SizeClass {
                bytes: 1_000_000,
                per_cycle: 7,
            },
            SizeClass {
                bytes: 10_000,
                per_cycle: 200,
            },
            SizeClass {
                bytes: 100,
                per_cycle: 10_000,
            },
        ])
    }

    /// Spreads each class evenly over the cycle. At most 256 classes are used.
    pub(crate) fn interleaved(classes: Vec<SizeClass>) -> Self {
        let mut places: Vec<(f64, u8)> = Vec::new();
        for (class, index) in classes.iter().zip(0_u8..) {
            let count = f64::from(class.per_cycle);
            places.extend((0..class.per_cycle).map(|j| ((f64::from(j) + 0.5) / count, index)));
        }
        places.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        Self {
            classes,
            order: places.into_iter().map(|(_, class)| class).collect(),
        }
    }

    /// The sizes.
    pub(crate) fn classes(&self) -> &[SizeClass] {
        &self.classes
    }

    /// The class of each message of a cycle; never empty.
    pub fn order(&self) -> &[u8] {
        &self.order
    }

    /// The largest size in bytes.
    pub fn largest_bytes(&self) -> usize {
        self.classes.iter().map(|class| class.bytes).max().unwrap_or(0)
    }

    /// Bytes of one cycle.
    pub(crate) fn cycle_bytes(&self) -> u64 {
        self.classes
            .iter()
            .map(|class| class.bytes as u64 * u64::from(class.per_cycle))
            .sum()
    }

    /// Mean payload length in bytes.
    pub fn mean_bytes(&self) -> f64 {
        self.cycle_bytes() as f64 / self.order.len() as f64
    }

    /// How many messages, in order, fit into `bytes` (at least one), and how many bytes those are.
    pub fn fill(&self, bytes: u64) -> (u64, u64) {
        let cycle_bytes = self.cycle_bytes().max(1);
        let cycles = bytes / cycle_bytes;
        let (mut messages, mut used) = (cycles * self.order.len() as u64, cycles * cycle_bytes);
        for class in &self.order {
            let size = self.classes[usize::from(*class)].bytes as u64;
            if used + size > bytes && messages > 0 {
                break;
            }
            messages += 1;
            used += size;
        }
        (messages, used)
    }

    /// Its name on the command line.
    pub fn label(&self) -> String {
        match self.classes.as_slice() {
            [single] => size_label(single.bytes),
            _ => "mixed".to_owned(),
        }
    }
}

/// `1MiB` and `10KiB` where that is exact, else bytes.
fn size_label(bytes: usize) -> String {
    match bytes {
        0 => "0B".to_owned(),
        whole if whole.is_multiple_of(1 << 20) => format!("{}MiB", whole >> 20),
        whole if whole < 1 << 20 && whole.is_multiple_of(1 << 10) => format!("{}KiB", whole >> 10),
        other => format!("{other}B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixed_has_the_published_shares_of_bytes() {
        let mix = SizeMix::mixed();
        let total = mix.cycle_bytes() as f64;
        let share = |index: usize| {
            let class = mix.classes()[index];
            class.bytes as f64 * f64::from(class.per_cycle) / total
        };
        assert_eq!((share(0), share(1), share(2)), (0.7, 0.2, 0.1));
        assert_eq!(mix.order().len(), 10_207);
    }

    #[test]
    fn mixed_is_even_in_every_tenth_of_a_cycle() {
        let mix = SizeMix::mixed();
        for part in mix.order().chunks(1021) {
            let large = part.iter().filter(|class| **class == 0).count();
            let middle = part.iter().filter(|class| **class == 1).count();
            assert!(
                large <= 1 && (19..=21).contains(&middle),
                "{large} large, {middle} middle"
            );
        }
    }

    #[test]
    fn fill_counts_whole_messages() {
        assert_eq!(SizeMix::single(100).fill(1050), (10, 1000));
        assert_eq!(SizeMix::single(100).fill(5), (1, 100));
        assert_eq!(SizeMix::mixed().fill(20_000_000), (20_414, 20_000_000));
        let (messages, bytes) = SizeMix::mixed().fill(25_000_000);
        assert!(
            messages > 20_414 && bytes <= 25_000_000 && bytes > 23_000_000,
            "{messages} messages, {bytes} bytes"
        );
    }

    #[test]
    fn labels_are_exact() {
        let label = |bytes| SizeMix::single(bytes).label();
        assert_eq!(
            (label(1 << 20), label(10 << 10), label(100)),
            ("1MiB".into(), "10KiB".into(), "100B".into())
        );
        assert_eq!(
            (label(6_220_800), SizeMix::mixed().label()),
            ("6220800B".into(), "mixed".into())
        );
    }
}
