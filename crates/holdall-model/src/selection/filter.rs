//! Decides for each discovered topic whether it is recorded, by rosbag2's rules.

use super::{Selection, SelectionError, SelectionPart};
use crate::{
    names::{action_of_topic, expand_name, is_hidden, service_event_topic, service_of_event_topic},
    topic::NodeName,
};
use regex::Regex;
use std::collections::BTreeSet;

/// A checked [`Selection`] with full names, ready to decide on many topics.
#[derive(Clone, Debug)]
pub struct TopicFilter {
    all_topics: bool,
    all_services: bool,
    all_actions: bool,
    topics: BTreeSet<String>,
    service_event_topics: BTreeSet<String>,
    actions: BTreeSet<String>,
    topic_types: BTreeSet<String>,
    regex: Option<Regex>,
    exclude_regex: Option<Regex>,
    exclude_topics: BTreeSet<String>,
    exclude_service_event_topics: BTreeSet<String>,
    exclude_actions: BTreeSet<String>,
    exclude_topic_types: BTreeSet<String>,
    include_hidden_topics: bool,
    include_unpublished_topics: bool,
    ignore_leaf_topics: bool,
}

impl Selection {
    /// Makes the filter. Relative names are expanded as `node` expands them (`chatter` becomes `/chatter`).
    ///
    /// [`Selection::validate`] checks whether the options go together.
    ///
    /// # Errors
    /// A name or a type that is not valid.
    pub fn compile(&self, node: &NodeName) -> Result<TopicFilter, SelectionError> {
        let names = |part, names| full_names(part, names, node);
        let events = |part, names: &[String]| -> Result<BTreeSet<String>, SelectionError> {
            Ok(full_names(part, names, node)?
                .iter()
                .map(|name| service_event_topic(name))
                .collect())
        };
        let all_given = self.all_topics || self.all_services || self.all_actions;
        Ok(TopicFilter {
            all_topics: self.all_topics,
            all_services: self.all_services,
            all_actions: self.all_actions,
            topics: names(SelectionPart::Topics, &self.topics)?,
            service_event_topics: events(SelectionPart::Services, &self.services)?,
            actions: names(SelectionPart::Actions, &self.actions)?,
            topic_types: types(SelectionPart::TopicTypes, &self.topic_types)?,
            regex: self.regex.clone().filter(|_| !all_given),
            exclude_regex: self.exclude_regex.clone(),
            exclude_topics: names(SelectionPart::ExcludedTopics, &self.exclude_topics)?,
            exclude_service_event_topics: events(SelectionPart::ExcludedServices, &self.exclude_services)?,
            exclude_actions: names(SelectionPart::ExcludedActions, &self.exclude_actions)?,
            exclude_topic_types: types(SelectionPart::ExcludedTopicTypes, &self.exclude_topic_types)?,
            include_hidden_topics: self.include_hidden_topics,
            include_unpublished_topics: self.include_unpublished_topics,
            ignore_leaf_topics: self.ignore_leaf_topics,
        })
    }
}

fn full_names(
    part: SelectionPart,
    names: &[String],
    node: &NodeName,
) -> Result<BTreeSet<String>, SelectionError> {
    let full =
        |name: &String| expand_name(name, node).map_err(|source| SelectionError::Name { part, source });
    names.iter().map(full).collect()
}

fn types(part: SelectionPart, types: &[String]) -> Result<BTreeSet<String>, SelectionError> {
    let checked = |type_name: &String| {
        let tokens: Vec<&str> = type_name.split('/').collect();
        let is_type = tokens.len() >= 3 && tokens.iter().all(|token| !token.is_empty());
        is_type
            .then(|| type_name.clone())
            .ok_or_else(|| SelectionError::Type {
                part,
                type_name: type_name.clone(),
            })
    };
    types.iter().map(checked).collect()
}

impl TopicFilter {
    /// Whether a topic is recorded.
    ///
    /// A service introspection topic (`<service>/_service_event` of an `_Event` type) is selected as its
    /// service is: by `--all-services`, `--services`, and patterns on the service's name. The topics of an action are
    /// selected by `--all-actions`, `--actions` and patterns on the action's name, and in addition as what they are:
    /// services' events, or hidden topics. Actions with a hidden name are selected as hidden topics are. All others are
    /// selected as topics; hidden ones only by name or with `--include-hidden-topics`. An exclusion by name,
    /// type or pattern always wins. Topics without a publisher, and with `ignore_leaf_topics` those without a
    /// subscription, wait until they have one.
    pub fn decide(
        &self,
        topic: &str,
        type_name: &str,
        has_publishers: bool,
        has_subscriptions: bool,
    ) -> bool {
        let live = (has_publishers || self.include_unpublished_topics)
            && (has_subscriptions || !self.ignore_leaf_topics);
        live && self.takes(topic, type_name)
    }

