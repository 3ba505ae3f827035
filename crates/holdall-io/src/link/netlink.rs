//! The few requests of rtnetlink(7) that set up a device, so that no other program is needed for it.

use super::Shaper;
use std::{
    fs::File,
    io::{self, Read, Write},
    net::Ipv4Addr,
    os::fd::{FromRawFd, OwnedFd},
};

/// A connection to the kernel's network settings, for the namespace in which it was opened.
pub(super) struct Netlink {
    socket: File,
    sequence: u32,
}

const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;
const RTM_NEWQDISC: u16 = 36;
/// A request that is answered, and makes what is not there.
const FLAGS: u16 = 0x0001 | 0x0004 | 0x0400;
const HEADER_BYTES: usize = 16;
/// The answer to a request: an error number, 0 for none.
const NLMSG_ERROR: u16 = 2;

/// A message's body, in the byte order of the machine.
#[derive(Default)]
struct Body(Vec<u8>);

impl Body {
    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn u32(self, value: u32) -> Self {
        self.bytes(&value.to_ne_bytes())
    }

    /// An attribute: length, kind, value, and zeros up to a multiple of four.
    fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        let length = 4 + value.len() as u16;
        self = self
            .bytes(&length.to_ne_bytes())
            .bytes(&kind.to_ne_bytes())
            .bytes(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }
}

fn index_of(device: &str) -> io::Result<u32> {
    let name = std::ffi::CString::new(device)?;
    // SAFETY: the name ends with a zero and is valid during the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

impl Netlink {
    pub fn open() -> io::Result<Self> {
        // SAFETY: takes no pointer; the result is checked.
        let socket = unsafe {
            libc::socket(
                libc::AF_NETLINK,
                libc::SOCK_RAW | libc::SOCK_CLOEXEC,
                libc::NETLINK_ROUTE,
            )
        };
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a descriptor that nothing else owns.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        Ok(Self {
            socket: socket.into(),
            sequence: 0,
        })
    }

    /// Sends a request and waits for the kernel's answer.
    fn request(&mut self, kind: u16, body: &Body) -> io::Result<()> {
        self.sequence += 1;
        let length = (HEADER_BYTES + body.0.len()) as u32;
        let message = Body::default()
            .u32(length)
            .bytes(&kind.to_ne_bytes())
            .bytes(&FLAGS.to_ne_bytes())
            .u32(self.sequence)
            .u32(0)
            .bytes(&body.0);
        self.socket.write_all(&message.0)?;
        let mut answer = [0; 4096];
        let length = self.socket.read(&mut answer)?;
        let number = |at: usize| {
            Some(u16::from_ne_bytes(
                answer[..length].get(at..at + 2)?.try_into().ok()?,
            ))
        };
        let error = answer[..length].get(HEADER_BYTES..HEADER_BYTES + 4);
        match (number(4), error) {
            (Some(NLMSG_ERROR), Some(&[a, b, c, d])) => match i32::from_ne_bytes([a, b, c, d]) {
                0 => Ok(()),
                error => Err(io::Error::from_raw_os_error(-error)),
            },
            _ => Err(io::Error::other("the kernel's answer has another form")),
        }
    }

    /// Switches a device on, with its largest packet in bytes and the length of its queue in packets.
    pub fn bring_up(&mut self, device: &str, sizes: Option<(u32, u32)>) -> io::Result<()> {
        const IFF_UP: u32 = 1;
        const IFF_MULTICAST: u32 = 0x1000;
        const IFLA_MTU: u16 = 4;
        const IFLA_TXQLEN: u16 = 13;
        let flags = IFF_UP | if sizes.is_some() { IFF_MULTICAST } else { 0 };
        let mut body = Body::default()
            .u32(0)
            .u32(index_of(device)?)
            .u32(flags)
            .u32(flags);
        if let Some((mtu, queue)) = sizes {
            body = body
                .attribute(IFLA_MTU, &mtu.to_ne_bytes())
                .attribute(IFLA_TXQLEN, &queue.to_ne_bytes());
        }
        self.request(RTM_NEWLINK, &body)
    }

    pub fn add_address(&mut self, device: &str, address: Ipv4Addr, bits: u8) -> io::Result<()> {
        const IFA_ADDRESS: u16 = 1;
        const IFA_LOCAL: u16 = 2;
        let body = Body::default()
            .bytes(&[libc::AF_INET as u8, bits, 0, 0])
            .u32(index_of(device)?)
            .attribute(IFA_LOCAL, &address.octets())
            .attribute(IFA_ADDRESS, &address.octets());
        self.request(RTM_NEWADDR, &body)
    }

    pub fn add_route(&mut self, device: &str, network: Ipv4Addr, bits: u8) -> io::Result<()> {
        const TABLE_MAIN: u8 = 254;
        const PROTOCOL_STATIC: u8 = 4;
        const SCOPE_LINK: u8 = 253;
        const TYPE_UNICAST: u8 = 1;
        const RTA_DST: u16 = 1;
        const RTA_OIF: u16 = 4;
        let body = Body::default()
            .bytes(&[
                libc::AF_INET as u8,
                bits,
                0,
                0,
                TABLE_MAIN,
                PROTOCOL_STATIC,
                SCOPE_LINK,
                TYPE_UNICAST,
            ])
            .u32(0)
            .attribute(RTA_DST, &network.octets())
            .attribute(RTA_OIF, &index_of(device)?.to_ne_bytes());
        self.request(RTM_NEWROUTE, &body)
    }

    /// The token bucket of tc-tbf(8) before the device.
    pub fn add_shaper(&mut self, device: &str, shaper: Shaper) -> io::Result<()> {
        const TC_H_ROOT: u32 = u32::MAX;
        const TCA_KIND: u16 = 1;
        const TCA_OPTIONS: u16 = 2;
        const TCA_TBF_PARMS: u16 = 1;
        const TCA_TBF_RATE64: u16 = 4;
        const TCA_TBF_BURST: u16 = 6;
        const LINKLAYER_ETHERNET: u8 = 1;
        let rate = Body::default()
            .bytes(&[0, LINKLAYER_ETHERNET])
            .bytes(&shaper.overhead_bytes.to_ne_bytes())
            .u32(0)
            .u32(u32::try_from(shaper.bytes_per_s).unwrap_or(u32::MAX));
        // Rate, no peak rate, limit of the queue, and two numbers that the attribute below replaces.
        let parameters = rate.bytes(&[0; 12]).u32(shaper.queue_bytes).u32(0).u32(0);
        let options = Body::default()
            .attribute(TCA_TBF_PARMS, &parameters.0)
            .attribute(TCA_TBF_RATE64, &shaper.bytes_per_s.to_ne_bytes())
            .attribute(TCA_TBF_BURST, &burst_bytes(shaper.bytes_per_s).to_ne_bytes());
        let body = Body::default()
            .u32(0)
            .u32(index_of(device)?)
            .u32(0)
            .u32(TC_H_ROOT)
            .u32(0)
            .attribute(TCA_KIND, b"tbf\0")
            .attribute(TCA_OPTIONS, &options.0);
        self.request(RTM_NEWQDISC, &body)
    }
}

/// What the bucket holds: 3 ms of the rate, because the kernel refills it at ticks of up to 4 ms and wakes senders late; less loses rate (measured: 15 kB
/// reach 250 of 300 Mb/s, 100 kB 287).
fn burst_bytes(bytes_per_s: u64) -> u32 {
    const BURST_BYTES_MIN: u64 = 15_000;
    u32::try_from((bytes_per_s / 333).max(BURST_BYTES_MIN)).unwrap_or(u32::MAX)
}
