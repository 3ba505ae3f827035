//! Which participants of a domain cannot be heard: those whose announcements Cyclone DDS drops, and those that announce nothing.
//!
//! Cyclone does not show announcements that it has no use for, so they are received a second time, by separate sockets: where all participants listen
//! (multicast), and at one of the ports of this computer to which participants without multicast send.

use super::{networks::GROUP, processes::Processes};
use crate::dds::wire::{
    announced::{Announced, announced_in},
    locators::{GuidPrefix, announcement_ports},
};
use crate::{Identity, Unreached};
use holdall_io::{
    fs::read_to_string,
    socket::{interface_addresses, multicast_listener},
};
use holdall_model::unheard::{NotHeard, NotHeardKind};
use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    net::{Ipv4Addr, SocketAddrV4, UdpSocket},
    path::Path,
    time::Duration,
};

/// Ports of this computer that nodes without multicast announce themselves to: rmw implementations stop at this index.
const LAST_INDEX: u32 = 31;
/// Longest packet of UDP.
const PACKET_BYTES_MAX: usize = 65_536;
/// Packets that are read at a time.
const PACKETS_MAX: usize = 256;
/// Most participants that are kept; further ones of a hostile network are not named.
const PARTICIPANTS_MAX: usize = 1_000;
/// Time between two looks for new interfaces.
const INTERFACES_EVERY: Duration = Duration::from_secs(5);

/// How long a participant of a secured domain may take until its endpoints are seen: the handshake has round trips, and is repeated when a
/// packet is lost.
const SEEN_LATE_MAX: Duration = Duration::from_secs(6);

/// Where to listen for announcements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::dds) enum Range {
    /// On all interfaces.
    Everywhere,
    /// On this computer.
    ThisComputer,
    /// Not at all.
    Nowhere,
}

/// Follows the announcements and processes that cannot be heard.
pub(in crate::dds) struct Unheard {
    own: GuidPrefix,
    domain: u32,
    range: Range,
    multicast: Option<UdpSocket>,
    unicast: Option<UdpSocket>,
    joined: BTreeSet<Ipv4Addr>,
    next_interfaces: Duration,
    buffer: Vec<u8>,
    /// Our own participant is secured.
    is_secured: bool,
    /// Participants that are named.
    announced: BTreeMap<GuidPrefix, Named>,
    /// Name of this computer.
    host: Option<String>,
    processes: Processes,
}

/// A participant that cannot be heard, or maybe not.
struct Named {
    process: Option<u32>,
    verdict: Verdict,
    not_heard: NotHeard,
}

/// Whether a participant can be heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// Its announcement proves that it cannot.
    Unheard,
    /// It cannot, unless one of its endpoints is seen until then.
    UnlessSeen(Duration),
    /// An endpoint of it was seen.
    Heard,
}

impl Unheard {
    /// Listens in a domain; `own` is our participant, which is secured or not. Sockets that the system refuses are left out.
    pub(in crate::dds) fn new(own: GuidPrefix, domain: u32, range: Range, is_secured: bool) -> Self {
        let port = u16::try_from(7_400 + 250 * domain).ok();
        let note = |error: std::io::Error| tracing::debug!("no second look at announcements: {error}");
        let open = |port| {
            multicast_listener(SocketAddrV4::new(GROUP, port))
                .map_err(note)
                .ok()
        };
        let multicast = port.filter(|_| range != Range::Nowhere).and_then(open);
        Self {
            own,
            domain,
            range,
            multicast,
            unicast: (range != Range::Nowhere)
                .then(|| unicast_listener(domain))
                .flatten(),
            joined: BTreeSet::new(),
            next_interfaces: Duration::ZERO,
            buffer: vec![0; PACKET_BYTES_MAX],
            is_secured,
            announced: BTreeMap::new(),
            host: host_name(),
            processes: Processes::new(domain, std::process::id()),
        }
    }

    /// Reads what has arrived and looks for processes, as far as that is due at `now` (monotonic time); returns all that cannot be heard.
    /// `seen` are the participants with endpoints.
    pub(in crate::dds) fn poll(
        &mut self,
        now: Duration,
        seen: impl FnOnce() -> HashSet<GuidPrefix>,
    ) -> Vec<Unreached> {
        if now >= self.next_interfaces {
            self.next_interfaces = now + INTERFACES_EVERY;
            self.join_groups();
        }
        self.read(now);
        self.processes.scan(now);
        self.judge(seen);
        let is_due = |named: &Named| match named.verdict {
            Verdict::Unheard => true,
            Verdict::UnlessSeen(until) => now >= until,
            Verdict::Heard => false,
        };
        let announced = self.announced.iter().filter(|(_, named)| is_due(named));
        let by_process: BTreeSet<u32> = announced.clone().filter_map(|(_, named)| named.process).collect();
        let others = self.processes.found().filter(|(id, _)| !by_process.contains(id));
        let announced = announced.map(|(participant, named)| Unreached {
            about: named.not_heard.clone(),
            identity: Identity::Participant(*participant),
        });
        let others = others.map(|(process, about)| Unreached {
            about: about.clone(),
            identity: Identity::Process(process),
        });
        announced.chain(others).collect()
    }

