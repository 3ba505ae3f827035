//! Horizontal bars in groups: a figure with its interval for each setting, and a thin second bar for its
//! comparison; or the parts of a sum one after the other.

use super::{
    Plot, colour,
    picture::{Anchor, Colour, GRID, INK, PUBLISHED, Picture, Stroke, WIDTH, pixels, room},
};
use crate::{
    engine::Csv,
    statistics::{Estimate, Interval},
};
use std::fmt::Display;

/// Least and most room for the names; the bars get the rest, which a phone would not show next to empty room.
const LEFT_MIN: i32 = 130;
const LEFT_MAX: i32 = 380;
/// Room around a name, in pixels.
const AROUND: i32 = 34;
/// Room for the figures.
const RIGHT: i32 = 76;
/// Height of a bar with its second one and the space below.
const STEP: i32 = 26;
/// Height of a group's name.
const HEAD: i32 = 26;

/// Height and least width of an entry of the legend of parts.
const LEGEND: (i32, i32) = (24, 168);

/// One setting.
pub(crate) struct Bar {
    /// Its name.
    pub label: String,
    /// Bars of one series have one colour.
    pub series: usize,
    /// Our figure; `None` is written as "none".
    pub estimate: Option<Estimate>,
    /// The published figure, or that of another result.
    pub other: Option<Estimate>,
    /// Parts of the figure, in the order of the chart's; empty for a bar of one colour.
    pub stack: Vec<f64>,
}

impl Bar {
    /// A bar of one colour.
    pub(crate) fn new(
        label: impl Into<String>,
        series: usize,
        estimate: impl Into<Option<Estimate>>,
    ) -> Self {
        Self {
            label: label.into(),
            series,
            estimate: estimate.into(),
            other: None,
            stack: Vec::new(),
        }
    }

    /// A sum of parts.
    pub(crate) fn stacked(label: impl Into<String>, parts: &[f64]) -> Self {
        Self {
            stack: parts.to_vec(),
            ..Self::new(label, 0, Estimate::exactly(parts.iter().sum()))
        }
    }
}

/// Bars under one name.
struct Group {
    name: String,
    bars: Vec<Bar>,
}

/// Bars that are collected with their data, and then drawn.
pub(crate) struct Chart {
    /// Names and colours of the parts of stacked bars.
    pub parts: Vec<(String, Colour)>,
    /// Unit after each figure of the axis.
    unit: String,
    /// Digits of the figures.
    digits: usize,
    /// Smallest end of the axis.
    most: f64,
    groups: Vec<Group>,
    csv: Csv,
}

/// The axis of the figures.
#[derive(Clone, Copy)]
struct Axis {
    /// The end.
    most: f64,
    digits: usize,
    /// Left end of the bars.
    left: i32,
}

impl Axis {
    fn x(self, value: f64) -> i32 {
        let pixels = f64::from(WIDTH - self.left - RIGHT);
        // A share between 0 and 1, so pixels fit.
        self.left + (pixels * (value / self.most).clamp(0.0, 1.0)).round() as i32
    }
}

/// The end of an axis that fits all of these figures and has round quarters.
fn round_up(most: f64) -> f64 {
    let power = 10_f64.powf(most.max(1e-9).log10().floor());
    let steps = [1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0]
        .into_iter()
        .map(|step| step * power);
    let mut fitting = steps.filter(|end| *end >= most);
    fitting.next().unwrap_or(10.0 * power)
}

impl Chart {
    /// A chart without bars, with the unit and digits of its figures, the smallest end of its axis, and the columns of
    /// its data.
    pub(crate) fn new((unit, digits, most): (&str, usize, f64), columns: &[&str]) -> Self {
        Self::with((unit.to_owned(), digits, most), Csv::of(columns))
    }

    /// A chart without bars, with data that are complete.
    pub(crate) fn with((unit, digits, most): (String, usize, f64), csv: Csv) -> Self {
        Self {
            parts: Vec::new(),
            unit,
            digits,
            most,
            groups: Vec::new(),
            csv,
        }
    }

