//! Where a server listens, as text: a port, or an address and a port.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Where the dashboard listens when no address is given.
pub const DEFAULT_WEB: &str = "127.0.0.1:8890";

/// Why a text is not an address to listen on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not an address to listen on; expected PORT, ADDRESS:PORT or [IPV6]:PORT, for example 127.0.0.1:8890"
)]
pub struct AddressError(String);

/// Reads `8890`, `:8890`, `localhost:8890`, `192.168.1.5:8890` or `[::1]:8890`; without an address the loopback one. Names other than
/// `localhost` are not looked up. Port 0 means any that is free.
///
/// # Errors
/// Any other text.
///
/// ```
/// assert_eq!(holdall_web::parse_address("8890").unwrap().to_string(), "127.0.0.1:8890");
/// assert!(holdall_web::parse_address("/imu").is_err());
/// ```
pub fn parse_address(text: &str) -> Result<SocketAddr, AddressError> {
    let refused = || AddressError(text.to_owned());
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
    // A sign would be read as part of the number.
    if !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(refused());
    }
    let port = port.parse().map_err(|_| refused())?;
    match host {
        "" | "localhost" => Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)),
        "*" => Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port)),
        "::1" => Ok(SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), port)),
        _ => Err(refused()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_on_the_loopback_address() {
        for (text, address) in [
            ("8890", "127.0.0.1:8890"),
            (":8890", "127.0.0.1:8890"),
            ("localhost:1", "127.0.0.1:1"),
            ("0.0.0.0:80", "0.0.0.0:80"),
            ("*:80", "0.0.0.0:80"),
            ("[::1]:0", "[::1]:0"),
        ] {
            assert_eq!(parse_address(text).unwrap().to_string(), address, "{text}");
        }
        for text in [
            "",
            ":",
            "/imu",
            "65536",
            "+80",
            "robot:80",
            "127.0.0.1",
            "1.2.3:80",
            "::1",
        ] {
            assert!(parse_address(text).is_err(), "{text}");
        }
    }
}
