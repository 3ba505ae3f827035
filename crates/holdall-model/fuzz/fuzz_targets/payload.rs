//! Any bytes as a message of each of a few bundled types, shown as JSON and YAML.
#![no_main]

use holdall_model::{
    dynamic::{TypePlan, text::TextOptions},
    interface::bundle::Bundle,
};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static PLANS: LazyLock<Vec<TypePlan>> = LazyLock::new(|| {
    [
        "tf2_msgs/msg/TFMessage",
        "sensor_msgs/msg/PointCloud2",
        "diagnostic_msgs/msg/DiagnosticArray",
        "visualization_msgs/msg/MarkerArray",
        "rcl_interfaces/msg/ParameterEvent",
        "std_msgs/msg/Empty",
    ]
    .iter()
    .map(|name| TypePlan::compile(&Bundle::embedded().define(name).expect("bundled")).expect("a plan"))
    .collect()
});

fuzz_target!(|data: &[u8]| {
    let options = TextOptions::default();
    for plan in PLANS.iter() {
        let mut out = Vec::new();
        let json = plan.write_json(data, &options, &mut out).is_ok();
        let yaml = plan.write_yaml(data, 0, &options, &mut out).is_ok();
        assert_eq!(json, yaml);
    }
});
