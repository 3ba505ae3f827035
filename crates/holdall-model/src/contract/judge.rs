//! Judges a recording by a contract: puts the facts of messages in the order of their times, and steps the machines of all rules.

use super::{
    meter::Meter,
    parse::{Contract, Rule, Severity},
    sample::{Sample, Want},
    skew::Skew,
    topic::{Topic, note_lost, outside},
    tree::{self, Connected},
    verdict::{Ending, LISTED_MAX, Lost, Outcome, RuleVerdict, Verdict, Violation},
    waiting::Waiting,
};
use crate::{
    dynamic::TypePlan,
    episode::{EpisodeEnd, OUTCOME},
    qos::QosProfile,
    time::Timestamp,
    topic::TopicInfo,
    units::{counted, format_bytes},
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

/// How much later than a message's time its time is judged.
const LATE_MAX: Duration = Duration::from_millis(500);
/// How much later messages may make it judged: it may wait for its definition.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Facts that wait for earlier ones, in bytes: beyond, the earliest are judged at once.
const WAITING_BYTES_MAX: usize = 64 << 20;
/// Why a rule is not decided whose messages had no room.
const NO_ROOM: &str = "messages came faster than they could be judged";
/// Rules on topics, all together, and topics; further topics are counted.
const WATCHED_MAX: usize = 50_000;
const TOPICS_MAX: usize = 100_000;

/// A topic of a judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicSlot(u32);

/// When a message arrived, and when it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Reception time.
    pub log_time: Timestamp,
    /// Send time; equal to `log_time` if it is not known.
    pub publish_time: Timestamp,
}

/// A rule about the whole bag that only the end decides.
#[derive(Debug)]
struct AtEnd(Meter);

/// Judges a recording, message by message.
#[derive(Debug)]
pub struct Judge {
    contract: Arc<Contract>,
    start: Timestamp,
    topics: Vec<Topic>,
    by_name: HashMap<(String, String), u32>,
    /// Topics that the contract names, until their type is known.
    expected: HashMap<String, u32>,
    watched: usize,
    /// Topics whose first messages have expired.
    expired: BTreeMap<String, Option<Timestamp>>,
    trees: Vec<Connected>,
    skews: Vec<Skew>,
    at_end: Vec<AtEnd>,
    waiting: Waiting,
    /// The time of the last message that was judged, or until which all were.
    judged: Timestamp,
    last: Option<Timestamp>,
    not_judged: u64,
    is_interrupted: bool,
}

impl Judge {
    /// A judge of a recording that begins at `start`, in log time.
    pub fn new(contract: Arc<Contract>, start: Timestamp) -> Self {
        let mut judge = Self {
            contract: Arc::clone(&contract),
            start,
            topics: Vec::new(),
            by_name: HashMap::new(),
            expected: HashMap::new(),
            watched: 0,
            expired: BTreeMap::new(),
            trees: Vec::new(),
            skews: Vec::new(),
            at_end: Vec::new(),
            waiting: Waiting::default(),
            judged: Timestamp::from_nanos(i64::MIN),
            last: None,
            not_judged: 0,
            is_interrupted: false,
        };
        for (number, rule) in contract.rules.iter().enumerate() {
            let meter = Meter::new(number, rule.tolerance);
            match (&rule.topic, rule.kind()) {
                (Some(topic), _) if !topic.is_pattern() && !judge.expected.contains_key(topic.as_str()) => {
                    let place = judge.add_topic(topic.as_str());
                    judge.expected.insert(topic.as_str().to_owned(), place);
                }
                (Some(_), _) => {}
                (None, "tf") => judge.trees.push(Connected::new(rule, meter, start)),
                (None, "skew") => judge.skews.push(Skew::new(rule, meter)),
                (None, _) => judge.at_end.push(AtEnd(meter)),
            }
        }
        judge
    }

