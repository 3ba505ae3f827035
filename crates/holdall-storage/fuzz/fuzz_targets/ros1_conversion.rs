//! Any text as a ROS 1 definition and any bytes as its message: hashed, compiled, converted, within bounds.
#![no_main]

use holdall_model::ros1::{Conversion, Ros1Definition};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&str, &[u8])| {
    let (text, payload) = input;
    let Ok(definition) = Ros1Definition::parse("fuzz_msgs/Fuzz", text) else {
        return;
    };
    let _ = definition.md5sum();
    if let Ok(conversion) = Conversion::new(&definition) {
        let mut cdr = Vec::new();
        let _ = conversion.convert(payload, &mut cdr);
        // Elements without content are few, and the fields that ROS 2 adds to a type are a small part of it.
        assert!(cdr.len() <= (4 << 20) + 64 * payload.len());
    }
});
