//! A raster of all runs over one link: a row for each run, a cell for each second, dark where much arrived, red where nothing did.

use super::table::Cell;
use crate::{
    error::BenchResult,
    suite::report::plots::{INK, WIDTH, failed},
};
use plotters::prelude::*;

/// Height of a row with the space below.
const STEP: i32 = 16;
/// Room for the names, for the right margin, and for the seconds above.
const LEFT: i32 = 190;
const RIGHT: i32 = 24;
const TOP: i32 = 26;
/// Colour of a second with as many arrivals as the best one.
const MUCH: RGBColor = RGBColor(0x00, 0x72, 0xB2);
/// Colour of a second without arrivals.
const NOTHING: RGBColor = RGBColor(0xD5, 0x5E, 0x00);
/// Smallest share of colour for a second with arrivals.
const LITTLE: f64 = 0.2;

/// Draws the raster; `None` without any seconds.
///
/// # Errors
/// Only because of a bug in this program.
pub(crate) fn draw(group: &[&Cell<'_>]) -> BenchResult<Option<String>> {
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
        return Ok(None);
    }
    let count = |number: usize| i32::try_from(number).unwrap_or(i32::MAX / STEP / 4);
    let height = TOP + STEP * count(rows.len()) + 6;
    let width = (count(WIDTH as usize) - LEFT - RIGHT) / count(seconds);
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height.unsigned_abs())).into_drawing_area();
        let text = ("sans-serif", 13).into_font().color(&INK);
        for second in (0..seconds).step_by(5) {
            let at = LEFT + width * count(second);
            root.draw(&Text::new(format!("{second} s"), (at, 6), text.clone()))
                .map_err(failed)?;
        }
        for (place, (name, counts)) in rows.iter().enumerate() {
            let top = TOP + STEP * count(place);
            root.draw(&Text::new(name.clone(), (8, top), text.clone()))
                .map_err(failed)?;
            for (second, arrived) in counts.iter().enumerate() {
                let at = LEFT + width * count(second);
                let share = LITTLE + (1.0 - LITTLE) * *arrived as f64 / most as f64;
                let style = match arrived {
                    0 => NOTHING.filled(),
                    _ => MUCH.mix(share).filled(),
                };
                let ends = [(at, top), (at + (width - 1).max(1), top + STEP - 3)];
                root.draw(&Rectangle::new(ends, style)).map_err(failed)?;
            }
        }
        root.present().map_err(failed)?;
    }
    Ok(Some(svg))
}
