//! Any text as a stored definition, and any bytes as a message of it.
#![no_main]

use holdall_model::{
    dynamic::{TypePlan, text::TextOptions},
    interface::Definition,
    topic::{DefinitionEncoding, MessageDefinition},
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (bool, String, Vec<u8>)| {
    let (idl, text, payload) = input;
    let stored = MessageDefinition {
        type_name: "a/msg/A".to_owned(),
        encoding: if idl {
            DefinitionEncoding::Ros2Idl
        } else {
            DefinitionEncoding::Ros2Msg
        },
        text,
        type_description_hash: String::new(),
    };
    let Ok(definition) = Definition::from_stored(&stored, |_| None) else {
        return;
    };
    let plan = TypePlan::compile(&definition).expect("a resolved definition has a plan");
    let options = TextOptions {
        bytes_max: 1 << 20,
        ..TextOptions::default()
    };
    for kind in [0, 1, 6, 7] {
        let message = [&[0, kind, 0, 0], payload.as_slice()].concat();
        let _ = plan.write_json(&message, &options, &mut Vec::new());
    }
});
