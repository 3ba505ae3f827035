//! Places of publishers whose accounts were folded: which of them another publisher may take.

/// A failed disk takes messages back that were recorded before the last sync ended, and knows their
/// publishers by place. So a place rests until no message of its publisher can be taken back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FoldedPlaces {
    vacant: Vec<usize>,
    /// Folded before the last turn.
    resting: Vec<usize>,
    /// Folded since.
    fresh: Vec<usize>,
}

impl FoldedPlaces {
    /// Adds the place of a publisher that was folded; `has_messages` when messages of it were recorded or
    /// refused by the disk.
    pub(super) fn add(&mut self, place: usize, has_messages: bool) {
        if has_messages {
            self.fresh.push(place);
        } else {
            self.vacant.push(place);
        }
    }

    /// A place that may be taken.
    pub(super) fn take(&mut self) -> Option<usize> {
        self.vacant.pop()
    }

    /// Whether the publisher of this place was folded and no other has taken it since.
    pub(super) fn contains(&self, place: usize) -> bool {
        let mut all = self.vacant.iter().chain(&self.resting).chain(&self.fresh);
        all.any(|known| *known == place)
    }

    /// Call this when everything written before the last call can no longer be taken back.
    pub(super) fn turn(&mut self) {
        self.vacant.append(&mut self.resting);
        std::mem::swap(&mut self.resting, &mut self.fresh);
    }
}
