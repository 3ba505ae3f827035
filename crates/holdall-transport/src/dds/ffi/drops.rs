//! Packets that arrived but that the kernel dropped because the sockets were full.

use std::{collections::BTreeSet, ffi::c_void, mem, os::fd::RawFd, time::Duration};

/// Messages older than this were announced again since then, and missing ones were requested: Fast DDS announces every 3 s.
const ANNOUNCED_WITHIN: Duration = Duration::from_secs(4);

/// Counts the packets that the kernel drops for some sockets.
pub(in crate::dds) struct Drops {
    sockets: BTreeSet<RawFd>,
    count: u64,
    /// When the count last grew (elapsed time in nanoseconds).
    last: Option<i64>,
}

impl Drops {
    /// Starts to count.
    pub(in crate::dds) fn new(sockets: BTreeSet<RawFd>) -> Self {
        Self {
            count: count(&sockets),
            sockets,
            last: None,
        }
    }

    /// Counts again; true when packets were dropped whose content may not have been announced since. `elapsed` is in nanoseconds.
    pub(in crate::dds) fn follow(&mut self, elapsed: i64) -> bool {
        let count = count(&self.sockets);
        self.note(count, elapsed)
    }

    fn note(&mut self, count: u64, elapsed: i64) -> bool {
        if mem::replace(&mut self.count, count) != count {
            self.last = Some(elapsed);
        }
        let within = i64::try_from(ANNOUNCED_WITHIN.as_nanos()).unwrap_or(i64::MAX);
        self.last.is_some_and(|last| elapsed - last < within)
    }
}

fn count(sockets: &BTreeSet<RawFd>) -> u64 {
    sockets.iter().map(|socket| dropped(*socket)).sum()
}

/// Packets that were dropped for a socket (`SO_MEMINFO`); 0 where it cannot be asked.
fn dropped(socket: RawFd) -> u64 {
    /// `SK_MEMINFO_VARS` and `SK_MEMINFO_DROPS` (linux/sock_diag.h).
    const FIELDS: usize = 9;
    const DROPS: usize = 8;
    let mut fields = [0_u32; FIELDS];
    let mut len = mem::size_of_val(&fields) as libc::socklen_t;
    // SAFETY: `fields` and `len` are writable and of the given sizes; with a descriptor of another kind the call fails.
    unsafe {
        libc::getsockopt(
            socket,
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            fields.as_mut_ptr().cast::<c_void>(),
            &raw mut len,
        );
    }
    u64::from(fields[DROPS])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{net::UdpSocket, os::fd::AsRawFd};

    #[test]
    fn packets_that_a_full_socket_does_not_take_are_counted() {
        let (full, sender) = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap()).into();
        let mut drops = Drops::new(BTreeSet::from([full.as_raw_fd()]));
        assert!(!drops.follow(0));
        for _ in 0..4_000 {
            sender.send_to(&[0; 8_000], full.local_addr().unwrap()).unwrap();
        }
        assert!(dropped(full.as_raw_fd()) > 0);
        assert!(drops.follow(1) && drops.follow(3_999_999_999));
        assert!(!drops.follow(4_000_000_001));
    }
}
