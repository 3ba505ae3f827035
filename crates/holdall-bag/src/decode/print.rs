//! Writes messages for users and programs: each as a YAML document, a JSON line, or its bytes.

use super::{Decoder, Decoders};
use crate::reader::{BagMessage, ReadError};
use base64::{Engine, engine::general_purpose::STANDARD};
use holdall_model::units::counted;
use holdall_model::{
    dynamic::{
        Scalar, TypePlan, Walked,
        text::{
            CompiledText, TextError, TextOptions, write_json_string, write_plain_number, write_yaml_string,
        },
    },
    text::escape_unless,
};
use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    io::Write,
    sync::Arc,
};

/// How messages are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PrintForm {
    /// One YAML document per message, followed by `---`.
    #[default]
    Yaml,
    /// One JSON object per message, on one line.
    Json,
    /// The payloads, one after another.
    Raw,
}

/// Problems with the messages of one topic.
#[derive(Clone, Debug, Default)]
struct Trouble {
    /// Number of messages shown undecoded.
    undecoded: u64,
    /// The first reason.
    reason: String,
    /// Number of messages with more bytes than the fields of their definition.
    longer: u64,
}

/// Writes messages.
pub struct Printer {
    decoders: Decoders,
    form: PrintForm,
    options: TextOptions,
    trouble: BTreeMap<String, Trouble>,
    /// By the plan's address, which the text keeps in use.
    compiled: HashMap<usize, Option<CompiledText>>,
}

impl Printer {
    /// Creates a printer for messages of the bags that `decoders` was made for.
    pub fn new(decoders: Decoders, form: PrintForm, options: TextOptions) -> Self {
        Self {
            decoders,
            form,
            options,
            trouble: BTreeMap::new(),
            compiled: HashMap::new(),
        }
    }

    /// Notices for the user, one sentence each; each is returned once.
    pub fn take_notices(&mut self) -> Vec<String> {
        self.decoders.take_notices()
    }

    /// Closing notices for the user, one sentence each, and whether any message could not be decoded.
    pub fn close(self) -> (Vec<String>, bool) {
        let mut sentences = Vec::new();
        let mut has_failed = false;
        for (topic, trouble) in self.trouble {
            if trouble.undecoded > 0 {
                has_failed = true;
                sentences.push(format!(
                    "{topic}: {} could not be decoded, shown as bytes; the first: {}",
                    counted(trouble.undecoded, "message"),
                    trouble.reason
                ));
            }
            if trouble.longer > 0 {
                sentences.push(format!(
                    "{topic}: {} longer than the definition says: it may have been written with another one",
                    counted(trouble.longer, "message")
                ));
            }
        }
        (sentences, has_failed)
    }

    /// Appends a message to `out`.
    ///
    /// A message that cannot be decoded is appended as bytes (base64) and reported at the end.
    ///
    /// # Errors
    /// A storage file that cannot be opened to search for the definition.
    pub fn print(&mut self, message: &BagMessage, out: &mut Vec<u8>) -> Result<(), ReadError> {
        match self.form {
            PrintForm::Raw => out.extend_from_slice(&message.payload),
            PrintForm::Json => {
                self.json(message, out)?;
                out.push(b'\n');
            }
            PrintForm::Yaml => {
                self.yaml(message, out)?;
                out.extend_from_slice(b"\n---\n");
            }
        }
        Ok(())
    }

    fn json(&mut self, message: &BagMessage, out: &mut Vec<u8>) -> Result<(), ReadError> {
        out.extend_from_slice(b"{\"topic\":");
        write_json_string(out, &message.topic.name);
        out.extend_from_slice(b",\"type\":");
        write_json_string(out, &message.topic.type_name);
        for (key, number) in stamps(message) {
            out.extend_from_slice(b",\"");
            out.extend_from_slice(key.as_bytes());
            out.extend_from_slice(b"\":");
            write_plain_number(out, Scalar::I64(number));
        }
        let begin = out.len();
        match self.decoders.decoder(&message.topic)? {
            Decoder::Cdr(plan) => {
                out.extend_from_slice(b",\"message\":");
                if self.append_json(&plan, &message.payload, out) {
                    out.push(b'}');
                    return Ok(());
                }
                let written = plan.write_json(&message.payload, &self.options, out);
                if let Err(error) = self.judge(message, written) {
                    out.truncate(begin);
                    out.extend_from_slice(b",\"error\":");
                    write_json_string(out, &error);
                    self.json_bytes(message, out);
                }
            }
            Decoder::Json(_) if is_json(&message.payload) => {
                out.extend_from_slice(b",\"message\":");
                on_one_line(&message.payload, out);
            }
            Decoder::Json(_) | Decoder::Opaque { .. } => self.json_bytes(message, out),
        }
        out.push(b'}');
        Ok(())
    }

