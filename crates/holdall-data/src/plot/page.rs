//! A picture as a complete page: one file without network, that can be zoomed and asked for figures.

use super::{Picture, svg::escaped};
use serde_json::{Value, json};

/// Most bytes of a page.
pub const PAGE_BYTES_MAX: usize = 1_000_000;

/// Fewest columns that a page is reduced to.
const COLUMNS_MIN: usize = 128;

const PAGE: &str = include_str!("page.html");

/// The chart of a page, and its style: also those of `holdall web`.
pub const CHART_SCRIPT: &str = include_str!("chart.js");
/// Its style.
pub const CHART_STYLE: &str = include_str!("chart.css");

impl Picture {
    /// The picture as a page: light and dark, with zoom and figures, in at most [`PAGE_BYTES_MAX`] bytes for two hundred topics; with many topics and
    /// values it has fewer columns.
    pub fn page(&self) -> String {
        let page = PAGE
            .replace("/*CHART-STYLE*/", CHART_STYLE)
            .replace("/*CHART*/", CHART_SCRIPT)
            .replace("@TITLE@", &escaped(&self.title))
            .replace("@DATA@", &for_script(&self.data()));
        if page.len() > PAGE_BYTES_MAX && self.columns > COLUMNS_MIN {
            return self.clone().halved().page();
        }
        page
    }

    /// Drawn values, by column, as pages get them.
    pub fn data(&self) -> Value {
        let lanes: Vec<Value> = self
            .lanes
            .iter()
            .map(|lane| {
                json!({
                    "name": lane.name,
                    "type": lane.type_name,
                    "messages": lane.messages,
                    "bytes": lane.bytes,
                    "lost": lane.lost,
                    "losses": lane.losses.iter().map(|loss| json!([self.offset_ms(loss.from.as_nanos()), self.offset_ms(loss.until.as_nanos()), loss.count, loss.stage.as_str()])).collect::<Vec<_>>(),
                    "n": runs(lane.cells.iter().map(|cell| cell.count as f64)),
                    "h": runs(lane.shades().into_iter().map(f64::from)),
                    "b": runs(lane.cells.iter().map(|cell| cell.bytes_max as f64)),
                    // Three digits of a period are read.
                    "g": runs(lane.cells.iter().map(|cell| digits(cell.gap_max as f64 / 1e6, 3))),
                })
            })
            .collect();
        let lines: Vec<Value> = self
            .lines
            .iter()
            .map(|line| {
                let of = |pick: fn(&super::Extent) -> f64| {
                    let cell = |cell: &Option<super::Extent>| {
                        cell.as_ref()
                            .map_or(Value::Null, |cell| json!(digits(pick(cell), 6)))
                    };
                    line.cells.iter().map(cell).collect::<Vec<_>>()
                };
                json!({
                    "name": line.name,
                    "values": line.values,
                    "undecoded": line.undecoded,
                    "min": of(|cell| cell.min),
                    "max": of(|cell| cell.max),
                })
            })
            .collect();
        json!({
            // JavaScript's numbers have no room for nanoseconds since 1970.
            "start_ms": self.start as f64 / 1e6,
            "span_ms": self.span as f64 / 1e6,
            "columns": self.columns,
            "messages": self.messages,
            "left_out": self.left_out,
            "lanes": lanes,
            "lines": lines,
            "markers": self.markers.iter().map(|marker| json!([self.offset_ms(marker.time.as_nanos()), marker.name])).collect::<Vec<_>>(),
            "violations": self.violations.iter().map(|violation| {
                let until = violation.until.map_or(self.span as f64 / 1e6, |until| self.offset_ms(until.as_nanos()));
                json!([self.offset_ms(violation.since.as_nanos()), until, violation.topic, violation.text])
            }).collect::<Vec<_>>(),
            "splits": self.splits.iter().map(|time| self.offset_ms(*time)).collect::<Vec<_>>(),
            "notices": self.notices,
        })
    }

    fn offset_ms(&self, time: i64) -> f64 {
        time.saturating_sub(self.start) as f64 / 1e6
    }
}

/// Values, and those that follow one another unchanged as `[count, value]`.
pub fn runs(values: impl Iterator<Item = f64>) -> Vec<Value> {
    let mut all: Vec<(usize, f64)> = Vec::new();
    for value in values {
        match all.last_mut() {
            Some((count, last)) if *last == value => *count += 1,
            _ => all.push((1, value)),
        }
    }
    let number = |value: f64| {
        if value.fract() == 0.0 && value.abs() < 1e15 {
            json!(value as i64)
        } else {
            json!(value)
        }
    };
    all.into_iter()
        .flat_map(|(count, value)| match count {
            1..=3 => vec![number(value); count],
            _ => vec![json!([count, number(value)])],
        })
        .collect()
}

/// A number rounded to `count` digits.
pub fn digits(value: f64, count: i32) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let text = format!("{value:.*e}", usize::try_from(count - 1).unwrap_or(0));
    text.parse().unwrap_or(value)
}

/// JSON that ends no element of a page.
fn for_script(value: &Value) -> String {
    value
        .to_string()
        .replace('<', "\\u003c")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::columns::{Lane, Line};

    #[test]
    fn the_page_is_whole_and_loads_nothing() {
        let lane = Lane::new("/a</script><script>alert(1)</script>", "t", 256);
        let picture = Picture {
            title: "<i>".to_owned(),
            span: 1_000_000_000,
            columns: 256,
            lanes: vec![lane],
            ..Picture::default()
        };
        let page = picture.page();
        assert_eq!(page.matches("<script").count(), 2, "the data and the program");
        assert!(page.contains("&lt;i&gt;") && !page.contains("@DATA@"));
        for loaded in ["http://", "https://", "@import", "src=", "url("] {
            assert!(!page.contains(loaded), "{loaded}");
        }
    }

    #[test]
    fn two_hundred_noisy_topics_and_twenty_values_stay_below_a_megabyte() {
        let noisy = |number: usize| {
            let mut lane = Lane::new(&format!("/robot/topic_with_a_name/{number}"), "a/msg/Type", 2048);
            (0..200_000_usize).for_each(|at| {
                lane.add(
                    at * 2048 / 200_000,
                    (at * at * 7919 % 1_000_003) as i64,
                    (at * 31 % 60_000) as u64,
                )
            });
            lane
        };
        let line = |number: usize| {
            let mut line = Line::new(&format!("/imu.{number}"), 2048);
            (0..20_000_usize).for_each(|at| line.add(at * 2048 / 20_000, (at as f64 * 0.7).sin() * 1234.567));
            line
        };
        let picture = Picture {
            span: 1_000_000_000,
            columns: 2048,
            lanes: (0..200).map(noisy).collect(),
            lines: (0..20).map(line).collect(),
            ..Picture::default()
        };
        let page = picture.page();
        assert!(page.len() <= PAGE_BYTES_MAX, "{}", page.len());
        assert!(page.contains("\"columns\":"));
    }

    #[test]
    fn equal_values_are_runs() {
        let values = [1.0, 1.0, 2.0, 0.0, 0.0, 0.0, 0.0, 2.5];
        assert_eq!(json!(runs(values.into_iter())).to_string(), "[1,1,2,[4,0],2.5]");
        assert_eq!(
            [1234.567, 0.0, -0.001_234_56].map(|value| digits(value, 3)),
            [1230.0, 0.0, -0.001_23]
        );
    }
}
