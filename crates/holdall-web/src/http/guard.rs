//! Who may ask: only those with the token, on every address, and no pages of other sites in a browser that has it.

use super::{Method, Refusal, Request};
use crate::token::Token;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

/// Requirements of a server for requests.
#[derive(Clone)]
pub(crate) struct Guard {
    token: Token,
    cookie: String,
    /// Only this machine can connect.
    is_local: bool,
}

/// Parts of a viewer's handshake.
pub(crate) struct ViewerRequest<'a> {
    pub host: Option<&'a str>,
    pub origin: Option<&'a str>,
    pub query: Option<&'a str>,
    pub authorization: Option<&'a str>,
}

/// Origins of the viewers that are allowed by default: Foxglove's page, and the desktop programs of Foxglove and Lichtblick, which load their pages from
/// files.
const VIEWERS: [&str; 2] = ["https://app.foxglove.dev", "file://"];

/// The origin of a page that connects to viewers' ports, as browsers send it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewerOrigin(String);

/// Why a text is not an origin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not the origin of a page; expected http://HOST, https://HOST or one with a port, for example http://localhost:8080"
)]
pub struct OriginError(String);

impl std::str::FromStr for ViewerOrigin {
    type Err = OriginError;

    /// Reads the origin of a page: a scheme, a host and a port, with nothing after them but a slash.
    fn from_str(text: &str) -> Result<Self, OriginError> {
        let origin = text.strip_suffix('/').unwrap_or(text).to_ascii_lowercase();
        let is_letter = |letter: char| letter.is_ascii_alphanumeric() || ".-:[]".contains(letter);
        // Desktop programs may have private schemes.
        let is_scheme = |scheme: &str| {
            scheme.starts_with(|letter: char| letter.is_ascii_alphabetic()) && scheme.chars().all(is_letter)
        };
        match origin.split_once("://") {
            Some((scheme, host)) if is_scheme(scheme) && !host.is_empty() && host.chars().all(is_letter) => {
                Ok(Self(origin))
            }
            _ => Err(OriginError(text.to_owned())),
        }
    }
}

/// Whether a page of this origin is a viewer: one that is known, or that the user has named.
fn is_viewer(origin: &str, named: &[ViewerOrigin]) -> bool {
    let is = |known: &str| known.eq_ignore_ascii_case(origin);
    VIEWERS.into_iter().any(is) || named.iter().any(|named| is(&named.0))
}

/// The link to a server, with the token.
pub(crate) fn link(scheme: &str, mut address: SocketAddr, guard: &Guard) -> String {
    if address.ip().is_unspecified() {
        address.set_ip(own_address(address));
    }
    format!("{scheme}://{address}/?token={}", guard.token.text())
}

/// The address of this machine that others reach it by: the one the kernel would send from. Nothing is sent.
fn own_address(unspecified: SocketAddr) -> IpAddr {
    // An address for documentation: any outside of this machine.
    let outside = if unspecified.is_ipv4() {
        "192.0.2.1:9"
    } else {
        "[2001:db8::1]:9"
    };
    let socket = UdpSocket::bind((unspecified.ip(), 0));
    let connected = socket.and_then(|socket| {
        socket.connect(outside)?;
        socket.local_addr()
    });
    connected.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |address| address.ip())
}

impl Guard {
    /// For a server that listens here.
    pub(crate) fn new(address: SocketAddr, token: Token) -> Self {
        Self {
            token,
            // A host's cookies are shared by all its ports.
            cookie: format!("holdall_{}", address.port()),
            is_local: address.ip().is_loopback(),
        }
    }

    /// Refuses requests that do not come from the server's own page, from a program, or from the address bar.
    pub(crate) fn check(&self, request: &Request) -> Result<(), Refusal> {
        let host = request.host.as_deref().unwrap_or_default();
        if !self.is_our_host(host) {
            return Err(Refusal::new(
                403,
                "the host of the request is not this machine; use its address, or localhost",
            ));
        }
        let is_ours = |origin: &str| origin.strip_prefix("http://") == Some(host);
        if request.origin.as_deref().is_some_and(|origin| !is_ours(origin)) {
            return Err(Refusal::new(
                403,
                "requests from pages of other sites are refused",
            ));
        }
        let is_foreign = !matches!(request.fetch_site.as_deref(), None | Some("same-origin" | "none"));
        // A link on another page may lead here; it shows the page and does nothing.
        let is_link = request.method == Method::Get && request.path == "/";
        if is_foreign && !is_link {
            return Err(Refusal::new(
                403,
                "requests from pages of other sites are refused",
            ));
        }
        if !self.has_token(request) {
            return Err(Refusal::new(
                401,
                "the token is missing or wrong; open the link that holdall has logged at its start",
            ));
        }
        // A form of another site cannot send this type.
        let json = request
            .content_type
            .as_deref()
            .map(|kind| kind.split(';').next().unwrap_or(kind).trim());
        if request.method == Method::Post && json != Some("application/json") {
            return Err(Refusal::new(
                415,
                "the Content-Type of a POST must be application/json",
            ));
        }
        Ok(())
    }

