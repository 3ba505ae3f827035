//! Lock-step replay: holds messages back until those before them are answered, and hashes what was published.

use super::{
    answers::{AnswerReport, Answers, stamp_of},
    error::PlayError,
    options::ListenerCount,
    publications::Publications,
    status::{Lateness, LatenessMeter},
    step_goals::{Goals, Hold},
    step_ledger::{Arrival, Fit, Missing, Need, StepLedger},
    step_rule::{Lockstep, StepAnswer, StepRule},
    wake::Wake,
};
use holdall_bag::decode::{Decoders, HeaderStamp};
use holdall_model::{text::Outside, time::Timestamp, topic::TopicInfo};
use holdall_transport::{Delivery, GraphEvent, Transport};
use sha2::{Digest, Sha256};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// Time between two looks for acknowledgements and for answers that have to be fetched.
const POLL: Duration = Duration::from_micros(200);

/// Time between two looks at the graph: while publishers of answers are missing, and after that.
const LOOK_SOON: Duration = Duration::from_millis(20);
const LOOK_LATER: Duration = Duration::from_millis(100);

/// What lock-step replay has to say at its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepReport {
    /// Messages that waited for an answer, and requests that found no server.
    pub steps: u64,
    /// Those that were answered.
    pub answered: u64,
    /// Those whose answer did not come in time.
    pub missing: u64,
    /// The first of them, one sentence.
    pub first_missing: Option<String>,
    /// How long answers took.
    pub answer_time: Lateness,
    /// Bag time from the first message to the last one.
    pub span: Duration,
    /// SHA-256 of all messages in the order in which they were published, `/clock` from the first message on included.
    pub published_sha256: String,
    /// What came on the topics that answer.
    pub answers: BTreeMap<String, AnswerReport>,
}

/// A rule, with what it is about in this playback.
struct Rule {
    text: StepRule,
    /// Of which publications the messages are answered.
    inputs: BTreeSet<usize>,
    /// The topic of [`Answers`].
    topic: Option<usize>,
    /// The requests of an action.
    goals: Option<Goals>,
}

/// Lock-step replay of one playback; without rules it does nothing.
pub(super) struct Steps {
    rules: Vec<Rule>,
    ledger: StepLedger,
    answers: Answers,
    /// For the types of answers; `None` without rules.
    decoders: Option<Decoders>,
    /// By publication.
    stamps: Vec<Option<HeaderStamp>>,
    in_flight: usize,
    /// Publications that a reliable subscription of another process was matched with.
    taken: BTreeSet<usize>,
    /// Those that only others were matched with.
    unacknowledged: BTreeSet<usize>,
    meter: LatenessMeter,
    sequence: Sha256,
    first: Option<Timestamp>,
    last: Timestamp,
    first_missing: Option<String>,
}

impl Steps {
    /// Steps by these rules; `topics` are the topics of the bags, and `decoders` theirs, if there are rules.
    ///
    /// # Errors
    /// A rule about something that is not played.
    pub fn new(
        options: &Lockstep,
        publications: &Publications,
        topics: &[TopicInfo],
        mut decoders: Option<Decoders>,
        wake: &Arc<Wake>,
    ) -> Result<Self, PlayError> {
        let mut names: Vec<String> = Vec::new();
        let mut rules = Vec::new();
        for text in &options.rules {
            let refuse = |reason| PlayError::Step {
                rule: text.to_string(),
                reason,
            };
            let inputs = inputs_of(text, publications).map_err(refuse)?;
            let topic = match &text.answer {
                StepAnswer::Topic { name, .. } => {
                    let place = names.iter().position(|known| known == name);
                    Some(place.unwrap_or_else(|| {
                        names.push(name.clone());
                        names.len() - 1
                    }))
                }
                StepAnswer::Service(_) | StepAnswer::Action(_) | StepAnswer::Acknowledged => None,
            };
            let goals = match &text.answer {
                StepAnswer::Action(name) => Goals::of(name, publications),
                _ => None,
            };
            rules.push(Rule {
                text: text.clone(),
                inputs,
                topic,
                goals,
            });
        }
        let stamps = decoders.as_mut().map(|decoders| {
            let played = publications.recorded_topics();
            let stamp = |(name, type_name): (&str, &str)| {
                let is_it = |topic: &&TopicInfo| topic.name == name && topic.type_name == type_name;
                stamp_of(topics.iter().find(is_it)?, decoders)
            };
            played.map(stamp).collect()
        });
        Ok(Self {
            ledger: StepLedger::new(options.in_flight, options.timeout),
            answers: Answers::new(&names, wake),
            in_flight: options.in_flight.max(1),
            rules,
            decoders,
            stamps: stamps.unwrap_or_default(),
            taken: BTreeSet::new(),
            unacknowledged: BTreeSet::new(),
            meter: LatenessMeter::new(),
            sequence: Sha256::new(),
            first: None,
            last: Timestamp::default(),
            first_missing: None,
        })
    }

