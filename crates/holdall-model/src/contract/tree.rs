//! The tree of transforms: whether frames are connected, as `/tf` and `/tf_static`, or topics in their place, come and transforms age.

use super::{content::named, meter::Meter, parse::Rule};
use crate::{
    dynamic::{Scalar, TypePlan, part::Part},
    time::Timestamp,
};
use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

/// The type of the topics.
pub(super) const TF_TYPE: &str = "tf2_msgs/msg/TFMessage";
/// The topics of rules that name none.
pub(super) const TF_TOPICS: [&str; 2] = ["/tf", "/tf_static"];

/// Frames that are kept; further ones are left out and counted.
const FRAMES_MAX: usize = 10_000;
/// Longest way up to a root.
const DEPTH_MAX: usize = 256;

/// The topics of a rule.
pub(super) fn topics_of(rule: &Rule) -> Vec<&str> {
    match rule.names("topics") {
        [] => TF_TOPICS.to_vec(),
        named => named.iter().map(String::as_str).collect(),
    }
}

/// Whether transforms on a topic hold for ever.
pub(super) fn is_static(topic: &str) -> bool {
    topic.rsplit('/').next() == Some("tf_static")
}

/// A transform: the child frame and its parent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Edge {
    pub child: String,
    pub parent: String,
}

/// The transforms of a message.
pub(super) fn edges(plan: &TypePlan, payload: &[u8]) -> Result<Vec<Edge>, String> {
    let root = plan.place(payload).map_err(|error| error.to_string())?;
    let Part::List(list) = named(plan, payload, root, "transforms")? else {
        return Err("transforms is not a list".to_owned());
    };
    let (mut edges, mut failure) = (Vec::new(), None);
    let read = |place| {
        let Part::Struct(header) = named(plan, payload, place, "header")? else {
            return Err("header is not a struct".to_owned());
        };
        Ok(Edge {
            child: text(named(plan, payload, place, "child_frame_id")?)?,
            parent: text(named(plan, payload, header, "frame_id")?)?,
        })
    };
    let items = plan.items(payload, list, &mut |part| {
        if let Part::Struct(place) = part {
            match read(place) {
                Ok(edge) => edges.push(edge),
                Err(error) => failure = Some(error),
            }
        }
        failure.is_none()
    });
    items.map_err(|error| error.to_string())?;
    failure.map_or(Ok(edges), Err)
}

fn text(part: Part<'_>) -> Result<String, String> {
    match part {
        // As tf2: a slash before the name is left out.
        Part::Scalar(Scalar::Text(text)) => Ok(text.to_str().trim_start_matches('/').to_owned()),
        _ => Err("a frame's name is not a text".to_owned()),
    }
}

/// How a frame is attached.
#[derive(Debug)]
struct Attached {
    parent: String,
    /// Until when a dynamic transform holds; `None` for a static one.
    until: Option<Timestamp>,
}

/// A rule about connected frames.
#[derive(Debug)]
pub(super) struct Connected {
    topics: Vec<String>,
    frames: Vec<String>,
    timeout: Duration,
    /// Time from the start on that it may take to be connected, and when it is judged from.
    within: Duration,
    from: Timestamp,
    parents: HashMap<String, Attached>,
    /// Until when the frames are connected, as far as is known; `None` while they are not.
    until: Option<Timestamp>,
    /// Static transforms have expired: what is not connected may have been.
    is_partial: bool,
    pub meter: Meter,
    pub left_out: u64,
}

impl Connected {
    pub fn new(rule: &Rule, meter: Meter, start: Timestamp) -> Self {
        let within = rule.span("within").unwrap_or(Duration::from_secs(5));
        Self {
            topics: topics_of(rule).into_iter().map(str::to_owned).collect(),
            frames: rule
                .names("connected")
                .iter()
                .map(|name| name.trim_start_matches('/').to_owned())
                .collect(),
            timeout: rule.span("timeout").unwrap_or(Duration::from_secs(1)),
            within,
            from: start.saturating_add(within),
            parents: HashMap::new(),
            until: None,
            is_partial: false,
            meter,
            left_out: 0,
        }
    }

    /// Whether a topic has its transforms.
    pub fn has(&self, topic: &str) -> bool {
        self.topics.iter().any(|known| known == topic)
    }

