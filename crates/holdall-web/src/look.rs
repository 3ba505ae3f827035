//! What pages of bags and of live topics have in common: a message as a response.

use crate::http::{Refusal, Request, Response};
use holdall::look::{Picture, PictureOptions, Video};
use serde_json::{Value, json};
use std::fmt::Write;

/// Most pixels of a side of a picture that is sent.
pub(crate) const PICTURE_SIDE_MAX: u32 = 1600;

/// Bytes of a message that are shown where it cannot be decoded.
const BYTES_SHOWN: usize = 512;

/// A picture as a response; what its legend needs is in a header, percent-encoded.
pub(crate) fn picture_response(picture: Picture) -> Response<'static> {
    let mut about = String::new();
    for byte in picture.about.to_string().bytes() {
        if byte.is_ascii_alphanumeric() {
            about.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(about, "%{byte:02X}");
        }
    }
    Response {
        headers: format!("X-Holdall-About: {about}\r\n"),
        ..Response::new(picture.content_type, picture.bytes)
    }
}

/// The last picture of a video; the stream itself for a page that decodes it.
pub(crate) fn video_picture(
    video: &Video,
    request: &Request,
    options: &PictureOptions,
) -> Result<Picture, Refusal> {
    let shown = match request.parameter("video") {
        Some(_) => video.stream(),
        None => video.decoded(options),
    };
    shown.map_err(|reason| Refusal::new(409, &reason))
}

/// A message whose fields are not known: its text, or its first bytes.
pub(crate) fn undecoded(reason: &str, payload: &[u8], is_text: bool) -> Value {
    let some = &payload[..payload.len().min(BYTES_SHOWN)];
    let shown = if is_text {
        String::from_utf8_lossy(some).into_owned()
    } else {
        some.iter().map(|byte| format!("{byte:02x} ")).collect()
    };
    json!({"undecoded": reason, "text": shown, "is_cut": payload.len() > BYTES_SHOWN})
}
