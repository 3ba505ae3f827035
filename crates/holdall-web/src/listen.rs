//! Accepts TCP clients, each on a separate thread: a limited number of authorized ones, and a limited number that are not yet
//! authorized, of which the newest stay.

use holdall_io::{
    clock::{Clock, SystemClock},
    mutex::lock,
};
use std::{
    collections::VecDeque,
    io::{self, Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

/// Wait after a client that could not be accepted: the process has no descriptors left, for example.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Connections that are not yet authorized. A new one over this number ends the oldest: a program's request
/// arrives at once, so that silent connections keep no one out.
const WAITING_MAX: usize = 32;

/// Threads of connections that were ended and that are about to end themselves, and how long a new connection waits for one of them.
const ENDING_MAX: usize = 32;
const ENDING_WITHIN: Duration = Duration::from_secs(1);

/// How long a client may leave sent data unread.
pub(crate) const UNREAD_MAX: Duration = Duration::from_secs(10);

/// Why a server cannot be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WebError {
    /// The port is taken, or not allowed.
    #[error("{what} cannot listen on {address}: {source}")]
    Bind {
        /// Which server.
        what: &'static str,
        /// Where.
        address: SocketAddr,
        /// The cause.
        source: io::Error,
    },
    /// No thread, or no random bytes for the token.
    #[error("{what} cannot be started: {source}")]
    Start {
        /// Which server.
        what: &'static str,
        /// The cause.
        source: io::Error,
    },
}

/// Whether the server has ended; for its threads.
#[derive(Clone, Default)]
pub(crate) struct Ended(Arc<AtomicBool>);

impl Ended {
    /// True from when the server is dropped.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A bound port. Clients wait in the kernel's short queue until [`Listener::serve`] is called; dropped, it accepts none.
pub(crate) struct Listener {
    what: &'static str,
    socket: Arc<TcpListener>,
    address: SocketAddr,
    ended: Ended,
}

/// How clients are served.
pub(crate) struct Service<S> {
    /// Name of the threads.
    pub thread: &'static str,
    /// Most clients that are served at once.
    pub clients_max: usize,
    /// Serves one client.
    pub serve: S,
}

impl Listener {
    /// Binds the port. `what` names the server in errors.
    pub(crate) fn bind(what: &'static str, address: SocketAddr) -> Result<Self, WebError> {
        let failed = |source| WebError::Bind {
            what,
            address,
            source,
        };
        let socket = TcpListener::bind(address).map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        Ok(Self {
            what,
            socket: Arc::new(socket),
            address,
            ended: Ended::default(),
        })
    }

    /// Where it listens, with the port that was free when 0 was requested.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn ended(&self) -> Ended {
        self.ended.clone()
    }

    /// Accepts clients from now on.
    pub(crate) fn serve<S>(&self, service: Service<S>) -> Result<(), WebError>
    where
        S: Fn(&Arc<TcpStream>, &Arrival) + Send + Sync + 'static,
    {
        let (socket, ended) = (Arc::clone(&self.socket), self.ended.clone());
        let run = move || accept(&socket, &ended, &Arc::new(service));
        let thread = thread::Builder::new().name(format!("{}accept", crate::THREADS));
        thread.spawn(run).map_err(|source| WebError::Start {
            what: self.what,
            source,
        })?;
        Ok(())
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.ended.set();
        let reachable = match self.address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
            ip => ip,
        };
        // Wakes the thread that accepts, which then lets go of the port.
        let address = SocketAddr::new(reachable, self.address.port());
        drop(TcpStream::connect_timeout(&address, Duration::from_secs(1)));
    }
}

/// A connection that has not shown yet that it may be served.
struct Waiting {
    number: u64,
    peer: IpAddr,
    client: Arc<TcpStream>,
}

#[derive(Default)]
struct Connections {
    waiting: VecDeque<Waiting>,
    served: usize,
    threads: usize,
    last: u64,
}

/// The connections of a server.
struct Lobby {
    connections: Mutex<Connections>,
    /// A thread has ended.
    ended: Condvar,
    clients_max: usize,
}

impl Lobby {
    /// A new connection; none if too many threads are about to end and do not.
    fn enter(self: &Arc<Self>, client: &Arc<TcpStream>, peer: IpAddr) -> Option<Arrival> {
        let mut connections = lock(&self.connections);
        if connections.waiting.len() >= WAITING_MAX {
            connections.end_one();
        }
        let threads_max = self.clients_max + WAITING_MAX + ENDING_MAX;
        let is_full = |connections: &mut Connections| connections.threads >= threads_max;
        let waited = self.ended.wait_timeout_while(connections, ENDING_WITHIN, is_full);
        let (mut connections, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            return None;
        }
        connections.threads += 1;
        connections.last += 1;
        let number = connections.last;
        connections.waiting.push_back(Waiting {
            number,
            peer,
            client: Arc::clone(client),
        });
        Some(Arrival {
            lobby: Arc::clone(self),
            number,
            is_served: AtomicBool::new(false),
        })
    }
}

