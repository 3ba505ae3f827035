//! Parts of a simulated ring that are copied while it is recorded, by the code of the program, and compared with the truth.

use crate::{
    folder::SimFolder,
    found::{self, FoundBag},
    network::{Arrived, Network},
    plan::{Plan, TOPICS},
    verdict::{Invariant, Violation},
};
use holdall::{
    reader::{Bag, BagAudit},
    record::status::{RecordStatus, TopicStatus},
    supervise::promotions::Promotion,
};
use holdall_io::{
    hold::Hold,
    lock::{Locking, WriteLock},
    sim::SimRng,
};
use holdall_model::time::Timestamp;
use serde_json::json;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::{Path, PathBuf},
    time::Duration,
};

/// How long the last messages of a span are waited for until they are durable, as the program waits.
const DURABLE_WITHIN: Duration = Duration::from_secs(30);
/// How often the recording continues while a copy is made, at most.
const STEPS_MAX: u32 = 6;
/// How many in a million copies are killed.
const KILLED: u32 = 30_000;

/// What a user asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// How long ago the span begins.
    pub back: Duration,
    /// Its length; it may end later than now.
    pub length: Duration,
    /// A bit for each of [`TOPICS`]; 0 for all.
    pub topics: u8,
    /// Decides how far the recording is while it is copied.
    pub salt: u64,
}

impl Asked {
    fn takes(self, topic: usize) -> bool {
        self.topics == 0 || self.topics & (1 << topic) != 0
    }

    fn names(self) -> Vec<&'static str> {
        let topics = TOPICS.iter().enumerate();
        topics
            .filter(|(number, _)| self.takes(*number))
            .map(|(_, topic)| topic.name)
            .collect()
    }
}

/// Counts of copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copies {
    /// Copies that were asked for and made, or refused because nothing is left.
    pub made: u64,
    /// Those of which a part had expired.
    pub partial: u64,
    /// Those of which all had expired.
    pub empty: u64,
    /// Those that were killed.
    pub killed: u64,
    /// Messages in them.
    pub messages: u64,
    /// Messages that expired in the ring.
    pub expired: u64,
}

impl Copies {
    /// Adds others.
    pub fn add(&mut self, other: Self) {
        self.made += other.made;
        self.partial += other.partial;
        self.empty += other.empty;
        self.killed += other.killed;
        self.messages += other.messages;
        self.expired += other.expired;
    }
}

/// A copy that waits until all messages of its span are on the disk.
pub struct Waiting {
    promotion: Promotion,
    output: PathBuf,
    asked: Asked,
    span: (Timestamp, Timestamp),
    hold: Option<Hold>,
    /// Messages by topic that had expired when it was asked for.
    expired: BTreeMap<String, u64>,
    /// Messages by topic that had come at the end of the span, and until when they are waited for.
    wanted: Option<(BTreeMap<String, u64>, Duration)>,
}

/// How a copy ended: what was written with a note, or why it was not; `None` if it was killed.
pub type Copied = Option<Result<Option<String>, String>>;

/// Carried by the unwinding of a copy that is killed.
struct IsKilled;

impl Waiting {
    /// Makes the copy. `go_on` lets the recording continue meanwhile.
    pub fn copy(&self, go_on: &mut dyn FnMut(&mut SimRng)) -> Copied {
        let mut rng = SimRng::new(self.asked.salt);
        let mut killed_in = rng.chance(KILLED).then(|| rng.below(4));
        let mut left = STEPS_MAX;
        let mut progress = |_, _| {
            if left > 0 {
                left -= 1;
                go_on(&mut rng);
            }
            match &mut killed_in {
                Some(0) => resume_unwind(Box::new(IsKilled)),
                Some(left) => *left -= 1,
                None => {}
            }
        };
        match catch_unwind(AssertUnwindSafe(|| self.promotion.copy(None, &mut progress))) {
            Ok(copied) => Some(copied.map(|copied| copied.note)),
            Err(cause) if cause.is::<IsKilled>() => None,
            Err(cause) => resume_unwind(cause),
        }
    }
}

/// The messages that have arrived, by topic, in the order of their arrival.
#[derive(Default)]
struct Truth(BTreeMap<String, Vec<Arrived>>);

