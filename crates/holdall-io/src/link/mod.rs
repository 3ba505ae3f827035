//! Two ends of a link, each with a separate network namespace and a TUN device in it, whose packets this process reads and writes. Neither
//! the machine's own network nor other processes are touched; everything ends with the process.

mod netlink;

use crate::clock::wake_this_thread_exactly;
use netlink::Netlink;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::sockopt::{set_socket_recv_buffer_size, set_socket_recv_buffer_size_force},
    process::{geteuid, getgid, getuid},
    thread::{LinkNameSpaceType, move_into_link_name_space},
};
use std::{
    ffi::CString,
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::{fs::OpenOptionsExt, process::CommandExt},
    },
    process::Command,
    thread,
    time::Duration,
};

/// A rate at which the sending end itself waits: its packets queue before the device, and `send` waits for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shaper {
    /// Bytes a second, `overhead_bytes` for each packet included.
    pub bytes_per_s: u64,
    /// Added to the length of each packet.
    pub overhead_bytes: u16,
    /// Most bytes that wait.
    pub queue_bytes: u32,
}

/// The kernel's own emulation of a link, tc-netem(8), in front of the sending end's device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Netem {
    /// Bytes a second, and bytes that are added to the length of each packet; `None` does not limit.
    pub rate: Option<(u64, u16)>,
    /// Most packets that wait, for the rate or the delay.
    pub limit_packets: u32,
    /// Mean time on the way.
    pub delay: Duration,
    /// Each delay is between `delay - jitter` and `delay + jitter`.
    pub jitter: Duration,
    /// Chances that a burst of losses begins and ends at a packet; without bursts of losses, the chance of each packet, and `None`.
    pub loss: (f64, Option<f64>),
    /// Share of packets that are not delayed.
    pub reorder: f64,
    /// Seed of its random numbers, for kernels from 6.6 on.
    pub seed: u64,
}

/// The queue of packets in front of the sending end's device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Qdisc {
    /// A rate.
    Shaper(Shaper),
    /// A whole link.
    Netem(Netem),
}

/// Address of each end; both are in a network of 24 bits.
pub const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 99, 0, 1), Ipv4Addr::new(10, 99, 0, 2)];
/// Bits of the network that both addresses are in.
const NETWORK_BITS: u8 = 24;
/// The device's name in each namespace.
const DEVICE: &str = "link0";
/// Packets that wait in the device for this process to read them.
const DEVICE_QUEUE_PACKETS: u32 = 10_000;

/// Why a link cannot be made here.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The kernel refuses namespaces.
    #[error(
        "cannot make a network namespace: {0}; run as root, or allow user namespaces (sysctl kernel.unprivileged_userns_clone=1, on Ubuntu \
         kernel.apparmor_restrict_unprivileged_userns=0)"
    )]
    Namespace(io::Error),
    /// No TUN device.
    #[error(
        "cannot open /dev/net/tun: {0}; load the kernel's module tun, or run as root (or chmod 0666 /dev/net/tun)"
    )]
    Tun(io::Error),
    /// No netem.
    #[error(
        "cannot set up netem: {0}; load the kernel's module sch_netem, or leave out backend=netem: the link of holdall needs no netem"
    )]
    Netem(io::Error),
    /// A setting of the device.
    #[error("cannot {action} of the link's device: {source}")]
    Setting {
        /// The setting that failed.
        action: &'static str,
        /// The system's answer.
        source: io::Error,
    },
}

/// One end.
#[derive(Debug)]
pub struct LinkEnd {
    device: File,
    namespace: OwnedFd,
}

/// The kernel's counters of one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelCounters {
    /// Packets that the device gave to this process, and those that it dropped because they were not read in time.
    pub sent_packets: u64,
    /// See `sent_packets`.
    pub sent_dropped: u64,
    /// Selected counters of `/proc/net/snmp`, such as `Ip.ReasmFails` and `Udp.RcvbufErrors`.
    pub protocols: Vec<(String, u64)>,
    /// Memory of fragments that wait for the rest of their datagram, in bytes.
    pub fragment_memory_bytes: u64,
}

/// Makes both ends.
///
/// # Errors
/// A system that does not allow it; see [`LinkError`].
pub fn create(mtu_bytes: u16, qdisc: Option<Qdisc>) -> Result<[LinkEnd; 2], LinkError> {
    let end = |number: usize| {
        // The namespace is that of a thread, which ends with it; the descriptors keep both alive.
        let made = thread::Builder::new()
            .name("link-end".to_owned())
            .spawn(move || make_end(ADDRESSES[number], mtu_bytes, qdisc))
            .map_err(LinkError::Namespace)?;
        made.join()
            .unwrap_or_else(|_| Err(LinkError::Namespace(io::Error::other("the thread panicked"))))
    };
    Ok([end(0)?, end(1)?])
}

