//! How a verb ends that mends a bag or describes it anew: what of the bag is lost or still wrong then.

/// What is left to say of a bag, the worst first.
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
    /// That of a bag of which messages are found to be lost, or of which a check finds so many problems.
    pub(super) fn of(is_lost: bool, problems: u64) -> Self {
        match (is_lost, problems) {
            (true, _) => Self::Lost,
            (false, 0) => Self::Whole,
            (false, _) => Self::Wrong,
        }
    }
}
