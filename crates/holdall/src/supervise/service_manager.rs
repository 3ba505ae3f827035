//! Tells systemd how the recording goes: started, alive, ending, and a line of status (the protocol of `sd_notify`).

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
    /// How often it wants to hear that the service is alive; half of what it allows.
    watchdog: Option<Duration>,
    next_alive: Duration,
}

impl ServiceManager {
    /// The one that the environment names; `None` when there is none. `variable` reads one of the environment's variables.
    ///
    /// # Errors
    /// When its socket cannot be reached.
    pub fn from_environment(variable: impl Fn(&str) -> Option<OsString>) -> io::Result<Option<Self>> {
        let Some(name) = variable("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Ok(None);
        };
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&address(&name)?)?;
        // A manager that does not read must not hold up the recording.
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

    fn tell(&self, state: &str) {
        if let Err(error) = self.socket.send(state.as_bytes()) {
            tracing::debug!("the service manager was not told {state:?}: {error}");
        }
    }

    /// The service has begun to do its work.
    pub fn ready(&mut self) {
        self.tell("READY=1");
    }

    /// The service is ending.
    pub fn stopping(&mut self) {
        self.tell("STOPPING=1");
    }

    /// The service makes progress; told as often as the manager wants.
    pub fn alive(&mut self, now: Duration) {
        if let Some(interval) = self.watchdog
            && now >= self.next_alive
        {
            self.next_alive = now + interval;
            self.tell("WATCHDOG=1");
        }
    }

    /// One line about how it goes.
    pub fn status(&mut self, line: &str) {
        self.tell(&format!("STATUS={line}"));
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
    fn without_a_manager_there_is_nobody_to_tell() {
        assert!(ServiceManager::from_environment(|_| None).unwrap().is_none());
        let gone = |name: &str| (name == "NOTIFY_SOCKET").then(|| "/nowhere/notify".into());
        assert!(ServiceManager::from_environment(gone).is_err());
    }
}
