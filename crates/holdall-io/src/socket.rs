//! This process's UDP sockets: which ones there are, and how much they can hold before the kernel drops packets.

use crate::process::open_fds;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{
        AddressFamily, SocketFlags, SocketType, bind, socket_with,
        sockopt::{
            set_socket_recv_buffer_size, set_socket_recv_buffer_size_force, set_socket_reuseaddr,
            socket_domain, socket_recv_buffer_size, socket_type,
        },
    },
};
use std::{
    collections::BTreeSet,
    ffi::{CStr, c_int, c_void},
    io, mem,
    net::{Ipv4Addr, SocketAddrV4, UdpSocket},
    os::fd::{AsRawFd, BorrowedFd, RawFd},
    ptr,
    time::Duration,
};

/// The UDP sockets that this process has open (empty where `/proc` does not exist).
pub fn udp_sockets() -> BTreeSet<RawFd> {
    let is_udp = |fd: &RawFd| {
        lent(*fd).is_some_and(|socket| {
            socket_type(socket) == Ok(SocketType::DGRAM)
                && matches!(
                    socket_domain(socket),
                    Ok(AddressFamily::INET | AddressFamily::INET6)
                )
        })
    };
    open_fds()
        .unwrap_or_default()
        .into_iter()
        .filter(is_udp)
        .collect()
}

/// A descriptor of this process for system calls, which fail for one that is closed by now.
fn lent(fd: RawFd) -> Option<BorrowedFd<'static>> {
    // SAFETY: it is not -1, and is given to calls that read or change settings of a socket only: to them a closed one is an error.
    (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
}

/// Raises the receive buffer of each socket to `bytes`, beyond `net.core.rmem_max` where this process may (CAP_NET_ADMIN), else up to it.
///
/// Returns the smallest size reached, in bytes; `None` when no socket was left to query. Sizes are as
/// requested: the kernel reserves twice as much for its own bookkeeping.
pub fn raise_receive_buffers(sockets: &BTreeSet<RawFd>, bytes: usize) -> Option<usize> {
    let wanted = bytes.min(i32::MAX as usize / 2);
    let sockets = sockets.iter().filter_map(|fd| lent(*fd));
    sockets
        .filter_map(|socket| raise_receive_buffer(socket, wanted))
        .min()
}

fn raise_receive_buffer(socket: BorrowedFd<'_>, wanted: usize) -> Option<usize> {
    let size = || socket_recv_buffer_size(socket).ok().map(|doubled| doubled / 2);
    if size()? < wanted && set_socket_recv_buffer_size_force(socket, wanted).is_err() {
        let _ = set_socket_recv_buffer_size(socket, wanted);
    }
    size()
}

/// Whether a UDP socket has a packet that was not read yet; false if it cannot be asked.
pub fn has_waiting(socket: RawFd) -> bool {
    let Some(socket) = lent(socket) else { return false };
    let mut descriptor = [PollFd::new(&socket, PollFlags::IN)];
    let ready = poll(&mut descriptor, Some(&Timespec::default()));
    ready.is_ok() && descriptor[0].revents().contains(PollFlags::IN)
}

/// Limits the unsent bytes that the kernel holds for a TCP connection to about this number (`TCP_NOTSENT_LOWAT`); further writes wait.
///
/// # Errors
/// The kernel does not have the option.
pub fn limit_unsent(connection: &impl AsRawFd, bytes: u32) -> io::Result<()> {
    let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX);
    // SAFETY: `bytes` is a readable int of the given size, and the descriptor is open while `connection` is borrowed.
    let outcome = unsafe {
        libc::setsockopt(
            connection.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_NOTSENT_LOWAT,
            (&raw const bytes).cast::<c_void>(),
            INT_BYTES,
        )
    };
    if outcome == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Written bytes of a TCP connection that the other side has not acknowledged (`SIOCOUTQ`): in flight, or not sent yet.
