//! The machines of rules that look at the messages of one topic in the order of their times.

use super::{content::Facts, drift::Drift, meter::Meter, parse::Rule, rate::RateWindows};
use crate::time::Timestamp;
use std::time::Duration;

/// What a machine remembers.
#[derive(Debug)]
pub(super) enum Machine {
    /// Judged when the topic is known or at the end.
    None,
    /// The facts of a message have it.
    Single,
    Rate(RateWindows),
    Gap(Duration, Option<Timestamp>),
    First(Timestamp, bool),
    Latency(Option<i64>, Option<i64>),
    Drift(Drift),
    Stamps {
        is_strict: bool,
        last: Option<i64>,
    },
    Jump {
        max: i64,
        last: Option<(i64, Timestamp)>,
    },
    Frozen {
        messages: u64,
        last: Option<u64>,
        run: u64,
    },
}

fn nanos(span: Duration) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}

fn millis(nanos: i64) -> f64 {
    nanos as f64 / 1e6
}

impl Machine {
    pub fn new(rule: &Rule, start: Timestamp) -> Self {
        let span = |name| rule.span(name);
        match rule.kind() {
            "rate" => Self::Rate(RateWindows::new(rule)),
            "gap" => Self::Gap(span("max").unwrap_or_default(), None),
            "first" => Self::First(start.saturating_add(span("within").unwrap_or_default()), false),
            "latency" => Self::Latency(span("min").map(nanos), span("max").map(nanos)),
            "drift" => Self::Drift(Drift::new(rule)),
            "stamps" => Self::Stamps {
                is_strict: rule.text("order") == Some("strict"),
                last: None,
            },
            "jump" => Self::Jump {
                max: span("max").map_or(i64::MAX, nanos),
                last: None,
            },
            "frozen" => Self::Frozen {
                messages: rule.count("messages").unwrap_or(2),
                last: None,
                run: 0,
            },
            "must" | "never" | "non_finite" | "size" | "image" | "cloud" | "frame" => Self::Single,
            _ => Self::None,
        }
    }

    /// Whether it needs `header.stamp`.
    pub fn is_stamped(&self) -> bool {
        matches!(
            self,
            Self::Latency(..) | Self::Drift(_) | Self::Stamps { .. } | Self::Jump { .. }
        )
    }

    /// Takes a message, in the order of their times. `number` is the machine's.
    pub fn message(&mut self, number: usize, facts: &Facts, meter: &mut Meter) {
        self.time(facts.time, meter);
        let time = facts.time;
        if self.is_stamped() {
            match facts.stamp {
                Some(stamp) => self.stamp(time, stamp, meter),
                None => meter.leave_out("messages have no header.stamp that is set"),
            }
            return;
        }
        match self {
            Self::Single => match facts.checked.iter().find(|(of, _)| *of == number) {
                None => meter.note(time, None),
                Some((_, Ok(wrong))) => meter.note(time, wrong.clone()),
                Some((_, Err(why))) => meter.leave_out(why),
            },
            Self::Rate(windows) => windows.message(time),
            Self::Gap(_, last) => {
                *last = Some(time);
                meter.note(time, None);
            }
            Self::First(_, has_come) if !*has_come => {
                *has_come = true;
                meter.note(time, None);
            }
            Self::Frozen { messages, last, run } => {
                *run = if last.replace(facts.digest) == Some(facts.digest) {
                    *run + 1
                } else {
                    1
                };
                let wrong = (*run >= *messages)
                    .then(|| format!("{messages} messages in a row with the same content"));
                meter.note(time, wrong);
            }
            _ => {}
        }
    }

    fn stamp(&mut self, time: Timestamp, stamp: i64, meter: &mut Meter) {
        let latency = time.as_nanos().saturating_sub(stamp);
        match self {
            Self::Latency(min, max) => {
                let wrong = match (*min, *max) {
                    (Some(min), _) if latency < min => Some(format!(
                        "{:.1} ms, at least {:.1} ms",
                        millis(latency),
                        millis(min)
                    )),
                    (_, Some(max)) if latency > max => Some(format!(
                        "{:.1} ms, at most {:.1} ms",
                        millis(latency),
                        millis(max)
                    )),
                    _ => None,
                };
                meter.note(
                    time,
                    wrong.map(|text| format!("received {text} after its header.stamp")),
                );
            }
            Self::Drift(drift) => drift.message(time, latency),
            Self::Stamps { is_strict, last } => {
                let step = last.replace(stamp).map(|last| stamp.saturating_sub(last));
                let wrong = match step {
                    Some(step) if step < 0 => {
                        Some(format!("header.stamp goes back by {:.3} ms", millis(-step)))
                    }
                    Some(0) if *is_strict => Some("header.stamp is that of the message before".to_owned()),
                    _ => None,
                };
                meter.note(time, wrong);
            }
            Self::Jump { max, last } => {
                let before = last.replace((stamp, time));
                let step = before.map(|(last, at)| {
                    stamp
                        .saturating_sub(last)
                        .saturating_sub(time.as_nanos().saturating_sub(at.as_nanos()))
                });
                let wrong = step.filter(|step| step.saturating_abs() > *max);
                meter.note(
                    time,
                    wrong.map(|step| format!("header.stamp jumps by {:.1} ms", millis(step))),
                );
            }
            _ => {}
        }
    }

    /// Forgets what came until `now`, of which some messages are unknown; true if that leaves something of the rule undecided.
    pub fn interrupt(&mut self, rule: &Rule, now: Timestamp) -> bool {
        match self {
            Self::None => return false,
            Self::First(_, has_come) => return !std::mem::replace(has_come, true),
            _ => *self = Self::new(rule, now),
        }
        true
    }

    /// Takes note that all messages before `now` were taken.
    pub fn time(&mut self, now: Timestamp, meter: &mut Meter) {
        match self {
            Self::Rate(windows) => windows.time(now, &mut |time, wrong| meter.note(time, wrong)),
            Self::Drift(drift) => {
                let most = drift.most();
                drift.time(now, &mut |time, ppm| meter.note(time, Drift::wrong(ppm, most)));
            }
            Self::Gap(max, last) => {
                let due = last.map(|last| last.saturating_add(*max));
                if let Some(due) = due.filter(|due| *due < now && !meter.is_open()) {
                    meter.note(due, Some(format!("no message for {} s", max.as_secs_f64())));
                }
            }
            Self::First(due, has_come) if !*has_come && *due < now && !meter.is_open() => {
                meter.note(*due, Some("no message by then".to_owned()));
            }
            _ => {}
        }
    }
}
