//! The named marks of a bag.

use super::{Bag, BagFile, BagSet, ReadError};
use holdall_model::marker::{MARKER_RECORD, MARKERS_CUSTOM_KEY, Marker};

impl Bag {
    /// The markers by time: from `metadata.yaml`, or from the files where these had to be opened in its place, because the recording has
    /// not ended or the bag is a single file.
    ///
    /// # Errors
    /// A storage file cannot be read.
    pub fn markers(&self) -> Result<Vec<Marker>, ReadError> {
        let mut markers = match self.metadata().custom_data.get(MARKERS_CUSTOM_KEY) {
            Some(text) => Marker::list_from_json(text),
            None => self.markers_of_open_files()?,
        };
        markers.sort();
        markers.dedup();
        Ok(markers)
    }

    fn markers_of_open_files(&self) -> Result<Vec<Marker>, ReadError> {
        let mut markers = Vec::new();
        for file in self.files().iter().filter(|file| file.reader.is_some()) {
            markers.extend(markers_of(file)?);
        }
        Ok(markers)
    }

    /// The markers of all files that can be read, by time.
    pub fn markers_of_all_files(&self) -> Vec<Marker> {
        let files = self.files().iter();
        let mut markers: Vec<Marker> = files.filter_map(|file| markers_of(file).ok()).flatten().collect();
        markers.sort();
        markers.dedup();
        markers
    }
}

fn markers_of(file: &BagFile) -> Result<Vec<Marker>, ReadError> {
    let reader = file.open()?;
    let records = reader.summary().metadata.iter();
    let of_markers = records.filter(|(name, _)| name == MARKER_RECORD);
    Ok(of_markers
        .filter_map(|(_, entries)| Marker::from_entries(entries))
        .collect())
}

impl BagSet {
    /// The markers of all bags, by time.
    ///
    /// # Errors
    /// As [`Bag::markers`].
    pub fn markers(&self) -> Result<Vec<Marker>, ReadError> {
        let mut markers = Vec::new();
        for bag in self.bags() {
            markers.extend(bag.markers()?);
        }
        markers.sort();
        markers.dedup();
        Ok(markers)
    }
}
