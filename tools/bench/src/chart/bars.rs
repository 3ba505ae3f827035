//! Horizontal bars in groups: a figure with its interval for each setting, and a thin second bar for its
//! comparison; or the parts of a sum one after the other.

use super::{
    Chart, Shape, colour,
    lines::figure,
    picture::{Anchor, GRID, INK, PUBLISHED, Picture, Stroke, WIDTH, pixels, room},
    row,
};
use crate::{engine::grouped, statistics::Estimate};
use serde::{Deserialize, Serialize};
use std::fmt::Display;

/// Least and most room for the names; the bars get the rest, which a phone would not show next to empty room.
const LEFT_MIN: i32 = 130;
const LEFT_MAX: i32 = 500;
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

/// A figure with the ends of its interval; both are the figure itself without one.
pub(crate) type Figure = [f64; 3];

impl From<&Estimate> for Figure {
    fn from(estimate: &Estimate) -> Self {
        let (low, high) = estimate.ends();
        [estimate.median, low, high]
    }
}

/// One setting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Bar {
    /// The name above it and its neighbours.
    pub group: String,
    /// Its name.
    pub label: String,
    /// Bars of one series have one colour.
    #[serde(default)]
    pub series: usize,
    /// Our figure; `None` is written as "none".
    pub figure: Option<Figure>,
    /// The published figure, or that of another result.
    pub other: Option<Figure>,
    /// Parts of the figure, in the order of the chart's; empty for a bar of one colour.
    #[serde(default)]
    pub stack: Vec<f64>,
}

/// Bars over one axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Bars {
    /// Unit after each figure of the axis.
    pub unit: String,
    /// Digits of the figures.
    pub digits: usize,
    /// Smallest end of the axis.
    pub most: f64,
    /// Names of the parts of each bar, with the places of their colours.
    #[serde(default)]
    pub parts: Vec<(String, usize)>,
    /// The bars; those of one group need not follow each other.
    pub bars: Vec<Bar>,
}

/// The axis of the figures: its end, and the left end of the bars.
#[derive(Clone, Copy)]
struct Axis {
    most: f64,
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
    let steps = [1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0].map(|step| step * power);
    steps.into_iter().find(|end| *end >= most).unwrap_or(10.0 * power)
}

impl Bars {
    /// A chart without bars.
    pub(crate) fn new(unit: &str, digits: usize, most: f64) -> Self {
        Self {
            unit: unit.to_owned(),
            digits,
            most,
            parts: Vec::new(),
            bars: Vec::new(),
        }
    }

    /// Adds a bar of one colour; `None` is written as "none".
    pub(crate) fn add(
        &mut self,
        (group, label): (&str, &str),
        series: usize,
        figure: Option<&Estimate>,
        other: Option<&Estimate>,
    ) {
        self.bars.push(Bar {
            group: group.to_owned(),
            label: label.to_owned(),
            series,
            figure: figure.map(Figure::from),
            other: other.map(Figure::from),
            stack: Vec::new(),
        });
    }

    /// Adds a sum of parts.
    pub(crate) fn add_stack(&mut self, names: (&str, &str), parts: Vec<f64>) {
        self.add(names, 0, Some(&Estimate::exactly(parts.iter().sum())), None);
        if let Some(bar) = self.bars.last_mut() {
            bar.stack = parts;
        }
    }

    /// The bars as a plot whose data have these columns: group, bar, figure, and that beside it if it has a name; `None` if none has a figure.
    /// The title says so if bars have published figures beside them.
    pub(crate) fn chart(self, name: &str, title: &str, columns: [&str; 4]) -> Option<Chart> {
        self.bars.iter().find(|bar| bar.figure.is_some())?;
        let [group, label, column, other] = columns;
        let is_published = other.starts_with("published") && self.bars.iter().any(|bar| bar.other.is_some());
        let grey = if is_published { "; grey: published" } else { "" };
        let named = self.parts.iter().map(|(name, _)| name as &dyn Display);
        let mut header: Vec<&dyn Display> = vec![&group, &label];
        if self.parts.is_empty() {
            header.extend([&column as &dyn Display, &"low", &"high"]);
            header.extend((!other.is_empty()).then_some(&other as &dyn Display));
        }
        header.extend(named);
        let count = header.len();
        let mut csv = vec![row(&header)];
        for bar in &self.bars {
            let [figure, low, high] = bar
                .figure
                .map_or_else(Default::default, |ends| ends.map(|end| end.to_string()));
            let beside = bar.other.map_or_else(String::new, |beside| beside[0].to_string());
            let mut cells: Vec<&dyn Display> = vec![&bar.group, &bar.label];
            if self.parts.is_empty() {
                cells.extend([&figure as &dyn Display, &low, &high, &beside]);
            }
            cells.extend(bar.stack.iter().map(|part| part as &dyn Display));
            cells.truncate(count);
            csv.push(row(&cells));
        }
        Some(Chart {
            name: name.to_owned(),
            title: format!("{title}{grey}"),
            csv,
            shape: Shape::Bars(self),
        })
    }

    fn axis(&self) -> Axis {
        let letters = self.bars.iter().map(|bar| bar.label.chars().count()).max();
        let left = room(letters.unwrap_or(0)) + AROUND;
        let figures = self
            .bars
            .iter()
            .flat_map(|bar| bar.figure.iter().chain(&bar.other));
        let most = figures
            .map(|[median, _, high]| high.max(*median))
            .fold(self.most, f64::max);
        Axis {
            most: round_up(most),
            left: left.clamp(LEFT_MIN, LEFT_MAX),
        }
    }

