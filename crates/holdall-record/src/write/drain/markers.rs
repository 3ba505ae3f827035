//! Markers: each is a record of the file that was written when it came, and all are listed in `metadata.yaml`.

use super::Drain;
use holdall_bag::writer::WriteError;
use holdall_model::marker::{MARKER_RECORD, MARKERS_CUSTOM_KEY, Marker};

impl Drain {
    /// Puts requested markers into the current file; without one they wait for the next.
    pub(super) fn write_markers(&mut self) -> Result<(), WriteError> {
        while let Some(marker) = self.unwritten_markers.first() {
            if !self.bag.write_record(MARKER_RECORD, &marker.entries())? {
                break;
            }
            self.markers.push(self.unwritten_markers.remove(0));
        }
        Ok(())
    }

    /// The last markers; those that find no file are logged, because they are in no bag.
    pub(super) fn write_markers_at_end(&mut self) {
        if self.failure.is_none()
            && let Err(error) = self.write_markers()
        {
            self.fail(error);
        }
        for marker in &self.unwritten_markers {
            tracing::warn!(
                "marker {:?} is not in the bag: no file was open after it",
                marker.name
            );
        }
    }
}

/// The entry for markers in `metadata.yaml`.
pub(super) fn custom_data_of(markers: &[Marker]) -> Option<(String, String)> {
    (!markers.is_empty()).then(|| (MARKERS_CUSTOM_KEY.to_owned(), Marker::list_to_json(markers)))
}
