//! Liveliness tokens: how each node, publisher, subscription and service of rmw_zenoh announces itself, and
//! the key of its data.

use super::qos::{self, QosCodeError};
use holdall_model::{
    names::dds::{type_from_dds, type_to_dds},
    qos::QosProfile,
    topic::{Gid, NodeName},
};

/// The prefix of all tokens.
const ADMIN_SPACE: &str = "@ros2_lv";

/// The hash in a key where none is known: a key has no empty parts.
pub(super) const NO_HASH: &str = "EMPTY_TOPIC_HASH";

/// The kind of entity that a token announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum EntityKind {
    Node,
    Publisher,
    Subscription,
    Server,
    Client,
}

impl EntityKind {
    const ALL: [(Self, &'static str); 5] = [
        (Self::Node, "NN"),
        (Self::Publisher, "MP"),
        (Self::Subscription, "MS"),
        (Self::Server, "SS"),
        (Self::Client, "SC"),
    ];

    fn as_str(self) -> &'static str {
        Self::ALL
            .iter()
            .find_map(|(kind, text)| (*kind == self).then_some(*text))
            .expect("every kind is in the list")
    }

    fn from_text(text: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .find_map(|(kind, known)| (*known == text).then_some(*kind))
    }
}

/// A topic or service in a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TokenTopic {
    /// Full ROS name.
    pub name: String,
    /// ROS type.
    pub type_name: String,
    /// RIHS01 hash, if it is a valid one.
    pub type_hash: Option<String>,
    /// The QoS that is offered or requested.
    pub qos: QosProfile,
}

/// The contents of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    /// ROS domain.
    pub domain_id: u32,
    /// Its session, in hexadecimal.
    pub session: String,
    /// Number of its node within the session.
    pub node_id: u64,
    /// Number within the session.
    pub entity_id: u64,
    /// The kind of its entity.
    pub kind: EntityKind,
    /// Its node.
    pub node: NodeName,
    /// Its topic or service; nodes have none.
    pub topic: Option<TokenTopic>,
}

/// Why a key is not a token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum TokenError {
    /// A part is missing.
    #[error("part {place} ({name}) is missing")]
    Missing {
        /// Counted from 0.
        place: usize,
        /// Name of the part.
        name: &'static str,
    },
    /// A part has another form.
    #[error("part {place} ({name}) is {found:?}")]
    Part {
        /// Counted from 0.
        place: usize,
        /// Name of the part.
        name: &'static str,
        /// The text found.
        found: String,
    },
    /// The QoS has another form.
    #[error("part 12: {0}")]
    Qos(#[from] QosCodeError),
}

const PARTS: [&str; 13] = [
    "admin space",
    "domain",
    "session",
    "node number",
    "entity number",
    "kind",
    "enclave",
    "namespace",
    "node name",
    "topic",
    "type",
    "type hash",
    "QoS",
];

impl Token {
    /// Reads a token's key. Parts after the QoS belong to later versions and are ignored.
    ///
    /// # Errors
    /// The first part that is missing or malformed.
    pub(super) fn decode(key: &str) -> Result<Self, TokenError> {
        let parts: Vec<&str> = key.split('/').collect();
        let part = |place: usize| {
            let name = PARTS[place];
            match parts.get(place) {
                Some(part) if !part.is_empty() => Ok(*part),
                _ => Err(TokenError::Missing { place, name }),
            }
        };
        let refused = |place: usize, found: &str| TokenError::Part {
            place,
            name: PARTS[place],
            found: found.to_owned(),
        };
        let number = |place: usize| part(place)?.parse().map_err(|_| refused(place, parts[place]));
        if part(0)? != ADMIN_SPACE {
            return Err(refused(0, parts[0]));
        }
        let domain = part(1)?;
        let domain_id = domain.parse().map_err(|_| refused(1, domain))?;
        let kind = EntityKind::from_text(part(5)?).ok_or_else(|| refused(5, parts[5]))?;
        part(6)?;
        let node = NodeName {
            namespace: demangled(part(7)?),
            name: demangled(part(8)?),
        };
        let topic = match kind {
            EntityKind::Node => None,
            _ => Some(TokenTopic {
                name: demangled(part(9)?),
                type_name: type_from_dds(&demangled(part(10)?)),
                type_hash: Some(demangled(part(11)?)).filter(|hash| hash.starts_with("RIHS")),
                qos: qos::decode(part(12)?)?,
            }),
        };
        Ok(Self {
            domain_id,
            session: part(2)?.to_owned(),
            node_id: number(3)?,
            entity_id: number(4)?,
            kind,
            node,
            topic,
        })
    }

