//! Contracts and bags: the verdict of a contract on a bag, and a contract learned from good bags.

use super::expired_after;
use holdall_bag::{
    decode::{Decoder, Decoders},
    reader::{Bag, BagSet, MessageFilter, ReadError},
};
use holdall_io::fs;
use holdall_model::{
    contract::{
        Arrival, CONTRACT_BYTES_MAX, CONTRACT_CUSTOM_KEY, Contract, Ending, Judge, Learner, Sample,
        TopicSlot, Verdict, Violation,
    },
    dynamic::TypePlan,
    marker::Marker,
    message::PayloadRef,
    recoding::Recoding,
    text::OutsidePath,
    time::Timestamp,
    topic::TopicInfo,
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::Path,
    sync::Arc,
};

/// The plans of a bag's topics.
struct Plans(Decoders);

impl Plans {
    fn of(&mut self, topic: &TopicInfo) -> Result<Result<Arc<TypePlan>, String>, ReadError> {
        Ok(match self.0.find(topic)? {
            Decoder::Cdr(plan) => Ok(plan),
            Decoder::Json(_) => Err("its messages are encoded as json".to_owned()),
            Decoder::Opaque { reason } => Err(reason),
        })
    }
}

/// Topics whose messages were received in another form than the bag has: the types before and after.
struct OtherForms(BTreeMap<String, (String, String)>);

impl OtherForms {
    fn of(bag: &Bag) -> Self {
        let mut forms: BTreeMap<String, (String, String)> = BTreeMap::new();
        for Recoding {
            topic, from, into, ..
        } in Recoding::list_in(&bag.metadata().custom_data)
        {
            let known = forms.entry(topic).or_insert_with(|| (from, String::new()));
            known.1 = into;
        }
        // Others have their first form again.
        forms.retain(|_, (from, into)| from != into);
        Self(forms)
    }

    /// Adds a topic to a judge; messages of both forms are one topic of the type that was received, whose content is not judged.
    fn add(
        &self,
        judge: &mut Judge,
        info: &TopicInfo,
        plan: &Result<Arc<TypePlan>, String>,
    ) -> Option<TopicSlot> {
        let form = self.0.get(&info.name);
        let Some((from, into)) = form.filter(|(from, into)| [from, into].contains(&&info.type_name)) else {
            return judge.topic(info, plan);
        };
        let reason =
            format!("its messages are recorded as {into}: the verdict of the recording is about {from}");
        let received = TopicInfo {
            type_name: from.clone(),
            type_description_hash: String::new(),
            ..info.clone()
        };
        let slot = judge.topic(&received, &Err(reason.clone()))?;
        judge.leave_out_content(slot, &reason);
        Some(slot)
    }
}

/// Topics of which a ring has removed messages, with when those that are left begin.
fn expired(bag: &Bag) -> BTreeMap<String, Option<Timestamp>> {
    let all = expired_after(bag, Timestamp::from_nanos(i64::MIN), &|_, _| true);
    all.into_iter().map(|found| (found.topic, found.before)).collect()
}

/// Calls `each` with each message of a bag that a filter takes, and what `add` returned for its topic.
pub(super) fn for_each<T: Copy>(
    bags: &BagSet,
    filter: &MessageFilter,
    mut add: impl FnMut(&TopicInfo, &Result<Arc<TypePlan>, String>) -> T,
    mut each: impl FnMut(T, Arrival, &[u8]),
) -> Result<(), ReadError> {
    let mut plans = Plans(Decoders::new(bags.clone()));
    let mut added = HashMap::new();
    for info in bags.topics() {
        let plan = plans.of(&info)?;
        added.insert((info.name.clone(), info.type_name.clone()), add(&info, &plan));
    }
    // By the address of the topic, which the entry keeps alive.
    let mut known: HashMap<usize, (Arc<TopicInfo>, T)> = HashMap::new();
    for message in bags.messages(filter) {
        let message = message?;
        let address = Arc::as_ptr(&message.topic) as usize;
        let topic = match known.get(&address) {
            Some((_, topic)) => *topic,
            None => {
                let info = message.topic.as_whole();
                let key = (info.name.clone(), info.type_name.clone());
                let topic = match added.get(&key) {
                    Some(topic) => *topic,
                    None => {
                        let topic = add(&info, &plans.of(&info)?);
                        added.insert(key, topic);
                        topic
                    }
                };
                known.insert(address, (Arc::clone(&message.topic), topic));
                topic
            }
        };
        let arrival = Arrival {
            log_time: message.log_time,
            publish_time: message.publish_time,
        };
        each(topic, arrival, &message.payload);
    }
    Ok(())
}

