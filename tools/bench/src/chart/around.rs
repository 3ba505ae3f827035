//! Answers around the middle of a scale: a bar for each row, as wide as half of the plot, around the middle of the neutral answers.

use super::picture::{Anchor, Colour, GRID, INK, Picture, Stroke, WIDTH, pixels};
use serde::{Deserialize, Serialize};

/// The answers of each row by the five steps of a scale.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Around {
    names: Vec<String>,
    rows: Vec<(String, [u64; COLOURS.len()])>,
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

impl Around {
    pub(super) fn svg(&self) -> String {
        let height = TOP + pixels(self.rows.len(), STEP) + 8;
        let mut picture = Picture::new(height);
        for (place, (name, colour)) in self.names.iter().zip(COLOURS).enumerate() {
            let at = LEFT + pixels(place, 138);
            picture.rectangle([(at, 8), (at + 12, 20)], colour);
            picture.words(name, (at + 17, 8), Anchor::Start, INK);
        }
        picture.straight([(MIDDLE, TOP - 4), (MIDDLE, height - 4)], Stroke::new(GRID, 1));
        for (place, (label, counts)) in self.rows.iter().enumerate() {
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
}
