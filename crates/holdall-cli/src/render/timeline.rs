//! A bag's time as lanes in the terminal: when each topic has messages, and how many.

use crate::output::visible;
use holdall::reader::Strip;
use std::collections::BTreeMap;

/// Cells of a lane where there is no terminal.
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
    cells: usize,
    name_width: usize,
    lanes: BTreeMap<String, Vec<u64>>,
}

impl Timeline {
    /// Lanes for these topics, from `start` on for `span` nanoseconds, in a terminal of so many columns.
    pub fn new<'a>(
        names: impl Iterator<Item = &'a str>,
        (start, span): (i64, i64),
        columns: Option<usize>,
    ) -> Self {
        let names: Vec<&str> = names.collect();
        let widest = names
            .iter()
            .map(|name| visible(name).chars().count())
            .max()
            .unwrap_or(0);
        let name_width = widest.clamp(
            "markers".len(),
            NAME_MAX
                .min(columns.map_or(NAME_MAX, |columns| columns / 2))
                .max(7),
        );
        // Between two bars, after the name and a space.
        let cells = columns.map_or(CELLS_USUAL, |columns| columns.saturating_sub(name_width + 3));
        let cells = cells.clamp(CELLS_MIN, CELLS_MAX);
        Self {
            start,
            span: span.max(1),
            cells,
            name_width,
            lanes: names
                .into_iter()
                .map(|name| (name.to_owned(), vec![0; cells]))
                .collect(),
        }
    }

    fn cell(&self, time: i64) -> usize {
        let offset = i128::from(time.saturating_sub(self.start)).clamp(0, i128::from(self.span));
        let place = offset * self.cells as i128 / i128::from(self.span);
        (place as usize).min(self.cells - 1)
    }

    /// Adds a message.
    pub fn add(&mut self, topic: &str, time: i64) {
        let cell = self.cell(time);
        if let Some(lane) = self.lanes.get_mut(topic) {
            lane[cell] += 1;
        }
    }

    /// The lanes, the times of markers, and what a cell is.
    pub fn text(&self, markers: impl Iterator<Item = i64>) -> String {
        let mut lines: Vec<String> = self
            .lanes
            .iter()
            .map(|(name, lane)| self.line(name, &shades(lane)))
            .collect();
        let mut marks = vec![' '; self.cells];
        markers.for_each(|time| marks[self.cell(time)] = '▼');
        if marks.contains(&'▼') {
            lines.push(self.line("markers", &marks.into_iter().collect::<String>()));
        }
        let seconds = self.span as f64 / 1e9;
        lines.push(format!(
            "{:.3} s in all, {:.3} s each cell",
            seconds,
            seconds / self.cells as f64
        ));
        lines.join("\n")
    }

    fn line(&self, name: &str, lane: &str) -> String {
        let name = visible(name);
        let length = name.chars().count();
        let shown = if length > self.name_width {
            let cut: String = name.chars().skip(length + 1 - self.name_width).collect();
            format!("…{cut}")
        } else {
            name.into_owned()
        };
        format!("{shown:<width$} |{lane}|", width = self.name_width)
    }
}

fn shades(lane: &[u64]) -> String {
    let strip = Strip::new(lane);
    strip.steps(4).map(|step| SHADES[step as usize]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_show_where_messages_are_and_fit_the_terminal() {
        let names = ["/imu", "/a/very/long/name/of/a/topic/that/is/cut/somewhere"];
        let mut timeline = Timeline::new(names.into_iter(), (1000, 100), Some(40));
        for time in 1000..1050 {
            timeline.add("/imu", time);
        }
        timeline.add(names[1], 1100);
        timeline.add("/unknown", 1000);
        let text = timeline.text([1000, 5000].into_iter());
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.iter().all(|line| line.chars().count() <= 40), "{text}");
        assert!(lines[0].starts_with("…") && lines[0].ends_with("█|"), "{text}");
        assert!(
            lines[1].starts_with("/imu") && lines[1].contains("|█") && lines[1].ends_with(" |"),
            "{text}"
        );
        assert!(
            lines[2].starts_with("markers") && lines[2].matches('▼').count() == 2,
            "{text}"
        );
    }

    #[test]
    fn one_message_and_none_are_drawn() {
        let mut timeline = Timeline::new(["/a", "/b"].into_iter(), (5, 0), None);
        timeline.add("/a", 5);
        let text = timeline.text(std::iter::empty());
        assert_eq!(text.matches('█').count(), 1, "{text}");
    }
}
