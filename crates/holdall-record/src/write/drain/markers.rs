//! Markers: each is a record of the file that was written when it came, and all are listed in `metadata.yaml`.

use holdall_bag::writer::{BagWriter, WriteError};
use holdall_model::{
    episode::Episode,
    marker::{MARKER_RECORD, MARKERS_CUSTOM_KEY, Marker},
};

/// The markers of a recording.
#[derive(Default)]
pub(super) struct Markers {
    in_files: Vec<Marker>,
    /// Requested, and in no file yet.
    unwritten: Vec<Marker>,
}

impl Markers {
    /// Takes note of markers that were requested.
    pub fn add(&mut self, markers: Vec<Marker>) {
        self.unwritten.extend(markers);
    }

    /// Puts requested markers into the current file; without one they wait for the next.
    ///
    /// # Errors
    /// A failed disk or storage file.
    pub fn write(&mut self, bag: &mut BagWriter) -> Result<(), WriteError> {
        while let Some(marker) = self.unwritten.first() {
            if !bag.write_record(MARKER_RECORD, &marker.entries())? {
                break;
            }
            self.in_files.push(self.unwritten.remove(0));
        }
        Ok(())
    }

    /// The episodes of those that are in a file.
    pub fn episodes(&self) -> Vec<Episode> {
        Marker::episodes(&self.in_files)
    }

    /// Ends them: those that found no file are logged, because they are in no bag. Returns the entry for `metadata.yaml`.
    pub fn end(self) -> Option<(String, String)> {
        for marker in &self.unwritten {
            tracing::warn!(
                "marker {:?} is not in the bag: no file was open after it",
                marker.name
            );
        }
        (!self.in_files.is_empty()).then(|| {
            (
                MARKERS_CUSTOM_KEY.to_owned(),
                Marker::list_to_json(&self.in_files),
            )
        })
    }
}
