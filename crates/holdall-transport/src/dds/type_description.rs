//! Asks nodes for the sources of their types: a client of `get_type_description` over plain DDS, without waiting.
//!
//! A node answers while it spins. Requests are repeated every second until an answer comes or the node is gone.

use super::{
    cdr::{CdrError, CdrReader, CdrWriter},
    ffi_entity::{DdsError, Participant, Reader, Received, Writer},
    qos::{DdsHistory, DdsQos, WRITE_BLOCK_NANOS_MAX, is_cyclone},
};
use crate::{TypeDescriptionReply, TypeSource};
use holdall_model::{
    names::dds::{service_reply_to_dds, service_request_to_dds},
    topic::{Gid, NodeName},
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

const REQUEST_TYPE: &str = "type_description_interfaces::srv::dds_::GetTypeDescription_Request_";
const REPLY_TYPE: &str = "type_description_interfaces::srv::dds_::GetTypeDescription_Response_";

/// How long to wait for an answer before the request is repeated.
const RETRY: Duration = Duration::from_secs(1);

/// Most requests that wait for an answer of one node; services keep ten.
const IN_FLIGHT_MAX: usize = 8;

/// `rmw_qos_profile_services_default`.
fn service_qos() -> DdsQos {
    DdsQos {
        reliable: true,
        max_blocking_nanos: WRITE_BLOCK_NANOS_MAX,
        history: DdsHistory::KeepLast(10),
        ..DdsQos::default()
    }
}

/// How requests and replies are wrapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mapping {
    /// The body only; the transport correlates (rmw_fastrtps and others).
    Bare,
    /// The client's identifier and a sequence number before the body (rmw_cyclonedds).
    Header { client: u64 },
}

/// A question that has no answer yet.
struct Question {
    type_name: String,
    type_hash: String,
    /// Distinguishes requests with [`Mapping::Header`].
    number: u64,
    sent: Option<Duration>,
}

/// The client of one node.
struct Client {
    requests: Writer,
    replies: Reader,
    questions: Vec<Question>,
    next_number: u64,
    /// Once a failure without a type's name came: one request at a time, so that the next one can be told apart.
    one_by_one: bool,
}

/// All clients.
#[derive(Default)]
pub(super) struct TypeDescriptions {
    clients: BTreeMap<NodeName, Client>,
    /// Answers that need no node, such as failures to ask.
    ready: Vec<TypeDescriptionReply>,
}

impl TypeDescriptions {
    /// Asks a node, once for each type and hash.
    pub(super) fn ask(
        &mut self,
        participant: &Arc<Participant>,
        node: &NodeName,
        type_name: &str,
        hash: &str,
    ) {
        let client = match self.clients.get_mut(node) {
            Some(client) => client,
            None => match Client::new(participant, node) {
                Ok(client) => self.clients.entry(node.clone()).or_insert(client),
                Err(error) => {
                    self.ready
                        .push(failure(type_name, hash, format!("cannot ask {node}: {error}")));
                    return;
                }
            },
        };
        client.ask(type_name, hash);
    }

    /// Appends answers that have arrived and repeats requests; never blocks for an answer.
    pub(super) fn poll(
        &mut self,
        now: Duration,
        is_there: impl Fn(&NodeName) -> bool,
        replies: &mut Vec<TypeDescriptionReply>,
    ) {
        replies.append(&mut self.ready);
        self.clients.retain(|node, client| {
            client.read_replies(replies);
            if !is_there(node) {
                let gone = client.questions.drain(..);
                replies.extend(gone.map(|question| {
                    failure(
                        &question.type_name,
                        &question.type_hash,
                        format!("{node} is gone"),
                    )
                }));
            }
            client.send_requests(now);
            !client.questions.is_empty()
        });
    }
}

fn failure(type_name: &str, type_hash: &str, reason: String) -> TypeDescriptionReply {
    TypeDescriptionReply {
        type_name: type_name.to_owned(),
        type_hash: type_hash.to_owned(),
        sources: Err(reason),
    }
}

impl Client {
    fn new(participant: &Arc<Participant>, node: &NodeName) -> Result<Self, DdsError> {
        let service = format!("{node}/get_type_description");
        let qos = service_qos();
        let reader_qos = DdsQos {
            history: DdsHistory::KeepAll,
            ..qos.clone()
        };
        Ok(Self {
            replies: Reader::new(
                participant,
                &service_reply_to_dds(&service),
                REPLY_TYPE,
                &reader_qos,
                None,
            )?,
            requests: Writer::new(participant, &service_request_to_dds(&service), REQUEST_TYPE, &qos)?,
            questions: Vec::new(),
            next_number: 1,
            one_by_one: false,
        })
    }

