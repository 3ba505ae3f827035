//! Requests the sources of types from nodes: a client of `get_type_description`, which is a query in zenoh.

use super::{
    attachment::Attachment,
    discovery::Graph,
    session::OpenSession,
    token::{data_key, gid_of},
};
use crate::{
    SERVICE_BYTES_MAX, TypeDescriptionReply,
    type_messages::{answer, decode_reply, encode_request},
};
use ::zenoh::{
    Wait,
    query::{ConsolidationMode, QueryTarget, Reply},
};
use holdall_io::mutex::lock;
use holdall_model::topic::NodeName;
use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
    time::Duration,
};

/// How long a node may take to answer; the recorder asks again.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// A request: node, type, hash.
type Question = (NodeName, String, String);

/// Requests and answers, shared with zenoh's threads.
#[derive(Default)]
struct State {
    open: HashSet<Question>,
    answers: Vec<TypeDescriptionReply>,
}

/// The client of all nodes.
#[derive(Default)]
pub(super) struct TypeDescriptions {
    state: Arc<Mutex<State>>,
    asked: u64,
}

impl TypeDescriptions {
    /// Sends a request to a node whose service is known, unless an answer is in flight.
    pub(super) fn ask(
        &mut self,
        session: &OpenSession,
        graph: &Graph,
        node: &NodeName,
        type_name: &str,
        type_hash: &str,
    ) {
        let service = format!("{node}/get_type_description");
        let Some((service_type, service_hash)) = graph.service(&service) else {
            return;
        };
        let question = (node.clone(), type_name.to_owned(), type_hash.to_owned());
        if !lock(&self.state).open.insert(question.clone()) {
            return;
        }
        self.asked += 1;
        let attachment = Attachment {
            sequence: self.asked,
            source_nanos: None,
            // A client needs a separate GID; this one belongs to no token.
            gid: gid_of(session.id()),
        };
        let guard = OpenQuestion {
            state: Arc::clone(&self.state),
            question,
        };
        let asked = session
            .zenoh()
            .get(data_key(
                session.domain_id(),
                &service,
                &service_type,
                service_hash.as_deref(),
            ))
            .payload(encode_request(type_name, type_hash))
            .attachment(attachment.encode())
            .target(QueryTarget::BestMatching)
            .consolidation(ConsolidationMode::None)
            .timeout(ANSWER_TIMEOUT)
            .callback(move |reply| guard.answered(&reply))
            .wait();
        if let Err(error) = asked {
            tracing::debug!("cannot ask {node} for {type_name}: {error}");
        }
    }

    /// Appends answers that have arrived.
    pub(super) fn poll(&mut self, replies: &mut Vec<TypeDescriptionReply>) {
        replies.append(&mut lock(&self.state).answers);
    }
}

/// A request in flight; until the query has ended.
struct OpenQuestion {
    state: Arc<Mutex<State>>,
    question: Question,
}

impl OpenQuestion {
    fn answered(&self, reply: &Reply) {
        let mut state = lock(&self.state);
        // One answer counts, however many a server sends.
        if !state.open.remove(&self.question) {
            return;
        }
        let (node, type_name, type_hash) = &self.question;
        let described = match reply.result() {
            Ok(sample) if sample.payload().len() > SERVICE_BYTES_MAX => {
                Err(format!("{node} answers with {} bytes", sample.payload().len()))
            }
            Ok(sample) => decode_reply(&sample.payload().to_bytes())
                .map_err(|error| format!("the answer of {node} is malformed: {error}")),
            Err(error) => Err(format!(
                "{node} refuses: {}",
                String::from_utf8_lossy(&error.payload().to_bytes())
            )),
        };
        let outcome = described.and_then(|outcome| outcome);
        state
            .answers
            .push(answer(type_name.clone(), type_hash.clone(), outcome));
    }
}

impl Drop for OpenQuestion {
    fn drop(&mut self) {
        lock(&self.state).open.remove(&self.question);
    }
}
