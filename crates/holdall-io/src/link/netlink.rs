//! The few requests of rtnetlink(7) that set up a device, so that no other program is needed for it.

use super::{Netem, Shaper};
use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice::name_to_index, socket_with};
use std::{
    fs::File,
    io::{self, Read, Write},
    net::Ipv4Addr,
    time::Duration,
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
const LINKLAYER_ETHERNET: u8 = 1;
/// A request that is answered and creates missing objects.
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

impl Netlink {
    pub fn open() -> io::Result<Self> {
        // The protocol 0 is NETLINK_ROUTE.
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            None,
        )?;
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
            .u32(name_to_index(&self.socket, device)?)
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
            .u32(name_to_index(&self.socket, device)?)
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
            .attribute(RTA_OIF, &name_to_index(&self.socket, device)?.to_ne_bytes());
        self.request(RTM_NEWROUTE, &body)
    }

    /// The token bucket of tc-tbf(8) before the device.
    pub fn add_shaper(&mut self, device: &str, shaper: Shaper) -> io::Result<()> {
        const TCA_TBF_PARMS: u16 = 1;
        const TCA_TBF_RATE64: u16 = 4;
        const TCA_TBF_BURST: u16 = 6;
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
        self.add_qdisc(device, b"tbf\0", &options)
    }

    /// The emulation of tc-netem(8) before the device.
    pub fn add_netem(&mut self, device: &str, netem: &Netem) -> io::Result<()> {
        self.add_qdisc(device, b"netem\0", &netem_options(netem))
    }

    fn add_qdisc(&mut self, device: &str, kind: &[u8], options: &Body) -> io::Result<()> {
        const TC_H_ROOT: u32 = u32::MAX;
        const TCA_KIND: u16 = 1;
        const TCA_OPTIONS: u16 = 2;
        let body = Body::default()
            .u32(0)
            .u32(name_to_index(&self.socket, device)?)
            .u32(0)
            .u32(TC_H_ROOT)
            .u32(0)
            .attribute(TCA_KIND, kind)
            .attribute(TCA_OPTIONS, &options.0);
        self.request(RTM_NEWQDISC, &body)
    }
}

/// Options of netem: a structure, then attributes, as in `linux/pkt_sched.h`.
fn netem_options(netem: &Netem) -> Body {
    const TCA_NETEM_REORDER: u16 = 3;
    const TCA_NETEM_LOSS: u16 = 5;
    const TCA_NETEM_RATE: u16 = 6;
    const TCA_NETEM_RATE64: u16 = 8;
    const TCA_NETEM_LATENCY64: u16 = 10;
    const TCA_NETEM_JITTER64: u16 = 11;
    const TCA_NETEM_PRNG_SEED: u16 = 14;
    const NETEM_LOSS_GE: u16 = 2;
    let chance = |share: f64| (share * f64::from(u32::MAX)) as u32;
    let nanos = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX).to_ne_bytes();
    let (begins, ends) = netem.loss;
    // Delay and jitter are attributes below. A gap of one lets each packet have its chance to overtake.
    let mut options = Body::default()
        .u32(0)
        .u32(netem.limit_packets)
        .u32(if ends.is_none() { chance(begins) } else { 0 })
        .u32(u32::from(netem.reorder > 0.0))
        .u32(0)
        .u32(0)
        .attribute(TCA_NETEM_LATENCY64, &nanos(netem.delay))
        .attribute(TCA_NETEM_JITTER64, &nanos(netem.jitter))
        .attribute(TCA_NETEM_PRNG_SEED, &netem.seed.to_ne_bytes());
    if netem.reorder > 0.0 {
        let reorder = Body::default().u32(chance(netem.reorder)).u32(0);
        options = options.attribute(TCA_NETEM_REORDER, &reorder.0);
    }
    if let Some(ends) = ends {
        // In a burst every packet is lost, between bursts none.
        let gilbert = Body::default()
            .u32(chance(begins))
            .u32(chance(ends))
            .u32(0)
            .u32(0);
        let model = Body::default().attribute(NETEM_LOSS_GE, &gilbert.0);
        options = options.attribute(TCA_NETEM_LOSS, &model.0);
    }
    if let Some((bytes_per_s, overhead)) = netem.rate {
        let rate = Body::default()
            .u32(u32::try_from(bytes_per_s).unwrap_or(u32::MAX))
            .u32(u32::from(overhead))
            .u32(0)
            .u32(0);
        options = options
            .attribute(TCA_NETEM_RATE, &rate.0)
            .attribute(TCA_NETEM_RATE64, &bytes_per_s.to_ne_bytes());
    }
    options
}

