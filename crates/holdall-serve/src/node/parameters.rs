//! The parameter services that every ROS 2 node has; these are read-only.

use super::answer::{Answer, texts_in};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The value of a parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum Parameter {
    /// `bool`.
    Bool(bool),
    /// `integer`.
    Integer(i64),
    /// `double`.
    Double(f64),
    /// `string`.
    Text(String),
    /// `string[]`.
    Texts(Vec<String>),
}

impl Parameter {
    /// `rcl_interfaces/msg/ParameterType`.
    fn type_number(&self) -> u8 {
        match self {
            Self::Bool(_) => 1,
            Self::Integer(_) => 2,
            Self::Double(_) => 3,
            Self::Text(_) => 4,
            Self::Texts(_) => 9,
        }
    }

    /// `rcl_interfaces/msg/ParameterValue`.
    fn value(&self) -> Value {
        let kind = self.type_number();
        match self {
            Self::Bool(value) => json!({"type": kind, "bool_value": value}),
            Self::Integer(value) => json!({"type": kind, "integer_value": value}),
            Self::Double(value) => json!({"type": kind, "double_value": value}),
            Self::Text(value) => json!({"type": kind, "string_value": value}),
            Self::Texts(value) => json!({"type": kind, "string_array_value": value}),
        }
    }
}

/// All parameters of a node, by name.
pub type Parameters = BTreeMap<String, Parameter>;

/// The services, with their types.
pub(super) const SERVICES: [(&str, &str); 6] = [
    ("describe_parameters", "rcl_interfaces/srv/DescribeParameters"),
    ("get_parameter_types", "rcl_interfaces/srv/GetParameterTypes"),
    ("get_parameters", "rcl_interfaces/srv/GetParameters"),
    ("list_parameters", "rcl_interfaces/srv/ListParameters"),
    ("set_parameters", "rcl_interfaces/srv/SetParameters"),
    (
        "set_parameters_atomically",
        "rcl_interfaces/srv/SetParametersAtomically",
    ),
];

const READ_ONLY: &str = "the parameters of a running recording or playback cannot be set";

/// Answers a request to one of [`SERVICES`].
pub(super) fn answer(parameters: &Parameters, service: &str, request: &Value) -> Answer {
    let named = || texts_in(request, "names");
    let refused = json!({"successful": false, "reason": READ_ONLY});
    Answer::Reply(match service {
        "list_parameters" => list(parameters, request),
        "get_parameters" => {
            let value = |name: &String| {
                parameters
                    .get(name)
                    .map_or_else(|| json!({"type": 0}), Parameter::value)
            };
            json!({"values": named().iter().map(value).collect::<Vec<_>>()})
        }
        "get_parameter_types" => {
            let kind = |name: &String| parameters.get(name).map_or(0, Parameter::type_number);
            json!({"types": named().iter().map(kind).collect::<Vec<_>>()})
        }
        "describe_parameters" => {
            let describe = |name: &String| {
                let kind = parameters.get(name).map_or(0, Parameter::type_number);
                json!({"name": name, "type": kind, "read_only": true})
            };
            json!({"descriptors": named().iter().map(describe).collect::<Vec<_>>()})
        }
        "set_parameters" => {
            let count = request["parameters"].as_array().map_or(0, Vec::len);
            json!({"results": vec![refused; count]})
        }
        _ => json!({"result": refused}),
    })
}

/// As rclcpp: all names below one of the prefixes, at most `depth` levels deep; zero for all.
fn list(parameters: &Parameters, request: &Value) -> Value {
    let prefixes = texts_in(request, "prefixes");
    let depth = request["depth"].as_u64().unwrap_or(0);
    let is_listed = |name: &str| {
        let levels = |rest: &str| rest.matches('.').count() as u64;
        let below = |prefix: &String| {
            name == prefix
                || name
                    .strip_prefix(prefix.as_str())
                    .and_then(|rest| rest.strip_prefix('.'))
                    .is_some_and(|rest| depth == 0 || levels(rest) < depth)
        };
        if prefixes.is_empty() {
            depth == 0 || levels(name) < depth
        } else {
            prefixes.iter().any(below)
        }
    };
    let names: Vec<&String> = parameters.keys().filter(|name| is_listed(name)).collect();
    let found: BTreeSet<&str> = names
        .iter()
        .filter_map(|name| Some(name.rsplit_once('.')?.0))
        .collect();
    json!({"result": {"names": names, "prefixes": found}})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::interface::{RequestLayout, ServiceInterface};

    fn call(service: &str, request: &Value) -> Value {
        let parameters = Parameters::from([
            ("use_sim_time".to_owned(), Parameter::Bool(true)),
            ("storage.uri".to_owned(), Parameter::Text("bag".to_owned())),
            (
                "record.topics".to_owned(),
                Parameter::Texts(vec!["/tf".to_owned()]),
            ),
            ("storage.max_bagfile_size".to_owned(), Parameter::Integer(7)),
            ("play.rate".to_owned(), Parameter::Double(0.5)),
        ]);
        let Answer::Reply(reply) = answer(&parameters, service, request) else {
            panic!("refused");
        };
        let (_, type_name) = SERVICES.iter().find(|(name, _)| *name == service).unwrap();
        let interface = ServiceInterface::of(type_name, None).unwrap();
        interface.write(RequestLayout::default(), &reply).unwrap();
        reply
    }

    #[test]
    fn parameters_are_listed_below_their_prefixes() {
        let names = |request: &Value| call("list_parameters", request)["result"]["names"].clone();
        assert_eq!(names(&json!({})).as_array().unwrap().len(), 5);
        assert_eq!(
            names(&json!({"prefixes": ["storage"]})),
            json!(["storage.max_bagfile_size", "storage.uri"])
        );
        assert_eq!(names(&json!({"depth": 1})), json!(["use_sim_time"]));
        assert_eq!(
            call("list_parameters", &json!({}))["result"]["prefixes"],
            json!(["play", "record", "storage"])
        );
    }

    #[test]
    fn values_are_read_and_never_set() {
        let names = json!({"names": ["use_sim_time", "record.topics", "none"]});
        assert_eq!(call("get_parameter_types", &names), json!({"types": [1, 9, 0]}));
        let values = call("get_parameters", &names);
        assert_eq!(
            values["values"][1],
            json!({"type": 9, "string_array_value": ["/tf"]})
        );
        assert_eq!(
            call("describe_parameters", &names)["descriptors"][0]["read_only"],
            true
        );
        let set = json!({"parameters": [{"name": "use_sim_time"}, {"name": "x"}]});
        assert_eq!(call("set_parameters", &set)["results"][1]["successful"], false);
        assert_eq!(
            call("set_parameters_atomically", &set)["result"]["successful"],
            false
        );
    }
}
