//! A zenoh session under a ROS node's name, closed when the last of its subscriptions and publishers is
//! dropped.

use super::token::{EntityKind, Token, TokenTopic, gid_of};
use ::zenoh::{Session, Wait, liveliness::LivelinessToken};
use holdall_model::topic::{Gid, NodeName};
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of our only node within the session, and of its token.
const NODE_ID: u64 = 0;

/// The session; everything that needs it holds a reference.
pub(super) struct OpenSession {
    session: Session,
    id: String,
    domain_id: u32,
    node: NodeName,
    next_entity: AtomicU64,
    node_token: Option<LivelinessToken>,
}

/// A declared token, and its entity's GID. Dropping it undeclares it.
pub(super) struct Declared {
    pub gid: Gid,
    _token: LivelinessToken,
}

impl OpenSession {
    /// Opens a session and announces the node.
    pub(super) fn open(config: ::zenoh::Config, domain_id: u32, node: NodeName) -> ::zenoh::Result<Self> {
        let session = ::zenoh::open(config).wait()?;
        let mut open = Self {
            id: session.zid().to_string(),
            session,
            domain_id,
            node,
            next_entity: AtomicU64::new(NODE_ID + 1),
            node_token: None,
        };
        let token = open.token(NODE_ID, EntityKind::Node, None).encode();
        open.node_token = Some(open.session.liveliness().declare_token(token).wait()?);
        Ok(open)
    }

    /// zenoh's own session.
    pub(super) fn zenoh(&self) -> &Session {
        &self.session
    }

    /// Its id, as in tokens.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// The ROS domain.
    pub(super) fn domain_id(&self) -> u32 {
        self.domain_id
    }

    /// The key and GID of an entity's token that is declared with [`OpenSession::declare`].
    pub(super) fn entity(&self, kind: EntityKind, topic: TokenTopic) -> (String, Gid) {
        let number = self.next_entity.fetch_add(1, Ordering::Relaxed);
        let key = self.token(number, kind, Some(topic)).encode();
        let gid = gid_of(&key);
        (key, gid)
    }

    /// Announces an entity to the others.
    pub(super) fn declare(&self, (key, gid): (String, Gid)) -> ::zenoh::Result<Declared> {
        let token = self.session.liveliness().declare_token(key).wait()?;
        Ok(Declared { gid, _token: token })
    }

    fn token(&self, entity_id: u64, kind: EntityKind, topic: Option<TokenTopic>) -> Token {
        Token {
            domain_id: self.domain_id,
            session: self.id.clone(),
            node_id: NODE_ID,
            entity_id,
            kind,
            node: self.node.clone(),
            topic,
        }
    }
}

impl Drop for OpenSession {
    fn drop(&mut self) {
        drop(self.node_token.take());
        // Sends queued messages.
        if let Err(error) = self.session.close().wait() {
            tracing::debug!("closing the zenoh session: {error}");
        }
    }
}
