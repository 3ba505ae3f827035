//! Parameters of nodes for viewers, over each node's own parameter services; a parameter is named `/node.parameter`.

use super::{
    calls::{Answer, Calls, Ticket},
    hub::Hub,
    parameter_value::{of_ros, to_ros},
    protocol::{self, GivenParameter},
    services::Services,
};
use holdall_model::{
    dynamic::{TypePlan, text::TextOptions},
    interface::bundle::Bundle,
};
use holdall_transport::Transport;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// Queries of all viewers at once.
const QUERIES_MAX: usize = 64;

/// Parameters of one node that are read.
const PARAMETERS_MAX: usize = 10_000;

/// Parameters that one viewer follows by name.
const FOLLOWED_MAX: usize = 10_000;

/// Suffixes of the services' names.
const LIST: (&str, &str) = ("/list_parameters", "rcl_interfaces/srv/ListParameters");
const GET: (&str, &str) = ("/get_parameters", "rcl_interfaces/srv/GetParameters");
const SET: (&str, &str) = ("/set_parameters", "rcl_interfaces/srv/SetParameters");

/// The topic on which nodes report changes.
pub(super) const EVENTS: (&str, &str) = ("/parameter_events", "rcl_interfaces/msg/ParameterEvent");

/// A request of a viewer.
struct Query {
    client: u64,
    id: Option<String>,
    /// Calls that are not answered yet.
    open: usize,
    values: Vec<Value>,
}

/// A call for a query.
struct Step {
    query: u64,
    node: String,
    kind: StepKind,
}

enum StepKind {
    List,
    Get(Vec<String>),
    Set(Vec<String>),
}

/// Resources for the steps of queries.
pub(super) struct Reach<'a> {
    pub hub: &'a Hub,
    pub services: &'a Services,
    pub calls: &'a mut Calls,
    pub transports: &'a mut [Box<dyn Transport>],
    pub now: Duration,
}

/// The parameters that a viewer follows.
enum Followed {
    All,
    Names(BTreeSet<String>),
}

impl Default for Followed {
    fn default() -> Self {
        Self::Names(BTreeSet::new())
    }
}

impl Followed {
    fn has(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Names(names) => names.contains(name),
        }
    }
}

/// The queries of all viewers, and the parameters that each follows.
#[derive(Default)]
pub(super) struct Parameters {
    queries: BTreeMap<u64, Query>,
    last: u64,
    steps: BTreeMap<Ticket, Step>,
    /// By viewer.
    followers: BTreeMap<u64, Followed>,
    /// The types of parameters that were read, by full name.
    kinds: BTreeMap<String, u64>,
}

impl Parameters {
    /// Reads parameters by their names; all of all nodes without names.
    pub(super) fn get(&mut self, reach: &mut Reach<'_>, client: u64, names: &[String], id: Option<String>) {
        let Some(query) = self.begin(reach, client, id) else {
            return;
        };
        if names.is_empty() {
            for node in reach.services.ending(LIST.0) {
                self.call(reach, query, &node, LIST, &json!({"depth": 0}), StepKind::List);
            }
        }
        for (node, names) in by_node(names.iter().map(String::as_str)) {
            self.read(reach, query, &node, names);
        }
        self.end_if_done(reach.hub, query);
    }

    /// Changes parameters; their new values come back.
    pub(super) fn set(
        &mut self,
        reach: &mut Reach<'_>,
        client: u64,
        parameters: &[GivenParameter],
        id: Option<String>,
    ) {
        let Some(query) = self.begin(reach, client, id) else {
            return;
        };
        let mut by_node: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
        for given in parameters {
            let known = self.kinds.get(&given.name).copied();
            let Some((node, name)) = given.name.split_once('.') else {
                complain(
                    reach.hub,
                    client,
                    &format!("{:?} is not the name of a parameter", given.name),
                );
                continue;
            };
            match to_ros(&given.value, given.kind.as_deref(), known) {
                Ok(value) => by_node
                    .entry(node)
                    .or_default()
                    .push(json!({"name": name, "value": value})),
                Err(reason) => complain(reach.hub, client, &format!("{}: {reason}", given.name)),
            }
        }
        for (node, list) in by_node {
            let names = list.iter().filter_map(|one| one["name"].as_str());
            let kind = StepKind::Set(names.map(str::to_owned).collect());
            self.call(reach, query, node, SET, &json!({"parameters": list}), kind);
        }
        self.end_if_done(reach.hub, query);
    }

    /// A viewer follows parameters from now on; all of them without names.
    pub(super) fn follow(&mut self, client: u64, names: Vec<String>) {
        let followed = self.followers.entry(client).or_default();
        if names.is_empty() {
            *followed = Followed::All;
        } else if let Followed::Names(followed) = followed {
            let room = FOLLOWED_MAX.saturating_sub(followed.len());
            followed.extend(names.into_iter().take(room));
        }
    }

