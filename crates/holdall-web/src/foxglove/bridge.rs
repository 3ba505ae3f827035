//! Live topics for viewers, with separate subscriptions: made when the first viewer takes a topic, dropped with the last.

use super::{
    ViewerPort, ViewerReport,
    assets::Assets,
    calls::Calls,
    channel_sink::ChannelSink,
    graph::Graph,
    hub::{Channel, Hub, NewChannel, Order},
    live::Live,
    parameter_changes::ParameterChanges,
    parameters::{Parameters, Reach},
    publications::Publications,
    services::Services,
    sim_time::SimTime,
    start_error,
};
use crate::listen::{Ended, WebError};
use holdall::record::Definitions;
use holdall_io::clock::{Clock, SystemClock};
use holdall_model::{
    interface::bundle::Bundle,
    qos::{Durability, QosProfile, common_request},
    selection::TopicFilter,
    topic::{Gid, MessageDefinition, NodeName},
};
use holdall_transport::{EndpointInfo, GraphEvent, SubscribeRequest, Subscription, Transport};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{Receiver, sync_channel},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// Time between two rounds: how soon a topic is seen, and a wish of a viewer met.
const ROUND: Duration = Duration::from_millis(20);

/// Time between two polls of the graph.
const GRAPH_INTERVAL: Duration = Duration::from_millis(200);

/// How long a topic waits for its definition before it is shown without one.
const DEFINITION_WITHIN: Duration = Duration::from_secs(5);

/// Messages and requests of viewers that wait to be carried out; further ones are refused.
const ORDERS_MAX: usize = 256;

/// Options of a bridge.
pub struct BridgeOptions {
    /// Which topics.
    pub filter: TopicFilter,
    /// Searched for definitions first.
    pub ament_prefixes: Vec<PathBuf>,
    /// Shown in viewers.
    pub name: String,
    /// Viewers may publish, call services, read and set parameters; else they only see topics and the graph.
    pub control: bool,
    /// Viewers get the time of `/clock` as the server's, and messages with it.
    pub use_sim_time: bool,
    /// Viewers may fetch files of packages below these folders (`package://arm/meshes/hand.dae`); none without any.
    pub asset_prefixes: Vec<PathBuf>,
}

/// A server of live topics; dropping it ends it.
pub struct Bridge {
    port: ViewerPort,
    hub: Arc<Hub>,
    thread: Option<JoinHandle<()>>,
}

