//! Accepts TCP clients, a limited number at once, each on a thread of its own.

use holdall_io::clock::{Clock, SystemClock};
use std::{
    io::{self, Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

/// Wait after a client that could not be accepted: the process has no descriptors left, for example.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long a client may leave what it is sent unread.
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
    /// Most clients at once.
    pub clients_max: usize,
    /// Sent to those that are too many.
    pub refusal: &'static [u8],
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
        S: Fn(TcpStream) + Send + Sync + 'static,
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

/// Counts a client as gone when its thread ends, also by a panic.
struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn accept<S>(socket: &TcpListener, ended: &Ended, service: &Arc<Service<S>>)
where
    S: Fn(TcpStream) + Send + Sync + 'static,
{
    let clients = Arc::new(AtomicUsize::new(0));
    for client in socket.incoming() {
        if ended.is_set() {
            return;
        }
        let Ok(client) = client else {
            SystemClock.sleep_until(SystemClock.monotonic() + ACCEPT_PAUSE);
            continue;
        };
        if clients.fetch_add(1, Ordering::SeqCst) >= service.clients_max {
            clients.fetch_sub(1, Ordering::SeqCst);
            refuse(&client, service.refusal);
            continue;
        }
        let (service, counter) = (Arc::clone(service), Arc::clone(&clients));
        let name = format!("{}{}", crate::THREADS, service.thread);
        let run = move || {
            let _counted = Counted(&counter);
            (service.serve)(client);
        };
        if thread::Builder::new().name(name).spawn(run).is_err() {
            clients.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Sends a short answer without waiting, and hangs up.
fn refuse(mut client: &TcpStream, answer: &[u8]) {
    let _ = client.set_nonblocking(true);
    let _ = client.write(answer);
    let _ = client.shutdown(Shutdown::Write);
}

/// Reads from a client that must have sent what is read by a deadline, however slowly it sends.
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
