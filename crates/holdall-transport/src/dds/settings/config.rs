//! Cyclone DDS's configuration from ROS's environment variables: a pure function from an environment to XML.
//!
//! holdall's settings come first and `CYCLONEDDS_URI` after them, because Cyclone merges lists of sources: a
//! user's value replaces holdall's, and lists (peers, interfaces) are joined.

use crate::dds::reach::unheard::Range;
use holdall_io::{fs, survivor::buffers::BUFFER_BYTES};
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    net::{Ipv4Addr, SocketAddrV4},
    path::Path,
};

/// Longest configuration file that is searched.
const CONFIG_BYTES_MAX: u64 = 16 << 20;

/// Largest ROS domain id that DDS's port numbers allow.
const DOMAIN_ID_MAX: u32 = 232;

/// Highest participant index in DDS's mapping of ports: the next domain's ports begin after it. The rmw
/// implementations stop at 32, and with more than 33 participants on a machine Cyclone finds no free index
/// and cannot start.
const PARTICIPANT_INDEX_MAX: u32 = 119;

/// The highest participant index whose two unicast ports exist in a domain (RTPS 2.5, 9.6.2.3: 7400 + 250 x
/// domain + 11 + 2 x index).
pub(in crate::dds) fn participant_index_max(domain: u32) -> u32 {
    let first = 7_400 + 250 * domain + 11;
    PARTICIPANT_INDEX_MAX.min(u32::from(u16::MAX).saturating_sub(first) / 2)
}

/// Prefixes of the elements that choose interfaces, current and deprecated ones.
const INTERFACE_ELEMENT: &str = "NetworkInterface";

/// The environment variables that decide how nodes find each other. Empty variables count as unset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DdsEnvironment {
    /// `ROS_DOMAIN_ID`.
    pub domain_id: Option<String>,
    /// `ROS_LOCALHOST_ONLY` (deprecated; `1` overrules the discovery range and peers).
    pub localhost_only: Option<String>,
    /// `ROS_AUTOMATIC_DISCOVERY_RANGE`: `SUBNET`, `LOCALHOST`, `OFF` or `SYSTEM_DEFAULT`.
    pub automatic_discovery_range: Option<String>,
    /// `ROS_STATIC_PEERS`: host names or addresses, separated by `;`.
    pub static_peers: Option<String>,
    /// `CYCLONEDDS_URI`: XML, or files, separated by commas.
    pub cyclonedds_uri: Option<String>,
    /// `ROS_DISCOVERY_SERVER`: what only Fast DDS can use.
    pub discovery_server: Option<String>,
    /// The variable of a file with Fast DDS's profiles, and the file: `FASTDDS_DEFAULT_PROFILES_FILE` or `FASTRTPS_DEFAULT_PROFILES_FILE`.
    pub fast_dds_profiles: Option<(&'static str, String)>,
}

/// Variables of a file with Fast DDS's profiles, in the order in which Fast DDS looks for them.
const PROFILES_VARIABLES: [&str; 2] = ["FASTDDS_DEFAULT_PROFILES_FILE", "FASTRTPS_DEFAULT_PROFILES_FILE"];

/// Elements of a profile file that decide which participants communicate, with their names in messages.
const PROFILES_PARTS: [(&str, &str); 6] = [
    ("<initialPeersList", "initial peers"),
    ("hiteList", "interface whitelist"),
    ("<interfaces", "interfaces"),
    ("<discoveryServersList", "discovery servers"),
    ("<domainIDGain", "ports"),
    ("<useBuiltinTransports", "transports"),
];

impl DdsEnvironment {
    /// The variables of a program's environment; `variable` returns those that are set. Blank ones count as unset.
    pub fn from_variables(variable: &dyn Fn(&str) -> Option<String>) -> Self {
        let read = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        Self {
            domain_id: read("ROS_DOMAIN_ID"),
            localhost_only: read("ROS_LOCALHOST_ONLY"),
            automatic_discovery_range: read("ROS_AUTOMATIC_DISCOVERY_RANGE"),
            static_peers: read("ROS_STATIC_PEERS"),
            cyclonedds_uri: read("CYCLONEDDS_URI"),
            discovery_server: read("ROS_DISCOVERY_SERVER"),
            fast_dds_profiles: PROFILES_VARIABLES
                .iter()
                .find_map(|name| Some((*name, read(name)?)))
                .filter(|_| read("RMW_IMPLEMENTATION").is_none_or(|rmw| rmw.contains("fastrtps"))),
        }
    }

