//! The baselines: datagrams and a stream, without any middleware.

use super::{
    WorkerPlan,
    link::{Inlet, Outlet},
    subscribe::Received,
};
use holdall_io::clock::{Clock, SystemClock};
use rustix::net::sockopt::set_socket_recv_buffer_size;
use std::{
    collections::BTreeMap,
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    ops::Range,
    sync::mpsc::{self, Receiver},
    thread,
    time::Duration,
};

/// The datagram that fills an Ethernet packet.
const DATAGRAM_BYTES: usize = 1472;
/// Before the content of each datagram: number of the message, place in it.
const CHUNK_HEAD_BYTES: usize = 16;
const CHUNK_BYTES: usize = DATAGRAM_BYTES - CHUNK_HEAD_BYTES;
/// Most messages with missing datagrams; older ones are given up.
const INCOMPLETE_MAX: usize = 16;
/// Requested size; the system's limit may be lower.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;
/// How long a subscriber waits for datagrams before it looks for orders.
const WAIT: Duration = Duration::from_millis(20);

/// Datagrams to one address.
pub(super) struct UdpOutlet {
    socket: UdpSocket,
    number: Range<usize>,
    datagram: Vec<u8>,
}

impl UdpOutlet {
    pub(super) fn new(to: SocketAddr, plan: &WorkerPlan) -> io::Result<Self> {
        let socket = UdpSocket::bind(any_of(to))?;
        socket.connect(to)?;
        Ok(Self {
            socket,
            number: plan.number(),
            datagram: Vec::with_capacity(DATAGRAM_BYTES),
        })
    }
}

fn any_of(to: SocketAddr) -> SocketAddr {
    match to {
        SocketAddr::V4(_) => SocketAddr::from(([0; 4], 0)),
        SocketAddr::V6(_) => SocketAddr::from(([0_u16; 8], 0)),
    }
}

impl Outlet for UdpOutlet {
    fn send(&mut self, message: &[u8]) -> bool {
        let number = &message[self.number.clone()];
        for (place, chunk) in (0_u64..).zip(message.chunks(CHUNK_BYTES)) {
            self.datagram.clear();
            self.datagram.extend_from_slice(number);
            self.datagram.extend_from_slice(&place.to_le_bytes());
            self.datagram.extend_from_slice(chunk);
            if self.socket.send(&self.datagram).is_err() {
                return false;
            }
        }
        true
    }

    fn matched(&mut self) -> usize {
        1
    }
}

/// Puts datagrams together.
pub(super) struct UdpInlet {
    socket: UdpSocket,
    received: Received,
    /// Datagrams of a message.
    chunks: u64,
    /// How many of a message have arrived.
    incomplete: BTreeMap<u64, u64>,
    datagram: Vec<u8>,
}

impl UdpInlet {
    pub(super) fn new(at: SocketAddr, plan: &WorkerPlan, received: Received) -> io::Result<Self> {
        let socket = UdpSocket::bind(at)?;
        socket.set_read_timeout(Some(WAIT))?;
        set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER_BYTES)?;
        Ok(Self {
            socket,
            received,
            chunks: plan.shape.message(plan.bytes).len().div_ceil(CHUNK_BYTES) as u64,
            incomplete: BTreeMap::new(),
            datagram: vec![0; DATAGRAM_BYTES],
        })
    }
}

impl Inlet for UdpInlet {
    fn received(&self) -> &Received {
        &self.received
    }

    fn matched(&mut self) -> usize {
        1
    }

    fn pump(&mut self) -> io::Result<bool> {
        let length = match self.socket.recv(&mut self.datagram) {
            Ok(length) => length,
            Err(error) if is_timeout(&error) => return Ok(true),
            Err(error) => return Err(error),
        };
        let Some(number) = self.datagram[..length].first_chunk::<8>() else {
            return Ok(true);
        };
        let number = u64::from_le_bytes(*number);
        let arrived = self.incomplete.entry(number).or_insert(0);
        *arrived += 1;
        if *arrived == self.chunks {
            self.incomplete.remove(&number);
            self.received.note_number(number);
        }
        while self.incomplete.len() > INCOMPLETE_MAX {
            self.incomplete.pop_first();
        }
        Ok(true)
    }

    fn pause(&self) -> Duration {
        Duration::ZERO
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}

/// A stream to one address. A thread connects, as soon as somebody listens: a lossy link loses the first packets, too, and a schedule does not
/// wait for that.
pub(super) struct TcpOutlet {
    connecting: Receiver<TcpStream>,
    stream: Option<TcpStream>,
}

impl TcpOutlet {
    pub(super) fn new(to: SocketAddr) -> io::Result<Self> {
        const AGAIN: Duration = Duration::from_millis(20);
        let (send, connecting) = mpsc::sync_channel(1);
        let connect = move || loop {
            match TcpStream::connect(to) {
                // An error only means that the run has ended.
                Ok(stream) => return drop(send.send(stream)),
                Err(_) => SystemClock.sleep_until(SystemClock.monotonic() + AGAIN),
            }
        };
        thread::Builder::new()
            .name("worker-connect".to_owned())
            .spawn(connect)?;
        Ok(Self {
            connecting,
            stream: None,
        })
    }
}

impl Outlet for TcpOutlet {
    fn send(&mut self, message: &[u8]) -> bool {
        let Some(stream) = &mut self.stream else {
            return false;
        };
        stream.write_all(message).is_ok()
    }

    fn matched(&mut self) -> usize {
        if self.stream.is_none() {
            self.stream = self.connecting.try_recv().ok();
            if let Some(stream) = &self.stream {
                let _slower = stream.set_nodelay(true).is_err();
            }
        }
        usize::from(self.stream.is_some())
    }
}

/// Messages of equal length from one stream.
pub(super) struct TcpInlet {
    listener: TcpListener,
    stream: Option<TcpStream>,
    received: Received,
    message: Vec<u8>,
    filled: usize,
}

impl TcpInlet {
    pub(super) fn new(at: SocketAddr, plan: &WorkerPlan, received: Received) -> io::Result<Self> {
        let listener = TcpListener::bind(at)?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener,
            stream: None,
            received,
            message: plan.shape.message(plan.bytes),
            filled: 0,
        })
    }
}

impl Inlet for TcpInlet {
    fn received(&self) -> &Received {
        &self.received
    }

    fn matched(&mut self) -> usize {
        usize::from(self.stream.is_some())
    }

    fn pump(&mut self) -> io::Result<bool> {
        let Some(stream) = &mut self.stream else {
            if let Ok((stream, _)) = self.listener.accept() {
                stream.set_nonblocking(false)?;
                stream.set_read_timeout(Some(WAIT))?;
                self.stream = Some(stream);
            }
            return Ok(false);
        };
        match stream.read(&mut self.message[self.filled..]) {
            // The publisher has ended.
            Ok(0) => return Ok(false),
            Ok(length) => self.filled += length,
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(error),
        }
        if self.filled == self.message.len() {
            self.filled = 0;
            self.received.note(&self.message);
        }
        Ok(true)
    }

    fn pause(&self) -> Duration {
        WAIT
    }
}