    /// The token's key.
    pub(super) fn encode(&self) -> String {
        let mut key = format!(
            "{ADMIN_SPACE}/{}/{}/{}/{}/{}/%/{}/{}",
            self.domain_id,
            self.session,
            self.node_id,
            self.entity_id,
            self.kind.as_str(),
            mangled(&self.node.namespace),
            mangled(&self.node.name),
        );
        if let Some(topic) = &self.topic {
            for part in [
                &mangled(&topic.name),
                &mangled(&type_to_dds(&topic.type_name)),
                topic.type_hash.as_deref().unwrap_or(NO_HASH),
                &qos::encode(&topic.qos),
            ] {
                key.push('/');
                key.push_str(part);
            }
        }
        key
    }
}

/// The tokens of a domain.
pub(super) fn tokens_of(domain_id: u32) -> String {
    format!("{ADMIN_SPACE}/{domain_id}/**")
}

/// The GID of a token's entity: XXH3-128 of its key, the low half first.
pub(super) fn gid_of(token: &str) -> Gid {
    let hash = xxhash_rust::xxh3::xxh3_128(token.as_bytes());
    Gid(hash.to_le_bytes())
}

/// The key of a topic's data, or of a service; `None` as hash matches all hashes.
pub(super) fn data_key(domain_id: u32, name: &str, type_name: &str, type_hash: Option<&str>) -> String {
    let (name, hash) = (name.trim_matches('/'), type_hash.unwrap_or("*"));
    format!("{domain_id}/{name}/{}/{hash}", type_to_dds(type_name))
}

/// The hash in a key of [`data_key`], which is a publisher's own key when it comes with a message.
pub(super) fn hash_in(key: &str) -> Option<&str> {
    key.rsplit('/').next().filter(|hash| hash.starts_with("RIHS"))
}

fn mangled(name: &str) -> String {
    // A key has no empty parts.
    if name.is_empty() {
        return "%".to_owned();
    }
    name.replace('/', "%")
}

fn demangled(part: &str) -> String {
    part.replace('%', "/")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "RIHS01_df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18";

    fn publisher() -> String {
        format!(
            "@ros2_lv/7/a1b2c3/0/10/MP/%/%ns/talker/%ns%chatter/std_msgs::msg::dds_::String_/{HASH}/::,10:,:,:,,"
        )
    }

    #[test]
    fn a_publisher_is_read_and_written() {
        let token = Token::decode(&publisher()).unwrap();
        assert_eq!((token.domain_id, token.session.as_str()), (7, "a1b2c3"));
        assert_eq!((token.node_id, token.entity_id), (0, 10));
        assert_eq!(token.kind, EntityKind::Publisher);
        assert_eq!(token.node.to_string(), "/ns/talker");
        let topic = token.topic.clone().unwrap();
        assert_eq!(
            (topic.name.as_str(), topic.type_name.as_str()),
            ("/ns/chatter", "std_msgs/msg/String")
        );
        assert_eq!(topic.type_hash.as_deref(), Some(HASH));
        assert_eq!(topic.qos.depth, 10);
        assert_eq!(token.encode(), publisher());
        let key = data_key(7, &topic.name, &topic.type_name, topic.type_hash.as_deref());
        assert_eq!(key, format!("7/ns/chatter/std_msgs::msg::dds_::String_/{HASH}"));
        assert_eq!(hash_in(&key), Some(HASH));
    }

    #[test]
    fn a_node_has_no_topic_and_later_versions_may_add_parts() {
        let node = "@ros2_lv/0/ff/3/3/NN/%/%/talker";
        let token = Token::decode(node).unwrap();
        assert_eq!(
            (token.topic.as_ref(), token.node.to_string().as_str()),
            (None, "/talker")
        );
        assert_eq!(token.encode(), node);
        assert!(Token::decode(&format!("{}/backends", publisher())).is_ok());
    }

    #[test]
    fn a_hash_of_another_form_is_no_hash() {
        let key = publisher().replace(HASH, "EMPTY_TOPIC_HASH");
        let token = Token::decode(&key).unwrap();
        assert_eq!(token.topic.as_ref().unwrap().type_hash, None);
        assert_eq!(token.encode(), key);
    }

    #[test]
    fn malformed_tokens_are_refused_with_the_part() {
        let whole = publisher();
        let parts: Vec<&str> = whole.split('/').collect();
        for len in 1..parts.len() {
            let error = Token::decode(&parts[..len].join("/")).unwrap_err();
            assert!(error.to_string().contains("missing"), "{len}: {error}");
        }
        for (place, bad) in [(0, "@other"), (1, "-1"), (3, "x"), (4, ""), (5, "XX"), (12, "::")] {
            let mut changed = parts.clone();
            changed[place] = bad;
            let error = Token::decode(&changed.join("/")).unwrap_err();
            assert!(
                error.to_string().contains(&format!("part {place}")),
                "{place}: {error}"
            );
        }
    }

    #[test]
    fn the_gid_is_the_hash_of_the_token() {
        // XXH3-128 of no bytes is 99aa06d3014798d86001c324468d497f.
        assert_eq!(gid_of("").to_string(), "7f498d4624c30160d8984701d306aa99");
        assert_ne!(gid_of("a"), gid_of("b"));
    }
}
