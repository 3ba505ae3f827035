//! Whole bags that are read for a page: at most two at once, after all other work of the machine, their results kept.

use holdall_io::{
    clock::{Clock, SystemClock},
    mutex::lock,
    process::set_thread_nice,
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

/// Bags that are read at once.
const RUNNING_MAX: usize = 2;

/// Results that are kept.
const KEPT_MAX: usize = 32;

/// A job ends if no page asks for it.
const ASKED_WITHIN: Duration = Duration::from_secs(30);

/// The error of a job that was ended.
const ENDED: &str = "it was ended";

/// How far a job is.
#[derive(Default)]
pub(super) struct Progress {
    done: AtomicU64,
    total: AtomicU64,
    is_unwanted: AtomicBool,
}

impl Progress {
    /// Notes it; false once the job is cancelled.
    pub(super) fn note(&self, done: u64, total: u64) -> bool {
        self.done.store(done, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
        !self.is_unwanted.load(Ordering::Relaxed)
    }

    /// Whether the job is cancelled.
    pub(super) fn is_unwanted(&self) -> bool {
        self.is_unwanted.load(Ordering::Relaxed)
    }

    /// Notes it; ends the job's thread once it is cancelled, for work that cannot be asked to stop. No hook for panics is called.
    pub(super) fn note_or_end(&self, done: u64, total: u64) {
        if !self.note(done, total) {
            std::panic::resume_unwind(Box::new(Unwanted));
        }
    }

    fn part(&self) -> f64 {
        let total = self.total.load(Ordering::Relaxed).max(1) as f64;
        (self.done.load(Ordering::Relaxed) as f64 / total).min(1.0)
    }
}

/// Carried by the unwinding of a cancelled job.
struct Unwanted;

struct Job {
    /// The bag's files when it was begun.
    of: String,
    progress: Progress,
    asked: Mutex<Duration>,
    result: OnceLock<Result<Value, String>>,
}

/// Work on a bag.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Task {
    /// All of it, or a part by the text of its two numbers.
    Timeline(Option<[String; 2]>),
    Check,
    /// Values over time, by the text of the request.
    Values(String),
    /// The way of a topic.
    Track(String),
    /// Sending the bag to a URL.
    Upload(String),
}

/// All jobs, by their task and the bag's name.
#[derive(Default)]
pub(super) struct Jobs(Mutex<BTreeMap<(Task, String), Arc<Job>>>);

/// The work of a job; returns the reason if it fails.
pub(super) type Work = Box<dyn FnOnce(&Progress) -> Result<Value, String> + Send>;

impl Jobs {
    /// The result, or how far it is: begun when it is not there or the bag has changed since. `of` distinguishes states of the bag.
    pub(super) fn ask(&self, task: Task, bag: &str, of: &str, work: Work) -> Value {
        let asked = (task, bag.to_owned());
        let key = asked.clone();
        let mut jobs = lock(&self.0);
        let known = jobs.get(&key).filter(|job| job.of == of).cloned();
        let job = match known {
            Some(job) => job,
            None => {
                let is_running = |job: &&Arc<Job>| job.result.get().is_none();
                if jobs.values().filter(is_running).count() >= RUNNING_MAX {
                    return json!({"ok": true, "waiting": true, "part": 0.0});
                }
                let job = Arc::new(Job {
                    of: of.to_owned(),
                    progress: Progress::default(),
                    asked: Mutex::new(SystemClock.monotonic()),
                    result: OnceLock::new(),
                });
                if let Err(error) = start(Arc::clone(&job), work) {
                    return json!({"ok": false, "error": format!("no thread can be started: {error}")});
                }
                jobs.insert(key, Arc::clone(&job));
                forget_old(&mut jobs);
                job
            }
        };
        drop(jobs);
        *lock(&job.asked) = SystemClock.monotonic();
        // What was sent is not there for ever: the next request sends what is missing then.
        if job.result.get().is_some() && matches!(asked.0, Task::Upload(_)) {
            lock(&self.0).remove(&asked);
        }
        match job.result.get() {
            None => json!({"ok": true, "part": job.progress.part()}),
            Some(Ok(result)) => json!({"ok": true, "result": result}),
            Some(Err(reason)) => json!({"ok": false, "error": reason}),
        }
    }

    /// Ends jobs that no page asks for.
    pub(super) fn end_unwanted(&self) {
        let now = SystemClock.monotonic();
        for job in lock(&self.0).values() {
            if job.result.get().is_none() && now.saturating_sub(*lock(&job.asked)) > ASKED_WITHIN {
                job.progress.is_unwanted.store(true, Ordering::Relaxed);
            }
        }
        // Failures are not kept: the next request tries again.
        lock(&self.0).retain(|_, job| !(matches!(job.result.get(), Some(Err(_))) && is_old(job, now)));
    }

    /// Ends the work on a bag; the next request for it begins again.
    pub(super) fn end_of(&self, bag: &str) {
        lock(&self.0).retain(|(_, name), job| {
            let is_running = name == bag && job.result.get().is_none();
            if is_running {
                job.progress.is_unwanted.store(true, Ordering::Relaxed);
            }
            !is_running
        });
    }

    /// Ends the work on a bag, and forgets its results.
    pub(super) fn forget(&self, bag: &str) {
        self.end_of(bag);
        lock(&self.0).retain(|(_, name), _| name != bag);
    }

    /// Ends all.
    pub(super) fn end(&self) {
        for job in lock(&self.0).values() {
            job.progress.is_unwanted.store(true, Ordering::Relaxed);
        }
    }
}

fn is_old(job: &Job, now: Duration) -> bool {
    now.saturating_sub(*lock(&job.asked)) > ASKED_WITHIN
}

fn start(job: Arc<Job>, work: Work) -> std::io::Result<()> {
    let name = format!("{}reader", crate::THREADS);
    let run = move || {
        // A recording on this machine has precedence.
        let _ = set_thread_nice(19);
        let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&job.progress)));
        let result = worked.unwrap_or_else(|cause| match cause.is::<Unwanted>() {
            true => Err(ENDED.to_owned()),
            false => Err("reading the bag failed unexpectedly".to_owned()),
        });
        let _ = job.result.set(result);
    };
    thread::Builder::new().name(name).spawn(run).map(drop)
}

