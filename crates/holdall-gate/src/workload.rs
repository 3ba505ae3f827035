//! The list of workloads.

use crate::{Failed, intake, measured::Took, payload::Messages, storage};
use holdall_io::{clock::Clock, sim::SimClock};
use serde::Serialize;
use stats_alloc::StatsAlloc;
use std::alloc::System;

/// A part of the data path.
#[derive(Clone, Copy, Debug)]
enum Part {
    /// Storage writer alone.
    Write,
    /// The path from the offer into the cache.
    Offer,
    /// The path from the offer into the closed bag.
    Record,
    /// Storage reader alone.
    Read,
}

impl Part {
    const fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Offer => "offer",
            Self::Record => "record",
            Self::Read => "read",
        }
    }
}

/// Length of the messages, its name, and a default count: with twice as many, counts per message change by
/// less than a hundredth, and valgrind finishes in a second or two.
#[derive(Clone, Copy, Debug)]
struct Size {
    name: &'static str,
    bytes: usize,
    messages: u64,
}

const PARTS: [Part; 4] = [Part::Write, Part::Offer, Part::Record, Part::Read];

const SIZES: [Size; 3] = [
    Size {
        name: "100B",
        bytes: 100,
        messages: 200_000,
    },
    Size {
        name: "10KiB",
        bytes: 10 << 10,
        messages: 8_000,
    },
    Size {
        name: "1MiB",
        bytes: 1 << 20,
        messages: 128,
    },
];

/// One workload.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    part: Part,
    size: Size,
    /// Messages that are counted by default.
    pub messages: u64,
}

/// A workload in the list that is printed.
#[derive(Clone, Debug, Serialize)]
pub struct Described {
    name: String,
    messages: u64,
}

/// The result of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    messages: u64,
    bytes: u64,
    #[serde(flatten)]
    took: Took,
}

/// All workloads.
pub fn all() -> impl Iterator<Item = Workload> {
    PARTS.into_iter().flat_map(|part| {
        SIZES.into_iter().map(move |size| Workload {
            part,
            size,
            messages: size.messages,
        })
    })
}

impl Workload {
    /// The workload's name.
    pub fn name(&self) -> String {
        format!("{}-{}", self.part.name(), self.size.name)
    }

    /// A description for the list.
    pub fn described(self) -> Described {
        Described {
            name: self.name(),
            messages: self.messages,
        }
    }

    /// Runs it with this many messages.
    ///
    /// # Errors
    /// A temporary folder that cannot be used; a defect in the measured code.
    pub fn run(&self, messages: u64, allocator: &StatsAlloc<System>) -> Result<Outcome, Failed> {
        let made = Messages::new(self.size.bytes, SimClock::default().now());
        let took = match self.part {
            Part::Write => storage::write(&made, messages, allocator),
            Part::Offer => intake::offer(&made, messages, allocator),
            Part::Record => intake::record(&made, messages, allocator),
            Part::Read => storage::read(&made, messages, allocator),
        }?;
        Ok(Outcome {
            messages,
            bytes: messages * self.size.bytes as u64,
            took,
        })
    }
}
