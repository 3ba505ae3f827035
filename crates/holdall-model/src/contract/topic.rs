//! The rules of one topic: which there are, what its type and its publishers are, and its machines.

use super::{
    content::{Facts, Reader},
    machine::Machine,
    meter::Meter,
    parse::{Contract, Rule},
    sample::Want,
    tree,
    verdict::{Ending, LIVE_MAX, Lost},
};
use crate::{
    dynamic::TypePlan,
    interface::{Definition, bundle::Bundle},
    qos::{Durability, History, QosProfile, Reliability},
    time::Timestamp,
    topic::{DefinitionEncoding, MessageDefinition, TopicInfo},
};
use std::{sync::Arc, time::Duration};

/// A rule on a topic.
#[derive(Debug)]
struct Watched {
    machine: Machine,
    meter: Meter,
}

/// A topic that some rule is about.
#[derive(Debug)]
pub(super) struct Topic {
    pub name: Arc<str>,
    /// Its type; `None` until it is known.
    pub type_name: Option<String>,
    pub reader: Reader,
    watched: Vec<Watched>,
    want: Want,
    info: Option<TopicInfo>,
    messages: u64,
    /// The time of its first message.
    first: Option<Timestamp>,
    /// Its first messages have expired.
    has_expired: bool,
    /// Some messages were not judged, and may have been of this topic.
    is_interrupted: bool,
}

/// How much of a topic's payloads the rules of a contract need; a stamp that may not come first needs [`Want::Sparse`].
pub fn want_of(contract: &Contract, topic: &str) -> Want {
    let of_rule = |rule: &Rule| match (&rule.topic, rule.kind()) {
        (Some(of), _) if !of.matches(topic) => Want::Size,
        (Some(_), "must" | "never" | "non_finite") => Want::Whole,
        (Some(_), "frozen" | "image" | "cloud" | "frame") => Want::Sparse,
        (Some(_), "latency" | "drift" | "stamps" | "jump") => Want::Stamp,
        (None, "tf") if tree::topics_of(rule).contains(&topic) => Want::Whole,
        (None, "skew") if rule.names("topics").iter().any(|name| name == topic) => Want::Stamp,
        _ => Want::Size,
    };
    contract.rules.iter().map(of_rule).max().unwrap_or_default()
}

/// The plan of a topic's type from its stored definition, or from the embedded one where it has the same hash or none is known.
///
/// # Errors
/// Why it has none, one clause.
pub fn plan_of(stored: Option<&MessageDefinition>, info: &TopicInfo) -> Result<Arc<TypePlan>, String> {
    if !matches!(info.serialization_format.as_str(), "cdr" | "") {
        return Err(format!(
            "its messages are encoded as {}",
            info.serialization_format
        ));
    }
    let (bundle, type_name) = (Bundle::embedded(), &info.type_name);
    let stored =
        stored.filter(|stored| stored.encoding != DefinitionEncoding::Unknown && !stored.is_name_only());
    let definition = match stored {
        Some(stored) => Definition::from_stored_as(stored, type_name, |name| bundle.get(name))
            .map_err(|error| error.to_string())?,
        None => {
            let hash = &info.type_description_hash;
            let found = bundle.define(type_name).ok();
            let found = found.filter(|definition| hash.is_empty() || definition.type_hash() == *hash);
            found.ok_or_else(|| format!("no definition of {type_name} is known"))?
        }
    };
    TypePlan::compile(&definition)
        .map(Arc::new)
        .map_err(|error| error.to_string())
}

impl Topic {
    /// A topic with its rules, whose type is not known.
    pub fn new(name: &str, contract: &Contract, start: Timestamp) -> Self {
        let is_of = |rule: &&Rule| rule.topic.as_ref().is_some_and(|topic| topic.matches(name));
        let rules = contract.rules.iter().enumerate().filter(|(_, rule)| is_of(rule));
        let watched = rules.map(|(number, rule)| Watched {
            machine: Machine::new(rule, start),
            meter: Meter::new(number, rule.tolerance),
        });
        Self {
            name: name.into(),
            type_name: None,
            reader: Reader::default(),
            watched: watched.collect(),
            want: want_of(contract, name),
            info: None,
            messages: 0,
            first: None,
            has_expired: false,
            is_interrupted: false,
        }
    }

    /// Its type and definition are known from now on.
    pub fn define(
        &mut self,
        info: &TopicInfo,
        plan: &Result<Arc<TypePlan>, String>,
        contract: &Contract,
        (has_edges, is_stamped): (bool, bool),
    ) {
        self.type_name = Some(info.type_name.clone());
        self.info = Some(info.clone());
        let rules = self.watched.iter().enumerate();
        let rules = rules.map(|(number, watched)| (number, &contract.rules[watched.meter.rule]));
        self.reader = Reader::new(plan, rules, has_edges, is_stamped);
        if self.reader.has_stamp() {
            return;
        }
        let reason = match plan {
            Ok(_) => format!("{} has no header.stamp", info.type_name),
            Err(reason) => reason.clone(),
        };
        for watched in self
            .watched
            .iter_mut()
            .filter(|watched| watched.machine.is_stamped())
        {
            watched.meter.set_unknown(reason.clone());
        }
    }

