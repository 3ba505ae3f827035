//! Messages of live topics for pages: the newest of each topic that a page looks at, by subscriptions of its own that end with the interest.

use crate::{
    http::{Refusal, Request, Response, percent_decoded},
    listen::Ended,
    look::{PICTURE_SIDE_MAX, picture_response, undecoded, video_picture},
};
use holdall::{
    listen::{HeardMessage, Listener},
    look::{Opened, PictureOptions, Video, is_picture, picture, tree},
};
use holdall_io::{
    clock::{Clock, SystemClock},
    mutex::lock,
};
use holdall_model::{dynamic::TypePlan, time::Timestamp};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

/// Topics that are looked at at once.
const TOPICS_MAX: usize = 4;

/// A topic's subscription ends this long after the last request.
const ASKED_WITHIN: Duration = Duration::from_secs(8);

/// Time between two steps of a listener: the newest message is at most this old, beside its way.
const STEP: Duration = Duration::from_millis(40);

/// Where live topics come from.
pub trait LiveSource: Send + Sync + 'static {
    /// Listens to one topic.
    ///
    /// # Errors
    /// One sentence.
    fn listen(&self, topic: &str) -> Result<Listener, String>;

    /// The domain that it listens in, if its transport has domains.
    fn domain(&self) -> Option<String>;
}

#[derive(Default)]
struct Newest {
    number: u64,
    message: Option<(HeardMessage, Option<Arc<TypePlan>>)>,
    /// Of video: from the last key frame on.
    video: Video,
    /// Of its last picture.
    video_time: Timestamp,
    publishers: usize,
    failure: Option<String>,
}

struct Topic {
    newest: Mutex<Newest>,
    asked: Mutex<Duration>,
    ended: Ended,
}

/// The topics that pages look at.
#[derive(Default)]
pub(super) struct Lookers(Mutex<BTreeMap<String, Arc<Topic>>>);

impl Lookers {
    /// The newest message of a topic as a tree, if it is newer than the one that the page has.
    pub(super) fn message(
        &self,
        source: &Arc<dyn LiveSource>,
        request: &Request,
    ) -> Result<Response<'static>, Refusal> {
        let topic = self.topic(source, request)?;
        let after: u64 = request
            .parameter("after")
            .and_then(|text| text.parse().ok())
            .unwrap_or(0);
        let newest = lock(&topic.newest);
        if let Some(failure) = &newest.failure {
            return Err(Refusal::new(409, failure));
        }
        let found = newest.message.as_ref().filter(|_| newest.number > after);
        let note = (newest.publishers == 0).then_some("No publisher of this topic is found.");
        let found = found.map(|(message, plan)| shown(newest.number, message, plan.as_deref()));
        Ok(Response::json(
            json!({"ok": true, "found": found, "note": note}).to_string(),
        ))
    }

    /// The newest message of a topic as a picture.
    pub(super) fn picture(
        &self,
        source: &Arc<dyn LiveSource>,
        request: &Request,
    ) -> Result<Response<'static>, Refusal> {
        let topic = self.topic(source, request)?;
        let newest = lock(&topic.newest);
        let Some((message, Some(plan))) = newest.message.clone() else {
            return Err(Refusal::new(404, "no message has come yet"));
        };
        let video = Video::is_in(&plan, &message.payload).then(|| (newest.video.clone(), newest.video_time));
        drop(newest);
        let number = |name: &str| request.parameter(name).and_then(|text| text.parse::<f64>().ok());
        let options = PictureOptions {
            side_max: Some(PICTURE_SIDE_MAX),
            range: number("low").zip(number("high")),
            by: None,
        };
        let (mut shown, time) = match video {
            Some((video, time)) => (video_picture(&video, request, &options)?, time),
            None => {
                let shown = picture(&plan, &message.payload, &options);
                (
                    shown.map_err(|reason| Refusal::new(409, &reason))?,
                    message.log_time,
                )
            }
        };
        shown.about["time_ns"] = json!(time.as_nanos().to_string());
        Ok(picture_response(shown))
    }

    fn topic(&self, source: &Arc<dyn LiveSource>, request: &Request) -> Result<Arc<Topic>, Refusal> {
        let name = request.parameter("topic").and_then(percent_decoded);
        let name = name.ok_or_else(|| Refusal::new(400, "the request has no parameter topic"))?;
        let now = SystemClock.monotonic();
        let mut topics = lock(&self.0);
        topics.retain(|_, topic| !topic.ended.is_set());
        if let Some(topic) = topics.get(&name) {
            *lock(&topic.asked) = now;
            return Ok(Arc::clone(topic));
        }
        if topics.len() >= TOPICS_MAX {
            return Err(Refusal::new(
                503,
                "too many topics are looked at; try again in some seconds",
            ));
        }
        let topic = Arc::new(Topic {
            // A page may have the number of a former subscription: this one begins above, as nothing brings a million messages a second.
            newest: Mutex::new(Newest {
                number: u64::try_from(now.as_micros()).unwrap_or(u64::MAX / 2),
                ..Newest::default()
            }),
            asked: Mutex::new(now),
            ended: Ended::default(),
        });
        start(source, &name, &topic).map_err(|error| Refusal::new(503, &error.to_string()))?;
        topics.insert(name, Arc::clone(&topic));
        Ok(topic)
    }

    /// Ends all.
    pub(super) fn end(&self) {
        lock(&self.0).values().for_each(|topic| topic.ended.set());
    }
}