///
/// # Errors
/// It is not a TCP connection.
pub fn unacknowledged_bytes(connection: &impl AsRawFd) -> io::Result<u64> {
    let mut bytes: c_int = 0;
    // SAFETY: `bytes` is a writable int, which TIOCOUTQ (the same number as SIOCOUTQ) fills; the descriptor is open while
    // `connection` is borrowed.
    let outcome = unsafe { libc::ioctl(connection.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if outcome == 0 {
        Ok(u64::try_from(bytes).unwrap_or(0))
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The shortest round trip of a TCP connection that the kernel has seen; `None` if it does not report it.
pub fn shortest_round_trip(connection: &impl AsRawFd) -> Option<Duration> {
    /// Offset of `tcpi_min_rtt` in `struct tcp_info` (linux/tcp.h), in microseconds.
    const AT: usize = 148;
    let mut about = [0_u8; AT + 4];
    let mut len = about.len() as libc::socklen_t;
    // SAFETY: `about` and `len` are writable and of the given sizes; the descriptor is open while `connection` is borrowed.
    let outcome = unsafe {
        libc::getsockopt(
            connection.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            about.as_mut_ptr().cast::<c_void>(),
            &raw mut len,
        )
    };
    let micros = u32::from_ne_bytes(about[AT..].try_into().ok()?);
    // Before the first acknowledgement the kernel has the largest number.
    let is_known = outcome == 0 && len as usize == about.len() && micros != u32::MAX;
    is_known.then(|| Duration::from_micros(u64::from(micros)))
}

/// Size of an int as the socket calls expect it.
const INT_BYTES: libc::socklen_t = mem::size_of::<c_int>() as libc::socklen_t;

/// An IPv4 address that an interface of this machine has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The interface's name.
    pub interface: String,
    /// The address.
    pub address: Ipv4Addr,
    /// Which other addresses are on the same network.
    pub mask: Ipv4Addr,
    /// The interface is up.
    pub is_up: bool,
    /// Something that works is at the other end: a cable, an access point, a port of a bridge. Never so while the interface is down.
    pub has_carrier: bool,
    /// The interface reaches this machine only.
    pub is_loopback: bool,
    /// The interface carries multicast.
    pub has_multicast: bool,
}

/// All IPv4 addresses of this machine; empty when the system does not list them.
pub fn interface_addresses() -> Vec<InterfaceAddress> {
    let mut first = ptr::null_mut();
    // SAFETY: `first` is writable; the list is freed below.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut next: *const libc::ifaddrs = first;
    while !next.is_null() {
        // SAFETY: the list's entries live until `freeifaddrs`; `ifa_addr` is null or points to an address, of the size of its family,
        // `ifa_netmask` likewise, and `ifa_name` is a C string.
        unsafe {
            let entry = &*next;
            next = entry.ifa_next;
            let is_ipv4 =
                !entry.ifa_addr.is_null() && c_int::from((*entry.ifa_addr).sa_family) == libc::AF_INET;
            if is_ipv4 {
                let ipv4 = |address: *const libc::sockaddr| {
                    let address = ptr::read_unaligned(address.cast::<libc::sockaddr_in>());
                    Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr))
                };
                let has = |flag: c_int| entry.ifa_flags & flag.cast_unsigned() != 0;
                found.push(InterfaceAddress {
                    interface: CStr::from_ptr(entry.ifa_name).to_string_lossy().into_owned(),
                    address: ipv4(entry.ifa_addr),
                    mask: if entry.ifa_netmask.is_null() {
                        Ipv4Addr::BROADCAST
                    } else {
                        ipv4(entry.ifa_netmask)
                    },
                    is_up: has(libc::IFF_UP),
                    has_carrier: has(libc::IFF_RUNNING),
                    is_loopback: has(libc::IFF_LOOPBACK),
                    has_multicast: has(libc::IFF_MULTICAST),
                });
            }
        }
    }
    // SAFETY: `first` came from `getifaddrs` and is freed once.
    unsafe { libc::freeifaddrs(first) };
    found
}

/// The address of this machine that a packet to `destination` leaves from, by the system's routes; `None` when no route leads there.
pub fn source_address(destination: Ipv4Addr) -> Option<Ipv4Addr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // Nothing is sent: the system chooses the route and the address.
    socket.connect((destination, 9)).ok()?;
    match socket.local_addr().ok()?.ip() {
        std::net::IpAddr::V4(address) => Some(address),
        std::net::IpAddr::V6(_) => None,
    }
}