    /// Its topics, as people read them.
    pub fn topics(&self) -> String {
        self.topics.join(" or ")
    }

    /// The first messages of these topics have expired; each has when those that are left begin.
    pub fn expire(&mut self, expired: &BTreeMap<String, Option<Timestamp>>) {
        for topic in &self.topics {
            let Some(before) = expired.get(topic) else {
                continue;
            };
            let begin = before.map(|before| before.saturating_add(self.within));
            self.from = self.from.max(begin.unwrap_or(self.from));
            self.is_partial |= is_static(topic);
        }
    }

    /// Takes the transforms of a message.
    pub fn message(&mut self, time: Timestamp, edges: &[Edge], is_static: bool) {
        self.time(time);
        for Edge { child, parent } in edges {
            let until = (!is_static).then(|| time.saturating_add(self.timeout));
            if self.parents.len() >= FRAMES_MAX && !self.parents.contains_key(child) {
                self.left_out += 1;
                continue;
            }
            let parent = parent.clone();
            self.parents.insert(child.clone(), Attached { parent, until });
        }
        self.until = self.connected_until(time).ok();
        self.judge(time);
    }

    /// Forgets the dynamic transforms: some that came until `now` are unknown.
    pub fn interrupt(&mut self, now: Timestamp, reason: &str) {
        self.parents.retain(|_, attached| attached.until.is_none());
        self.until = None;
        self.from = self.from.max(now.saturating_add(self.within));
        self.meter.leave_out(reason);
    }

    /// Takes note that all messages until `now` were taken.
    pub fn time(&mut self, now: Timestamp) {
        let is_left_out = self.is_partial && self.meter.unknown().is_some();
        if self.from < now && !self.meter.has_checked() && !is_left_out {
            self.judge(self.from);
        }
        if let Some(until) = self.until.filter(|until| *until < now) {
            self.until = None;
            self.judge(until);
        }
    }

    fn judge(&mut self, time: Timestamp) {
        if time < self.from {
            return;
        }
        let is_connected = self.until.is_some_and(|until| until >= time);
        let reason = if is_connected {
            None
        } else {
            self.connected_until(time).err()
        };
        if !is_connected && self.is_partial {
            return self.meter.leave_out("static transforms have expired");
        }
        let text = (!is_connected).then(|| reason.unwrap_or_else(|| self.outdated(time)));
        self.meter.note(time, text);
    }

    fn outdated(&self, time: Timestamp) -> String {
        let old = self
            .parents
            .iter()
            .filter(|(_, attached)| attached.until.is_some_and(|until| until <= time));
        let name = old
            .map(|(child, attached)| format!("no transform from {} to {child} any more", attached.parent))
            .min();
        name.unwrap_or_else(|| "the frames are not connected".to_owned())
    }

    /// Until when the frames are connected; why they are not.
    fn connected_until(&self, time: Timestamp) -> Result<Timestamp, String> {
        let mut last = Timestamp::from_nanos(i64::MAX);
        let first = self.path(&self.frames[0], time);
        for frame in &self.frames[1..] {
            let other = self.path(frame, time);
            let meeting = other
                .iter()
                .position(|(name, _)| first.iter().any(|(known, _)| known == name));
            let Some(meeting) = meeting else {
                return Err(format!("{} and {frame} are not connected", self.frames[0]));
            };
            let place = first
                .iter()
                .position(|(name, _)| *name == other[meeting].0)
                .unwrap_or(0);
            let ends = other[..meeting]
                .iter()
                .chain(&first[..place])
                .filter_map(|(_, until)| *until);
            last = ends.fold(last, Ord::min);
        }
        Ok(last)
    }

    /// The frames from one up to its root, each with the end of the transform to its parent.
    fn path<'a>(&'a self, frame: &'a str, time: Timestamp) -> Vec<(&'a str, Option<Timestamp>)> {
        let (mut path, mut frame) = (Vec::new(), frame);
        while path.len() < DEPTH_MAX {
            let attached = self.parents.get(frame);
            let attached = attached.filter(|attached| attached.until.is_none_or(|until| until >= time));
            path.push((frame, attached.and_then(|attached| attached.until)));
            let Some(attached) = attached else { break };
            frame = &attached.parent;
        }
        path
    }
}