/// Keeps the results that were asked for last.
fn forget_old(jobs: &mut BTreeMap<(Task, String), Arc<Job>>) {
    while jobs.len() > KEPT_MAX {
        let oldest = jobs
            .iter()
            .filter(|(_, job)| job.result.get().is_some())
            .min_by_key(|(_, job)| *lock(&job.asked))
            .map(|(key, _)| key.clone());
        let Some(oldest) = oldest else { return };
        jobs.remove(&oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn until_result(jobs: &Jobs, bag: &str, of: &str) -> Value {
        loop {
            let reply = jobs.ask(
                Task::Check,
                bag,
                of,
                Box::new(|progress| {
                    progress.note(1, 2);
                    Ok(json!(5))
                }),
            );
            if reply.get("part").is_none() {
                return reply;
            }
            thread::yield_now();
        }
    }

    #[test]
    fn results_are_kept_until_the_bag_changes() {
        let jobs = Jobs::default();
        assert_eq!(until_result(&jobs, "a", "1"), json!({"ok": true, "result": 5}));
        let kept = jobs.ask(Task::Check, "a", "1", Box::new(|_| Ok(json!(6))));
        assert_eq!(kept["result"], json!(5));
        let begun = jobs.ask(Task::Check, "a", "2", Box::new(|_| Err("no".to_owned())));
        assert!(
            begun.get("part").is_some() || begun["ok"] == json!(false),
            "{begun}"
        );
        for number in 0..2 * KEPT_MAX {
            until_result(&jobs, &number.to_string(), "1");
        }
        assert!(lock(&jobs.0).len() <= KEPT_MAX + 1);
    }

    #[test]
    fn a_job_is_ended_also_where_its_work_cannot_be_asked_to_stop() {
        let jobs = Jobs::default();
        let endless = || -> Work {
            Box::new(|progress| {
                loop {
                    progress.note_or_end(1, 2);
                    thread::yield_now();
                }
            })
        };
        for bag in ["a", "b"] {
            jobs.ask(Task::Check, bag, "", endless());
        }
        assert_eq!(jobs.ask(Task::Check, "c", "", endless())["waiting"], json!(true));
        jobs.end_of("a");
        // Its place is free, and the next request begins again.
        assert!(jobs.ask(Task::Check, "a", "", endless()).get("part").is_some());
        jobs.end();
        let ended = loop {
            let reply = jobs.ask(Task::Check, "b", "", endless());
            if reply["ok"] == json!(false) {
                break reply;
            }
            thread::yield_now();
        };
        assert_eq!(ended["error"], json!(ENDED));
    }

    #[test]
    fn only_some_bags_are_read_at_once() {
        let jobs = Jobs::default();
        let hold = || -> Work {
            Box::new(|progress| {
                while progress.note(0, 1) {
                    thread::yield_now();
                }
                Err("ended".to_owned())
            })
        };
        for bag in ["a", "b"] {
            assert!(jobs.ask(Task::Check, bag, "", hold()).get("waiting").is_none());
        }
        assert_eq!(jobs.ask(Task::Check, "c", "", hold())["waiting"], json!(true));
        jobs.end();
    }
}