impl Truth {
    fn of(&self, topic: &str) -> &[Arrived] {
        self.0.get(topic).map_or(&[], Vec::as_slice)
    }
}

/// Takes requests for parts of the ring, and judges their copies.
pub struct Promoter {
    network: Network,
    folder: SimFolder,
    ring: PathBuf,
    /// The recorder's, until it is dead.
    writer: Option<WriteLock>,
    truth: Truth,
    waiting: Vec<Waiting>,
    number: u64,
    /// What came of them.
    pub copies: Copies,
    /// The first copy that is wrong.
    pub broken: Option<Violation>,
}

fn counts(status: &RecordStatus, count: impl Fn(&TopicStatus) -> u64) -> BTreeMap<String, u64> {
    let topics = status.topics.iter();
    topics.map(|topic| (topic.name.clone(), count(topic))).collect()
}

fn request(
    ring: &Path,
    output: &Path,
    asked: Asked,
    span: (Timestamp, Timestamp),
) -> Result<Promotion, String> {
    let topics = if asked.topics == 0 {
        Vec::new()
    } else {
        asked.names()
    };
    let request = json!({
        "output": output,
        "from": span.0.as_nanos(),
        "to": span.1.as_nanos(),
        "topics": topics,
    });
    Promotion::of_request(ring, &request)
}