    /// The same for a recording whose first messages of these topics have expired; each has when those that are left begin.
    #[must_use]
    pub fn after_expiry(mut self, expired: BTreeMap<String, Option<Timestamp>>) -> Self {
        let topics = self.topics.iter_mut();
        topics
            .filter(|topic| expired.contains_key(&*topic.name))
            .for_each(Topic::expire);
        self.trees.iter_mut().for_each(|tree| tree.expire(&expired));
        self.expired = expired;
        self
    }

    fn add_topic(&mut self, name: &str) -> u32 {
        let mut topic = Topic::new(name, &self.contract, self.start);
        if self.expired.contains_key(name) {
            topic.expire();
        }
        self.watched += topic.rules();
        // Their number is bounded by that of the rules on them and the topics of the recording.
        let place = self.topics.len() as u32;
        self.topics.push(topic);
        place
    }

    /// A topic of the recording, with the plan of its type or why it has none. `None` if no rule needs its messages.
    pub fn topic(&mut self, info: &TopicInfo, plan: &Result<Arc<TypePlan>, String>) -> Option<TopicSlot> {
        let key = (info.name.clone(), info.type_name.clone());
        if let Some(known) = self.by_name.get(&key) {
            return Some(TopicSlot(*known));
        }
        if self.watched > WATCHED_MAX || self.topics.len() >= TOPICS_MAX {
            self.not_judged += 1;
            return None;
        }
        let place = match self.expected.remove(&info.name) {
            Some(place) => place,
            None => self.add_topic(&info.name),
        };
        self.define(TopicSlot(place), info, plan);
        if let Err(reason) = plan {
            let trees = self.trees.iter_mut().filter(|tree| tree.has(&info.name));
            trees.for_each(|tree| tree.meter.set_unknown(format!("{}: {reason}", info.name)));
        }
        self.by_name.insert(key, place);
        Some(TopicSlot(place))
    }

    /// The plan of a topic's type is known later than the topic.
    pub fn define(&mut self, slot: TopicSlot, info: &TopicInfo, plan: &Result<Arc<TypePlan>, String>) {
        let is_stamped = self.skews.iter().any(|skew| skew.topics.contains(&info.name));
        let has_edges = self.trees.iter().any(|tree| tree.has(&info.name));
        if let Some(topic) = self.topics.get_mut(slot.0 as usize) {
            topic.define(info, plan, &self.contract, (has_edges, is_stamped));
        }
    }

    /// A publisher of a topic offers this QoS.
    pub fn offer(&mut self, slot: TopicSlot, qos: QosProfile) {
        if let Some(topic) = self.topics.get_mut(slot.0 as usize) {
            topic.offer(qos, &self.contract);
        }
    }

    /// Messages of a topic do not have the content that was received, for this reason; its plan is the same reason.
    pub fn leave_out_content(&mut self, slot: TopicSlot, reason: &str) {
        if let Some(topic) = self.topics.get_mut(slot.0 as usize) {
            topic.leave_out_content(reason, &self.contract);
        }
    }

    /// How much of a topic's payloads is needed.
    pub fn want(&self, slot: TopicSlot) -> Want {
        self.topics.get(slot.0 as usize).map_or(Want::Size, Topic::want)
    }

    /// Takes a message. Messages may come in any order within five seconds.
    pub fn message(&mut self, slot: TopicSlot, arrival: Arrival, sample: &Sample) {
        let Some(topic) = self.topics.get(slot.0 as usize) else {
            return;
        };
        let times = (arrival.log_time, arrival.publish_time);
        let facts = topic.reader.facts(slot.0, &topic.name, times, sample);
        if facts.time < self.judged {
            self.not_judged += 1;
            return;
        }
        self.last = self.last.max(Some(facts.time));
        self.waiting.push(facts);
        let until = self.last.map(|last| earlier(last, WAIT_MAX));
        while self.waiting.bytes > WAITING_BYTES_MAX
            || self
                .waiting
                .first()
                .is_some_and(|first| until.is_some_and(|until| first.time < until))
        {
            self.judge_first();
        }
    }

    /// Takes note that it is `now`, in log time, and that all messages of the last half second before may still come.
    pub fn advance(&mut self, now: Timestamp) {
        let until = earlier(now, LATE_MAX);
        while self.waiting.first().is_some_and(|first| first.time < until) {
            self.judge_first();
        }
        self.time(until);
    }

