//! Who may ask: pages of other sites in the same browser may not, and from other machines only those with the token.

use super::{Method, Refusal, Request};
use holdall_io::random::random_bytes;
use std::{
    fmt::Write,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
};

/// A secret in a link.
#[derive(Clone)]
pub(crate) struct Token(String);

impl Token {
    pub(crate) fn random() -> io::Result<Self> {
        let mut text = String::new();
        for byte in random_bytes()? {
            // Writing to a string does not fail.
            let _ = write!(text, "{byte:02x}");
        }
        Ok(Self(text))
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// Takes the same time wherever a guess differs.
    pub(crate) fn is(&self, guess: &str) -> bool {
        let differences = self.0.bytes().zip(guess.bytes()).map(|(a, b)| a ^ b);
        self.0.len() == guess.len() && differences.fold(0, |sum, bits| sum | bits) == 0
    }
}

/// What a server requires of requests.
#[derive(Clone)]
pub(crate) struct Guard {
    /// There unless only this machine can connect.
    token: Option<Token>,
    cookie: String,
}

/// What the handshake of a viewer has.
pub(crate) struct ViewerRequest<'a> {
    pub host: Option<&'a str>,
    pub origin: Option<&'a str>,
    pub query: Option<&'a str>,
}

/// Whether a page of this origin is a viewer: Foxglove's, one that a program shows, or one that this machine or an address serves.
fn is_viewer(origin: &str) -> bool {
    let Some((scheme, rest)) = origin.split_once("://") else {
        // What browsers and programs send for a file.
        return origin == "null";
    };
    let host = if rest.starts_with('[') {
        rest.split_inclusive(']').next()
    } else {
        rest.split(':').next()
    };
    let host = host.unwrap_or_default().trim_matches(['[', ']']);
    match scheme {
        "file" | "foxglove" | "lichtblick" => true,
        "http" | "https" => {
            let is_local = host == "localhost" || host.parse::<IpAddr>().is_ok();
            is_local || scheme == "https" && (host == "foxglove.dev" || host.ends_with(".foxglove.dev"))
        }
        _ => false,
    }
}

/// The link to a server, with the token where one is needed.
pub(crate) fn link(scheme: &str, mut address: SocketAddr, guard: &Guard) -> String {
    if address.ip().is_unspecified() {
        address.set_ip(own_address(address));
    }
    let query = guard
        .token()
        .map_or_else(String::new, |token| format!("?token={}", token.text()));
    format!("{scheme}://{address}/{query}")
}