    /// Notes which participants in doubt have endpoints.
    fn judge(&mut self, seen: impl FnOnce() -> HashSet<GuidPrefix>) {
        let is_doubtful = |named: &Named| matches!(named.verdict, Verdict::UnlessSeen(_));
        if !self.announced.values().any(is_doubtful) {
            return;
        }
        let seen = seen();
        for (prefix, named) in &mut self.announced {
            if is_doubtful(named) && seen.contains(prefix) {
                named.verdict = Verdict::Heard;
            }
        }
    }

    fn join_groups(&mut self) {
        let Some(socket) = &self.multicast else { return };
        for interface in interface_addresses() {
            let is_wanted = interface.is_up && (interface.is_loopback || self.range == Range::Everywhere);
            if is_wanted && self.joined.insert(interface.address) {
                // An interface without multicast is left out.
                let _ = socket.join_multicast_v4(&GROUP, &interface.address);
            }
        }
    }

    fn read(&mut self, now: Duration) {
        for socket in [&self.multicast, &self.unicast].into_iter().flatten() {
            for _ in 0..PACKETS_MAX {
                let Ok(len) = socket.recv(&mut self.buffer) else {
                    break;
                };
                for about in announced_in(&self.buffer[..len]) {
                    let is_other = about.participant != self.own
                        && about.domain.is_none_or(|domain| domain == self.domain);
                    let is_new = !self.announced.contains_key(&about.participant);
                    if !is_other || !is_new || self.announced.len() >= PARTICIPANTS_MAX {
                        continue;
                    }
                    let is_here = about.host.is_none() || about.host == self.host;
                    let process = about.process.filter(|_| is_here);
                    // Another transport of this program.
                    if process == Some(std::process::id()) {
                        continue;
                    }
                    let name = process.and_then(|process| self.processes.name(process));
                    let found = not_heard(&about, self.is_secured, is_here, name);
                    let named = found.map(|not_heard| Named {
                        process,
                        verdict: if self.is_secured && not_heard.kind != NotHeardKind::NoUdp {
                            Verdict::UnlessSeen(now + SEEN_LATE_MAX)
                        } else {
                            Verdict::Unheard
                        },
                        not_heard,
                    });
                    self.announced
                        .extend(named.map(|named| (about.participant, named)));
                }
            }
        }
    }
}

/// A socket at the last free port of this computer that nodes announce themselves to.
fn unicast_listener(domain: u32) -> Option<UdpSocket> {
    let ports = announcement_ports(Ipv4Addr::LOCALHOST, domain, LAST_INDEX);
    let socket = ports
        .into_iter()
        .rev()
        .find_map(|port| UdpSocket::bind(port).ok())?;
    socket.set_nonblocking(true).ok()?;
    Some(socket)
}

fn host_name() -> Option<String> {
    let name = read_to_string(Path::new("/proc/sys/kernel/hostname"), 256).ok()?;
    Some(name.trim().to_owned())
}

