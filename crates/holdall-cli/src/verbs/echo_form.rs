//! How `holdall echo` shows messages.

use crate::{args::listen::EchoArguments, exit::Failure, output::visible};
use holdall::listen::HeardMessage;
use holdall_model::{
    dynamic::{
        TypePlan,
        expression::check_syntax,
        text::{FieldPath, Notation, TextOptions},
    },
    time::Timestamp,
};
use serde_json::{Value, json};

/// How messages are shown.
pub(super) struct EchoForm {
    options: TextOptions,
    notation: Notation,
    is_raw: bool,
    has_info: bool,
    /// Whether the name of its topic is shown with each message.
    has_names: bool,
    /// The path, and as the user wrote it.
    field: Option<(FieldPath, String)>,
}

impl EchoForm {
    /// As the user wants it.
    pub(super) fn of(args: &EchoArguments) -> Result<Self, Failure> {
        let field = args.field.as_ref().map(|field| {
            let path = FieldPath::parse(field);
            let path = path.map_err(|error| Failure::refused(format!("--field: {error}")))?;
            Ok::<_, Failure>((path, field.clone()))
        });
        Ok(Self {
            options: TextOptions {
                lists: !args.no_arr,
                strings: !args.no_str,
                length_max: args.truncate_length,
                ..TextOptions::default()
            },
            notation: match (args.json, args.csv, args.flow_style) {
                (true, ..) => Notation::Json,
                (_, true, _) => Notation::Cells,
                (.., true) => Notation::Flow,
                _ => Notation::Yaml,
            },
            is_raw: args.raw,
            has_info: args.include_message_info,
            has_names: args.topics.len() > 1,
            field: field.transpose()?,
        })
    }

    /// A message, or a field of it; its length if its type is not known, or does not fit.
    pub(super) fn append(
        &self,
        out: &mut Vec<u8>,
        topic: &str,
        message: &HeardMessage,
        plan: Option<&TypePlan>,
    ) -> Result<(), Failure> {
        if self.is_raw {
            out.extend_from_slice(&message.payload);
            return Ok(());
        }
        let text = self.text(message, plan)?;
        match self.notation {
            Notation::Json => self.append_json(out, topic, message, text),
            Notation::Cells => self.append_cells(out, topic, message, text),
            Notation::Yaml | Notation::Flow => self.append_yaml(out, topic, message, text),
        }
        Ok(())
    }

    /// The message in its notation, or why it has none.
    fn text(
        &self,
        message: &HeardMessage,
        plan: Option<&TypePlan>,
    ) -> Result<Result<Vec<u8>, String>, Failure> {
        let Some(plan) = plan else {
            return Ok(Err("its definition is not known".to_owned()));
        };
        let mut text = Vec::new();
        let path = self.field.as_ref().map(|(path, _)| path);
        match plan.write_as(self.notation, path, &message.payload, &self.options, &mut text) {
            Ok(true) => Ok(Ok(text)),
            Ok(false) => {
                let field = self.field.as_ref().map_or("", |(_, field)| field.as_str());
                Err(Failure::refused(format!(
                    "--field {field}: the message has no such field"
                )))
            }
            Err(error) => Ok(Err(error.to_string())),
        }
    }

    fn append_json(
        &self,
        out: &mut Vec<u8>,
        topic: &str,
        message: &HeardMessage,
        text: Result<Vec<u8>, String>,
    ) {
        let mut head = json!({"topic": topic, "log_time": message.log_time.as_nanos()});
        if self.has_info {
            head["publish_time"] = json!(message.publish_time.map(Timestamp::as_nanos));
            head["sequence"] = json!(message.sequence);
        }
        match text {
            Ok(text) => {
                out.extend_from_slice(head.to_string().trim_end_matches('}').as_bytes());
                out.extend_from_slice(b",\"message\":");
                out.extend_from_slice(&text);
                out.push(b'}');
            }
            Err(reason) => {
                head["error"] = Value::from(reason);
                head["bytes"] = json!(message.payload.len());
                out.extend_from_slice(head.to_string().as_bytes());
            }
        }
        out.push(b'\n');
    }

