//! Any bytes as a sequence of MCAP records.
#![no_main]

use holdall_storage::mcap::format::{Record, take_record};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut rest = data;
    while let Ok(Some((opcode, body))) = take_record(&mut rest) {
        if let Ok(Record::Chunk(_, mut inner)) = Record::decode(opcode, body) {
            while let Ok(Some((opcode, body))) = take_record(&mut inner) {
                let _ = Record::decode(opcode, body);
            }
        }
    }
});