    pub(super) fn svg(&self) -> String {
        let groups = grouped(&self.bars, |bar| &bar.group);
        let names = self.parts.iter().map(|(name, _)| name.chars().count());
        let entry = (room(names.max().unwrap_or(0)) + AROUND).max(LEGEND.1);
        let columns = usize::try_from(WIDTH / entry).unwrap_or(1).max(1);
        let begin = pixels(self.parts.len().div_ceil(columns), LEGEND.0);
        let height = begin + 34 + pixels(groups.len(), HEAD + 6) + pixels(self.bars.len(), STEP);
        let mut picture = Picture::new(height);
        for (place, (name, part)) in self.parts.iter().enumerate() {
            let left = 4 + pixels(place % columns, entry);
            let top = 6 + pixels(place / columns, LEGEND.0);
            picture.rectangle([(left, top), (left + 12, top + 12)], colour(*part));
            picture.words(name, (left + 18, top), Anchor::Start, INK);
        }
        let axis = self.axis();
        for quarter in 0..=4 {
            let value = axis.most * f64::from(quarter) / 4.0;
            let at = axis.x(value);
            picture.straight([(at, begin + 22), (at, height - 4)], Stroke::new(GRID, 1));
            let name = format!("{} {}", figure(value), self.unit);
            picture.words(&name, (at, begin + 4), Anchor::Middle, INK);
        }
        let mut top = begin + 28;
        for (name, bars) in groups {
            picture.heading(name, (4, top + 8));
            top += HEAD;
            for bar in bars {
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
        if let Some([median, ..]) = bar.figure.filter(|_| bar.stack.is_empty()) {
            let end = axis.x(median).max(zero + 1);
            picture.rectangle([(zero, top), (end, top + 13)], colour(bar.series));
        }
        let mut from = 0.0;
        for (part, (_, place)) in bar.stack.iter().zip(&self.parts) {
            let ends = [axis.x(from), axis.x(from + part)];
            from += part;
            if *part > 0.0 {
                picture.rectangle([(ends[0], top), (ends[1], top + 13)], colour(*place));
            }
        }
        if let Some(figure) = bar.figure {
            whisker(picture, figure, top + 6, axis);
        }
        let median = |[median, ..]: Figure| format!("{median:.*}", self.digits);
        let figure = bar.figure.map_or("none".to_owned(), median);
        picture.words(&figure, (axis.x(axis.most) + 8, top + 2), Anchor::Start, INK);
        if let Some(other) = bar.other {
            let end = axis.x(other[0]).max(zero + 1);
            picture.rectangle([(zero, top + 14), (end, top + 19)], PUBLISHED);
            whisker(picture, other, top + 16, axis);
        }
    }
}

/// The ends of an interval with a line between them; nothing if both are equal.
fn whisker(picture: &mut Picture, [_, low, high]: Figure, middle: i32, axis: Axis) {
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
    use crate::statistics::Interval;

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
            let mut bars = Bars::new("", 0, 1.0);
            bars.add(("case", label), 0, Some(&Estimate::exactly(1.0)), None);
            bars.axis().left
        };
        assert_eq!(left("own"), LEFT_MIN);
        assert!((150..200).contains(&left("holdall · mcap · 500 MB")));
        assert_eq!(left(&"long ".repeat(40)), LEFT_MAX);
    }

    #[test]
    fn every_setting_has_its_bar_and_its_figure() {
        let mut bars = Bars::new("%", 1, 100.0);
        for (label, median, other) in [("one", 50.0, None), ("two", 75.5, Some(Estimate::exactly(99.0)))] {
            let interval = Some(Interval {
                low: median - 10.0,
                high: median,
            });
            let estimate = Estimate {
                interval,
                ..Estimate::exactly(median)
            };
            bars.add(("camera", label), 0, Some(&estimate), other.as_ref());
        }
        let chart = bars
            .chart("bars", "Bars", ["case", "name", "percent", "published"])
            .unwrap();
        assert_eq!(
            chart.csv(),
            "case,name,percent,low,high,published\ncamera,one,50,40,50,\ncamera,two,75.5,65.5,75.5,99\n"
        );
        assert_eq!(chart.title, "Bars; grey: published");
        let svg = chart.svg();
        for word in ["camera", "one", "two", "50.0", "75.5", "100 %"] {
            assert!(svg.contains(word), "{word} in {svg}");
        }
        assert_eq!(svg.matches("#AAAAAA").count(), 1);
    }

    #[test]
    fn parts_of_a_bar_are_drawn_one_after_the_other_with_a_legend() {
        let mut bars = Bars::new("", 0, 1.0);
        let none = bars.clone().chart("none", "", ["a", "b", "c", ""]);
        assert!(none.is_none());
        bars.parts = vec![("open".to_owned(), 0), ("closed".to_owned(), 1)];
        bars.add_stack(("repository", "issues"), vec![3.0, 4.0]);
        let chart = bars
            .chart("items", "Items", ["repository", "items", "", ""])
            .unwrap();
        assert_eq!(
            chart.csv(),
            "repository,items,open,closed\nrepository,issues,3,4\n"
        );
        let svg = chart.svg();
        for word in ["open", "closed", "issues", ">7<"] {
            assert!(svg.contains(word), "{word} in {svg}");
        }
    }
}
