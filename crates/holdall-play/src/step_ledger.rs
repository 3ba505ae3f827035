//! Which published messages still wait for which answers: a state machine that is given the time.

use holdall_model::{time::Timestamp, units::counted};
use std::{collections::VecDeque, time::Duration};

/// After this many answers in a row that did not come, or as many as may be in flight, the playback ends.
const MISSING_MAX: usize = 3;

/// What a message still lacks of one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// A message with this stamp or a later one.
    Stamp {
        from: i64,
        /// Messages that answered nothing while this waited, because their stamps are earlier.
        earlier: u64,
    },
    /// This many messages.
    Count(u32),
    /// The answer with this number: a reply to a request, or the acknowledgement of this number of messages.
    Number(u64),
    /// What cannot come any more, and why not.
    Never(&'static str),
}

impl Need {
    pub const fn stamp(from: i64) -> Self {
        Self::Stamp { from, earlier: 0 }
    }
}

/// Whether the answer with a number has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    Here,
    Pending,
    /// It cannot come any more, and why not.
    Never(&'static str),
}

/// What a message that has come is to those that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fit {
    /// None waits for a message of its topic.
    Unasked,
    /// Its stamp is earlier than what they need.
    Earlier,
    /// It answers.
    Asked,
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
    pub need: Need,
}

impl Missing {
    /// Why, one clause; `None` if nothing came.
    pub fn reason(&self) -> Option<String> {
        match self.need {
            Need::Never(reason) => Some(reason.to_owned()),
            Need::Stamp { earlier, .. } if earlier > 0 => Some(format!(
                "what came while it waited has an earlier stamp ({})",
                counted(earlier, "message")
            )),
            Need::Stamp { .. } | Need::Count(_) | Need::Number(_) => None,
        }
    }
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

    /// A message has come on the topic of `rule`.
    pub fn answer(&mut self, rule: usize, stamp: Option<i64>) -> Fit {
        let mut fit = Fit::Unasked;
        for step in &mut self.waiting {
            let Some(place) = step.needs.iter().position(|(of, _)| *of == rule) else {
                continue;
            };
            match (&mut step.needs[place].1, stamp) {
                (Need::Stamp { from, .. }, Some(stamp)) if *from <= stamp => {
                    step.needs.swap_remove(place);
                    fit = Fit::Asked;
                }
                (Need::Stamp { .. }, Some(_)) => fit = fit.max(Fit::Earlier),
                (Need::Number(_) | Need::Never(_), _) => {}
                (Need::Count(left), _) if *left > 1 => {
                    *left -= 1;
                    return Fit::Asked;
                }
                // One message counts for one step; one without a stamp too.
                (Need::Count(_) | Need::Stamp { .. }, _) => {
                    step.needs.swap_remove(place);
                    return Fit::Asked;
                }
            }
        }
        if fit == Fit::Earlier {
            for (of, need) in self.waiting.iter_mut().flat_map(|step| &mut step.needs) {
                if *of == rule
                    && let Need::Stamp { earlier, .. } = need
                {
                    *earlier += 1;
                }
            }
        }
        fit
    }

