//! Recording: topic -> subscription -> cache -> drain -> storage writer. Its users see it through `holdall`.
#![forbid(unsafe_code)]

mod alarm;
mod assembly;
pub(crate) mod cache;
mod clock_watch;
mod contract;
mod control;
mod diagnostics;
mod document;
mod error;
pub mod events;
pub mod options;
pub(crate) mod receive;
mod recorder;
mod requests;
mod setting;
pub mod status;
mod stepped;
#[cfg(test)]
mod tests;
mod trigger;
mod trim;
mod view;
pub(crate) mod write;

pub(crate) use holdall_model::limits;

pub use assembly::RescueMemory;
pub use control::{MarkError, RecordControl};
pub use error::RecordError;
use holdall_io::step_wait;
pub use holdall_io::step_wait::STOPPED_MIN;
pub use receive::{definitions::Definitions, gate::clock_nanos};
pub use recorder::{Platform, Recorder};
pub use requests::{SubscribeAnswer, SubscribeError};
pub use setting::Setting;
pub use stepped::SteppedRecorder;
pub use view::RecordObserver;
pub use write::drain::RingWindow;

/// Machinery that the simulator, the benchmarks and the gate drive from outside. It changes without notice.
#[doc(hidden)]
pub mod internals {
    pub use crate::{
        cache::{Admission, CacheEntry, Offered, Place, Segment, SegmentShape, SharedCache, Stored, Waited},
        receive::{gate::Gate, intake::Intake},
        stepped::SteppedRecorder,
        write::{
            drain::{Drain, DrainCommand, DrainOptions, DrainShared, DrainThread},
            survival::Survival,
        },
    };
    pub use holdall_model::loss::durability::DEFAULT_LOSS_WINDOW;
}
