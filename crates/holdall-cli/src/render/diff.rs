//! Differences between two bags, for people and programs.

use crate::units::plural;
use holdall::{
    diff::{Difference, FieldChange, Side, TopicDifference},
    recode::DecodedTopic,
};
use holdall_model::text::{Outside, escape_unless};
use serde::Serialize;
use serde_json::Value;
use std::fmt::Write;

/// The fields in which two messages of the same topic and time differ.
#[derive(Clone, Debug, Serialize)]
pub struct FieldChanges {
    /// The topic.
    pub topic: String,
    /// When both were received, in nanoseconds since 1970.
    pub log_time: i64,
    /// The fields.
    pub fields: Vec<FieldChange>,
}

/// One object; `same` is true when nothing differs.
pub fn json(difference: &Difference, fields: &[FieldChanges]) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct Output<'a> {
        same: bool,
        #[serde(flatten)]
        difference: &'a Difference,
        changed_fields: &'a [FieldChanges],
    }
    serde_json::to_string_pretty(&Output {
        same: difference.is_empty(),
        difference,
        changed_fields: fields,
    })
}

/// One object; `same` is true when nothing is farther apart than allowed.
pub fn decoded_json(topics: &[DecodedTopic]) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct Output<'a> {
        same: bool,
        decoded: &'a [DecodedTopic],
    }
    serde_json::to_string_pretty(&Output {
        same: topics.iter().all(DecodedTopic::is_same),
        decoded: topics,
    })
}

/// A line for each topic of images or clouds.
pub fn decoded(topics: &[DecodedTopic]) -> String {
    if topics.is_empty() {
        return "neither bag has images or clouds".to_owned();
    }
    let lines = topics.iter().map(|topic| {
        let mut text = format!(
            "{}: {} compared, largest error {}",
            Outside(&topic.topic),
            plural(topic.pairs - topic.not_compared, "pair"),
            topic.error_max
        );
        // Writing to a text does not fail.
        if let Some([min, mean]) = topic.psnr {
            let _ = write!(text, ", PSNR {min:.1} dB at least ({mean:.1} on average)");
        }
        if let Some([min, mean]) = topic.ssim {
            let _ = write!(text, ", SSIM {min:.4} at least ({mean:.4} on average)");
        }
        for (count, what) in [
            (topic.only_in_first, "only in the first bag"),
            (topic.only_in_second, "only in the second bag"),
            (topic.beyond, "farther apart than allowed"),
        ] {
            if count > 0 {
                let _ = write!(text, "; {count} {what}");
            }
        }
        if let Some(at) = topic.first_beyond {
            let _ = write!(text, ", first at {at} ns");
        }
        if let Some(reason) = &topic.reason {
            let _ = write!(text, "; {} not compared: {}", topic.not_compared, Outside(reason));
        }
        text
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Lines that begin with `<` for the first bag and with `>` for the second.
pub fn text(difference: &Difference, fields: &[FieldChanges]) -> String {
    let mut out = String::new();
    for (sign, topics) in [
        ('<', &difference.topics_only_in_first),
        ('>', &difference.topics_only_in_second),
    ] {
        for (topic, count) in topics {
            line(
                &mut out,
                &format!("{sign} topic {}, {}", Outside(topic), plural(*count, "message")),
            );
        }
    }
    for (topic, of_topic) in &difference.topics {
        topic_lines(&mut out, topic, of_topic);
    }
    for lone in &difference.first_messages {
        let sign = if lone.side == Side::First { '<' } else { '>' };
        let text = format!(
            "{sign} {} at {} ns, {}",
            Outside(&lone.topic),
            lone.log_time,
            plural(lone.payload_bytes, "byte")
        );
        line(&mut out, &text);
    }
    for change in fields {
        line(
            &mut out,
            &format!("{} at {} ns:", Outside(&change.topic), change.log_time),
        );
        for field in &change.fields {
            line(
                &mut out,
                &format!("  < {}: {}", Outside(&field.field), shown(field.first.as_ref())),
            );
            line(
                &mut out,
                &format!("  > {}: {}", Outside(&field.field), shown(field.second.as_ref())),
            );
        }
        if change.fields.is_empty() {
            line(&mut out, "  no field differs that can be decoded, only bytes");
        }
    }
    out
}

fn topic_lines(out: &mut String, topic: &str, difference: &TopicDifference) {
    line(out, &format!("{}:", Outside(topic)));
    for change in &difference.changes {
        line(
            out,
            &format!("  < {}: {}", change.property, lines_of(&change.first)),
        );
        line(
            out,
            &format!("  > {}: {}", change.property, lines_of(&change.second)),
        );
    }
    for (sign, bag, count) in [
        ('<', "first", difference.messages_only_in_first),
        ('>', "second", difference.messages_only_in_second),
    ] {
        if let Some(count) = count.filter(|count| *count > 0) {
            line(
                out,
                &format!("  {sign} {} only in the {bag} bag", plural(count, "message")),
            );
        }
    }
}

/// A definition or QoS profiles: several lines, all indented so that they differ from the lines around them.
fn lines_of(text: &str) -> String {
    escape_unless(text.trim_end(), |c, _| matches!(c, '\n' | '\t')).replace('\n', "\n    ")
}

fn shown(value: Option<&Value>) -> String {
    value.map_or_else(|| "(nothing)".to_owned(), Value::to_string)
}

fn line(out: &mut String, text: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{text}");
}
