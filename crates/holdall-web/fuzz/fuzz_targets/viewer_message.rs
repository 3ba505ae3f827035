//! A message of the Foxglove protocol: text, or bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    holdall_web::fuzzing::viewer_message(bytes);
});