    /// Takes the answers that have numbers; `arrival` is given the rule, the publication and the number.
    pub fn collect(&mut self, arrival: impl Fn(usize, usize, u64) -> Arrival) {
        for step in &mut self.waiting {
            let publication = step.publication;
            step.needs.retain_mut(|(rule, need)| {
                let Need::Number(number) = *need else { return true };
                let found = arrival(*rule, publication, number);
                if let Arrival::Never(reason) = found {
                    *need = Need::Never(reason);
                }
                found != Arrival::Here
            });
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
        let is_overdue = |step: &Step| now.saturating_sub(step.sent) >= self.timeout;
        let lacking = |step: &Step| {
            let mut needs = step.needs.iter();
            let never = needs.find(|(_, need)| matches!(need, Need::Never(_)));
            never
                .or_else(|| step.needs.first().filter(|_| is_overdue(step)))
                .copied()
        };
        let mut steps = self.waiting.iter().enumerate();
        let (place, (rule, need)) = steps.find_map(|(place, step)| Some((place, lacking(step)?)))?;
        let step = self.waiting.remove(place)?;
        self.missing += 1;
        self.missing_in_a_row += 1;
        Some(Missing {
            number: step.number,
            publication: step.publication,
            stamp: step.stamp,
            rule,
            need,
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
        begin(&mut ledger, &[(0, Need::Count(2)), (1, Need::Number(5))], 10);
        assert_eq!(ledger.answer(0, None), Fit::Asked);
        ledger.collect(|_, _, _| Arrival::Pending);
        assert!(answered(&mut ledger, 11).is_empty());
        assert_eq!(ledger.answer(0, None), Fit::Asked);
        assert_eq!(ledger.answer(0, None), Fit::Unasked, "a third one");
        ledger.collect(|rule, publication, number| match (rule, publication, number) {
            (1, 0, 5) => Arrival::Here,
            _ => Arrival::Pending,
        });
        assert_eq!(answered(&mut ledger, 14), [ms(4)]);
        assert_eq!((ledger.waiting.len(), ledger.counts()), (0, (1, 1, 0)));
    }

    #[test]
    fn a_later_stamp_answers_all_before_it_and_an_earlier_one_none() {
        let mut ledger = ledger(3);
        for stamp in [100, 200, 300] {
            begin(&mut ledger, &[(0, Need::stamp(stamp))], 0);
        }
        assert_eq!(ledger.answer(0, Some(99)), Fit::Earlier);
        assert_eq!(ledger.answer(1, Some(1000)), Fit::Unasked, "another rule");
        assert_eq!(ledger.answer(0, Some(200)), Fit::Asked);
        assert_eq!(answered(&mut ledger, 1).len(), 2);
        assert_eq!(
            ledger.answer(0, None),
            Fit::Asked,
            "without a stamp it counts for one"
        );
        assert_eq!(answered(&mut ledger, 1).len(), 1);
    }

    #[test]
    fn answers_with_earlier_stamps_are_counted_for_the_one_that_lacks_one() {
        let mut ledger = ledger(2);
        begin(&mut ledger, &[(0, Need::stamp(100))], 0);
        begin(&mut ledger, &[(0, Need::stamp(200))], 0);
        // The answer to the first one does not count against the second one.
        for (stamp, fit) in [
            (100, Fit::Asked),
            (150, Fit::Earlier),
            (150, Fit::Earlier),
            (199, Fit::Earlier),
        ] {
            assert_eq!(ledger.answer(0, Some(stamp)), fit);
        }
        answered(&mut ledger, 1);
        let reason = ledger.take_missing(ms(1000)).unwrap().reason().unwrap();
        assert_eq!(
            reason,
            "what came while it waited has an earlier stamp (3 messages)"
        );
    }

    #[test]
    fn a_reply_that_is_lost_is_one_missing_answer_and_those_after_it_are_answered() {
        let mut ledger = ledger(1);
        for number in 1..=5 {
            begin(&mut ledger, &[(0, Need::Number(number))], number * 2000);
            ledger.collect(|_, _, number| {
                if number == 2 {
                    Arrival::Pending
                } else {
                    Arrival::Here
                }
            });
            answered(&mut ledger, number * 2000);
            let missing = ledger.take_missing(ms(number * 2000 + 1000));
            assert_eq!(missing.map(|missing| missing.number), (number == 2).then_some(2));
            assert_eq!(missing.and_then(|missing| missing.reason()), None);
        }
        assert_eq!(ledger.counts(), (5, 4, 1));
    }

    #[test]
    fn what_cannot_come_any_more_is_not_waited_for() {
        let mut ledger = ledger(1);
        begin(&mut ledger, &[(3, Need::Count(1)), (7, Need::Number(1))], 0);
        ledger.collect(|_, _, _| Arrival::Never("it has no server"));
        assert!(answered(&mut ledger, 0).is_empty());
        let missing = ledger.take_missing(ms(0)).unwrap();
        assert_eq!(
            (missing.rule, missing.reason().as_deref()),
            (7, Some("it has no server"))
        );
        assert_eq!((ledger.waiting.len(), ledger.counts()), (0, (1, 0, 1)));
    }

    #[test]
    fn answers_by_count_go_to_the_oldest_message() {
        let mut ledger = ledger(2);
        begin(&mut ledger, &[(0, Need::Count(1))], 0);
        begin(&mut ledger, &[(0, Need::Count(1))], 500);
        assert_eq!(ledger.answer(0, Some(1)), Fit::Asked);
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
