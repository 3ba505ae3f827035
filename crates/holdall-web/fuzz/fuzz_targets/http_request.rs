//! A request of HTTP, from its first byte to the guard's judgement.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    holdall_web::fuzzing::http(bytes);
});