    /// Appends a message by what was compiled for its type. False for one that a walk has to judge.
    fn append_json(&mut self, plan: &Arc<TypePlan>, payload: &[u8], out: &mut Vec<u8>) -> bool {
        let address = Arc::as_ptr(plan).addr();
        let compiled = self
            .compiled
            .entry(address)
            .or_insert_with(|| CompiledText::json(plan, &self.options));
        compiled
            .as_mut()
            .is_some_and(|compiled| compiled.append(payload, out))
    }

    fn json_bytes(&self, message: &BagMessage, out: &mut Vec<u8>) {
        out.extend_from_slice(b",\"encoding\":");
        write_json_string(out, &message.topic.serialization_format);
        out.extend_from_slice(b",\"data\":\"");
        out.extend_from_slice(STANDARD.encode(&message.payload).as_bytes());
        out.push(b'"');
    }

    fn yaml(&mut self, message: &BagMessage, out: &mut Vec<u8>) -> Result<(), ReadError> {
        out.extend_from_slice(b"topic: ");
        write_yaml_string(out, &message.topic.name);
        out.extend_from_slice(b"\ntype: ");
        write_yaml_string(out, &message.topic.type_name);
        for (key, number) in stamps(message) {
            // Writing to memory cannot fail.
            let _ = write!(out, "\n{key}: {number}");
        }
        let begin = out.len();
        match self.decoders.decoder(&message.topic)? {
            Decoder::Cdr(plan) => {
                out.extend_from_slice(b"\nmessage:");
                let written = plan.write_yaml(&message.payload, 2, &self.options, out);
                if let Err(error) = self.judge(message, written) {
                    out.truncate(begin);
                    out.extend_from_slice(b"\nerror: ");
                    write_yaml_string(out, &error);
                    self.yaml_bytes(message, out);
                }
            }
            Decoder::Json(_) if is_json(&message.payload) => {
                out.extend_from_slice(b"\nmessage: ");
                on_one_line(&message.payload, out);
            }
            Decoder::Json(_) | Decoder::Opaque { .. } => self.yaml_bytes(message, out),
        }
        Ok(())
    }

    fn yaml_bytes(&self, message: &BagMessage, out: &mut Vec<u8>) {
        out.extend_from_slice(b"\nencoding: ");
        write_yaml_string(out, &message.topic.serialization_format);
        out.extend_from_slice(b"\ndata: \"");
        out.extend_from_slice(STANDARD.encode(&message.payload).as_bytes());
        out.push(b'"');
    }

    /// Counts a message's problem; returns the sentence if it could not be written.
    fn judge(&mut self, message: &BagMessage, written: Result<Walked, TextError>) -> Result<(), String> {
        let is_longer = matches!(&written, Ok(walked) if walked.is_longer);
        if written.is_ok() && !is_longer {
            return Ok(());
        }
        let trouble = self.trouble.entry(message.topic.name.clone()).or_default();
        trouble.longer += u64::from(is_longer);
        let Err(error) = written else {
            return Ok(());
        };
        trouble.undecoded += 1;
        let sentence = error.to_string();
        if trouble.reason.is_empty() {
            trouble.reason.clone_from(&sentence);
        }
        Err(sentence)
    }
}

/// A message's fields other than its content, times in nanoseconds since 1970.
fn stamps(message: &BagMessage) -> [(&'static str, i64); 3] {
    [
        ("log_time", message.log_time.as_nanos()),
        ("publish_time", message.publish_time.as_nanos()),
        ("sequence", i64::from(message.sequence)),
    ]
}

fn is_json(payload: &[u8]) -> bool {
    serde_json::from_slice::<serde::de::IgnoredAny>(payload).is_ok()
}

/// A JSON text unchanged, except that line ends, which in JSON occur only between values, become spaces.
fn on_one_line(payload: &[u8], out: &mut Vec<u8>) {
    let begin = out.len();
    let end_of_line = |byte: u8| matches!(byte, b'\n' | b'\r');
    out.extend(
        payload
            .trim_ascii()
            .iter()
            .map(|&byte| if end_of_line(byte) { b' ' } else { byte }),
    );
    // Other control characters occur in JSON only within texts, where they may be escaped. The text was
    // parsed, so it is UTF-8.
    let escaped = match std::str::from_utf8(&out[begin..]) {
        Ok(text) => match escape_unless(text, |c, _| c == '\t') {
            Cow::Borrowed(_) => None,
            Cow::Owned(escaped) => Some(escaped),
        },
        Err(_) => None,
    };
    if let Some(escaped) = escaped {
        out.truncate(begin);
        out.extend_from_slice(escaped.as_bytes());
    }
}
