//! Live topics as lines and as a table.

use super::fit::{Column, table};
use crate::{args::listen::SortName, output::visible};
use holdall::listen::{Spread, TopicReading};
use holdall_model::units::{format_byte_rate, format_bytes};

/// Heights of the small graph.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The rate of a topic, as `ros2 topic hz` writes it; `None` before the second message.
pub fn rate(topic: &TopicReading) -> Option<String> {
    let periods = &topic.periods;
    (periods.count > 0 && periods.mean > 0.0).then(|| {
        let Spread {
            min,
            max,
            deviation,
            count,
            ..
        } = periods;
        format!(
            "average rate: {:.3}\n\tmin: {min:.3}s max: {max:.3}s std dev: {deviation:.5}s window: {}",
            1.0 / periods.mean,
            count + 1
        )
    })
}

/// The bandwidth of a topic, as `ros2 topic bw` writes it; `None` before the second message.
pub fn bandwidth(topic: &TopicReading) -> Option<String> {
    let (sizes, periods) = (&topic.sizes, &topic.periods);
    (periods.count > 0 && periods.mean > 0.0).then(|| {
        format!(
            "{} from {} messages\n\tMessage size mean: {} min: {} max: {}",
            format_byte_rate(sizes.mean / periods.mean),
            sizes.count,
            format_bytes(sizes.mean as u64),
            format_bytes(sizes.min as u64),
            format_bytes(sizes.max as u64)
        )
    })
}

/// Longest delay of stamps that count as taken from the clock of the day.
const DELAY_MAX_S: f64 = 1e8;

/// The delay of a topic in the lines of `ros2 topic delay`, in milliseconds: on one computer it has no whole ones in seconds. `None` before the first
/// message with a stamp.
pub fn delay(topic: &TopicReading) -> Option<String> {
    let delays = topic.delays.as_ref().filter(|delays| delays.count > 0)?;
    let Spread {
        mean,
        min,
        max,
        deviation,
        count,
    } = delays;
    let clock = match mean.abs() > DELAY_MAX_S {
        true => "\n\tthe stamps are from another clock (simulated time, or time since a start)",
        false => "",
    };
    Some(format!(
        "average delay: {:.3} ms\n\tmin: {:.3} ms max: {:.3} ms std dev: {:.3} ms window: {count}{clock}",
        mean * 1e3,
        min * 1e3,
        max * 1e3,
        deviation * 1e3
    ))
}

/// One row of `holdall top`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TopRow {
    /// Full ROS name.
    pub name: String,
    /// Messages a second.
    pub hertz: f64,
    /// Messages a second before, the newest last.
    pub history: Vec<f64>,
    /// Bytes a second.
    pub bytes_per_s: f64,
    /// Lost messages.
    pub lost: u64,
    /// Mean seconds from the stamp to the arrival.
    pub delay: Option<f64>,
    /// Publishers now.
    pub publishers: u64,
}

/// The rows as a table that fits into this many columns.
pub fn top(mut rows: Vec<TopRow>, sort: SortName, columns: Option<usize>) -> String {
    rows.sort_by(|a, b| {
        let order = match sort {
            SortName::Name => std::cmp::Ordering::Equal,
            SortName::Hz => b.hertz.total_cmp(&a.hertz),
            SortName::Bw => b.bytes_per_s.total_cmp(&a.bytes_per_s),
            SortName::Lost => b.lost.cmp(&a.lost),
            SortName::Delay => b.delay.unwrap_or(-1.0).total_cmp(&a.delay.unwrap_or(-1.0)),
        };
        order.then_with(|| a.name.cmp(&b.name))
    });
    let cells = |of: fn(&TopRow) -> String| rows.iter().map(of).collect::<Vec<_>>();
    let delay = |row: &TopRow| match row.delay {
        None => "-".to_owned(),
        // Stamps of another clock.
        Some(delay) if delay.abs() > DELAY_MAX_S => "clock?".to_owned(),
        Some(delay) if delay.abs() < 10.0 => format!("{:.1} ms", delay * 1e3),
        Some(delay) => format!("{delay:.0} s"),
    };
    table(
        vec![
            Column::of_text(1, "topic", cells(|row| visible(&row.name).into_owned())),
            Column::of_numbers(1, "Hz", cells(|row| format_hertz(row.hertz))),
            Column::of_text(6, "last seconds", cells(|row| graph(&row.history))),
            Column::of_numbers(2, "bandwidth", cells(|row| format_byte_rate(row.bytes_per_s))),
            Column::of_numbers(3, "lost", cells(|row| row.lost.to_string())),
            Column::of_numbers(4, "delay", cells(delay)),
            Column::of_numbers(5, "publishers", cells(|row| row.publishers.to_string())),
        ],
        columns,
    )
}