    /// Refuses clients without the token, and pages that are not viewers; viewers are always pages of other sites.
    pub(crate) fn check_viewer(
        &self,
        request: &ViewerRequest<'_>,
        named: &[ViewerOrigin],
    ) -> Result<(), Refusal> {
        if !self.is_our_host(request.host.unwrap_or_default()) {
            return Err(Refusal::new(
                403,
                "the host of the request is not this machine; use its address, or localhost",
            ));
        }
        if !request.origin.is_none_or(|origin| is_viewer(origin, named)) {
            return Err(Refusal::new(403, "this page is not known as a viewer"));
        }
        let pairs = request.query.unwrap_or_default().split('&');
        let mut pairs = pairs.filter_map(|pair| pair.split_once('='));
        let in_link = pairs.find_map(|(name, value)| (name == "token").then_some(value));
        let given = [in_link, bearer(request.authorization)];
        if given.into_iter().flatten().any(|guess| self.token.is(guess)) {
            return Ok(());
        }
        Err(Refusal::new(
            401,
            "the token is missing or wrong; use the link that holdall has logged at its start",
        ))
    }

    /// A page of another site can reach this server under its own name by changing what that name resolves to; not under an address. Without
    /// our token it reaches nothing: names of machines that others know are accepted where others can connect.
    fn is_our_host(&self, host: &str) -> bool {
        let name = match host.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or(rest),
            None => host.rsplit_once(':').map_or(host, |(name, _)| name),
        };
        !self.is_local || name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
    }

    fn has_token(&self, request: &Request) -> bool {
        let bearer = bearer(request.authorization.as_deref());
        let cookies = request.cookie.as_deref().unwrap_or_default().split(';');
        let mut cookies = cookies.filter_map(|pair| pair.trim().split_once('='));
        let cookie = cookies.find_map(|(name, value)| (name == self.cookie).then_some(value));
        [bearer, cookie, request.parameter("token")]
            .into_iter()
            .flatten()
            .any(|guess| self.token.is(guess))
    }

    /// The header that lets a browser which has opened the link send the token from then on.
    pub(crate) fn set_cookie(&self) -> String {
        format!(
            "Set-Cookie: {}={}; HttpOnly; SameSite=Strict; Path=/\r\n",
            self.cookie,
            self.token.text()
        )
    }
}