    /// The ROS domain: `ROS_DOMAIN_ID`, or 0.
    ///
    /// # Errors
    /// One sentence when the variable is not a number from 0 to 232.
    pub fn domain(&self) -> Result<u32, String> {
        let Some(text) = &self.domain_id else { return Ok(0) };
        match text.trim().parse::<u32>() {
            Ok(id) if id <= DOMAIN_ID_MAX => Ok(id),
            _ => Err(format!(
                "ROS_DOMAIN_ID must be a number from 0 to {DOMAIN_ID_MAX}, not {text:?}"
            )),
        }
    }

    /// Checks all of ROS's variables.
    ///
    /// # Errors
    /// One sentence about the first one with a bad value.
    pub fn check(&self) -> Result<(), String> {
        self.domain()?;
        self.range()?;
        self.peers()?;
        Ok(())
    }

    /// True when `CYCLONEDDS_URI`, or a file that it points to, names interfaces.
    fn names_interfaces(&self) -> bool {
        self.has_element(INTERFACE_ELEMENT)
    }

    /// True when `CYCLONEDDS_URI`, or a file that it points to, decides about multicast.
    fn rules_multicast(&self) -> bool {
        self.has_element("AllowMulticast")
    }

    /// True when `CYCLONEDDS_URI`, or a file that it points to, decides about the sockets' receive buffers.
    pub(in crate::dds) fn rules_receive_buffers(&self) -> bool {
        self.has_element("SocketReceiveBufferSize")
    }

    /// True when `CYCLONEDDS_URI`, or a file that it points to, has an element. Cyclone reports files that cannot be read.
    fn has_element(&self, element: &str) -> bool {
        let Some(uri) = self.cyclonedds_uri.as_deref() else {
            return false;
        };
        uri.contains(element)
            || uri
                .split(',')
                .map(|source| source.trim().trim_start_matches("file://"))
                .any(|path| {
                    let text = fs::read_to_string(Path::new(path), CONFIG_BYTES_MAX);
                    text.is_ok_and(|text| text.contains(element))
                })
    }

    /// Which interfaces Cyclone gets on a computer that has such a network, or none, that carries multicast.
    pub(in crate::dds) fn interfaces(&self, has_network: bool) -> Interfaces {
        if self.names_interfaces() || self.range() == Ok(DiscoveryRange::Off) {
            Interfaces::Users
        } else if has_network {
            Interfaces::OneAndLoopback
        } else {
            Interfaces::Loopback
        }
    }

    /// The discovery range as `rmw/shim.c` numbers it, and the static peers, for an rmw implementation.
    #[cfg(feature = "rmw")]
    pub(crate) fn range_for_rmw(&self) -> Result<(u64, Vec<String>), String> {
        let range = self.range()?;
        let number = match range {
            DiscoveryRange::Localhost => 0,
            DiscoveryRange::Subnet => 1,
            DiscoveryRange::Off => 2,
            DiscoveryRange::SystemDefault => 3,
        };
        let is_localhost_only = self
            .localhost_only
            .as_deref()
            .is_some_and(|value| value.trim() == "1");
        let has_peers = number < 2 && !is_localhost_only;
        let text = self
            .static_peers
            .as_deref()
            .filter(|_| has_peers)
            .unwrap_or_default();
        let peers = text.split(';').map(str::trim).filter(|peer| !peer.is_empty());
        Ok((number, peers.map(str::to_owned).collect()))
    }

    /// Where to listen for announcements of other participants.
    pub(in crate::dds) fn listening(&self) -> Range {
        match self.range() {
            Ok(DiscoveryRange::Subnet | DiscoveryRange::SystemDefault) => Range::Everywhere,
            Ok(DiscoveryRange::Localhost) => Range::ThisComputer,
            Ok(DiscoveryRange::Off) | Err(_) => Range::Nowhere,
        }
    }

