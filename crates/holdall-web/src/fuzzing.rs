//! Parsers of clients' bytes, for the fuzz targets; they change without notice.

use crate::{
    foxglove::{limits, read_message},
    http::{Guard, json_body, percent_decoded, read_request},
    token::Token,
};
use std::io::{self, Read, Write};
use tungstenite::{Message, WebSocket, protocol::Role};

/// Reads a request of HTTP, and judges it as a server on a loopback address does.
///
/// # Panics
/// When a limit is exceeded: a defect.
pub fn http(bytes: &[u8]) {
    let Ok(Some(request)) = read_request(&mut &*bytes) else {
        return;
    };
    assert!(request.path.starts_with('/') && request.body.len() <= bytes.len());
    let Ok(token) = Token::random() else {
        return;
    };
    let guard = Guard::new(([127, 0, 0, 1], 8890).into(), token);
    let _ = guard.check(&request);
    let _ = json_body(&request.body);
    for name in ["bag", "file", "token"] {
        let decoded = request.parameter(name).and_then(percent_decoded);
        assert!(decoded.is_none_or(|text| !text.contains('\0')));
    }
}

/// Frames of a WebSocket client, and their contents.
///
/// # Panics
/// A message is longer than the received bytes: a defect.
pub fn websocket(bytes: &[u8]) {
    let client = Sent(bytes);
    let mut socket = WebSocket::from_raw_socket(client, Role::Server, Some(limits()));
    while let Ok(message) = socket.read() {
        // The reason of a close whose code is none is the library's own text.
        assert!(matches!(message, Message::Close(_)) || message.len() <= bytes.len());
        if let Message::Text(_) | Message::Binary(_) = message {
            read_message(&message.into_data());
        }
    }
}

/// The handshake of a WebSocket client.
pub fn handshake(bytes: &[u8]) {
    let _ = tungstenite::accept_with_config(Sent(bytes), Some(limits()));
}

/// A message of the Foxglove protocol.
pub fn viewer_message(bytes: &[u8]) {
    read_message(bytes);
}

/// A client that has sent this, and hangs up.
#[derive(Debug)]
struct Sent<'a>(&'a [u8]);

impl Read for Sent<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl Write for Sent<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A masked frame of a client, whose mask is zero.
    fn frame(opcode: u8, length: u64, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0x80 | opcode, 0x80 | 127];
        frame.extend(length.to_be_bytes());
        frame.extend([0; 4]);
        frame.extend(payload);
        frame
    }

    #[test]
    fn a_frame_of_a_gibibyte_takes_no_memory() {
        let mut bytes = frame(2, 1 << 30, b"begins");
        websocket(&bytes);
        bytes[2..10].copy_from_slice(&u64::MAX.to_be_bytes());
        websocket(&bytes);
        websocket(&frame(1, 2, b"{}"));
    }

    #[test]
    fn a_close_with_a_code_that_is_none_has_a_reason_of_the_library() {
        // Found by the fuzzer: the code is 3328.
        websocket(&[0x88, 0x82, 0x82, 0x82, 0x82, 0x82, 0x8f, 0x82]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_within_the_limits(bytes in proptest::collection::vec(any::<u8>(), 0..400), opcode in 0..16_u8) {
            http(&bytes);
            handshake(&bytes);
            websocket(&bytes);
            websocket(&frame(opcode, bytes.len() as u64, &bytes));
            viewer_message(&bytes);
        }
    }
}
