//! Any bytes as a ROS 1 bag: opened and read in every order, with small bounds, and its messages converted.
#![no_main]

use bytes::Bytes;
use holdall_model::ros1::{Conversion, Ros1Definition};
use holdall_storage::{
    reader::{ReadOrder, ReadQuery, StorageReader},
    rosbag1::{Rosbag1Reader, Rosbag1ReaderOptions},
};
use libfuzzer_sys::fuzz_target;
use std::path::Path;

fuzz_target!(|data: &[u8]| {
    let options = Rosbag1ReaderOptions {
        loaded_bytes_max: 1 << 16,
        chunk_bytes_max: 1 << 20,
    };
    let Ok(reader) = Rosbag1Reader::from_bytes(Path::new("fuzz.bag"), Bytes::copy_from_slice(data), options) else {
        return;
    };
    let conversions: Vec<Option<Conversion>> = reader
        .summary()
        .channels
        .iter()
        .take(20)
        .map(|channel| {
            let definition = &channel.info.definition;
            let parsed = Ros1Definition::parse(&definition.type_name, &definition.text).ok()?;
            Conversion::new(&parsed).ok()
        })
        .collect();
    let mut cdr = Vec::new();
    for order in [ReadOrder::LogTime, ReadOrder::File] {
        let Ok(messages) = reader.messages(&ReadQuery { order, ..ReadQuery::default() }) else {
            continue;
        };
        for message in messages.take(1000).flatten() {
            if let Some(Some(conversion)) = conversions.get(message.channel.0 as usize) {
                let _ = conversion.convert(&message.payload, &mut cdr);
            }
        }
    }
});