    /// The warning for a user whose own environment names a discovery server.
    pub(in crate::dds) fn server_warning(&self) -> Option<String> {
        let server = self.discovery_server.as_ref()?;
        Some(format!(
            "ROS_DISCOVERY_SERVER is {server}: this program's own DDS uses no discovery server, so nodes that only a server knows \
             are not heard"
        ))
    }

    /// The warning for a user whose own environment names a file of Fast DDS's profiles.
    pub(in crate::dds) fn profiles_warning(&self) -> Option<String> {
        let (variable, path) = self.fast_dds_profiles.as_ref()?;
        let text = fs::read_to_string(Path::new(path), CONFIG_BYTES_MAX).unwrap_or_default();
        let parts: Vec<&str> = PROFILES_PARTS
            .iter()
            .filter(|(element, _)| text.contains(*element))
            .map(|(_, part)| *part)
            .collect();
        let parts = if parts.is_empty() {
            "its settings".to_owned()
        } else {
            format!("its {}", parts.join(", "))
        };
        Some(format!(
            "{variable} is {path}: this program's own DDS does not read Fast DDS's profiles, so {parts} are not followed; \
             peers can be named by ROS_STATIC_PEERS, interfaces by CYCLONEDDS_URI; the transport rmw uses Fast DDS itself"
        ))
    }

    fn range(&self) -> Result<DiscoveryRange, String> {
        if self
            .localhost_only
            .as_deref()
            .is_some_and(|value| value.trim() == "1")
        {
            return Ok(DiscoveryRange::Localhost);
        }
        let Some(text) = &self.automatic_discovery_range else {
            return Ok(DiscoveryRange::Subnet);
        };
        let ranges = BTreeMap::from([
            ("SUBNET", DiscoveryRange::Subnet),
            ("LOCALHOST", DiscoveryRange::Localhost),
            ("OFF", DiscoveryRange::Off),
            ("SYSTEM_DEFAULT", DiscoveryRange::SystemDefault),
        ]);
        ranges.get(text.trim()).copied().ok_or_else(|| {
            format!(
                "ROS_AUTOMATIC_DISCOVERY_RANGE must be SUBNET, LOCALHOST, OFF or SYSTEM_DEFAULT, not {text:?}"
            )
        })
    }

    /// The static peers.
    pub(in crate::dds) fn peers(&self) -> Result<StaticPeers, String> {
        let mut peers = StaticPeers::default();
        if matches!(self.range()?, DiscoveryRange::Off | DiscoveryRange::SystemDefault) {
            return Ok(peers);
        }
        // As in ROS, ROS_LOCALHOST_ONLY overrules the newer variables.
        if self
            .localhost_only
            .as_deref()
            .is_some_and(|value| value.trim() == "1")
        {
            return Ok(peers);
        }
        let text = self.static_peers.as_deref().unwrap_or_default();
        for peer in text.split(';').map(str::trim).filter(|peer| !peer.is_empty()) {
            peers.add(peer)?;
        }
        Ok(peers)
    }
}

/// A static peer whose address must be looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::dds) struct NamedPeer {
    /// Name of the host.
    pub host: String,
    /// Where it listens for announcements; without one at all ports of the domain.
    pub port: Option<u16>,
}

/// `ROS_STATIC_PEERS` by what can be done with each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::dds) struct StaticPeers {
    /// IPv4 addresses, with a port or without, as Cyclone reads them.
    addresses: Vec<String>,
    /// Names. Cyclone would look them up once, and abort the process where one has no address.
    pub named: Vec<NamedPeer>,
    /// Addresses of another family than IPv4.
    pub ignored: Vec<String>,
}

