//! Reads a request: its head by `httparse`, its body by its announced length.

use super::Refusal;
use std::io::{self, Read};

/// Most bytes of a request's first line and headers.
pub(crate) const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Most headers; browsers send some twenty.
const HEADERS_MAX: usize = 64;

/// Most bytes of a body: a marker's name, a list of topics.
pub(crate) const BODY_BYTES_MAX: usize = 64 * 1024;

/// The action of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// Read something.
    Get,
    /// Read something, without its content.
    Head,
    /// Do something.
    Post,
}

/// The first line and the headers that matter here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub method: Method,
    /// Without the query.
    pub path: String,
    /// The part after the `?`; empty without one.
    pub query: String,
    pub host: Option<String>,
    pub origin: Option<String>,
    pub fetch_site: Option<String>,
    pub content_type: Option<String>,
    pub cookie: Option<String>,
    pub authorization: Option<String>,
    content_length: usize,
    pub body: Vec<u8>,
}

impl Request {
    /// The value of a key of the query, unchanged: percent signs are not decoded.
    pub(crate) fn parameter(&self, key: &str) -> Option<&str> {
        let pairs = self.query.split('&').filter_map(|pair| pair.split_once('='));
        pairs
            .into_iter()
            .find_map(|(name, value)| (name == key).then_some(value))
    }
}

/// Text of a query with its percent signs and pluses decoded; `None` if the result is not text.
pub(crate) fn percent_decoded(text: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                let digit = |byte| char::from(byte).to_digit(16);
                u8::try_from(digit(digits[0])? * 16 + digit(digits[1])?).ok()?
            }
            b'+' => b' ',
            byte => byte,
        });
    }
    String::from_utf8(decoded)
        .ok()
        .filter(|text| !text.contains('\0'))
}

/// The request that bytes begin with, and the length of its head; `None` while that is not whole.
pub(crate) fn parse_head(bytes: &[u8]) -> Result<Option<(Request, usize)>, Refusal> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    let len = match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES_MAX => return Ok(None),
        Ok(httparse::Status::Partial) => {
            return Err(Refusal::new(431, "the head of the request is too long"));
        }
        Err(httparse::Error::TooManyHeaders) => {
            return Err(Refusal::new(431, "the request has too many headers"));
        }
        Err(error) => {
            return Err(Refusal::new(
                400,
                &format!("this is not an HTTP request: {error}"),
            ));
        }
    };
    let method = match parsed.method {
        Some("GET") => Method::Get,
        Some("HEAD") => Method::Head,
        Some("POST") => Method::Post,
        _ => return Err(Refusal::new(405, "only GET, HEAD and POST are answered")),
    };
    let target = parsed.path.unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    if !path.starts_with('/') {
        return Err(Refusal::new(400, "the path of the request does not begin with /"));
    }
    let mut request = Request {
        method,
        path: path.to_owned(),
        query: query.to_owned(),
        host: None,
        origin: None,
        fetch_site: None,
        content_type: None,
        cookie: None,
        authorization: None,
        content_length: 0,
        body: Vec::new(),
    };
    for header in parsed.headers.iter() {
        read_header(&mut request, header)?;
    }
    Ok(Some((request, len)))
}

fn read_header(request: &mut Request, header: &httparse::Header<'_>) -> Result<(), Refusal> {
    let place = match header.name.to_ascii_lowercase().as_str() {
        "host" => &mut request.host,
        "origin" => &mut request.origin,
        "sec-fetch-site" => &mut request.fetch_site,
        "content-type" => &mut request.content_type,
        "cookie" => &mut request.cookie,
        "authorization" => &mut request.authorization,
        "transfer-encoding" => {
            return Err(Refusal::new(501, "a body needs a Content-Length"));
        }
        "content-length" => {
            let text = str::from_utf8(header.value).unwrap_or_default();
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let length = text.parse().ok().filter(|_| is_number);
            request.content_length = match length {
                Some(length) if length <= BODY_BYTES_MAX => length,
                Some(_) => return Err(Refusal::new(413, "the body of the request is too long")),
                None if is_number => return Err(Refusal::new(413, "the body of the request is too long")),
                None => return Err(Refusal::new(400, "Content-Length is not a number")),
            };
            return Ok(());
        }
        _ => return Ok(()),
    };
    let Ok(value) = str::from_utf8(header.value) else {
        return Err(Refusal::new(400, "a header is not text"));
    };
    // Two of them would let a check and its use see different ones.
    if place.replace(value.to_owned()).is_some() {
        return Err(Refusal::new(400, "a header is given twice"));
    }
    Ok(())
}

