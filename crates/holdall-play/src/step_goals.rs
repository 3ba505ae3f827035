//! Goals in lock-step: which request of an action waits for the reply to which other one.

use super::publications::Publications;

/// The publications that send the recorded requests of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Goals {
    goal: usize,
    result: usize,
    cancel: Option<usize>,
}

/// Whether a message that waits holds back the one to be published next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// It does not.
    No,
    /// As one of those that may wait at the same time.
    Counted,
    /// However many may wait.
    Always,
}

impl Goals {
    /// The requests of an action; one of goals and one of results must be sent again.
    pub fn of(action: &str, publications: &Publications) -> Option<Self> {
        let calls = |part: &str| {
            let service = format!("{action}/_action/{part}");
            (0..publications.recorded_names().len()).find(|index| publications.calls(*index, &service))
        };
        Some(Self {
            goal: calls("send_goal")?,
            result: calls("get_result")?,
            cancel: calls("cancel_goal"),
        })
    }

    /// The publications whose replies are waited for. Cancellations are not: a goal ends by them.
    pub fn inputs(self) -> [usize; 2] {
        [self.goal, self.result]
    }

    /// Whether a request of `waiting` holds back a message of `next`, both publications.
    pub fn hold(self, waiting: usize, next: usize) -> Hold {
        if waiting == self.goal && (next == self.result || Some(next) == self.cancel) {
            // A server knows a goal when it has answered it.
            Hold::Always
        } else if next == self.goal {
            Hold::Counted
        } else {
            Hold::No
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_wait_for_results_and_nothing_else_does() {
        let goals = Goals {
            goal: 3,
            result: 4,
            cancel: Some(5),
        };
        assert_eq!(
            (goals.hold(4, 3), goals.hold(3, 3)),
            (Hold::Counted, Hold::Counted)
        );
        assert_eq!((goals.hold(3, 4), goals.hold(3, 5)), (Hold::Always, Hold::Always));
        assert_eq!(
            (goals.hold(4, 5), goals.hold(4, 4), goals.hold(4, 9)),
            (Hold::No, Hold::No, Hold::No)
        );
    }
}