fn format_hertz(hertz: f64) -> String {
    if hertz >= 100.0 {
        format!("{hertz:.0}")
    } else {
        format!("{hertz:.1}")
    }
}

/// Values as bars, the highest one full.
fn graph(values: &[f64]) -> String {
    let top = values.iter().copied().fold(0.0, f64::max);
    let bar = |value: &f64| {
        let height = if top > 0.0 { value / top * 7.0 } else { 0.0 };
        BARS[(height.round() as usize).min(7)]
    };
    values.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, hertz: f64, delay: Option<f64>) -> TopRow {
        TopRow {
            name: name.to_owned(),
            hertz,
            history: vec![0.0, hertz / 2.0, hertz],
            bytes_per_s: hertz * 1024.0,
            lost: 0,
            delay,
            publishers: 1,
        }
    }

    #[test]
    fn the_table_is_sorted_and_leaves_out_columns_that_do_not_fit() {
        let rows = vec![
            row("/b", 10.0, None),
            row("/a", 200.0, Some(0.0125)),
            row("/c", 50.0, None),
        ];
        let wide = top(rows.clone(), SortName::Hz, None);
        let names: Vec<&str> = wide
            .lines()
            .filter(|line| line.contains('/') && line.contains("KiB"))
            .collect();
        assert_eq!(names.len(), 3, "{wide}");
        assert!(
            names[0].contains("/a") && names[0].contains("200") && names[0].contains("12.5 ms"),
            "{wide}"
        );
        assert!(names[1].contains("/c") && names[2].contains("/b"), "{wide}");
        let narrow = top(rows, SortName::Name, Some(40));
        assert!(narrow.lines().all(|line| line.chars().count() <= 40), "{narrow}");
        assert!(narrow.find("/a") < narrow.find("/b"));
    }

    #[test]
    fn graphs_are_relative_to_their_highest_value() {
        assert_eq!(graph(&[0.0, 5.0, 10.0]), "▁▅█");
        assert_eq!(graph(&[0.0]), "▁");
    }

    #[test]
    fn lines_are_those_of_ros2_topic() {
        let spread = Spread {
            count: 2,
            mean: 0.1,
            min: 0.05,
            max: 0.15,
            deviation: 0.05,
        };
        let topic = TopicReading {
            periods: spread,
            sizes: Spread {
                count: 3,
                mean: 1024.0,
                min: 1024.0,
                max: 1024.0,
                deviation: 0.0,
            },
            delays: Some(spread),
            ..TopicReading::default()
        };
        assert_eq!(
            rate(&topic).unwrap(),
            "average rate: 10.000\n\tmin: 0.050s max: 0.150s std dev: 0.05000s window: 3"
        );
        assert!(
            bandwidth(&topic)
                .unwrap()
                .starts_with("10.0 KiB/s from 3 messages"),
            "{:?}",
            bandwidth(&topic)
        );
        assert!(delay(&topic).unwrap().starts_with("average delay: 100.000 ms\n"));
        let of_start = Spread {
            mean: 1.7e9,
            ..spread
        };
        let simulated = TopicReading {
            delays: Some(of_start),
            ..TopicReading::default()
        };
        assert!(
            delay(&simulated)
                .unwrap()
                .contains("the stamps are from another clock")
        );
        assert!(top(vec![row("/a", 1.0, Some(1.7e9))], SortName::Name, None).contains("clock?"));
        assert_eq!(rate(&TopicReading::default()), None);
    }
}
