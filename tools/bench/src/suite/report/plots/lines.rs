//! Lines over an axis: time, percentiles, offered load.

use super::{
    Plot, colour,
    picture::{Anchor, Colour, GRID, INK, PUBLISHED, Picture, Stroke, pixels},
};
use crate::engine::Csv;
use std::ops::Range;

/// The least that a logarithmic axis shows.
pub(crate) const LOG_MIN: f64 = 0.05;

/// One line with its name.
pub(crate) struct Line {
    /// Its name in the legend; one without a name is drawn faint, below those that have one.
    pub name: String,
    /// Points in order of x.
    pub points: Vec<(f64, f64)>,
    /// Draw a dot at each point.
    pub dotted: bool,
    /// Its place among the colours; `None` is the grey of published figures.
    pub colour: Option<usize>,
}

/// Properties that all lines share.
pub(crate) struct Axes<'a> {
    /// Range and name.
    pub x: (Range<f64>, &'a str),
    /// Range and name.
    pub y: (Range<f64>, &'a str),
    /// Names of the whole numbers of x instead of figures.
    pub places: &'a [&'a str],
    /// Borders between one run and the next.
    pub borders: &'a [f64],
    /// The y axis counts in powers of ten.
    pub is_log: bool,
}

impl<'a> Axes<'a> {
    /// Axes from zero to the last point, and to a little above the highest one.
    pub(crate) fn around(lines: &[Line], x: &'a str, y: &'a str) -> Self {
        let points = || lines.iter().flat_map(|line| &line.points);
        Self {
            x: (0.0..points().map(|point| point.0).fold(1e-3, f64::max), x),
            y: (0.0..points().map(|point| point.1).fold(1e-3, f64::max) * 1.1, y),
            places: &[],
            borders: &[],
            is_log: false,
        }
    }

    /// The pixel of a point; of one outside of the ranges, that of their nearest one.
    fn place(&self, (x, y): (f64, f64)) -> (f64, f64) {
        let share = |value: f64, range: &Range<f64>| {
            ((value - range.start) / (range.end - range.start).max(1e-12)).clamp(0.0, 1.0)
        };
        let up = if self.is_log {
            let log = |value: f64| value.max(LOG_MIN).log10();
            share(log(y), &(log(self.y.0.start)..log(self.y.0.end)))
        } else {
            share(y, &self.y.0)
        };
        (
            ACROSS.0 + (ACROSS.1 - ACROSS.0) * share(x, &self.x.0),
            UP.1 - (UP.1 - UP.0) * up,
        )
    }
}

/// Left and right end of the lines, and their upper and lower end.
const ACROSS: (f64, f64) = (82.0, 812.0);
const UP: (f64, f64) = (10.0, 246.0);
/// The place of the first name below them.
const NAMES: i32 = 300;
/// Opacity of lines without a name.
const FAINT: f64 = 0.35;
/// Height of a line of the legend.
const LEGEND: i32 = 20;
/// Figures at an axis.
const FIGURES_MAX: f64 = 10.0;

