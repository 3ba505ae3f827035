//! The message by which nodes report their state to ROS monitors: `diagnostic_msgs/msg/DiagnosticArray`.

use crate::{cdr::CdrWriter, time::Timestamp};

/// The levels of a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// As it should be.
    Ok = 0,
    /// Not as it should be.
    Warn = 1,
    /// Broken.
    Error = 2,
    /// Nothing is known.
    Stale = 3,
}

/// The status of one part of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiagnosticStatus {
    /// The part.
    pub name: &'static str,
    /// How it is.
    pub level: Level,
    /// The same for people.
    pub message: String,
    /// Numbers by name.
    pub values: Vec<(String, String)>,
}

/// The serialized message; each status is named after the node and its part.
pub fn diagnostic_array(node_name: &str, all: &[DiagnosticStatus], time: Timestamp) -> Vec<u8> {
    let mut cdr = CdrWriter::new();
    // A message's stamp has 32 bits for seconds.
    cdr.u32(time.as_nanos().div_euclid(1_000_000_000) as u32);
    cdr.u32(time.as_nanos().rem_euclid(1_000_000_000) as u32);
    cdr.text("");
    cdr.sequence_len(all.len());
    for one in all {
        cdr.u8(one.level as u8);
        cdr.text(&format!("{}: {}", node_name.trim_start_matches('/'), one.name));
        cdr.text(&one.message);
        cdr.text("");
        cdr.sequence_len(one.values.len());
        for (key, value) in &one.values {
            cdr.text(key);
            cdr.text(value);
        }
    }
    cdr.finish()
}
