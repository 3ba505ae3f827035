//! Lines over an axis: time, percentiles, offered load.

use super::{
    Chart, Shape, colour,
    picture::{Anchor, Colour, GRID, INK, PUBLISHED, Picture, Stroke, pixels},
    row,
};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The least that a logarithmic axis shows.
pub(crate) const LOG_MIN: f64 = 0.05;

/// One line with its name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Line {
    /// Its name in the legend; one without a name is drawn faint, below those that have one.
    pub name: String,
    /// Points in order of x.
    pub points: Vec<(f64, f64)>,
    /// Draw a dot at each point.
    #[serde(default)]
    pub dotted: bool,
    /// Its place among the colours; `None` is the grey of published figures.
    pub colour: Option<usize>,
}

/// Lines, and the axes that they share.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Lines {
    /// The lines.
    pub lines: Vec<Line>,
    /// Names of the axes.
    pub x: String,
    pub y: String,
    /// Names of the whole numbers of x instead of figures.
    pub places: Vec<String>,
    /// The left end.
    pub x_begin: f64,
    /// Ends instead of those that the points need: the last point, and a little above the highest one.
    pub x_end: Option<f64>,
    pub y_end: Option<f64>,
    /// Borders between one run and the next.
    pub borders: Vec<f64>,
    /// The y axis counts in powers of ten.
    pub is_log: bool,
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

impl Lines {
    /// Axes with these names, and no lines.
    pub(crate) fn over(x: &str, y: &str) -> Self {
        let (x, y) = (x.to_owned(), y.to_owned());
        Self {
            x,
            y,
            ..Self::default()
        }
    }

    /// Adds a line with a dot at each point, in the colour of this place; none without points.
    pub(crate) fn add(&mut self, name: &str, colour: Option<usize>, points: Vec<(f64, f64)>) {
        if !points.is_empty() {
            self.lines.push(Line {
                name: name.to_owned(),
                points,
                dotted: true,
                colour,
            });
        }
    }

    /// The lines as a plot whose data have these columns: the line, x, y. Lines without a name are drawn only.
    pub(crate) fn chart(self, name: &str, title: &str, [line, x, y]: [&str; 3]) -> Chart {
        let mut csv = vec![row(&[&line, &x, &y])];
        for one in self.named() {
            // A figure may follow the name.
            let series = one.name.split(": ").next().unwrap_or_default();
            for (at, value) in &one.points {
                // Positions are few and not negative.
                match self.places.get(*at as usize) {
                    Some(place) => csv.push(row(&[&series, place, value])),
                    None => csv.push(row(&[&series, at, value])),
                }
            }
        }
        Chart {
            name: name.to_owned(),
            title: title.to_owned(),
            csv,
            shape: Shape::Lines(self),
        }
    }

    /// The end of the x axis.
    pub(crate) fn last(&self) -> f64 {
        let points = self.lines.iter().flat_map(|line| &line.points);
        self.x_end
            .unwrap_or_else(|| points.map(|point| point.0).fold(1e-3, f64::max))
    }

    /// The highest point.
    pub(crate) fn highest(&self) -> f64 {
        let points = self.lines.iter().flat_map(|line| &line.points);
        points.map(|point| point.1).fold(1e-3, f64::max)
    }

    fn across(&self) -> Range<f64> {
        self.x_begin..self.last()
    }

    fn up(&self) -> Range<f64> {
        let begin = if self.is_log { LOG_MIN } else { 0.0 };
        begin..self.y_end.unwrap_or_else(|| self.highest() * 1.1)
    }

    /// Lines with an entry in the legend.
    fn named(&self) -> impl Iterator<Item = &Line> {
        self.lines.iter().filter(|line| !line.name.is_empty())
    }

    /// The pixel of a point; of one outside of the ranges, that of their nearest one.
    fn place(&self, (x, y): (f64, f64)) -> (f64, f64) {
        let share = |value: f64, range: &Range<f64>| {
            ((value - range.start) / (range.end - range.start).max(1e-12)).clamp(0.0, 1.0)
        };
        let up = if self.is_log {
            let log = |value: f64| value.max(LOG_MIN).log10();
            share(log(y), &(log(self.up().start)..log(self.up().end)))
        } else {
            share(y, &self.up())
        };
        (
            ACROSS.0 + (ACROSS.1 - ACROSS.0) * share(x, &self.across()),
            UP.1 - (UP.1 - UP.0) * up,
        )
    }

