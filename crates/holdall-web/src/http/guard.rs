//! Who may ask: pages of other sites in the same browser may not, and from other machines only those with the token.

use super::{Method, Refusal, Request};
use holdall_io::random::random_bytes;
use std::{
    fmt::Write,
    io,
    net::{IpAddr, SocketAddr},
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
