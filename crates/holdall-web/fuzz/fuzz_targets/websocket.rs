//! Bytes of a WebSocket client: its handshake if the first byte is 0, else frames after it.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match bytes {
        [0, rest @ ..] => holdall_web::fuzzing::handshake(rest),
        [_, rest @ ..] => holdall_web::fuzzing::websocket(rest),
        [] => {}
    }
});
