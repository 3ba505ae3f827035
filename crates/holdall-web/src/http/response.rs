//! Answers to requests; each ends its connection.

use std::{
    borrow::Cow,
    io::{self, Write},
};

/// A request that is not carried out: its status and one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub status: u16,
    pub sentence: String,
}

impl Refusal {
    pub(crate) fn new(status: u16, sentence: &str) -> Self {
        Self {
            status,
            sentence: sentence.to_owned(),
        }
    }
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Response<'a> {
    pub status: u16,
    pub content_type: &'static str,
    pub body: Cow<'a, [u8]>,
    /// Further headers, each with its line's end.
    pub headers: String,
}

impl<'a> Response<'a> {
    pub(crate) fn new(content_type: &'static str, body: impl Into<Cow<'a, [u8]>>) -> Self {
        Self {
            status: 200,
            content_type,
            body: body.into(),
            headers: String::new(),
        }
    }

    pub(crate) fn json(body: String) -> Self {
        Self::new("application/json", body.into_bytes())
    }

    /// Text for Prometheus.
    pub(crate) fn metrics(text: String) -> Self {
        let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        Self::new(kind, text.into_bytes())
    }

    /// Sends it; without its body for a request that wants the head only.
    pub(crate) fn send(&self, to: &mut impl Write, with_body: bool) -> io::Result<()> {
        self.send_head(to, self.body.len() as u64)?;
        if with_body {
            to.write_all(&self.body)?;
        }
        Ok(())
    }

    /// Sends its head, for a body of this length.
    pub(crate) fn send_head(&self, to: &mut impl Write, length: u64) -> io::Result<()> {
        let head = head(self.status, self.content_type, &self.headers);
        to.write_all(format!("{head}Content-Length: {length}\r\n\r\n").as_bytes())
    }
}

impl From<Refusal> for Response<'_> {
    fn from(refusal: Refusal) -> Self {
        let body = serde_json::json!({"ok": false, "error": refusal.sentence});
        Self {
            status: refusal.status,
            ..Self::json(body.to_string())
        }
    }
}

/// Begins an answer of server-sent events.
pub(crate) fn begin_events(to: &mut impl Write) -> io::Result<()> {
    to.write_all(format!("{}\r\n", head(200, "text/event-stream", "")).as_bytes())
}

/// Nothing of an answer is stored, framed, or read as anything else than it is.
fn head(status: u16, content_type: &str, headers: &str) -> String {
    format!(
        "HTTP/1.1 {status} {}\r\nContent-Type: {content_type}\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\
         X-Frame-Options: DENY\r\nReferrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\nConnection: close\r\n{headers}",
        reason(status)
    )
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        431 => "Request Header Fields Too Large",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        _ => "Error",
    }
}
