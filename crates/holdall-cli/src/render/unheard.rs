//! Topics that a recording was asked for and did not hear, with the likely causes.

use super::paint::Paint;
use crate::units::plural;
use holdall::record::status::RecordStatus;
use holdall_model::{
    names::service_event_topic,
    selection::Selection,
    text::{Outside, first_of},
};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Topics that are listed at the end; JSON has all.
const LISTED_MAX: usize = 8;

/// Topics that a recording asked for, and the networks where it listened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Topics that were named, with the event topics of named services.
    topics: BTreeSet<String>,
    /// Names of the transports in use.
    transports: Vec<&'static str>,
    /// `ROS_DOMAIN_ID`, 0 where it is not set.
    domain: String,
    /// The discovery range in the words of ROS.
    range: String,
    /// `--no-discovery` or only static topics.
    no_discovery: bool,
    /// The variable that names a file of Fast DDS's profiles.
    profiles: Option<&'static str>,
}

impl Request {
    /// The request of a recording; `variable` returns the value of an environment variable.
    pub fn new(
        selection: &Selection,
        no_discovery: bool,
        transports: Vec<&'static str>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Self {
        let services = selection.services.iter().map(|name| service_event_topic(name));
        // Each server of an action publishes its state.
        let actions = selection
            .actions
            .iter()
            .map(|name| format!("{name}/_action/status"));
        let of_variable = |name: &str, default: &str| {
            let value = variable(name).map(|value| value.trim().to_owned());
            value
                .filter(|value| !value.is_empty())
                .unwrap_or_else(|| default.to_owned())
        };
        let is_local = of_variable("ROS_LOCALHOST_ONLY", "0") == "1";
        Self {
            topics: selection
                .topics
                .iter()
                .cloned()
                .chain(services)
                .chain(actions)
                .collect(),
            transports,
            domain: of_variable("ROS_DOMAIN_ID", "0"),
            range: if is_local {
                "LOCALHOST".to_owned()
            } else {
                of_variable("ROS_AUTOMATIC_DISCOVERY_RANGE", "SUBNET")
            },
            no_discovery,
            profiles: ["FASTDDS_DEFAULT_PROFILES_FILE", "FASTRTPS_DEFAULT_PROFILES_FILE"]
                .into_iter()
                .find(|name| variable(name).is_some_and(|value| !value.trim().is_empty())),
        }
    }

    /// Topics that were named and never discovered, by name.
    fn never_seen(&self, status: &RecordStatus) -> Vec<&str> {
        let seen: BTreeSet<&str> = status.topics.iter().map(|topic| topic.name.as_str()).collect();
        let topics = self.topics.iter().map(String::as_str);
        topics.filter(|topic| !seen.contains(topic)).collect()
    }

    /// One line about topics that were named and have not been discovered since the recording began.
    pub fn awaited(&self, status: &RecordStatus) -> Option<String> {
        let missing = self.never_seen(status);
        (!missing.is_empty()).then(|| {
            format!(
                "not seen so far: {} that {} asked for: {}",
                plural(missing.len() as u64, "topic"),
                if missing.len() == 1 { "was" } else { "were" },
                first_of(&missing, LISTED_MAX)
            )
        })
    }

    /// Causes to check, the likely ones first; empty if everything that was named was seen and a message
    /// was received.
    fn causes(&self, status: &RecordStatus) -> Vec<String> {
        let is_missing = !self.never_seen(status).is_empty();
        let is_silent = received_nothing(status);
        let mut causes = Vec::new();
        if !is_missing && !is_silent {
            return causes;
        }
        if self.no_discovery {
            causes
                .push("discovery is off: only the topics of --static-topics-path are subscribed".to_owned());
        }
        if is_missing {
            causes.push(
                "the name is written differently (namespace, spelling), or its publisher was not started; \
                 ros2 topic list shows the names"
                    .to_owned(),
            );
        }
        let is_joined = status.topics.iter().any(|topic| topic.publishers > 0);
        if is_joined && is_silent {
            causes.push("publishers were found, but sent nothing, or their QoS does not match".to_owned());
        }
        if !is_joined {
            causes.push(format!(
                "the publishers are in another domain than {} (ROS_DOMAIN_ID)",
                Outside(&self.domain)
            ));
            causes.push(format!(
                "the publishers are outside of the discovery range {} (ROS_AUTOMATIC_DISCOVERY_RANGE, \
                 ROS_LOCALHOST_ONLY), or a firewall or a network without multicast is between (ROS_STATIC_PEERS)",
                Outside(&self.range)
            ));
        }
        if let Some(profiles) = self.profiles.filter(|_| !is_joined) {
            causes.push(format!(
                "the publishers follow profiles of Fast DDS (peers, ports, interfaces), which dds does not read ({profiles})"
            ));
        }
        if is_missing || !is_joined {
            causes.push(format!(
                "the publishers use another transport than {} (--transport auto uses all)",
                self.transports.join(", ")
            ));
        }
        causes
    }

