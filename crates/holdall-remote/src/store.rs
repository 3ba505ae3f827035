//! A store that is open, and how many requests it has at once.

use crate::{
    config::{self, Opened},
    target::{Service, Target},
};
use std::io;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Requests that are in flight at once: with parts of 4 MiB and 20 ms of latency, more than a line of 10 Gbit/s carries.
const REQUESTS_MAX: usize = 16;

/// A store.
#[derive(Debug)]
pub(crate) struct Store {
    pub service: Service,
    pub opened: Opened,
    turns: Semaphore,
}

impl Store {
    /// The store of a place.
    ///
    /// # Errors
    /// As [`config::open`].
    pub(crate) fn open(target: &Target) -> io::Result<Self> {
        Ok(Self {
            service: target.service,
            opened: config::open(target)?,
            turns: Semaphore::new(REQUESTS_MAX),
        })
    }

    /// Waits for a turn; it ends when the returned permit is dropped.
    ///
    /// # Errors
    /// Never, while the store exists.
    pub(crate) async fn turn(&self) -> io::Result<SemaphorePermit<'_>> {
        self.turns.acquire().await.map_err(io::Error::other)
    }
}