/// A socket that receives the packets of a multicast group, even if other sockets of this machine do, too. It never blocks.
///
/// # Errors
/// When the system refuses the socket or its address.
pub fn multicast_listener(group: SocketAddrV4) -> io::Result<UdpSocket> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
    // Without it the bind fails where it is needed.
    let _ = set_socket_reuseaddr(&socket, true);
    bind(&socket, &group)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, net::UdpSocket, os::fd::AsRawFd};

    #[test]
    fn udp_sockets_of_this_process_are_found_and_raised() {
        let before = udp_sockets();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let file = fs::File::open("/proc/self/status").unwrap();
        let all = udp_sockets();
        assert!(all.contains(&socket.as_raw_fd()) && !before.contains(&socket.as_raw_fd()));
        assert!(!all.contains(&file.as_raw_fd()));

        let small = socket_recv_buffer_size(&socket).unwrap();
        let ours = BTreeSet::from([socket.as_raw_fd()]);
        let wanted = small / 2 + 4096;
        let reached = raise_receive_buffers(&ours, wanted).unwrap();
        let limit: usize = fs::read_to_string("/proc/sys/net/core/rmem_max")
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        assert!(
            reached == wanted || reached == limit,
            "{reached} of {wanted}, limit {limit}"
        );
    }

    #[test]
    fn a_packet_waits_until_it_is_read() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(!has_waiting(socket.as_raw_fd()));
        socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
        while !has_waiting(socket.as_raw_fd()) {
            std::thread::yield_now();
        }
        socket.recv(&mut [0; 8]).unwrap();
        assert!(!has_waiting(socket.as_raw_fd()) && !has_waiting(-1));
    }

    #[test]
    fn what_the_other_side_has_not_got_is_counted() {
        use std::io::Write;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (receiver, _) = listener.accept().unwrap();
        assert_eq!(unacknowledged_bytes(&sender).unwrap(), 0);
        assert!(shortest_round_trip(&sender).is_some_and(|span| span < Duration::from_secs(60)));
        sender.set_nonblocking(true).unwrap();
        // Until the receiver's buffer is full.
        while sender.write(&[0; 65536]).is_ok() {}
        assert!(unacknowledged_bytes(&sender).unwrap() > 0);
        drop(receiver);
        assert!(unacknowledged_bytes(&listener).is_err());
    }

    #[test]
    fn several_sockets_listen_to_one_group() {
        let group = Ipv4Addr::new(239, 255, 77, 1);
        let any = multicast_listener(SocketAddrV4::new(group, 0)).unwrap();
        let port = any.local_addr().unwrap().port();
        let other = multicast_listener(SocketAddrV4::new(group, port)).unwrap();
        let mut bytes = [0; 8];
        for socket in [&any, &other] {
            let nothing = socket.recv(&mut bytes).unwrap_err();
            assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        }
    }

    #[test]
    fn loopback_is_among_the_addresses() {
        let addresses = interface_addresses();
        let loopback = addresses
            .iter()
            .find(|address| address.address == Ipv4Addr::LOCALHOST);
        assert!(
            loopback.is_none_or(|loopback| loopback.is_loopback),
            "{addresses:?}"
        );
        assert!(addresses.iter().all(|address| !address.interface.is_empty()));
        let masks = |address: &InterfaceAddress| address.mask == Ipv4Addr::new(255, 0, 0, 0);
        assert!(loopback.is_none_or(masks), "{addresses:?}");
    }

    #[test]
    fn packets_to_this_machine_leave_from_loopback() {
        assert_eq!(source_address(Ipv4Addr::LOCALHOST), Some(Ipv4Addr::LOCALHOST));
    }

    #[test]
    fn sockets_that_are_gone_count_for_nothing() {
        assert_eq!(raise_receive_buffers(&BTreeSet::from([-1]), 4096), None);
    }
}
