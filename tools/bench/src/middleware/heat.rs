//! Maps of coloured cells: the share of messages in time by middleware and link, and the figures of each pair of middlewares.

use super::{
    MiddlewareRun,
    plots::Context,
    table::{Cell, delivered_percent},
};
use crate::{
    engine::{Csv, distinct},
    suite::report::plots::{
        Plot,
        picture::{Anchor, Colour, INK, PUBLISHED, Picture, WHITE, WIDTH, pixels},
    },
};

/// Height of a row, width of its name, space on the right.
const ROW: i32 = 30;
const LEFT: i32 = 170;
const RIGHT: i32 = 16;
/// Height of a line with a column's name below the map.
const NAME: i32 = 18;
const DEADLINE_MS: f64 = 1000.0;
/// With fewer links a heat map shows no more than the bars.
const LINKS_MIN: usize = 2;
/// Nothing and everything arrived.
const NOTHING: [f64; 3] = [213.0, 94.0, 0.0];
const EVERYTHING: [f64; 3] = [0.0, 114.0, 178.0];
const MIDDLE: [f64; 3] = [247.0, 247.0, 240.0];

/// A cell of a map.
struct Square {
    /// Its colour, from 0 (nothing) to 100 (everything).
    percent: f64,
    text: String,
    /// The published figure.
    published: Option<String>,
}

/// Draws a map.
fn draw(rows: &[&str], columns: &[&str], square: &dyn Fn(&str, &str) -> Option<Square>) -> String {
    let below = pixels(rows.len() + 1, ROW) + 6;
    let mut picture = Picture::new(below + pixels(columns.len(), NAME) + 6);
    let width = (WIDTH - LEFT - RIGHT) / pixels(columns.len().max(1), 1);
    for (column, name) in columns.iter().enumerate() {
        let middle = LEFT + pixels(column, width) + width / 2;
        picture.words(&(column + 1).to_string(), (middle, 8), Anchor::Middle, INK);
        let name = format!("{}  {name}", column + 1);
        picture.words(&name, (LEFT, below + pixels(column, NAME)), Anchor::Start, INK);
    }
    for (row, name) in rows.iter().enumerate() {
        let top = pixels(row + 1, ROW);
        picture.words(name, (8, top + 8), Anchor::Start, INK);
        for (column, other) in columns.iter().enumerate() {
            let Some(square) = square(name, other) else {
                continue;
            };
            let (left, right) = (LEFT + pixels(column, width), LEFT + pixels(column + 1, width) - 2);
            picture.rectangle([(left, top), (right, top + ROW - 2)], colour(square.percent));
            let is_dark = !(20.0..=80.0).contains(&square.percent);
            let ink = if is_dark { WHITE } else { INK };
            let half = left + width / 2;
            let middle = if square.published.is_some() {
                left + width / 4
            } else {
                half
            };
            picture.words(&square.text, (middle, top + 8), Anchor::Middle, ink);
            if let Some(theirs) = &square.published {
                picture.rectangle([(half + 8, top + 4), (right - 4, top + ROW - 6)], PUBLISHED);
                picture.words(theirs, (half + 14, top + 8), Anchor::Start, INK);
            }
        }
    }
    picture.finish()
}

