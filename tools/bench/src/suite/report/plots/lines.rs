//! Lines over an axis: time, percentiles, offered load.

use super::{GRID, INK, PUBLISHED, SERIES, WIDTH, failed};
use crate::error::{BenchError, BenchResult};
use plotters::{
    coord::{Shift, ranged1d::ValueFormatter, types::RangedCoordf64},
    element::DashedPathElement,
    prelude::*,
};
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
}

/// Height of the plot itself.
const PLOT: u32 = 300;
/// Opacity of lines without a name.
const FAINT: f64 = 0.35;
/// Height of a line of the legend.
const LEGEND: i32 = 20;

/// Draws the lines with the legend below.
///
/// # Errors
/// Only because of a bug in this program.
pub(crate) fn draw(lines: &[Line], axes: &Axes<'_>) -> BenchResult<String> {
    let height = PLOT + 12 + LEGEND.unsigned_abs() * u32::try_from(named(lines).count()).unwrap_or(0);
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        let (plot, legend) = root.split_vertically(PLOT);
        let mut builder = ChartBuilder::on(&plot);
        builder
            .margin(10)
            .margin_right(48)
            .x_label_area_size(44)
            .y_label_area_size(72);
        let ((x, _), (y, _)) = (axes.x.clone(), axes.y.clone());
        if axes.is_log {
            let chart = builder.build_cartesian_2d(x, y.log_scale()).map_err(failed)?;
            series(chart, lines, axes)?;
        } else {
            let chart = builder.build_cartesian_2d(x, y).map_err(failed)?;
            series(chart, lines, axes)?;
        }
        names(&legend, lines)?;
        root.present().map_err(failed)?;
    }
    Ok(svg)
}

fn series<Y>(
    mut chart: ChartContext<'_, SVGBackend<'_>, Cartesian2d<RangedCoordf64, Y>>,
    lines: &[Line],
    axes: &Axes<'_>,
) -> BenchResult<()>
where
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let place = |x: &f64| {
        // Positions are few and not negative.
        let name = axes.places.get(x.round() as usize);
        name.map_or(String::new(), ToString::to_string)
    };
    let mut mesh = chart.configure_mesh();
    mesh.bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(INK)
        .label_style(("sans-serif", 13).into_font().color(&INK))
        .x_desc(axes.x.1)
        .y_desc(axes.y.1)
        .y_label_formatter(&|y: &f64| figure(*y));
    if axes.places.is_empty() {
        mesh.x_label_formatter(&|x: &f64| figure(*x)).draw()
    } else {
        mesh.x_labels(axes.places.len()).x_label_formatter(&place).draw()
    }
    .map_err(failed)?;
    for border in axes.borders {
        let ends = vec![(*border, axes.y.0.start), (*border, axes.y.0.end)];
        chart
            .draw_series([PathElement::new(ends, INK.stroke_width(1))])
            .map_err(failed)?;
    }
    for line in lines.iter().filter(|line| line.name.is_empty()) {
        let style = colour_of(line).mix(FAINT).stroke_width(1);
        chart
            .draw_series(LineSeries::new(line.points.iter().copied(), style))
            .map_err(failed)?;
    }
    for (line, dash) in named(lines).zip(dashes(lines)) {
        let colour = colour_of(line);
        let (points, style) = (line.points.iter().copied(), colour.stroke_width(2));
        match dash {
            None => chart.draw_series(LineSeries::new(points, style)).map(drop),
            Some((on, off)) => chart
                .draw_series(DashedLineSeries::new(points, on, off, style))
                .map(drop),
        }
        .map_err(failed)?;
        if line.dotted {
            let dots = line.points.iter().map(|at| Circle::new(*at, 4, colour.filled()));
            chart.draw_series(dots).map_err(failed)?;
        }
    }
    Ok(())
}

fn names(area: &DrawingArea<SVGBackend<'_>, Shift>, lines: &[Line]) -> Result<(), BenchError> {
    let text = ("sans-serif", 13).into_font().color(&INK);
    for ((line, dash), row) in named(lines).zip(dashes(lines)).zip(0_i32..) {
        let middle = 8 + row * LEGEND;
        let (ends, style) = ([(82, middle), (106, middle)], colour_of(line).stroke_width(3));
        match dash {
            None => area.draw(&PathElement::new(ends.to_vec(), style)),
            Some((on, off)) => area.draw(&DashedPathElement::new(ends, on, off, style)),
        }
        .map_err(failed)?;
        area.draw(&Text::new(line.name.clone(), (114, middle - 6), text.clone()))
            .map_err(failed)?;
    }
    Ok(())
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

fn colour_of(line: &Line) -> RGBColor {
    line.colour
        .map_or(PUBLISHED, |place| SERIES[place % SERIES.len()])
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
        let parts = |lines: &[Line]| {
            let axes = Axes::around(lines, "s", "");
            draw(lines, &axes).unwrap().matches("polyline").count()
        };
        assert!(parts(&lines) > parts(&lines[..3]) + 10);
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
            let svg = draw(&lines, &axes(is_log)).unwrap();
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
