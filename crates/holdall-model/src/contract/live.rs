//! Judges a recording while it runs: takes what its recorder wrote, in that order, and makes alarms of the rules that are broken.

use super::{
    judge::{Arrival, Judge, TopicSlot},
    parse::{Contract, Rule, Severity},
    sample::Sample,
    standing::Standings,
    topic::plan_of,
    verdict::{Ending, Outcome, Verdict, Violation},
};
use crate::{
    alarm::{AlarmEdge, AlarmLatch},
    dynamic::TypePlan,
    qos::QosProfile,
    time::Timestamp,
    topic::{MessageDefinition, TopicInfo},
};
use serde::Serialize;
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

/// An alarm of a rule is over when nothing was wrong for this long.
const CALM: Duration = Duration::from_secs(5);

/// What a recorder has for the judge, in its order.
#[derive(Debug)]
pub enum News {
    /// Messages of this topic will come, with its number.
    Topic(u32, Box<TopicInfo>, Box<MessageDefinition>),
    /// The definition of a topic has come later than its messages.
    Define(u32, Box<MessageDefinition>),
    /// A publisher of a topic offers this.
    Offer(u32, QosProfile),
    /// A message was written.
    Message(u32, Arrival, Sample),
    /// It is this time, and all messages before have come but those of the last half second.
    Time(Timestamp),
    /// So many messages had no room here.
    Missed(u64),
}

impl News {
    /// Memory that it takes, about.
    pub fn held_bytes(&self) -> usize {
        size_of::<Self>()
            + match self {
                Self::Message(_, _, sample) => sample.held_bytes(),
                Self::Topic(..) | Self::Define(..) | Self::Offer(..) | Self::Time(_) | Self::Missed(_) => 0,
            }
    }
}

/// An alarm about a rule begins or ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleAlarm {
    /// Which of both.
    pub edge: AlarmEdge,
    /// Full name of the topic; `None` for the whole recording.
    pub topic: Option<String>,
    /// One clause for people, the same at the end.
    pub text: String,
    /// When it began or ended, in log time.
    pub time: Timestamp,
}

/// What a contract says of a recording until now, and at its end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ContractStatus {
    /// The contract's name.
    pub name: String,
    /// The worst until now; only the end shows what is unknown.
    pub outcome: Outcome,
    /// Rules on topics that are broken until now.
    pub broken: usize,
    /// Messages and topics that were not judged.
    pub not_judged: u64,
    /// What is known of each topic.
    #[serde(flatten)]
    pub standings: Standings,
    /// At the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
}

impl ContractStatus {
    /// Whether a rule whose violation makes a recording unusable is broken.
    pub fn has_failed(&self) -> bool {
        self.outcome == Outcome::Failed
    }

    /// One clause.
    pub fn line(&self) -> String {
        let outcome = self.outcome.as_str();
        match &self.verdict {
            Some(verdict) => verdict.line(),
            None if self.broken > 0 => format!("{outcome} ({} broken)", self.broken),
            None => format!("{outcome} so far"),
        }
    }
}

struct LiveTopic {
    info: TopicInfo,
    plan: Result<Arc<TypePlan>, String>,
    /// `None` before the beginning, and of a topic that is not judged.
    slot: Option<TopicSlot>,
}

/// A rule on a topic that is broken.
struct Active {
    latch: AlarmLatch,
    text: String,
    is_open: bool,
    /// When the last violation was over.
    until: Timestamp,
    /// The alarm is not over.
    is_alarm: bool,
}

/// Judges a recording while it runs.
pub struct LiveJudge {
    contract: Arc<Contract>,
    /// From the first time on that is known.
    judge: Option<Judge>,
    topics: HashMap<u32, LiveTopic>,
    broken: BTreeMap<(Option<String>, usize), Active>,
    verdict: Option<Verdict>,
}

impl LiveJudge {
    /// A judge of a recording that has not begun.
    pub fn new(contract: Arc<Contract>) -> Self {
        Self {
            contract,
            judge: None,
            topics: HashMap::new(),
            broken: BTreeMap::new(),
            verdict: None,
        }
    }

    /// The recording begins with the first time that comes here.
    fn begun(&mut self, time: Timestamp) -> &mut Judge {
        let (contract, topics) = (&self.contract, &mut self.topics);
        self.judge.get_or_insert_with(|| {
            let mut judge = Judge::new(Arc::clone(contract), time);
            for topic in topics.values_mut() {
                topic.slot = judge.topic(&topic.info, &topic.plan);
            }
            judge
        })
    }