    /// Whether messages wait for answers.
    pub fn is_used(&self) -> bool {
        !self.rules.is_empty()
    }

    /// Takes what a transport has seen.
    pub fn note_graph(&mut self, events: &[GraphEvent], transport: &mut dyn Transport) {
        if let Some(decoders) = &mut self.decoders
            && !self.answers.is_empty()
        {
            self.answers.note(events, transport, decoders);
        }
    }

    /// Time until the next look at the graph; `None` if it does not matter here.
    pub fn look_interval(&self) -> Option<Duration> {
        let is_looking = self.answers.without_publisher().is_some();
        (!self.answers.is_empty()).then_some(if is_looking { LOOK_SOON } else { LOOK_LATER })
    }

    /// Publishers of answers that are matched.
    pub fn matched(&self) -> usize {
        self.answers.matched()
    }

    /// Whether servers must be there before the first message.
    pub fn needs_servers(&self) -> bool {
        self.rules.iter().any(|rule| rule.text.answer.is_of_server())
    }

    /// What is still missing before the first message, one clause.
    pub fn absent(&self, publications: &Publications) -> Option<String> {
        if let Some(topic) = self.answers.without_publisher() {
            return Some(format!("no publisher of {} exists", Outside(topic)));
        }
        let is_unserved = |input: &usize| {
            let requests = publications.requests_of(*input);
            requests.is_some_and(|requests| !requests.is_ready())
        };
        let mut rules = self.rules.iter().filter(|rule| rule.text.answer.is_of_server());
        let rule = rules.find(|rule| rule.inputs.iter().any(is_unserved))?;
        Some(format!("{} has no server", rule.text.answer))
    }

    /// Whether messages that wait for answers hold back one of the publication `next`, or the end: when to ask again, or why it ends.
    pub fn holds(
        &mut self,
        next: Option<usize>,
        now: Duration,
        publications: &Publications,
    ) -> Result<Option<Duration>, String> {
        if !self.is_used() {
            return Ok(None);
        }
        self.collect(now, publications);
        while let Some(missing) = self.ledger.take_missing(now) {
            let sentence = self.sentence(missing, publications);
            tracing::warn!("{sentence}");
            self.first_missing.get_or_insert(sentence);
        }
        let waits = self.is_held(next);
        if self.ledger.is_hopeless() {
            let first = self.first_missing.clone().unwrap_or_default();
            return Err(format!("too many answers in a row did not come: {first}"));
        }
        match self.answers.left() {
            Some(topic) if waits => {
                let (steps, answered, _) = self.ledger.counts();
                Err(format!(
                    "the last publisher of {} is gone, after {answered} answers to {steps} messages",
                    Outside(topic)
                ))
            }
            _ => Ok(waits.then(|| self.ask_again(now))),
        }
    }

    /// Whether what waits holds back a message of this publication; all of it holds back the end.
    fn is_held(&self, next: Option<usize>) -> bool {
        let Some(next) = next else {
            return self.ledger.waiting().next().is_some();
        };
        let hold = |rule: usize, waiting| {
            self.rules[rule]
                .goals
                .map_or(Hold::Counted, |goals| goals.hold(waiting, next))
        };
        let mut counted = 0;
        for (publication, rules) in self.ledger.waiting() {
            let mut is_counted = false;
            for rule in rules {
                match hold(rule, publication) {
                    Hold::Always => return true,
                    Hold::Counted => is_counted = true,
                    Hold::No => {}
                }
            }
            counted += usize::from(is_counted);
        }
        counted >= self.in_flight
    }

    fn ask_again(&self, now: Duration) -> Duration {
        let deadline = self.ledger.deadline().unwrap_or(now);
        let is_polled = |rule: &Rule| matches!(rule.text.answer, StepAnswer::Acknowledged);
        // The look at the graph shows when a publisher is gone.
        let look = now.saturating_add(LOOK_LATER);
        if self.answers.is_pumped() || self.rules.iter().any(is_polled) {
            return deadline.min(now.saturating_add(POLL));
        }
        deadline.min(look)
    }