    /// It stops following these, or all without names. If it followed all, it still follows the others, and is sent these too.
    pub(super) fn unfollow(&mut self, client: u64, names: &[String]) {
        let is_done = match self.followers.get_mut(&client) {
            Some(Followed::Names(followed)) => {
                followed.retain(|name| !names.contains(name));
                followed.is_empty()
            }
            Some(Followed::All) | None => false,
        };
        if is_done || names.is_empty() {
            self.followers.remove(&client);
        }
    }

    /// A viewer is gone.
    pub(super) fn forget(&mut self, client: u64) {
        self.followers.remove(&client);
    }

    /// Whether changes are wanted.
    pub(super) fn has_followers(&self) -> bool {
        !self.followers.is_empty()
    }

    /// A node has reported changes.
    pub(super) fn changed(&mut self, hub: &Hub, payload: &[u8]) {
        let Ok(event) = plan(EVENTS.1).and_then(|plan| decoded(&plan, payload)) else {
            return;
        };
        let node = event["node"].as_str().unwrap_or_default();
        let lists = ["new_parameters", "changed_parameters"];
        let changed = lists
            .iter()
            .flat_map(|list| event[*list].as_array().into_iter().flatten());
        let values: Vec<Value> = changed
            .filter_map(|one| {
                let name = format!("{node}.{}", one["name"].as_str()?);
                Some(of_ros(&name, &one["value"]))
            })
            .collect();
        for (client, followed) in &self.followers {
            let is_followed = |value: &&Value| {
                let name = value["name"].as_str().unwrap_or_default();
                followed.has(name)
            };
            let values: Vec<&Value> = values.iter().filter(is_followed).collect();
            if !values.is_empty() {
                hub.send_text_to(*client, &protocol::parameter_values(&values, None).to_string());
            }
        }
    }

    /// An answer to one of the server's calls; nothing for others.
    pub(super) fn answer(&mut self, reach: &mut Reach<'_>, ticket: Ticket, answer: Answer) {
        let Some(step) = self.steps.remove(&ticket) else {
            return;
        };
        let number = step.query;
        let client = self.queries.get_mut(&number).map(|query| {
            query.open -= 1;
            query.client
        });
        if let Some(client) = client {
            let done = answer.and_then(|payload| self.carry_on(reach, &step, client, &payload));
            if let Err(reason) = done {
                complain(reach.hub, client, &reason);
            }
        }
        self.end_if_done(reach.hub, number);
    }

    /// Consequence of an answer.
    fn carry_on(
        &mut self,
        reach: &mut Reach<'_>,
        step: &Step,
        client: u64,
        payload: &[u8],
    ) -> Result<(), String> {
        let response = |of: &str| plan(&format!("{of}_Response")).and_then(|plan| decoded(&plan, payload));
        match &step.kind {
            StepKind::List => {
                let listed = response(LIST.1)?;
                let names = listed["result"]["names"].as_array().into_iter().flatten();
                let names = names.filter_map(|name| name.as_str().map(str::to_owned));
                self.read(
                    reach,
                    step.query,
                    &step.node,
                    names.take(PARAMETERS_MAX).collect(),
                );
            }
            StepKind::Get(names) => {
                let read = response(GET.1)?;
                let values = read["values"].as_array().into_iter().flatten();
                for (name, value) in names.iter().zip(values) {
                    let full = format!("{}.{name}", step.node);
                    if let Some(kind) = value["type"].as_u64().filter(|kind| *kind != 0) {
                        self.kinds.insert(full.clone(), kind);
                        if let Some(query) = self.queries.get_mut(&step.query) {
                            query.values.push(of_ros(&full, value));
                        }
                    }
                }
            }
            StepKind::Set(names) => {
                let set = response(SET.1)?;
                let results = set["results"].as_array().into_iter().flatten();
                for (name, result) in names.iter().zip(results) {
                    if result["successful"] != json!(true) {
                        let reason = result["reason"].as_str().unwrap_or("no reason is given");
                        complain(
                            reach.hub,
                            client,
                            &format!("{}.{name} is not changed: {reason}", step.node),
                        );
                    }
                }
                self.read(reach, step.query, &step.node, names.clone());
            }
        }
        Ok(())
    }

    fn begin(&mut self, reach: &Reach<'_>, client: u64, id: Option<String>) -> Option<u64> {
        if self.queries.len() >= QUERIES_MAX {
            complain(
                reach.hub,
                client,
                &format!("{QUERIES_MAX} requests for parameters are unanswered already"),
            );
            return None;
        }
        self.last += 1;
        let query = Query {
            client,
            id,
            open: 0,
            values: Vec::new(),
        };
        self.queries.insert(self.last, query);
        Some(self.last)
    }