/// Draws the heat map of one load; `None` if it has too few links.
pub(crate) fn plot(number: usize, cells: &[&Cell<'_>]) -> Option<Plot> {
    let links = distinct(cells.iter().map(|cell| cell.link));
    let middlewares = distinct(cells.iter().map(|cell| cell.middleware.as_str()));
    if links.len() < LINKS_MIN || middlewares.len() < 2 {
        return None;
    }
    let share = |middleware: &str, link: &str| {
        let cell = cells
            .iter()
            .find(|cell| cell.middleware == middleware && cell.link == link)?;
        Some(cell.estimate(|run| delivered_percent(run, DEADLINE_MS))?.median)
    };
    let mut csv = Csv::of(["middleware", "link", "delivered_in_1s_percent"]);
    for (middleware, link) in middlewares
        .iter()
        .flat_map(|name| links.iter().map(move |link| (name, link)))
    {
        if let Some(share) = share(middleware, link) {
            csv.row(&[middleware, link, &share]);
        }
    }
    let square = |middleware: &str, link: &str| {
        share(middleware, link).map(|percent| Square {
            percent,
            text: format!("{percent:.0} %"),
            published: None,
        })
    };
    Some(Plot {
        name: format!("heat_{number}"),
        title: format!(
            "Messages that arrived within a second, in percent of planned: {}",
            cells[0].case
        ),
        svg: draw(&middlewares, &links, &square),
        csv: csv.text(),
    })
}

/// A figure of each pair of middlewares.
struct PairFigure {
    name: &'static str,
    title: &'static str,
    unit: &'static str,
    digits: usize,
    of: fn(&MiddlewareRun) -> Option<f64>,
}

const PAIR_FIGURES: [PairFigure; 3] = [
    PairFigure {
        name: "received",
        title: "Messages received, in percent of planned",
        unit: " %",
        digits: 0,
        of: |run| Some(100.0 - run.account.lost_percent()),
    },
    PairFigure {
        name: "latency",
        title: "Median latency from due",
        unit: " ms",
        digits: 2,
        of: |run| Some(run.account.from_due?.p50_ms),
    },
    PairFigure {
        name: "cpu",
        title: "Processor of both sides, in cores",
        unit: "",
        digits: 3,
        of: |run| Some(run.publisher.cores() + run.subscriber.cores()),
    },
];

/// The names of both sides of a cell.
fn sides<'a>(cell: &&'a Cell<'_>) -> Option<([&'a str; 2], &'a Cell<'a>)> {
    let sides = &cell.runs.first()?.middleware.sides;
    Some(([&sides[0].name, &sides[1].name], cell))
}

/// A matrix of publishers and subscribers for each figure; empty when all pairs use one middleware.
pub(crate) fn pairs(number: usize, cells: &[&Cell<'_>], context: &Context<'_>) -> Vec<Plot> {
    let named: Vec<_> = cells.iter().filter_map(sides).collect();
    if named
        .iter()
        .all(|([publisher, subscriber], _)| publisher == subscriber)
    {
        return Vec::new();
    }
    let figures = PAIR_FIGURES.iter();
    figures
        .map(|figure| matrix(number, &named, figure, context))
        .collect()
}

fn matrix(
    number: usize,
    named: &[([&str; 2], &Cell<'_>)],
    figure: &PairFigure,
    context: &Context<'_>,
) -> Plot {
    let [publishers, subscribers] = [0, 1].map(|side| distinct(named.iter().map(|(names, _)| names[side])));
    let value = |from: &str, to: &str| {
        let (_, cell) = named.iter().find(|(names, _)| *names == [from, to])?;
        Some(cell.estimate(figure.of)?.median)
    };
    let is_share = figure.name == "received";
    let theirs = |from: &str, to: &str| {
        let published = context.published.filter(|_| is_share)?;
        published.pair(from, to)
    };
    let mut csv = Csv::of(["publisher", "subscriber", figure.name, "published_of_5_per_s"]);
    let mut most: f64 = 1e-9;
    for (from, to) in publishers
        .iter()
        .flat_map(|from| subscribers.iter().map(move |to| (from, to)))
    {
        if let Some(value) = value(from, to) {
            let theirs = theirs(from, to).map_or(String::new(), |count| count.to_string());
            csv.row(&[from, to, &value, &theirs]);
            most = most.max(value);
        }
    }
    let square = |from: &str, to: &str| {
        let value = value(from, to)?;
        // The worst of a cost has nearly the colour of nothing.
        let cost = 100.0 - 80.0 * value / most;
        Some(Square {
            percent: if is_share { value } else { cost },
            text: format!("{value:.*}{}", figure.digits, figure.unit),
            published: theirs(from, to).map(|count| format!("{count:.1} of 5")),
        })
    };
    let has_theirs = is_share && context.published.is_some();
    let grey = if has_theirs {
        "; grey: published, of 5 each second"
    } else {
        ""
    };
    let case = named.first().map_or("", |(_, cell)| cell.case);
    Plot {
        name: format!("pairs_{}_{number}", figure.name),
        title: format!(
            "{} by publisher (row) and subscriber (column): {case}{grey}",
            figure.title
        ),
        svg: draw(&publishers, &subscribers, &square),
        csv: csv.text(),
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