impl Connections {
    /// Ends the oldest connection of the peer that has most of them.
    fn end_one(&mut self) {
        let count = |of: IpAddr| self.waiting.iter().filter(|waiting| waiting.peer == of).count();
        let counts = self.waiting.iter().map(|waiting| count(waiting.peer));
        let most = counts.clone().max();
        let at = counts.into_iter().position(|count| Some(count) == most);
        if let Some(ended) = at.and_then(|at| self.waiting.remove(at)) {
            // Wakes its thread.
            let _ = ended.client.shutdown(Shutdown::Both);
        }
    }
}

/// A client that has connected: it waits until it is admitted, and may be ended until then.
pub(crate) struct Arrival {
    lobby: Arc<Lobby>,
    number: u64,
    is_served: AtomicBool,
}

impl Arrival {
    /// Admits a client that may be served; false if too many are, or when it was ended.
    pub(crate) fn admit(&self) -> bool {
        let mut connections = lock(&self.lobby.connections);
        let at = connections
            .waiting
            .iter()
            .position(|waiting| waiting.number == self.number);
        let Some(at) = at.filter(|_| connections.served < self.lobby.clients_max) else {
            return false;
        };
        connections.waiting.remove(at);
        connections.served += 1;
        self.is_served.store(true, Ordering::Relaxed);
        true
    }
}

/// The client is gone when its thread ends, also by a panic.
impl Drop for Arrival {
    fn drop(&mut self) {
        let mut connections = lock(&self.lobby.connections);
        connections.threads -= 1;
        self.lobby.ended.notify_one();
        if self.is_served.load(Ordering::Relaxed) {
            connections.served -= 1;
        } else {
            connections
                .waiting
                .retain(|waiting| waiting.number != self.number);
        }
    }
}

fn accept<S>(socket: &TcpListener, ended: &Ended, service: &Arc<Service<S>>)
where
    S: Fn(&Arc<TcpStream>, &Arrival) + Send + Sync + 'static,
{
    let lobby = Arc::new(Lobby {
        connections: Mutex::default(),
        ended: Condvar::new(),
        clients_max: service.clients_max,
    });
    loop {
        let accepted = socket.accept();
        if ended.is_set() {
            return;
        }
        let Ok((client, peer)) = accepted else {
            SystemClock.sleep_until(SystemClock.monotonic() + ACCEPT_PAUSE);
            continue;
        };
        let client = Arc::new(client);
        let Some(arrival) = lobby.enter(&client, peer.ip().to_canonical()) else {
            continue;
        };
        let service = Arc::clone(service);
        let name = format!("{}{}", crate::THREADS, service.thread);
        let run = move || (service.serve)(&client, &arrival);
        // Without a thread the client is dropped.
        let _ = thread::Builder::new().name(name).spawn(run);
    }
}

/// Reads from a client that must have sent its request by a deadline, however slowly it sends.
pub(crate) struct Timely<'a> {
    client: &'a TcpStream,
    deadline: Duration,
}

impl<'a> Timely<'a> {
    /// The client has `within` from now on.
    pub(crate) fn new(client: &'a TcpStream, within: Duration) -> Self {
        Self {
            client,
            deadline: SystemClock.monotonic() + within,
        }
    }
}

impl<'a> Timely<'a> {
    /// The client has until then, in monotonic time.
    pub(crate) fn until(client: &'a TcpStream, deadline: Duration) -> Self {
        Self { client, deadline }
    }
}

impl Read for Timely<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.saturating_sub(SystemClock.monotonic());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.client.set_read_timeout(Some(left))?;
        self.client.read(into)
    }
}

impl Write for Timely<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.client.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn lobby(clients_max: usize) -> Arc<Lobby> {
        Arc::new(Lobby {
            connections: Mutex::default(),
            ended: Condvar::new(),
            clients_max,
        })
    }

    fn client() -> (Arc<TcpStream>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Arc::new(listener.accept().unwrap().0), far)
    }

    #[test]
    fn a_full_lobby_ends_the_oldest_of_the_peer_that_has_most() {
        let lobby = lobby(2);
        let [few, many] = [1, 2].map(|last| IpAddr::V4(Ipv4Addr::new(192, 0, 2, last)));
        let (first, _far) = client();
        let first = lobby.enter(&first, few).unwrap();
        let others: Vec<_> = (1..WAITING_MAX).map(|_| client()).collect();
        let others: Vec<_> = others
            .iter()
            .map(|(near, far)| (lobby.enter(near, many).unwrap(), far))
            .collect();
        let (newest, _far) = client();
        let newest = lobby.enter(&newest, many).unwrap();
        let (ended, mut far) = (&others[0].0, others[0].1);
        assert_eq!(
            far.read(&mut [0]).unwrap(),
            0,
            "the oldest of the peer with most was ended"
        );
        assert!(!ended.admit() && first.admit() && newest.admit());
        assert!(!others[1].0.admit(), "two are served");
        drop(first);
        assert!(others[1].0.admit(), "a place is free again");
    }
}