    /// Whether a topic is selected, wherever it has publishers or subscriptions.
    pub fn takes(&self, topic: &str, type_name: &str) -> bool {
        let action = action_of_topic(topic, type_name);
        if action.is_some_and(|action| self.leaves_out_action(topic, type_name, action)) {
            return false;
        }
        let as_action = action.is_some_and(|action| self.chooses_action(action));
        match service_of_event_topic(topic, type_name) {
            Some(service) => self.takes_service(topic, service, as_action),
            None => as_action || self.takes_topic(topic, type_name),
        }
    }

    fn chooses_action(&self, action: &str) -> bool {
        let is_shown = self.include_hidden_topics || !is_hidden(action);
        self.actions.contains(action) || (is_shown && (self.all_actions || matches(&self.regex, action)))
    }

    /// An exclusion of the action, or of this topic of it.
    fn leaves_out_action(&self, topic: &str, type_name: &str, action: &str) -> bool {
        self.exclude_actions.contains(action)
            || self.exclude_topics.contains(topic)
            || self.exclude_topic_types.contains(type_name)
            || matches(&self.exclude_regex, action)
            || matches(&self.exclude_regex, topic)
    }

    fn takes_topic(&self, topic: &str, type_name: &str) -> bool {
        let named = self.topics.contains(topic);
        let chosen =
            self.all_topics || named || self.topic_types.contains(type_name) || matches(&self.regex, topic);
        let left_out = self.exclude_topics.contains(topic)
            || self.exclude_topic_types.contains(type_name)
            || matches(&self.exclude_regex, topic);
        chosen && !left_out && (named || self.include_hidden_topics || !is_hidden(topic))
    }

    /// `chosen` when something else than its service selects it.
    fn takes_service(&self, event_topic: &str, service: &str, chosen: bool) -> bool {
        let named = self.service_event_topics.contains(event_topic) || self.topics.contains(event_topic);
        let chosen = chosen || self.all_services || named || matches(&self.regex, service);
        let left_out = self.exclude_service_event_topics.contains(event_topic)
            || self.exclude_topics.contains(event_topic)
            || matches(&self.exclude_regex, service);
        chosen && !left_out
    }
}

