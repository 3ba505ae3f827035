//! Charts as data: bars, lines over an axis, and answers around the middle of a scale.

use crate::{
    engine::Csv,
    statistics::{Estimate, Interval},
    suite::report::plots::{
        Bar, Chart as Bars, Plot, colour,
        lines::{self, Axes, Line},
        picture::{Anchor, Colour, GRID, INK, Picture, Stroke, WIDTH, pixels},
    },
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A chart with its data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Chart {
    name: String,
    title: String,
    /// Rows below a header.
    csv: Vec<Vec<Value>>,
    #[serde(flatten)]
    shape: Shape,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Shape {
    Bars {
        unit: String,
        digits: usize,
        /// Smallest end of the axis.
        most: f64,
        /// Names of the parts of each bar, with the places of their colours.
        #[serde(default)]
        parts: Vec<(String, usize)>,
        bars: Vec<DataBar>,
    },
    Lines {
        lines: Vec<DataLine>,
        #[serde(default)]
        x: String,
        y: String,
        /// Names of the whole numbers of x.
        #[serde(default)]
        places: Vec<String>,
        /// Ends of both axes, instead of those that the points need.
        x_end: Option<f64>,
        y_end: Option<f64>,
    },
    Around {
        /// The five steps of the scale.
        names: Vec<String>,
        rows: Vec<(String, [u64; COLOURS.len()])>,
    },
}

/// A figure with the ends of its interval.
type Figure = [f64; 3];

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct DataBar {
    group: String,
    label: String,
    #[serde(default)]
    series: usize,
    figure: Figure,
    other: Option<Figure>,
    #[serde(default)]
    stack: Vec<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct DataLine {
    name: String,
    points: Vec<(f64, f64)>,
    #[serde(default)]
    dotted: bool,
    colour: Option<usize>,
}

impl Chart {
    /// The picture and its data; `None` if there is nothing to draw.
    pub(super) fn plot(&self) -> Option<Plot> {
        let csv = self.csv();
        match &self.shape {
            Shape::Bars {
                unit,
                digits,
                most,
                parts,
                bars,
            } => {
                let mut chart = Bars::with((unit.clone(), *digits, *most), csv);
                let named = parts.iter().map(|(name, place)| (name.clone(), colour(*place)));
                chart.parts = named.collect();
                for bar in bars {
                    chart.put(&bar.group, bar.drawn());
                }
                chart.plot(&self.name, &self.title)
            }
            Shape::Lines {
                lines,
                x,
                y,
                places,
                x_end,
                y_end,
            } => {
                let lines: Vec<Line> = lines.iter().map(DataLine::drawn).collect();
                let places: Vec<&str> = places.iter().map(String::as_str).collect();
                let mut axes = Axes {
                    places: &places,
                    ..Axes::around(&lines, x, y)
                };
                axes.x.0.end = x_end.unwrap_or(axes.x.0.end);
                axes.y.0.end = y_end.unwrap_or(axes.y.0.end);
                Some(lines::plot(&self.name, &self.title, (&lines, &axes), csv))
            }
            Shape::Around { names, rows } => Some(Plot {
                name: self.name.clone(),
                title: self.title.clone(),
                svg: around(names, rows),
                csv: csv.text(),
            }),
        }
    }

    fn csv(&self) -> Csv {
        let text = |cell: &Value| cell.as_str().map_or_else(|| cell.to_string(), str::to_owned);
        let mut rows = self
            .csv
            .iter()
            .map(|row| row.iter().map(text).collect::<Vec<_>>());
        let mut csv = Csv::of(rows.next().unwrap_or_default());
        rows.for_each(|row| csv.cells(row));
        csv
    }
}

impl DataBar {
    fn drawn(&self) -> Bar {
        let estimate = |[median, low, high]: Figure| Estimate {
            interval: Some(Interval { low, high }),
            ..Estimate::exactly(median)
        };
        Bar {
            other: self.other.map(estimate),
            stack: self.stack.clone(),
            ..Bar::new(&self.label, self.series, estimate(self.figure))
        }
    }
}

impl DataLine {
    fn drawn(&self) -> Line {
        Line {
            name: self.name.clone(),
            points: self.points.clone(),
            dotted: self.dotted,
            colour: self.colour,
        }
    }
}

/// Colours from disagreement to agreement.
const COLOURS: [Colour; 5] = [
    Colour(0xCA, 0x52, 0x1F),
    Colour(0xF0, 0xB0, 0x88),
    Colour(0xBB, 0xBB, 0xBB),
    Colour(0x8C, 0xBF, 0xE0),
    Colour(0x1F, 0x6F, 0xB2),
];
/// Height of a bar with the space below.
const STEP: i32 = 20;
/// Room for the names of the bars, for the numbers of answers, and for the legend.
const LEFT: i32 = 170;
const RIGHT: i32 = 60;
const TOP: i32 = 34;
/// Position of the middle of the neutral answers.
const MIDDLE: i32 = (LEFT + WIDTH - RIGHT) / 2;

/// A bar for each row, as wide as half of the plot, around the middle of the neutral answers; right of it the number of answers.
fn around(names: &[String], rows: &[(String, [u64; COLOURS.len()])]) -> String {
    let height = TOP + pixels(rows.len(), STEP) + 8;
    let mut picture = Picture::new(height);
    for (place, (name, colour)) in names.iter().zip(COLOURS).enumerate() {
        let at = LEFT + pixels(place, 138);
        picture.rectangle([(at, 8), (at + 12, 20)], colour);
        picture.words(name, (at + 17, 8), Anchor::Start, INK);
    }
    picture.straight([(MIDDLE, TOP - 4), (MIDDLE, height - 4)], Stroke::new(GRID, 1));
    for (place, (label, counts)) in rows.iter().enumerate() {
        let top = TOP + pixels(place, STEP);
        let all = counts.iter().sum::<u64>();
        picture.words(label, (8, top + 2), Anchor::Start, INK);
        let right = 2 * MIDDLE - LEFT + 10;
        picture.words(&all.to_string(), (right, top + 2), Anchor::Start, INK);
        let share = |count: u64| count as f64 / (all as f64).max(1.0);
        let mut at = -(share(counts[0]) + share(counts[1]) + share(counts[2]) / 2.0);
        for (count, colour) in counts.iter().zip(COLOURS).filter(|(count, _)| **count > 0) {
            // Shares are between -1 and 1, so pixels fit.
            let ends = [at, at + share(*count)]
                .map(|share| MIDDLE + (share * f64::from(MIDDLE - LEFT)).round() as i32);
            at += share(*count);
            picture.rectangle([(ends[0], top), (ends[1], top + 14)], colour);
        }
    }
    picture.finish()
}