    /// Adds a bar to the group of this name, and a row to the data.
    pub(crate) fn add(&mut self, group: &str, bar: Bar, row: &[&dyn Display]) {
        self.csv.row(row);
        self.put(group, bar);
    }

    /// Adds a bar to the group of this name.
    pub(crate) fn put(&mut self, group: &str, bar: Bar) {
        let both = bar.estimate.iter().chain(&bar.other);
        let ends = both.map(|figure| figure.ends().1.max(figure.median));
        self.most = ends.fold(self.most, f64::max);
        match self.groups.iter_mut().find(|known| known.name == group) {
            Some(known) => known.bars.push(bar),
            None => self.groups.push(Group {
                name: group.to_owned(),
                bars: vec![bar],
            }),
        }
    }

    /// Draws the bars; `None` if none has a figure.
    pub(crate) fn plot(self, name: impl Into<String>, title: impl Into<String>) -> Option<Plot> {
        let mut bars = self.groups.iter().flat_map(|group| &group.bars);
        bars.any(|bar| bar.estimate.is_some()).then(|| Plot {
            name: name.into(),
            title: title.into(),
            svg: self.svg(),
            csv: self.csv.text(),
        })
    }

    /// As [`Chart::plot`]; the title says so if bars have published figures beside them.
    pub(crate) fn plot_with_published(self, name: &str, title: &str) -> Option<Plot> {
        let mut bars = self.groups.iter().flat_map(|group| &group.bars);
        let grey = if bars.any(|bar| bar.other.is_some()) {
            "; grey: published"
        } else {
            ""
        };
        self.plot(name, format!("{title}{grey}"))
    }

    fn axis(&self) -> Axis {
        let bars = self.groups.iter().flat_map(|group| &group.bars);
        let letters = bars.map(|bar| bar.label.chars().count()).max().unwrap_or(0);
        let left = room(letters) + AROUND;
        Axis {
            most: round_up(self.most),
            digits: self.digits,
            left: left.clamp(LEFT_MIN, LEFT_MAX),
        }
    }

    fn svg(&self) -> String {
        let bars: usize = self.groups.iter().map(|group| group.bars.len()).sum();
        let names = self.parts.iter().map(|(name, _)| name.chars().count());
        let entry = (room(names.max().unwrap_or(0)) + AROUND).max(LEGEND.1);
        let columns = usize::try_from(WIDTH / entry).unwrap_or(1).max(1);
        let begin = pixels(self.parts.len().div_ceil(columns), LEGEND.0);
        let height = begin + 34 + pixels(self.groups.len(), HEAD + 6) + pixels(bars, STEP);
        let mut picture = Picture::new(height);
        for (place, (name, colour)) in self.parts.iter().enumerate() {
            let left = 4 + pixels(place % columns, entry);
            let top = 6 + pixels(place / columns, LEGEND.0);
            picture.rectangle([(left, top), (left + 12, top + 12)], *colour);
            picture.words(name, (left + 18, top), Anchor::Start, INK);
        }
        let axis = self.axis();
        for quarter in 0..=4 {
            let value = axis.most * f64::from(quarter) / 4.0;
            let at = axis.x(value);
            picture.straight([(at, begin + 22), (at, height - 4)], Stroke::new(GRID, 1));
            let name = format!("{} {}", super::lines::figure(value), self.unit);
            picture.words(&name, (at, begin + 4), Anchor::Middle, INK);
        }
        let mut top = begin + 28;
        for group in &self.groups {
            picture.heading(&group.name, (4, top + 8));
            top += HEAD;
            for bar in &group.bars {
                self.one(&mut picture, bar, top, axis);
                top += STEP;
            }
            top += 6;
        }
        picture.finish()
    }

