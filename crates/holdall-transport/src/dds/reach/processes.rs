//! Nodes of this computer that announce nothing over UDP: found by what their processes have open and by their environment.
//!
//! A Fast DDS participant with shared memory only, or one that only talks to a discovery server, sends nothing that a program outside of its
//! world could receive. Its process is still visible to the same user: the libraries and files that it maps, its sockets, and the variables
//! that it was started with.

use holdall_io::fs::{list_dir_up_to, read};
use holdall_model::unheard::{NotHeard, NotHeardKind};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    time::Duration,
};

/// Longest text of `/proc` that is read, in bytes.
const TEXT_BYTES_MAX: u64 = 4 << 20;
/// Most processes, and descriptors of one, that are looked at.
const PROCESSES_MAX: usize = 20_000;
const DESCRIPTORS_MAX: usize = 4_096;
/// Time between two looks for new processes.
const SCAN_EVERY: Duration = Duration::from_secs(2);
/// When a process is checked again after its first check: it may have been starting.
const CHECKS: [Duration; 4] = [
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(14),
    Duration::from_secs(40),
];
/// Ports of one domain (RTPS 2.5, 9.6.2.3).
const PORTS_OF_DOMAIN: u32 = 250;
const FIRST_PORT: u32 = 7_400;
/// Beginnings of the names of files in which Fast DDS listens for what comes over shared memory.
const SHARED_PORTS: [&str; 2] = ["/dev/shm/fastrtps_port", "/dev/shm/fastdds_port"];
/// Libraries of Fast DDS.
const FAST_DDS: [&str; 2] = ["/libfastrtps.so", "/libfastdds.so"];
/// One of these is set for a process that takes part in ROS 2.
const MARKS: [&str; 6] = [
    "ROS_",
    "RMW_",
    "FASTDDS_",
    "FASTRTPS_",
    "AMENT_PREFIX_PATH=",
    "CYCLONEDDS_URI=",
];

/// What is known of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Facts {
    /// `ROS_DOMAIN_ID`, 0 where it is not set.
    domain: u32,
    /// `ROS_DISCOVERY_SERVER`.
    server: Option<String>,
    /// It has loaded Fast DDS.
    has_fast_dds: bool,
    /// Ports of shared memory that it has mapped.
    shared_ports: BTreeSet<u32>,
    /// Ports of its UDP sockets.
    udp_ports: BTreeSet<u32>,
}

impl Facts {
    /// Why a process is not heard in a domain.
    fn verdict(&self, domain: u32) -> Verdict {
        if !self.has_fast_dds {
            return Verdict::Open;
        }
        let first = FIRST_PORT + PORTS_OF_DOMAIN * domain;
        let of_domain = first..first + PORTS_OF_DOMAIN;
        let has_udp = self.udp_ports.iter().any(|port| of_domain.contains(port));
        let is_shared = self.shared_ports.iter().any(|port| of_domain.contains(port));
        match &self.server {
            Some(server) if self.domain == domain => Verdict::NotHeard(
                NotHeardKind::DiscoveryServer,
                format!("only the discovery server {server} knows it (ROS_DISCOVERY_SERVER)"),
            ),
            _ if has_udp => Verdict::Heard,
            _ if is_shared => Verdict::NotHeard(
                NotHeardKind::NoUdp,
                "Fast DDS without UDP: it can be reached over shared memory only".to_owned(),
            ),
            _ => Verdict::Open,
        }
    }
}

/// What a check found out.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    /// Nothing that matters, so far.
    Open,
    /// It announces itself over UDP.
    Heard,
    NotHeard(NotHeardKind, String),
}

/// A process that was seen.
#[derive(Debug)]
struct Seen {
    first: Duration,
    checks: usize,
    is_decided: bool,
}

