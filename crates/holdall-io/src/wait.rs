//! Whether a call may block.

/// Whether a call blocks until there is a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Returns at once, even if nothing is ready.
    No,
    /// It blocks.
    UntilReady,
}
