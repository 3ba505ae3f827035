//! Who publishes, subscribes and serves, as viewers get it.

use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Nodes (or endpoints of nodes without a name) by topic or service.
type Ends = BTreeMap<String, BTreeSet<String>>;

/// The connection graph.
#[derive(Debug, Default)]
pub(super) struct Graph {
    pub published: Ends,
    pub subscribed: Ends,
    /// Services with their servers.
    pub services: Ends,
}

impl Graph {
    /// The update for a viewer that has `earlier`: changed and removed entries.
    pub(super) fn update_from(&self, earlier: &Self) -> Value {
        let is_topic = |graph: &Self, name: &String| {
            graph.published.contains_key(name) || graph.subscribed.contains_key(name)
        };
        let topics: BTreeSet<&String> = earlier
            .published
            .keys()
            .chain(earlier.subscribed.keys())
            .collect();
        let removed_topics: Vec<_> = topics.into_iter().filter(|name| !is_topic(self, name)).collect();
        let removed_services: Vec<_> = earlier
            .services
            .keys()
            .filter(|name| !self.services.contains_key(*name))
            .collect();
        // A topic that has lost only its publishers has an empty list of them.
        let of_topics =
            |now: &Ends, before: &Ends, ids: &str| changed(now, before, ids, |name| is_topic(self, name));
        json!({
            "op": "connectionGraphUpdate",
            "publishedTopics": of_topics(&self.published, &earlier.published, "publisherIds"),
            "subscribedTopics": of_topics(&self.subscribed, &earlier.subscribed, "subscriberIds"),
            "advertisedServices": changed(&self.services, &earlier.services, "providerIds", |_| false),
            "removedTopics": removed_topics,
            "removedServices": removed_services,
        })
    }
}

/// Entries that are new or differ, and empty ones for those that are gone where `is_kept`.
fn changed(now: &Ends, before: &Ends, ids: &str, is_kept: impl Fn(&String) -> bool) -> Vec<Value> {
    let entry = |name: &String, ends: &BTreeSet<String>| json!({"name": name, ids: ends});
    let differing = now
        .iter()
        .filter(|(name, ends)| before.get(*name) != Some(ends))
        .map(|(name, ends)| entry(name, ends));
    let emptied = before
        .keys()
        .filter(|name| !now.contains_key(*name) && is_kept(name))
        .map(|name| entry(name, &BTreeSet::new()));
    differing.chain(emptied).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(entries: &[(&str, &[&str])]) -> Ends {
        entries
            .iter()
            .map(|(name, ids)| ((*name).to_owned(), ids.iter().map(ToString::to_string).collect()))
            .collect()
    }

    #[test]
    fn an_update_has_what_changed_and_what_is_gone() {
        let before = Graph {
            published: ends(&[
                ("/a", &["n1"]),
                ("/b", &["n1"]),
                ("/c", &["n1"]),
                ("/same", &["n1"]),
            ]),
            subscribed: ends(&[("/b", &["n2"])]),
            services: ends(&[("/s", &["n1"])]),
        };
        let now = Graph {
            published: ends(&[("/a", &["n1", "n3"]), ("/same", &["n1"])]),
            subscribed: ends(&[("/b", &["n2"])]),
            services: ends(&[("/t", &["n1"])]),
        };
        assert_eq!(
            now.update_from(&before),
            json!({
                "op": "connectionGraphUpdate",
                "publishedTopics": [{"name": "/a", "publisherIds": ["n1", "n3"]}, {"name": "/b", "publisherIds": []}],
                "subscribedTopics": [],
                "advertisedServices": [{"name": "/t", "providerIds": ["n1"]}],
                "removedTopics": ["/c"],
                "removedServices": ["/s"],
            })
        );
    }

    #[test]
    fn a_viewer_that_has_nothing_gets_all() {
        let now = Graph {
            published: ends(&[("/a", &["n1"])]),
            ..Graph::default()
        };
        let update = now.update_from(&Graph::default());
        assert_eq!(
            update["publishedTopics"],
            json!([{"name": "/a", "publisherIds": ["n1"]}])
        );
        assert_eq!(update["removedTopics"], json!([]));
    }
}
