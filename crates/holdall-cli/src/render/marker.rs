//! Markers of a bag, for people and programs.

use super::info::time_point;
use holdall_model::{marker::Marker, text::Outside};
use jiff::tz::TimeZone;
use serde::Serialize;

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
