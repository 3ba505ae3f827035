//! The zenoh transport itself: opens a session and creates subscriptions and publishers.

use super::{
    config::ZenohEnvironment,
    discovery::{Graph, LatchedPublisher},
    history,
    loan::Lender,
    publisher::ZenohPublisher,
    routers::RouterWatch,
    service::{ZenohClient, ZenohServer},
    session::OpenSession,
    subscription::{Receiver, Surroundings, ZenohSubscription},
    token::tokens_of,
    type_description::TypeDescriptions,
};
use crate::{
    GraphEvent, PublishRequest, Publisher, ServiceClient, ServiceDescription, ServiceServer, ServiceWake,
    Sink, SubscribeRequest, Subscription, Transport, TransportError, TypeDescriptionReply,
    registry::{Backend, OpenError},
    service::{check_service, service_error},
};
use ::zenoh::{
    Session, Wait,
    pubsub::Subscriber,
    sample::SampleKind,
    session::{LinkEvent, LinkEventsListener, TransportEvent, TransportEventsListener},
};
use holdall_io::clock::Clock;
use holdall_model::{names::validate_full_name, time::Timestamp, topic::NodeName};
use std::sync::{Arc, Weak};

const NAME: &str = "zenoh";

/// The entry of this transport for the registry.
pub(crate) static BACKEND: Backend = Backend {
    open: |options| {
        let variable = options.variable;
        let environment = ZenohEnvironment {
            session_config_uri: variable("ZENOH_SESSION_CONFIG_URI").map(Into::into),
            config_override: variable("ZENOH_CONFIG_OVERRIDE"),
            router_check_attempts: variable("ZENOH_ROUTER_CHECK_ATTEMPTS"),
        };
        environment.check().map_err(OpenError::Variable)?;
        let zenoh = ZenohOptions {
            domain_id: domain_of(variable("ROS_DOMAIN_ID").as_deref()).map_err(OpenError::Variable)?,
            node: options.node.clone(),
            environment,
        };
        Ok(Box::new(ZenohTransport::new(&zenoh, Arc::clone(&options.clock))?))
    },
    receives: |thread| thread.starts_with("rx-"),
    missing: |_| None,
};

/// The number in `ROS_DOMAIN_ID`, with the bounds that hold for all of ROS.
fn domain_of(text: Option<&str>) -> Result<u32, String> {
    let Some(text) = text else { return Ok(0) };
    match text.trim().parse() {
        Ok(id @ 0..=232) => Ok(id),
        _ => Err(format!(
            "ROS_DOMAIN_ID must be a number from 0 to 232, not {text:?}"
        )),
    }
}

/// How to reach a ROS domain over zenoh.
#[derive(Clone, Debug)]
pub struct ZenohOptions {
    /// The ROS domain.
    pub domain_id: u32,
    /// Node to show in the graph.
    pub node: NodeName,
    /// zenoh's variables.
    pub environment: ZenohEnvironment,
}

/// The transport. Subscriptions, publishers and loans may outlive it.
pub struct ZenohTransport {
    surroundings: Surroundings,
    _tokens: Subscriber<()>,
    _links: (TransportEventsListener<()>, LinkEventsListener<()>),
    /// Subscriptions that request the messages kept by publishers.
    latched: Vec<Weak<Receiver>>,
    routers: RouterWatch,
    type_descriptions: TypeDescriptions,
}

impl ZenohTransport {
    /// Opens a session. A peer can start alone; a client must reach a router.
    ///
    /// # Errors
    /// [`TransportError::Start`] for a bad variable, or when zenoh does not start.
    pub fn new(options: &ZenohOptions, clock: Arc<dyn Clock>) -> Result<Self, TransportError> {
        let start = |reason: String| TransportError::Start {
            transport: NAME,
            reason,
        };
        let failed = |error: ::zenoh::Error| start(error.to_string());
        let config = options.environment.config().map_err(start)?;
        let expects_router = options.environment.expects_router().map_err(start)?;
        let reaches = config.get_json("connect/endpoints").unwrap_or_default();
        let session = OpenSession::open(config, options.domain_id, options.node.clone()).map_err(failed)?;
        let routers =
            RouterWatch::new(session.zenoh(), reaches, expects_router, clock.monotonic()).map_err(failed)?;
        let graph = Arc::new(Graph::new(session.id()));
        let links = follow_links(session.zenoh(), &graph).map_err(failed)?;
        let noted = Arc::clone(&graph);
        let tokens = session
            .zenoh()
            .liveliness()
            .declare_subscriber(tokens_of(options.domain_id))
            .history(true)
            // Only noted here: declaring anything on this thread would wait for the thread itself.
            .callback(move |sample| match sample.kind() {
                SampleKind::Put => noted.appeared(sample.key_expr().as_str()),
                SampleKind::Delete => noted.vanished(sample.key_expr().as_str()),
            })
            .wait()
            .map_err(failed)?;
        Ok(Self {
            surroundings: Surroundings {
                session: Arc::new(session),
                lender: Arc::new(Lender::new(&graph)),
                graph,
                clock,
            },
            _tokens: tokens,
            _links: links,
            latched: Vec::new(),
            routers,
            type_descriptions: TypeDescriptions::default(),
        })
    }

