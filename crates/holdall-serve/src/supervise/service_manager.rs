//! Reports started, alive, stopping, and a status line to systemd (the protocol of `sd_notify`).

use std::{
    ffi::{OsStr, OsString},
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
    time::Duration,
};

/// The socket of a service manager.
#[derive(Debug)]
pub struct ServiceManager {
    socket: UnixDatagram,
    /// Interval of keep-alive messages: half of the watchdog timeout.
    watchdog: Option<Duration>,
    next_alive: Duration,
}

impl ServiceManager {
    /// The service manager that the environment names; `None` without one. `variable` reads an environment
    /// variable.
    ///
    /// # Errors
    /// A socket that cannot be reached.
    pub fn from_environment(variable: impl Fn(&str) -> Option<OsString>) -> io::Result<Option<Self>> {
        let Some(name) = variable("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Ok(None);
        };
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&address(&name)?)?;
        // A service manager that does not read must not delay the recording.
        socket.set_nonblocking(true)?;
        let number = |name: &str| variable(name)?.to_str()?.parse::<u64>().ok();
        let is_meant = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC")
            .filter(|micros| is_meant && *micros > 0)
            .map(|micros| Duration::from_micros(micros) / 2);
        Ok(Some(Self {
            socket,
            watchdog,
            next_alive: Duration::ZERO,
        }))
    }

    fn send(&self, state: &str) {
        if let Err(error) = self.socket.send(state.as_bytes()) {
            tracing::debug!("cannot report {state:?} to the service manager: {error}");
        }
    }

    /// Reports that the service has started its work.
    pub fn ready(&mut self) {
        self.send("READY=1");
    }

    /// Reports that the service is stopping.
    pub fn stopping(&mut self) {
        self.send("STOPPING=1");
    }

    /// Reports that the service makes progress, as often as the service manager requires.
    pub fn alive(&mut self, now: Duration) {
        if let Some(interval) = self.watchdog
            && now >= self.next_alive
        {
            self.next_alive = now + interval;
            self.send("WATCHDOG=1");
        }
    }

    /// Reports a status line.
    pub fn status(&mut self, line: &str) {
        self.send(&format!("STATUS={line}"));
    }
}

fn address(name: &OsStr) -> io::Result<SocketAddr> {
    match name.as_bytes() {
        [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest),
        _ => SocketAddr::from_pathname(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(socket: &UnixDatagram) -> Vec<String> {
        socket.set_nonblocking(true).unwrap();
        let mut buffer = [0; 256];
        std::iter::from_fn(|| {
            let len = socket.recv(&mut buffer).ok()?;
            Some(String::from_utf8_lossy(&buffer[..len]).into_owned())
        })
        .collect()
    }

    #[test]
    fn states_reach_the_managers_socket_and_the_watchdog_is_fed_in_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let listener = UnixDatagram::bind(&path).unwrap();
        let variable = |name: &str| match name {
            "NOTIFY_SOCKET" => Some(path.clone().into_os_string()),
            "WATCHDOG_USEC" => Some("2000000".into()),
            _ => None,
        };
        let mut manager = ServiceManager::from_environment(variable).unwrap().unwrap();
        manager.ready();
        for millis in [0, 400, 900, 1000, 1500, 2000] {
            manager.alive(Duration::from_millis(millis));
        }
        manager.status("5 messages recorded, 0 lost");
        manager.stopping();
        assert_eq!(
            heard(&listener),
            [
                "READY=1",
                "WATCHDOG=1",
                "WATCHDOG=1",
                "WATCHDOG=1",
                "STATUS=5 messages recorded, 0 lost",
                "STOPPING=1"
            ]
        );
    }

    #[test]
    fn without_a_manager_there_is_nothing_to_report_to() {
        assert!(ServiceManager::from_environment(|_| None).unwrap().is_none());
        let gone = |name: &str| (name == "NOTIFY_SOCKET").then(|| "/nowhere/notify".into());
        assert!(ServiceManager::from_environment(gone).is_err());
    }
}
