//! The drain keeps arenas until the system has their messages.

use super::{Drain, DrainCommand, Retained};
use crate::{cache::Segment, write::survival::SurvivalLog};
use holdall_bag::rescue::Event;

impl DrainCommand {
    pub(super) fn log_to(&self, survival: &SurvivalLog) {
        match self {
            Self::AddTopic {
                topic,
                info,
                definition,
            } => survival.add(|| Event::Topic {
                topic: *topic,
                info: info.clone(),
                definition: definition.clone(),
            }),
            Self::AddType {
                topic,
                info,
                definition,
            } => survival.add(|| Event::Type {
                topic: *topic,
                info: info.clone(),
                definition: definition.clone(),
            }),
            Self::Define { topics, definition } => {
                for topic in topics {
                    survival.add(|| Event::Define {
                        topic: *topic,
                        definition: definition.clone(),
                    });
                }
            }
        }
    }
}

impl Drain {
    pub(super) fn begin_retaining(&mut self) {
        self.retained = Retained::new(self.cache.source(), self.cache.shape());
        if self.retained.is_some() {
            self.bag.track_handed();
        }
    }

    /// Returns a segment whose messages were given to the storage writer, the packing, or the waiting topics.
    pub(super) fn release_segment(&mut self, segment: Segment, holds_waiting: bool) {
        self.has_large |= segment.has_unkept();
        let (retained, progress) = (&mut self.retained, self.progress);
        self.cache.release_after(segment, |segment| {
            if let Some(retained) = retained {
                retained.keep(segment, holds_waiting, progress);
            }
        });
    }

    /// Releases arenas whose messages the system has, and asks for more where too many wait.
    pub(super) fn release_retained(&mut self) {
        let Some(retained) = &mut self.retained else {
            return;
        };
        if self.failure.is_some() {
            // Messages that are not in the bag are in the ledger.
            self.retained = None;
            return;
        }
        let handed_over = if retained.is_pressing() {
            self.bag.hand_over()
        } else if self.has_large {
            self.bag.hand_over_large().map(|done| self.has_large = !done)
        } else {
            Ok(())
        };
        self.progress.handed = self.bag.handed();
        self.progress.has_waiting = self.waiting.has_messages();
        retained.release(self.progress);
        if let Err(error) = handed_over {
            self.fail(error);
        }
    }
}
