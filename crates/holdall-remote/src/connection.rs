//! Connections that never leak to a second server what was meant for the first: neither in `Referer`, which contains the signature of a link,
//! nor in headers with credentials.

use object_store::{
    ClientConfigKey, ClientOptions,
    client::{HttpClient, HttpConnector},
};
use reqwest::{
    header::{AUTHORIZATION, HeaderValue},
    redirect::{Attempt, Policy},
};
use std::{fmt, io, sync::Once, time::Duration};

/// How long a connection may take to open.
pub(crate) const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
/// How long a request may take with its content; a part of an upload over a slow line takes minutes.
pub(crate) const REQUEST_TIME_MAX: Duration = Duration::from_secs(180);

/// Call this before creating the first client of this process.
pub(crate) fn choose_cryptography() {
    static PROVIDER: Once = Once::new();
    // Fails when the program has chosen one already, which is as good.
    PROVIDER.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));
}

const REDIRECTS_MAX: usize = 10;

/// Permitted targets of a redirect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Redirects {
    /// Any server: for web pages, since user name and password are not sent to another server.
    Anywhere,
    /// To the same server only: requests to buckets carry credentials in custom headers.
    SameServer,
}

/// Opens connections.
#[derive(Clone)]
pub(crate) struct Connector {
    redirects: Redirects,
    /// Sent to the first server only.
    authorization: Option<HeaderValue>,
}

impl Connector {
    /// A connector for a bucket.
    pub(crate) fn to_bucket() -> Self {
        Self {
            redirects: Redirects::SameServer,
            authorization: None,
        }
    }

    /// A connector for a web server, with the name and password of its URL, written `user:password` as
    /// in the URL.
    ///
    /// # Errors
    /// A name or password that no header can have.
    pub(crate) fn to_web(user: Option<&str>) -> io::Result<Self> {
        let header = |user: &str| {
            choose_cryptography();
            // The library reads them as those of any URL.
            let client = reqwest::Client::builder().build().map_err(io::Error::other)?;
            let request = client.get(format!("http://{user}@localhost/")).build();
            let request = request.map_err(|_| io::ErrorKind::InvalidInput)?;
            Ok::<_, io::Error>(request.headers().get(AUTHORIZATION).cloned())
        };
        Ok(Self {
            redirects: Redirects::Anywhere,
            authorization: user.map(header).transpose()?.flatten(),
        })
    }
}

/// Omits the secret.
impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connector({:?})", self.redirects)
    }
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let is_set = |key| {
            options
                .get_config_value(&key)
                .is_some_and(|value| value == "true")
        };
        // The request for this machine's role waits less.
        let connect_time = options.get_config_value(&ClientConfigKey::ConnectTimeout);
        let connect_time = connect_time
            .and_then(|text| text.strip_suffix('s')?.parse().ok())
            .map_or(CONNECT_TIME_MAX, Duration::from_secs);
        let redirects = self.redirects;
        let own = self
            .authorization
            .iter()
            .map(|value| (AUTHORIZATION, value.clone()));
        let client = reqwest::Client::builder()
            .user_agent(concat!("holdall/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(connect_time)
            .timeout(REQUEST_TIME_MAX)
            .https_only(!is_set(ClientConfigKey::AllowHttp))
            .http1_only()
            .referer(false)
            .default_headers(own.collect())
            .redirect(Policy::custom(move |attempt| follow(redirects, attempt)))
            .build();
        let client = client.map_err(|error| object_store::Error::Generic {
            store: "HTTP",
            source: Box::new(error),
        })?;
        Ok(HttpClient::new(client))
    }
}

fn follow(redirects: Redirects, attempt: Attempt<'_>) -> reqwest::redirect::Action {
    let from = attempt.previous().last();
    let stays = from.is_some_and(|from| from.origin() == attempt.url().origin());
    if attempt.previous().len() > REDIRECTS_MAX {
        attempt.error("too many redirects")
    } else if stays || redirects == Redirects::Anywhere {
        attempt.follow()
    } else {
        attempt.stop()
    }
}

#[cfg(test)]
mod tests {
    use crate::client::Client;
    use holdall_io::remote::Objects;
    use std::{
        io::{BufRead, BufReader, Write},
        net::TcpListener,
        sync::mpsc,
        thread,
    };

    /// A server that answers each request with these lines, and the requests that it received.
    fn server(answer: impl Fn(&str) -> String + Send + 'static) -> (u16, mpsc::Receiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, requests) = mpsc::sync_channel(16);
        thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(mut client) = client else { return };
                let mut head = String::new();
                let mut lines = BufReader::new(client.try_clone().unwrap());
                while lines.read_line(&mut head).unwrap_or(0) > 2 {}
                let _ = client.write_all(answer(&head).as_bytes());
                if sender.send(head).is_err() {
                    return;
                }
            }
        });
        (port, requests)
    }

    #[test]
    fn a_redirect_to_another_server_shows_it_neither_signature_nor_password() {
        let (other, got) = server(|_| {
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nETag: \"a\"\r\nLast-Modified: Wed, 25 Nov 2026 00:00:00 GMT\r\nConnection: close\r\n\r\n"
                .to_owned()
        });
        let (first, asked) = server(move |_| {
            format!(
                "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:{other}/b.mcap\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            )
        });
        let url = format!("http://user:S3cr3tWord@127.0.0.1:{first}/a.mcap?X-Amz-Signature=S3cr3tSignature");
        // The content of the object does not matter.
        let _ = Client::default().object(&crate::secrets::without(&url));
        let first = asked.recv().unwrap();
        // user:S3cr3tWord in base64.
        assert!(
            first.contains("S3cr3tSignature") && first.contains("Basic dXNlcjpTM2NyM3RXb3Jk"),
            "{first}"
        );
        let other = got.recv().unwrap();
        for secret in ["S3cr3t", "dXNlcj", "referer", "authorization", "cookie"] {
            assert!(!other.to_lowercase().contains(&secret.to_lowercase()), "{other}");
        }
    }
}
