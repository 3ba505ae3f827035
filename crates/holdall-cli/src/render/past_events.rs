//! The events that triggers would have caught in bags, as text and as JSON.

use super::tools::table;
use crate::units::plural;
use holdall::tools::manage::AddedMarkers;
use holdall_model::{
    text::{Outside, OutsidePath},
    time::Timestamp,
    trigger::{EventScore, Found, PastEvent},
};
use serde_json::{Value, json};
use std::path::PathBuf;

/// What was found in one bag.
pub struct OfBag {
    /// The bag.
    pub path: PathBuf,
    /// Its first message.
    pub start: Option<Timestamp>,
    /// The events.
    pub found: Found,
    /// How they fit the labels.
    pub score: Option<EventScore>,
    /// Markers that the bag was given.
    pub written: Option<AddedMarkers>,
}

/// A JSON object for each bag.
pub fn json(found: &[OfBag]) -> String {
    let of_bag = |of: &OfBag| {
        let mut object = json!({
            "bag": of.path,
            "events": of.found.events,
            "more_events": of.found.more,
            "kept_s": of.found.kept.as_secs_f64(),
            "faults": of.found.faults,
        });
        if let Some(score) = &of.score {
            object["score"] = json!({
                "right_events": score.right,
                "found_labels": score.found,
                "precision": score.precision(),
                "recall": score.recall(),
                "missed": score.missed.iter().map(|label| json!({
                    "from_ns": label.start,
                    "until_ns": label.end,
                    "name": label.name,
                })).collect::<Vec<_>>(),
            });
        }
        if let Some(written) = of.written {
            object["written_markers"] = json!(written.added);
            object["markers_without_room"] = json!(written.without_room);
        }
        object.to_string()
    };
    found.iter().map(of_bag).collect::<Vec<_>>().join("\n")
}

/// A table for each bag, and how all fit the labels.
pub fn text(found: &[OfBag]) -> String {
    let mut lines = Vec::new();
    let mut score: Option<EventScore> = None;
    for of in found {
        let events = plural(of.found.events.len() as u64 + of.found.more, "event");
        let mut line = format!(
            "{}: {events}; a recorder would have kept {:.1} s",
            OutsidePath(&of.path),
            of.found.kept.as_secs_f64()
        );
        if let Some(written) = of.written {
            line.push_str(&format!("; {} written", plural(written.added, "marker")));
            if written.without_room > 0 {
                line.push_str(&format!(", no room for {} more", written.without_room));
            }
        }
        lines.push(line);
        if !of.found.events.is_empty() {
            let rows: Vec<Value> = of.found.events.iter().map(|event| row(event, of.start)).collect();
            lines.push(table(&["time", "kept", "trigger", "values"], &rows));
        }
        if of.found.more > 0 {
            lines.push(format!("and {} that are not listed", of.found.more));
        }
        if let Some(of_bag) = &of.score {
            score.get_or_insert_default().add(of_bag.clone());
            let missed = of_bag.missed.iter();
            lines.extend(missed.map(|label| {
                let time = after(label.start, of.start);
                format!("missed: {time} {}", Outside(&label.name))
            }));
        }
    }
    if let Some(score) = score {
        let share = |share: Option<f64>| share.map_or("-".to_owned(), |share| format!("{share:.3}"));
        lines.push(format!(
            "precision {} ({} of {} have a label), recall {} ({} of {} found)",
            share(score.precision()),
            score.right,
            plural(score.events, "event"),
            share(score.recall()),
            score.found,
            plural(score.found + score.missed.len() as u64, "label"),
        ));
    }
    lines.join("\n")
}

/// Seconds after the first message.
fn after(time: Timestamp, start: Option<Timestamp>) -> String {
    let nanos = i128::from(time.as_nanos()) - i128::from(start.unwrap_or(time).as_nanos());
    format!("{:+.3}", nanos as f64 / 1e9)
}

fn row(event: &PastEvent, start: Option<Timestamp>) -> Value {
    let values = event
        .values
        .iter()
        .map(|(name, value)| format!("{name} = {value}"));
    json!({
        "time": after(event.time, start),
        "kept": format!("{} to {}", after(event.start, start), after(event.end, start)),
        "trigger": event.trigger,
        "values": values.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_model::trigger::EventLabel;

    #[test]
    fn a_label_from_a_bag_cannot_command_the_terminal_and_markers_without_room_are_counted() {
        let time = Timestamp::from_nanos(5);
        let score = EventScore {
            missed: vec![EventLabel {
                start: time,
                end: time,
                name: "\u{1b}[31mcrash".to_owned(),
            }],
            ..EventScore::default()
        };
        let of = OfBag {
            path: "lab".into(),
            start: Some(time),
            found: Found::default(),
            score: Some(score),
            written: Some(AddedMarkers {
                added: 2,
                without_room: 7,
            }),
        };
        let shown = text(&[of]);
        assert!(!shown.contains('\u{1b}') && shown.contains("crash"), "{shown}");
        assert!(shown.contains("2 markers written, no room for 7 more"), "{shown}");
    }
}
