//! Which published messages still wait for which answers: a state machine that is given the time.

use holdall_model::time::Timestamp;
use std::{collections::VecDeque, time::Duration};

/// After this many answers in a row that did not come, or as many as may be in flight, the playback ends.
const MISSING_MAX: usize = 3;

/// What a message still lacks of one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// A message with this stamp or a later one.
    Stamp(i64),
    /// This many messages.
    Count(u32),
    /// That a counter of the rule has come this far.
    Reach(u64),
}

/// A published message that is not answered yet.
#[derive(Clone, Debug)]
struct Step {
    number: u64,
    /// Its publication.
    publication: usize,
    /// Its time in the bag.
    stamp: Timestamp,
    /// When it was published.
    sent: Duration,
    /// By rule.
    needs: Vec<(usize, Need)>,
}

/// A message whose answer did not come in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Missing {
    /// Which step it was, from 1.
    pub number: u64,
    pub publication: usize,
    pub stamp: Timestamp,
    /// The first rule that it lacks.
    pub rule: usize,
}

/// All steps of a playback.
#[derive(Debug)]
pub(super) struct StepLedger {
    timeout: Duration,
    missing_max: usize,
    waiting: VecDeque<Step>,
    begun: u64,
    answered: u64,
    missing: u64,
    /// Since the last answer.
    missing_in_a_row: usize,
}

impl StepLedger {
    pub fn new(in_flight: usize, timeout: Duration) -> Self {
        Self {
            timeout,
            missing_max: in_flight.max(MISSING_MAX),
            waiting: VecDeque::new(),
            begun: 0,
            answered: 0,
            missing: 0,
            missing_in_a_row: 0,
        }
    }

    /// A message was published that needs these answers, by rule.
    pub fn begin(
        &mut self,
        (publication, stamp): (usize, Timestamp),
        needs: Vec<(usize, Need)>,
        now: Duration,
    ) {
        self.begun += 1;
        self.waiting.push_back(Step {
            number: self.begun,
            publication,
            stamp,
            sent: now,
            needs,
        });
    }

    /// A message has come that answers by `rule`; false if none waits for it.
    pub fn answer(&mut self, rule: usize, stamp: Option<i64>) -> bool {
        let mut is_asked = false;
        for step in &mut self.waiting {
            let Some(place) = step.needs.iter().position(|(of, _)| *of == rule) else {
                continue;
            };
            match (&mut step.needs[place].1, stamp) {
                (Need::Stamp(wanted), Some(stamp)) if *wanted <= stamp => {
                    step.needs.swap_remove(place);
                    is_asked = true;
                }
                (Need::Stamp(_), Some(_)) | (Need::Reach(_), _) => {}
                (Need::Count(left), _) if *left > 1 => {
                    *left -= 1;
                    return true;
                }
                // One message counts for one step; one without a stamp too.
                (Need::Count(_) | Need::Stamp(_), _) => {
                    step.needs.swap_remove(place);
                    return true;
                }
            }
        }
        is_asked
    }

    /// The counters of rules that answers do not come for as messages.
    pub fn reach(&mut self, counter: impl Fn(usize, usize) -> u64) {
        for step in &mut self.waiting {
            let publication = step.publication;
            step.needs.retain(
                |(rule, need)| !matches!(need, Need::Reach(wanted) if counter(*rule, publication) >= *wanted),
            );
        }
    }

    /// Takes what is answered, with how long it took.
    pub fn take_answered(&mut self, now: Duration, mut answered: impl FnMut(Duration)) {
        let before = self.waiting.len();
        self.waiting.retain(|step| {
            if step.needs.is_empty() {
                answered(now.saturating_sub(step.sent));
            }
            !step.needs.is_empty()
        });
        let count = before - self.waiting.len();
        self.answered += count as u64;
        if count > 0 {
            self.missing_in_a_row = 0;
        }
    }

    /// Takes the next message whose answer does not come any more.
    pub fn take_missing(&mut self, now: Duration) -> Option<Missing> {
        let overdue = |step: &Step| now.saturating_sub(step.sent) >= self.timeout;
        let place = self.waiting.iter().position(overdue)?;
        let step = self.waiting.remove(place)?;
        self.missing += 1;
        self.missing_in_a_row += 1;
        Some(Missing {
            number: step.number,
            publication: step.publication,
            stamp: step.stamp,
            rule: step.needs.first().map_or(0, |(rule, _)| *rule),
        })
    }

    /// Whether too many answers in a row did not come.
    pub fn is_hopeless(&self) -> bool {
        self.missing_in_a_row >= self.missing_max
    }

