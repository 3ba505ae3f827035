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

    /// What the links show of the end of a session's declarations.
    pub(super) fn shown(&self, session: &str) -> Shown {
        match self.0.get(session) {
            Some(links) if links.is_empty() => Shown::Lost,
            Some(_) => Shown::Withdrawn,
            None if !self.0.is_empty() && self.0.values().all(HashSet::is_empty) => Shown::Lost,
            None => Shown::Nothing,
        }
    }
}

/// What links show of the end of a session's declarations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// The session has withdrawn them: its link holds.
    Withdrawn,
    /// It cannot have withdrawn them: its last link broke, or, if it is reached through others, every link.
    Lost,
    /// It is reached through others, which withdraw what a lost session has declared in the same way.
    Nothing,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_lost_when_its_last_link_breaks_until_it_is_closed_or_back() {
        let ends = |port: u16| ("here".to_owned(), format!("there:{port}"));
        let mut links = Links::default();
        assert_eq!(links.shown("peer"), Shown::Nothing);
        links.made("peer", ends(1));
        links.made("peer", ends(2));
        links.made("other", ends(3));
        links.broke("peer", &ends(1));
        assert_eq!(links.shown("peer"), Shown::Withdrawn);
        links.broke("peer", &ends(2));
        // A session reached through another one may have withdrawn its declarations.
        assert_eq!(
            ["peer", "other", "beyond"].map(|session| links.shown(session)),
            [Shown::Lost, Shown::Withdrawn, Shown::Nothing]
        );
        links.broke("other", &ends(3));
        assert_eq!(links.shown("beyond"), Shown::Lost);
        links.made("peer", ends(1));
        assert_eq!(
            ["peer", "beyond"].map(|session| links.shown(session)),
            [Shown::Withdrawn, Shown::Nothing]
        );
        links.closed("peer");
        links.closed("other");
        assert_eq!(links.shown("peer"), Shown::Nothing);
        links.broke("unknown", &ends(1));
        assert_eq!(links.shown("unknown"), Shown::Nothing);
    }
}