    /// Takes the answers that have come.
    fn collect(&mut self, now: Duration, publications: &Publications) {
        let (rules, ledger) = (&self.rules, &mut self.ledger);
        self.answers.take(|topic, stamp| {
            let of_topic = rules
                .iter()
                .enumerate()
                .filter(|(_, rule)| rule.topic == Some(topic));
            of_topic.fold(Fit::Unasked, |fit, (number, _)| {
                fit.max(ledger.answer(number, stamp))
            })
        });
        ledger.collect(|rule, publication, number| {
            if rules[rule].text.answer == StepAnswer::Acknowledged {
                acknowledgement(publications.delivery(publication), number)
            } else {
                let requests = publications.requests_of(publication);
                requests.map_or(Arrival::Here, |requests| requests.arrival(number))
            }
        });
        ledger.take_answered(now, |span| self.meter.record(span));
    }

    /// A message was published.
    pub fn published(
        &mut self,
        (publication, stamp): (usize, Timestamp),
        payload: &[u8],
        now: Duration,
        publications: &Publications,
    ) {
        if !self.is_used() {
            return;
        }
        self.hash(publications.published_name(publication), stamp, payload);
        self.first.get_or_insert(stamp);
        self.last = stamp;
        self.note_readers(publication, publications);
        let mut needs = Vec::new();
        for (number, rule) in self.rules.iter().enumerate() {
            if rule.inputs.contains(&publication)
                && let Some(need) = self.need(rule, publication, payload, publications)
            {
                needs.push((number, need));
            }
        }
        if !needs.is_empty() {
            self.ledger.begin((publication, stamp), needs, now);
        }
    }

    /// Notes whether something acknowledges the messages of a publication that waits for all acknowledgements; warns if nothing does, once.
    fn note_readers(&mut self, publication: usize, publications: &Publications) {
        let waits = |rule: &Rule| {
            let is_of_all = rule.text.answer == StepAnswer::Acknowledged && rule.text.input.is_none();
            is_of_all && rule.inputs.contains(&publication)
        };
        if self.taken.contains(&publication) || !self.rules.iter().any(waits) {
            return;
        }
        let Some(delivery) = publications.delivery(publication) else {
            return;
        };
        if delivery.reliable_subscriptions > 0 {
            self.taken.insert(publication);
        } else if delivery.subscriptions > 0 && self.unacknowledged.insert(publication) {
            tracing::warn!(
                "{}: ack does not wait for its messages, because it has no reliable subscription",
                Outside(publications.published_name(publication))
            );
        }
    }

    /// What a message needs by a rule.
    fn need(
        &self,
        rule: &Rule,
        publication: usize,
        payload: &[u8],
        publications: &Publications,
    ) -> Option<Need> {
        match &rule.text.answer {
            StepAnswer::Topic {
                count: Some(count), ..
            } => Some(Need::Count(count.get())),
            StepAnswer::Topic { count: None, .. } => {
                let answers = rule.topic.and_then(|topic| self.answers.stamp(topic));
                let stamp = self.stamps.get(publication).and_then(Option::as_ref);
                let stamp = stamp.filter(|_| answers.is_some());
                let stamp = stamp.and_then(|stamp| stamp.read(payload).ok());
                Some(stamp.map_or(Need::Count(1), |stamp| Need::stamp(stamp.as_nanos())))
            }
            StepAnswer::Service(_) | StepAnswer::Action(_) => {
                Some(Need::Number(publications.requests_of(publication)?.last()))
            }
            StepAnswer::Acknowledged => {
                publications.delivery(publication)?;
                // What nothing acknowledges waits only where the rule names it.
                let is_step = rule.text.input.is_some() || self.taken.contains(&publication);
                is_step.then(|| Need::Number(publications.handed_over(publication)))
            }
        }
    }

    /// A request was not sent, and why.
    pub fn unsent(&mut self, request: (usize, Timestamp), reason: &'static str, now: Duration) {
        let mut needs = Vec::new();
        for (number, rule) in self.rules.iter().enumerate() {
            if rule.text.answer.is_of_server() && rule.inputs.contains(&request.0) {
                needs.push((number, Need::Never(reason)));
            }
        }
        if !needs.is_empty() {
            self.ledger.begin(request, needs, now);
        }
    }

    /// `/clock`, or state from before the beginning, was published.
    pub fn published_aside(&mut self, name: &str, stamp: Timestamp, payload: &[u8]) {
        if self.is_used() {
            self.hash(name, stamp, payload);
        }
    }

