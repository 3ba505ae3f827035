//! Any text as a stored definition; any text as a value of it, any bytes as a message of it, any assignment to it.
#![no_main]

use holdall_model::{
    dynamic::{TypePlan, edit::Editor},
    interface::{Definition, bundle::Bundle},
    topic::{DefinitionEncoding, MessageDefinition},
};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

/// Types that the first byte of an input chooses; further values choose its own definition.
const BUNDLED: [&str; 6] = [
    "tf2_msgs/msg/TFMessage",
    "sensor_msgs/msg/PointCloud2",
    "diagnostic_msgs/msg/DiagnosticArray",
    "visualization_msgs/msg/MarkerArray",
    "rcl_interfaces/msg/ParameterEvent",
    "std_msgs/msg/Empty",
];

fn plan(which: u8, text: &str) -> Option<TypePlan> {
    let definition = match BUNDLED.get(usize::from(which >> 1)) {
        Some(name) => Bundle::embedded().define(name).ok()?,
        None => {
            let stored = MessageDefinition {
                type_name: "a/msg/A".to_owned(),
                encoding: if which & 1 == 0 {
                    DefinitionEncoding::Ros2Msg
                } else {
                    DefinitionEncoding::Ros2Idl
                },
                text: text.to_owned(),
                type_description_hash: String::new(),
            };
            Definition::from_stored(&stored, |_| None).ok()?
        }
    };
    TypePlan::compile(&definition).ok()
}

/// A payload is a value, and the value is a payload.
fn check(plan: &TypePlan, payload: &[u8], has_wide: bool) {
    let Ok(decoded) = plan.decode(payload) else {
        return;
    };
    let mut again = Vec::new();
    if plan
        .encode(&decoded.value, decoded.representation, &mut again)
        .is_err()
    {
        return;
    }
    // Padding and missing zeros are not kept, so only the value is. What has wide characters may also be decoded
    // with those of the other width.
    match plan.decode(&again) {
        Ok(twice) => assert!(has_wide || (twice.value == decoded.value && twice.bytes_left == 0)),
        Err(error) => assert!(has_wide, "{error}"),
    }
}

fuzz_target!(|input: (u8, String, String, Vec<u8>)| {
    let (which, definition, text, payload) = input;
    let Some(plan) = plan(which, &definition) else {
        return;
    };
    let (plan, has_wide) = (Arc::new(plan), definition.contains("wstring"));
    for encoded in [plan.encode_json(&text), plan.encode_yaml(&text)]
        .into_iter()
        .flatten()
    {
        check(&plan, &encoded, has_wide);
    }
    for kind in [0, 1, 6, 7] {
        let message = [&[0, kind, 0, 0], payload.as_slice()].concat();
        check(&plan, &message, has_wide);
        if let Ok(editor) = Editor::compile(Arc::clone(&plan), &[&text]) {
            let mut out = Vec::new();
            if editor.apply(&message, &mut out).is_ok() {
                assert!(has_wide || plan.decode(&out).is_ok());
            }
        }
    }
});