    fn ask(&mut self, type_name: &str, type_hash: &str) {
        let known = |question: &Question| question.type_name == type_name && question.type_hash == type_hash;
        if self.questions.iter().any(known) {
            return;
        }
        let (type_name, type_hash) = (type_name.to_owned(), type_hash.to_owned());
        self.questions.push(Question {
            type_name,
            type_hash,
            number: self.next_number,
            sent: None,
        });
        self.next_number += 1;
    }

    fn mapping(&self, server: Gid) -> Mapping {
        if is_cyclone(server) {
            Mapping::Header {
                client: client_id(self.requests.gid()),
            }
        } else {
            Mapping::Bare
        }
    }

    fn send_requests(&mut self, now: Duration) {
        // Replies get lost while the server does not know our reader yet.
        let Some(server) = self.replies.matched_gids().first().copied() else {
            return;
        };
        if self.requests.matched() == 0 {
            return;
        }
        let mapping = self.mapping(server);
        let in_flight_max = if self.one_by_one { 1 } else { IN_FLIGHT_MAX };
        for question in self.questions.iter_mut().take(in_flight_max) {
            if question.sent.is_some_and(|sent| now.saturating_sub(sent) < RETRY) {
                continue;
            }
            question.sent = Some(now);
            if let Err(error) = self.requests.write(&encode_request(mapping, question)) {
                tracing::debug!("cannot ask for {}: {error}", question.type_name);
            }
        }
    }

    fn read_replies(&mut self, replies: &mut Vec<TypeDescriptionReply>) {
        let mut batch = Vec::new();
        loop {
            self.replies.take(&mut batch);
            if batch.is_empty() {
                return;
            }
            for received in batch.drain(..) {
                self.read_reply(&received, replies);
            }
        }
    }

    fn read_reply(&mut self, received: &Received, replies: &mut Vec<TypeDescriptionReply>) {
        let Some((server, _)) = received.sample.origin() else {
            return;
        };
        let mut payload = Vec::with_capacity(received.sample.len());
        received
            .sample
            .pieces()
            .for_each(|piece| payload.extend_from_slice(piece));
        match Reply::decode(self.mapping(server), &payload) {
            Ok(Some(reply)) => self.take_reply(reply, replies),
            Ok(None) => {}
            Err(error) => tracing::debug!("malformed type description from {server}: {error}"),
        }
    }

    /// Finds the question that a reply answers. Replies for other clients of the service arrive as well.
    fn take_reply(&mut self, reply: Reply, replies: &mut Vec<TypeDescriptionReply>) {
        let position = match (&reply.number, &reply.outcome) {
            (Some(number), _) => self
                .questions
                .iter()
                .position(|question| question.number == *number),
            (None, Ok(described)) => self
                .questions
                .iter()
                .position(|question| question.type_name == described.type_name),
            (None, Err(_)) if self.in_flight() == 1 => {
                self.questions.iter().position(|question| question.sent.is_some())
            }
            (None, Err(_)) => {
                self.one_by_one = true;
                self.questions
                    .iter_mut()
                    .for_each(|question| question.sent = None);
                None
            }
        };
        let Some(position) = position else { return };
        let Question {
            type_name, type_hash, ..
        } = self.questions.remove(position);
        let sources = reply.outcome.map(|described| described.sources);
        replies.push(TypeDescriptionReply {
            type_name,
            type_hash,
            sources,
        });
    }

    fn in_flight(&self) -> usize {
        self.questions
            .iter()
            .filter(|question| question.sent.is_some())
            .count()
    }
}

/// How rmw_cyclonedds names a client: any number will do that no other client has.
fn client_id(writer: Gid) -> u64 {
    let (mut high, mut low) = ([0; 8], [0; 8]);
    high.copy_from_slice(&writer.0[..8]);
    low.copy_from_slice(&writer.0[8..]);
    u64::from_le_bytes(high) ^ u64::from_le_bytes(low).rotate_left(32)
}

fn encode_request(mapping: Mapping, question: &Question) -> Vec<u8> {
    let mut writer = CdrWriter::new();
    if let Mapping::Header { client } = mapping {
        writer.bytes(&client.to_le_bytes());
        writer.bytes(&question.number.to_le_bytes());
    }
    writer.text(&question.type_name);
    writer.text(&question.type_hash);
    // include_type_sources
    writer.u8(1);
    writer.finish()
}

/// A type and its sources.
#[derive(Debug, PartialEq, Eq)]
struct Described {
    type_name: String,
    sources: Vec<TypeSource>,
}

/// `GetTypeDescription_Response`.
#[derive(Debug, PartialEq, Eq)]
struct Reply {
    /// The request's number, with [`Mapping::Header`].
    number: Option<u64>,
    /// The answer, or the node's reason for having none.
    outcome: Result<Described, String>,
}

