//! Graph events and answers to requests that a participant of a memory network has not received yet.

use crate::{GraphEvent, GraphWake, TypeDescriptionReply, TypeSource};
use holdall_model::topic::NodeName;
use std::collections::HashMap;

/// A request for a type's sources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    node: NodeName,
    type_name: String,
    type_hash: String,
}

/// Events and questions that wait for one participant.
#[derive(Default)]
pub(super) struct Inbox {
    pub events: Vec<GraphEvent>,
    pub questions: Vec<Question>,
    pub wake: Option<GraphWake>,
}

impl Inbox {
    /// Adds an event.
    pub fn notify(&mut self, event: GraphEvent) {
        self.events.push(event);
        if let Some(wake) = &self.wake {
            wake();
        }
    }

    /// Notes a request, once.
    pub fn ask(&mut self, node: &NodeName, type_name: &str, type_hash: &str) {
        let question = Question {
            node: node.clone(),
            type_name: type_name.to_owned(),
            type_hash: type_hash.to_owned(),
        };
        if !self.questions.contains(&question) {
            self.questions.push(question);
        }
    }

    /// Appends answers to the requests whose node has one; the others stay open.
    pub fn answer(
        &mut self,
        descriptions: &HashMap<(NodeName, String), Result<Vec<TypeSource>, String>>,
        replies: &mut Vec<TypeDescriptionReply>,
    ) {
        self.questions.retain(|question| {
            let Some(sources) = descriptions.get(&(question.node.clone(), question.type_name.clone())) else {
                return true;
            };
            replies.push(TypeDescriptionReply {
                type_name: question.type_name.clone(),
                type_hash: question.type_hash.clone(),
                sources: sources.clone(),
                descriptions: Vec::new(),
            });
            false
        });
    }
}
