//! Whether a call may block.

/// Whether a call blocks until there is a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// It returns at once, with nothing where nothing is ready.
    No,
    /// It blocks.
    UntilReady,
}