    /// Takes what comes next.
    pub fn take(&mut self, news: News) {
        match news {
            News::Topic(number, info, definition) => {
                let plan = plan_of(Some(&definition), &info);
                let slot = self.judge.as_mut().and_then(|judge| judge.topic(&info, &plan));
                let info = *info;
                self.topics.insert(number, LiveTopic { info, plan, slot });
            }
            News::Define(number, definition) => {
                let Some(topic) = self.topics.get_mut(&number) else {
                    return;
                };
                topic.plan = plan_of(Some(&definition), &topic.info);
                if let (Some(judge), Some(slot)) = (&mut self.judge, topic.slot) {
                    judge.define(slot, &topic.info, &topic.plan);
                }
            }
            News::Offer(number, qos) => {
                let Some(topic) = self.topics.get_mut(&number) else {
                    return;
                };
                topic.info.add_offer(qos);
                if let (Some(judge), Some(slot)) = (&mut self.judge, topic.slot) {
                    judge.offer(slot, qos);
                }
            }
            News::Message(number, arrival, sample) => {
                self.begun(arrival.log_time);
                let slot = self.topics.get(&number).and_then(|topic| topic.slot);
                if let (Some(judge), Some(slot)) = (&mut self.judge, slot) {
                    judge.message(slot, arrival, &sample);
                }
            }
            News::Time(now) => self.begun(now).advance(now),
            News::Missed(count) => {
                if let Some(judge) = &mut self.judge {
                    judge.interrupt(count);
                }
            }
        }
    }

    /// Alarms that began or ended since the last call; `now` is monotonic.
    pub fn alarms(&mut self, now: Duration) -> Vec<RuleAlarm> {
        let mut alarms = Vec::new();
        let news = self.judge.as_mut().map(Judge::take_news).unwrap_or_default();
        for (violation, rule) in news {
            let key = (violation.topic.clone(), violation.rule);
            let active = self.broken.entry(key).or_insert_with(|| Active {
                latch: AlarmLatch::new(CALM),
                text: String::new(),
                is_open: false,
                until: violation.since,
                is_alarm: false,
            });
            active.is_open = violation.until.is_none();
            active.until = violation.until.unwrap_or(violation.since);
            if active.latch.note(true, now) == Some(AlarmEdge::Begin) {
                active.text = text_of(rule, &violation);
                active.is_alarm = true;
                alarms.push(RuleAlarm {
                    edge: AlarmEdge::Begin,
                    topic: violation.topic,
                    text: active.text.clone(),
                    time: violation.since,
                });
            }
        }
        for ((topic, _), active) in self.broken.iter_mut().filter(|(_, active)| active.is_alarm) {
            if active.latch.note(active.is_open, now) == Some(AlarmEdge::End) {
                active.is_alarm = false;
                alarms.push(RuleAlarm {
                    edge: AlarmEdge::End,
                    topic: topic.clone(),
                    text: active.text.clone(),
                    time: active.until,
                });
            }
        }
        alarms
    }

    /// What is known until now.
    pub fn status(&self) -> ContractStatus {
        let judge = self.judge.as_ref();
        let outcome = judge.map(Judge::outcome).unwrap_or_default();
        let of_verdict = self.verdict.as_ref().map(|verdict| {
            let rules = verdict.rules.iter();
            Standings::of(rules.map(|rule| (rule.topic.as_deref(), &*rule.kind, rule.outcome)))
        });
        let of_judge = || judge.map(|judge| Standings::of(judge.standings()));
        ContractStatus {
            name: self.contract.name.clone(),
            outcome: self.verdict.as_ref().map_or(outcome, |verdict| verdict.outcome),
            broken: self.broken.len(),
            not_judged: judge.map_or(0, Judge::not_judged),
            standings: of_verdict.or_else(of_judge).unwrap_or_default(),
            verdict: self.verdict.clone(),
        }
    }

    /// Ends the recording, and returns the verdict.
    pub fn end(&mut self, ending: &Ending) -> Verdict {
        let verdict = self.begun(ending.start).end(ending);
        self.verdict = Some(verdict.clone());
        verdict
    }
}

fn text_of(rule: &Rule, violation: &Violation) -> String {
    let severity = match rule.severity {
        Severity::Fail => "",
        Severity::Warn => ", a warning",
    };
    let topic = violation.topic.as_deref().unwrap_or("bag");
    let reason = rule.reason.as_deref();
    let reason = reason.map_or_else(String::new, |reason| format!(" ({reason})"));
    format!(
        "{topic}: contract{severity}: {}: {}{reason}",
        rule.kind(),
        violation.text
    )
}
