//! Requests the sources of types from nodes: a client of `get_type_description` over plain DDS, without
//! waiting.
//!
//! A node answers while it spins. Its first answer is lost when it has not matched our reader yet, so one
//! request is repeated soon until the first answer has come; from then on requests are repeated slowly,
//! because a service keeps only ten for all its clients.

use super::{
    ffi_entity::{DdsError, Participant, Reader, Received, Writer},
    qos::{DdsHistory, DdsQos, WRITE_BLOCK_NANOS_MAX, is_cyclone},
};
use crate::{
    TypeDescriptionReply,
    type_messages::{ANSWER_BYTES_MAX, Mapping, Reply, answer, client_id, encode_request},
};
use holdall_model::{
    names::dds::{service_reply_to_dds, service_request_to_dds},
    topic::{Gid, NodeName},
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

const REQUEST_TYPE: &str = "type_description_interfaces::srv::dds_::GetTypeDescription_Request_";
const REPLY_TYPE: &str = "type_description_interfaces::srv::dds_::GetTypeDescription_Response_";

/// How long to wait for a node's first answer before the request is repeated; doubled each time, up to [`RETRY_MAX`].
const RETRY_MIN: Duration = Duration::from_millis(75);

/// How long to wait for an answer of a node that has answered before, or that has not answered several requests.
const RETRY_MAX: Duration = Duration::from_secs(2);

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

/// A request that has no answer yet.
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
    /// The node has answered: it knows our reader.
    has_answered: bool,
    /// Time between the last request to a node that has not answered, and the next.
    retry: Duration,
    last_sent: Option<Duration>,
    /// Set once a failure without a type's name came: one request at a time, so that the next one can be
    /// distinguished.
    one_by_one: bool,
}

/// All clients.
#[derive(Default)]
pub(super) struct TypeDescriptions {
    clients: BTreeMap<NodeName, Client>,
    /// Answers that need no node, such as failures to send a request.
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
    answer(type_name.to_owned(), type_hash.to_owned(), Err(reason))
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
            has_answered: false,
            retry: RETRY_MIN,
            last_sent: None,
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
        if !self.has_answered {
            if self
                .last_sent
                .is_some_and(|sent| now.saturating_sub(sent) < self.retry)
            {
                return;
            }
            if self.last_sent.replace(now).is_some() {
                self.retry = (self.retry * 2).min(RETRY_MAX);
            }
            if self.retry == RETRY_MAX {
                // A request that the node does not answer delays no other.
                self.questions.rotate_left(1);
            }
            self.questions
                .iter_mut()
                .for_each(|question| question.sent = None);
        }
        let in_flight_max = if self.one_by_one || !self.has_answered {
            1
        } else {
            IN_FLIGHT_MAX
        };
        for question in self.questions.iter_mut().take(in_flight_max) {
            if question
                .sent
                .is_some_and(|sent| now.saturating_sub(sent) < RETRY_MAX)
            {
                continue;
            }
            question.sent = Some(now);
            let request = encode_request(mapping, question.number, &question.type_name, &question.type_hash);
            if let Err(error) = self.requests.write(&request) {
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
        if received.sample.len() > ANSWER_BYTES_MAX {
            tracing::debug!(
                "a type description of {} bytes from {server} is not read",
                received.sample.len()
            );
            return;
        }
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

    /// Finds the request that a reply answers. Replies for other clients of the service arrive as well.
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
        self.has_answered = true;
        let Question {
            type_name, type_hash, ..
        } = self.questions.remove(position);
        replies.push(answer(type_name, type_hash, reply.outcome));
    }

    fn in_flight(&self) -> usize {
        self.questions
            .iter()
            .filter(|question| question.sent.is_some())
            .count()
    }
}
