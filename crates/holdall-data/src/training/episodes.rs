//! Where the episodes of a bag begin and end, on the clock of its messages.

use super::mapping::nanos;
use std::collections::VecDeque;

/// A beginning or an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// From here on frames are made.
    Begin {
        /// Nanoseconds.
        at: i64,
        /// The episode's name if that is its task.
        name: Option<String>,
    },
    /// No frame is made from here on.
    End {
        /// Nanoseconds.
        at: i64,
    },
}

impl Cut {
    /// Gives it another time.
    pub fn move_to(&mut self, time: i64) {
        match self {
            Self::Begin { at, .. } | Self::End { at } => *at = time,
        }
    }

    fn at(&self) -> i64 {
        match self {
            Self::Begin { at, .. } | Self::End { at } => *at,
        }
    }
}

/// Finds the cuts while messages come in order.
#[derive(Debug, Default)]
pub(super) struct Cutter {
    /// Known cuts in order.
    known: VecDeque<Cut>,
    gap_ns: Option<i64>,
    /// The last message of a feature.
    last: Option<i64>,
    /// The value of the dividing field.
    value: Option<String>,
    /// Recorded episodes that are not taken.
    pub left_out: u64,
}

impl Cutter {
    /// The whole bag is one episode.
    pub fn whole() -> Self {
        Self {
            known: [Cut::Begin {
                at: i64::MIN,
                name: None,
            }]
            .into(),
            ..Self::default()
        }
    }

    /// Episodes that pauses divide.
    pub fn by_gap(gap_s: f64) -> Self {
        Self {
            gap_ns: Some(nanos(gap_s)),
            ..Self::default()
        }
    }

    /// Episodes that the values of a field divide.
    pub fn by_value() -> Self {
        Self::default()
    }

    /// Episodes that marks divide; `starts` and `ends` give their meaning.
    pub fn by_marks(
        marks: impl IntoIterator<Item = (i64, String)>,
        starts: impl Fn(&str) -> bool,
        ends: impl Fn(&str) -> bool,
    ) -> Self {
        let mut cutter = Self::default();
        let mut is_open = false;
        for (at, name) in marks {
            let (starts, ends) = (starts(&name), ends(&name));
            if is_open && (starts || ends) {
                cutter.known.push_back(Cut::End { at });
                is_open = false;
            }
            if starts && !ends {
                cutter.known.push_back(Cut::Begin { at, name: Some(name) });
                is_open = true;
            }
        }
        cutter
    }

    /// Episodes from a time until another one, with their names; one that begins before the end of another ends it.
    pub fn by_spans(spans: impl IntoIterator<Item = (i64, i64, Option<String>)>) -> Self {
        let mut cutter = Self::default();
        let mut open: Option<i64> = None;
        for (begin, end, name) in spans {
            if end <= begin {
                continue;
            }
            if let Some(at) = open.replace(end) {
                let at = at.min(begin);
                cutter.known.push_back(Cut::End { at });
            }
            cutter.known.push_back(Cut::Begin { at: begin, name });
        }
        if let Some(at) = open {
            cutter.known.push_back(Cut::End { at });
        }
        cutter
    }

    /// The dividing field has this value; `None` outside of episodes.
    pub fn value(&mut self, at: i64, value: Option<String>) {
        if value == self.value {
            return;
        }
        if self.value.is_some() {
            self.known.push_back(Cut::End { at });
        }
        if value.is_some() {
            self.known.push_back(Cut::Begin {
                at,
                name: value.clone(),
            });
        }
        self.value = value;
    }

    /// A message of a feature comes.
    pub fn message(&mut self, at: i64) {
        let Some(gap_ns) = self.gap_ns else {
            return;
        };
        let last = self.last.replace(at);
        let is_pause = last.is_none_or(|last| at.saturating_sub(last) > gap_ns);
        if is_pause {
            if let Some(last) = last {
                self.known.push_back(Cut::End {
                    at: last.saturating_add(1),
                });
            }
            self.known.push_back(Cut::Begin { at, name: None });
        }
    }

    /// The next cut until `now`.
    pub fn next(&mut self, now: i64) -> Option<Cut> {
        self.known.pop_front_if(|cut| cut.at() <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(cutter: &mut Cutter, now: i64) -> Vec<(char, i64)> {
        std::iter::from_fn(|| cutter.next(now))
            .map(|cut| match cut {
                Cut::Begin { at, .. } => ('b', at),
                Cut::End { at } => ('e', at),
            })
            .collect()
    }

    #[test]
    fn marks_begin_and_end_episodes() {
        let marks = [
            (1, "begin a"),
            (5, "done"),
            (7, "other"),
            (9, "begin b"),
            (12, "begin c"),
        ];
        let marks = marks.map(|(at, name)| (at, name.to_owned()));
        let mut cutter = Cutter::by_marks(marks, |name| name.starts_with("begin"), |name| name == "done");
        assert_eq!(spans(&mut cutter, 4), [('b', 1)]);
        assert_eq!(spans(&mut cutter, 99), [('e', 5), ('b', 9), ('e', 12), ('b', 12)]);
    }

    #[test]
    fn pauses_and_values_begin_and_end_episodes() {
        let mut cutter = Cutter::by_gap(1e-9 * 10.0);
        for at in [0, 8, 18, 40, 41] {
            cutter.message(at);
        }
        assert_eq!(spans(&mut cutter, 99), [('b', 0), ('e', 19), ('b', 40)]);
        let named = |name: &str| Some(name.to_owned());
        let spans_of = [
            (1, 5, named("a")),
            (3, 9, named("b")),
            (12, 12, None),
            (20, 30, None),
        ];
        let mut cutter = Cutter::by_spans(spans_of);
        let wanted = [('b', 1), ('e', 3), ('b', 3), ('e', 9), ('b', 20), ('e', 30)];
        assert_eq!(spans(&mut cutter, 99), wanted);
        let mut cutter = Cutter::by_value();
        for (at, value) in [
            (1, None),
            (2, Some("a")),
            (3, Some("a")),
            (4, Some("b")),
            (6, None),
        ] {
            cutter.value(at, value.map(str::to_owned));
        }
        assert_eq!(spans(&mut cutter, 99), [('b', 2), ('e', 4), ('b', 4), ('e', 6)]);
    }
}
