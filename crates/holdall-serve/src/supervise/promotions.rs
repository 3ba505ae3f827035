//! Parts of a ring that are copied into bags on request, one after the other, beside all other work.

use holdall_bag::{
    live::writer_of_bag,
    reader::{Bag, Moment},
};
use holdall_io::{
    clock::{Clock, SystemClock},
    hold::Hold,
    mutex::lock,
    process::set_thread_nice,
};
use holdall_model::{selection::Selection, text::Outside, time::Timestamp, units::counted};
use holdall_record::{RecordControl, RecordObserver, RingWindow};
use holdall_tools::tools::{Choice, Job, LatchedMode, OutputOptions, Written, expired_after, run};
use serde_json::{Value, json};
use std::{
    collections::{HashMap, VecDeque},
    ffi::OsStr,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

/// Copies that wait, at most: for each the ring keeps its files.
const WAITING_MAX: usize = 32;

/// Copies that are remembered.
const KEPT_MAX: usize = 100;

/// Topics of one copy, at most.
const TOPICS_MAX: usize = 1000;

/// Topics that a note names.
const TOPICS_NAMED_MAX: usize = 4;

/// How far the end of a span may be ahead.
const AHEAD_MAX: Duration = Duration::from_secs(3600);

/// How long the last messages of a span are waited for until they are durable.
const DURABLE_WITHIN: Duration = Duration::from_secs(30);

/// Numbers of bags of events beside a ring that are tried.
const EVENTS_MAX: u32 = 100_000;

/// Time between two looks at copies that wait.
const POLL: Duration = Duration::from_millis(100);

/// The part of a ring to copy.
#[derive(Clone, Debug, PartialEq)]
pub struct Promotion {
    ring: PathBuf,
    output: PathBuf,
    start: Option<Moment>,
    end: Option<Moment>,
    topics: Vec<String>,
}

impl Promotion {
    /// What a request asks for: `output` (a name beside the ring, or an absolute path), `from`, `to` and `topics`.
    ///
    /// # Errors
    /// One sentence.
    pub fn of_request(ring: &Path, request: &Value) -> Result<Self, String> {
        let output = request["output"].as_str().unwrap_or_default();
        let output = match Path::new(output) {
            path if path.is_absolute() => path.to_owned(),
            _ if is_name(output) => ring.with_file_name(output),
            _ => {
                return Err(
                    "promote needs an \"output\": a name beside the ring, or an absolute path".to_owned(),
                );
            }
        };
        let (start, end) = (moment(request, "from")?, moment(request, "to")?);
        if let (Some(Moment::At(start)), Some(Moment::At(end))) = (&start, &end)
            && end < start
        {
            return Err("\"to\" is before \"from\"".to_owned());
        }
        Ok(Self {
            ring: ring.to_owned(),
            output,
            start,
            end,
            topics: topics(&request["topics"])?,
        })
    }

    /// What events want, in the next bag beside the ring: one that does not exist, and `is_taken` by no other copy.
    fn of_window(window: &RingWindow, ring: &Path, is_taken: impl Fn(&Path) -> bool) -> Self {
        let name = ring.file_name().unwrap_or_default().to_string_lossy();
        let named = |number| ring.with_file_name(format!("{name}_event_{number}"));
        let is_free = |path: &PathBuf| !(is_taken(path) || holdall_io::fs::exists(path).unwrap_or(true));
        let output = (1..EVENTS_MAX).map(named).find(is_free);
        Self {
            ring: ring.to_owned(),
            output: output.unwrap_or_else(|| named(EVENTS_MAX)),
            start: Some(Moment::At(window.span.start)),
            end: Some(Moment::At(window.span.until)),
            topics: Vec::new(),
        }
    }

    /// When its last message may come, where the request says so.
    fn until(&self) -> Option<Timestamp> {
        at(self.end.as_ref())
    }

    /// Makes the bag, in the caller's thread, and returns what the ring no longer or not yet has of the span, if anything.
    ///
    /// # Errors
    /// One sentence.
    pub fn copy(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<(Written, Option<String>), String> {
        let bag = Bag::open(&self.ring).map_err(|error| error.to_string())?;
        let (first, last) = (bag.metadata().starting_time, bag.metadata().ending_time());
        let (start, end) = (at(self.start.as_ref()), at(self.end.as_ref()));
        // What is left of the span is wanted, too.
        let begins_before = first.filter(|first| start < Some(*first) && end.is_none_or(|end| end >= *first));
        let begins_before = begins_before.filter(|_| start.is_some());
        let ends_after = end > last && start.is_none_or(|start| Some(start) <= last);
        let may_go_on = ends_after && bag.writer().is_some();
        // A topic of which nothing is left does not keep others out.
        let described = &bag.metadata().topics_with_message_count;
        let names = described.iter().map(|topic| &topic.topic_metadata.name);
        let is_asked = |name: &&String| self.topics.iter().any(|asked| is_named(asked, name));
        let here: Vec<String> = names.clone().filter(is_asked).cloned().collect();
        let is_absent = |asked: &&String| !names.clone().any(|name| is_named(asked, name));
        let absent = self.topics.iter().filter(is_absent);
        let absent = absent.map(|name| format!("the ring has nothing of {}", Outside(name)));
        let absent: Vec<String> = absent.take(TOPICS_NAMED_MAX).collect();
        let topics = if here.is_empty() { &self.topics } else { &here };
        let choice = Choice {
            selection: Selection {
                topics: topics.clone(),
                include_hidden_topics: true,
                include_unpublished_topics: true,
                ..Selection::default()
            },
            start: self.start.clone().filter(|_| begins_before.is_none()),
            end: self.end.clone().filter(|_| !ends_after),
            ..Choice::default()
        };
        let expired = start.and_then(|start| self.expired(&bag, start, begins_before));
        let output = OutputOptions {
            directory: self.output.clone(),
            latched: LatchedMode::Repeat,
            ..OutputOptions::default()
        };
        let job = Job {
            inputs: vec![bag],
            choice,
            output,
        };
        let written = run(job, progress).map_err(|error| error.to_string())?;
        let before = begins_before.map(|first| format!("the ring has nothing before {}", first.as_nanos()));
        let after = last.filter(|_| may_go_on);
        let after = after.map(|last| format!("the ring had nothing after {} yet", last.as_nanos()));
        let notes: Vec<String> = before
            .into_iter()
            .chain(expired)
            .chain(absent)
            .chain(after)
            .collect();
        Ok((written, Some(notes.join("; ")).filter(|note| !note.is_empty())))
    }

    /// The topics of which a part of the span has expired, in words, without those that have all that the ring has from `begin` on.
    fn expired(&self, bag: &Bag, start: Timestamp, begin: Option<Timestamp>) -> Option<String> {
        let takes = |name: &str, _: &str| {
            self.topics.is_empty() || self.topics.iter().any(|topic| is_named(topic, name))
        };
        let mut all = expired_after(bag, start, &takes);
        all.retain(|topic| topic.before.is_none() || topic.before > begin);
        let mut named: Vec<String> = all
            .iter()
            .take(TOPICS_NAMED_MAX)
            .map(ToString::to_string)
            .collect();
        let more = all.len() - named.len();
        named.extend((more > 0).then(|| format!("and {}", counted(more as u64, "more topic"))));
        Some(named.join(", ")).filter(|named| !named.is_empty())
    }

    fn json(&self) -> Value {
        let text = |moment: &Option<Moment>| moment.as_ref().map(ToString::to_string);
        json!({
            "ring": self.ring.display().to_string(),
            "output": self.output.display().to_string(),
            "from": text(&self.start),
            "to": text(&self.end),
            "topics": self.topics,
        })
    }
}

/// Whether a topic is the one that is asked for, with or without its first slash.
fn is_named(asked: &str, topic: &str) -> bool {
    asked.trim_start_matches('/') == topic.trim_start_matches('/')
}

/// Whether a text is the name of a bag: no path, and nothing that is hidden.
pub fn is_name(text: &str) -> bool {
    let is_plain = Path::new(text).file_name() == Some(OsStr::new(text)) && !text.starts_with('.');
    is_plain && !text.chars().any(char::is_control)
}

fn at(moment: Option<&Moment>) -> Option<Timestamp> {
    match moment {
        Some(Moment::At(time)) => Some(*time),
        _ => None,
    }
}

fn moment(request: &Value, key: &str) -> Result<Option<Moment>, String> {
    let text = match &request[key] {
        Value::Null => return Ok(None),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let parsed = text.parse().map(Some);
    parsed.map_err(|error: <Moment as std::str::FromStr>::Err| format!("{key:?}: {error}"))
}

/// A list, or names with commas between them.
fn topics(value: &Value) -> Result<Vec<String>, String> {
    let names: Option<Vec<String>> = match value {
        Value::Null => Some(Vec::new()),
        Value::String(text) => Some(text.split(',').map(|name| name.trim().to_owned()).collect()),
        list => serde_json::from_value(list.clone()).ok(),
    };
    let names = names.ok_or("\"topics\" is a list of texts")?;
    if names.len() > TOPICS_MAX {
        return Err(format!("\"topics\" has more than {TOPICS_MAX} names"));
    }
    Ok(names)
}

/// Refuses a span that would keep files for long.
fn refuse_late(until: Option<Timestamp>) -> Result<(), String> {
    let latest = SystemClock.now().saturating_add(AHEAD_MAX);
    match until {
        Some(until) if until > latest => Err("\"to\" is more than an hour ahead".to_owned()),
        _ => Ok(()),
    }
}

/// Whether all messages of a span can be read.
type IsThere = Box<dyn FnMut() -> bool + Send>;

enum Phase {
    Waiting,
    Copying,
    Done(Value),
    Failed(String),
}

struct Copy {
    number: u64,
    promotion: Promotion,
    phase: Mutex<Phase>,
    done: AtomicU64,
    total: AtomicU64,
}

impl Copy {
    fn end(&self, phase: Phase) {
        let output = self.promotion.output.display();
        match &phase {
            Phase::Failed(reason) => tracing::warn!("not copied into {output}: {reason}"),
            _ => tracing::info!("copied a part of the ring into {output}"),
        }
        *lock(&self.phase) = phase;
    }

    fn json(&self) -> Value {
        let mut copy = self.promotion.json();
        let total = self.total.load(Ordering::Relaxed).max(1);
        let part = (self.done.load(Ordering::Relaxed) as f64 / total as f64).min(1.0);
        let (state, part) = match &*lock(&self.phase) {
            Phase::Waiting => ("waiting", 0.0),
            Phase::Copying => ("copying", part),
            Phase::Done(written) => {
                for (key, value) in written.as_object().into_iter().flatten() {
                    copy[key] = value.clone();
                }
                ("done", 1.0)
            }
            Phase::Failed(reason) => {
                copy["error"] = json!(reason);
                ("failed", part)
            }
        };
        let name = self.promotion.output.file_name().unwrap_or_default();
        let name = name.to_string_lossy();
        let text = match (state, copy["error"].as_str()) {
            (_, Some(reason)) => format!("{name}: {reason}"),
            ("copying", _) => format!("{name}: {:.0} % copied", part * 100.0),
            _ => format!("{name}: {state}"),
        };
        copy["number"] = json!(self.number);
        copy["state"] = json!(state);
        copy["part"] = json!(part);
        copy["text"] = json!(text);
        copy
    }

    fn is_over(&self) -> bool {
        matches!(&*lock(&self.phase), Phase::Done(_) | Phase::Failed(_))
    }
}

struct Waiting {
    copy: Arc<Copy>,
    /// Until it is copied the ring keeps its files.
    hold: Option<Hold>,
    is_there: IsThere,
}

#[derive(Default)]
struct Queue {
    copies: VecDeque<Arc<Copy>>,
    waiting: Vec<Waiting>,
    has_worker: bool,
    last: u64,
}

impl Queue {
    /// Adds a copy to those that are remembered.
    fn add(&mut self, promotion: Promotion) -> Arc<Copy> {
        self.last += 1;
        let copy = Arc::new(Copy {
            number: self.last,
            promotion,
            phase: Mutex::new(Phase::Waiting),
            done: AtomicU64::new(0),
            total: AtomicU64::new(0),
        });
        while self.copies.len() >= KEPT_MAX {
            let Some(old) = self.copies.iter().position(|copy| copy.is_over()) else {
                break;
            };
            self.copies.remove(old);
        }
        self.copies.push_back(Arc::clone(&copy));
        copy
    }
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    is_ended: AtomicBool,
}

/// Carried by the unwinding of a copy that is ended.
struct Unwanted;

/// The copies of parts of rings that were asked for, in order. Clones are the same.
#[derive(Clone, Default)]
pub struct Promotions(Arc<Shared>);

impl Promotions {
    /// Copies a part of the ring of this recording, once all messages of the span are on the disk.
    ///
    /// # Errors
    /// One sentence, as of [`Self::begin`].
    pub fn begin_live(
        &self,
        promotion: Promotion,
        control: RecordControl,
        observer: RecordObserver,
    ) -> Result<Value, String> {
        let until = promotion.until();
        refuse_late(until)?;
        let mut span = SpanOnDisk::new(until, control, observer);
        self.begin_when(promotion, None, Box::new(move || span.is_there()))
    }

    /// Copies what events want of the ring of this recording into the next bag beside it; what cannot be copied is among those that failed. Returns
    /// a line about it.
    pub fn begin_window(
        &self,
        window: RingWindow,
        control: RecordControl,
        observer: RecordObserver,
    ) -> String {
        let queue = lock(&self.0.queue);
        let is_taken = |path: &Path| queue.copies.iter().any(|copy| copy.promotion.output == path);
        let promotion = Promotion::of_window(&window, control.directory(), is_taken);
        drop(queue);
        let name = promotion.output.file_name().unwrap_or_default();
        let line = format!("{}: {}", name.to_string_lossy(), window.reason);
        // It is over by the clock of the messages.
        let mut span = SpanOnDisk::new(None, control, observer);
        let begun = self.begin_when(promotion.clone(), window.hold, Box::new(move || span.is_there()));
        if let Err(reason) = begun {
            lock(&self.0.queue).add(promotion).end(Phase::Failed(reason));
        }
        line
    }

    /// Copies a part of a ring: what its files have, of one that is being recorded once the span is over.
    ///
    /// # Errors
    /// One sentence: too many copies wait, the output exists, or the span ends too late.
    pub fn begin(&self, promotion: Promotion) -> Result<Value, String> {
        let (ring, until) = (promotion.ring.clone(), promotion.until());
        let is_over = move || until <= Some(SystemClock.now()) || writer_of_bag(&ring).is_none();
        refuse_late(until)?;
        self.begin_when(promotion, None, Box::new(is_over))
    }

    /// Copies it once `is_there`; `hold` is what keeps its files already.
    fn begin_when(
        &self,
        promotion: Promotion,
        hold: Option<Hold>,
        is_there: IsThere,
    ) -> Result<Value, String> {
        let output = promotion.output.display().to_string();
        if holdall_io::fs::exists(&promotion.output).unwrap_or(true) {
            return Err(format!("{output} exists"));
        }
        let mut queue = lock(&self.0.queue);
        if queue.waiting.len() >= WAITING_MAX {
            return Err(format!("{WAITING_MAX} copies wait already"));
        }
        let is_same = |waiting: &Waiting| waiting.copy.promotion.output == promotion.output;
        if queue.waiting.iter().any(is_same) {
            return Err(format!("a copy into {output} waits already"));
        }
        let span = (at(promotion.start.as_ref()), promotion.until());
        // The files of a ring that is not being recorded stay.
        let writer = writer_of_bag(&promotion.ring);
        let hold = hold.or_else(|| writer.and_then(|_| Hold::take(&promotion.ring, span.0, span.1)));
        if !queue.has_worker {
            let working = self.clone();
            let name = "promote".to_owned();
            let started = thread::Builder::new().name(name).spawn(move || working.work());
            started.map_err(|error| format!("no thread can be started: {error}"))?;
            queue.has_worker = true;
        }
        let copy = queue.add(promotion);
        let number = copy.number;
        queue.waiting.push(Waiting { copy, hold, is_there });
        Ok(json!({"ok": true, "number": number, "output": output}))
    }

    /// All that are remembered, with how far they are.
    pub fn json(&self) -> Vec<Value> {
        lock(&self.0.queue)
            .copies
            .iter()
            .map(|copy| copy.json())
            .collect()
    }

    /// Whether nothing waits and nothing is copied.
    pub fn is_idle(&self) -> bool {
        !lock(&self.0.queue).has_worker
    }

    /// Ends all; what was copied in part is removed.
    pub fn end(&self) {
        self.0.is_ended.store(true, Ordering::Relaxed);
    }

    fn work(&self) {
        // A recording has precedence.
        let _ = set_thread_nice(19);
        loop {
            let is_ended = self.0.is_ended.load(Ordering::Relaxed);
            let mut queue = lock(&self.0.queue);
            if queue.waiting.is_empty() {
                queue.has_worker = false;
                return;
            }
            let ready = queue
                .waiting
                .iter_mut()
                .position(|next| is_ended || (next.is_there)());
            let next = ready.map(|at| queue.waiting.remove(at));
            drop(queue);
            match next {
                Some(next) if is_ended => next.copy.end(Phase::Failed("it was ended".to_owned())),
                Some(next) => self.copy(next),
                None => SystemClock.sleep_until(SystemClock.monotonic() + POLL),
            }
        }
    }

    fn copy(&self, next: Waiting) {
        let Waiting { copy, hold, .. } = next;
        *lock(&copy.phase) = Phase::Copying;
        let mut progress = |done, total| {
            copy.done.store(done, Ordering::Relaxed);
            copy.total.store(total, Ordering::Relaxed);
            if self.0.is_ended.load(Ordering::Relaxed) {
                resume_unwind(Box::new(Unwanted));
            }
        };
        let copied = catch_unwind(AssertUnwindSafe(|| copy.promotion.copy(&mut progress)));
        drop(hold);
        copy.end(match copied {
            Ok(Ok((written, note))) => Phase::Done(json!({
                "messages": written.messages,
                "bytes": written.bytes,
                "copied_chunks": written.copied_chunks,
                "files": written.files.len(),
                "note": note,
            })),
            Ok(Err(reason)) => Phase::Failed(reason),
            Err(cause) if cause.is::<Unwanted>() => Phase::Failed("it was ended".to_owned()),
            Err(_) => Phase::Failed("copying failed unexpectedly".to_owned()),
        });
    }
}

/// Whether what a recording had received at the end of a span is on the disk.
struct SpanOnDisk {
    control: RecordControl,
    observer: RecordObserver,
    until: Option<Timestamp>,
    /// Messages received by topic at the end of the span, and until when they are waited for.
    wanted: Option<(HashMap<String, u64>, Duration)>,
}

impl SpanOnDisk {
    fn new(until: Option<Timestamp>, control: RecordControl, observer: RecordObserver) -> Self {
        Self {
            control,
            observer,
            until,
            wanted: None,
        }
    }

    fn is_there(&mut self) -> bool {
        if !self.control.is_recording() {
            return self.control.wait_finished(Duration::ZERO);
        }
        if self.until > Some(SystemClock.now()) {
            return false;
        }
        let (status, now) = (self.observer.status(), SystemClock.monotonic());
        let (wanted, deadline) = self.wanted.get_or_insert_with(|| {
            let topics = status.topics.iter();
            let received = topics.map(|topic| (topic.name.clone(), topic.received));
            (received.collect(), now + DURABLE_WITHIN)
        });
        let mut topics = status.topics.iter();
        let is_durable = topics.all(|topic| {
            let wanted = wanted.get(&topic.name).copied().unwrap_or(0);
            topic.durable + topic.dropped() >= wanted
        });
        is_durable || now >= *deadline
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_or_refused_with_one_sentence() {
        let ring = Path::new("/data/ring");
        let read = |request: Value| Promotion::of_request(ring, &request);
        let some = read(
            json!({"output": "event", "from": "@5", "to": 1_700_000_000_000_000_000_u64, "topics": "/a, /b"}),
        );
        let some = some.unwrap();
        assert_eq!(some.output, Path::new("/data/event"));
        assert_eq!(some.start, Some(Moment::At(Timestamp::from_nanos(5_000_000_000))));
        assert_eq!(some.topics, ["/a", "/b"]);
        assert_eq!(
            read(json!({"output": "/x/y", "topics": ["/a"]})).unwrap().output,
            Path::new("/x/y")
        );
        for (request, wanted) in [
            (json!({}), "promote needs an \"output\""),
            (json!({"output": "a/b"}), "promote needs an \"output\""),
            (json!({"output": ".."}), "promote needs an \"output\""),
            (
                json!({"output": "a", "from": "soon"}),
                "\"from\": expected seconds",
            ),
            (
                json!({"output": "a", "from": "@9", "to": "@8"}),
                "\"to\" is before",
            ),
            (json!({"output": "a", "topics": 5}), "\"topics\" is a list"),
        ] {
            let reason = read(request).unwrap_err();
            assert!(reason.starts_with(wanted), "{reason}");
        }
    }

    #[test]
    fn a_copy_that_fails_or_is_ended_says_so_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let ring = dir.path().join("ring");
        let promotions = Promotions::default();
        let wanted = |name: &str| Promotion::of_request(&ring, &json!({"output": name})).unwrap();
        promotions.begin(wanted("first")).unwrap();
        while !promotions.is_idle() {
            thread::yield_now();
        }
        assert_eq!(promotions.json()[0]["state"], json!("failed"));
        promotions
            .begin_when(wanted("second"), None, Box::new(|| false))
            .unwrap();
        let again = promotions.begin(wanted("second")).unwrap_err();
        assert!(again.contains("waits already"), "{again}");
        let late = json!({"output": "late", "to": "2262-01-01"});
        assert!(
            promotions
                .begin(Promotion::of_request(&ring, &late).unwrap())
                .is_err()
        );
        promotions.end();
        while !promotions.is_idle() {
            thread::yield_now();
        }
        assert_eq!(promotions.json()[1]["error"], json!("it was ended"));
        assert!(!dir.path().join("second").exists());
    }
}
