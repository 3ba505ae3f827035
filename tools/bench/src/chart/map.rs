//! Maps of coloured cells: red where nothing arrived, blue where everything did. Cells with text, or small ones for the seconds of runs.

use super::{
    Chart, Shape,
    picture::{Anchor, Colour, INK, PUBLISHED, Picture, WHITE, WIDTH, pixels},
    row,
};
use serde::{Deserialize, Serialize};

/// Height of a row, of one without text, and of a line with a column's name below the map.
const ROW: i32 = 30;
const SMALL_ROW: i32 = 16;
const NAME: i32 = 18;
/// Width of a row's name, space on the right.
const LEFT: i32 = 170;
const RIGHT: i32 = 16;
/// Columns without text of which one has a name.
const NAMED_EVERY: usize = 5;
/// Nothing and everything arrived.
const NOTHING: [f64; 3] = [213.0, 94.0, 0.0];
const EVERYTHING: [f64; 3] = [0.0, 114.0, 178.0];
const MIDDLE: [f64; 3] = [247.0, 247.0, 240.0];

/// A cell of a map.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Square {
    /// Its colour, from 0 (nothing) to 100 (everything).
    pub percent: f64,
    /// Its figure in the data.
    pub value: f64,
    pub text: String,
    /// The published figure, in the data and as text.
    pub published: Option<(f64, String)>,
}

/// Named rows of cells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Map {
    pub rows: Vec<(String, Vec<Option<Square>>)>,
    pub columns: Vec<String>,
    /// Cells have no text, and few columns have a name.
    pub is_small: bool,
}

impl Map {
    /// A map with a cell for each pair of names that `square` knows.
    pub(crate) fn of(rows: &[&str], columns: &[&str], square: impl Fn(&str, &str) -> Option<Square>) -> Self {
        let row = |name: &&str| {
            let cells = columns.iter().map(|column| square(name, column));
            ((*name).to_owned(), cells.collect())
        };
        Self {
            rows: rows.iter().map(row).collect(),
            columns: columns.iter().map(ToString::to_string).collect(),
            is_small: false,
        }
    }

    /// The map as a plot whose data have these columns: row, column, figure, and the published one if it has a name.
    pub(crate) fn chart(self, name: &str, title: &str, [line, column, figure, other]: [&str; 4]) -> Chart {
        let count = 3 + usize::from(!other.is_empty());
        let mut csv = vec![row(&[&line, &column, &figure, &other])];
        for (name, squares) in &self.rows {
            for (column, square) in self.columns.iter().zip(squares) {
                let Some(Square { value, published, .. }) = square else {
                    continue;
                };
                let published = published
                    .as_ref()
                    .map_or(String::new(), |(one, _)| one.to_string());
                csv.push(row(&[name, column, value, &published]));
            }
        }
        csv.iter_mut().for_each(|cells| cells.truncate(count));
        Chart {
            name: name.to_owned(),
            title: title.to_owned(),
            csv,
            shape: Shape::Map(self),
        }
    }

    pub(super) fn svg(&self) -> String {
        let step = if self.is_small { SMALL_ROW } else { ROW };
        let named = if self.is_small { 0 } else { self.columns.len() };
        let below = ROW + pixels(self.rows.len(), step) + 6;
        let mut picture = Picture::new(below + pixels(named, NAME) + 6);
        let width = (WIDTH - LEFT - RIGHT) / pixels(self.columns.len().max(1), 1);
        for (column, name) in self.columns.iter().enumerate() {
            let left = LEFT + pixels(column, width);
            if !self.is_small {
                let number = (column + 1).to_string();
                picture.words(&number, (left + width / 2, 8), Anchor::Middle, INK);
                let place = (LEFT, below + pixels(column, NAME));
                picture.words(&format!("{number}  {name}"), place, Anchor::Start, INK);
            } else if column.is_multiple_of(NAMED_EVERY) {
                picture.words(name, (left, 8), Anchor::Start, INK);
            }
        }
        for (place, (name, squares)) in self.rows.iter().enumerate() {
            let top = ROW + pixels(place, step);
            let text = if self.is_small { top } else { top + 8 };
            picture.words(name, (8, text), Anchor::Start, INK);
            for (column, square) in squares.iter().enumerate() {
                if let Some(square) = square {
                    let ends = [column, column + 1].map(|column| LEFT + pixels(column, width));
                    draw(&mut picture, square, ends, [top, top + step - 2]);
                }
            }
        }
        picture.finish()
    }
}

fn draw(picture: &mut Picture, square: &Square, [left, next]: [i32; 2], [top, bottom]: [i32; 2]) {
    let (right, half) = ((next - 2).max(left + 1), i32::midpoint(left, next));
    picture.rectangle([(left, top), (right, bottom)], colour(square.percent));
    let is_dark = !(20.0..=80.0).contains(&square.percent);
    let ink = if is_dark { WHITE } else { INK };
    let middle = if square.published.is_some() {
        i32::midpoint(left, half)
    } else {
        half
    };
    if !square.text.is_empty() {
        picture.words(&square.text, (middle, top + 8), Anchor::Middle, ink);
    }
    if let Some((_, theirs)) = &square.published {
        picture.rectangle([(half + 8, top + 4), (right - 4, bottom - 4)], PUBLISHED);
        picture.words(theirs, (half + 14, top + 8), Anchor::Start, INK);
    }
}

/// The colour from none over half to all.
fn colour(percent: f64) -> Colour {
    let (from, to, share) = if percent < 50.0 {
        (NOTHING, MIDDLE, percent / 50.0)
    } else {
        (MIDDLE, EVERYTHING, percent / 50.0 - 1.0)
    };
    // Between 0 and 255.
    let mix = |place: usize| (from[place] + (to[place] - from[place]) * share.clamp(0.0, 1.0)).round() as u8;
    Colour(mix(0), mix(1), mix(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_go_from_red_to_blue() {
        assert_eq!(colour(0.0), Colour(213, 94, 0));
        assert_eq!(colour(50.0), Colour(247, 247, 240));
        assert_eq!(colour(100.0), Colour(0, 114, 178));
    }
}