impl StaticPeers {
    fn add(&mut self, peer: &str) -> Result<(), String> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".:-_%[]".contains(&byte);
        let refused = || format!("ROS_STATIC_PEERS holds {peer:?}, which is not a host name or address");
        if !peer.bytes().all(is_plain) {
            return Err(refused());
        }
        if peer.parse::<Ipv4Addr>().is_ok() || peer.parse::<SocketAddrV4>().is_ok_and(|peer| peer.port() > 0)
        {
            self.addresses.push(peer.to_owned());
        } else if peer.starts_with('[') || peer.matches(':').count() > 1 {
            self.ignored.push(peer.to_owned());
        } else {
            let (host, port) = match peer.split_once(':') {
                Some((host, port)) => (host, Some(port.parse().map_err(|_| refused())?)),
                None => (peer, None),
            };
            self.named.push(NamedPeer {
                host: host.to_owned(),
                port,
            });
        }
        Ok(())
    }
}

/// How far discovery reaches on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DiscoveryRange {
    Subnet,
    Localhost,
    Off,
    SystemDefault,
}

/// Large samples are sent in packets as large as UDP carries, as Fast DDS does. With Cyclone's 1344 bytes a
/// Fast DDS subscription with the system's default socket buffer (208 KiB) received none of 80 images,
/// neither of 6.2 MB nor of 2 MB; with these packets it received all.
const LARGE_FRAGMENTS: &str = "<MaxMessageSize>65500B</MaxMessageSize><FragmentSize>65000B</FragmentSize>";

/// Cyclone sends a lost message again to the address by which it has discovered a reader, also when the reader has another one since; with this in our
/// announcement, to the one that it has now. Each peer knows only one of our addresses, so nothing comes twice.
const RESENT_TO_NEW_ADDRESS: &str = "<RedundantNetworking>true</RedundantNetworking>";

/// A Fast DDS subscription requests lost fragments only when it receives a heartbeat. Played at 10 Hz to one
/// with the default socket buffer on a busy machine, 10 to 31 of 80 images of 6.2 MB arrived with Cyclone's
/// 100 ms between heartbeats, and all 80 with these. They are sent only while something is not acknowledged.
const QUICK_HEARTBEATS: &str =
    "<HeartbeatInterval min=\"2ms\" minsched=\"4ms\" max=\"1s\">10ms</HeartbeatInterval>";

/// When a participant, reader or writer is disposed, Fast DDS reads only the hash of its key, which Cyclone
/// leaves out by default. Without it a Fast DDS publisher continues to serve a recorder that has left, and
/// waits for its acknowledgements, until the lease of 10 s runs out; with it, the publisher knows within
/// milliseconds. ROS topics have no keys: their messages do not change.
const UNDERSTOOD_FAREWELLS: &str = "<GenerateKeyhash>true</GenerateKeyhash>";

/// One request names as many missing samples as Cyclone holds for reordering, 128 by default, and Fast DDS takes 100 ms to answer one of its
/// discovery writers: a node with 200 topics needed two requests, and was known 100 ms later. 256 is the most that a request can name.
const LARGE_REQUESTS: &str = "<PrimaryReorderMaxSamples>256</PrimaryReorderMaxSamples>\
     <SecondaryReorderMaxSamples>256</SecondaryReorderMaxSamples>";

/// By the system's information about each packet, Cyclone drops announcements from interfaces that it does not use. Without it, it accepts all.
const FROM_EVERYWHERE: &str = "<ExtendedPacketInfo>false</ExtendedPacketInfo>";

/// Bytes of a receive buffer after its head: with the head it is as large as a buffer of memory that survives the process, and Cyclone
/// allocates nothing else of that size.
const RECEIVE_BUFFER_SIZE: usize = BUFFER_BYTES - RECEIVE_BUFFER_HEAD_BYTES;

/// Bytes at the start of a receive buffer that Cyclone itself uses.
const RECEIVE_BUFFER_HEAD_BYTES: usize = 48;

/// Settings for Cyclone that do not come from the environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::dds) struct ConfigOptions<'a> {
    /// The ROS domain, 0 to 232.
    pub domain: u32,
    /// The ROS domain, where it differs from the id that Cyclone uses inside this process.
    pub external_domain_id: Option<u32>,
    /// Receive buffer to request for each socket, in bytes; a smaller buffer from the system is accepted.
    pub socket_receive_buffer_bytes: usize,
    /// This process; makes the discovery tag of `OFF` unique.
    pub process_id: u32,
    /// Which interfaces Cyclone gets.
    pub interfaces: Interfaces,
    /// Settings of a secured domain, as XML.
    pub security: &'a str,
}

