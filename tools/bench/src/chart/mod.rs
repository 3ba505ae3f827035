//! Charts as data, and how they are drawn: bars, lines over an axis, maps of cells, answers around the middle of a scale.

mod around;
mod bars;
mod lines;
mod map;
mod picture;

use crate::engine::Csv;
use around::Around;
pub(crate) use bars::Bars;
pub(crate) use lines::{LOG_MIN, Line, Lines};
pub(crate) use map::{Map, Square};
use picture::Colour;
pub(crate) use picture::escape;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt::Display;

/// A plot: what is drawn, and the data of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chart {
    /// Part of its file names.
    pub name: String,
    /// Its subject, one sentence.
    pub title: String,
    /// The data: rows below a header.
    csv: Vec<Vec<Value>>,
    #[serde(flatten)]
    shape: Shape,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Shape {
    Bars(Bars),
    Lines(Lines),
    Map(Map),
    Around(Around),
}

impl Chart {
    /// The same with more data than are drawn: rows below a header.
    pub(crate) fn with_data(self, csv: Vec<Vec<Value>>) -> Self {
        Self { csv, ..self }
    }

    /// The same with other words before the figures of its data, in place of the two that are drawn.
    pub(crate) fn with_words(mut self, header: &[&str], rows: Vec<Vec<Value>>) -> Self {
        let header = header.iter().map(|name| Value::from(*name)).collect();
        for (row, words) in self.csv.iter_mut().zip([header].into_iter().chain(rows)) {
            row.splice(..2, words);
        }
        self
    }

    /// The picture, whose colours a page sets.
    pub fn svg(&self) -> String {
        match &self.shape {
            Shape::Bars(bars) => bars.svg(),
            Shape::Lines(lines) => lines.svg(),
            Shape::Map(map) => map.svg(),
            Shape::Around(around) => around.svg(),
        }
    }

    /// The picture by itself: on white.
    pub(crate) fn standalone(&self) -> String {
        let white = "><rect width=\"100%\" height=\"100%\" fill=\"#FFFFFF\"/>";
        self.svg().replacen('>', white, 1)
    }

    /// The data as CSV.
    pub fn csv(&self) -> String {
        let text = |cell: &Value| cell.as_str().map_or_else(|| cell.to_string(), str::to_owned);
        let mut rows = self.csv.iter().map(|row| row.iter().map(text));
        let mut csv = Csv::of(rows.next().into_iter().flatten());
        rows.for_each(|row| csv.cells(row));
        csv.text()
    }
}

/// A row of a chart's data.
pub(crate) fn row(cells: &[&dyn Display]) -> Vec<Value> {
    let text = |cell: &&dyn Display| Value::String(cell.to_string());
    cells.iter().map(text).collect()
}

/// Series, distinguished by hue and brightness.
const SERIES: [Colour; 8] = [
    Colour(0x00, 0x72, 0xB2),
    Colour(0xE6, 0x9F, 0x00),
    Colour(0x00, 0x9E, 0x73),
    Colour(0xCC, 0x79, 0xA7),
    Colour(0x56, 0xB4, 0xE9),
    Colour(0xD5, 0x5E, 0x00),
    Colour(0x6A, 0x3D, 0x9A),
    Colour(0x8C, 0x6D, 0x31),
];
/// More series than this cannot be distinguished.
pub(crate) const SERIES_MAX: usize = SERIES.len();

/// The place of a grey that no series has.
pub(crate) const REST: usize = usize::MAX;

/// The colour of a series or a part.
fn colour(place: usize) -> Colour {
    match place {
        REST => Colour(0x99, 0x99, 0x99),
        _ => SERIES[place % SERIES.len()],
    }
}