    /// Its first messages have expired: when it began is not known.
    pub fn expire(&mut self) {
        self.has_expired = true;
        for Watched { machine, meter } in &mut self.watched {
            if let Machine::First(_, has_come) = machine {
                *has_come = true;
                meter.set_unknown("its first messages have expired");
            }
        }
    }

    /// Messages do not have the content that was received, for this reason.
    pub fn leave_out_content(&mut self, reason: &str, contract: &Contract) {
        for Watched { machine, meter } in &mut self.watched {
            if matches!(contract.rules[meter.rule].kind(), "frozen" | "size") {
                *machine = Machine::None;
                meter.set_unknown(reason);
            }
        }
    }

    /// A publisher offers this.
    pub fn offer(&mut self, qos: QosProfile, contract: &Contract) {
        if self.info.as_mut().is_some_and(|info| info.add_offer(qos)) {
            self.judge_offers(contract);
        }
    }

    /// Judges what publishers offer as far as is known. A wrong offer counts from the first message on: a bag does not have when each publisher came.
    fn judge_offers(&mut self, contract: &Contract) {
        let (Some(first), Some(info)) = (self.first, &self.info) else {
            return;
        };
        for Watched { meter, .. } in &mut self.watched {
            let rule = &contract.rules[meter.rule];
            if rule.kind() == "qos"
                && !meter.has_checked()
                && let Ok(Some(wrong)) = wrong_qos(rule, &info.offered_qos_profiles)
            {
                meter.note(first, Some(wrong));
            }
        }
    }

    /// How much of its payloads the rules need.
    pub fn want(&self) -> Want {
        match self.want {
            Want::Stamp if !self.reader.is_stamp_first() => Want::Sparse,
            want => want,
        }
    }

    /// Whether any message was taken.
    pub fn has_messages(&self) -> bool {
        self.messages > 0
    }

    /// Takes a message, in the order of their times.
    pub fn message(&mut self, facts: &Facts, contract: &Contract) {
        self.messages += 1;
        if self.first.is_none() {
            self.first = Some(facts.time);
            self.introduce(facts.time, contract);
            self.judge_offers(contract);
        }
        for (number, watched) in self.watched.iter_mut().enumerate() {
            watched.machine.message(number, facts, &mut watched.meter);
        }
    }

    /// Judges type and definition, at the first message.
    fn introduce(&mut self, time: Timestamp, contract: &Contract) {
        let Some(info) = &self.info else { return };
        for Watched { meter, .. } in &mut self.watched {
            let rule = &contract.rules[meter.rule];
            let differs = |name: &str, found: &str| {
                let wanted = rule.text(name).unwrap_or_default();
                (wanted != found).then(|| format!("{found}, expected {wanted}"))
            };
            match rule.kind() {
                "required" => meter.note(time, None),
                "type" => meter.note(time, differs("name", &info.type_name)),
                "hash" if info.type_description_hash.is_empty() => meter.set_unknown("its hash is not known"),
                "hash" => meter.note(time, differs("is", &info.type_description_hash)),
                _ => {}
            }
        }
    }

    /// Takes note that messages were not judged that came until `now`, for this reason: what came before says nothing of what comes after.
    pub fn interrupt(&mut self, now: Timestamp, reason: &str, contract: &Contract) {
        self.is_interrupted = true;
        for Watched { machine, meter } in &mut self.watched {
            if machine.interrupt(&contract.rules[meter.rule], now) {
                meter.leave_out(reason);
            }
        }
    }

    /// Takes note that all messages before `now` were taken.
    pub fn time(&mut self, now: Timestamp) {
        for watched in &mut self.watched {
            watched.machine.time(now, &mut watched.meter);
        }
    }

