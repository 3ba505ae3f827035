//! The dashboard over real connections: its routes, and clients that are hostile, slow or many.

use super::{watched::WATCHERS_MAX, *};
use serde_json::{Map, Value, json};
use std::{
    io::{Read, Write},
    sync::Mutex,
    time::Duration,
};
/// A subject that counts, and keeps the requests that it got.
#[derive(Default)]
struct Subjected(Mutex<Vec<String>>);

impl Requests for Subjected {
    fn names(&self) -> &'static [&'static str] {
        &["status", "metrics", "toggle_paused", "add_marker", "stop"]
    }

    fn execute(&self, name: &str, request: &Value) -> Value {
        match name {
            "status" => {
                let topics: Map<String, Value> = [(
                    "/imu".to_owned(),
                    json!({"received": 5, "bytes": 50, "publishers": 1, "lost": {}}),
                )]
                .into_iter()
                .collect();
                json!({"ok": true, "status": {"recorded": 5, "recorded_bytes": 50, "paused": false, "topics": topics}})
            }
            "metrics" => json!({"ok": true, "metrics": "# EOF\n"}),
            "add_marker" if request.get("name").is_none() => {
                json!({"ok": false, "error": "add_marker needs a text"})
            }
            _ => {
                holdall_io::mutex::lock(&self.0).push(format!("{name} {request}"));
                json!({"ok": true})
            }
        }
    }
}

fn served(address: &str) -> (Dashboard, Arc<Subjected>) {
    let dashboard = Dashboard::bind(address.parse().unwrap(), Token::random().unwrap()).unwrap();
    let subject = Arc::new(Subjected::default());
    let requests = Arc::clone(&subject) as Arc<dyn Requests>;
    dashboard
        .serve(Subject {
            kind: "recording",
            requests,
            viewers: None,
            live: None,
        })
        .unwrap();
    (dashboard, subject)
}

fn connect(dashboard: &Dashboard) -> TcpStream {
    let client = TcpStream::connect(dashboard.listener.address()).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    client
}