/// Looks for nodes of this computer that cannot be heard.
#[derive(Debug)]
pub(in crate::dds) struct Processes {
    /// `/proc`.
    root: PathBuf,
    domain: u32,
    own: u32,
    seen: BTreeMap<u32, Seen>,
    next_scan: Duration,
    /// By process.
    found: BTreeMap<u32, NotHeard>,
}

impl Processes {
    /// Looks in a domain; `own` is this process, which is left out.
    pub(in crate::dds) fn new(domain: u32, own: u32) -> Self {
        Self {
            root: PathBuf::from("/proc"),
            domain,
            own,
            seen: BTreeMap::new(),
            next_scan: Duration::ZERO,
            found: BTreeMap::new(),
        }
    }

    /// Checks what is due at `now` (monotonic time).
    pub(in crate::dds) fn scan(&mut self, now: Duration) {
        if now < self.next_scan {
            return;
        }
        self.next_scan = now + SCAN_EVERY;
        let entries = list_dir_up_to(&self.root, PROCESSES_MAX).unwrap_or_default();
        let names = entries
            .iter()
            .filter_map(|entry| entry.path.file_name()?.to_str());
        let running: BTreeSet<u32> = names.filter_map(|name| name.parse().ok()).collect();
        self.seen.retain(|id, _| running.contains(id));
        for id in running {
            if id == self.own {
                continue;
            }
            let seen = self.seen.entry(id).or_insert(Seen {
                first: now,
                checks: 0,
                is_decided: false,
            });
            let due = match seen.checks.checked_sub(1).map(|last| CHECKS.get(last)) {
                None => true,
                Some(Some(after)) => now >= seen.first + *after,
                Some(None) => false,
            };
            if seen.is_decided || !due {
                continue;
            }
            seen.checks += 1;
            let folder = self.root.join(id.to_string());
            let Some(facts) = facts_of(&folder) else { continue };
            match facts.verdict(self.domain) {
                Verdict::Open => {}
                Verdict::Heard => seen.is_decided = true,
                Verdict::NotHeard(kind, reason) => {
                    seen.is_decided = true;
                    let who = who(id, &bytes_of(&folder.join("cmdline")));
                    self.found.insert(
                        id,
                        NotHeard {
                            who,
                            kind,
                            reason,
                            topics: Vec::new(),
                        },
                    );
                }
            }
        }
    }

    /// All that were found.
    pub(in crate::dds) fn found(&self) -> impl Iterator<Item = (u32, &NotHeard)> {
        self.found.iter().map(|(id, found)| (*id, found))
    }

    /// The name of a process of this computer; `None` where it does not exist or belongs to another user.
    pub(in crate::dds) fn name(&self, id: u32) -> Option<String> {
        let line = bytes_of(&self.root.join(id.to_string()).join("cmdline"));
        (!line.is_empty()).then(|| who(id, &line))
    }
}

fn bytes_of(path: &Path) -> Vec<u8> {
    read(path, TEXT_BYTES_MAX).unwrap_or_default()
}

/// The traits of a process; `None` for one that does not take part in ROS 2, or that belongs to another user.
fn facts_of(folder: &Path) -> Option<Facts> {
    let environment = bytes_of(&folder.join("environ"));
    let variables = || environment.split(|byte| *byte == 0);
    let is_marked = |variable: &[u8]| MARKS.iter().any(|mark| variable.starts_with(mark.as_bytes()));
    let maps = bytes_of(&folder.join("maps"));
    if !variables().any(is_marked) {
        return None;
    }
    let value = |name: &str| {
        let prefix = format!("{name}=");
        let value = variables().find_map(|variable| variable.strip_prefix(prefix.as_bytes()))?;
        let value = String::from_utf8_lossy(value).trim().to_owned();
        (!value.is_empty()).then_some(value)
    };
    let mut facts = Facts {
        domain: value("ROS_DOMAIN_ID").and_then(|id| id.parse().ok()).unwrap_or(0),
        server: value("ROS_DISCOVERY_SERVER"),
        ..Facts::default()
    };
    facts.note_maps(&String::from_utf8_lossy(&maps));
    if facts.has_fast_dds {
        let descriptors = folder.join("fd");
        let sockets = list_descriptors(&descriptors);
        let table = bytes_of(&folder.join("net/udp"));
        facts.udp_ports = udp_ports(&String::from_utf8_lossy(&table), &sockets);
    }
    Some(facts)
}