/// Reads a contract.
///
/// # Errors
/// A file that cannot be read or is not a contract: one sentence.
pub fn read(path: &Path) -> Result<Arc<Contract>, String> {
    let text = fs::read_to_string(path, CONTRACT_BYTES_MAX as u64 + 1).map_err(|error| error.to_string())?;
    let contract = Contract::parse(&text).map_err(|error| format!("{}: {error}", OutsidePath(path)))?;
    Ok(Arc::new(contract))
}

/// What the contract of a bag's recording found wrong, by time; its first violations. Opens no file of a recording without one.
///
/// # Errors
/// A storage file cannot be read.
pub fn violations(bag: &Bag) -> Result<Vec<Violation>, ReadError> {
    if !bag.metadata().custom_data.contains_key(CONTRACT_CUSTOM_KEY) {
        return Ok(Vec::new());
    }
    let record = bag.contract_record()?;
    Ok(record.map(|record| record.violations()).unwrap_or_default())
}

/// Judges a bag by a contract: all that it has, from the beginning of its recording on. Of topics whose first messages have expired, what is left is judged.
///
/// # Errors
/// A file that cannot be read.
pub fn judge(bag: &Bag, contract: Arc<Contract>) -> Result<Verdict, ReadError> {
    let bags = BagSet::from(vec![bag.clone()]);
    let times = bags.log_times();
    let record = bag.contract_record()?;
    let (start, end) = record
        .as_ref()
        .map_or_else(|| times.unwrap_or_default(), |record| record.span(times));
    let expired = expired(bag);
    let mut ending = Ending {
        start,
        end,
        is_start_unknown: record.is_none() && !expired.is_empty(),
        disk_left: record.and_then(|record| record.disk_left),
        episodes: Marker::episodes(&bag.markers()?),
        expired,
        ..Ending::default()
    };
    if let Some(ledger) = bag.any_ledger()? {
        ending = ending.with_account(&ledger);
    }
    let judge = Judge::new(contract, ending.start).after_expiry(ending.expired.clone());
    let (judge, forms) = (std::cell::RefCell::new(judge), OtherForms::of(bag));
    for_each(
        &bags,
        &MessageFilter::default(),
        |info, plan| forms.add(&mut judge.borrow_mut(), info, plan),
        |slot, arrival, payload| {
            let mut judge = judge.borrow_mut();
            if let Some(slot) = slot {
                let payload = PayloadRef::Bytes(payload);
                let sample = Sample::take(payload, judge.want(slot), usize::MAX);
                judge.message(slot, arrival, &sample);
            }
        },
    )?;
    Ok(judge.into_inner().end(&ending))
}

/// Learns a contract from good bags, as text.
///
/// # Errors
/// A file that cannot be read.
pub fn learn(bags: &[Bag]) -> Result<String, ReadError> {
    let learner = std::cell::RefCell::new(Learner::default());
    for bag in bags {
        let episodes = Marker::episodes(&bag.markers()?);
        let bag = BagSet::from(vec![bag.clone()]);
        let (first, last) = bag.log_times().unwrap_or_default();
        learner.borrow_mut().begin_bag(first, last);
        learner.borrow_mut().episodes(&episodes);
        for_each(
            &bag,
            &MessageFilter::default(),
            |info, plan| learner.borrow_mut().topic(info, plan),
            |topic, arrival, payload| {
                let mut learner = learner.borrow_mut();
                let want = learner.want(topic);
                let sample = Sample::take(PayloadRef::Bytes(payload), want, usize::MAX);
                learner.message(topic, arrival, &sample);
            },
        )?;
    }
    Ok(learner.into_inner().to_yaml())
}

/// What is doubtful in a contract, one clause each: rules that are there twice, and that only types or topics of a bag can satisfy.
pub fn lint(contract: &Contract) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    let is_single = |kind: &str| !matches!(kind, "must" | "never" | "tf" | "skew");
    for rule in &contract.rules {
        let topic = rule.topic.as_ref().map_or("bag", |topic| topic.as_str());
        let others = seen.iter().filter(|(known, kind): &&(&str, &str)| {
            *kind == rule.kind() && rule.topic.as_ref().is_some_and(|topic| topic.matches(known))
        });
        for (other, _) in others.filter(|_| is_single(rule.kind())) {
            found.push(format!(
                "line {}: {topic} has a second rule {} for {other}: both are judged",
                rule.line,
                rule.kind()
            ));
        }
        seen.insert((topic, rule.kind()));
        if rule.reason.is_none() && matches!(rule.kind(), "must" | "never") {
            found.push(format!(
                "line {}: {topic}: {} has no reason: people see the expression only",
                rule.line,
                rule.kind()
            ));
        }
    }
    found
}