impl Reply {
    /// Reads a reply; `None` when it is for another client.
    fn decode(mapping: Mapping, payload: &[u8]) -> Result<Option<Self>, CdrError> {
        let mut reader = CdrReader::new(payload)?;
        let mut number = None;
        if let Mapping::Header { client } = mapping {
            let for_client = reader.u64()?;
            number = Some(reader.u64()?);
            if for_client != client {
                return Ok(None);
            }
        }
        let successful = reader.u8()? != 0;
        let reason = reader.text()?.to_owned();
        if !successful {
            return Ok(Some(Self {
                number,
                outcome: Err(reason),
            }));
        }
        let type_name = skip_description(&mut reader)?.to_owned();
        for _ in 0..reader.sequence_len(8)? {
            skip_description(&mut reader)?;
        }
        let count = reader.sequence_len(12)?;
        let mut sources = Vec::with_capacity(count);
        for _ in 0..count {
            sources.push(TypeSource {
                type_name: reader.text()?.to_owned(),
                encoding: reader.text()?.to_owned(),
                text: reader.text()?.to_owned(),
            });
        }
        Ok(Some(Self {
            number,
            outcome: Ok(Described { type_name, sources }),
        }))
    }
}

/// Skips an `IndividualTypeDescription`; returns the type's name.
fn skip_description<'a>(reader: &mut CdrReader<'a>) -> Result<&'a str, CdrError> {
    let type_name = reader.text()?;
    // A field takes its name, type id, two capacities, nested type and default value: 29 bytes or more.
    for _ in 0..reader.sequence_len(29)? {
        reader.text()?;
        reader.u8()?;
        reader.u64()?;
        reader.u64()?;
        reader.text()?;
        reader.text()?;
    }
    Ok(type_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question() -> Question {
        Question {
            type_name: "a/msg/B".to_owned(),
            type_hash: "RIHS01_".to_owned(),
            number: 5,
            sent: None,
        }
    }

    fn description(writer: &mut CdrWriter, name: &str) {
        writer.text(name);
        writer.sequence_len(1);
        writer.text("x");
        writer.u8(6);
        writer.align(8);
        writer.bytes(&[0; 16]);
        writer.text("");
        writer.text("7");
    }

    fn reply(header: Option<(u64, u64)>) -> Vec<u8> {
        let mut writer = CdrWriter::new();
        if let Some((client, number)) = header {
            writer.bytes(&client.to_le_bytes());
            writer.bytes(&number.to_le_bytes());
        }
        writer.u8(1);
        writer.text("");
        description(&mut writer, "a/msg/B");
        writer.sequence_len(2);
        description(&mut writer, "a/msg/C");
        description(&mut writer, "a/msg/D");
        writer.sequence_len(1);
        writer.text("a/msg/B");
        writer.text("msg");
        writer.text("int32 x\n");
        writer.sequence_len(0);
        writer.finish()
    }

    #[test]
    fn request_is_the_body_or_a_header_and_the_body() {
        let bare = encode_request(Mapping::Bare, &question());
        assert_eq!(&bare[..9], [0, 1, 0, 0, 8, 0, 0, 0, b'a']);
        let wrapped = encode_request(Mapping::Header { client: 3 }, &question());
        assert_eq!(wrapped[4..12], 3u64.to_le_bytes());
        assert_eq!(wrapped[12..20], 5u64.to_le_bytes());
        assert_eq!(wrapped[20..], bare[4..]);
    }

    #[test]
    fn both_mappings_are_read() {
        let bare = Reply::decode(Mapping::Bare, &reply(None)).unwrap().unwrap();
        let described = bare.outcome.unwrap();
        assert_eq!((bare.number, described.type_name.as_str()), (None, "a/msg/B"));
        assert_eq!(described.sources[0].text, "int32 x\n");
        let mapping = Mapping::Header { client: 3 };
        let ours = Reply::decode(mapping, &reply(Some((3, 5)))).unwrap().unwrap();
        assert_eq!((ours.number, ours.outcome), (Some(5), Ok(described)));
        assert_eq!(Reply::decode(mapping, &reply(Some((4, 5)))), Ok(None));
    }

    #[test]
    fn failure_carries_the_reason() {
        let mut writer = CdrWriter::new();
        writer.u8(0);
        writer.text("Type not currently in use by this node");
        let reply = Reply::decode(Mapping::Bare, &writer.finish()).unwrap().unwrap();
        assert_eq!(
            reply.outcome,
            Err("Type not currently in use by this node".to_owned())
        );
    }

    #[test]
    fn cut_replies_are_refused() {
        let whole = reply(None);
        // The sequence at the end, which nobody reads, takes the last eight bytes with its padding.
        for len in 0..whole.len() - 8 {
            assert!(
                Reply::decode(Mapping::Bare, &whole[..len]).is_err(),
                "{len} of {}",
                whole.len()
            );
        }
    }
}