/// Numbers of the sockets that a process has open.
fn list_descriptors(folder: &Path) -> BTreeSet<u64> {
    let entries = list_dir_up_to(folder, DESCRIPTORS_MAX).unwrap_or_default();
    let links = entries.iter().filter_map(|entry| entry.path.read_link().ok());
    links
        .filter_map(|link| {
            let number = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
            number.parse().ok()
        })
        .collect()
}

/// The ports of these sockets in a table as `/proc/net/udp` has it.
fn udp_ports(table: &str, sockets: &BTreeSet<u64>) -> BTreeSet<u32> {
    let port = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let local = fields.nth(1)?;
        let socket: u64 = fields.nth(7)?.parse().ok()?;
        let port = u32::from_str_radix(local.rsplit_once(':')?.1, 16).ok()?;
        sockets.contains(&socket).then_some(port)
    };
    table.lines().skip(1).filter_map(port).collect()
}

impl Facts {
    fn note_maps(&mut self, maps: &str) {
        for path in maps
            .lines()
            .filter_map(|line| line.find('/').map(|at| &line[at..]))
        {
            self.has_fast_dds |= FAST_DDS.iter().any(|library| path.contains(library));
            let shared = SHARED_PORTS.iter().find_map(|begin| path.strip_prefix(begin));
            let digits = shared.and_then(|rest| rest.split(|one: char| !one.is_ascii_digit()).next());
            self.shared_ports
                .extend(digits.and_then(|digits| digits.parse::<u32>().ok()));
        }
    }
}