    fn one(&self, picture: &mut Picture, bar: &Bar, top: i32, axis: Axis) {
        let zero = axis.x(0.0);
        picture.words(&bar.label, (14, top + 2), Anchor::Start, INK);
        if bar.stack.is_empty()
            && let Some(estimate) = &bar.estimate
        {
            let end = axis.x(estimate.median).max(zero + 1);
            picture.rectangle([(zero, top), (end, top + 13)], colour(bar.series));
        }
        let mut from = 0.0;
        for (part, (_, colour)) in bar.stack.iter().zip(&self.parts) {
            let ends = [axis.x(from), axis.x(from + part)];
            from += part;
            if *part > 0.0 {
                picture.rectangle([(ends[0], top), (ends[1], top + 13)], *colour);
            }
        }
        let interval = bar.estimate.as_ref().and_then(|estimate| estimate.interval);
        whisker(picture, interval, top + 6, axis);
        let figure = |estimate: &Estimate| format!("{:.*}", axis.digits, estimate.median);
        let figure = bar.estimate.as_ref().map_or("none".to_owned(), figure);
        picture.words(&figure, (axis.x(axis.most) + 8, top + 2), Anchor::Start, INK);
        if let Some(other) = &bar.other {
            let end = axis.x(other.median).max(zero + 1);
            picture.rectangle([(zero, top + 14), (end, top + 19)], PUBLISHED);
            whisker(picture, other.interval, top + 16, axis);
        }
    }
}

/// The ends of an interval with a line between them; nothing if both are equal.
fn whisker(picture: &mut Picture, interval: Option<Interval>, middle: i32, axis: Axis) {
    let Some(Interval { low, high }) = interval else {
        return;
    };
    let (low, high) = (axis.x(low), axis.x(high));
    if low == high {
        return;
    }
    for ends in [
        [(low, middle), (high, middle)],
        [(low, middle - 3), (low, middle + 3)],
        [(high, middle - 3), (high, middle + 3)],
    ] {
        picture.straight(ends, Stroke::new(INK, 2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_ends_at_a_round_figure() {
        assert_eq!(
            [0.75, 1.0, 3.2, 80.0, 205.0].map(round_up),
            [0.8, 1.0, 4.0, 80.0, 300.0]
        );
    }

    #[test]
    fn names_use_no_more_room_than_they_need() {
        let left = |label: &str| {
            let mut chart = Chart::new(("", 0, 1.0), &[]);
            chart.add("case", Bar::new(label, 0, Estimate::of(&[1.0], 1).unwrap()), &[]);
            chart.axis().left
        };
        assert_eq!(left("own"), LEFT_MIN);
        assert!((150..200).contains(&left("holdall · mcap · 500 MB")));
        assert_eq!(left(&"long ".repeat(40)), LEFT_MAX);
    }

    #[test]
    fn every_setting_has_its_bar_and_its_figure() {
        let mut chart = Chart::new(("%", 1, 100.0), &["name"]);
        for (label, median, other) in [("one", 50.0, None), ("two", 75.5, Estimate::of(&[99.0], 1))] {
            let interval = Some(Interval {
                low: median - 10.0,
                high: median,
            });
            let estimate = Estimate {
                median,
                interval,
                repetitions: 3,
            };
            let bar = Bar {
                other,
                ..Bar::new(label, 0, estimate)
            };
            chart.add("camera", bar, &[&label]);
        }
        let plot = chart.plot("bars", "Bars").unwrap();
        assert_eq!(plot.csv, "name\none\ntwo\n");
        let svg = plot.svg;
        for word in ["camera", "one", "two", "50.0", "75.5", "100 %"] {
            assert!(svg.contains(word), "{word} in {svg}");
        }
        assert_eq!(svg.matches("#AAAAAA").count(), 1);
    }

    #[test]
    fn parts_of_a_bar_are_drawn_one_after_the_other_with_a_legend() {
        let mut chart = Chart::new(("", 0, 1.0), &[]);
        chart.parts = [("open", colour(0)), ("closed", colour(1))]
            .map(|(name, colour)| (name.to_owned(), colour))
            .to_vec();
        chart.add("repository", Bar::stacked("issues", &[3.0, 4.0]), &[]);
        let svg = chart.plot("items", "Items").unwrap().svg;
        for word in ["open", "closed", "issues", ">7<"] {
            assert!(svg.contains(word), "{word} in {svg}");
        }
        assert!(Chart::new(("", 0, 1.0), &[]).plot("none", "").is_none());
    }
}
