//! Names clients of a service whose version of its type is not known, once for each version.

use holdall_model::topic::Gid;
use std::collections::BTreeSet;

/// Versions of a type that the log names.
const NAMED_MAX: usize = 8;

/// The hashes of types that the log has named.
#[derive(Default)]
pub(in crate::dds) struct OtherTypes(BTreeSet<String>);

impl OtherTypes {
    /// Logs the type of a client that may not be able to read the reply.
    pub fn note(&mut self, service: &str, client: Gid, type_hash: Option<&str>) {
        let Some(type_hash) = type_hash else { return };
        if self.0.len() < NAMED_MAX && self.0.insert(type_hash.to_owned()) {
            tracing::warn!(
                "{service}: the client {client} has a version of the type that holdall does not know ({type_hash}); what it asks is done, and \
                 the reply is one that it may not be able to read"
            );
        }
    }
}
