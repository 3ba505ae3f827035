//! Messages and values as columns of time: each has its count and its extremes, however many messages it is made of.

use holdall_bag::reader::{LossSpan, Strip};

/// Messages that arrived within a column of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrivals {
    /// Messages.
    pub count: u64,
    /// Bytes of the largest one.
    pub bytes_max: u64,
    /// Most nanoseconds between one of them and the message before it.
    pub gap_max: u64,
}

impl Arrivals {
    fn merge(&mut self, other: Self) {
        self.count += other.count;
        self.bytes_max = self.bytes_max.max(other.bytes_max);
        self.gap_max = self.gap_max.max(other.gap_max);
    }
}

/// One topic over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lane {
    /// Full ROS name.
    pub name: String,
    /// ROS type.
    pub type_name: String,
    /// Messages.
    pub messages: u64,
    /// Payload bytes.
    pub bytes: u64,
    /// Messages lost, those included whose time is not known.
    pub lost: u64,
    /// When they were lost.
    pub losses: Vec<LossSpan>,
    /// Arrivals, by column.
    pub cells: Vec<Arrivals>,
    /// Log times of the first and the last message, in the order in which they were added.
    ends: Option<(i64, i64)>,
}

impl Lane {
    /// A topic before its first message.
    pub fn new(name: &str, type_name: &str, columns: usize) -> Self {
        Self {
            name: name.to_owned(),
            type_name: type_name.to_owned(),
            cells: vec![Arrivals::default(); columns],
            ..Self::default()
        }
    }

    /// Adds a message of a column; those of a topic come in the order of time.
    pub fn add(&mut self, column: usize, time: i64, bytes: u64) {
        self.messages += 1;
        self.bytes += bytes;
        let gap = self.ends.map_or(0, |(_, last)| gap(last, time));
        self.ends = Some((self.ends.map_or(time, |(first, _)| first), time));
        if let Some(cell) = self.cells.get_mut(column) {
            cell.merge(Arrivals {
                count: 1,
                bytes_max: bytes,
                gap_max: gap,
            });
        }
    }

    /// Adds later arrivals; `column_of` places a time.
    pub(super) fn append(&mut self, later: &Self, column_of: impl Fn(i64) -> usize) {
        self.messages += later.messages;
        self.bytes += later.bytes;
        for (cell, other) in self.cells.iter_mut().zip(&later.cells) {
            cell.merge(*other);
        }
        let Some((first, last)) = later.ends else { return };
        if let Some((_, before)) = self.ends
            && let Some(cell) = self.cells.get_mut(column_of(first))
        {
            cell.gap_max = cell.gap_max.max(gap(before, first));
        }
        self.ends = Some((self.ends.map_or(first, |(first, _)| first), last));
    }

    /// How full each column is, from 0 for no message to 4.
    pub(super) fn shades(&self) -> Vec<u32> {
        let counts: Vec<u64> = self.cells.iter().map(|cell| cell.count).collect();
        Strip::new(&counts).steps(4).collect()
    }

    pub(super) fn halve(&mut self) {
        self.cells = self
            .cells
            .chunks(2)
            .map(|pair| {
                let mut both = pair[0];
                pair.iter().skip(1).for_each(|other| both.merge(*other));
                both
            })
            .collect();
    }
}

/// Nanoseconds from one time to another that is later, or 0.
fn gap(before: i64, after: i64) -> u64 {
    u64::try_from(after.saturating_sub(before)).unwrap_or(0)
}

/// The smallest and the largest value of a column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Extent {
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Extent {
    fn merge(self, other: Self) -> Self {
        Self {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }
}

/// A value of a topic's messages over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    /// As it was requested: `/imu.linear_acceleration.z`.
    pub name: String,
    /// The extremes by column; `None` for one without a value.
    pub cells: Vec<Option<Extent>>,
    /// Values; infinities and NaN are not drawn.
    pub values: u64,
    /// Messages that could not be decoded.
    pub undecoded: u64,
}

impl Line {
    /// A line without values.
    pub fn new(name: &str, columns: usize) -> Self {
        Self {
            name: name.to_owned(),
            cells: vec![None; columns],
            ..Self::default()
        }
    }

    /// Adds a value to a column.
    pub fn add(&mut self, column: usize, value: f64) {
        if !value.is_finite() {
            return;
        }
        self.values += 1;
        let one = Extent {
            min: value,
            max: value,
        };
        if let Some(cell) = self.cells.get_mut(column) {
            *cell = Some(cell.map_or(one, |known| known.merge(one)));
        }
    }

    pub(super) fn append(&mut self, later: &Self) {
        self.values += later.values;
        self.undecoded += later.undecoded;
        for (cell, other) in self.cells.iter_mut().zip(&later.cells) {
            *cell = merged(*cell, *other);
        }
    }

    pub(super) fn halve(&mut self) {
        let pair = |pair: &[Option<Extent>]| merged(pair[0], pair.get(1).copied().flatten());
        self.cells = self.cells.chunks(2).map(pair).collect();
    }

    /// The smallest and the largest value of all.
    pub fn range(&self) -> Option<(f64, f64)> {
        let all = self.cells.iter().flatten().copied().reduce(Extent::merge)?;
        Some((all.min, all.max))
    }
}

fn merged(one: Option<Extent>, other: Option<Extent>) -> Option<Extent> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.merge(other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spikes_stay_whatever_is_merged() {
        let mut line = Line::new("/a.x", 4);
        for number in 0..1_000_000_u32 {
            let value = if number == 700_000 {
                99.0
            } else {
                f64::from(number % 7)
            };
            line.add((number / 250_000) as usize, value);
        }
        line.add(0, f64::NAN);
        assert_eq!((line.values, line.range()), (1_000_000, Some((0.0, 99.0))));
        line.halve();
        assert_eq!(
            line.cells,
            [
                Some(Extent { min: 0.0, max: 6.0 }),
                Some(Extent { min: 0.0, max: 99.0 })
            ]
        );
        let mut odd = Line::new("/a.x", 3);
        odd.add(2, 5.0);
        odd.halve();
        assert_eq!(odd.cells, [None, Some(Extent { min: 5.0, max: 5.0 })]);
    }

    #[test]
    fn slices_of_time_are_the_same_as_all_at_once() {
        let times = [0, 10, 20, 35, 70, 75, 99];
        let column = |time: i64| usize::try_from(time / 25).unwrap();
        let lane = |times: &[i64]| {
            let mut lane = Lane::new("/a", "t", 4);
            times
                .iter()
                .for_each(|time| lane.add(column(*time), *time, time.unsigned_abs()));
            lane
        };
        let whole = lane(&times);
        assert_eq!(
            whole.cells.iter().map(|cell| cell.gap_max).collect::<Vec<_>>(),
            [10, 15, 35, 24]
        );
        assert_eq!(
            whole.cells.iter().map(|cell| cell.count).collect::<Vec<_>>(),
            [3, 1, 1, 2]
        );
        for cut in 0..=times.len() {
            let mut parts = lane(&times[..cut]);
            parts.append(&lane(&times[cut..]), column);
            assert_eq!(parts, whole, "{cut}");
        }
        let mut halved = whole;
        halved.halve();
        assert_eq!(
            halved.cells[1],
            Arrivals {
                count: 3,
                bytes_max: 99,
                gap_max: 35
            }
        );
    }

    #[test]
    fn times_that_go_back_have_no_period() {
        let mut lane = Lane::new("/a", "t", 1);
        [5, 3, 4].into_iter().for_each(|time| lane.add(0, time, 1));
        assert_eq!(lane.cells[0].gap_max, 1);
    }
}
