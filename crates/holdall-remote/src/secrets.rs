//! Keeps secrets out of texts: passwords and signatures of URLs, and the values of credentials.

use holdall_io::mutex::lock;
use std::{
    collections::{BTreeSet, HashMap},
    sync::{LazyLock, Mutex},
};

/// The replacement for a secret.
const HIDDEN: &str = "***";

/// Shorter values do not count as secrets; they would be replaced inside words.
const SECRET_BYTES_MIN: usize = 8;

/// Variables of the environment with secrets, by parts of their names.
const SECRET_NAMES: [&str; 6] = ["SECRET", "TOKEN", "PASSWORD", "ACCESS_KEY", "SAS", "ACCOUNT_KEY"];

static SECRETS: LazyLock<Mutex<BTreeSet<String>>> = LazyLock::new(|| Mutex::new(of_environment()));

/// Secret parts of URLs, by the URL without them: user and password, and the query with a signature.
static BESIDE: LazyLock<Mutex<HashMap<String, Beside>>> = LazyLock::new(Mutex::default);

/// Parts of a URL that are not shown.
#[derive(Clone, Debug, Default)]
pub(crate) struct Beside {
    /// `user:password`.
    pub user: Option<String>,
    /// The part after the question mark.
    pub query: Option<String>,
}

fn of_environment() -> BTreeSet<String> {
    let is_secret = |name: &str| {
        ["AWS_", "AZURE_", "GOOGLE_"]
            .iter()
            .any(|begin| name.starts_with(begin))
            && SECRET_NAMES.iter().any(|part| name.contains(part))
    };
    let all = crate::environment::variables().iter();
    all.filter(|(name, value)| is_secret(name) && value.len() >= SECRET_BYTES_MIN)
        .map(|(_, value)| value.clone())
        .collect()
}

/// Adds a secret that no text may have.
pub(crate) fn keep(secret: &str) {
    if secret.len() >= SECRET_BYTES_MIN {
        lock(&SECRETS).insert(secret.to_owned());
    }
}

/// A text of another library or service, without secrets: known ones, and the queries and passwords of URLs in it.
pub(crate) fn hide(text: &str) -> String {
    let mut shown = text.to_owned();
    for secret in lock(&SECRETS).iter() {
        if shown.contains(secret.as_str()) {
            shown = shown.replace(secret.as_str(), HIDDEN);
        }
    }
    let is_end = |letter: char| letter.is_whitespace() || matches!(letter, '"' | '\'' | ')' | '<' | '>');
    let mut out = String::with_capacity(shown.len());
    let mut rest = shown.as_str();
    while let Some(at) = rest.find("://") {
        let end = rest[at..].find(is_end).map_or(rest.len(), |end| at + end);
        out.push_str(&rest[..at + 3]);
        out.push_str(&split(&rest[at + 3..end]).0);
        rest = &rest[end..];
    }
    out.push_str(rest);
    out
}

/// The part after `://` without user and query, and those two.
fn split(text: &str) -> (String, Beside) {
    let (place, query) = match text.split_once(['?', '#']) {
        Some((place, query)) => (place, Some(query.to_owned()).filter(|query| !query.is_empty())),
        None => (text, None),
    };
    let host_end = place.find('/').unwrap_or(place.len());
    let (host, path) = place.split_at(host_end);
    let (user, host) = match host.rsplit_once('@') {
        Some((user, host)) => (Some(user.to_owned()), host),
        None => (None, host),
    };
    (format!("{host}{path}"), Beside { user, query })
}

/// A URL without user, password and query, which are kept for its requests. Keys of buckets may have any letter: nothing is split off them.
pub(crate) fn without(url: &str) -> String {
    let Some((scheme @ ("http" | "https"), rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let (place, beside) = split(rest);
    let clean = format!("{scheme}://{place}");
    if beside.user.is_some() || beside.query.is_some() {
        lock(&BESIDE).insert(clean.clone(), beside);
    }
    clean
}

/// The parts of a URL that are not shown.
pub(crate) fn beside(url: &str) -> Option<Beside> {
    lock(&BESIDE).get(url).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_has_a_secret() {
        keep("wJalrXUtnFEMI/K7MDENG");
        let text = "GET https://me:pass@host:80/a/b?X-Amz-Signature=0123abc failed (key wJalrXUtnFEMI/K7MDENG) at https://host/c.";
        assert_eq!(
            hide(text),
            "GET https://host:80/a/b failed (key ***) at https://host/c."
        );
    }

    #[test]
    fn a_signed_url_is_shown_without_its_signature_and_keeps_it() {
        let clean = without("https://me:pass@host/a.mcap?sig=abc&x=1");
        assert_eq!(clean, "https://host/a.mcap");
        let beside = beside(&clean).unwrap();
        assert_eq!(
            (beside.user.as_deref(), beside.query.as_deref()),
            (Some("me:pass"), Some("sig=abc&x=1"))
        );
        assert_eq!(without("s3://bucket/what?.mcap"), "s3://bucket/what?.mcap");
    }
}
