//! The networks of a computer, and whether a recording uses them.

use serde::{Deserialize, Serialize};
use std::{fmt, net::Ipv4Addr};

/// The most networks that a list of them has.
pub const NETWORKS_MAX: usize = 64;

/// One address of one interface of this computer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Network {
    /// The interface's name.
    pub interface: String,
    /// Its address.
    pub address: Ipv4Addr,
    /// Nodes there can be heard.
    pub used: bool,
    /// Why it is not used, or in part only: one clause.
    pub reason: Option<String>,
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.interface, self.address)
    }
}