/// The address of this machine that others reach it by: what the kernel would send from. Nothing is sent.
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
    /// For a server that listens here: on a loopback address without a token.
    pub(crate) fn new(address: SocketAddr) -> io::Result<Self> {
        let is_local = address.ip().is_loopback();
        Ok(Self {
            token: (!is_local).then(Token::random).transpose()?,
            // The cookies of a host are those of all its ports.
            cookie: format!("holdall_{}", address.port()),
        })
    }

    pub(crate) fn token(&self) -> Option<&Token> {
        self.token.as_ref()
    }

    /// Refuses what does not come from our own page, from a program, or from the address bar.
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

    /// Refuses pages that are no viewers, and clients without the token where one is needed. Viewers are pages of other sites by nature: those
    /// known, those of this machine or of an address, and programs.
    pub(crate) fn check_viewer(&self, request: &ViewerRequest<'_>) -> Result<(), Refusal> {
        if !self.is_our_host(request.host.unwrap_or_default()) {
            return Err(Refusal::new(
                403,
                "the host of the request is not this machine; use its address, or localhost",
            ));
        }
        if !request.origin.is_none_or(is_viewer) {
            return Err(Refusal::new(403, "this page is not known as a viewer"));
        }
        let pairs = request
            .query
            .unwrap_or_default()
            .split('&')
            .filter_map(|pair| pair.split_once('='));
        let guess = pairs
            .into_iter()
            .find_map(|(name, value)| (name == "token").then_some(value));
        match &self.token {
            Some(token) if !guess.is_some_and(|guess| token.is(guess)) => Err(Refusal::new(
                401,
                "the token is missing or wrong; use the link that holdall has logged at its start",
            )),
            _ => Ok(()),
        }
    }

    /// A page of another site can reach this server under its own name by changing what that name resolves to; not under an address, and
    /// without our token it reaches nothing.
    fn is_our_host(&self, host: &str) -> bool {
        let name = match host.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or(rest),
            None => host.rsplit_once(':').map_or(host, |(name, _)| name),
        };
        self.token.is_some() || name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
    }

    fn has_token(&self, request: &Request) -> bool {
        let Some(token) = &self.token else { return true };
        let bearer = request
            .authorization
            .as_deref()
            .and_then(|text| text.strip_prefix("Bearer "));
        let cookies = request.cookie.as_deref().unwrap_or_default().split(';');
        let mut cookies = cookies.filter_map(|pair| pair.trim().split_once('='));
        let cookie = cookies.find_map(|(name, value)| (name == self.cookie).then_some(value));
        [bearer, cookie, request.parameter("token")]
            .into_iter()
            .flatten()
            .any(|guess| token.is(guess))
    }

    /// The header that lets a browser which has opened the link send the token from then on.
    pub(crate) fn set_cookie(&self) -> String {
        self.token.as_ref().map_or_else(String::new, |token| {
            format!(
                "Set-Cookie: {}={}; HttpOnly; SameSite=Strict; Path=/\r\n",
                self.cookie,
                token.text()
            )
        })
    }
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

    fn guard(address: &str) -> Guard {
        Guard::new(address.parse().unwrap()).unwrap()
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
            let text = format!("{line} HTTP/1.1\r\n{headers}\r\n");
            assert_eq!(answer(&guard, &text), status, "{text}");
        }
    }

    #[test]
    fn viewers_are_pages_of_other_sites_but_not_of_any() {
        let guard = guard("127.0.0.1:8765");
        for (origin, is_allowed) in [
            (None, true),
            (Some("https://app.foxglove.dev"), true),
            (Some("http://localhost:8080"), true),
            (Some("http://192.168.1.5:8080"), true),
            (Some("http://[::1]:8080"), true),
            (Some("file://"), true),
            (Some("null"), true),
            (Some("https://evil.example"), false),
            (Some("http://app.foxglove.dev"), false),
            (Some("https://foxglove.dev.evil.example"), false),
            (Some("https://evilfoxglove.dev"), false),
            (Some("chrome-extension://abc"), false),
        ] {
            let request = ViewerRequest {
                host: Some("127.0.0.1:8765"),
                origin,
                query: None,
            };
            assert_eq!(guard.check_viewer(&request).is_ok(), is_allowed, "{origin:?}");
        }
        let rebound = ViewerRequest {
            host: Some("evil.example"),
            origin: None,
            query: None,
        };
        assert!(guard.check_viewer(&rebound).is_err());
        let remote = self::guard("0.0.0.0:8765");
        let query = format!("token={}", remote.token().unwrap().text());
        for (query, is_allowed) in [
            (None, false),
            (Some("token=0"), false),
            (Some(query.as_str()), true),
        ] {
            let request = ViewerRequest {
                host: Some("robot"),
                origin: None,
                query,
            };
            assert_eq!(remote.check_viewer(&request).is_ok(), is_allowed);
        }
    }

    #[test]
    fn other_machines_need_the_token() {
        let guard = guard("0.0.0.0:8890");
        let token = guard.token().unwrap().text().to_owned();
        let wrong = "0".repeat(token.len());
        for (status, query, headers) in [
            (401, "", String::new()),
            (401, "?token=", String::new()),
            (401, "?token=", format!("Cookie: holdall_8890={wrong}\r\n")),
            (401, "", format!("Cookie: holdall_1={token}\r\n")),
            (200, "", format!("Cookie: a=b; holdall_8890={token}\r\n")),
            (200, "", format!("Authorization: Bearer {token}\r\n")),
        ] {
            let text = format!("GET /api/status{query} HTTP/1.1\r\nHost: robot.local\r\n{headers}\r\n");
            assert_eq!(answer(&guard, &text), status, "{text}");
        }
        let link = format!("GET /?token={token} HTTP/1.1\r\nHost: robot.local\r\n\r\n");
        assert_eq!(answer(&guard, &link), 200);
        assert!(guard.set_cookie().contains(&token));
    }
}
