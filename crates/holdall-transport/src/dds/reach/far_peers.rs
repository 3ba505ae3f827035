//! Participants of other computers: by which addresses they are heard, and whether the network is lost that they send by.

use super::networks::Networks;
use crate::dds::wire::locators::GuidPrefix;
use std::{collections::HashMap, net::Ipv4Addr};

/// Participants that are remembered; with more, every participant counts as one of them.
const FAR_MAX: usize = 4_096;

/// Addresses of one participant that are remembered.
const ADDRESSES_MAX: usize = 8;

/// One of them.
#[derive(Default)]
struct FarPeer {
    /// Where its packets came from; the last is the newest.
    addresses: Vec<Ipv4Addr>,
    /// Where its last packet for us alone came from: it sends messages by the same network.
    sender: Option<Ipv4Addr>,
    /// Since when that network is lost: elapsed time in nanoseconds.
    lost: Option<i64>,
}

/// All of them.
#[derive(Default)]
pub(in crate::dds) struct FarPeers(HashMap<GuidPrefix, FarPeer>);

impl FarPeers {
    /// Notes where a packet of a participant came from; `is_for_us` where it was sent to us alone, and says no farewell.
    pub(in crate::dds) fn heard(&mut self, participant: GuidPrefix, from: Ipv4Addr, is_for_us: bool) {
        if self.0.len() >= FAR_MAX && !self.0.contains_key(&participant) {
            return;
        }
        let peer = self.0.entry(participant).or_default();
        if !peer.addresses.contains(&from) {
            peer.addresses.push(from);
            let surplus = peer.addresses.len().saturating_sub(ADDRESSES_MAX);
            peer.addresses.drain(..surplus);
        }
        if is_for_us {
            peer.sender = Some(from);
        }
    }

    /// Whether all packets of discovery that came from a participant came from this computer.
    pub(in crate::dds) fn is_near(&self, participant: &GuidPrefix) -> bool {
        self.0.len() < FAR_MAX && !self.0.contains_key(participant)
    }

    /// Where the last packet for us alone of a participant came from, and since when that network is lost: elapsed time in nanoseconds.
    pub(in crate::dds) fn sender(&self, participant: &GuidPrefix) -> Option<(Ipv4Addr, Option<i64>)> {
        let peer = self.0.get(participant)?;
        Some((peer.sender?, peer.lost))
    }

    /// Applies the networks that this computer has `now` (elapsed time in nanoseconds); returns for each address that is lost another one of the
    /// same computer.
    pub(in crate::dds) fn follow(&mut self, networks: &Networks, now: i64) -> HashMap<Ipv4Addr, Ipv4Addr> {
        let mut detours = HashMap::new();
        for peer in self.0.values_mut() {
            let is_lost = peer.sender.is_some_and(|sender| networks.is_lost(sender));
            peer.lost = is_lost.then(|| peer.lost.unwrap_or(now));
            let Some(works) = peer.addresses.iter().rev().find(|one| !networks.is_lost(**one)) else {
                continue;
            };
            let lost = peer.addresses.iter().filter(|one| networks.is_lost(**one));
            detours.extend(lost.map(|lost| (*lost, *works)));
        }
        detours
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_io::socket::InterfaceAddress;

    const ROBOT: GuidPrefix = [1; 12];

    fn interface(net: u8, has_carrier: bool) -> InterfaceAddress {
        InterfaceAddress {
            interface: format!("net-{net}"),
            address: Ipv4Addr::new(10, net, 0, 1),
            mask: Ipv4Addr::new(255, 255, 255, 0),
            is_up: true,
            has_carrier,
            is_loopback: false,
            has_multicast: false,
        }
    }

    #[test]
    fn a_computer_on_two_networks_is_reached_by_the_one_that_works() {
        let (one, other) = (Ipv4Addr::new(10, 1, 0, 9), Ipv4Addr::new(10, 2, 0, 9));
        let mut networks = Networks::new(true, Vec::new(), &[], Vec::new());
        let mut far = FarPeers::default();
        assert!(far.is_near(&ROBOT));
        far.heard(ROBOT, one, true);
        far.heard(ROBOT, other, false);
        assert!(!far.is_near(&ROBOT));
        networks.follow(&[interface(1, true), interface(2, true)]);
        assert!(far.follow(&networks, 5).is_empty());
        assert_eq!(far.sender(&ROBOT), Some((one, None)));
        networks.follow(&[interface(1, false), interface(2, true)]);
        for now in [6, 7] {
            assert_eq!(far.follow(&networks, now), HashMap::from([(one, other)]));
            assert_eq!(far.sender(&ROBOT), Some((one, Some(6))));
        }
        // It sends by the other one now.
        far.heard(ROBOT, other, true);
        assert_eq!(far.follow(&networks, 8), HashMap::from([(one, other)]));
        assert_eq!(far.sender(&ROBOT), Some((other, None)));
        // Both are lost.
        networks.follow(&[interface(1, false)]);
        assert!(far.follow(&networks, 9).is_empty());
        assert_eq!(far.sender(&ROBOT), Some((other, Some(9))));
        networks.follow(&[interface(1, true)]);
        assert_eq!(far.follow(&networks, 10), HashMap::from([(other, one)]));
    }
}
