//! Markers of a bag, for people and programs.

use super::labels::time_point;
use holdall::supervise::control_socket::jumps_json;
use holdall_model::{marker::Marker, text::Outside};
use jiff::tz::TimeZone;
use serde::Serialize;
use serde_json::Value;

/// A marker in the JSON of `holdall info`.
#[derive(Serialize)]
pub struct MarkerJson<'a> {
    name: &'a str,
    /// Nanoseconds since 1970.
    time: i64,
}

impl<'a> MarkerJson<'a> {
    /// Its name and time.
    pub fn of(marker: &'a Marker) -> Self {
        Self {
            name: &marker.name,
            time: marker.time.as_nanos(),
        }
    }
}

/// One named mark.
pub fn marker_line(marker: &Marker, zone: &TimeZone) -> String {
    format!("{}: {}", time_point(marker.time, zone), Outside(&marker.name))
}

/// The jumps of the clock that markers have.
pub fn jump_lines(markers: &[Marker], zone: &TimeZone) -> Vec<String> {
    let jumps = markers.iter().filter_map(|marker| marker.jump);
    jumps
        .map(|jump| {
            let (from, to) = (time_point(jump.from, zone), time_point(jump.to, zone));
            format!("{jump}, from {from} to {to}")
        })
        .collect()
}

/// The same for programs; `None` if there are none.
pub fn jumps_of(markers: &[Marker]) -> Option<Value> {
    let jumps: Vec<_> = markers.iter().filter_map(|marker| marker.jump).collect();
    (!jumps.is_empty()).then(|| jumps_json(&jumps))
}
