//! The result of a verb that repairs a bag or describes it anew: losses and remaining problems.

/// The state of a bag after such a verb, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Messages could not be saved, cannot be read, or were found to be gone.
    Lost,
    /// A check still finds something wrong.
    Wrong,
    /// Nothing.
    Whole,
}

impl Ending {
    /// The ending for a bag with or without found losses, and with this many problems in a check.
    pub(super) fn of(is_lost: bool, problems: u64) -> Self {
        match (is_lost, problems) {
            (true, _) => Self::Lost,
            (false, 0) => Self::Whole,
            (false, _) => Self::Wrong,
        }
    }
}
