//! The order of messages that go to files of several classes: how many of them are in the system, from the first on.

use std::collections::VecDeque;

/// The order of messages that go to several files.
#[derive(Debug)]
pub struct FileOrder {
    /// Classes with their number of messages, one after the other; those of the prefix are gone.
    runs: VecDeque<(usize, u64)>,
    /// Messages of each class that are in the prefix.
    passed: Vec<u64>,
    prefix: u64,
}

impl FileOrder {
    /// No message yet.
    pub fn of(classes: usize) -> Self {
        Self {
            runs: VecDeque::new(),
            passed: vec![0; classes],
            prefix: 0,
        }
    }

    /// Notes that a message went to a file of this class.
    #[inline]
    pub fn note(&mut self, class: usize) {
        match self.runs.back_mut() {
            Some((last, count)) if *last == class => *count += 1,
            _ => self.runs.push_back((class, 1)),
        }
    }

    /// Length of the longest prefix of which each class has its part, when it has its first `had` messages.
    pub fn prefix(&mut self, had: &[u64]) -> u64 {
        while let Some((class, count)) = self.runs.front_mut() {
            let more = had[*class].saturating_sub(self.passed[*class]).min(*count);
            self.passed[*class] += more;
            self.prefix += more;
            *count -= more;
            if *count > 0 {
                break;
            }
            self.runs.pop_front();
        }
        self.prefix
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_counts_when_all_before_it_are_in_the_system_whatever_file_they_are_in() {
        let mut order = FileOrder::of(2);
        for class in [0, 0, 1, 0, 1, 1] {
            order.note(class);
        }
        assert_eq!(order.prefix(&[0, 3]), 0);
        assert_eq!(order.prefix(&[1, 3]), 1);
        assert_eq!(order.prefix(&[3, 0]), 2);
        assert_eq!(order.prefix(&[3, 2]), 5);
        order.note(1);
        assert_eq!(order.prefix(&[3, 4]), 7);
        assert!(order.runs.is_empty());
    }
}
