//! Requests the sources of types from nodes: a client of `get_type_description` over plain DDS, without
//! waiting.
//!
//! A node answers while it spins. Its first answer is lost when it has not matched our reader yet, so one
//! request is repeated soon until the first answer has come; from then on requests are repeated slowly,
//! because a service keeps only ten for all its clients.

use super::server::DdsClient;
use crate::dds::ffi::entity::{DdsError, Participant};
use crate::{
    ServiceClient, ServiceDescription, ServiceReply, TypeDescriptionReply,
    type_messages::{answer, decode_reply, encode_request},
};
use holdall_model::topic::NodeName;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

const SERVICE_TYPE: &str = "type_description_interfaces/srv/GetTypeDescription";

/// How long to wait for a node's first answer before the request is repeated; doubled each time, up to [`RETRY_MAX`].
const RETRY_MIN: Duration = Duration::from_millis(75);

/// How long to wait for an answer of a node that has answered before, or that has not answered several requests.
const RETRY_MAX: Duration = Duration::from_secs(2);

/// Most requests that wait for an answer of one node; services keep ten.
const IN_FLIGHT_MAX: usize = 8;

/// Numbers of a repeated request whose answers are still accepted.
const NUMBERS_MAX: usize = 16;

/// A request that has no answer yet.
struct Question {
    type_name: String,
    type_hash: String,
    /// The numbers of its requests, the latest last.
    numbers: Vec<u64>,
    sent: Option<Duration>,
}

/// The client of one node.
struct Client {
    service: DdsClient,
    questions: Vec<Question>,
    /// The node has answered: it knows our reader.
    has_answered: bool,
    /// Time between the last request to a node that has not answered, and the next.
    retry: Duration,
    last_sent: Option<Duration>,
}

/// All clients.
#[derive(Default)]
pub(in crate::dds) struct TypeDescriptions {
    clients: BTreeMap<NodeName, Client>,
    /// Answers that need no node, such as failures to send a request.
    ready: Vec<TypeDescriptionReply>,
}

impl TypeDescriptions {
    /// Asks a node, once for each type and hash.
    pub(in crate::dds) fn ask(
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
    pub(in crate::dds) fn poll(
        &mut self,
        now: Duration,
        is_present: impl Fn(&NodeName) -> bool,
        replies: &mut Vec<TypeDescriptionReply>,
    ) {
        replies.append(&mut self.ready);
        self.clients.retain(|node, client| {
            client.read_replies(replies);
            if !is_present(node) {
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
        let service = ServiceDescription {
            name: format!("{node}/get_type_description"),
            type_name: SERVICE_TYPE.to_owned(),
            type_hash: None,
        };
        Ok(Self {
            // Not shown under our node, which is announced anew with each endpoint.
            service: DdsClient::new(participant, None, &service, Arc::new(|| {}))?,
            questions: Vec::new(),
            has_answered: false,
            retry: RETRY_MIN,
            last_sent: None,
        })
    }

    fn ask(&mut self, type_name: &str, type_hash: &str) {
        let known = |question: &Question| question.type_name == type_name && question.type_hash == type_hash;
        if self.questions.iter().any(known) {
            return;
        }
        self.questions.push(Question {
            type_name: type_name.to_owned(),
            type_hash: type_hash.to_owned(),
            numbers: Vec::new(),
            sent: None,
        });
    }

    fn send_requests(&mut self, now: Duration) {
        // Replies get lost while the server does not know our reader yet.
        if self.questions.is_empty() || !self.service.is_ready() {
            return;
        }
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
        let in_flight_max = if self.has_answered { IN_FLIGHT_MAX } else { 1 };
        for question in self.questions.iter_mut().take(in_flight_max) {
            if question
                .sent
                .is_some_and(|sent| now.saturating_sub(sent) < RETRY_MAX)
            {
                continue;
            }
            question.sent = Some(now);
            let request = encode_request(&question.type_name, &question.type_hash);
            match self.service.send(&request) {
                Ok(number) => {
                    if question.numbers.len() == NUMBERS_MAX {
                        question.numbers.remove(0);
                    }
                    question.numbers.push(number);
                }
                Err(error) => tracing::debug!("cannot ask for {}: {error}", question.type_name),
            }
        }
    }

    fn read_replies(&mut self, replies: &mut Vec<TypeDescriptionReply>) {
        let mut arrived = Vec::new();
        self.service.poll(&mut arrived);
        for reply in arrived {
            replies.extend(self.take_reply(reply));
        }
    }

    fn take_reply(&mut self, reply: ServiceReply) -> Option<TypeDescriptionReply> {
        let is_asked = |question: &Question| question.numbers.contains(&reply.number);
        let position = self.questions.iter().position(is_asked)?;
        let decoded = reply
            .payload
            .and_then(|payload| decode_reply(&payload).map_err(|error| error.to_string()));
        let outcome = match decoded {
            Ok(outcome) => outcome,
            Err(error) => {
                tracing::debug!("malformed type description: {error}");
                return None;
            }
        };
        self.has_answered = true;
        let Question {
            type_name, type_hash, ..
        } = self.questions.remove(position);
        Some(answer(type_name, type_hash, outcome))
    }
}
