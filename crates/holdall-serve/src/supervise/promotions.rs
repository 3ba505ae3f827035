//! Parts of a ring that are copied into bags on request, one after the other, beside all other work.

pub use super::ring_part::{Copied, Promotion, is_name};

use super::ring_part::{DURABLE_WITHIN, OnDisk};
use holdall_bag::live::writer_of_bag;
use holdall_io::{
    clock::{Clock, SystemClock},
    hold::Hold,
    mutex::lock,
    process::set_thread_nice,
};
use holdall_model::{
    free_space::RingState,
    time::Timestamp,
    trigger::{CopyFault, Window},
};
use holdall_record::{RecordControl, RecordObserver, RingWindow};
use serde_json::{Value, json};
use std::{
    collections::{HashMap, VecDeque},
    panic::resume_unwind,
    path::Path,
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

/// How far the end of a span may be ahead.
const AHEAD_MAX: Duration = Duration::from_secs(3600);

/// Time between two looks at copies that wait.
const POLL: Duration = Duration::from_millis(100);

/// Niceness of a copy: a recording has precedence. Beside six busy threads on one processor 3 % of 4.5 MB were copied in 45 s with 19, and all of it in
/// a few seconds with 10; until it is copied, the ring grows.
const COPY_NICE: i32 = 10;

/// Refuses a span that would keep files for long.
fn refuse_late(until: Option<Timestamp>) -> Result<(), String> {
    let latest = SystemClock.now().saturating_add(AHEAD_MAX);
    match until {
        Some(until) if until > latest => Err("\"to\" is more than an hour ahead".to_owned()),
        _ => Ok(()),
    }
}

/// `None` until the messages of a span can be read, or are waited for no longer.
type IsThere = Box<dyn FnMut() -> Option<OnDisk> + Send>;

/// Where a copy comes from.
#[derive(Default)]
struct Origin {
    /// The recording of the ring, where it is this program's.
    control: Option<RecordControl>,
    /// The event, and the span around it; `None` for a request.
    event: Option<(String, Window)>,
}

impl Origin {
    /// What the recording says of its ring.
    fn ring(&self) -> Option<RingState> {
        let control = self.control.as_ref()?;
        let ring = control.ring_state();
        // What a ring has kept free for messages to come is free for copies when none come.
        let is_over = ring.makes_room && !control.is_recording();
        let kept_free_bytes = if is_over { 0 } else { ring.kept_free_bytes };
        Some(RingState {
            kept_free_bytes,
            ..ring
        })
    }
}

enum Phase {
    Waiting,
    Copying,
    Done(Value),
    Failed(String),
}

struct Copy {
    number: u64,
    promotion: Promotion,
    origin: Arc<Origin>,
    phase: Mutex<Phase>,
    done: AtomicU64,
    total: AtomicU64,
}

impl Copy {
    /// `missing` is why messages that were asked for are not in what was copied.
    fn end(&self, phase: Phase, missing: Option<String>) {
        let output = self.promotion.output.display().to_string();
        match (&phase, &missing) {
            (Phase::Failed(reason), _) => tracing::warn!("not copied into {output}: {reason}"),
            (_, Some(reason)) => {
                tracing::warn!("copied a part of the ring into {output}, and not all: {reason}");
            }
            _ => tracing::info!("copied a part of the ring into {output}"),
        }
        if let (Some(control), Some((event, span))) = (&self.origin.control, &self.origin.event) {
            let (is_made, reason) = match &phase {
                Phase::Failed(reason) => (false, Some(reason.clone())),
                _ => (true, missing),
            };
            control.note_copy(reason.map(|reason| CopyFault {
                output: Some(output),
                event: event.clone(),
                span: *span,
                is_made,
                reason,
            }));
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
        copy["event"] = json!(self.origin.event.as_ref().map(|(event, _)| event));
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
    fn add(&mut self, promotion: Promotion, origin: Arc<Origin>) -> Arc<Copy> {
        self.last += 1;
        let copy = Arc::new(Copy {
            number: self.last,
            promotion,
            origin,
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

/// Why such a copy is not made.
const ENDED: &str = "it was ended";

fn no_thread(error: &std::io::Error) -> String {
    format!("no thread can be started: {error}")
}

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
        let origin = Arc::new(Origin {
            control: Some(control.clone()),
            event: None,
        });
        let mut span = SpanOnDisk::new(until, control, observer);
        self.begin_when(promotion, &origin, None, Box::new(move || span.is_there()))
    }

    /// Copies what events want of the ring of this recording into the next bag beside it; what cannot be copied is among those that failed, and in
    /// the report of the recording. Returns a line about it.
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
        let origin = Arc::new(Origin {
            control: Some(control.clone()),
            event: Some((window.reason, window.span)),
        });
        // It is over by the clock of the messages.
        let mut span = SpanOnDisk::new(None, control, observer);
        let is_there = Box::new(move || span.is_there());
        if let Err(reason) = self.begin_when(promotion.clone(), &origin, window.hold, is_there) {
            let copy = lock(&self.0.queue).add(promotion, origin);
            copy.end(Phase::Failed(reason), None);
        }
        line
    }

    /// Copies a part of a ring: what its files have, of one that is being recorded once the span is over.
    ///
    /// # Errors
    /// One sentence: too many copies wait, the output exists, or the span ends too late.
    pub fn begin(&self, promotion: Promotion) -> Result<Value, String> {
        let (ring, until) = (promotion.ring.clone(), promotion.until());
        let is_over = move || {
            let is_over = until <= Some(SystemClock.now()) || writer_of_bag(&ring).is_none();
            is_over.then_some(OnDisk::All)
        };
        refuse_late(until)?;
        self.begin_when(promotion, &Arc::default(), None, Box::new(is_over))
    }

    /// Copies it once `is_there`; `hold` is what keeps its files already.
    fn begin_when(
        &self,
        promotion: Promotion,
        origin: &Arc<Origin>,
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
        let span = (promotion.since(), promotion.until());
        // The files of a ring that is not being recorded stay.
        let writer = writer_of_bag(&promotion.ring);
        let hold = hold.or_else(|| writer.and_then(|_| Hold::take(&promotion.ring, span.0, span.1)));
        if !queue.has_worker {
            let working = self.clone();
            let name = "promote".to_owned();
            let started = thread::Builder::new().name(name).spawn(move || working.work());
            started.map_err(|error| no_thread(&error))?;
            queue.has_worker = true;
        }
        let copy = queue.add(promotion, Arc::clone(origin));
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
        loop {
            let is_ended = self.0.is_ended.load(Ordering::Relaxed);
            let mut queue = lock(&self.0.queue);
            if queue.waiting.is_empty() {
                queue.has_worker = false;
                return;
            }
            let mut waiting = queue.waiting.iter_mut().enumerate();
            let ready = match is_ended {
                true => Some((0, OnDisk::All)),
                false => waiting.find_map(|(at, next)| Some((at, (next.is_there)()?))),
            };
            let next = ready.map(|(at, on_disk)| (queue.waiting.remove(at), on_disk));
            drop(queue);
            match next {
                Some((next, _)) if is_ended => next.copy.end(Phase::Failed(ENDED.to_owned()), None),
                Some((next, on_disk)) => self.copy(next, on_disk),
                None => SystemClock.sleep_until(SystemClock.monotonic() + POLL),
            }
        }
    }

    fn copy(&self, next: Waiting, on_disk: OnDisk) {
        let Waiting { copy, hold, .. } = next;
        *lock(&copy.phase) = Phase::Copying;
        // A nice thread must not have the locks of the recording, which this one takes.
        let before = copy.origin.ring();
        let copied = thread::scope(|scope| {
            let copying = thread::Builder::new().name("copy".to_owned());
            match copying.spawn_scoped(scope, || self.make(&copy, before)) {
                Ok(copying) => copying.join(),
                Err(error) => Ok(Err(no_thread(&error))),
            }
        });
        let ring = copy.origin.ring();
        drop(hold);
        let copied = match copied {
            Ok(copied) => copied,
            Err(cause) if cause.is::<Unwanted>() => Err(ENDED.to_owned()),
            Err(_) => Err("copying failed unexpectedly".to_owned()),
        };
        let copied = match copied {
            Ok(copied) => copied,
            Err(reason) => return copy.end(Phase::Failed(reason), None),
        };
        let event = copy.origin.event.as_ref().zip(ring);
        let missing = event.and_then(|((_, span), ring)| copied.fault(*span, ring, on_disk));
        let written = &copied.written;
        let done = json!({
            "messages": written.messages,
            "bytes": written.bytes,
            "copied_chunks": written.copied_chunks,
            "files": written.files.len(),
            "note": copied.note,
            "missing": missing,
        });
        copy.end(Phase::Done(done), missing);
    }

    fn make(&self, copy: &Copy, ring: Option<RingState>) -> Result<Copied, String> {
        let _ = set_thread_nice(COPY_NICE);
        let mut progress = |done, total| {
            copy.done.store(done, Ordering::Relaxed);
            copy.total.store(total, Ordering::Relaxed);
            if self.0.is_ended.load(Ordering::Relaxed) {
                resume_unwind(Box::new(Unwanted));
            }
        };
        copy.promotion.copy(ring, &mut progress)
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

    fn is_there(&mut self) -> Option<OnDisk> {
        if !self.control.is_recording() {
            return self.control.wait_finished(Duration::ZERO).then_some(OnDisk::All);
        }
        if self.until > Some(SystemClock.now()) {
            return None;
        }
        let (status, now) = (self.observer.status(), SystemClock.monotonic());
        let (wanted, deadline) = self.wanted.get_or_insert_with(|| {
            let topics = status.topics.iter();
            let received = topics.map(|topic| (topic.name.clone(), topic.received));
            let window = status.durability.window.unwrap_or_default();
            (received.collect(), now + window + DURABLE_WITHIN)
        });
        let mut topics = status.topics.iter();
        let is_durable = topics.all(|topic| {
            let wanted = wanted.get(&topic.name).copied().unwrap_or(0);
            topic.durable + topic.dropped() >= wanted
        });
        match status.durability.window {
            _ if is_durable => Some(OnDisk::All),
            _ if now < *deadline => None,
            Some(_) => Some(OnDisk::Late),
            None => Some(OnDisk::Unknown),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            .begin_when(wanted("second"), &Arc::default(), None, Box::new(|| None))
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
