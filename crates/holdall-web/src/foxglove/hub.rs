//! Channels and the clients that take them.

use super::{
    feed::Feed,
    graph::Graph,
    outbox::{BINARY, LARGE_BYTES, Outbox, TEXT},
    protocol::{
        self, ClientChannel, GivenParameter, PlaybackRequest, PlaybackState, ServiceCall, WantedChannel,
    },
};
use holdall_io::mutex::lock;
use holdall_model::topic::{DefinitionEncoding, MessageDefinition};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
};

/// Subscriptions of one client.
const SUBSCRIPTIONS_MAX: usize = 10_000;

/// A topic for clients.
pub(super) struct Channel {
    pub id: u32,
    pub topic: String,
    advertisement: Value,
    feed: Mutex<Feed>,
}

/// Properties of a topic when it becomes a channel.
#[derive(Clone, Debug)]
pub(super) struct NewChannel<'a> {
    pub topic: &'a str,
    pub encoding: &'a str,
    pub definition: &'a MessageDefinition,
    /// How many messages its publisher keeps for later subscriptions, if it is played.
    pub depth: usize,
}

impl Channel {
    fn new(id: u32, about: &NewChannel<'_>) -> Self {
        let definition = about.definition;
        let mut advertisement = json!({
            "id": id,
            "topic": about.topic,
            "encoding": about.encoding,
            "schemaName": definition.type_name,
            "schema": definition.text,
        });
        if definition.encoding != DefinitionEncoding::Unknown {
            advertisement["schemaEncoding"] = json!(definition.encoding.as_str());
        }
        Self {
            id,
            topic: about.topic.to_owned(),
            advertisement,
            feed: Mutex::new(Feed::played(about.depth)),
        }
    }

    /// Who takes it.
    pub(super) fn feed(&self) -> MutexGuard<'_, Feed> {
        lock(&self.feed)
    }
}

/// A connected client.
pub(super) struct Client {
    pub outbox: Arc<Outbox>,
    pub peer: String,
    /// Its subscriptions' channels.
    subscriptions: Mutex<BTreeMap<u32, Arc<Channel>>>,
    pub follows_graph: AtomicBool,
}

/// A client's request, for the program that carries it out.
#[derive(Clone, Debug)]
pub(super) enum Order {
    /// A client begins to publish.
    Begin { client: u64, channel: ClientChannel },
    /// A message that it publishes.
    Message {
        client: u64,
        channel: u32,
        payload: Vec<u8>,
    },
    /// It stops publishing on a channel.
    End { client: u64, channel: u32 },
    /// A client is gone.
    Gone { client: u64 },
    /// A call of a service.
    Call { client: u64, call: ServiceCall },
    /// Values of parameters are wanted.
    GetParameters {
        client: u64,
        names: Vec<String>,
        id: Option<String>,
    },
    /// A viewer changes parameters.
    SetParameters {
        client: u64,
        parameters: Vec<GivenParameter>,
        id: Option<String>,
    },
    /// Changes of parameters are wanted, or no more.
    FollowParameters {
        client: u64,
        names: Vec<String>,
        follow: bool,
    },
}

/// The recording or playback that clients are connected to.
pub(super) trait Subject: Send + Sync {
    /// Capabilities of viewers here, in the protocol's words.
    fn capabilities(&self) -> Vec<&'static str>;

    /// The content of a file that a viewer fetches; the reason when it gets none.
    fn asset(&self, _uri: &str) -> Result<Vec<u8>, String> {
        Err("this server has no files for viewers".to_owned())
    }

    /// The first and last time of the played range; `None` for live topics.
    fn range(&self) -> Option<(u64, u64)> {
        None
    }

    /// Does what a viewer's timeline asks. `answer` is called once, with the state and whether the playback has jumped, after the jump and
    /// before anything is played from there. False where nothing is played.
    fn steer(&self, _request: &PlaybackRequest, _answer: &mut dyn FnMut(PlaybackState, bool)) -> bool {
        false
    }

    /// Carries out a client's request; the reason if that cannot be.
    fn execute(&self, _order: Order) -> Result<(), String> {
        Err("a playback publishes nothing for viewers, and has no services and no parameters".to_owned())
    }
}

#[derive(Default)]
struct State {
    channels: BTreeMap<u32, Arc<Channel>>,
    /// Advertisements of services, by their numbers.
    services: BTreeMap<u32, Value>,
    clients: BTreeMap<u64, Arc<Client>>,
    graph: Graph,
    last_channel: u32,
    last_service: u32,
    last_client: u64,
}

/// All channels and clients of one server.
#[derive(Default)]
pub(super) struct Hub {
    state: Mutex<State>,
}