/// Which interfaces Cyclone gets; the others of this computer are [`crate::dds::reach::networks`]'.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::dds) enum Interfaces {
    /// Those that the user names.
    Users,
    /// One that Cyclone picks, and loopback.
    OneAndLoopback,
    /// Loopback: at present this computer has no other that carries multicast.
    Loopback,
}

/// The configuration for `dds_create_domain`.
///
/// # Errors
/// One sentence about a variable with a bad value.
pub(in crate::dds) fn cyclone_config(
    environment: &DdsEnvironment,
    options: ConfigOptions<'_>,
) -> Result<String, String> {
    let range = environment.range()?;
    let peers = environment.peers()?;
    let mut xml = String::from("<CycloneDDS><Domain><General>");
    if matches!(range, DiscoveryRange::Localhost | DiscoveryRange::Off) {
        xml.push_str("<AllowMulticast>false</AllowMulticast>");
    }
    xml.push_str(interfaces_for(environment, range, options.interfaces));
    xml.push_str(LARGE_FRAGMENTS);
    if options.interfaces != Interfaces::Users {
        xml.push_str(RESENT_TO_NEW_ADDRESS);
    }
    xml.push_str("</General>");
    // `max` without `min`: Cyclone takes what the system grants instead of refusing to start.
    let bytes = options.socket_receive_buffer_bytes;
    let from_everywhere = if options.interfaces == Interfaces::Users {
        ""
    } else {
        FROM_EVERYWHERE
    };
    let _ = write!(
        xml,
        "<Internal><SocketReceiveBufferSize max=\"{bytes}B\"/>{QUICK_HEARTBEATS}{UNDERSTOOD_FAREWELLS}{LARGE_REQUESTS}{from_everywhere}</Internal>\
         <Sizing><ReceiveBufferSize>{RECEIVE_BUFFER_SIZE}B</ReceiveBufferSize></Sizing>\
         <Discovery>"
    );
    if let Some(id) = options.external_domain_id {
        let _ = write!(xml, "<ExternalDomainId>{id}</ExternalDomainId>");
    }
    match range {
        DiscoveryRange::SystemDefault => {}
        DiscoveryRange::Off => {
            let process = options.process_id;
            let _ = write!(
                xml,
                "<ParticipantIndex>none</ParticipantIndex><Tag>ros_discovery_off_{process}</Tag>"
            );
        }
        DiscoveryRange::Subnet | DiscoveryRange::Localhost => {
            // A well-known port and the local peer, also with SUBNET: nodes with LOCALHOST do not listen to multicast.
            let index_max = participant_index_max(options.domain);
            let _ = write!(
                xml,
                "<ParticipantIndex>auto</ParticipantIndex>\
                 <MaxAutoParticipantIndex>{index_max}</MaxAutoParticipantIndex><Peers>"
            );
            for peer in std::iter::once("127.0.0.1").chain(peers.addresses.iter().map(String::as_str)) {
                let _ = write!(xml, "<Peer address=\"{peer}\"/>");
            }
            xml.push_str("</Peers>");
        }
    }
    xml.push_str("</Discovery>");
    // At most one is allowed, and the user's applies.
    let uri = environment.cyclonedds_uri.as_deref().unwrap_or_default();
    if !uri.to_ascii_lowercase().contains("security>") {
        xml.push_str(options.security);
    }
    xml.push_str("</Domain></CycloneDDS>");
    if let Some(uri) = &environment.cyclonedds_uri {
        let _ = write!(xml, ",{}", uri.trim());
    }
    Ok(xml)
}

