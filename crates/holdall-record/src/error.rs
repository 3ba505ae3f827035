//! Why a recording could not be started.

use holdall_bag::writer::WriteError;
use holdall_model::selection::SelectionError;
use holdall_storage::StorageError;
use holdall_transport::TransportError;

/// Why a recording could not be started; nothing was recorded then.
///
/// ```
/// use holdall::{RecordError, RecordOptions, Recorder, Selection};
///
/// // A selection that selects nothing is refused before a bag is made.
/// let refused = Recorder::start(RecordOptions::new("lab", Selection::default()), Vec::new());
/// assert!(matches!(refused, Err(RecordError::Selection(_))));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// Topics that cannot be asked for.
    #[error(transparent)]
    Selection(#[from] SelectionError),
    /// The bag.
    #[error(transparent)]
    Bag(#[from] WriteError),
    /// The storage backend or its settings.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A topic that was given by name and type, or `/clock`.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The system gives no thread.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] std::io::Error),
}
