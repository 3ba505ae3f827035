//! Places of publishers that are gone: when the bag forgets their former owners, and when they may be reused.

use super::{Drain, PublisherSlot};
use holdall_io::mutex::lock;

impl Drain {
    /// Forgets publishers whose places may have been reused, before messages of the new ones are written: all messages of the old ones are in the bag.
    pub(super) fn forget_vacated(&mut self) {
        let vacated = lock(&self.ledger).take_vacated();
        for (topic, publisher) in vacated {
            for topic in self.bag_topics(topic) {
                self.bag.forget_publisher(topic, PublisherSlot(publisher.0));
            }
            self.forget_type(topic, publisher);
        }
    }

    /// Releases the places of folded publishers whose messages the journal has forgotten, for other
    /// publishers.
    pub(super) fn free_places(&mut self) {
        let is_new = self.journal.end() != self.places_released_at;
        if is_new && self.journal.start() >= self.places_released_at {
            self.places_released_at = self.journal.end();
            lock(&self.ledger).release_places();
        }
    }
}