impl Promoter {
    /// For a plan with copies.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn of(
        plan: &Plan,
        network: &Network,
        folder: &SimFolder,
        scratch: &Path,
    ) -> Result<Option<Self>, String> {
        let made = plan
            .has_copies()
            .then(|| Self::new(network.clone(), folder.clone(), scratch));
        made.transpose().map_err(|error| error.to_string())
    }

    /// A ring in a real directory below `scratch`, which is as the simulated one.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn new(network: Network, folder: SimFolder, scratch: &Path) -> io::Result<Self> {
        let ring = scratch.join("live").join("bag");
        fs::create_dir_all(&ring)?;
        network.log_arrivals();
        folder.mirror(&ring)?;
        let locked = WriteLock::try_hold(&ring).map_err(|error| io::Error::other(error.to_string()))?;
        let Locking::Held(writer) = locked else {
            return Err(io::Error::other("the directory of the ring cannot be locked"));
        };
        Ok(Self {
            network,
            folder,
            ring,
            writer: Some(writer),
            truth: Truth::default(),
            waiting: Vec::new(),
            number: 0,
            copies: Copies::default(),
            broken: None,
        })
    }

    /// Takes a request: from now on the ring keeps the span.
    pub fn ask(&mut self, asked: Asked, now: Timestamp, status: &RecordStatus) {
        let from = Timestamp::from_nanos(now.as_nanos() - asked.back.as_nanos() as i64);
        let span = (from, from.saturating_add(asked.length));
        self.number += 1;
        let output = self.ring.with_file_name(format!("part_{}", self.number));
        match request(&self.ring, &output, asked, span) {
            Ok(promotion) => self.waiting.push(Waiting {
                hold: Hold::take(&self.ring, Some(span.0), Some(span.1)),
                promotion,
                output,
                asked,
                span,
                expired: counts(status, |topic| topic.expired),
                wanted: None,
            }),
            Err(reason) => self.fail(&reason),
        }
    }

    /// Whether a copy may be due, for which the state is needed.
    pub fn may_copy(&self, now: Timestamp) -> bool {
        self.broken.is_none() && self.waiting.iter().any(|waiting| waiting.span.1 <= now)
    }

    /// The first copy whose span is over and on the disk.
    pub fn take_due(&mut self, now: Timestamp, elapsed: Duration, status: &RecordStatus) -> Option<Waiting> {
        let durable = counts(status, |topic| topic.durable + topic.dropped());
        let is_due = |waiting: &mut Waiting| {
            let received = || counts(status, |topic| topic.received);
            let (wanted, deadline) = waiting
                .wanted
                .get_or_insert_with(|| (received(), elapsed + DURABLE_WITHIN));
            let mut wanted = wanted.iter();
            elapsed >= *deadline || wanted.all(|(topic, wanted)| durable.get(topic) >= Some(wanted))
        };
        let mut waiting = self.waiting.iter_mut();
        let place = waiting.position(|waiting| waiting.span.1 <= now && is_due(waiting))?;
        Some(self.waiting.remove(place))
    }

    /// Makes the real files as the simulated ones.
    pub fn sync(&self) {
        if let Err(error) = self.folder.sync_mirror() {
            panic!("the copy of the ring cannot be written: {error}");
        }
    }

    /// The recorder is gone, and with it its lock.
    #[must_use]
    pub fn ended(mut self) -> Self {
        self.writer = None;
        self.waiting.iter_mut().for_each(|waiting| waiting.hold = None);
        self
    }

    fn fail(&mut self, what: &str) {
        self.broken
            .get_or_insert_with(|| Violation::new(Invariant::Promoted, what));
    }

    /// Judges a copy that was made from `before` on; `after` is the state since.
    pub fn judge(&mut self, waiting: &Waiting, copied: Copied, before: &RecordStatus, after: &RecordStatus) {
        for arrived in self.network.take_arrivals() {
            self.truth
                .0
                .entry(arrived.topic.clone())
                .or_default()
                .push(arrived);
        }
        if let Err(what) = self.compare(waiting, copied, before, after) {
            let (from, until) = waiting.span;
            let what = format!(
                "copy {} of {} to {} ns of {}: {what}",
                self.number,
                from.as_nanos(),
                until.as_nanos(),
                waiting.asked.names().join(", ")
            );
            self.fail(&what);
        }
        self.copies.expired = after.expired();
        drop(fs::remove_dir_all(&waiting.output));
    }

    fn compare(
        &mut self,
        waiting: &Waiting,
        copied: Copied,
        before: &RecordStatus,
        after: &RecordStatus,
    ) -> Result<(), String> {
        let Some(copied) = copied else {
            self.copies.killed += 1;
            return match waiting.output.exists() {
                true => Err("it was killed, and there is a bag".to_owned()),
                false => Ok(()),
            };
        };
        let found = match &copied {
            Ok(_) => read(&waiting.output)?,
            Err(_) => FoundBag::default(),
        };
        let dropped = counts(after, TopicStatus::dropped);
        let durable = counts(before, |topic| topic.durable);
        let mut says_of = Vec::new();
        for name in waiting.asked.names() {
            let of = |counts: &BTreeMap<String, u64>| counts.get(name).copied().unwrap_or(0) as usize;
            let (all, dropped) = (self.truth.of(name), of(&dropped));
            let begin = all.partition_point(|arrived| arrived.log_time < waiting.span.0);
            let end = all.partition_point(|arrived| arrived.log_time <= waiting.span.1);
            let in_copy: BTreeSet<(usize, u64)> = found
                .messages
                .iter()
                .filter(|(_, topic)| topic == name)
                .map(|(message, _)| (message.life, message.sequence))
                .collect();
            let has = |arrived: &Arrived| in_copy.contains(&(arrived.life, arrived.sequence));
            let within = all[begin..end].iter().filter(|arrived| has(arrived)).count();
            if within != in_copy.len() {
                return Err(format!(
                    "{name} has {} messages outside of the span",
                    in_copy.len() - within
                ));
            }
            let expired = of(&waiting.expired);
            let must = begin.max(expired + dropped)..end.min(of(&durable));
            let missing = all
                .get(must)
                .unwrap_or_default()
                .iter()
                .filter(|arrived| !has(arrived));
            let (count, first) = (missing.clone().count(), missing.clone().next());
            if let Some(first) = first.filter(|_| count > dropped) {
                let failed = copied.as_ref().err().map(|reason| format!(" ({reason})"));
                return Err(format!(
                    "{name}: message {} of publisher {} is missing and {} more, {expired} had expired, {dropped} were dropped{}",
                    first.sequence,
                    first.life,
                    count - 1,
                    failed.unwrap_or_default()
                ));
            }
            let gone = all.get(begin..end.min(expired)).unwrap_or_default();
            if gone.iter().any(|arrived| !has(arrived)) && dropped == 0 {
                says_of.push(name);
            }
        }
        self.count(&found, &copied, &says_of)
    }

    /// Counts a copy; one of which something had expired must say so.
    fn count(
        &mut self,
        found: &FoundBag,
        copied: &Result<Option<String>, String>,
        expired: &[&str],
    ) -> Result<(), String> {
        self.copies.made += 1;
        self.copies.messages += found.messages.len() as u64;
        let note = match copied {
            Ok(note) => note.as_deref().unwrap_or_default(),
            Err(_) => {
                self.copies.empty += 1;
                return Ok(());
            }
        };
        self.copies.partial += u64::from(!expired.is_empty());
        let is_said =
            |name: &&&str| note.contains("nothing before") || note.contains(&format!("{name} has expired"));
        match expired.iter().find(|name| !is_said(name)) {
            Some(name) => Err(format!("a part of {name} had expired, and it says {note:?}")),
            None => Ok(()),
        }
    }

    /// Judges copies of what is left in the bag at the end: what waits, and two further spans.
    ///
    /// # Errors
    /// The first broken invariant.
    pub fn judge_end(&self, bag: &Path, seed: u64) -> Result<(), Violation> {
        let failed = |what: String| Violation::new(Invariant::Promoted, format!("after the end: {what}"));
        let found = found::read(bag, false).map_err(failed)?;
        let mut rng = SimRng::new(seed ^ 0x0e4d);
        let mut spans: Vec<_> = self
            .waiting
            .iter()
            .map(|waiting| (waiting.asked, waiting.span))
            .collect();
        let times = found.messages.iter().map(|(message, _)| message.log_time);
        let (first, last) = (times.clone().min().unwrap_or(0), times.max().unwrap_or(0));
        for _ in 0..2 {
            let mut ends = [(); 2]
                .map(|()| (first + rng.below(last - first + 1)) as i64)
                .map(Timestamp::from_nanos);
            ends.sort();
            let topics = if rng.coin() {
                0
            } else {
                1 << rng.below(TOPICS.len() as u64)
            };
            let asked = Asked {
                back: Duration::ZERO,
                length: Duration::ZERO,
                topics,
                salt: 0,
            };
            spans.push((asked, (ends[0], ends[1])));
        }
        for (number, (asked, span)) in spans.into_iter().enumerate() {
            let output = bag.with_file_name(format!("late_part_{number}"));
            let within = span.0.as_nanos() as u64..=span.1.as_nanos() as u64;
            let names = asked.names();
            let name_of = |(message, topic): &(found::Found, String)| {
                let is_asked = names.contains(&topic.as_str()) && within.contains(&message.log_time);
                is_asked.then_some((message.life, message.sequence))
            };
            let wanted: BTreeSet<_> = found.messages.iter().filter_map(name_of).collect();
            let promotion = request(bag, &output, asked, span).map_err(failed)?;
            match promotion.copy(None, &mut |_, _| ()) {
                Ok(_) => {
                    let copy = read(&output).map_err(failed)?;
                    let copied: BTreeSet<_> = copy.messages.iter().filter_map(name_of).collect();
                    if copied != wanted || copied.len() != copy.messages.len() {
                        return Err(failed(format!(
                            "a copy has {} messages of {}, {} were wanted",
                            copy.messages.len(),
                            copied.len(),
                            wanted.len()
                        )));
                    }
                }
                Err(reason) if !wanted.is_empty() => {
                    return Err(failed(format!("{} messages were wanted: {reason}", wanted.len())));
                }
                Err(_) => {}
            }
            drop(fs::remove_dir_all(&output));
        }
        Ok(())
    }
}

/// Reads a copy, which must be whole, each message once and exact, and its account without contradictions.
fn read(copy: &Path) -> Result<FoundBag, String> {
    let found = found::read(copy, false)?;
    if let Some(damage) = found.damage.first() {
        return Err(damage.clone());
    }
    let mut seen = BTreeSet::new();
    for (message, topic) in &found.messages {
        if !message.is_whole() || !seen.insert((message.life, message.sequence)) {
            return Err(format!(
                "{topic}: message {} of publisher {} is not exact, or twice",
                message.sequence, message.life
            ));
        }
    }
    let bag = Bag::open(copy).map_err(|error| error.to_string())?;
    let audit = BagAudit::of(&bag).map_err(|error| error.to_string())?;
    audit.faults.first().map_or(Ok(()), |fault| Err(fault.clone()))?;
    Ok(found)
}
