//! This process's UDP sockets: which ones there are, and how much they can hold before the kernel drops packets.

use crate::process::open_fds;
use std::{
    collections::BTreeSet,
    ffi::{CStr, c_int, c_void},
    mem,
    os::fd::RawFd,
    ptr,
};

/// The UDP sockets that this process has open (empty where `/proc` does not exist).
pub fn udp_sockets() -> BTreeSet<RawFd> {
    open_fds()
        .unwrap_or_default()
        .into_iter()
        .filter(|fd| {
            option(*fd, libc::SO_TYPE) == Some(libc::SOCK_DGRAM)
                && matches!(option(*fd, libc::SO_DOMAIN), Some(libc::AF_INET | libc::AF_INET6))
        })
        .collect()
}

/// Raises the receive buffer of each socket to `bytes`, beyond `net.core.rmem_max` where this process may (CAP_NET_ADMIN), else up to it.
///
/// Returns the smallest size reached, in bytes; `None` when no socket was left to query. Sizes are as
/// requested: the kernel reserves twice as much for its own bookkeeping.
pub fn raise_receive_buffers(sockets: &BTreeSet<RawFd>, bytes: usize) -> Option<usize> {
    let wish = c_int::try_from(bytes).unwrap_or(c_int::MAX / 2);
    sockets
        .iter()
        .filter_map(|fd| raise_receive_buffer(*fd, wish))
        .min()
}

fn raise_receive_buffer(fd: RawFd, wish: c_int) -> Option<usize> {
    let size = |fd| option(fd, libc::SO_RCVBUF).and_then(|doubled| usize::try_from(doubled / 2).ok());
    if size(fd)? >= usize::try_from(wish).unwrap_or(0) {
        return size(fd);
    }
    for option in [libc::SO_RCVBUFFORCE, libc::SO_RCVBUF] {
        // SAFETY: `wish` is a readable int of the given size; a closed descriptor only makes the call fail.
        let outcome = unsafe {
            libc::setsockopt(
                fd,
                libc::SOL_SOCKET,
                option,
                (&raw const wish).cast::<c_void>(),
                INT_BYTES,
            )
        };
        if outcome == 0 {
            break;
        }
    }
    size(fd)
}

/// Size of an int as the socket calls expect it.
const INT_BYTES: libc::socklen_t = mem::size_of::<c_int>() as libc::socklen_t;

fn option(fd: RawFd, name: c_int) -> Option<c_int> {
    let (mut value, mut len): (c_int, _) = (0, INT_BYTES);
    // SAFETY: `value` and `len` are writable and of the given sizes; a descriptor that is no socket only
    // makes the call fail.
    let outcome = unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            name,
            (&raw mut value).cast::<c_void>(),
            &raw mut len,
        )
    };
    (outcome == 0).then_some(value)
}

/// True when an interface other than loopback is up and has an IPv4 address.
pub fn has_network() -> bool {
    let mut first = ptr::null_mut();
    // SAFETY: `first` is writable; the list is freed below.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return false;
    }
    let mut found = false;
    let mut next: *const libc::ifaddrs = first;
    while !next.is_null() {
        // SAFETY: the list's entries live until `freeifaddrs`; `ifa_addr` is null or points to an address, `ifa_name` is a C string.
        let (flags, family, name) = unsafe {
            let entry = &*next;
            next = entry.ifa_next;
            let family = entry
                .ifa_addr
                .as_ref()
                .map(|address| c_int::from(address.sa_family));
            (entry.ifa_flags, family, CStr::from_ptr(entry.ifa_name))
        };
        let has = |flag: c_int| flags & flag.cast_unsigned() != 0;
        if has(libc::IFF_UP) && !has(libc::IFF_LOOPBACK) && family == Some(libc::AF_INET) {
            tracing::debug!("network interface {}", name.to_string_lossy());
            found = true;
        }
    }
    // SAFETY: `first` came from `getifaddrs` and is freed once.
    unsafe { libc::freeifaddrs(first) };
    found
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

        let small = option(socket.as_raw_fd(), libc::SO_RCVBUF).unwrap();
        let ours = BTreeSet::from([socket.as_raw_fd()]);
        let wish = usize::try_from(small).unwrap() / 2 + 4096;
        let reached = raise_receive_buffers(&ours, wish).unwrap();
        let limit: usize = fs::read_to_string("/proc/sys/net/core/rmem_max")
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        assert!(
            reached == wish || reached == limit,
            "{reached} of {wish}, limit {limit}"
        );
    }

    #[test]
    fn sockets_that_are_gone_count_for_nothing() {
        assert_eq!(raise_receive_buffers(&BTreeSet::from([-1]), 4096), None);
    }
}