/// Lines with their data as a plot.
pub(crate) fn plot(
    name: impl Into<String>,
    title: impl Into<String>,
    (lines, axes): (&[Line], &Axes<'_>),
    csv: Csv,
) -> Plot {
    Plot {
        name: name.into(),
        title: title.into(),
        svg: draw(lines, axes),
        csv: csv.text(),
    }
}

/// Draws the lines with the legend below.
fn draw(lines: &[Line], axes: &Axes<'_>) -> String {
    let mut picture = Picture::new(NAMES + 12 + pixels(named(lines).count(), LEGEND));
    mesh(&mut picture, axes);
    let faint = lines.iter().filter(|line| line.name.is_empty());
    for line in faint {
        let stroke = Stroke {
            opacity: FAINT,
            ..Stroke::new(colour_of(line), 1)
        };
        picture.line(line.points.iter().map(|at| axes.place(*at)), stroke);
    }
    for ((line, dash), row) in named(lines).zip(dashes(lines)).zip(0..) {
        let stroke = Stroke {
            dash,
            ..Stroke::new(colour_of(line), 2)
        };
        picture.line(line.points.iter().map(|at| axes.place(*at)), stroke);
        if line.dotted {
            for at in &line.points {
                picture.dot(axes.place(*at), colour_of(line));
            }
        }
        let middle = NAMES + 8 + row * LEGEND;
        picture.straight([(82, middle), (106, middle)], Stroke { width: 3, ..stroke });
        picture.words(&line.name, (114, middle - 6), Anchor::Start, INK);
    }
    picture.finish()
}

/// The axes with their figures, the grid, and the borders between runs.
fn mesh(picture: &mut Picture, axes: &Axes<'_>) {
    let [left, right, top, bottom] = [ACROSS.0, ACROSS.1, UP.0, UP.1];
    let pixel = |place: f64| place.round() as i32;
    let at_x: Vec<f64> = if axes.places.is_empty() {
        figures(&axes.x.0)
    } else {
        (0..axes.places.len()).map(|place| place as f64).collect()
    };
    for value in at_x {
        let at = axes.place((value, axes.y.0.start)).0;
        // Positions are few and not negative.
        let name = axes.places.get(value as usize);
        let name = name.map_or_else(|| figure(value), ToString::to_string);
        picture.line([(at, top), (at, bottom)], Stroke::new(GRID, 1));
        picture.words(&name, (pixel(at), pixel(bottom) + 8), Anchor::Middle, INK);
    }
    let at_y = if axes.is_log {
        let powers = (-2..12).map(|power| 10_f64.powi(power));
        powers.filter(|value| axes.y.0.contains(value)).collect()
    } else {
        figures(&axes.y.0)
    };
    for value in at_y {
        let at = axes.place((axes.x.0.start, value)).1;
        picture.line([(left, at), (right, at)], Stroke::new(GRID, 1));
        picture.words(&figure(value), (pixel(left) - 6, pixel(at) - 5), Anchor::End, INK);
    }
    picture.line(
        [(left, top), (left, bottom), (right, bottom)],
        Stroke::new(INK, 1),
    );
    picture.words(
        axes.x.1,
        (pixel(f64::midpoint(left, right)), NAMES - 26),
        Anchor::Middle,
        INK,
    );
    picture.upwards(axes.y.1, (10, pixel(f64::midpoint(top, bottom))));
    for border in axes.borders {
        let at = axes.place((*border, axes.y.0.start)).0;
        picture.line([(at, top), (at, bottom)], Stroke::new(INK, 1));
    }
}

/// Round figures in a range, few enough to be read.
fn figures(range: &Range<f64>) -> Vec<f64> {
    let least = (range.end - range.start).max(1e-9) / FIGURES_MAX;
    let power = 10_f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    let step = steps.into_iter().find(|step| *step >= least).unwrap_or(least);
    let first = (range.start / step).ceil() as i64;
    let last = (range.end / step).floor() as i64;
    (first..=last).map(|number| number as f64 * step).collect()
}

/// Lines with an entry in the legend.
fn named(lines: &[Line]) -> impl Iterator<Item = &Line> {
    lines.iter().filter(|line| !line.name.is_empty())
}

/// Pixels that each named line is drawn and left out: all that were published are grey, and only the first of them is whole.
fn dashes(lines: &[Line]) -> impl Iterator<Item = Option<(u32, u32)>> {
    const DASHES: [Option<(u32, u32)>; 4] = [None, Some((10, 5)), Some((4, 4)), Some((1, 4))];
    let mut published = 0;
    named(lines).map(move |line| {
        if line.colour.is_some() {
            return None;
        }
        published += 1;
        DASHES[(published - 1) % DASHES.len()]
    })
}

fn colour_of(line: &Line) -> Colour {
    line.colour.map_or(PUBLISHED, colour)
}

/// A figure of an axis with no more digits than it needs.
pub(super) fn figure(value: f64) -> String {
    let places = 2.0 - value.abs().log10().floor().clamp(-6.0, 0.0);
    let scale = 10_f64.powf(places);
    ((value * scale).round() / scale).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_lines_differ() {
        let line = |name: &str, colour| Line {
            name: name.to_owned(),
            points: vec![(0.0, 1.0), (4.0, 2.0)],
            dotted: false,
            colour,
        };
        let lines = [
            line("a", None),
            line("", None),
            line("b", Some(0)),
            line("c", None),
        ];
        let dashes: Vec<_> = dashes(&lines).collect();
        assert_eq!(dashes, [None, None, Some((10, 5))]);
        let svg = draw(&lines, &Axes::around(&lines, "s", ""));
        // In the plot and in the legend.
        assert_eq!(svg.matches("stroke-dasharray=\"10 5\"").count(), 2);
    }

    #[test]
    fn figures_at_an_axis_are_round_and_few() {
        assert_eq!(
            figures(&(0.0..4.0)),
            [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0]
        );
        assert_eq!(
            figures(&(1.0..95.0)),
            [10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0]
        );
    }

    #[test]
    fn lines_have_names_and_axes_have_figures_that_are_short() {
        let lines = [Line {
            name: "recorder".to_owned(),
            points: vec![(0.0, 0.1), (4.0, 900.0)],
            dotted: true,
            colour: Some(0),
        }];
        let axes = |is_log| Axes {
            x: (0.0..4.0, ""),
            y: (LOG_MIN..1000.0, "µs"),
            places: &["p50", "p99", "p99.9", "p99.99", "worst"],
            borders: &[2.0],
            is_log,
        };
        for is_log in [false, true] {
            let svg = draw(&lines, &axes(is_log));
            for word in ["recorder", "worst", "µs", "circle"] {
                assert!(svg.contains(word), "{word} in {svg}");
            }
        }
        assert_eq!(
            [0.0, 0.1 + 0.2, 0.015, 1000.0].map(figure),
            ["0", "0.3", "0.015", "1000"].map(str::to_owned)
        );
    }
}
