//! A heat map of a load: a row for each middleware, a column for each link, in each cell the share of messages that arrived within a second.

use super::table::{Cell, delivered_percent};
use crate::{
    error::BenchResult,
    suite::report::plots::{INK, Plot, WIDTH, csv_cell, failed},
};
use plotters::prelude::*;
use std::fmt::Write;

/// Height of a row, width of its name, space on the right.
const ROW: i32 = 30;
const LEFT: i32 = 170;
const RIGHT: i32 = 16;
/// Height of a line with a link's name below the map.
const NAME: i32 = 18;
const DEADLINE_MS: f64 = 1000.0;
/// With fewer links a heat map shows no more than the bars.
const LINKS_MIN: usize = 3;
/// Nothing and everything arrived.
const NOTHING: [f64; 3] = [213.0, 94.0, 0.0];
const EVERYTHING: [f64; 3] = [0.0, 114.0, 178.0];
const MIDDLE: [f64; 3] = [247.0, 247.0, 240.0];

/// Draws the heat map of one load; `None` where it has too few links.
///
/// # Errors
/// Only by a defect of ours.
pub(crate) fn plot(number: usize, cells: &[&Cell<'_>]) -> BenchResult<Option<Plot>> {
    let (mut links, mut middlewares) = (Vec::<&str>::new(), Vec::<&str>::new());
    for cell in cells {
        if !links.contains(&cell.link) {
            links.push(cell.link);
        }
        if !middlewares.contains(&cell.middleware.as_str()) {
            middlewares.push(&cell.middleware);
        }
    }
    if links.len() < LINKS_MIN || middlewares.len() < 2 {
        return Ok(None);
    }
    let count = |number: usize| i32::try_from(number).unwrap_or(1000).min(1000);
    let height = ROW * count(middlewares.len() + 1) + NAME * count(links.len()) + 12;
    let width = (count(WIDTH as usize) - LEFT - RIGHT) / count(links.len());
    let mut csv = "middleware,link,delivered_in_1s_percent\n".to_owned();
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height.unsigned_abs())).into_drawing_area();
        let text = ("sans-serif", 13).into_font().color(&INK);
        let write =
            |words: String, at: (i32, i32)| root.draw(&Text::new(words, at, text.clone())).map_err(failed);
        for column in 0..links.len() {
            write(
                (column + 1).to_string(),
                (LEFT + width * count(column) + width / 2 - 4, 8),
            )?;
        }
        for (row, middleware) in middlewares.iter().enumerate() {
            let top = ROW * count(row + 1);
            write((*middleware).to_owned(), (8, top + 8))?;
            for (column, link) in links.iter().enumerate() {
                let cell = cells
                    .iter()
                    .find(|cell| cell.middleware == **middleware && cell.link == *link);
                let share = cell.and_then(|cell| cell.estimate(|run| delivered_percent(run, DEADLINE_MS)));
                let Some(share) = share.map(|share| share.median) else {
                    continue;
                };
                let left = LEFT + width * count(column);
                let ends = [(left, top), (left + width - 2, top + ROW - 2)];
                root.draw(&Rectangle::new(ends, colour(share).filled()))
                    .map_err(failed)?;
                let is_dark = !(20.0..=80.0).contains(&share);
                let ink = if is_dark { WHITE } else { INK };
                let style = ("sans-serif", 13).into_font().color(&ink);
                let at = (left + width / 2 - 14, top + 8);
                root.draw(&Text::new(format!("{share:.0} %"), at, style))
                    .map_err(failed)?;
                let names = [*middleware, *link].map(csv_cell).join(",");
                let _never_fails = writeln!(csv, "{names},{share}").is_ok();
            }
        }
        for (column, link) in links.iter().enumerate() {
            let top = ROW * count(middlewares.len() + 1) + 6 + NAME * count(column);
            write(format!("{}  {link}", column + 1), (LEFT, top))?;
        }
        root.present().map_err(failed)?;
    }
    Ok(Some(Plot {
        name: format!("heat_{number}"),
        title: format!(
            "Messages that arrived within a second, in percent of planned: {}",
            cells[0].case
        ),
        svg,
        csv,
    }))
}

/// From nothing over the middle to everything.
fn colour(percent: f64) -> RGBColor {
    let (from, to, share) = if percent < 50.0 {
        (NOTHING, MIDDLE, percent / 50.0)
    } else {
        (MIDDLE, EVERYTHING, percent / 50.0 - 1.0)
    };
    // Between 0 and 255.
    let mix = |place: usize| (from[place] + (to[place] - from[place]) * share.clamp(0.0, 1.0)).round() as u8;
    RGBColor(mix(0), mix(1), mix(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_go_from_red_to_blue() {
        assert_eq!(colour(0.0), RGBColor(213, 94, 0));
        assert_eq!(colour(50.0), RGBColor(247, 247, 240));
        assert_eq!(colour(100.0), RGBColor(0, 114, 178));
    }
}