impl Hub {
    /// Adds a channel, and advertises it.
    pub(super) fn add_channel(&self, about: &NewChannel<'_>) -> Arc<Channel> {
        let mut state = lock(&self.state);
        state.last_channel += 1;
        let channel = Arc::new(Channel::new(state.last_channel, about));
        state.channels.insert(channel.id, Arc::clone(&channel));
        let text = json!({"op": "advertise", "channels": [channel.advertisement]}).to_string();
        for client in state.clients.values() {
            client.outbox.push(TEXT, text.as_bytes());
        }
        channel
    }

    /// Removes a channel.
    pub(super) fn remove_channel(&self, id: u32) {
        let mut state = lock(&self.state);
        if state.channels.remove(&id).is_some() {
            let text = json!({"op": "unadvertise", "channelIds": [id]}).to_string();
            for client in state.clients.values() {
                lock(&client.subscriptions).retain(|_, channel| channel.id != id);
                client.outbox.push(TEXT, text.as_bytes());
            }
        }
    }

    /// Adds a service, and advertises it; returns its number, which is added to the advertisement.
    pub(super) fn add_service(&self, mut advertisement: Value) -> u32 {
        let mut state = lock(&self.state);
        state.last_service += 1;
        let id = state.last_service;
        advertisement["id"] = json!(id);
        let text = json!({"op": "advertiseServices", "services": [advertisement]}).to_string();
        state.services.insert(id, advertisement);
        for client in state.clients.values() {
            client.outbox.push(TEXT, text.as_bytes());
        }
        id
    }

    /// Removes a service.
    pub(super) fn remove_service(&self, id: u32) {
        let mut state = lock(&self.state);
        if state.services.remove(&id).is_some() {
            let text = json!({"op": "unadvertiseServices", "serviceIds": [id]}).to_string();
            for client in state.clients.values() {
                client.outbox.push(TEXT, text.as_bytes());
            }
        }
    }

    /// Adds a client, which gets all channels and services; returns its number.
    pub(super) fn add_client(&self, outbox: &Arc<Outbox>, peer: String) -> (u64, Arc<Client>) {
        let mut state = lock(&self.state);
        let client = Arc::new(Client {
            outbox: Arc::clone(outbox),
            peer,
            subscriptions: Mutex::default(),
            follows_graph: AtomicBool::new(false),
        });
        let channels: Vec<&Value> = state
            .channels
            .values()
            .map(|channel| &channel.advertisement)
            .collect();
        // Before any other thread can add a channel.
        if !channels.is_empty() {
            let text = json!({"op": "advertise", "channels": channels}).to_string();
            outbox.push(TEXT, text.as_bytes());
        }
        if !state.services.is_empty() {
            let services: Vec<&Value> = state.services.values().collect();
            let text = json!({"op": "advertiseServices", "services": services}).to_string();
            outbox.push(TEXT, text.as_bytes());
        }
        state.last_client += 1;
        let number = state.last_client;
        state.clients.insert(number, Arc::clone(&client));
        (number, client)
    }

    /// Removes a client from all channels.
    pub(super) fn remove_client(&self, number: u64) {
        let client = lock(&self.state).clients.remove(&number);
        if let Some(client) = client {
            client.outbox.close();
            for (subscription, channel) in std::mem::take(&mut *lock(&client.subscriptions)) {
                channel.feed().unsubscribe(subscription, &client.outbox);
            }
        }
    }

    /// Subscribes a client; the reason when that cannot be.
    pub(super) fn subscribe(&self, client: &Client, wanted: WantedChannel) -> Result<(), String> {
        let channel = lock(&self.state).channels.get(&wanted.channel_id).cloned();
        let channel = channel.ok_or_else(|| format!("there is no channel {}", wanted.channel_id))?;
        let mut subscriptions = lock(&client.subscriptions);
        if subscriptions.len() >= SUBSCRIPTIONS_MAX {
            return Err(format!("a client has at most {SUBSCRIPTIONS_MAX} subscriptions"));
        }
        if subscriptions.contains_key(&wanted.id) {
            return Err(format!("there is a subscription {} already", wanted.id));
        }
        subscriptions.insert(wanted.id, Arc::clone(&channel));
        drop(subscriptions);
        channel.feed().subscribe(wanted.id, &client.outbox);
        Ok(())
    }

    /// Ends a client's subscription.
    pub(super) fn unsubscribe(&self, client: &Client, subscription: u32) {
        let channel = lock(&client.subscriptions).remove(&subscription);
        if let Some(channel) = channel {
            channel.feed().unsubscribe(subscription, &client.outbox);
            client.outbox.forget(subscription);
        }
    }