/// Whether a participant can be heard, by its announcement; `name` is the name of its process, where it runs on this computer. In a secured domain it
/// is not heard unless its endpoints are seen.
fn not_heard(about: &Announced, in_secured: bool, is_here: bool, name: Option<String>) -> Option<NotHeard> {
    let (kind, reason) = if about.is_secured && !in_secured {
        let reason = "it takes part in a secured domain (SROS 2), but this recording does not";
        (NotHeardKind::Secured, reason.to_owned())
    } else if about.lacks_udp() {
        let carriers: Vec<&str> = about
            .data
            .iter()
            .chain(&about.discovery)
            .map(|one| one.name())
            .collect();
        let mut others: Vec<&str> = carriers.into_iter().filter(|name| *name != "UDP").collect();
        others.sort_unstable();
        others.dedup();
        let reason = format!(
            "its messages do not come over UDP, but over {} only",
            others.join(" and ")
        );
        (NotHeardKind::NoUdp, reason)
    } else if !in_secured {
        return None;
    } else if about.is_secured {
        let reason = "it takes part in a secured domain (SROS 2) and shows nothing to this recording: its certificate or permissions are of \
                      another authority or expired, or its governance is another";
        (NotHeardKind::Secured, reason.to_owned())
    } else {
        let reason = "it is not secured, and shows nothing to this recording, which is (SROS 2)";
        (NotHeardKind::NotSecured, reason.to_owned())
    };
    let who = name.unwrap_or_else(|| {
        let mut who = match (&about.name, about.process) {
            (Some(name), _) if name != "/" => name.clone(),
            (_, Some(process)) => format!("process {process}"),
            _ => {
                let digits: String = about
                    .participant
                    .iter()
                    .map(|byte| format!("{byte:02x}"))
                    .collect();
                format!("participant {digits}")
            }
        };
        if let Some(host) = about.host.as_ref().filter(|_| !is_here) {
            who.push_str(" on ");
            who.push_str(host);
        }
        who
    });
    Some(NotHeard {
        who,
        kind,
        reason,
        topics: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dds::wire::announced::Carrier;

    fn announced() -> Announced {
        Announced {
            participant: [0xab; 12],
            process: Some(12),
            name: Some("/".to_owned()),
            host: Some("robot".to_owned()),
            data: BTreeSet::from([Carrier::Tcp, Carrier::SharedMemory]),
            discovery: BTreeSet::from([Carrier::Tcp]),
            ..Announced::default()
        }
    }

    #[test]
    fn a_participant_is_named_as_well_as_it_is_known() {
        let who = |about: &Announced, is_here, name: Option<&str>| {
            let name = name.map(str::to_owned);
            not_heard(about, false, is_here, name).unwrap().who
        };
        let about = announced();
        assert_eq!(who(&about, true, Some("/camera")), "/camera");
        assert_eq!(who(&about, true, None), "process 12");
        assert_eq!(who(&about, false, None), "process 12 on robot");
        let bare = Announced {
            process: None,
            host: None,
            ..about
        };
        assert_eq!(who(&bare, true, None), format!("participant {}", "ab".repeat(12)));
    }

    #[test]
    fn the_reason_names_what_would_be_needed() {
        let found = not_heard(&announced(), false, true, None).unwrap();
        assert_eq!(found.kind, NotHeardKind::NoUdp);
        assert!(
            found.reason.ends_with("over TCP and shared memory only"),
            "{}",
            found.reason
        );
        let secured = Announced {
            is_secured: true,
            ..announced()
        };
        assert_eq!(
            not_heard(&secured, false, true, None).unwrap().kind,
            NotHeardKind::Secured
        );
        let heard = Announced {
            data: BTreeSet::from([Carrier::UdpV4]),
            discovery: BTreeSet::from([Carrier::UdpV4]),
            ..announced()
        };
        assert_eq!(not_heard(&heard, false, true, None), None);
        let kind = |about: &Announced| not_heard(about, true, true, None).unwrap().kind;
        assert_eq!(kind(&heard), NotHeardKind::NotSecured);
        assert_eq!(
            kind(&Announced {
                is_secured: true,
                ..heard
            }),
            NotHeardKind::Secured
        );
        assert_eq!(kind(&secured), NotHeardKind::NoUdp, "whatever it is");
    }

    #[test]
    fn announcements_to_this_computer_arrive_and_each_participant_is_named_once() {
        const DOMAIN: u32 = 91;
        let text = include_str!("../announcements/fast_dds_large_data.hex");
        let digits: Vec<char> = text.chars().filter(char::is_ascii_hexdigit).collect();
        let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap();
        let packet: Vec<u8> = digits.chunks(2).map(byte).collect();
        let mut unheard = Unheard::new([0; 12], DOMAIN, Range::ThisComputer, false);
        let port = unheard.unicast.as_ref().unwrap().local_addr().unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..2 {
            socket.send_to(&packet, port).unwrap();
        }
        let named = |all: Vec<Unreached>| {
            all.iter()
                .filter(|one| one.about.reason.contains("TCP and shared memory"))
                .count()
        };
        assert_eq!(named(unheard.poll(Duration::ZERO, HashSet::new)), 1);
        let own = packet[8..20].try_into().unwrap();
        let mut own = Unheard::new(own, DOMAIN, Range::ThisComputer, false);
        let port = own.unicast.as_ref().unwrap().local_addr().unwrap();
        socket.send_to(&packet, port).unwrap();
        assert_eq!(named(own.poll(Duration::ZERO, HashSet::new)), 0, "our own");
    }

    #[test]
    fn a_secured_recording_names_only_those_whose_endpoints_stay_unseen() {
        const DOMAIN: u32 = 92;
        let text = include_str!("../announcements/fast_dds_default.hex");
        let digits: Vec<char> = text.chars().filter(char::is_ascii_hexdigit).collect();
        let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap();
        let packet: Vec<u8> = digits.chunks(2).map(byte).collect();
        let participant: GuidPrefix = packet[8..20].try_into().unwrap();
        let mut unheard = Unheard::new([0; 12], DOMAIN, Range::ThisComputer, true);
        let port = unheard.unicast.as_ref().unwrap().local_addr().unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(&packet, port).unwrap();
        let mut named = |now, seen: HashSet<GuidPrefix>| {
            let all = unheard.poll(now, || seen).into_iter();
            all.filter(|one| one.about.kind == NotHeardKind::NotSecured)
                .count()
        };
        assert_eq!(named(Duration::ZERO, HashSet::new()), 0, "its endpoints may come");
        assert_eq!(named(SEEN_LATE_MAX, HashSet::new()), 1);
        assert_eq!(named(SEEN_LATE_MAX, HashSet::from([participant])), 0, "they came");
        assert_eq!(named(SEEN_LATE_MAX, HashSet::new()), 0, "they went");
    }
}