    /// Judges what only the end shows.
    pub fn end(&mut self, ending: &Ending, contract: &Contract) {
        let (messages, has_expired) = (self.messages, self.has_expired);
        let offered = self
            .info
            .as_ref()
            .map(|info| info.offered_qos_profiles.as_slice());
        for Watched { meter, .. } in &mut self.watched {
            let rule = &contract.rules[meter.rule];
            match rule.kind() {
                "required" if messages == 0 && has_expired => meter.note(ending.end, None),
                "required" if messages == 0 && self.is_interrupted => {
                    meter.set_unknown("none of the messages that were judged is of it");
                }
                "required" if messages == 0 && rule.flag("is") => {
                    meter.note(ending.end, Some("no message came".to_owned()))
                }
                "qos" if messages > 0 && !meter.has_checked() => match offered {
                    None | Some([]) => meter.set_unknown("the QoS of its publishers is not known"),
                    Some(offered) => match wrong_qos(rule, offered) {
                        Ok(wrong) => meter.note(ending.end, wrong),
                        Err(reason) => meter.set_unknown(reason),
                    },
                },
                "losses" => match &ending.losses {
                    None => meter.set_unknown("the bag has no account of losses"),
                    Some(losses) => match losses.get(&*self.name) {
                        Some(lost) => note_lost(rule, meter, ending.end, lost),
                        None if messages == 0 => note_lost(rule, meter, ending.end, &Lost::default()),
                        None => meter.set_unknown("the account of losses does not have the topic"),
                    },
                },
                "publishers" => match ending.publishers.as_ref().and_then(|all| all.get(&*self.name)) {
                    None => meter.set_unknown("its publishers are not known"),
                    Some(publishers) => match wrong_publishers(rule, publishers) {
                        Ok(wrong) => meter.note(ending.end, wrong),
                        Err(reason) => meter.set_unknown(reason),
                    },
                },
                _ => {}
            }
            if meter.has_checked() || meter.unknown().is_some() {
                continue;
            }
            let reason = match rule.kind() {
                "required" => continue,
                _ if messages == 0 && has_expired => "its messages have expired".to_owned(),
                _ if messages == 0 => "no message came".to_owned(),
                "rate" | "drift" => {
                    let window = rule
                        .span("window")
                        .unwrap_or(Duration::from_secs(if rule.kind() == "rate" { 5 } else { 60 }));
                    format!(
                        "the topic's messages are shorter than the window of {} s, or too few",
                        window.as_secs_f64()
                    )
                }
                _ => "nothing was checked".to_owned(),
            };
            meter.set_unknown(reason);
        }
    }

    pub fn meters(&self) -> impl Iterator<Item = &Meter> {
        self.watched.iter().map(|watched| &watched.meter)
    }

    /// Whether any rule is about it.
    pub fn is_watched(&self) -> bool {
        !self.watched.is_empty()
    }

    /// How many rules are about it.
    pub fn rules(&self) -> usize {
        self.watched.len()
    }

    pub fn take_news(&mut self, news: &mut Vec<super::Violation>) {
        for watched in self.watched.iter_mut().take(LIVE_MAX) {
            watched.meter.take_news(Some(&self.name), news);
        }
    }
}

/// Judges a number of lost messages at the end: too many known ones are too many, few known ones are few only if none is unknown.
pub(super) fn note_lost(rule: &Rule, meter: &mut Meter, end: Timestamp, lost: &Lost) {
    let max = rule.count("max").unwrap_or(0);
    match &lost.unknown {
        _ if lost.known > max => {
            meter.note(end, Some(format!("{} messages lost, at most {max}", lost.known)));
        }
        Some(reason) => meter.set_unknown(reason.clone()),
        None => meter.note(end, None),
    }
}

fn wrong_publishers(rule: &Rule, publishers: &[Option<String>]) -> Result<Option<String>, String> {
    let count = publishers.len() as u64;
    if let Some(wrong) = outside(rule, count, "publishers") {
        return Ok(Some(wrong));
    }
    for name in rule.names("names") {
        if !publishers.iter().flatten().any(|known| known == name) {
            // A publisher whose node is not known may be the one.
            return match publishers.iter().any(Option::is_none) {
                true => Err(format!("the node of a publisher is not known: it may be {name}")),
                false => Ok(Some(format!("{name} does not publish it"))),
            };
        }
    }
    Ok(None)
}

/// What is wrong with a count that must be from `min` to `max`.
pub(super) fn outside(rule: &Rule, count: u64, what: &str) -> Option<String> {
    match (rule.count("min"), rule.count("max")) {
        (Some(min), _) if count < min => Some(format!("{count} {what}, at least {min}")),
        (_, Some(max)) if count > max => Some(format!("{count} {what}, at most {max}")),
        _ => None,
    }
}

fn wrong_qos(rule: &Rule, offered: &[QosProfile]) -> Result<Option<String>, String> {
    let mut hidden = None;
    for profile in offered {
        let policies = [
            (
                "reliability",
                profile.reliability.as_str(),
                profile.reliability == Reliability::Unknown,
            ),
            (
                "durability",
                profile.durability.as_str(),
                profile.durability == Durability::Unknown,
            ),
            (
                "history",
                profile.history.as_str(),
                profile.history == History::Unknown,
            ),
        ];
        for (name, found, is_unknown) in policies {
            match rule.text(name) {
                Some(_) if is_unknown => hidden = Some(format!("a publisher does not announce its {name}")),
                Some(wanted) if wanted != found => {
                    return Ok(Some(format!("{name} {found}, expected {wanted}")));
                }
                _ => {}
            }
        }
        let depth = profile.depth;
        match rule.count("depth") {
            Some(_) if depth == 0 => hidden = Some("a publisher does not announce its depth".to_owned()),
            Some(least) if depth < least => return Ok(Some(format!("depth {depth}, at least {least}"))),
            _ => {}
        }
    }
    hidden.map_or(Ok(None), Err)
}