fn start(source: &Arc<dyn LiveSource>, name: &str, topic: &Arc<Topic>) -> io::Result<()> {
    let (source, name, topic) = (Arc::clone(source), name.to_owned(), Arc::clone(topic));
    let run = move || {
        // Joining takes a moment: not on the thread of a request.
        match source.listen(&name) {
            Ok(listener) => topic.follow(&name, listener),
            Err(failure) => lock(&topic.newest).failure = Some(failure),
        }
        // A failure is for the request that waits for it.
        if lock(&topic.newest).failure.is_none() {
            topic.ended.set();
        }
        SystemClock.sleep_until(SystemClock.monotonic() + Duration::from_secs(2));
        topic.ended.set();
    };
    thread::Builder::new()
        .name(format!("{}looker", crate::THREADS))
        .spawn(run)
        .map(drop)
}

impl Topic {
    fn follow(&self, name: &str, mut listener: Listener) {
        let mut now = SystemClock.monotonic();
        while !self.ended.is_set() && now.saturating_sub(*lock(&self.asked)) <= ASKED_WITHIN {
            if let Err(error) = listener.step(now) {
                lock(&self.newest).failure = Some(error.to_string());
                return;
            }
            let taken = listener.take_messages();
            let last = taken.into_iter().find(|(topic, _)| topic == name);
            let (plan, mut newest) = (listener.plan(name), lock(&self.newest));
            if let (Some((_, messages)), Some(plan)) = (&last, &plan) {
                for message in messages.iter().filter(|_| is_picture(plan.type_name())) {
                    if newest.video.add(plan, &message.payload, false) {
                        newest.video_time = message.log_time;
                    }
                }
            }
            let last = last.and_then(|(_, mut messages)| Some((messages.len() as u64, messages.pop()?)));
            newest.publishers = listener.topics().iter().map(|topic| topic.publishers).sum();
            if let Some((count, message)) = last {
                newest.number += count;
                newest.message = Some((message, plan));
            }
            drop(newest);
            SystemClock.sleep_until(now + STEP);
            now = SystemClock.monotonic();
        }
    }
}

fn shown(number: u64, message: &HeardMessage, plan: Option<&TypePlan>) -> Value {
    let tree = match plan {
        Some(plan) => tree(plan, &message.payload, &Opened::default())
            .unwrap_or_else(|error| undecoded(&error.to_string(), &message.payload, false)),
        None => undecoded("its type is not known here", &message.payload, false),
    };
    json!({
        "number": number,
        "time_ns": message.log_time.as_nanos().to_string(),
        "publish_ns": message.publish_time.map(|time| time.as_nanos().to_string()),
        "sequence": message.sequence,
        "bytes": message.payload.len(),
        "is_picture": plan.is_some_and(|plan| is_picture(plan.type_name())),
        "message": tree,
    })
}