/// The interfaces as XML, or nothing where Cyclone picks one.
fn interfaces_for(
    environment: &DdsEnvironment,
    range: DiscoveryRange,
    interfaces: Interfaces,
) -> &'static str {
    let has_local_peers = matches!(range, DiscoveryRange::Localhost | DiscoveryRange::Subnet);
    let has_multicast = matches!(range, DiscoveryRange::Subnet | DiscoveryRange::SystemDefault);
    match interfaces {
        // Nodes with LOCALHOST announce themselves through loopback.
        Interfaces::OneAndLoopback if has_local_peers => {
            "<Interfaces><NetworkInterface autodetermine=\"true\"/>\
             <NetworkInterface name=\"lo\" presence_required=\"false\"/></Interfaces>"
        }
        // Announcements by multicast, for networks that appear later.
        Interfaces::Loopback if has_multicast && !environment.rules_multicast() => {
            "<Interfaces><NetworkInterface name=\"lo\" multicast=\"true\" allow_multicast=\"spdp\"/></Interfaces>"
        }
        Interfaces::Loopback => "<Interfaces><NetworkInterface name=\"lo\"/></Interfaces>",
        _ => "",
    }
}

/// The warning for a user when socket buffers are smaller than requested.
pub(in crate::dds) fn small_buffer_warning(reached_bytes: usize, wanted_bytes: usize) -> Option<String> {
    (reached_bytes < wanted_bytes).then(|| {
        format!(
            "the DDS sockets can hold {} KiB instead of {} KiB, so large or fast topics may lose messages; raise the system's \
             limit: sudo sysctl -w net.core.rmem_max={wanted_bytes}",
            reached_bytes >> 10,
            wanted_bytes >> 10,
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: ConfigOptions<'_> = ConfigOptions {
        domain: 0,
        external_domain_id: None,
        socket_receive_buffer_bytes: 1000,
        process_id: 7,
        interfaces: Interfaces::Users,
        security: "",
    };

    fn set(value: &str) -> Option<String> {
        Some(value.to_owned())
    }

    #[test]
    fn default_sees_the_subnet_and_local_nodes() {
        let xml = cyclone_config(&DdsEnvironment::default(), OPTIONS).unwrap();
        assert_eq!(
            xml,
            "<CycloneDDS><Domain><General><MaxMessageSize>65500B</MaxMessageSize>\
             <FragmentSize>65000B</FragmentSize></General><Internal><SocketReceiveBufferSize max=\"1000B\"/>\
             <HeartbeatInterval min=\"2ms\" minsched=\"4ms\" max=\"1s\">10ms</HeartbeatInterval>\
             <GenerateKeyhash>true</GenerateKeyhash>\
             <PrimaryReorderMaxSamples>256</PrimaryReorderMaxSamples>\
             <SecondaryReorderMaxSamples>256</SecondaryReorderMaxSamples></Internal>\
             <Sizing><ReceiveBufferSize>1048528B</ReceiveBufferSize></Sizing><Discovery><ParticipantIndex>auto</ParticipantIndex><MaxAutoParticipantIndex>119</MaxAutoParticipantIndex>\
             <Peers><Peer address=\"127.0.0.1\"/></Peers></Discovery></Domain></CycloneDDS>"
        );
    }

    #[test]
    fn names_of_peers_are_not_left_to_cyclone() {
        let environment = DdsEnvironment {
            static_peers: set("10.0.0.1; robot.local;10.0.0.2:7410;laptop:7412;fe80::1;[::1]:7400;1.2.3.4.5"),
            ..Default::default()
        };
        let peers = environment.peers().unwrap();
        assert_eq!(peers.addresses, ["10.0.0.1", "10.0.0.2:7410"]);
        let named = |host: &str, port| NamedPeer {
            host: host.to_owned(),
            port,
        };
        assert_eq!(
            peers.named,
            [
                named("robot.local", None),
                named("laptop", Some(7412)),
                named("1.2.3.4.5", None)
            ]
        );
        assert_eq!(peers.ignored, ["fe80::1", "[::1]:7400"]);
        let xml = cyclone_config(&environment, OPTIONS).unwrap();
        assert!(
            xml.contains("10.0.0.2:7410") && !xml.contains("robot") && !xml.contains("fe80"),
            "{xml}"
        );
        for bad in ["a b", "host:", "host:99999", "x;<y>"] {
            let environment = DdsEnvironment {
                static_peers: set(bad),
                ..Default::default()
            };
            assert!(environment.check().is_err(), "{bad}");
        }
    }

    #[test]
    fn all_participants_of_a_machine_have_ports() {
        assert_eq!(participant_index_max(0), 119);
        let last = 7_400 + 250 * DOMAIN_ID_MAX + 11 + 2 * participant_index_max(DOMAIN_ID_MAX);
        assert!(last <= 65_535 && last + 2 > 65_535, "{last}");
    }

    #[test]
    fn interfaces_that_the_user_names_are_noticed() {
        let names = |uri: &str| {
            DdsEnvironment {
                cyclonedds_uri: set(uri),
                ..Default::default()
            }
            .names_interfaces()
        };
        assert!(!DdsEnvironment::default().names_interfaces());
        assert!(names(
            "<General><Interfaces><NetworkInterface name='eth0'/></Interfaces></General>"
        ));
        assert!(!names("<Tracing/>,/no/such/file.xml"));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cyclone.xml");
        std::fs::write(&file, "<CycloneDDS><NetworkInterface/></CycloneDDS>").unwrap();
        assert!(
            names(&format!("<Tracing/>, file://{}", file.display())) && names(&file.display().to_string())
        );
    }

    fn with_range(range: &str, interfaces: Interfaces) -> String {
        let environment = DdsEnvironment {
            automatic_discovery_range: set(range),
            ..Default::default()
        };
        let options = ConfigOptions {
            interfaces,
            ..OPTIONS
        };
        cyclone_config(&environment, options).unwrap()
    }

    #[test]
    fn loopback_is_added_unless_the_user_rules_otherwise() {
        let with = |range: &str| with_range(range, Interfaces::OneAndLoopback).contains("name=\"lo\"");
        assert!(with("SUBNET") && with("LOCALHOST"));
        assert!(!with("SYSTEM_DEFAULT"));
        assert!(!with_range("SUBNET", Interfaces::Users).contains("Interfaces"));
    }

    #[test]
    fn without_a_network_announcements_are_ready_for_one() {
        let with = |range: &str| with_range(range, Interfaces::Loopback).contains("allow_multicast=\"spdp\"");
        assert!(with("SUBNET") && with("SYSTEM_DEFAULT") && !with("LOCALHOST"));
        let environment = DdsEnvironment {
            cyclonedds_uri: set("<General><AllowMulticast>false</AllowMulticast></General>"),
            ..Default::default()
        };
        let options = ConfigOptions {
            interfaces: Interfaces::Loopback,
            ..OPTIONS
        };
        assert!(!cyclone_config(&environment, options).unwrap().contains("spdp"));
    }

    #[test]
    fn announcements_are_taken_from_all_interfaces_but_where_the_user_names_some() {
        let with = |interfaces| with_range("SUBNET", interfaces).contains("ExtendedPacketInfo");
        assert!(with(Interfaces::OneAndLoopback) && with(Interfaces::Loopback));
        assert!(!with(Interfaces::Users));
        let off = DdsEnvironment {
            automatic_discovery_range: set("OFF"),
            ..Default::default()
        };
        assert_eq!(off.interfaces(true), Interfaces::Users);
        assert_eq!(
            DdsEnvironment::default().interfaces(true),
            Interfaces::OneAndLoopback
        );
        assert_eq!(DdsEnvironment::default().interfaces(false), Interfaces::Loopback);
    }

    #[test]
    fn localhost_switches_multicast_off() {
        for environment in [
            DdsEnvironment {
                automatic_discovery_range: set("LOCALHOST"),
                ..Default::default()
            },
            DdsEnvironment {
                localhost_only: set("1"),
                static_peers: set("10.0.0.1"),
                ..Default::default()
            },
        ] {
            let xml = cyclone_config(&environment, OPTIONS).unwrap();
            assert!(xml.contains("<AllowMulticast>false</AllowMulticast>"), "{xml}");
            assert!(xml.contains("127.0.0.1") && !xml.contains("10.0.0.1"), "{xml}");
        }
    }

    #[test]
    fn off_isolates_and_system_default_leaves_alone() {
        let off = DdsEnvironment {
            automatic_discovery_range: set("OFF"),
            ..Default::default()
        };
        let xml = cyclone_config(&off, OPTIONS).unwrap();
        assert!(
            xml.contains("<Tag>ros_discovery_off_7</Tag>") && !xml.contains("Peer "),
            "{xml}"
        );
        let system = DdsEnvironment {
            automatic_discovery_range: set("SYSTEM_DEFAULT"),
            ..Default::default()
        };
        let xml = cyclone_config(&system, OPTIONS).unwrap();
        assert!(!xml.contains("Peers") && !xml.contains("AllowMulticast"), "{xml}");
    }

    #[test]
    fn static_peers_are_added_and_checked() {
        let environment = DdsEnvironment {
            static_peers: set("10.0.0.1; 10.0.0.2;;"),
            ..Default::default()
        };
        let xml = cyclone_config(&environment, OPTIONS).unwrap();
        assert!(
            xml.contains("<Peer address=\"10.0.0.1\"/><Peer address=\"10.0.0.2\"/>"),
            "{xml}"
        );
        let bad = DdsEnvironment {
            static_peers: set("a\"/><b"),
            ..Default::default()
        };
        assert!(
            cyclone_config(&bad, OPTIONS)
                .unwrap_err()
                .contains("ROS_STATIC_PEERS")
        );
    }

    #[test]
    fn the_users_configuration_comes_last() {
        let environment = DdsEnvironment {
            cyclonedds_uri: set("file:///etc/c.xml "),
            ..Default::default()
        };
        let options = ConfigOptions {
            external_domain_id: Some(5),
            ..OPTIONS
        };
        let xml = cyclone_config(&environment, options).unwrap();
        assert!(xml.ends_with("</CycloneDDS>,file:///etc/c.xml"), "{xml}");
        assert!(xml.contains("<ExternalDomainId>5</ExternalDomainId>"), "{xml}");
    }

    #[test]
    fn profiles_of_fast_dds_are_named_with_what_they_set() {
        assert_eq!(DdsEnvironment::default().profiles_warning(), None);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("profiles.xml");
        std::fs::write(
            &file,
            "<initialPeersList><locator/></initialPeersList><interfaceWhiteList/>",
        )
        .unwrap();
        let with = |path: &str| {
            let environment = DdsEnvironment {
                fast_dds_profiles: Some((PROFILES_VARIABLES[1], path.to_owned())),
                ..Default::default()
            };
            environment.profiles_warning().unwrap()
        };
        let warning = with(file.to_str().unwrap());
        assert!(
            warning.starts_with("FASTRTPS_DEFAULT_PROFILES_FILE is /"),
            "{warning}"
        );
        assert!(
            warning.contains("so its initial peers, interface whitelist are not followed"),
            "{warning}"
        );
        assert!(with("/no/such/file").contains("so its settings are not followed"));
    }

    #[test]
    fn small_buffers_are_reported_with_the_remedy() {
        assert_eq!(small_buffer_warning(4096, 4096), None);
        let warning = small_buffer_warning(212_992, 64 << 20).unwrap();
        assert!(
            warning.contains("208 KiB") && warning.ends_with("sudo sysctl -w net.core.rmem_max=67108864")
        );
    }

    #[test]
    fn bad_values_are_named() {
        let range = DdsEnvironment {
            automatic_discovery_range: set("WORLD"),
            ..Default::default()
        };
        assert!(cyclone_config(&range, OPTIONS).unwrap_err().contains("WORLD"));
        assert_eq!(
            DdsEnvironment {
                domain_id: set(" 42 "),
                ..Default::default()
            }
            .domain(),
            Ok(42)
        );
        assert_eq!(DdsEnvironment::default().domain(), Ok(0));
        for bad in ["233", "-1", "x"] {
            assert!(
                DdsEnvironment {
                    domain_id: set(bad),
                    ..Default::default()
                }
                .domain()
                .is_err()
            );
        }
    }
}