    /// So many messages had no room and are not judged: what came before says nothing of what comes after.
    pub fn interrupt(&mut self, missed: u64) {
        while self.waiting.first().is_some() {
            self.judge_first();
        }
        self.is_interrupted = true;
        self.not_judged = self.not_judged.saturating_add(missed);
        let (now, contract) = (self.judged.max(self.start), &self.contract);
        self.topics
            .iter_mut()
            .for_each(|topic| topic.interrupt(now, NO_ROOM, contract));
        self.trees
            .iter_mut()
            .for_each(|tree| tree.interrupt(now, NO_ROOM));
        self.skews.iter_mut().for_each(|skew| skew.interrupt(NO_ROOM));
    }

    /// Messages and topics that were not judged until now.
    pub fn not_judged(&self) -> u64 {
        self.not_judged
    }

    fn judge_first(&mut self) {
        let Some(facts) = self.waiting.pop() else { return };
        self.judged = facts.time;
        if !facts.edges.is_empty() {
            let is_static = tree::is_static(&facts.name);
            let trees = self.trees.iter_mut().filter(|tree| tree.has(&facts.name));
            trees.for_each(|tree| tree.message(facts.time, &facts.edges, is_static));
        }
        if let Some(stamp) = facts.stamp {
            let skews = self
                .skews
                .iter_mut()
                .filter(|skew| skew.topics.iter().any(|name| **name == *facts.name));
            skews.for_each(|skew| skew.message(&facts.name, facts.time, stamp));
        }
        if let Some(topic) = self.topics.get_mut(facts.topic as usize) {
            topic.message(&facts, &self.contract);
        }
    }

    /// All messages before `until` were judged.
    fn time(&mut self, until: Timestamp) {
        if until < self.judged {
            return;
        }
        self.judged = until;
        self.topics
            .iter_mut()
            .filter(|topic| topic.is_watched())
            .for_each(|topic| topic.time(until));
        self.trees.iter_mut().for_each(|tree| tree.time(until));
        self.skews.iter_mut().for_each(|skew| skew.time(until));
    }

    /// What began or ended since the last call, of rules that are broken, with the rule.
    pub fn take_news(&mut self) -> Vec<(Violation, &Rule)> {
        let mut news = Vec::new();
        self.topics
            .iter_mut()
            .for_each(|topic| topic.take_news(&mut news));
        let of_bag = self.trees.iter_mut().map(|tree| &mut tree.meter);
        let of_bag = of_bag.chain(self.skews.iter_mut().map(|skew| &mut skew.meter));
        of_bag
            .chain(self.at_end.iter_mut().map(|rule| &mut rule.0))
            .for_each(|meter| meter.take_news(None, &mut news));
        news.into_iter()
            .map(|violation| (self.contract.rules.get(violation.rule), violation))
            .filter_map(|(rule, violation)| Some((violation, rule?)))
            .collect()
    }

    /// The worst of what is known until now; what is unknown shows at the end.
    pub fn outcome(&self) -> Outcome {
        let broken = self.meters().filter(|(_, meter)| meter.is_broken());
        broken
            .map(|(_, meter)| of_severity(self.contract.rules[meter.rule].severity))
            .max()
            .unwrap_or_default()
    }

    /// Each rule on each topic with what is known until now: the topic, the kind of the rule, and whether it is broken.
    pub(super) fn standings(&self) -> impl Iterator<Item = (Option<&str>, &str, Outcome)> {
        self.meters().map(|(topic, meter)| {
            let rule = &self.contract.rules[meter.rule];
            let outcome = match meter.is_broken() {
                true => of_severity(rule.severity),
                false => Outcome::Passed,
            };
            (topic, rule.kind(), outcome)
        })
    }

    /// The contract.
    pub fn contract(&self) -> &Arc<Contract> {
        &self.contract
    }

