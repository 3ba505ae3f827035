//! `holdall info`: what is in a bag, and what was lost.

use super::input;
use crate::{
    VerbResult,
    args::info::{InfoArguments, Sort},
    exit::{Failure, Outcome},
    output,
    render::{
        info::{BagView, Contents, ServiceCounts},
        timeline::Timeline,
    },
    terminal::log,
};
use holdall::{
    reader::{Bag, BagFile, BagSet, MessageFilter, ReadError, Ros1View},
    tools::attach,
};
use holdall_model::{marker::Marker, names::service_of_event_topic, text::one_line};
use jiff::tz::TimeZone;
use std::{
    collections::{BTreeMap, HashSet},
    path::Path,
};
use tracing::{level_filters::LevelFilter, warn};

/// Shows a bag.
pub fn run(args: &InfoArguments) -> VerbResult {
    log::start(LevelFilter::WARN);
    let named = input::resolve(std::slice::from_ref(&args.bag))?;
    let bag = Bag::open_with(&named.paths[0], Ros1View::AsStored)
        .map_err(|error| Failure::opening(error, &named.paths))?;
    for notice in bag.notices() {
        warn!("{notice}");
    }
    output::result(&text_of(&bag, args)?)?;
    if args.timeline {
        let markers = bag.markers().map_err(Failure::failed)?;
        let lanes = timeline(&bag, &markers).map_err(Failure::failed)?;
        output::result(&format!("\n{lanes}"))?;
    }
    Ok(Outcome::Done)
}

/// What `--json` shows of a bag.
pub fn json(path: &Path) -> Result<String, Failure> {
    let bag = Bag::open_with(path, Ros1View::AsStored).map_err(Failure::failed)?;
    let args = InfoArguments {
        bag: path.to_owned(),
        storage: None,
        topic_name: false,
        verbose: false,
        timeline: false,
        sort: Sort::Name,
        json: true,
    };
    text_of(&bag, &args)
}

fn text_of(bag: &Bag, args: &InfoArguments) -> Result<String, Failure> {
    let state = bag.state().map_err(Failure::failed)?;
    let contents = if args.verbose {
        Some(read_contents(bag.clone()).map_err(Failure::failed)?)
    } else {
        None
    };
    // A bag of another recorder, and one without channels of publishers, has only publishers that it does not
    // identify.
    let mut publishers = Vec::new();
    if args.verbose {
        publishers = bag.publishers().map_err(Failure::failed)?;
        if publishers.iter().all(|counted| counted.publisher.is_none()) {
            publishers.clear();
        }
    }
    let undefined = bag.undefined_topics().map_err(Failure::failed)?;
    let repeated = bag.hidden_by_topic();
    let markers = bag.markers().map_err(Failure::failed)?;
    // A file without its end would be read whole for them; attachments are made in complete bags only.
    let is_complete = bag.notices().is_empty() && bag.writer().is_none();
    let attached = if is_complete || args.verbose {
        attach::contents_of(bag).unwrap_or_default()
    } else {
        attach::Contents::default()
    };
    let view = BagView {
        metadata: bag.metadata(),
        duration_without_jumps: bag.duration_without_jumps(),
        bytes: bag.size_bytes(),
        state: &state,
        contents: contents.as_ref(),
        publishers: &publishers,
        undefined: &undefined,
        markers: &markers,
        attachments: &attached.attachments,
        repeated: &repeated,
        sort: args.sort,
    };
    Ok(if args.json {
        view.json().map_err(Failure::failed)?
    } else if args.topic_name {
        let names = view.topic_names().into_iter().map(one_line);
        names.collect::<Vec<_>>().join("\n")
    } else {
        let text = view.text(&TimeZone::system());
        match bag.files().iter().any(BagFile::is_sealed) {
            true => format!("{}\nEncrypted:         yes", text.trim_end_matches('\n')),
            false => text,
        }
    })
}

/// When each topic has messages.
fn timeline(bag: &Bag, markers: &[Marker]) -> Result<String, ReadError> {
    let metadata = bag.metadata();
    let (start, span) = (
        metadata.starting_time.map_or(0, |start| start.as_nanos()),
        metadata.duration.as_nanos(),
    );
    let span = i64::try_from(span).unwrap_or(i64::MAX);
    let bags = BagSet::from(vec![bag.clone()]);
    let topics = bags.topics();
    let names = topics.iter().map(|topic| topic.name.as_str());
    let mut timeline = Timeline::new(names, (start, span), output::columns());
    for message in bags.messages(&MessageFilter::default()) {
        let message = message?;
        timeline.add(&message.topic.name, message.log_time.as_nanos());
    }
    Ok(timeline.text(markers.iter().map(|marker| marker.time.as_nanos())))
}

