//! Keeps Cyclone DDS's messages few: the first of each kind is logged, then a count each minute. Any host of the network can cause one for
//! each packet that it sends.

use std::{collections::BTreeMap, time::Duration};

/// How long messages of a kind are only counted after one was logged.
const QUIET: Duration = Duration::from_secs(60);

/// Most kinds that are distinguished; with more, all others are one kind.
const KINDS_MAX: usize = 64;

/// Words at the beginning of a message that make its kind.
const KIND_WORDS: usize = 2;

struct Kind {
    logged: Duration,
    suppressed: u64,
}

/// What was logged, by kind.
#[derive(Default)]
pub(in crate::dds) struct LogLimit(BTreeMap<String, Kind>);

impl LogLimit {
    /// Creates a limit that has seen nothing.
    pub(in crate::dds) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// What to log of a message that comes at `now`; `None` when it is only counted.
    pub(in crate::dds) fn admit(&mut self, message: &str, now: Duration) -> Option<String> {
        let words: Vec<&str> = message.split_whitespace().collect();
        let text = words.join(" ");
        let mut kind = words.into_iter().take(KIND_WORDS).collect::<Vec<_>>().join(" ");
        if self.0.len() >= KINDS_MAX && !self.0.contains_key(&kind) {
            kind = String::new();
        }
        let Some(known) = self.0.get_mut(&kind) else {
            let logged = now;
            self.0.insert(
                kind,
                Kind {
                    logged,
                    suppressed: 0,
                },
            );
            return Some(text);
        };
        if now < known.logged + QUIET {
            known.suppressed += 1;
            return None;
        }
        let suppressed = std::mem::take(&mut known.suppressed);
        known.logged = now;
        Some(match suppressed {
            0 => text,
            count => format!("{text} (and {count} more like this since the last one was logged)"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_each_kind_is_logged_and_then_a_count_each_minute() {
        let mut limit = LogLimit::new();
        let at = Duration::from_secs;
        assert_eq!(
            limit.admit("malformed packet\n from 1", at(5)).unwrap(),
            "malformed packet from 1"
        );
        for second in 6..65 {
            assert_eq!(limit.admit("malformed packet from 2", at(second)), None);
        }
        assert!(limit.admit("socket closed", at(10)).is_some());
        let summary = limit.admit("malformed packet from 3", at(65)).unwrap();
        assert!(summary.contains("from 3 (and 59 more like this"), "{summary}");
        assert_eq!(limit.admit("malformed packet", at(66)), None);
    }

    #[test]
    fn kinds_are_bounded() {
        let mut limit = LogLimit::new();
        let logged = (0..10_000).filter(|n| limit.admit(&format!("k{n} x"), Duration::ZERO).is_some());
        assert_eq!(logged.count(), KINDS_MAX + 1);
    }
}