    /// Sends bytes to one client, if it is still there.
    pub(super) fn send_bytes_to(&self, number: u64, bytes: &[u8]) {
        let client = lock(&self.state).clients.get(&number).cloned();
        if let Some(client) = client {
            client.outbox.push(BINARY, bytes);
        }
    }

    /// Sends a text to one client, if it is still there.
    pub(super) fn send_text_to(&self, number: u64, text: &str) {
        let client = lock(&self.state).clients.get(&number).cloned();
        if let Some(client) = client {
            client.outbox.push(TEXT, text.as_bytes());
        }
    }

    /// Sends bytes to all clients.
    pub(super) fn send_bytes(&self, bytes: &[u8]) {
        for client in self.clients() {
            client.outbox.push(BINARY, bytes);
        }
    }

    /// Keeps the graph, and sends it to the clients that follow it.
    pub(super) fn set_graph(&self, graph: Graph) {
        let mut state = lock(&self.state);
        let text = graph.update_from(&state.graph).to_string();
        state.graph = graph;
        for client in state.clients.values() {
            if client.follows_graph.load(Ordering::Relaxed) {
                client.outbox.push(TEXT, text.as_bytes());
            }
        }
    }

    /// Sends the whole graph to a client, and from then on each change.
    pub(super) fn follow_graph(&self, client: &Client) {
        // No change comes between the two, as changes are sent under the same lock.
        let state = lock(&self.state);
        client.follows_graph.store(true, Ordering::Relaxed);
        let text = state.graph.update_from(&Graph::default()).to_string();
        client.outbox.push(TEXT, text.as_bytes());
    }

    /// Drops waiting and kept messages: the playback has jumped.
    pub(super) fn forget_messages(&self) {
        let channels: Vec<Arc<Channel>> = lock(&self.state).channels.values().cloned().collect();
        channels.iter().for_each(|channel| channel.feed().forget());
        for client in self.clients() {
            client.outbox.forget_messages();
        }
    }

    /// Disconnects all clients.
    pub(super) fn disconnect(&self) {
        for client in self.clients() {
            client.outbox.close();
        }
    }

    fn clients(&self) -> Vec<Arc<Client>> {
        lock(&self.state).clients.values().cloned().collect()
    }

    /// Counts of messages that each client has got and not got, by topic.
    pub(super) fn report(&self) -> Value {
        let report = |client: &Arc<Client>| {
            let sums = client.outbox.sums();
            let subscriptions = lock(&client.subscriptions);
            let topics = subscriptions.iter().map(|(number, channel)| {
                let sums = sums.get(number).copied().unwrap_or_default();
                json!({"topic": channel.topic, "sent": sums.sent, "left_out": sums.left_out})
            });
            json!({"peer": client.peer, "topics": topics.collect::<Vec<_>>()})
        };
        self.clients().iter().map(report).collect()
    }
}

impl Client {
    /// A sentence about messages that this client does not get; `None` if it gets all.
    pub(super) fn what_is_left_out(&self) -> Option<String> {
        const NAMED_MAX: usize = 5;
        let sums = self.outbox.sums();
        let subscriptions = lock(&self.subscriptions);
        let shares: Vec<String> = subscriptions
            .iter()
            .filter_map(|(number, channel)| {
                let sums = sums.get(number).filter(|sums| sums.left_out > 0)?;
                let percent = 100 * sums.sent / (sums.sent + sums.left_out);
                Some(format!("{percent} % of {}", channel.topic))
            })
            .collect();
        let named = shares
            .iter()
            .take(NAMED_MAX)
            .cloned()
            .collect::<Vec<_>>()
            .join(", ");
        let more = shares.len().saturating_sub(NAMED_MAX);
        let more = if more > 0 {
            format!(" and of {more} more topics not all")
        } else {
            String::new()
        };
        let size = LARGE_BYTES / 1024;
        let held_back = self.outbox.held_back();
        let seldom = held_back.iter().find_map(|(number, takes)| {
            let topic = &subscriptions.get(number)?.topic;
            Some(format!(
                " One message of {topic} takes {:.1} s here: it comes seldom, so that the others stay current.",
                takes.as_secs_f64()
            ))
        });
        let seldom = seldom.unwrap_or_default();
        (!shares.is_empty()).then(|| {
            format!("This connection is slower than the topics: you see {named}{more}. From {size} KiB on only the newest message waits.{seldom}")
        })
    }

    /// Sends a sentence to its user.
    pub(super) fn complain(&self, level: u8, sentence: &str, id: Option<&str>) {
        let text = protocol::status(level, sentence, id).to_string();
        self.outbox.push(TEXT, text.as_bytes());
    }
}
