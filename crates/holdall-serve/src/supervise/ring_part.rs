//! One part of a ring: what a request or an event asks for, and its copy.

use holdall_bag::reader::{Bag, BagFile, Moment};
use holdall_io::{fs::available_bytes, os::reserved_ahead};
use holdall_model::{
    free_space::RingState,
    selection::Selection,
    text::{Outside, OutsidePath},
    time::Timestamp,
    trigger::Window,
    units::{counted, format_bytes},
};
use holdall_record::RingWindow;
use holdall_tools::tools::{Choice, Job, LatchedMode, OutputOptions, Written, expired_after, run};
use serde_json::{Value, json};
use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    time::Duration,
};

/// Topics of one copy, at most.
const TOPICS_MAX: usize = 1000;

/// Topics that a note names.
const TOPICS_NAMED_MAX: usize = 4;

/// How long the last messages of a span are waited for, after the time in which they have to be durable.
pub(super) const DURABLE_WITHIN: Duration = Duration::from_secs(30);

/// Numbers of bags of events beside a ring that are tried.
const EVENTS_MAX: u32 = 100_000;

/// How much of a span is on the disk when it is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnDisk {
    All,
    /// Its last messages were waited for in vain.
    Late,
    /// The same, where the recording promises no time.
    Unknown,
}

/// A part of a ring that was copied.
pub struct Copied {
    /// Its bag.
    pub written: Written,
    /// What the ring no longer or not yet had of the span, if anything.
    pub note: Option<String>,
    /// The ring did not yet have its end.
    pub ends_early: bool,
}