impl Bridge {
    /// Serves the topics that the transports discover from now on, on separate threads.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(
        port: ViewerPort,
        options: BridgeOptions,
        transports: Vec<Box<dyn Transport>>,
    ) -> Result<Self, WebError> {
        let hub = Arc::<Hub>::default();
        let (sender, orders) = sync_channel(ORDERS_MAX);
        let subject = Arc::new(Live {
            orders: sender,
            control: options.control,
            has_time: options.use_sim_time,
            assets: Assets::new(options.asset_prefixes),
        });
        let sim_time = options.use_sim_time.then(|| SimTime::new(&hub));
        let ended = port.listener.ended();
        let mut live = LiveTopics {
            hub: Arc::clone(&hub),
            filter: options.filter,
            definitions: Definitions::new(options.ament_prefixes, |name| Bundle::embedded().get(name)),
            transports,
            topics: BTreeMap::new(),
            subscriptions: BTreeMap::new(),
            orders,
            publications: Publications::default(),
            services: Services::new(options.control),
            calls: Calls::default(),
            parameters: Parameters::default(),
            changes: ParameterChanges::default(),
            next_graph: Duration::ZERO,
            has_news: false,
            sim_time,
            clock_subscriptions: Vec::new(),
        };
        if let Some(sim_time) = &live.sim_time {
            live.clock_subscriptions = sim_time.follow(&mut live.transports);
        }
        let thread = thread::Builder::new()
            .name(format!("{}bridge", crate::THREADS))
            .spawn(move || live.run(&ended))
            .map_err(start_error)?;
        port.serve(Arc::clone(&hub), subject, options.name)?;
        Ok(Self {
            port,
            hub,
            thread: Some(thread),
        })
    }

    /// The address to enter in a viewer.
    pub fn link(&self) -> String {
        self.port.link()
    }

    /// Counts of messages that each viewer has got and not got.
    pub fn report(&self) -> ViewerReport {
        ViewerReport(Arc::clone(&self.hub))
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.port.listener.ended().set();
        self.hub.disconnect();
        // The transports end with the thread.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// One topic of the graph, with one type.
#[derive(Default)]
struct LiveTopic {
    type_name: String,
    publishers: BTreeMap<Gid, (usize, EndpointInfo)>,
    since: Duration,
    channel: Option<Arc<Channel>>,
    /// Each with its transport and its requested QoS.
    subscriptions: Vec<(usize, QosProfile, Box<dyn Subscription>)>,
}

/// Whether a publisher keeps messages for later subscriptions.
fn is_latched(publisher: &EndpointInfo) -> bool {
    publisher.qos.durability == Durability::TransientLocal
}

/// All that the bridge's thread has.
struct LiveTopics {
    hub: Arc<Hub>,
    filter: TopicFilter,
    definitions: Definitions,
    transports: Vec<Box<dyn Transport>>,
    topics: BTreeMap<String, LiveTopic>,
    /// Nodes that subscribe, by topic and endpoint; for the graph.
    subscriptions: BTreeMap<Gid, (String, String)>,
    orders: Receiver<Order>,
    publications: Publications,
    services: Services,
    calls: Calls,
    parameters: Parameters,
    changes: ParameterChanges,
    next_graph: Duration,
    has_news: bool,
    sim_time: Option<Arc<SimTime>>,
    clock_subscriptions: Vec<Box<dyn Subscription>>,
}

impl LiveTopics {
    fn run(&mut self, ended: &Ended) {
        while !ended.is_set() {
            let now = SystemClock.monotonic();
            if now >= self.next_graph || self.transports.iter().any(|transport| transport.has_graph_news()) {
                self.next_graph = now + GRAPH_INTERVAL;
                self.poll_graph(now);
                self.definitions.ask(&mut self.transports, now);
            }
            self.advertise(now);
            self.follow_viewers();
            for subscription in &mut self.clock_subscriptions {
                subscription.pump();
            }
            self.execute(now);
            self.answer(now);
            SystemClock.sleep_until(now + ROUND);
        }
    }

    fn poll_graph(&mut self, now: Duration) {
        let mut events = Vec::new();
        for number in 0..self.transports.len() {
            if let Err(error) = self.transports[number].poll_graph(&mut events) {
                tracing::debug!("the bridge sees no more of a transport: {error}");
            }
            for event in events.drain(..) {
                self.note(number, event, now);
            }
        }
        if std::mem::take(&mut self.has_news) {
            self.hub.set_graph(self.graph());
        }
    }

    fn note(&mut self, number: usize, event: GraphEvent, now: Duration) {
        match event {
            GraphEvent::Publisher(endpoint) => {
                if !self.filter.takes(&endpoint.topic, &endpoint.type_name) {
                    return;
                }
                self.has_news = true;
                let topic = self.topics.entry(endpoint.topic.clone()).or_default();
                if topic.type_name.is_empty() {
                    (topic.type_name, topic.since) = (endpoint.type_name.clone(), now);
                }
                if topic.type_name != endpoint.type_name {
                    return;
                }
                for node in endpoint
                    .node
                    .as_ref()
                    .map_or(endpoint.neighbours.as_slice(), std::slice::from_ref)
                {
                    let hash = endpoint.type_hash.as_deref().unwrap_or_default();
                    self.definitions.add_node(&endpoint.type_name, hash, node);
                }
                if let (true, Some(channel)) = (is_latched(&endpoint), &topic.channel) {
                    channel.feed().latch();
                }
                topic.publishers.insert(endpoint.gid, (number, endpoint));
            }
            GraphEvent::PublisherGone(gid)
            | GraphEvent::PublisherLeft { gid, .. }
            | GraphEvent::PublisherSilent { gid, .. } => {
                self.has_news = true;
                for topic in self.topics.values_mut() {
                    if let (Some(_), Some(channel)) = (topic.publishers.remove(&gid), &topic.channel) {
                        channel.feed().forget_publisher(gid);
                    }
                }
                self.remove_silent();
            }
            GraphEvent::Subscription(endpoint) => {
                self.has_news = true;
                let node = endpoint
                    .node
                    .map_or_else(|| endpoint.gid.to_string(), |node| node.to_string());
                self.subscriptions.insert(endpoint.gid, (endpoint.topic, node));
            }
            GraphEvent::SubscriptionGone(gid) => {
                self.has_news |= self.subscriptions.remove(&gid).is_some();
            }
            GraphEvent::Server(server) => {
                self.has_news = true;
                self.services.add(&self.hub, &self.definitions, number, &server);
            }
            GraphEvent::ServerGone(gid) => {
                self.has_news = true;
                self.services.remove(&self.hub, gid);
            }
        }
    }

    /// Removes topics without a publisher.
    fn remove_silent(&mut self) {
        let hub = &self.hub;
        self.topics.retain(|_, topic| {
            if let (true, Some(channel)) = (topic.publishers.is_empty(), &topic.channel) {
                hub.remove_channel(channel.id);
            }
            !topic.publishers.is_empty()
        });
    }

    /// Advertises topics whose definition is known, or has not come in time.
    fn advertise(&mut self, now: Duration) {
        for (name, topic) in self
            .topics
            .iter_mut()
            .filter(|(_, topic)| topic.channel.is_none())
        {
            let Some((_, first)) = topic.publishers.values().next() else {
                continue;
            };
            let hash = first.type_hash.clone().unwrap_or_default();
            let nodes: BTreeSet<NodeName> = topic
                .publishers
                .values()
                .filter_map(|(_, it)| it.node.clone())
                .collect();
            let nodes: Vec<NodeName> = nodes.into_iter().collect();
            let found = self.definitions.find(&topic.type_name, &hash, &nodes);
            let is_late = now.saturating_sub(topic.since) >= DEFINITION_WITHIN;
            let Some(definition) =
                found.or_else(|| is_late.then(|| MessageDefinition::unknown(&topic.type_name)))
            else {
                continue;
            };
            let channel = self.hub.add_channel(&NewChannel {
                topic: name,
                encoding: first.serialization_format.unwrap_or("cdr"),
                definition: &definition,
                depth: 0,
            });
            if topic.publishers.values().any(|(_, it)| is_latched(it)) {
                channel.feed().latch();
            }
            topic.channel = Some(channel);
        }
    }

    /// Subscribes to the topics that viewers take, and to no others.
    fn follow_viewers(&mut self) {
        for (name, topic) in &mut self.topics {
            let Some(channel) = &topic.channel else { continue };
            if channel.feed().takers() == 0 {
                topic.subscriptions.clear();
                continue;
            }
            let anew = channel.feed().is_awaiting();
            let mut subscription = None;
            for (number, request) in topic.wanted() {
                let is_open = |(of, qos, _): &(usize, QosProfile, _)| (*of, *qos) == (number, request);
                if !anew && topic.subscriptions.iter().any(is_open) {
                    continue;
                }
                let request = SubscribeRequest {
                    topic: name.clone(),
                    type_name: topic.type_name.clone(),
                    qos: request,
                };
                let sink = Arc::new(ChannelSink {
                    channel: Arc::clone(channel),
                    subscription: *subscription.get_or_insert_with(|| channel.feed().begin()),
                    sim_time: self.sim_time.clone(),
                });
                match self.transports[number].subscribe(&request, sink) {
                    Ok(subscription) => {
                        // One that is not the best for all publishers any more, or not the newest, would bring messages twice.
                        topic.subscriptions.retain(|(of, _, _)| *of != number);
                        topic.subscriptions.push((number, request.qos, subscription));
                    }
                    Err(error) => tracing::debug!("viewers do not get {name}: {error}"),
                }
            }
            for (_, _, subscription) in &mut topic.subscriptions {
                subscription.pump();
            }
        }
    }

    /// Carries out requests of viewers.
    fn execute(&mut self, now: Duration) {
        while let Ok(order) = self.orders.try_recv() {
            let mut reach = Reach {
                hub: &self.hub,
                services: &self.services,
                calls: &mut self.calls,
                transports: &mut self.transports,
                now,
            };
            match order {
                Order::Begin { client, channel } => {
                    self.publications.begin(&mut self.transports, client, channel);
                }
                Order::Message {
                    client,
                    channel,
                    payload,
                } => self.publications.publish(client, channel, &payload),
                Order::End { client, channel } => self.publications.end(client, channel),
                Order::Gone { client } => {
                    self.publications.forget(client);
                    self.parameters.forget(client);
                }
                Order::Call { client, call } => {
                    let hub = &self.hub;
                    self.services
                        .call(hub, &mut self.calls, &mut self.transports, client, &call, now);
                }
                Order::GetParameters { client, names, id } => {
                    self.parameters.get(&mut reach, client, &names, id);
                }
                Order::SetParameters {
                    client,
                    parameters,
                    id,
                } => self.parameters.set(&mut reach, client, &parameters, id),
                Order::FollowParameters {
                    client,
                    names,
                    follow: true,
                } => self.parameters.follow(client, names),
                Order::FollowParameters { client, names, .. } => self.parameters.unfollow(client, &names),
            }
        }
    }

    /// Passes on the answers of services, and changes of parameters.
    fn answer(&mut self, now: Duration) {
        let mut answers = Vec::new();
        self.calls.step(now, &mut answers);
        for (ticket, answer) in answers {
            if let Some(answer) = self.services.answer(&self.hub, ticket, answer) {
                let mut reach = Reach {
                    hub: &self.hub,
                    services: &self.services,
                    calls: &mut self.calls,
                    transports: &mut self.transports,
                    now,
                };
                self.parameters.answer(&mut reach, ticket, answer);
            }
        }
        self.changes
            .follow(self.parameters.has_followers(), &mut self.transports);
        while let Some(event) = self.changes.take() {
            self.parameters.changed(&self.hub, &event);
        }
    }

    /// Publishers and subscribers of all topics, whole.
    fn graph(&self) -> Graph {
        let node = |it: &EndpointInfo| {
            it.node
                .as_ref()
                .map_or_else(|| it.gid.to_string(), ToString::to_string)
        };
        let published = self.topics.iter().map(|(name, topic)| {
            let ids = topic.publishers.values().map(|(_, it)| node(it));
            (name.clone(), ids.collect())
        });
        let mut graph = Graph {
            published: published.collect(),
            services: self.services.graph(),
            ..Graph::default()
        };
        for (topic, node) in self.subscriptions.values() {
            let ids = graph.subscribed.entry(topic.clone()).or_default();
            ids.insert(node.clone());
        }
        graph
    }
}

impl LiveTopic {
    /// The strongest QoS that all its publishers offer, by transport.
    fn wanted(&self) -> BTreeMap<usize, QosProfile> {
        let mut offers: BTreeMap<usize, Vec<&QosProfile>> = BTreeMap::new();
        for (number, endpoint) in self.publishers.values() {
            offers.entry(*number).or_default().push(&endpoint.qos);
        }
        let wanted = offers
            .into_iter()
            .filter_map(|(number, offers)| Some((number, common_request(offers)?)));
        wanted.collect()
    }
}
