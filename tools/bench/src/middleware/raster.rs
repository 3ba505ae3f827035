//! A raster of all runs over one link: a row for each run, a cell for each second, dark where much arrived, red where nothing did.

use super::table::Cell;
use crate::suite::report::plots::picture::{Anchor, Colour, INK, Picture, WIDTH, pixels};

/// Height of a row with the space below.
const STEP: i32 = 16;
/// Room for the names, for the right margin, and for the seconds above.
const LEFT: i32 = 190;
const RIGHT: i32 = 24;
const TOP: i32 = 26;
/// Colour of a second with as many arrivals as the best one.
const MUCH: Colour = Colour(0x00, 0x72, 0xB2);
/// Colour of a second without arrivals.
const NOTHING: Colour = Colour(0xD5, 0x5E, 0x00);
/// Smallest share of colour for a second with arrivals.
const LITTLE: f64 = 0.2;

/// Draws the raster; `None` without any seconds.
pub(crate) fn draw(group: &[&Cell<'_>]) -> Option<String> {
    let rows: Vec<(String, &[u64])> = group
        .iter()
        .flat_map(|cell| {
            let row = |run: &&super::MiddlewareRun| format!("{} {}", cell.middleware, run.repetition + 1);
            cell.runs
                .iter()
                .map(move |run| (row(run), run.account.received_each_s.as_slice()))
        })
        .collect();
    let seconds = rows.iter().map(|(_, counts)| counts.len()).max().unwrap_or(0);
    let most = rows
        .iter()
        .flat_map(|(_, counts)| *counts)
        .copied()
        .max()
        .unwrap_or(0);
    if seconds < 2 || most == 0 {
        return None;
    }
    let width = (WIDTH - LEFT - RIGHT) / pixels(seconds, 1);
    let mut picture = Picture::new(TOP + pixels(rows.len(), STEP) + 6);
    for second in (0..seconds).step_by(5) {
        let at = (LEFT + pixels(second, width), 6);
        picture.words(&format!("{second} s"), at, Anchor::Start, INK);
    }
    for (place, (name, counts)) in rows.iter().enumerate() {
        let top = TOP + pixels(place, STEP);
        picture.words(name, (8, top), Anchor::Start, INK);
        for (second, arrived) in counts.iter().enumerate() {
            let at = LEFT + pixels(second, width);
            let share = LITTLE + (1.0 - LITTLE) * *arrived as f64 / most as f64;
            let (colour, share) = if *arrived == 0 {
                (NOTHING, 1.0)
            } else {
                (MUCH, share)
            };
            let ends = [(at, top), (at + (width - 1).max(1), top + STEP - 3)];
            picture.shaded(ends, colour, share);
        }
    }
    Some(picture.finish())
}
