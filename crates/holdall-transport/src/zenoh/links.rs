//! Links to other sessions: which of them broke without a farewell.

use std::collections::{HashMap, HashSet};

/// The links of each session that is connected, by the addresses of both ends. A session whose links broke keeps an empty set until zenoh has
/// withdrawn its declarations.
#[derive(Default)]
pub(super) struct Links(HashMap<String, HashSet<(String, String)>>);

impl Links {
    /// Notes a link that was made.
    pub(super) fn made(&mut self, session: &str, ends: (String, String)) {
        self.0.entry(session.to_owned()).or_default().insert(ends);
    }

    /// Notes a link that broke: zenoh reports it before it withdraws the declarations received over it. A session that closes without having
    /// withdrawn anything looks the same.
    pub(super) fn broke(&mut self, session: &str, ends: &(String, String)) {
        if let Some(links) = self.0.get_mut(session) {
            links.remove(ends);
        }
    }

    /// Notes that a session is not connected any more, and that all which it had declared is withdrawn.
    pub(super) fn closed(&mut self, session: &str) {
        self.0.remove(session);
    }

    /// Whether a session cannot have withdrawn anything itself: its last link broke, or, if it is reached through others, every link.
    pub(super) fn has_lost(&self, session: &str) -> bool {
        match self.0.get(session) {
            Some(links) => links.is_empty(),
            None => !self.0.is_empty() && self.0.values().all(HashSet::is_empty),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_lost_when_its_last_link_breaks_until_it_is_closed_or_back() {
        let ends = |port: u16| ("here".to_owned(), format!("there:{port}"));
        let mut links = Links::default();
        assert!(!links.has_lost("peer"));
        links.made("peer", ends(1));
        links.made("peer", ends(2));
        links.made("other", ends(3));
        links.broke("peer", &ends(1));
        assert!(!links.has_lost("peer"));
        links.broke("peer", &ends(2));
        // A session reached through another one may have withdrawn its declarations.
        assert!(links.has_lost("peer") && !links.has_lost("other") && !links.has_lost("beyond"));
        links.broke("other", &ends(3));
        assert!(links.has_lost("beyond"));
        links.made("peer", ends(1));
        assert!(!links.has_lost("peer") && !links.has_lost("beyond"));
        links.closed("peer");
        links.closed("other");
        assert!(!links.has_lost("peer") && !links.has_lost("beyond"));
        links.broke("unknown", &ends(1));
        assert!(!links.has_lost("unknown"));
    }
}