/// Reads a whole request; `None` if the client hangs up before it has sent anything.
pub(crate) fn read_request(from: &mut impl Read) -> Result<Option<Request>, Refusal> {
    let mut bytes = Vec::new();
    let (mut request, head) = loop {
        if let Some(found) = parse_head(&bytes)? {
            break found;
        }
        if read_some(from, &mut bytes, HEAD_BYTES_MAX)? == 0 {
            return if bytes.is_empty() {
                Ok(None)
            } else {
                Err(Refusal::new(400, "the request is not whole"))
            };
        }
    };
    let mut body = bytes.split_off(head);
    while body.len() < request.content_length {
        if read_some(from, &mut body, request.content_length)? == 0 {
            return Err(Refusal::new(400, "the body of the request is not whole"));
        }
    }
    body.truncate(request.content_length);
    request.body = body;
    Ok(Some(request))
}

/// Appends received bytes, up to a length of `most` in all.
fn read_some(from: &mut impl Read, bytes: &mut Vec<u8>, most: usize) -> Result<usize, Refusal> {
    let mut some = [0; 4096];
    let room = most.saturating_sub(bytes.len()).min(some.len());
    loop {
        match from.read(&mut some[..room]) {
            Ok(len) => {
                bytes.extend_from_slice(&some[..len]);
                return Ok(len);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock) => {
                return Err(Refusal::new(408, "the request took too long"));
            }
            Err(_) => return Err(Refusal::new(400, "the request is not whole")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<Option<Request>, u16> {
        read_request(&mut text.as_bytes()).map_err(|refusal| refusal.status)
    }

    #[test]
    fn a_request_has_a_path_a_query_headers_and_a_body() {
        let text = "POST /api/add_marker?a=1&token=xy HTTP/1.1\r\nHost: robot:80\r\nOrigin: http://robot:80\r\ncontent-length: 2\r\n\r\n{}more";
        let request = read(text).unwrap().unwrap();
        assert_eq!(
            (request.method, request.path.as_str()),
            (Method::Post, "/api/add_marker")
        );
        assert_eq!(
            (request.parameter("token"), request.parameter("b")),
            (Some("xy"), None)
        );
        assert_eq!(request.host.as_deref(), Some("robot:80"));
        assert_eq!(request.body, b"{}");
        assert_eq!(read(""), Ok(None));
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let long = format!("GET /{} HTTP/1.1\r\n", "a".repeat(HEAD_BYTES_MAX));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(HEADERS_MAX + 1));
        for (text, status) in [
            ("GET / HTTP/1.1\r\nHost: a", 400),
            ("\x16\x03\x01\x02\0\x01", 400),
            ("DELETE / HTTP/1.1\r\n\r\n", 405),
            ("GET example.org HTTP/1.1\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 501),
            (
                "POST / HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n",
                413,
            ),
            ("POST / HTTP/1.1\r\nContent-Length: 65537\r\n\r\n", 413),
            ("POST / HTTP/1.1\r\nContent-Length: +5\r\n\r\nabcde", 400),
            ("POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nabc", 400),
            (&long, 431),
            (&many, 431),
        ] {
            assert_eq!(read(text), Err(status), "{}", &text[..text.len().min(80)]);
        }
    }

    #[test]
    fn percent_signs_are_decoded_or_refused() {
        assert_eq!(percent_decoded("a%2fb%C3%A4+c").as_deref(), Some("a/bä c"));
        for text in ["%", "%2", "%zz", "%+1", "%00", "%ff"] {
            assert_eq!(percent_decoded(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered_within_the_limits(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            if let Ok(Some(request)) = read_request(&mut bytes.as_slice()) {
                prop_assert!(request.body.len() <= BODY_BYTES_MAX && request.path.starts_with('/'));
            }
        }

        #[test]
        fn pieces_of_any_size_make_the_same_request(size in 1..50_usize) {
            struct Pieces<'a>(&'a [u8], usize);
            impl Read for Pieces<'_> {
                fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
                    let len = self.0.len().min(self.1).min(into.len());
                    into[..len].copy_from_slice(&self.0[..len]);
                    self.0 = &self.0[len..];
                    Ok(len)
                }
            }
            let text = b"POST /a?b HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n0123456789";
            let whole = read_request(&mut &text[..]).unwrap();
            prop_assert_eq!(read_request(&mut Pieces(text, size)).unwrap(), whole);
        }
    }
}
