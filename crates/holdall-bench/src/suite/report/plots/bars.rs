//! Horizontal bars in groups: a figure with its interval for each setting, and a thin second bar for its
//! comparison.

use super::{GRID, INK, PUBLISHED, SERIES, WIDTH, failed};
use crate::{
    error::BenchResult,
    statistics::{Estimate, Interval},
};
use plotters::{prelude::*, style::FontStyle};

/// Least and most room for the names; the bars get the rest, which a phone would not show next to empty room.
const LEFT_MIN: i32 = 130;
const LEFT_MAX: i32 = 380;
/// Average width of a letter of a name, and room around the name, in pixels.
const LETTER: usize = 6;
const AROUND: usize = 34;
/// Room for the figures.
const RIGHT: i32 = 76;
/// Height of a bar with its second one and the space below.
const STEP: i32 = 26;
/// Height of a group's name.
const HEAD: i32 = 26;

/// One setting.
pub(crate) struct Bar {
    /// Its name.
    pub label: String,
    /// Bars of one series have one colour.
    pub series: usize,
    /// Our figure.
    pub estimate: Estimate,
    /// The published figure, or that of another result.
    pub other: Option<Estimate>,
}

/// Bars under one name.
pub(crate) struct Group {
    /// The case.
    pub name: String,
    /// Its settings.
    pub bars: Vec<Bar>,
}

/// The scale of all bars.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    /// The end of the axis.
    pub most: f64,
    /// Unit after each figure of the axis.
    pub unit: &'static str,
    /// Digits of the figures.
    pub digits: usize,
}

/// Where the figures are.
#[derive(Clone, Copy)]
struct Axis {
    scale: Scale,
    /// Where the bars begin.
    left: i32,
}

impl Axis {
    fn of(groups: &[Group], scale: Scale) -> Self {
        let names = groups.iter().flat_map(|group| &group.bars);
        let letters = names.map(|bar| bar.label.chars().count()).max().unwrap_or(0);
        let left = i32::try_from(letters * LETTER + AROUND).unwrap_or(LEFT_MAX);
        Self {
            scale,
            left: left.clamp(LEFT_MIN, LEFT_MAX),
        }
    }

    fn x(self, value: f64) -> i32 {
        let pixels = f64::from(i32::try_from(WIDTH).unwrap_or(0) - self.left - RIGHT);
        // A share between 0 and 1, so pixels fit.
        self.left + (pixels * (value / self.scale.most).clamp(0.0, 1.0)).round() as i32
    }
}

/// The end of an axis that fits all of these figures and has round quarters.
pub(super) fn round_up(most: f64) -> f64 {
    let power = 10_f64.powf(most.max(1e-9).log10().floor());
    let steps = [1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0]
        .into_iter()
        .map(|step| step * power);
    let mut fitting = steps.filter(|end| *end >= most);
    fitting.next().unwrap_or(10.0 * power)
}

/// Draws them.
///
/// # Errors
/// Only by a defect of ours.
pub(super) fn draw(groups: &[Group], scale: Scale) -> BenchResult<String> {
    let bars: usize = groups.iter().map(|group| group.bars.len()).sum();
    let rows = |count: usize, step: i32| step * i32::try_from(count).unwrap_or(i32::MAX / STEP / 4);
    let height = 34 + rows(groups.len(), HEAD + 6) + rows(bars, STEP);
    let mut svg = String::new();
    let axis = Axis::of(groups, scale);
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height.unsigned_abs())).into_drawing_area();
        let text = ("sans-serif", 13).into_font().color(&INK);
        for quarter in 0..=4 {
            let value = scale.most * f64::from(quarter) / 4.0;
            let at = axis.x(value);
            root.draw(&PathElement::new(vec![(at, 22), (at, height - 4)], GRID))
                .map_err(failed)?;
            let name = format!("{value} {}", scale.unit);
            root.draw(&Text::new(name, (at - 14, 4), text.clone()))
                .map_err(failed)?;
        }
        let mut top = 28;
        for group in groups {
            let bold = ("sans-serif", 13, FontStyle::Bold).into_font().color(&INK);
            root.draw(&Text::new(group.name.clone(), (4, top + 8), bold))
                .map_err(failed)?;
            top += HEAD;
            for bar in &group.bars {
                one(&root, bar, top, axis)?;
                top += STEP;
            }
            top += 6;
        }
        root.present().map_err(failed)?;
    }
    Ok(svg)
}