/// The whole answer to a request.
fn answer(dashboard: &Dashboard, request: &[u8]) -> String {
    let mut client = connect(dashboard);
    // One that refuses early may hang up before all was sent.
    let _ = client.write_all(request);
    let mut text = Vec::new();
    let _ = client.read_to_end(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// The header that programs send.
fn bearer(dashboard: &Dashboard) -> String {
    let link = dashboard.link();
    let (_, token) = link.split_once("?token=").unwrap();
    format!("Authorization: Bearer {token}\r\n")
}

fn get(dashboard: &Dashboard, path: &str) -> String {
    let bearer = bearer(dashboard);
    answer(
        dashboard,
        format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{bearer}\r\n").as_bytes(),
    )
}

fn post(dashboard: &Dashboard, path: &str, body: &str) -> String {
    let length = body.len();
    let bearer = bearer(dashboard);
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\n{bearer}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    );
    answer(dashboard, format!("{head}{body}").as_bytes())
}

#[test]
fn the_page_loads_nothing_from_elsewhere_and_is_small() {
    assert!(PAGE.len() < 150 * 1024);
    for (at, _) in PAGE.match_indices("//") {
        let rest = &PAGE[at..PAGE.len().min(at + 20)];
        let is_name = rest.starts_with("//www.w3.org/2000/svg".get(..20).unwrap_or_default());
        let is_comment = rest.starts_with("// ");
        assert!(is_name || is_comment, "{rest}");
    }
    let (dashboard, _) = served("127.0.0.1:0");
    let text = get(&dashboard, "/");
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    assert!(text.contains("Content-Security-Policy: default-src 'none'") && !text.contains("NONCE"));
}

#[test]
fn state_metrics_and_requests_have_their_routes() {
    let (dashboard, subject) = served("127.0.0.1:0");
    for (path, expected) in [
        ("/api/status", "\"/imu\":{\"age_s\":"),
        ("/api/history", "\"topics\":{\"/imu\":["),
        ("/metrics", "# EOF"),
    ] {
        let text = get(&dashboard, path);
        assert!(
            text.starts_with("HTTP/1.1 200 OK\r\n") && text.contains(expected),
            "{text}"
        );
    }
    for (path, body, status) in [
        ("/api/toggle_paused", "", 200),
        ("/api/add_marker", "{\"name\": \"door\"}", 200),
        ("/api/add_marker", "{}", 409),
        ("/api/add_marker", "[1]", 400),
        ("/api/add_marker", "{", 400),
        ("/api/no_such", "{}", 404),
        ("/", "{}", 404),
    ] {
        let text = post(&dashboard, path, body);
        assert!(
            text.starts_with(&format!("HTTP/1.1 {status} ")),
            "{path} {body}: {text}"
        );
    }
    assert!(get(&dashboard, "/../../etc/passwd").starts_with("HTTP/1.1 404 "));
    let done = holdall_io::mutex::lock(&subject.0).clone();
    assert_eq!(done, ["toggle_paused {}", "add_marker {\"name\":\"door\"}"]);
}

#[test]
fn events_follow_each_other_until_the_server_ends() {
    let (dashboard, _) = served("127.0.0.1:0");
    let mut client = connect(&dashboard);
    let bearer = bearer(&dashboard);
    client
        .write_all(format!("GET /api/events HTTP/1.1\r\nHost: localhost\r\n{bearer}\r\n").as_bytes())
        .unwrap();
    let mut text = String::new();
    let mut some = [0; 4096];
    while text.matches("data: {").count() < 3 {
        let len = client.read(&mut some).unwrap();
        assert!(len > 0, "{text}");
        text.push_str(str::from_utf8(&some[..len]).unwrap());
    }
    assert!(text.contains("Content-Type: text/event-stream"));
    drop(dashboard);
    while client.read(&mut some).unwrap_or(0) > 0 {}
}

#[test]
fn garbage_and_foreign_pages_are_answered_with_a_status_and_do_nothing() {
    let (dashboard, subject) = served("127.0.0.1:0");
    // Each also with the token: a browser may have it as a cookie.
    let with = |headers: &str| {
        let bearer = bearer(&dashboard);
        format!("POST /api/stop HTTP/1.1\r\n{bearer}{headers}\r\n").into_bytes()
    };
    let foreign =
        with("Host: localhost\r\nOrigin: http://evil.example\r\nContent-Type: application/json\r\n");
    let sandboxed = with("Host: localhost\r\nOrigin: null\r\nContent-Type: application/json\r\n");
    let rebound = with("Host: evil.example\r\nContent-Type: application/json\r\n");
    let form = with("Host: localhost\r\nContent-Type: text/plain\r\n");
    let nobody = b"POST /api/stop HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\r\n";
    for (request, status) in [
        (
            &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03garbage\r\n\r\n"[..],
            400,
        ),
        (
            b"POST /api/stop HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1073741824\r\n\r\n",
            413,
        ),
        (&foreign, 403),
        (&sandboxed, 403),
        (&rebound, 403),
        (&form, 415),
        (nobody, 401),
    ] {
        let text = answer(&dashboard, request);
        assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{text}");
    }
    let endless = answer(&dashboard, "a".repeat(200 * 1024).as_bytes());
    assert!(
        endless.is_empty() || endless.starts_with("HTTP/1.1 4"),
        "{endless}"
    );
    assert!(holdall_io::mutex::lock(&subject.0).is_empty());
}

#[test]
fn a_thousand_silent_clients_keep_no_one_out() {
    let (dashboard, _) = served("127.0.0.1:0");
    let mut clients: Vec<TcpStream> = (0..1000)
        .map_while(|_| TcpStream::connect(dashboard.listener.address()).ok())
        .collect();
    assert!(clients.len() > 4 * CLIENTS_MAX);
    // None of them ends; some send a byte of a request now and then.
    for _ in 0..50 {
        for client in clients.iter_mut().rev().take(CLIENTS_MAX) {
            // Those that were ended cannot send.
            let _ = client.write_all(b"G");
        }
        let text = get(&dashboard, "/api/status");
        assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
    }
    drop(clients);
}

#[test]
fn pages_that_stay_open_are_limited() {
    let (dashboard, _) = served("127.0.0.1:0");
    let pages: Vec<TcpStream> = (0..WATCHERS_MAX)
        .map(|_| {
            let mut client = connect(&dashboard);
            let bearer = bearer(&dashboard);
            client
                .write_all(format!("GET /api/events HTTP/1.1\r\nHost: localhost\r\n{bearer}\r\n").as_bytes())
                .unwrap();
            client.read_exact(&mut [0; 15]).unwrap();
            client
        })
        .collect();
    assert!(get(&dashboard, "/api/events").starts_with("HTTP/1.1 503 "));
    assert!(get(&dashboard, "/api/status").starts_with("HTTP/1.1 200 "));
    drop(pages);
}

#[test]
fn a_port_that_is_taken_is_one_sentence() {
    let (dashboard, _) = served("127.0.0.1:0");
    let error = Dashboard::bind(dashboard.listener.address(), Token::random().unwrap())
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.starts_with("the dashboard cannot listen on 127.0.0.1:"),
        "{error}"
    );
}

#[test]
fn every_link_has_a_token_that_opens_it_and_nothing_else_does() {
    for address in ["0.0.0.0:0", "127.0.0.1:0", "[::1]:0"] {
        let (dashboard, subject) = served(address);
        let link = dashboard.link();
        let (_, token) = link.split_once("?token=").unwrap();
        let page = answer(
            &dashboard,
            format!("GET /?token={token} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes(),
        );
        assert!(
            page.starts_with("HTTP/1.1 200 ") && page.contains("Set-Cookie: holdall_"),
            "{}",
            &page[..200]
        );
        for line in [
            "GET /",
            "HEAD /",
            "GET /api/status",
            "GET /api/events",
            "GET /api/history",
            "GET /metrics",
            "POST /api/stop",
            "GET /no_such",
        ] {
            let request = format!(
                "{line} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}"
            );
            let text = answer(&dashboard, request.as_bytes());
            assert!(text.starts_with("HTTP/1.1 401 "), "{address} {line}: {text}");
        }
        assert!(holdall_io::mutex::lock(&subject.0).is_empty());
    }
}