/// Reads all messages: bytes of each topic, requests and responses of each service.
fn read_contents(bag: Bag) -> Result<Contents, ReadError> {
    let mut contents = Contents::default();
    let mut calls = Calls::default();
    for message in BagSet::from(vec![bag]).messages(&MessageFilter::default()) {
        let message = message?;
        let name = &message.topic.name;
        match contents.bytes_by_topic.get_mut(name) {
            Some(bytes) => *bytes += message.payload.len() as u64,
            None => {
                contents
                    .bytes_by_topic
                    .insert(name.clone(), message.payload.len() as u64);
            }
        }
        if service_of_event_topic(name, &message.topic.type_name).is_some() {
            calls.count(name, &message.payload);
        }
    }
    contents.services = calls
        .0
        .into_iter()
        .map(|(topic, seen)| (topic, seen.counts()))
        .collect();
    Ok(contents)
}

/// Calls of services, by event topic.
#[derive(Default)]
struct Calls(BTreeMap<String, SeenCalls>);

/// A call: the client's identifier and its sequence number.
type Call = ([u8; 16], i64);

#[derive(Default)]
struct SeenCalls {
    requests: HashSet<Call>,
    responses: HashSet<Call>,
}

impl SeenCalls {
    fn counts(&self) -> ServiceCounts {
        ServiceCounts {
            requests: self.requests.len() as u64,
            responses: self.responses.len() as u64,
        }
    }
}

impl Calls {
    /// Client and server both report a call, so each is counted once. Events that cannot be read are skipped.
    fn count(&mut self, topic: &str, payload: &[u8]) {
        let seen = self.0.entry(topic.to_owned()).or_default();
        match event_of(payload) {
            Some((0 | 1, call)) => drop(seen.requests.insert(call)),
            Some((2 | 3, call)) => drop(seen.responses.insert(call)),
            _ => {}
        }
    }
}

/// Kind, client and sequence number of a serialized `service_msgs/msg/ServiceEventInfo`, with which every service event begins:
/// `uint8 event_type`, `Time stamp` (two 32-bit words), `char[16] client_gid`, `int64 sequence_number`, each aligned to its size.
fn event_of(payload: &[u8]) -> Option<(u8, Call)> {
    let is_little_endian = payload.get(1)? & 1 == 1;
    let body = payload.get(4..)?;
    let kind = *body.first()?;
    let client: [u8; 16] = body.get(12..28)?.try_into().ok()?;
    let sequence: [u8; 8] = body.get(32..40)?.try_into().ok()?;
    let sequence = if is_little_endian {
        i64::from_le_bytes(sequence)
    } else {
        i64::from_be_bytes(sequence)
    };
    Some((kind, (client, sequence)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: u8, client: u8, sequence: i64, little: bool) -> Vec<u8> {
        let mut payload = vec![0, u8::from(little), 0, 0, kind, 0, 0, 0];
        payload.extend([0; 8]);
        payload.extend([client; 16]);
        payload.extend([0; 4]);
        payload.extend(if little {
            sequence.to_le_bytes()
        } else {
            sequence.to_be_bytes()
        });
        payload
    }

    #[test]
    fn service_events_are_read_in_both_byte_orders() {
        for little in [true, false] {
            assert_eq!(event_of(&event(2, 7, 300, little)), Some((2, ([7; 16], 300))));
        }
        assert_eq!(event_of(&event(2, 7, 300, true)[..43]), None);
        assert_eq!(event_of(&[]), None);
    }

    #[test]
    fn client_and_server_tell_of_the_same_call_which_counts_once() {
        let mut calls = Calls::default();
        for payload in [
            event(0, 1, 1, true),
            event(1, 1, 1, true),
            event(2, 1, 1, true),
            event(1, 2, 1, true),
        ] {
            calls.count("/add/_service_event", &payload);
        }
        assert_eq!(
            calls.0["/add/_service_event"].counts(),
            ServiceCounts {
                requests: 2,
                responses: 1
            }
        );
    }
}
