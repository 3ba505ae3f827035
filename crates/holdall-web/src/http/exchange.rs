//! One request of a client and its answer.

use super::{Guard, Method, Refusal, Request, Response, read_request};
use crate::{
    listen::{Arrival, Timely, UNREAD_MAX},
    token::Token,
};
use holdall::plot::{CHART_SCRIPT, CHART_STYLE};
use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    time::Duration,
};

/// How long a client may take to send its request.
const REQUEST_WITHIN: Duration = Duration::from_secs(5);

/// Most bytes of a request to read after the answer, so that hanging up does not destroy the answer.
const UNREAD_BYTES_MAX: u64 = 256 * 1024;

/// Bytes of a file that are sent at once.
const PIECE_BYTES: usize = 256 * 1024;

/// The style that the pages share; pages name it where it is put in.
const STYLE: &str = include_str!("style.css");

/// The parts that pages name, beside the style: functions, the chart that `holdall plot` has too, and the view of a message.
const PARTS: [(&str, &str); 5] = [
    ("/*CHART-STYLE*/", CHART_STYLE),
    ("/*LOOK-STYLE*/", include_str!("../look.css")),
    ("/*BASICS*/", include_str!("basics.js")),
    ("/*CHART*/", CHART_SCRIPT),
    ("/*LOOK*/", include_str!("../look.js")),
];

/// Reads a request, and lets `answer` send the answer to one that the guard lets pass, if there is a place for its client.
pub(crate) fn exchange(
    client: &TcpStream,
    arrival: &Arrival,
    guard: &Guard,
    answer: impl FnOnce(&Request) -> io::Result<()>,
) -> io::Result<()> {
    client.set_write_timeout(Some(UNREAD_MAX))?;
    client.set_nodelay(true)?;
    let request = match read_request(&mut Timely::new(client, REQUEST_WITHIN)) {
        Ok(Some(request)) => request,
        Ok(None) => return Ok(()),
        Err(refusal) => return send(client, &refusal.into(), true),
    };
    let admitted = guard.check(&request).and_then(|()| match arrival.admit() {
        true => Ok(()),
        false => Err(Refusal::new(503, "too many clients are connected")),
    });
    match admitted {
        Ok(()) => answer(&request),
        Err(refusal) => send(client, &refusal.into(), request.method != Method::Head),
    }
}

/// Sends an answer and ends the connection.
pub(crate) fn send(mut client: &TcpStream, response: &Response<'_>, with_body: bool) -> io::Result<()> {
    response.send(&mut client, with_body)?;
    end(client)
}

/// Sends `body` as an answer of this length, and ends the connection. A shorter one ends it early, which the client notices.
pub(crate) fn send_stream(
    mut client: &TcpStream,
    head: &Response<'_>,
    length: u64,
    mut content: impl Read,
) -> io::Result<()> {
    head.send_head(&mut client, length)?;
    let mut piece = vec![0; PIECE_BYTES];
    let mut left = length;
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
        let len = content.read(&mut piece[..most])?;
        if len == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        client.write_all(&piece[..len])?;
        left -= len as u64;
    }
    end(client)
}

fn end(client: &TcpStream) -> io::Result<()> {
    client.shutdown(Shutdown::Write)?;
    let unread = Timely::new(client, Duration::from_secs(1));
    io::copy(&mut unread.take(UNREAD_BYTES_MAX), &mut io::sink()).map(drop)
}

/// A page; its own style and script may run, and no other. `home` is where its title leads, if anywhere.
pub(crate) fn page(template: &str, home: &str, nonce: &Token, guard: &Guard) -> Response<'static> {
    let nonce = nonce.text();
    let text = template.replace("/*STYLE*/", STYLE);
    let parts = PARTS.iter();
    let text = parts.fold(text, |text, (name, part)| text.replace(name, part));
    let text = text.replace("NONCE", nonce).replace("HOME", home);
    Response {
        headers: format!(
            "Content-Security-Policy: default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
             frame-ancestors 'none'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'\r\n{}",
            guard.set_cookie()
        ),
        ..Response::new("text/html; charset=utf-8", text.into_bytes())
    }
}

/// A request's body as a JSON object; an empty one when there is none.
pub(crate) fn json_body(body: &[u8]) -> Result<serde_json::Value, Refusal> {
    match body {
        [] => Ok(serde_json::json!({})),
        _ => serde_json::from_slice::<serde_json::Value>(body)
            .ok()
            .filter(serde_json::Value::is_object)
            .ok_or_else(|| Refusal::new(400, "the body of the request is not a JSON object")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that a browser gets, of which nothing is loaded from elsewhere.
    #[test]
    fn the_pages_are_small_and_load_nothing() {
        let guard = Guard::new("127.0.0.1:1".parse().unwrap(), Token::random().unwrap());
        let templates = [crate::folder::PAGE, crate::dashboard::PAGE];
        let plot = holdall::plot::Picture::default().page();
        let parts = PARTS.iter().map(|(_, part)| part.len()).sum::<usize>() + STYLE.len();
        let own: usize = templates.iter().map(|template| template.len()).sum();
        let all = own + parts + plot.len() - CHART_SCRIPT.len() - CHART_STYLE.len();
        assert!(all <= 150_000, "{all} bytes of pages");
        let nonce = Token::random().unwrap();
        let pages = templates.map(|template| page(template, "", &nonce, &guard));
        let texts = pages
            .iter()
            .map(|page| String::from_utf8_lossy(&page.body).into_owned());
        for text in texts.chain([plot]) {
            assert!(text.len() < 90_000, "{} bytes of one page", text.len());
            assert!(PARTS.iter().all(|(name, _)| !text.contains(name)));
            let loading = [
                "@import",
                " src=",
                "url(",
                "import(",
                "innerHTML",
                "insertAdjacentHTML",
                "document.write",
            ];
            for loaded in loading {
                assert!(!text.contains(loaded), "{loaded}");
            }
        }
    }
}