    /// The lines with the legend below.
    pub(super) fn svg(&self) -> String {
        let mut picture = Picture::new(NAMES + 12 + pixels(self.named().count(), LEGEND));
        self.mesh(&mut picture);
        let pixels_of = |line: &Line| line.points.iter().map(|at| self.place(*at)).collect::<Vec<_>>();
        for line in self.lines.iter().filter(|line| line.name.is_empty()) {
            let stroke = Stroke {
                opacity: FAINT,
                ..Stroke::new(colour_of(line), 1)
            };
            picture.line(pixels_of(line), stroke);
        }
        for ((line, dash), row) in self.named().zip(self.dashes()).zip(0..) {
            let stroke = Stroke {
                dash,
                ..Stroke::new(colour_of(line), 2)
            };
            picture.line(pixels_of(line), stroke);
            if line.dotted {
                for at in pixels_of(line) {
                    picture.dot(at, colour_of(line));
                }
            }
            let middle = NAMES + 8 + row * LEGEND;
            picture.straight([(82, middle), (106, middle)], Stroke { width: 3, ..stroke });
            picture.words(&line.name, (114, middle - 6), Anchor::Start, INK);
        }
        picture.finish()
    }

    /// The axes with their figures, the grid, and the borders between runs.
    fn mesh(&self, picture: &mut Picture) {
        let [left, right, top, bottom] = [ACROSS.0, ACROSS.1, UP.0, UP.1];
        let pixel = |place: f64| place.round() as i32;
        let at_x: Vec<f64> = if self.places.is_empty() {
            figures(&self.across())
        } else {
            (0..self.places.len()).map(|place| place as f64).collect()
        };
        for value in at_x {
            let at = self.place((value, self.up().start)).0;
            // Positions are few and not negative.
            let name = self.places.get(value as usize);
            let name = name.map_or_else(|| figure(value), ToString::to_string);
            picture.line([(at, top), (at, bottom)], Stroke::new(GRID, 1));
            picture.words(&name, (pixel(at), pixel(bottom) + 8), Anchor::Middle, INK);
        }
        let at_y = if self.is_log {
            let powers = (-2..12).map(|power| 10_f64.powi(power));
            powers.filter(|value| self.up().contains(value)).collect()
        } else {
            figures(&self.up())
        };
        for value in at_y {
            let at = self.place((self.x_begin, value)).1;
            picture.line([(left, at), (right, at)], Stroke::new(GRID, 1));
            picture.words(&figure(value), (pixel(left) - 6, pixel(at) - 5), Anchor::End, INK);
        }
        let corner = [(left, top), (left, bottom), (right, bottom)];
        picture.line(corner, Stroke::new(INK, 1));
        let middle = (pixel(f64::midpoint(left, right)), NAMES - 26);
        picture.words(&self.x, middle, Anchor::Middle, INK);
        picture.upwards(&self.y, (10, pixel(f64::midpoint(top, bottom))));
        for border in &self.borders {
            let at = self.place((*border, self.up().start)).0;
            picture.line([(at, top), (at, bottom)], Stroke::new(INK, 1));
        }
    }

    /// Pixels that each named line is drawn and left out: all that were published are grey, and only the first of them is whole.
    fn dashes(&self) -> impl Iterator<Item = Option<(u32, u32)>> {
        const DASHES: [Option<(u32, u32)>; 4] = [None, Some((10, 5)), Some((4, 4)), Some((1, 4))];
        let mut published = 0;
        self.named().map(move |line| {
            if line.colour.is_some() {
                return None;
            }
            published += 1;
            DASHES[(published - 1) % DASHES.len()]
        })
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
        let mut lines = Lines::over("s", "");
        for (name, colour) in [("a", None), ("", None), ("b", Some(0)), ("c", None)] {
            lines.add(name, colour, vec![(0.0, 1.0), (4.0, 2.0)]);
        }
        let dashes: Vec<_> = lines.dashes().collect();
        assert_eq!(dashes, [None, None, Some((10, 5))]);
        // In the plot and in the legend.
        assert_eq!(lines.svg().matches("stroke-dasharray=\"10 5\"").count(), 2);
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
        let mut lines = Lines::over("", "µs");
        lines.add("recorder", Some(0), vec![(0.0, 0.1), (4.0, 900.0)]);
        lines.places = ["p50", "p99", "p99.9", "p99.99", "worst"]
            .map(str::to_owned)
            .to_vec();
        lines.borders = vec![2.0];
        for is_log in [false, true] {
            lines.is_log = is_log;
            let svg = lines.svg();
            for word in ["recorder", "worst", "µs", "circle"] {
                assert!(svg.contains(word), "{word} in {svg}");
            }
        }
        let csv = lines.chart("l", "t", ["who", "place", "us"]).csv();
        assert_eq!(csv, "who,place,us\nrecorder,p50,0.1\nrecorder,worst,900\n");
        assert_eq!(
            [0.0, 0.1 + 0.2, 0.015, 1000.0].map(figure),
            ["0", "0.3", "0.015", "1000"].map(str::to_owned)
        );
    }
}
