//! The node's services as a state machine: reads and answers the requests that have arrived, and returns when to be stepped again.

use super::{
    answer::{Answer, Handler},
    interface::{RequestLayout, ServiceInterface},
    parameters::{self, Parameters},
    types,
};
use holdall_model::time::Timestamp;
use holdall_transport::{RequestId, ServiceRequest, ServiceServer};
use std::sync::mpsc::{Receiver, TryRecvError};

/// Requests whose answers may take a while; more are refused.
const LATER_MAX: usize = 64;

/// Requests of a service that were refused with a line in the log; of more there is one for each hundred.
const LOGGED_MAX: u64 = 10;

/// When to step again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// When something has arrived.
    Signal,
    /// Soon.
    Soon,
    /// At this time of day.
    At(Timestamp),
}

/// A service of the node.
pub(super) struct Served {
    /// Below the node's name.
    pub name: &'static str,
    /// With the node's name.
    pub full_name: String,
    /// Its type.
    pub interface: ServiceInterface,
}

/// The request that a reply belongs to.
#[derive(Clone, Copy)]
struct Asked {
    server: usize,
    id: RequestId,
    layout: RequestLayout,
}

/// An answer that takes a while.
struct Waiting {
    to: Asked,
    answer: Receiver<Answer>,
}

/// A node's services.
pub(super) struct NodeState {
    services: Vec<Served>,
    servers: Vec<(usize, Box<dyn ServiceServer>)>,
    handler: Box<dyn Handler>,
    parameters: Parameters,
    later: Vec<Waiting>,
    refused: u64,
}

impl NodeState {
    /// Nothing is answered before the first step.
    pub fn new(
        services: Vec<Served>,
        servers: Vec<(usize, Box<dyn ServiceServer>)>,
        handler: Box<dyn Handler>,
        parameters: Parameters,
    ) -> Self {
        Self {
            services,
            servers,
            handler,
            parameters,
            later: Vec::new(),
            refused: 0,
        }
    }

    /// Answers everything that has arrived.
    pub fn step(&mut self, now: Timestamp) -> Next {
        let mut requests = Vec::new();
        for server in 0..self.servers.len() {
            self.servers[server].1.poll(&mut requests);
            let dropped = self.servers[server].1.take_dropped();
            if dropped > 0 {
                let name = &self.services[self.servers[server].0].full_name;
                tracing::warn!("{name}: {dropped} requests are not answered: too many or too long");
            }
            for request in requests.drain(..) {
                self.answer(server, &request, now);
            }
        }
        self.answer_later();
        let due = self.handler.step(now);
        let has_waiting = |(_, server): &(usize, Box<dyn ServiceServer>)| server.has_waiting_replies();
        if !self.later.is_empty() || self.servers.iter().any(has_waiting) {
            return Next::Soon;
        }
        due.map_or(Next::Signal, Next::At)
    }

    fn answer(&mut self, server: usize, request: &ServiceRequest, now: Timestamp) {
        let served = &self.services[self.servers[server].0];
        let mut to = Asked {
            server,
            id: request.id,
            layout: RequestLayout::default(),
        };
        let answer = match served.interface.read(&request.payload) {
            Ok((layout, body)) => {
                to.layout = layout;
                if parameters::SERVICES.iter().any(|(name, _)| *name == served.name) {
                    parameters::answer(&self.parameters, served.name, &body)
                } else if served.name == types::SERVICE.0 {
                    types::answer(&body, |name, hash| self.handler.definition(name, hash))
                } else {
                    self.handler.answer(served.name, &body, now)
                }
            }
            Err(error) => Answer::Refusal(format!("the request cannot be read: {error}")),
        };
        self.reply(to, answer);
    }

    fn reply(&mut self, to: Asked, answer: Answer) {
        let served = &self.services[self.servers[to.server].0];
        let reply = match answer {
            Answer::Reply(reply) => reply,
            Answer::Refusal(reason) => {
                self.refused += 1;
                if self.refused <= LOGGED_MAX || self.refused.is_multiple_of(100) {
                    tracing::warn!("{}: {reason}", served.full_name);
                }
                served.interface.refusal(&reason)
            }
            Answer::Later(answer) if self.later.len() < LATER_MAX => {
                self.later.push(Waiting { to, answer });
                return;
            }
            Answer::Later(_) => served.interface.refusal("too many requests wait already"),
        };
        let sent = match served.interface.write(to.layout, &reply) {
            Ok(replies) => {
                let sent = self.servers[to.server].1.reply(&to.id, &replies);
                sent.map_err(|error| error.to_string())
            }
            Err(error) => Err(format!(
                "{}: the reply cannot be written: {error}",
                served.full_name
            )),
        };
        if let Err(error) = sent {
            tracing::warn!("{error}");
        }
    }

    fn answer_later(&mut self) {
        let mut index = 0;
        while let Some(waiting) = self.later.get(index) {
            let answer = match waiting.answer.try_recv() {
                Err(TryRecvError::Empty) => {
                    index += 1;
                    continue;
                }
                Ok(answer) => answer,
                Err(TryRecvError::Disconnected) => {
                    Answer::Refusal("it ended before it could answer".to_owned())
                }
            };
            let Waiting { to, .. } = self.later.remove(index);
            self.reply(to, answer);
        }
    }
}
