//! Any text as a question about a message, any bytes as the message.
#![no_main]

use holdall_model::{
    dynamic::{TypePlan, expression::Predicate},
    interface::bundle::Bundle,
};
use libfuzzer_sys::fuzz_target;
use std::sync::{Arc, LazyLock};

static PLAN: LazyLock<Arc<TypePlan>> = LazyLock::new(|| {
    let definition = Bundle::embedded().define("tf2_msgs/msg/TFMessage").expect("bundled");
    Arc::new(TypePlan::compile(&definition).expect("a plan"))
});

fuzz_target!(|input: (&str, &[u8])| {
    if let Ok(predicate) = Predicate::compile(Arc::clone(&PLAN), input.0) {
        let _ = predicate.matches(&[&[0, 1, 0, 0], input.1].concat());
    }
});