    fn read(&mut self, reach: &mut Reach<'_>, query: u64, node: &str, names: Vec<String>) {
        if !names.is_empty() {
            let request = json!({"names": names});
            self.call(reach, query, node, GET, &request, StepKind::Get(names));
        }
    }

    fn call(
        &mut self,
        reach: &mut Reach<'_>,
        query: u64,
        node: &str,
        (end, type_name): (&str, &str),
        request: &Value,
        kind: StepKind,
    ) {
        let found = reach.services.find(&format!("{node}{end}"));
        let begun = found
            .ok_or_else(|| format!("{node} does not exist, or has no parameters"))
            .and_then(|(service, number)| {
                let plan = plan(&format!("{type_name}_Request"))?;
                let payload = plan.encode_json(&request.to_string());
                let payload = payload.map_err(|error| error.to_string())?;
                reach
                    .calls
                    .begin(reach.transports, number, &service, payload, reach.now)
            });
        let Some(asking) = self.queries.get_mut(&query) else {
            return;
        };
        match begun {
            Ok(ticket) => {
                asking.open += 1;
                let node = node.to_owned();
                self.steps.insert(ticket, Step { query, node, kind });
            }
            Err(reason) => complain(reach.hub, asking.client, &reason),
        }
    }

    fn end_if_done(&mut self, hub: &Hub, query: u64) {
        if self.queries.get(&query).is_some_and(|query| query.open == 0)
            && let Some(query) = self.queries.remove(&query)
        {
            let values = protocol::parameter_values(&query.values, query.id.as_deref());
            hub.send_text_to(query.client, &values.to_string());
        }
    }
}

fn complain(hub: &Hub, client: u64, sentence: &str) {
    hub.send_text_to(client, &protocol::status(1, sentence, None).to_string());
}

/// Parameters by their nodes: a node's name has no dot.
fn by_node<'a>(names: impl Iterator<Item = &'a str>) -> BTreeMap<String, Vec<String>> {
    let mut by_node: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for name in names {
        let (node, name) = name.split_once('.').unwrap_or((name, ""));
        by_node.entry(node.to_owned()).or_default().push(name.to_owned());
    }
    by_node
}

fn plan(type_name: &str) -> Result<TypePlan, String> {
    let definition = Bundle::embedded()
        .define(type_name)
        .map_err(|error| error.to_string())?;
    TypePlan::compile(&definition).map_err(|error| error.to_string())
}

fn decoded(plan: &TypePlan, payload: &[u8]) -> Result<Value, String> {
    let mut text = Vec::new();
    plan.write_json(payload, &TextOptions::default(), &mut text)
        .map_err(|error| error.to_string())?;
    serde_json::from_slice(&text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_viewer_that_follows_all_goes_on_when_it_names_or_drops_one() {
        let mut parameters = Parameters::default();
        let has = |parameters: &Parameters, name: &str| {
            parameters
                .followers
                .get(&7)
                .is_some_and(|followed| followed.has(name))
        };
        let name = |text: &str| vec![text.to_owned()];
        parameters.follow(7, Vec::new());
        parameters.follow(7, name("/a.x"));
        assert!(has(&parameters, "/b.y"), "naming one does not narrow all to it");
        parameters.unfollow(7, &name("/a.x"));
        assert!(has(&parameters, "/b.y"), "dropping one does not drop all");
        parameters.unfollow(7, &[]);
        assert!(
            !parameters.has_followers(),
            "without names it stops following all"
        );
        parameters.follow(7, name("/a.x"));
        parameters.follow(7, name("/b.y"));
        parameters.unfollow(7, &name("/a.x"));
        assert!(!has(&parameters, "/a.x") && has(&parameters, "/b.y"));
        parameters.unfollow(7, &name("/b.y"));
        assert!(!parameters.has_followers());
    }

    #[test]
    fn names_are_nodes_and_their_parameters() {
        let names = ["/a.x", "/ns/b.y.z", "/a.w", "/c"];
        let expected = [("/a", vec!["x", "w"]), ("/c", vec![""]), ("/ns/b", vec!["y.z"])];
        let found = by_node(names.into_iter());
        for (node, parameters) in expected {
            assert_eq!(found[node], parameters, "{node}");
        }
    }

    #[test]
    fn the_types_of_the_services_are_there() {
        for (_, service) in [LIST, GET, SET] {
            plan(&format!("{service}_Request")).unwrap();
            plan(&format!("{service}_Response")).unwrap();
        }
        plan(EVENTS.1).unwrap();
    }
}