    fn meters(&self) -> impl Iterator<Item = (Option<&str>, &Meter)> {
        let of_topics = self
            .topics
            .iter()
            .flat_map(|topic| topic.meters().map(|meter| (Some(&*topic.name), meter)));
        let of_bag = self
            .trees
            .iter()
            .map(|tree| &tree.meter)
            .chain(self.skews.iter().map(|skew| &skew.meter));
        of_topics.chain(
            of_bag
                .chain(self.at_end.iter().map(|rule| &rule.0))
                .map(|meter| (None, meter)),
        )
    }

    /// Ends the recording, and returns the verdict.
    pub fn end(&mut self, ending: &Ending) -> Verdict {
        while self.waiting.first().is_some() {
            self.judge_first();
        }
        self.time(ending.end.max(self.judged));
        let contract = Arc::clone(&self.contract);
        self.topics
            .iter_mut()
            .for_each(|topic| topic.end(ending, &contract));
        for tree in &mut self.trees {
            let mut topics = self.topics.iter();
            let is_heard = topics.any(|topic| topic.has_messages() && tree.has(&topic.name));
            if tree.left_out > 0 {
                tree.meter.leave_out("there are too many frames");
            } else if !tree.meter.has_checked() && tree.meter.unknown().is_none() {
                tree.meter
                    .set_unknown("the recording is shorter than the time that the tree may take");
            } else if !is_heard {
                tree.meter
                    .set_unknown(format!("no message came on {}", tree.topics()));
            }
        }
        for skew in &mut self.skews {
            skew.end(ending.end);
            if !skew.meter.has_checked() {
                skew.meter.set_unknown(format!(
                    "no stamps of {} can be compared",
                    skew.topics.join(" and ")
                ));
            }
        }
        let heard: BTreeSet<&str> = self
            .topics
            .iter()
            .filter(|topic| topic.has_messages())
            .map(|topic| &*topic.name)
            .chain(ending.expired.keys().map(String::as_str))
            .collect();
        for AtEnd(meter) in &mut self.at_end {
            let heard = (heard.len() as u64, self.is_interrupted);
            at_end(&contract.rules[meter.rule], meter, ending, heard);
        }
        self.verdict(ending)
    }

    fn verdict(&self, ending: &Ending) -> Verdict {
        let mut verdict = Verdict {
            contract: self.contract.name.clone(),
            not_judged: self.not_judged,
            expired: self.expired.clone(),
            ..Verdict::default()
        };
        for (topic, meter) in self.meters() {
            verdict.rules.push(self.result(topic, meter));
            let listed = meter.violations().map(|violation| Violation {
                topic: topic.map(str::to_owned),
                ..violation.clone()
            });
            let before = verdict.violations.len();
            verdict.violations.extend(listed);
            verdict.more_violations += meter.counts().1 - (verdict.violations.len() - before) as u64;
        }
        let is_used: HashSet<usize> = verdict.rules.iter().map(|rule| rule.rule).collect();
        for (number, rule) in self
            .contract
            .rules
            .iter()
            .enumerate()
            .filter(|(number, _)| !is_used.contains(number))
        {
            self.add_unmatched(number, rule, ending, &mut verdict);
        }
        verdict
            .rules
            .sort_by(|a, b| (a.rule, &a.topic).cmp(&(b.rule, &b.topic)));
        verdict
            .violations
            .sort_by(|a, b| (a.since, &a.topic, a.rule, &a.text).cmp(&(b.since, &b.topic, b.rule, &b.text)));
        verdict.more_violations += verdict.violations.len().saturating_sub(LISTED_MAX) as u64;
        verdict.violations.truncate(LISTED_MAX);
        verdict.outcome = verdict
            .rules
            .iter()
            .map(|rule| rule.outcome)
            .max()
            .unwrap_or_default();
        if verdict.not_judged > 0 {
            verdict.outcome = verdict.outcome.max(Outcome::Unknown);
        }
        verdict
    }