    /// Queries publishers that keep messages and have just appeared for the messages they have already sent.
    fn ask_late_publishers(&mut self, publishers: &[LatchedPublisher]) {
        self.latched.retain(|receiver| receiver.strong_count() > 0);
        for receiver in self.latched.iter().filter_map(Weak::upgrade) {
            let on_topic = publishers.iter().filter(|publisher| {
                publisher.topic == receiver.topic && publisher.type_name == receiver.type_name
            });
            for publisher in on_topic {
                if let Err(error) = history::ask_one(&self.surroundings.session, &receiver, publisher) {
                    tracing::warn!("{}: cannot ask for earlier messages: {error}", receiver.topic);
                }
            }
        }
    }
}

impl Transport for ZenohTransport {
    fn name(&self) -> &'static str {
        NAME
    }

    fn poll_graph(&mut self, events: &mut Vec<GraphEvent>) -> Result<(), TransportError> {
        let now = self.surroundings.clock.monotonic();
        self.routers.check(now);
        let publishers = self.surroundings.graph.poll(now, events);
        if !publishers.is_empty() {
            self.ask_late_publishers(&publishers);
        }
        Ok(())
    }

    fn subscribe(
        &mut self,
        request: &SubscribeRequest,
        sink: Arc<dyn Sink>,
    ) -> Result<Box<dyn Subscription>, TransportError> {
        check_name(&request.topic)?;
        let subscription = ZenohSubscription::new(&self.surroundings, request, sink)
            .map_err(|error| refused(&request.topic, &error.to_string()))?;
        if subscription.receiver().wants_history() {
            self.latched.push(Arc::downgrade(subscription.receiver()));
        }
        Ok(Box::new(subscription))
    }

    fn publish(&mut self, request: &PublishRequest) -> Result<Box<dyn Publisher>, TransportError> {
        check_name(&request.topic)?;
        ZenohPublisher::new(&self.surroundings, request)
            .map(|publisher| Box::new(publisher) as Box<dyn Publisher>)
            .map_err(|error| refused(&request.topic, &error.to_string()))
    }

    fn serve(
        &mut self,
        service: &ServiceDescription,
        wake: ServiceWake,
    ) -> Result<Box<dyn ServiceServer>, TransportError> {
        check_service(service)?;
        ZenohServer::new(&self.surroundings, service, wake)
            .map(|server| Box::new(server) as Box<dyn ServiceServer>)
            .map_err(|error| service_error(&service.name, error.to_string()))
    }

    fn client(
        &mut self,
        service: &ServiceDescription,
        wake: ServiceWake,
    ) -> Result<Box<dyn ServiceClient>, TransportError> {
        check_service(service)?;
        ZenohClient::new(&self.surroundings, service, wake)
            .map(|client| Box::new(client) as Box<dyn ServiceClient>)
            .map_err(|error| service_error(&service.name, error.to_string()))
    }

    fn request_type_description(&mut self, node: &NodeName, type_name: &str, type_hash: &str) {
        let Surroundings { session, graph, .. } = &self.surroundings;
        self.type_descriptions
            .ask(session, graph, node, type_name, type_hash);
    }

    fn poll_type_descriptions(&mut self, replies: &mut Vec<TypeDescriptionReply>) {
        self.type_descriptions.poll(replies);
    }

    fn now(&self) -> Timestamp {
        self.surroundings.clock.now()
    }
}

/// Notes in the graph which links there are.
fn follow_links(
    session: &Session,
    graph: &Arc<Graph>,
) -> ::zenoh::Result<(TransportEventsListener<()>, LinkEventsListener<()>)> {
    let noted = Arc::clone(graph);
    let info = session.info();
    let transports = info.transport_events_listener();
    // zenoh calls this after it has withdrawn the session's declarations.
    let transports = transports.callback(move |event: TransportEvent| {
        if event.kind() == SampleKind::Delete {
            noted.follow_links(|links| links.closed(&event.transport().zid().to_string()));
        }
    });
    let noted = Arc::clone(graph);
    let links = info.link_events_listener().history(true);
    // zenoh calls this before it withdraws the declarations received over the link.
    let links = links.callback(move |event: LinkEvent| {
        let link = event.link();
        let (session, ends) = (
            link.zid().to_string(),
            (link.src().to_string(), link.dst().to_string()),
        );
        noted.follow_links(|links| match event.kind() {
            SampleKind::Put => links.made(&session, ends),
            SampleKind::Delete => links.broke(&session, &ends),
        });
    });
    Ok((transports.wait()?, links.wait()?))
}

fn check_name(topic: &str) -> Result<(), TransportError> {
    validate_full_name(topic).map_err(|error| refused(topic, &error.to_string()))
}

fn refused(topic: &str, reason: &str) -> TransportError {
    TransportError::Topic {
        topic: topic.to_owned(),
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_have_their_bounds() {
        assert_eq!((domain_of(None), domain_of(Some(" 42 "))), (Ok(0), Ok(42)));
        for text in ["233", "-1", "x"] {
            assert!(domain_of(Some(text)).unwrap_err().contains("0 to 232"));
        }
    }
}
