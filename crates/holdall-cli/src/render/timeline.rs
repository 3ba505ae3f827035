//! A bag's time as lanes in the terminal: when each topic has messages, and how many.

use crate::output::visible;
use holdall::reader::{OverTime, Strip};
use std::collections::BTreeMap;

/// Cells of a lane without a terminal.
const CELLS_USUAL: usize = 60;

/// Fewest and most cells of a lane.
const CELLS_MIN: usize = 10;
const CELLS_MAX: usize = 200;

/// Widest name; longer ones are cut at their beginning.
const NAME_MAX: usize = 40;

/// How full a cell is, from no message to as many as the topic's fullest one.
const SHADES: [char; 5] = [' ', '░', '▒', '▓', '█'];

/// Messages of each topic over time.
pub struct Timeline {
    start: i64,
    /// Nanoseconds, at least 1.
    span: i64,
    layout: Layout,
    lanes: BTreeMap<String, Vec<u64>>,
}

/// Widths in columns of the terminal.
#[derive(Clone, Copy)]
pub struct Layout {
    /// Cells of a lane.
    pub cells: usize,
    name: usize,
}

impl Layout {
    /// A layout for lanes with these names in a terminal of `columns` columns.
    pub fn new<'a>(names: impl Iterator<Item = &'a str>, columns: Option<usize>) -> Self {
        let widest = names.map(|name| visible(name).chars().count()).max();
        let name = widest.unwrap_or(0).clamp(
            "markers".len(),
            NAME_MAX
                .min(columns.map_or(NAME_MAX, |columns| columns / 2))
                .max(7),
        );
        // Between two bars, after the name and a space.
        let cells = columns.map_or(CELLS_USUAL, |columns| columns.saturating_sub(name + 3));
        Self {
            cells: cells.clamp(CELLS_MIN, CELLS_MAX),
            name,
        }
    }
}

impl Timeline {
    /// One lane for each of `topics`; `counted` has [`Layout::cells`] cells.
    pub fn new(topics: impl Iterator<Item = String>, counted: OverTime, layout: Layout) -> Self {
        let (start, end) = counted
            .times
            .map_or((0, 0), |(start, end)| (start.as_nanos(), end.as_nanos()));
        let mut lanes: BTreeMap<_, _> = topics.map(|name| (name, vec![0; layout.cells])).collect();
        lanes.extend(counted.by_topic);
        Self {
            start,
            span: end.saturating_sub(start).max(1),
            layout,
            lanes,
        }
    }

    fn cell(&self, time: i64) -> usize {
        let offset = i128::from(time.saturating_sub(self.start)).clamp(0, i128::from(self.span));
        let place = offset * self.layout.cells as i128 / i128::from(self.span);
        (place as usize).min(self.layout.cells - 1)
    }

    /// The lanes, the times of markers, and the meaning of a cell.
    pub fn text(&self, markers: impl Iterator<Item = i64>) -> String {
        let mut lines: Vec<String> = self
            .lanes
            .iter()
            .map(|(name, lane)| self.line(name, &shades(lane)))
            .collect();
        let mut marks = vec![' '; self.layout.cells];
        markers.for_each(|time| marks[self.cell(time)] = '▼');
        if marks.contains(&'▼') {
            lines.push(self.line("markers", &marks.into_iter().collect::<String>()));
        }
        let seconds = self.span as f64 / 1e9;
        lines.push(format!(
            "{:.3} s in all, {:.3} s each cell",
            seconds,
            seconds / self.layout.cells as f64
        ));
        lines.join("\n")
    }

    fn line(&self, name: &str, lane: &str) -> String {
        let name = visible(name);
        let length = name.chars().count();
        let shown = if length > self.layout.name {
            let cut: String = name.chars().skip(length + 1 - self.layout.name).collect();
            format!("…{cut}")
        } else {
            name.into_owned()
        };
        format!("{shown:<width$} |{lane}|", width = self.layout.name)
    }
}

fn shades(lane: &[u64]) -> String {
    let strip = Strip::new(lane);
    strip.steps(4).map(|step| SHADES[step as usize]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall::Timestamp;

    fn timeline(lanes: &[(&str, &[u64])], (start, end): (i64, i64), columns: Option<usize>) -> Timeline {
        let names = || lanes.iter().map(|(name, _)| *name);
        let layout = Layout::new(names(), columns);
        let counted = OverTime {
            times: Some((Timestamp::from_nanos(start), Timestamp::from_nanos(end))),
            by_topic: lanes
                .iter()
                .filter(|(_, counts)| !counts.is_empty())
                .map(|(name, counts)| {
                    let mut lane = vec![0; layout.cells];
                    lane[..counts.len()].copy_from_slice(counts);
                    ((*name).to_owned(), lane)
                })
                .collect(),
            is_whole: true,
            damage: None,
        };
        Timeline::new(names().map(str::to_owned), counted, layout)
    }

    #[test]
    fn lanes_show_where_messages_are_and_fit_the_terminal() {
        let names = ["/imu", "/a/very/long/name/of/a/topic/that/is/cut/somewhere"];
        let timeline = timeline(
            &[(names[0], &[5, 5, 5, 5]), (names[1], &[0, 0, 1])],
            (1000, 1100),
            Some(40),
        );
        let text = timeline.text([1000, 5000].into_iter());
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.iter().all(|line| line.chars().count() <= 40), "{text}");
        assert!(lines[0].starts_with("…") && lines[0].contains("|  █ "), "{text}");
        assert!(
            lines[1].starts_with("/imu") && lines[1].contains("|████ ") && lines[1].ends_with(" |"),
            "{text}"
        );
        assert!(
            lines[2].starts_with("markers") && lines[2].matches('▼').count() == 2,
            "{text}"
        );
    }

    #[test]
    fn one_message_and_none_are_drawn() {
        let text = timeline(&[("/a", &[1]), ("/b", &[])], (5, 5), None).text(std::iter::empty());
        assert_eq!(text.matches('█').count(), 1, "{text}");
        assert!(text.contains("/b"), "{text}");
    }
}