    /// When the next answer counts as missing.
    pub fn deadline(&self) -> Option<Duration> {
        let sent = self.waiting.iter().map(|step| step.sent).min()?;
        Some(sent.saturating_add(self.timeout))
    }

    /// Messages that wait, each with its publication and the rules that it lacks.
    pub fn waiting(&self) -> impl Iterator<Item = (usize, impl Iterator<Item = usize>)> {
        self.waiting
            .iter()
            .map(|step| (step.publication, step.needs.iter().map(|(rule, _)| *rule)))
    }

    /// Messages that waited, that were answered, and whose answer did not come.
    pub fn counts(&self) -> (u64, u64, u64) {
        (self.begun, self.answered, self.missing)
    }

    /// Forgets what waits: the playback was moved to another point.
    pub fn forget(&mut self) {
        self.begun -= self.waiting.len() as u64;
        self.waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(1);

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn ledger(in_flight: usize) -> StepLedger {
        StepLedger::new(in_flight, TIMEOUT)
    }

    fn begin(ledger: &mut StepLedger, needs: &[(usize, Need)], now: u64) {
        ledger.begin((0, Timestamp::from_nanos(7)), needs.to_vec(), ms(now));
    }

    fn answered(ledger: &mut StepLedger, now: u64) -> Vec<Duration> {
        let mut took = Vec::new();
        ledger.take_answered(ms(now), |span| took.push(span));
        took
    }

    #[test]
    fn a_step_ends_when_each_rule_is_answered() {
        let mut ledger = ledger(1);
        begin(&mut ledger, &[(0, Need::Count(2)), (1, Need::Reach(5))], 10);
        assert!(ledger.answer(0, None));
        ledger.reach(|_, _| 4);
        assert!(answered(&mut ledger, 11).is_empty());
        assert!(ledger.answer(0, None));
        assert!(!ledger.answer(0, None), "a third one was not asked for");
        ledger.reach(|_, _| 5);
        assert_eq!(answered(&mut ledger, 14), [ms(4)]);
        assert_eq!((ledger.waiting.len(), ledger.counts()), (0, (1, 1, 0)));
    }

    #[test]
    fn a_later_stamp_answers_all_before_it_and_an_earlier_one_none() {
        let mut ledger = ledger(3);
        for stamp in [100, 200, 300] {
            begin(&mut ledger, &[(0, Need::Stamp(stamp))], 0);
        }
        assert!(!ledger.answer(0, Some(99)));
        assert!(!ledger.answer(1, Some(1000)), "another rule");
        assert!(ledger.answer(0, Some(200)));
        assert_eq!(answered(&mut ledger, 1).len(), 2);
        assert!(ledger.answer(0, None), "without a stamp it counts for one");
        assert_eq!(answered(&mut ledger, 1).len(), 1);
    }

    #[test]
    fn answers_by_count_go_to_the_oldest_message() {
        let mut ledger = ledger(2);
        begin(&mut ledger, &[(0, Need::Count(1))], 0);
        begin(&mut ledger, &[(0, Need::Count(1))], 500);
        assert!(ledger.answer(0, Some(1)));
        answered(&mut ledger, 600);
        assert_eq!(ledger.deadline(), Some(ms(1500)));
    }

    #[test]
    fn answers_that_do_not_come_are_named_and_after_some_in_a_row_it_is_hopeless() {
        let mut ledger = ledger(1);
        for number in 1..=3 {
            let sent = number * 2000;
            begin(&mut ledger, &[(4, Need::Count(1))], sent);
            assert_eq!(ledger.take_missing(ms(sent + 999)), None);
            assert!(!ledger.is_hopeless());
            let missing = ledger.take_missing(ms(sent + 1000)).unwrap();
            assert_eq!((missing.number, missing.rule), (number, 4));
        }
        assert!(ledger.is_hopeless());
        assert_eq!((ledger.waiting.len(), ledger.counts()), (0, (3, 0, 3)));
    }

    #[test]
    fn an_answer_between_gives_hope_and_a_seek_forgets() {
        let mut ledger = ledger(1);
        for number in 1..=6 {
            begin(&mut ledger, &[(0, Need::Count(1))], number * 2000);
            if number == 3 {
                ledger.answer(0, None);
                answered(&mut ledger, number * 2000);
            } else if number < 6 {
                ledger.take_missing(ms(number * 2000 + 1000)).unwrap();
            }
        }
        assert!(!ledger.is_hopeless());
        ledger.forget();
        assert_eq!((ledger.waiting.len(), ledger.counts()), (0, (5, 1, 4)));
    }
}