fn one(
    root: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    bar: &Bar,
    top: i32,
    axis: Axis,
) -> BenchResult<()> {
    let text = ("sans-serif", 13).into_font().color(&INK);
    let zero = axis.x(0.0);
    root.draw(&Text::new(bar.label.clone(), (14, top + 2), text.clone()))
        .map_err(failed)?;
    let colour = SERIES[bar.series % SERIES.len()];
    let end = axis.x(bar.estimate.median).max(zero + 1);
    root.draw(&Rectangle::new([(zero, top), (end, top + 13)], colour.filled()))
        .map_err(failed)?;
    whisker(root, bar.estimate.interval, top + 6, axis)?;
    let figure = format!("{:.*}", axis.scale.digits, bar.estimate.median);
    root.draw(&Text::new(figure, (axis.x(axis.scale.most) + 8, top + 2), text))
        .map_err(failed)?;
    if let Some(other) = &bar.other {
        let end = axis.x(other.median).max(zero + 1);
        root.draw(&Rectangle::new(
            [(zero, top + 14), (end, top + 19)],
            PUBLISHED.filled(),
        ))
        .map_err(failed)?;
        whisker(root, other.interval, top + 16, axis)?;
    }
    Ok(())
}

/// The ends of an interval with a line between them; nothing where both are equal.
fn whisker(
    root: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    interval: Option<Interval>,
    middle: i32,
    axis: Axis,
) -> BenchResult<()> {
    let Some(Interval { low, high }) = interval else {
        return Ok(());
    };
    let (low, high) = (axis.x(low), axis.x(high));
    if low == high {
        return Ok(());
    }
    for line in [
        vec![(low, middle), (high, middle)],
        vec![(low, middle - 3), (low, middle + 3)],
        vec![(high, middle - 3), (high, middle + 3)],
    ] {
        root.draw(&PathElement::new(line, INK.stroke_width(2)))
            .map_err(failed)?;
    }
    Ok(())
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
            let bars = vec![Bar {
                label: label.to_owned(),
                series: 0,
                estimate: Estimate::of(&[1.0], 1).unwrap(),
                other: None,
            }];
            let groups = [Group {
                name: "case".to_owned(),
                bars,
            }];
            let scale = Scale {
                most: 1.0,
                unit: "",
                digits: 0,
            };
            Axis::of(&groups, scale).left
        };
        assert_eq!(left("own"), LEFT_MIN);
        assert!((150..200).contains(&left("holdall · mcap · 500 MB")));
        assert_eq!(left(&"long ".repeat(40)), LEFT_MAX);
    }

    #[test]
    fn every_setting_has_its_bar_and_its_figure() {
        let bar = |label: &str, median, other| Bar {
            label: label.to_owned(),
            series: 0,
            estimate: Estimate {
                median,
                interval: Some(Interval {
                    low: median - 10.0,
                    high: median,
                }),
                repetitions: 3,
            },
            other,
        };
        let groups = [Group {
            name: "camera".to_owned(),
            bars: vec![bar("one", 50.0, None), bar("two", 75.5, Estimate::of(&[99.0], 1))],
        }];
        let scale = Scale {
            most: 100.0,
            unit: "%",
            digits: 1,
        };
        let svg = draw(&groups, scale).unwrap();
        for word in ["camera", "one", "two", "50.0", "75.5", "100 %"] {
            assert!(svg.contains(word), "{word} in {svg}");
        }
        assert_eq!(svg.matches("#AAAAAA").count(), 1);
    }
}
