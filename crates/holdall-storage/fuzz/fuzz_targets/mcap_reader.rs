//! Any bytes as an MCAP file: opened and read in every order, with small bounds.
#![no_main]

use bytes::Bytes;
use holdall_storage::{
    mcap::{McapReader, McapReaderOptions},
    reader::{ReadOrder, ReadQuery, StorageReader},
    writer::ChannelIndex,
};
use libfuzzer_sys::fuzz_target;
use std::path::Path;

fuzz_target!(|data: &[u8]| {
    let options = McapReaderOptions {
        loaded_bytes_max: 1 << 16,
        chunk_bytes_max: 1 << 20,
        ..McapReaderOptions::default()
    };
    let Ok(reader) = McapReader::from_bytes(Path::new("fuzz.mcap"), Bytes::copy_from_slice(data), options)
    else {
        return;
    };
    for order in [ReadOrder::LogTime, ReadOrder::PublishTime, ReadOrder::File] {
        for channels in [None, Some(vec![ChannelIndex(0)])] {
            if let Ok(messages) = reader.messages(&ReadQuery {
                channels,
                order,
                ..ReadQuery::default()
            }) {
                messages.take(1000).for_each(drop);
            }
        }
    }
    let _ = reader.chunks();
});