    fn hash(&mut self, name: &str, stamp: Timestamp, payload: &[u8]) {
        for part in [name.as_bytes(), &stamp.as_nanos().to_le_bytes(), payload] {
            self.sequence.update((part.len() as u64).to_le_bytes());
            self.sequence.update(part);
        }
    }

    /// The playback was moved to another point.
    pub fn forget(&mut self) {
        self.ledger.forget();
    }

    fn sentence(&self, missing: Missing, publications: &Publications) -> String {
        let reason = missing.reason().map(|reason| format!(": {reason}"));
        format!(
            "message {} that waits for an answer, of {} at {} ns, has none by {}{}",
            missing.number,
            Outside(publications.published_name(missing.publication)),
            missing.stamp.as_nanos(),
            self.rules[missing.rule].text.answer,
            reason.unwrap_or_default(),
        )
    }

    /// What lock-step replay has to say at its end; `None` without it.
    pub fn report(&self) -> Option<StepReport> {
        let (steps, answered, missing) = self.ledger.counts();
        self.is_used().then(|| StepReport {
            steps,
            answered,
            missing,
            first_missing: self.first_missing.clone(),
            answer_time: self.meter.summary(),
            span: self
                .first
                .map_or(Duration::ZERO, |first| self.last.saturating_since(first)),
            published_sha256: hex(&self.sequence),
            answers: self.answers.reports(),
        })
    }
}

/// Subscriptions that must exist before the first message: those of what is answered.
pub(super) fn listeners(options: &Lockstep, wanted: &[ListenerCount]) -> Vec<ListenerCount> {
    let mut all = wanted.to_vec();
    for rule in &options.rules {
        let is_same = |known: &ListenerCount| known.topic == rule.input;
        if !rule.answer.is_of_server() && !all.iter().any(is_same) {
            all.push(ListenerCount {
                topic: rule.input.clone(),
                count: 1,
            });
        }
    }
    all
}

/// The publications whose messages a rule is about, or one clause why it makes no sense.
fn inputs_of(rule: &StepRule, publications: &Publications) -> Result<BTreeSet<usize>, String> {
    let is_named = |index: usize, name: &str| {
        publications.published_name(index) == name || publications.recorded_names()[index] == name
    };
    let service = match &rule.answer {
        StepAnswer::Service(name) => Some(name),
        StepAnswer::Topic { name, .. } if publications.published_names().any(|played| played == *name) => {
            return Err(format!(
                "{} is played itself, so that its messages cannot be answers; exclude or rename it",
                Outside(name)
            ));
        }
        StepAnswer::Action(name) => {
            let goals = Goals::of(name, publications);
            let refused = || {
                format!(
                    "no recorded goals of {} and requests of their results are sent again",
                    Outside(name)
                )
            };
            return Ok(goals.ok_or_else(refused)?.inputs().into());
        }
        StepAnswer::Topic { .. } | StepAnswer::Acknowledged => None,
    };
    let all = 0..publications.recorded_names().len();
    let inputs: BTreeSet<usize> = match (&rule.input, service) {
        (_, Some(service)) => all.filter(|index| publications.calls(*index, service)).collect(),
        (Some(input), None) => all.filter(|index| is_named(*index, input)).collect(),
        (None, None) => all.collect(),
    };
    if let (true, Some(service)) = (inputs.is_empty(), service) {
        return Err(format!(
            "no recorded requests of {} are sent again",
            Outside(service)
        ));
    }
    if inputs.is_empty() {
        let input = rule.input.as_deref().unwrap_or_default();
        return Err(format!("{} is not played", Outside(input)));
    }
    let is_acknowledged = |index: &usize| publications.delivery(*index).is_some();
    if rule.answer == StepAnswer::Acknowledged && !inputs.iter().any(is_acknowledged) {
        return Err(
            "nothing is acknowledged: it is offered as best effort, or the transport does not say".to_owned(),
        );
    }
    Ok(inputs)
}

/// Whether this number of messages was acknowledged. Without a reliable subscription none is, though nothing waits for it.
fn acknowledgement(delivery: Option<Delivery>, number: u64) -> Arrival {
    match delivery {
        Some(delivery) if delivery.reliable_subscriptions == 0 => {
            Arrival::Never("no reliable subscription is matched")
        }
        Some(delivery) if delivery.acknowledged < number => Arrival::Pending,
        // What does not know of acknowledgements was not let in.
        _ => Arrival::Here,
    }
}

pub(super) fn hex(hash: &Sha256) -> String {
    let digest = hash.clone().finalize();
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