/// Size of the bucket: 3 ms of the rate, because the kernel refills it at ticks of up to 4 ms and wakes senders late; less loses rate (measured: 15
/// kB reach 250 of 300 Mb/s, 100 kB 287).
fn burst_bytes(bytes_per_s: u64) -> u32 {
    const BURST_BYTES_MIN: u64 = 15_000;
    u32::try_from((bytes_per_s / 333).max(BURST_BYTES_MIN)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The structure's numbers, and the attributes after it by kind.
    fn read(options: &Body) -> (Vec<u32>, Vec<(u16, Vec<u8>)>) {
        let (head, mut rest) = options.0.split_at(24);
        let numbers = head.chunks_exact(4);
        let numbers = numbers.map(|bytes| u32::from_ne_bytes(bytes.try_into().unwrap()));
        let mut attributes = Vec::new();
        while let [a, b, c, d, ..] = *rest {
            let length = usize::from(u16::from_ne_bytes([a, b]));
            attributes.push((u16::from_ne_bytes([c, d]), rest[4..length].to_vec()));
            rest = &rest[length.next_multiple_of(4)..];
        }
        assert!(rest.is_empty());
        (numbers.collect(), attributes)
    }

    fn value(attributes: &[(u16, Vec<u8>)], kind: u16) -> Option<&[u8]> {
        let found = attributes.iter().find(|attribute| attribute.0 == kind)?;
        Some(&found.1)
    }

    #[test]
    fn netem_gets_each_part_of_the_link_in_the_form_of_the_kernels_header() {
        let netem = Netem {
            rate: Some((6_750_000, 14)),
            limit_packets: 900,
            delay: Duration::from_millis(5),
            jitter: Duration::from_micros(1500),
            loss: (0.1, None),
            reorder: 0.5,
            seed: 7,
        };
        let (numbers, attributes) = read(&netem_options(&netem));
        assert_eq!(numbers, [0, 900, 429_496_729, 1, 0, 0]);
        assert_eq!(value(&attributes, 10), Some(&5_000_000_i64.to_ne_bytes()[..]));
        assert_eq!(value(&attributes, 11), Some(&1_500_000_i64.to_ne_bytes()[..]));
        assert_eq!(value(&attributes, 14), Some(&7_u64.to_ne_bytes()[..]));
        let reorder = Body::default().u32(u32::MAX / 2).u32(0);
        assert_eq!(value(&attributes, 3), Some(&reorder.0[..]));
        let rate = Body::default().u32(6_750_000).u32(14).u32(0).u32(0);
        assert_eq!(value(&attributes, 6), Some(&rate.0[..]));
        assert_eq!(value(&attributes, 8), Some(&6_750_000_u64.to_ne_bytes()[..]));
        assert_eq!(value(&attributes, 5), None);
    }

    #[test]
    fn netem_loses_in_bursts_by_gilberts_model_and_has_only_what_was_asked_for() {
        let netem = Netem {
            limit_packets: 1000,
            loss: (0.25, Some(0.05)),
            ..Netem::default()
        };
        let (numbers, attributes) = read(&netem_options(&netem));
        assert_eq!(numbers, [0, 1000, 0, 0, 0, 0]);
        // Nested: length, kind 2, chances that a burst begins and ends, none survives it, none is lost outside.
        let model = Body::default().u32(u32::MAX / 4).u32(214_748_364).u32(0).u32(0);
        let nested = Body::default().attribute(2, &model.0);
        assert_eq!(value(&attributes, 5), Some(&nested.0[..]));
        assert_eq!((value(&attributes, 3), value(&attributes, 6)), (None, None));
    }
}