fn make_end(address: Ipv4Addr, mtu_bytes: u16, qdisc: Option<Qdisc>) -> Result<LinkEnd, LinkError> {
    // SAFETY: changes the namespace of the calling thread only; takes no pointer.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return Err(LinkError::Namespace(io::Error::last_os_error()));
    }
    let namespace = File::open("/proc/thread-self/ns/net").map_err(LinkError::Namespace)?;
    let device = open_tun().map_err(LinkError::Tun)?;
    let setting = |action| move |source| LinkError::Setting { action, source };
    let mut netlink = Netlink::open().map_err(setting("open the settings"))?;
    netlink
        .bring_up("lo", None)
        .map_err(setting("switch on the loopback"))?;
    netlink
        .bring_up(DEVICE, Some((u32::from(mtu_bytes), DEVICE_QUEUE_PACKETS)))
        .map_err(setting("set the largest packet"))?;
    netlink
        .add_address(DEVICE, address, NETWORK_BITS)
        .map_err(setting("set the address"))?;
    netlink
        .add_route(DEVICE, Ipv4Addr::new(224, 0, 0, 0), 4)
        .map_err(setting("set the route for multicast"))?;
    match qdisc {
        Some(Qdisc::Shaper(shaper)) => netlink
            .add_shaper(DEVICE, shaper)
            .map_err(setting("set the rate (kernel module sch_tbf)"))?,
        Some(Qdisc::Netem(netem)) => netlink.add_netem(DEVICE, &netem).map_err(LinkError::Netem)?,
        None => {}
    }
    Ok(LinkEnd {
        device,
        namespace: namespace.into(),
    })
}

/// A TUN device in the calling thread's namespace.
fn open_tun() -> io::Result<File> {
    let device = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open("/dev/net/tun")?;
    // SAFETY: an ifreq consists of numbers, all of which may be zero.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(DEVICE.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: the request is valid during the call, and of the type that this number expects.
    if unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF, &raw const request) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(device)
}

impl LinkEnd {
    /// Reads the next packet that this end sends into `buffer`; its length, or `None` without one.
    ///
    /// # Errors
    /// A device that is gone.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match (&self.device).read(buffer) {
            Ok(length) => Ok(Some(length)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Gives this end a packet to receive. False when it refuses it.
    pub fn write(&self, packet: &[u8]) -> bool {
        (&self.device)
            .write(packet)
            .is_ok_and(|written| written == packet.len())
    }

    /// Makes `command` run in this end's namespace with a private `/dev/shm`: programs on both ends reach each other by the link only. It
    /// gets SIGTERM when the thread that starts it ends.
    pub fn place(&self, command: &mut Command) {
        let namespace = self.namespace.as_raw_fd();
        let paths = [c"/", c"/dev/shm", c"tmpfs"].map(CString::from);
        let enter = move || {
            let done = |result: libc::c_int| {
                if result == 0 {
                    Ok(())
                } else {
                    Err(io::Error::last_os_error())
                }
            };
            let [root, shared_memory, tmpfs] = &paths;
            let nothing = std::ptr::null();
            // SAFETY: all are system calls that may be made between fork and exec; the strings were made before the fork and outlive it, and
            // the descriptor of the namespace is open in the child.
            unsafe {
                done(libc::setns(namespace, libc::CLONE_NEWNET))?;
                done(libc::unshare(libc::CLONE_NEWNS))?;
                // Unmounting outside also unmounts here, so the mount is not kept busy; mounts made here are invisible outside.
                let downstream = libc::MS_REC | libc::MS_SLAVE;
                done(libc::mount(
                    std::ptr::null(),
                    root.as_ptr(),
                    std::ptr::null(),
                    downstream,
                    nothing,
                ))?;
                done(libc::mount(
                    tmpfs.as_ptr(),
                    shared_memory.as_ptr(),
                    tmpfs.as_ptr(),
                    0,
                    nothing,
                ))?;
                done(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM))
            }
        };
        // SAFETY: `enter` makes system calls only; it neither allocates nor takes a lock.
        unsafe { command.pre_exec(enter) };
    }

    /// The kernel's counters of this end so far.
    ///
    /// # Errors
    /// A namespace that cannot be entered, or a thread that cannot be started.
    pub fn kernel_counters(&self) -> io::Result<KernelCounters> {
        self.inside(read_counters)
    }