/// A search: the pattern may match anywhere in the name.
fn matches(pattern: &Option<Regex>, name: &str) -> bool {
    pattern.as_ref().is_some_and(|pattern| pattern.is_match(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRING: &str = "std_msgs/msg/String";
    const ADD_EVENT: &str = "example_interfaces/srv/AddTwoInts_Event";
    const ADD: &str = "/add/_service_event";

    fn filter(selection: &Selection) -> TopicFilter {
        selection
            .compile(&NodeName {
                namespace: "/".to_owned(),
                name: "recorder".to_owned(),
            })
            .unwrap()
    }

    /// Decides for a topic with a publisher and a subscription.
    fn takes(selection: &Selection, topic: &str, type_name: &str) -> bool {
        filter(selection).decide(topic, type_name, true, true)
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    fn pattern(text: &str) -> Option<Regex> {
        Some(Regex::new(text).unwrap())
    }

    fn all() -> Selection {
        Selection {
            all_topics: true,
            all_services: true,
            ..Selection::default()
        }
    }

    #[test]
    fn all_takes_topics_and_services_but_no_hidden_topics() {
        assert!(takes(&all(), "/chatter", STRING));
        assert!(takes(&all(), ADD, ADD_EVENT));
        assert!(!takes(&all(), "/_hidden", STRING));
        assert!(!takes(&all(), "/a/_service_event", STRING));
        let topics_only = Selection {
            all_topics: true,
            ..Selection::default()
        };
        assert!(!takes(&topics_only, ADD, ADD_EVENT));
        let services_only = Selection {
            all_services: true,
            ..Selection::default()
        };
        assert!(takes(&services_only, ADD, ADD_EVENT));
        assert!(!takes(&services_only, "/chatter", STRING));
    }

    const GOALS: &str = "action_msgs/msg/GoalStatusArray";

    /// The topics of an action, with their types.
    fn parts(action: &str) -> [(String, &'static str); 5] {
        [
            ("feedback", "example_interfaces/action/Fibonacci_FeedbackMessage"),
            ("status", GOALS),
            (
                "send_goal/_service_event",
                "example_interfaces/action/Fibonacci_SendGoal_Event",
            ),
            (
                "get_result/_service_event",
                "example_interfaces/action/Fibonacci_GetResult_Event",
            ),
            ("cancel_goal/_service_event", "action_msgs/srv/CancelGoal_Event"),
        ]
        .map(|(part, type_name)| (format!("{action}/_action/{part}"), type_name))
    }

    /// How many topics of an action are taken.
    fn taken(selection: &Selection, action: &str) -> usize {
        let parts = parts(action);
        parts
            .iter()
            .filter(|(topic, type_name)| takes(selection, topic, type_name))
            .count()
    }

    #[test]
    fn an_action_is_recorded_whole_or_not_at_all() {
        let named = Selection {
            actions: names(&["/fib"]),
            ..Selection::default()
        };
        assert_eq!(
            [
                taken(&named, "/fib"),
                taken(&named, "/fib2"),
                taken(&named, "/a/fib")
            ],
            [5, 0, 0]
        );
        assert!(!takes(&named, "/chatter", STRING) && !takes(&named, ADD, ADD_EVENT));
        let actions = Selection {
            all_actions: true,
            ..Selection::default()
        };
        assert_eq!(taken(&actions, "/fib"), 5);
        assert!(!takes(&actions, "/chatter", STRING) && !takes(&actions, ADD, ADD_EVENT));
        assert_eq!(taken(&Selection::all(), "/fib"), 5);
        let pattern = Selection {
            regex: pattern("^/fib$"),
            ..Selection::default()
        };
        assert_eq!([taken(&pattern, "/fib"), taken(&pattern, "/fib2")], [5, 0]);
        let but_one = Selection {
            exclude_actions: names(&["/fib"]),
            ..Selection::all()
        };
        assert_eq!([taken(&but_one, "/fib"), taken(&but_one, "/other")], [0, 5]);
        let none_of_fib = Selection {
            exclude_regex: self::pattern("fib"),
            ..Selection::all()
        };
        assert_eq!(
            [taken(&none_of_fib, "/fib"), taken(&none_of_fib, "/other")],
            [0, 5]
        );
        let no_goals = Selection {
            exclude_topic_types: names(&[GOALS]),
            ..Selection::all()
        };
        assert_eq!(taken(&no_goals, "/fib"), 4);
    }

    #[test]
    fn a_hidden_action_is_recorded_by_name_or_on_request() {
        assert_eq!(
            taken(
                &Selection {
                    all_actions: true,
                    ..Selection::default()
                },
                "/_fib"
            ),
            0
        );
        let named = Selection {
            actions: names(&["/_fib"]),
            ..Selection::default()
        };
        assert_eq!(taken(&named, "/_fib"), 5);
        let shown = Selection {
            include_hidden_topics: true,
            ..Selection::all()
        };
        assert_eq!(taken(&shown, "/_fib"), 5);
    }

    #[test]
    fn topics_of_actions_are_also_what_else_they_are() {
        assert_eq!(
            taken(
                &Selection {
                    all_topics: true,
                    ..Selection::default()
                },
                "/fib"
            ),
            0
        );
        let hidden = Selection {
            all_topics: true,
            include_hidden_topics: true,
            ..Selection::default()
        };
        assert_eq!(taken(&hidden, "/fib"), 2);
        let services = Selection {
            all_services: true,
            ..Selection::default()
        };
        assert_eq!(taken(&services, "/fib"), 3);
        let by_name = Selection {
            topics: names(&["/fib/_action/status"]),
            ..Selection::default()
        };
        assert_eq!(taken(&by_name, "/fib"), 1);
        let other_type = Selection {
            all_actions: true,
            ..Selection::default()
        };
        assert!(!takes(&other_type, "/fib/_action/status", STRING));
        assert!(
            !takes(&other_type, "/fib/_action/other", GOALS) && !takes(&other_type, "/_action/status", GOALS)
        );
    }

    #[test]
    fn names_are_exact_and_may_be_relative() {
        let chatter = Selection {
            topics: names(&["chatter", "/_hidden"]),
            ..Selection::default()
        };
        assert!(takes(&chatter, "/chatter", STRING));
        assert!(!takes(&chatter, "/chatter2", STRING));
        assert!(
            takes(&chatter, "/_hidden", STRING),
            "a topic selected by name is recorded even if hidden"
        );
        let add = Selection {
            services: names(&["add"]),
            ..Selection::default()
        };
        assert!(takes(&add, ADD, ADD_EVENT));
        assert!(!takes(&add, "/other/_service_event", ADD_EVENT));
        let event_by_topic_name = Selection {
            topics: names(&[ADD]),
            ..Selection::default()
        };
        assert!(takes(&event_by_topic_name, ADD, ADD_EVENT));
    }

    #[test]
    fn a_type_selects_all_its_topics() {
        let strings = Selection {
            topic_types: names(&[STRING]),
            ..Selection::default()
        };
        assert!(takes(&strings, "/a", STRING));
        assert!(!takes(&strings, "/a", "std_msgs/msg/Int8"));
        assert!(!takes(&strings, "/_a", STRING));
    }

    #[test]
    fn a_pattern_searches_in_topic_and_service_names() {
        let add = Selection {
            regex: pattern("ad"),
            ..Selection::default()
        };
        assert!(takes(&add, "/load", STRING));
        assert!(takes(&add, ADD, ADD_EVENT));
        assert!(!takes(&add, "/other", STRING));
        let event = Selection {
            regex: pattern("_service_event"),
            ..Selection::default()
        };
        assert!(
            !takes(&event, ADD, ADD_EVENT),
            "a service is matched by its own name"
        );
        let ignored = Selection {
            all_topics: true,
            regex: pattern("^/x$"),
            ..Selection::default()
        };
        assert!(takes(&ignored, "/other", STRING));
        assert!(!takes(&ignored, ADD, ADD_EVENT));
    }

    #[test]
    fn an_exclusion_always_wins() {
        let selection = Selection {
            exclude_topics: names(&["/a"]),
            exclude_services: names(&["/sub"]),
            exclude_topic_types: names(&["std_msgs/msg/Int8"]),
            exclude_regex: pattern("^/private"),
            topics: names(&["/a"]),
            ..all()
        };
        assert!(!takes(&selection, "/a", STRING));
        assert!(takes(&selection, "/ab", STRING));
        assert!(!takes(&selection, "/b", "std_msgs/msg/Int8"));
        assert!(!takes(&selection, "/private/x", STRING));
        assert!(!takes(&selection, "/private/add/_service_event", ADD_EVENT));
        assert!(!takes(&selection, "/sub/_service_event", ADD_EVENT));
        assert!(takes(&selection, ADD, ADD_EVENT));
    }

    #[test]
    fn endpoints_count_as_requested() {
        let decide = |selection: &Selection, publishers, subscriptions| {
            filter(selection).decide("/chatter", STRING, publishers, subscriptions)
        };
        assert!(decide(&all(), true, false));
        assert!(!decide(&all(), false, true));
        let unpublished = Selection {
            include_unpublished_topics: true,
            ..all()
        };
        assert!(decide(&unpublished, false, true));
        let no_leaves = Selection {
            ignore_leaf_topics: true,
            ..all()
        };
        assert!(!decide(&no_leaves, true, false));
        assert!(decide(&no_leaves, true, true));
    }

    #[test]
    fn hidden_topics_are_recorded_on_request() {
        let selection = Selection {
            include_hidden_topics: true,
            ..all()
        };
        assert!(takes(&selection, "/_hidden", STRING));
    }

    #[test]
    fn bad_names_and_types_are_refused_with_their_option() {
        let node = NodeName {
            namespace: "/".to_owned(),
            name: "recorder".to_owned(),
        };
        let error = |selection: Selection| selection.compile(&node).unwrap_err().to_string();
        let topics = Selection {
            topics: names(&["/a b"]),
            ..Selection::default()
        };
        assert_eq!(
            error(topics),
            "selected topics: \"/a b\" is not a valid topic name: ' ' at byte 2 is not allowed; names hold letters, digits, \
             '_' and '/'"
        );
        let types = Selection {
            topic_types: names(&["String"]),
            ..Selection::default()
        };
        assert_eq!(
            error(types),
            "selected types: \"String\" is not a type; types look like std_msgs/msg/String"
        );
    }
}