/// The name of a node that its arguments set, else its program with the number of its process.
fn who(id: u32, command_line: &[u8]) -> String {
    let arguments: Vec<String> = command_line
        .split(|byte| *byte == 0)
        .map(|argument| String::from_utf8_lossy(argument).into_owned())
        .collect();
    let remapped = |name: &str| {
        let value = arguments.iter().rev().find_map(|it| it.strip_prefix(name));
        value.filter(|value| !value.is_empty())
    };
    if let Some(node) = remapped("__node:=").or_else(|| remapped("__name:=")) {
        let namespace = remapped("__ns:=").unwrap_or("").trim_end_matches('/');
        return format!("{namespace}/{node}");
    }
    // For an interpreter, the name of the script is more useful.
    let named = arguments
        .iter()
        .skip(1)
        .find(|it| !it.starts_with('-') && !it.is_empty());
    let program = arguments.first().map_or("", String::as_str);
    let last = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let is_interpreter = last(program).starts_with("python");
    let shown = named
        .filter(|_| is_interpreter)
        .map_or_else(|| last(program), |script| last(script));
    if shown.is_empty() {
        format!("process {id}")
    } else {
        format!("process {id} ({shown})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink};

    const MAPS: &str = "7f00-7f01 r-xp 00000000 08:01 12 /opt/ros/jazzy/lib/libfastrtps.so.2.14.5\n\
        7f02-7f03 rw-s 00000000 00:1a 13 /dev/shm/fastrtps_port7910\n\
        7f04-7f05 rw-s 00000000 00:1a 14 /dev/shm/fastrtps_port7900 (deleted)\n\
        7f06-7f07 rw-p 00000000 00:00 0\n";
    const UDP: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n\
        \x20 12: 00000000:1EDC 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 5151 2 0 0\n\
        \x20 13: 00000000:1EE6 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 5152 2 0 0\n";

    /// A process of a made-up `/proc`.
    fn process(root: &Path, id: u32, environment: &str, maps: &str, sockets: &[u64]) {
        let folder = root.join(id.to_string());
        fs::create_dir_all(folder.join("fd")).unwrap();
        fs::create_dir_all(folder.join("net")).unwrap();
        fs::write(folder.join("environ"), environment.replace(' ', "\0")).unwrap();
        fs::write(folder.join("maps"), maps).unwrap();
        fs::write(folder.join("net/udp"), UDP).unwrap();
        fs::write(
            folder.join("cmdline"),
            "/usr/bin/python3\0-u\0/home/me/camera.py\0",
        )
        .unwrap();
        for (number, socket) in sockets.iter().enumerate() {
            symlink(
                format!("socket:[{socket}]"),
                folder.join("fd").join(number.to_string()),
            )
            .unwrap();
        }
    }

    fn scan(root: &Path, domain: u32) -> Processes {
        let mut processes = Processes::new(domain, 99);
        processes.root = root.to_owned();
        processes.scan(Duration::ZERO);
        processes
    }

    #[test]
    fn a_process_with_shared_memory_only_is_found_in_its_domain() {
        let root = tempfile::tempdir().unwrap();
        process(root.path(), 7, "ROS_DOMAIN_ID=2 A=b", MAPS, &[1]);
        process(root.path(), 8, "ROS_DOMAIN_ID=2", MAPS, &[5151]);
        process(root.path(), 9, "A=b", MAPS, &[]);
        process(root.path(), 99, "ROS_DOMAIN_ID=2", MAPS, &[]);
        let processes = scan(root.path(), 2);
        let found: Vec<_> = processes.found().collect();
        let [(7, found)] = found[..] else {
            panic!("{found:?}")
        };
        assert_eq!(
            (found.who.as_str(), found.kind),
            ("process 7 (camera.py)", NotHeardKind::NoUdp)
        );
        assert_eq!(scan(root.path(), 3).found().count(), 0, "another domain");
    }

    #[test]
    fn a_process_of_a_discovery_server_is_found_whatever_it_has_open() {
        let root = tempfile::tempdir().unwrap();
        let environment = "ROS_DISCOVERY_SERVER=10.0.0.1:11811 ROS_DOMAIN_ID=2";
        process(root.path(), 7, environment, MAPS, &[5152]);
        process(
            root.path(),
            8,
            environment,
            "7f00-7f01 r-xp 0 08:01 12 /bin/bash\n",
            &[],
        );
        let processes = scan(root.path(), 2);
        let found: Vec<_> = processes.found().map(|(id, found)| (id, found.kind)).collect();
        assert_eq!(found, [(7, NotHeardKind::DiscoveryServer)]);
        assert!(
            processes
                .found()
                .all(|(_, found)| found.reason.contains("10.0.0.1:11811"))
        );
    }

    #[test]
    fn a_process_that_was_starting_is_checked_again() {
        let root = tempfile::tempdir().unwrap();
        process(root.path(), 7, "ROS_DOMAIN_ID=2", "", &[]);
        let mut processes = scan(root.path(), 2);
        fs::write(root.path().join("7/maps"), MAPS).unwrap();
        processes.scan(Duration::from_secs(1));
        assert_eq!(processes.found().count(), 0, "too soon");
        processes.scan(Duration::from_secs(2));
        assert_eq!(processes.found().count(), 1);
    }

    #[test]
    fn a_process_is_named_by_its_node_where_its_arguments_have_it() {
        let who = |line: &str| who(5, line.replace(' ', "\0").as_bytes());
        assert_eq!(
            who("/lib/camera_node --ros-args -r __node:=front -r __ns:=/robot"),
            "/robot/front"
        );
        assert_eq!(who("camera_node --ros-args -r __name:=front"), "/front");
        assert_eq!(who("/opt/camera_node --rate 5"), "process 5 (camera_node)");
        assert_eq!(who("python3 -u talker.py -"), "process 5 (talker.py)");
        assert_eq!(who(""), "process 5");
    }
}