fn bearer(authorization: Option<&str>) -> Option<&str> {
    authorization?.strip_prefix("Bearer ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::read_request;

    fn answer(guard: &Guard, text: &str) -> u16 {
        let request = read_request(&mut text.as_bytes()).unwrap().unwrap();
        guard
            .check(&request)
            .map_or_else(|refusal| refusal.status, |()| 200)
    }

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    fn guard(address: &str) -> Guard {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        holdall_io::fs::write_private_new(&path, TOKEN.as_bytes()).unwrap();
        Guard::new(address.parse().unwrap(), Token::kept_in(&path).unwrap())
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        let guard = guard("127.0.0.1:8890");
        for (status, line, headers) in [
            (200, "GET /api/status", "Host: 127.0.0.1:8890\r\n"),
            (200, "GET /api/status", "Host: localhost:9000\r\n"),
            (200, "GET /api/status", "Host: [::1]:8890\r\n"),
            (403, "GET /api/status", ""),
            (403, "GET /", "Host: evil.example:8890\r\n"),
            (403, "GET /", "Host: localhost.evil.example\r\n"),
            (
                403,
                "GET /api/status",
                "Host: 127.0.0.1:8890\r\nOrigin: http://evil.example\r\n",
            ),
            (403, "GET /api/status", "Host: 127.0.0.1:8890\r\nOrigin: null\r\n"),
            (
                403,
                "GET /api/events",
                "Host: 127.0.0.1:8890\r\nSec-Fetch-Site: cross-site\r\n",
            ),
            (
                200,
                "GET /",
                "Host: 127.0.0.1:8890\r\nSec-Fetch-Site: cross-site\r\n",
            ),
            (
                403,
                "POST /",
                "Host: 127.0.0.1:8890\r\nSec-Fetch-Site: same-site\r\nContent-Type: application/json\r\n",
            ),
            (
                415,
                "POST /api/stop",
                "Host: 127.0.0.1:8890\r\nContent-Type: text/plain\r\n",
            ),
            (415, "POST /api/stop", "Host: 127.0.0.1:8890\r\n"),
            (
                403,
                "POST /api/stop",
                "Host: 127.0.0.1:8890\r\nOrigin: http://127.0.0.1:9999\r\nContent-Type: application/json\r\n",
            ),
            (
                200,
                "POST /api/stop",
                "Host: 127.0.0.1:8890\r\nOrigin: http://127.0.0.1:8890\r\nContent-Type: application/json; charset=utf-8\r\n",
            ),
        ] {
            let with_token = format!("{line} HTTP/1.1\r\n{headers}Cookie: holdall_8890={TOKEN}\r\n\r\n");
            assert_eq!(answer(&guard, &with_token), status, "{with_token}");
            let without = format!("{line} HTTP/1.1\r\n{headers}\r\n");
            let refused = if status == 403 { 403 } else { 401 };
            assert_eq!(answer(&guard, &without), refused, "{without}");
        }
    }

    #[test]
    fn viewers_are_pages_that_are_known_by_name() {
        let guard = guard("127.0.0.1:8765");
        let named: ViewerOrigin = "http://Lab.example:8080/".parse().unwrap();
        let query = format!("a=b&token={TOKEN}");
        for (origin, status) in [
            (None, 200),
            (Some("https://app.foxglove.dev"), 200),
            (Some("file://"), 200),
            (Some("http://lab.example:8080"), 200),
            (Some("http://lab.example"), 403),
            (Some("https://lab.example:8080"), 403),
            (Some("http://localhost:8080"), 403),
            (Some("http://127.0.0.1:8080"), 403),
            (Some("http://127.0.0.1:8765"), 403),
            (Some("http://192.168.1.5:8080"), 403),
            (Some("http://[::1]:8080"), 403),
            (Some("http://0x7f000001"), 403),
            (Some("null"), 403),
            (Some(""), 403),
            (Some("file:///home/me/evil.html"), 403),
            (Some("https://evil.example"), 403),
            (Some("http://app.foxglove.dev"), 403),
            (Some("https://app.foxglove.dev:8443"), 403),
            (Some("https://app.foxglove.dev.evil.example"), 403),
            (Some("https://docs.foxglove.dev"), 403),
            (Some("https://evilfoxglove.dev"), 403),
            (Some("foxglove://open"), 403),
            (Some("chrome-extension://abc"), 403),
        ] {
            for (query, with_token) in [
                (None, false),
                (Some("token=0"), false),
                (Some(query.as_str()), true),
            ] {
                let request = ViewerRequest {
                    host: Some("127.0.0.1:8765"),
                    origin,
                    query,
                    authorization: None,
                };
                let found = guard.check_viewer(&request, std::slice::from_ref(&named));
                let found = found.map_or_else(|refusal| refusal.status, |()| 200);
                let expected = if status == 200 && !with_token { 401 } else { status };
                assert_eq!(found, expected, "{origin:?} {query:?}");
            }
        }
        let rebound = ViewerRequest {
            host: Some("evil.example"),
            origin: None,
            query: Some(&query),
            authorization: None,
        };
        assert!(guard.check_viewer(&rebound, &[]).is_err());
        let bearer = format!("Bearer {TOKEN}");
        let program = ViewerRequest {
            host: Some("robot:8765"),
            origin: None,
            query: None,
            authorization: Some(&bearer),
        };
        assert!(self::guard("0.0.0.0:8765").check_viewer(&program, &[]).is_ok());
    }

    #[test]
    fn an_origin_is_a_scheme_and_a_host() {
        for text in [
            "http://localhost:8080",
            "https://lab.example/",
            "http://[::1]:80",
            "app://lichtblick",
        ] {
            assert!(text.parse::<ViewerOrigin>().is_ok(), "{text}");
        }
        for text in [
            "",
            "*",
            "null",
            "localhost:8080",
            "http://",
            "://a",
            "1a://a",
            "http://a/b",
            "http://a b",
            "https://*",
        ] {
            assert!(text.parse::<ViewerOrigin>().is_err(), "{text}");
        }
    }

    #[test]
    fn every_address_needs_the_token() {
        for address in ["0.0.0.0:8890", "127.0.0.1:8890", "[::1]:8890"] {
            let guard = guard(address);
            let wrong = "0".repeat(TOKEN.len());
            for (status, query, headers) in [
                (401, "", String::new()),
                (401, "?token=", String::new()),
                (401, "?token=", format!("Cookie: holdall_8890={wrong}\r\n")),
                (401, "", format!("Cookie: holdall_1={TOKEN}\r\n")),
                (401, "", format!("Authorization: Basic {TOKEN}\r\n")),
                (401, "", format!("Authorization: Bearer {TOKEN}0\r\n")),
                (200, "", format!("Cookie: a=b; holdall_8890={TOKEN}\r\n")),
                (200, "", format!("Authorization: Bearer {TOKEN}\r\n")),
            ] {
                let text = format!("GET /api/status{query} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
                assert_eq!(answer(&guard, &text), status, "{text}");
            }
            let link = format!("GET /?token={TOKEN} HTTP/1.1\r\nHost: localhost\r\n\r\n");
            assert_eq!(answer(&guard, &link), 200);
            assert!(guard.set_cookie().contains(TOKEN));
        }
        let named = format!("GET /?token={TOKEN} HTTP/1.1\r\nHost: robot.local\r\n\r\n");
        assert_eq!(answer(&guard("0.0.0.0:8890"), &named), 200);
        assert_eq!(answer(&guard("127.0.0.1:8890"), &named), 403);
    }
}