    /// The sentences at the end of a recording; none if everything was heard.
    pub fn summary(&self, status: &RecordStatus, paint: Paint) -> Vec<String> {
        let mut lines = Vec::new();
        let missing = self.never_seen(status);
        if !missing.is_empty() {
            let text = format!(
                "never seen: {} that {} asked for: {}",
                plural(missing.len() as u64, "topic"),
                if missing.len() == 1 { "was" } else { "were" },
                first_of(&missing, LISTED_MAX)
            );
            lines.push(paint.attention(&text));
        }
        if received_nothing(status) {
            lines.push(paint.attention("no message was received"));
        }
        let causes = self.causes(status);
        if !causes.is_empty() {
            lines.push("likely causes:".to_owned());
            lines.extend(causes.iter().map(|cause| format!("  {cause}")));
        }
        lines
    }

    /// The same for programs.
    pub fn json(&self, status: &RecordStatus) -> Map<String, Value> {
        let listened = json!({
            "domain": self.domain,
            "discovery_range": self.range,
            "transports": self.transports,
        });
        [
            ("topics_never_seen", json!(self.never_seen(status))),
            ("received_nothing", json!(received_nothing(status))),
            ("likely_causes", json!(self.causes(status))),
            ("listened", listened),
        ]
        .map(|(key, value)| (key.to_owned(), value))
        .into_iter()
        .collect()
    }
}

fn received_nothing(status: &RecordStatus) -> bool {
    status.topics.iter().all(|topic| topic.received == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall::record::status::TopicStatus;

    fn request(topics: &[&str], variables: &[(&str, &str)]) -> Request {
        let selection = Selection {
            topics: topics.iter().map(ToString::to_string).collect(),
            services: vec!["/add".to_owned()],
            ..Selection::default()
        };
        Request::new(&selection, false, vec!["dds"], |name| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    fn status(topics: &[(&str, u64)]) -> RecordStatus {
        let topics = topics.iter().map(|(name, received)| TopicStatus {
            name: (*name).to_owned(),
            publishers: 1,
            received: *received,
            ..TopicStatus::default()
        });
        RecordStatus {
            topics: topics.collect(),
            ..RecordStatus::default()
        }
    }

    #[test]
    fn what_was_heard_needs_no_words() {
        let request = request(&["/a"], &[]);
        let heard = status(&[("/a", 3), ("/add/_service_event", 0)]);
        assert!(request.summary(&heard, Paint::Plain).is_empty());
        let json = request.json(&heard);
        assert_eq!(json["topics_never_seen"], json!([]));
        assert_eq!(json["received_nothing"], json!(false));
        assert_eq!(json["likely_causes"], json!([]));
    }

    #[test]
    fn a_topic_never_seen_beside_others_is_first_a_question_of_its_name() {
        let request = request(&["/a", "/imu/date"], &[]);
        let text = request
            .summary(&status(&[("/a", 3), ("/add/_service_event", 0)]), Paint::Plain)
            .join("\n");
        assert!(
            text.starts_with("never seen: 1 topic that was asked for: /imu/date\nlikely causes:\n  the name"),
            "{text}"
        );
        assert!(
            !text.contains("ROS_DOMAIN_ID"),
            "others were found in this domain: {text}"
        );
    }

    #[test]
    fn a_recording_that_heard_nothing_names_domain_range_and_transports() {
        let variables = [
            ("ROS_DOMAIN_ID", "7"),
            ("ROS_LOCALHOST_ONLY", "1"),
            ("FASTRTPS_DEFAULT_PROFILES_FILE", "/etc/fast.xml"),
        ];
        let request = request(&["/a"], &variables);
        let text = request.summary(&status(&[]), Paint::Plain).join("\n");
        for part in [
            "2 topics that were asked for: /a, /add/_service_event",
            "no message was received",
            "another domain than 7 (ROS_DOMAIN_ID)",
            "profiles of Fast DDS (peers, ports, interfaces), which dds does not read (FASTRTPS_DEFAULT_PROFILES_FILE)",
            "range LOCALHOST (ROS_AUTOMATIC_DISCOVERY_RANGE",
            "transport than dds (--transport auto",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let json = request.json(&status(&[]));
        assert_eq!(json["topics_never_seen"], json!(["/a", "/add/_service_event"]));
        assert_eq!(json["received_nothing"], json!(true));
        assert_eq!(json["listened"]["domain"], "7");
    }

    #[test]
    fn silent_publishers_are_a_question_of_qos() {
        let request = request(&["/a"], &[]);
        let text = request
            .summary(&status(&[("/a", 0), ("/add/_service_event", 0)]), Paint::Plain)
            .join("\n");
        assert!(text.starts_with("no message was received"), "{text}");
        assert!(text.contains("QoS") && !text.contains("ROS_DOMAIN_ID"), "{text}");
    }

    #[test]
    fn long_lists_are_cut() {
        let names: Vec<String> = (0..20).map(|n| format!("/t{n:02}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let lines = request(&names, &[]).summary(&status(&[]), Paint::Plain);
        assert!(lines[0].ends_with("/t06 and 13 more"), "{lines:?}");
    }
}