    fn append_cells(
        &self,
        out: &mut Vec<u8>,
        topic: &str,
        message: &HeardMessage,
        text: Result<Vec<u8>, String>,
    ) {
        let mut cells = Vec::new();
        if self.has_names {
            cells.push(visible(topic).into_owned());
        }
        if self.has_info {
            cells.extend(
                info(message).map(|(_, value)| value.map(|value| value.to_string()).unwrap_or_default()),
            );
        }
        cells.push(match text {
            Ok(text) => visible(&String::from_utf8_lossy(&text)).into_owned(),
            Err(reason) => {
                tracing::warn!(
                    "{}: a message of {} bytes: {reason}",
                    visible(topic),
                    message.payload.len()
                );
                return;
            }
        });
        out.extend_from_slice(cells.join(",").as_bytes());
        out.push(b'\n');
    }

    fn append_yaml(
        &self,
        out: &mut Vec<u8>,
        topic: &str,
        message: &HeardMessage,
        text: Result<Vec<u8>, String>,
    ) {
        if self.has_info {
            for (name, value) in info(message) {
                let value = value.map_or_else(|| "null".to_owned(), |value| value.to_string());
                out.extend_from_slice(format!("{name}: {value}\n").as_bytes());
            }
            out.extend_from_slice(b"---\n");
        }
        if self.has_names {
            out.extend_from_slice(format!("# {}\n", visible(topic)).as_bytes());
        }
        match text {
            Ok(text) => out.extend_from_slice(text.trim_ascii_start()),
            Err(reason) => {
                let length = message.payload.len();
                out.extend_from_slice(format!("# {length} bytes: {}", visible(&reason)).as_bytes());
            }
        }
        out.extend_from_slice(b"\n---\n");
    }
}

/// The fields of a message that `ros2 topic echo --include-message-info` shows, by its names.
fn info(message: &HeardMessage) -> impl Iterator<Item = (&'static str, Option<i128>)> {
    [
        (
            "source_timestamp",
            message.publish_time.map(|time| time.as_nanos().into()),
        ),
        ("received_timestamp", Some(message.log_time.as_nanos().into())),
        ("publication_sequence_number", message.sequence.map(Into::into)),
        ("reception_sequence_number", None),
    ]
    .into_iter()
}

/// The condition of `--filter`. As `ros2 topic echo` has it, `m` is the message: `m.` before a field means nothing.
pub(super) fn condition(text: &str) -> Result<String, Failure> {
    let mut found = String::with_capacity(text.len());
    let mut quote = None;
    let mut before = ' ';
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(end), _) if letter == end => quote = None,
            (None, '"' | '\'') => quote = Some(letter),
            (None, 'm') if letters.peek() == Some(&'.') && !is_of_a_name(before) => {
                before = '.';
                letters.next();
                continue;
            }
            _ => {}
        }
        found.push(letter);
        before = letter;
    }
    check_syntax(&found).map_err(|error| Failure::refused(format!("--filter: {error}")))?;
    Ok(found)
}

/// Whether an `m` after this letter is a part of a longer name or path.
fn is_of_a_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '_' | '.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m_is_the_message_but_in_texts_and_longer_names() {
        for (text, expected) in [
            ("m.data == 'm.x'", "data == 'm.x'"),
            ("m.m.x > 1 and alarm.m > 2", "m.x > 1 and alarm.m > 2"),
            ("not (m.a[0].m.b < -m.c)", "not (a[0].m.b < -c)"),
        ] {
            assert_eq!(
                condition(text).unwrap_or_else(|failure| failure.sentence().to_string()),
                expected
            );
        }
        assert!(condition("m.data ==").is_err());
    }
}