    fn result(&self, topic: Option<&str>, meter: &Meter) -> RuleVerdict {
        let rule = &self.contract.rules[meter.rule];
        let (checked, violations, left_out) = meter.counts();
        let outcome = match meter.unknown() {
            _ if meter.is_broken() => of_severity(rule.severity),
            Some(_) => Outcome::Unknown,
            None => Outcome::Passed,
        };
        let unknown = meter
            .unknown()
            .filter(|_| outcome == Outcome::Unknown)
            .map(str::to_owned);
        RuleVerdict {
            rule: meter.rule,
            kind: rule.kind().to_owned(),
            topic: topic.map(str::to_owned),
            severity: rule.severity,
            outcome,
            checked,
            violations,
            left_out,
            reason: unknown.or_else(|| rule.reason.clone()),
        }
    }

    /// A pattern that no topic matches.
    fn add_unmatched(&self, number: usize, rule: &Rule, ending: &Ending, verdict: &mut Verdict) {
        let Some(pattern) = &rule.topic else { return };
        let mut meter = Meter::new(number, rule.tolerance);
        if rule.kind() == "required" && rule.flag("is") {
            meter.note(ending.end, Some("no topic matches the pattern".to_owned()));
        } else {
            meter.set_unknown("no topic matches the pattern");
        }
        let topic = Some(pattern.as_str());
        verdict
            .violations
            .extend(meter.violations().map(|violation| Violation {
                topic: topic.map(str::to_owned),
                ..violation.clone()
            }));
        verdict.rules.push(self.result(topic, &meter));
    }
}

fn earlier(time: Timestamp, span: Duration) -> Timestamp {
    Timestamp::from_nanos(time.as_nanos().saturating_sub(span.as_nanos() as i64))
}

const fn of_severity(severity: Severity) -> Outcome {
    match severity {
        Severity::Fail => Outcome::Failed,
        Severity::Warn => Outcome::Warned,
    }
}

/// Judges a rule about the whole bag at its end.
fn at_end(rule: &Rule, meter: &mut Meter, ending: &Ending, (heard, is_interrupted): (u64, bool)) {
    let wrong = match rule.kind() {
        "duration" if ending.is_start_unknown => {
            return meter.set_unknown("the beginning of the recording has expired");
        }
        "duration" => {
            let span = ending.end.saturating_since(ending.start);
            match (rule.span("min"), rule.span("max")) {
                (Some(min), _) if span < min => Some(format!(
                    "{:.1} s, at least {} s",
                    span.as_secs_f64(),
                    min.as_secs_f64()
                )),
                (_, Some(max)) if span > max => Some(format!(
                    "{:.1} s, at most {} s",
                    span.as_secs_f64(),
                    max.as_secs_f64()
                )),
                _ => None,
            }
        }
        "topics" if is_interrupted => return meter.set_unknown(NO_ROOM),
        "topics" => outside(rule, heard, "topics with messages"),
        "episodes" => wrong_episodes(rule, ending),
        "losses" => match &ending.losses {
            None => return meter.set_unknown("the bag has no account of losses"),
            Some(losses) => return note_lost(rule, meter, ending.end, &Lost::of_all(losses.values())),
        },
        "disk_left" => match (ending.disk_left, rule.count("min")) {
            (None, _) => return meter.set_unknown("the free space at the end is not known"),
            (Some(left), Some(least)) if left < least => Some(format!(
                "{} left, at least {}",
                format_bytes(left),
                format_bytes(least)
            )),
            _ => None,
        },
        _ => return,
    };
    meter.note(ending.end, wrong);
}

fn wrong_episodes(rule: &Rule, ending: &Ending) -> Option<String> {
    let kept = ending.episodes.iter();
    let kept = kept.filter(|episode| episode.end != EpisodeEnd::Discarded);
    let is_good = |outcome: Option<&String>| outcome.is_some_and(|outcome| outcome == "success");
    let good = kept
        .clone()
        .filter(|episode| is_good(episode.fields.get(OUTCOME)));
    let (count, good) = (kept.clone().count() as u64, good.count() as u64);
    let least = rule.count("success_min").filter(|least| good < *least);
    let wrong = outside(rule, count, "episodes");
    wrong.or_else(|| {
        least.map(|least| {
            format!(
                "{} with outcome success, at least {least}",
                counted(good, "episode")
            )
        })
    })
}