impl Copied {
    /// Why messages that the recording had are missing in it: a clause. `ring` is the state of the ring now.
    pub(super) fn fault(&self, span: Window, ring: RingState, on_disk: OnDisk) -> Option<String> {
        let is_expired = ring.expired_until >= Some(span.start);
        let expired = is_expired.then(|| match &self.note {
            Some(note) => format!("a part had expired: {note}"),
            None => "a part had expired".to_owned(),
        });
        let unreadable = &self.written.left_out;
        let unreadable = (!unreadable.is_empty()).then(|| unreadable.clause());
        let is_late = on_disk == OnDisk::Late || (on_disk == OnDisk::Unknown && self.ends_early);
        let late = is_late.then(|| {
            let seconds = DURABLE_WITHIN.as_secs();
            format!("its last messages were not on the disk {seconds} s after they had to be")
        });
        let all: Vec<String> = expired.into_iter().chain(unreadable).chain(late).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

/// The part of a ring to copy.
#[derive(Clone, Debug, PartialEq)]
pub struct Promotion {
    pub(super) ring: PathBuf,
    pub(super) output: PathBuf,
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
    pub(super) fn of_window(window: &RingWindow, ring: &Path, is_taken: impl Fn(&Path) -> bool) -> Self {
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

    /// When its first message may have come, where the request says so.
    pub(super) fn since(&self) -> Option<Timestamp> {
        at(self.start.as_ref())
    }

    /// When its last message may come, where the request says so.
    pub(super) fn until(&self) -> Option<Timestamp> {
        at(self.end.as_ref())
    }

    /// Whether its disk has room for it, and keeps what must stay free for the recording of the ring.
    fn check_space(&self, bag: &Bag, ring: RingState) -> Result<(), String> {
        let folder = self.output.parent().unwrap_or(&self.ring);
        let available = available_bytes(folder).map_err(|error| error.to_string())?;
        let (start, end) = (at(self.start.as_ref()), at(self.end.as_ref()));
        let is_older = |file: &&BagFile| !file.may_have(start, None);
        let older = bag.files().iter().filter(is_older).map(|file| file.bytes);
        let room = if ring.makes_room { older.sum::<u64>() } else { 0 };
        refuse_full(
            &self.output,
            bytes_within(bag, start, end),
            available,
            room,
            ring.kept_free_bytes,
        )
    }

    /// Makes the bag, in the caller's thread. `ring` is the state of a ring that is being recorded.
    ///
    /// # Errors
    /// One sentence.
    pub fn copy(
        &self,
        ring: Option<RingState>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Copied, String> {
        let bag = Bag::open(&self.ring).map_err(|error| error.to_string())?;
        if let Some(ring) = ring {
            self.check_space(&bag, ring)?;
        }
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
        Ok(Copied {
            written,
            note: Some(notes.join("; ")).filter(|note| !note.is_empty()),
            ends_early: may_go_on,
        })
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

    pub(super) fn json(&self) -> Value {
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

/// Bytes of a bag's files that a copy of this span reads, all topics: the chunks of finished files, and other files whole. What is packed counts packed.
fn bytes_within(bag: &Bag, start: Option<Timestamp>, end: Option<Timestamp>) -> u64 {
    let of_chunks = |file: &BagFile| {
        let opened = bag.chunks()?.open(&file.path).ok()?;
        let parts = opened.has_index().ok()?.then(|| opened.parts().ok())??;
        let is_within = |(first, last, _): &&(Timestamp, Timestamp, u64)| {
            start.is_none_or(|start| *last >= start) && end.is_none_or(|end| *first <= end)
        };
        let within = parts.iter().filter(is_within);
        Some(within.map(|(.., bytes)| bytes).sum::<u64>())
    };
    let files = bag.files().iter().filter(|file| file.may_have(start, end));
    files.map(|file| of_chunks(file).unwrap_or(file.bytes)).sum()
}

/// Refuses a copy that would leave less free than must stay so: the recording of its ring would end. `room` is what the ring can still remove.
fn refuse_full(output: &Path, bytes: u64, available: u64, room: u64, kept_free: u64) -> Result<(), String> {
    // Space is reserved ahead of what is written.
    let needed = bytes.saturating_add(reserved_ahead(bytes).min(available / 4));
    if available.saturating_add(room) >= needed.saturating_add(kept_free) {
        return Ok(());
    }
    Err(format!(
        "the copy into {} needs up to {}; {} are free, of which {} must stay so: free some space, and copy this part while the ring has it",
        OutsidePath(output),
        format_bytes(needed),
        format_bytes(available),
        format_bytes(kept_free),
    ))
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

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_bag::Writer;
    use holdall_tools::tools::LeftOutMessages;

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
    fn a_copy_keeps_free_what_its_recording_needs_unless_the_ring_makes_room() {
        let output = Path::new("/data/event");
        let refuse = |bytes, available, room| refuse_full(output, bytes, available, room, 1 << 30);
        assert_eq!(refuse(1 << 20, (1 << 30) + (1 << 20), 0), Ok(()));
        let said = refuse(1 << 20, (1 << 30) + (1 << 20) - 1, 0).unwrap_err();
        assert_eq!(
            said,
            "the copy into /data/event needs up to 1.0 MiB; 1.0 GiB are free, of which 1.0 GiB must stay so: free some space, and copy this part \
             while the ring has it"
        );
        assert_eq!(refuse(1 << 20, 1 << 30, 1 << 20), Ok(()), "older files can go");
        // Half of it is reserved ahead.
        assert_eq!(refuse(1 << 30, 5 << 29, 0), Ok(()));
        assert!(refuse(1 << 30, (5 << 29) - 1, 0).is_err());
        assert!(refuse_full(output, 2, 1, 0, 0).is_err());
    }

    #[test]
    fn a_copy_for_which_there_is_no_room_is_not_begun() {
        let dir = tempfile::tempdir().unwrap();
        let ring = dir.path().join("ring");
        let mut writer = Writer::create(&ring).unwrap();
        let topic = writer.add_topic("/t", "std_msgs/msg/String").unwrap();
        for nanos in 1..=100 {
            let time = Timestamp::from_nanos(nanos);
            writer.write(topic, time, &[7; 1000]).unwrap();
        }
        writer.close().unwrap();
        let bag = Bag::open(&ring).unwrap();
        let bytes = |start, end| {
            bytes_within(
                &bag,
                Some(Timestamp::from_nanos(start)),
                Some(Timestamp::from_nanos(end)),
            )
        };
        assert!((100_000..300_000).contains(&bytes(1, 100)), "{}", bytes(1, 100));
        assert_eq!(bytes(101, 200), 0);
        let part = Promotion::of_request(&ring, &json!({"output": "part"})).unwrap();
        let copy = |kept_free_bytes| {
            let state = RingState {
                kept_free_bytes,
                ..RingState::default()
            };
            part.copy(Some(state), &mut |_, _| ())
        };
        let refused = copy(u64::MAX).map(|copied| copied.note).unwrap_err();
        assert!(refused.contains("must stay so: free some space"), "{refused}");
        assert!(!dir.path().join("part").exists());
        let copied = copy(0).unwrap_or_else(|reason| panic!("{reason}"));
        assert_eq!((copied.written.messages, copied.note), (100, None));
    }

    #[test]
    fn what_a_copy_lacks_is_what_had_expired_cannot_be_read_or_came_late() {
        let span = Window {
            start: Timestamp::from_nanos(10),
            until: Timestamp::from_nanos(20),
        };
        let said = |expired: Option<i64>, on_disk, ends_early| {
            let copied = Copied {
                written: Written {
                    left_out: LeftOutMessages {
                        messages: Some(0),
                        ..LeftOutMessages::default()
                    },
                    ..Written::default()
                },
                note: None,
                ends_early,
            };
            let ring = RingState {
                expired_until: expired.map(Timestamp::from_nanos),
                ..RingState::default()
            };
            copied.fault(span, ring, on_disk)
        };
        let (expired, late) = (
            "a part had expired",
            "its last messages were not on the disk 30 s after they had to be",
        );
        assert_eq!(said(Some(9), OnDisk::All, true), None);
        assert_eq!(said(Some(10), OnDisk::All, true).as_deref(), Some(expired));
        assert_eq!(said(None, OnDisk::Late, false).as_deref(), Some(late));
        assert_eq!(said(None, OnDisk::Unknown, false), None);
        assert_eq!(said(None, OnDisk::Unknown, true).as_deref(), Some(late));
        let both = format!("{expired}; {late}");
        assert_eq!(said(Some(15), OnDisk::Late, true), Some(both));
    }
}