    /// A socket of this end, with a receive buffer of this size, as far as the system allows it.
    ///
    /// # Errors
    /// An address that is in use.
    pub fn udp_socket(&self, address: SocketAddr, receive_buffer_bytes: usize) -> io::Result<UdpSocket> {
        let socket = self.inside(move || UdpSocket::bind(address))?;
        // Only root may exceed the system's limit for sockets; a refusal leaves the default.
        if set_socket_recv_buffer_size_force(&socket, receive_buffer_bytes).is_err() {
            let _ = set_socket_recv_buffer_size(&socket, receive_buffer_bytes);
        }
        Ok(socket)
    }

    /// Does this on a thread in this end's namespace.
    fn inside<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        let namespace = self.namespace.as_fd();
        thread::scope(|scope| {
            let enter = move || {
                move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network))?;
                work()
            };
            let thread = thread::Builder::new()
                .name("link-inside".to_owned())
                .spawn_scoped(scope, enter)?;
            thread
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("the thread panicked")))
        })
    }
}

/// Waits until an end has a packet to read, at most this long. Returns which ends have one.
pub fn wait_readable(ends: &[LinkEnd; 2], timeout: Duration) -> [bool; 2] {
    let mut descriptors = ends.each_ref().map(|end| PollFd::new(&end.device, PollFlags::IN));
    let timeout = Timespec::try_from(timeout).ok();
    let ready = poll(&mut descriptors, timeout.as_ref()).unwrap_or(0);
    descriptors.map(|descriptor| ready > 0 && !descriptor.revents().is_empty())
}

/// Makes the calling thread's timers fire at once instead of up to 50 µs later, and, if allowed, runs it before all ordinary threads
/// (`SCHED_FIFO`, the lowest such priority). False if it is not allowed.
pub fn be_punctual() -> bool {
    let parameters = libc::sched_param { sched_priority: 1 };
    wake_this_thread_exactly();
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the parameters are valid during the call; 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) == 0 }
}

/// Whether this process may make namespaces by itself; otherwise it needs [`in_user_namespace`].
pub fn is_root() -> bool {
    geteuid().is_root()
}

/// Makes the program of `command` root of a new user namespace: there it may make network namespaces.
pub fn in_user_namespace(command: &mut Command) {
    let (user, group) = (getuid().as_raw(), getgid().as_raw());
    let maps = [
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/uid_map", format!("0 {user} 1")),
        ("/proc/self/gid_map", format!("0 {group} 1")),
    ];
    let enter = move || {
        // SAFETY: a system call that takes no pointer.
        if unsafe { libc::unshare(libc::CLONE_NEWUSER) } != 0 {
            return Err(io::Error::last_os_error());
        }
        maps.iter().try_for_each(|(path, text)| fs::write(path, text))
    };
    // SAFETY: `enter` makes system calls only; paths this short are not copied to the heap, and it takes no lock.
    unsafe { command.pre_exec(enter) };
}

/// Which counters of `/proc/net/snmp` show lost packets.
const PROTOCOL_COUNTERS: [&str; 9] = [
    "Ip.ReasmReqds",
    "Ip.ReasmOKs",
    "Ip.ReasmFails",
    "Ip.ReasmTimeout",
    "Ip.FragCreates",
    "Udp.InErrors",
    "Udp.RcvbufErrors",
    "Udp.SndbufErrors",
    "Tcp.RetransSegs",
];

fn read_counters() -> io::Result<KernelCounters> {
    let read = |name: &str| fs::read_to_string(format!("/proc/thread-self/net/{name}"));
    let mut counters = KernelCounters::default();
    let devices = read("dev")?;
    let line = devices
        .lines()
        .find_map(|line| line.trim().strip_prefix(&format!("{DEVICE}:")));
    // Eight numbers for received packets, then those for sent ones: bytes, packets, errors, dropped.
    let numbers: Vec<u64> = line
        .unwrap_or_default()
        .split_whitespace()
        .flat_map(str::parse)
        .collect();
    if let [.., packets, _, dropped, _, _, _, _] = numbers.as_slice() {
        (counters.sent_packets, counters.sent_dropped) = (*packets, *dropped);
    }
    let protocols = read("snmp")?;
    let lines: Vec<Vec<&str>> = protocols
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    for pair in lines.chunks_exact(2) {
        for (name, value) in pair[0].iter().zip(&pair[1]).skip(1) {
            let name = format!("{}.{name}", pair[0][0].trim_end_matches(':'));
            if let (true, Ok(value)) = (PROTOCOL_COUNTERS.contains(&name.as_str()), value.parse()) {
                counters.protocols.push((name, value));
            }
        }
    }
    let sockets = read("sockstat")?;
    let memory = sockets.lines().find_map(|line| {
        line.strip_prefix("FRAG:")?
            .split("memory")
            .nth(1)?
            .trim()
            .parse()
            .ok()
    });
    counters.fragment_memory_bytes = memory.unwrap_or(0);
    Ok(counters)
}
