//! Errors of requests as one clause each, without secrets.

use crate::secrets::hide;
use object_store::Error;
use std::{error::Error as _, io};

/// Longest clause of another library that is repeated.
const CLAUSE_LETTERS_MAX: usize = 240;

/// What a service calls its errors, and what they mean for a user.
const CODES: [(&str, io::ErrorKind, &str); 15] = [
    ("NoSuchBucket", io::ErrorKind::NotFound, "there is no such bucket"),
    ("NoSuchKey", io::ErrorKind::NotFound, "there is no such object"),
    (
        "NoSuchUpload",
        io::ErrorKind::NotFound,
        "the service does not know this upload any more",
    ),
    (
        "InvalidAccessKeyId",
        io::ErrorKind::PermissionDenied,
        "the service does not know this access key",
    ),
    (
        "SignatureDoesNotMatch",
        io::ErrorKind::PermissionDenied,
        "the secret key does not fit the access key",
    ),
    (
        "InvalidToken",
        io::ErrorKind::PermissionDenied,
        "the session's token is not valid",
    ),
    (
        "ExpiredToken",
        io::ErrorKind::PermissionDenied,
        "the credentials have expired",
    ),
    (
        "TokenRefreshRequired",
        io::ErrorKind::PermissionDenied,
        "the credentials have expired",
    ),
    (
        "RequestTimeTooSkewed",
        io::ErrorKind::PermissionDenied,
        "the clock of this computer differs too much from the service's: set it, then try again",
    ),
    (
        "AuthorizationHeaderMalformed",
        io::ErrorKind::InvalidInput,
        "the bucket is in another region than AWS_REGION names",
    ),
    (
        "PermanentRedirect",
        io::ErrorKind::InvalidInput,
        "the bucket is in another region than AWS_REGION names",
    ),
    (
        "IllegalLocationConstraintException",
        io::ErrorKind::InvalidInput,
        "the bucket is in another region than AWS_REGION names",
    ),
    (
        "AccessDenied",
        io::ErrorKind::PermissionDenied,
        "the service denies access with these credentials",
    ),
    (
        "BadDigest",
        io::ErrorKind::InvalidData,
        "the service received other bytes than were sent",
    ),
    (
        "XAmzContentSHA256Mismatch",
        io::ErrorKind::InvalidData,
        "the service received other bytes than were sent",
    ),
];

/// That an object is not the one that was opened.
pub(crate) fn replaced() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "it was replaced while it was read (its ETag is another one): read it again",
    )
}

/// An error of a request.
pub(crate) fn of_request(error: &Error) -> io::Error {
    let text = hide(&error.to_string());
    if let Some((_, kind, what)) = CODES
        .iter()
        .find(|(code, ..)| text.contains(&format!("<Code>{code}<")))
    {
        return io::Error::new(*kind, *what);
    }
    let all = chain(error);
    match error {
        Error::NotFound { .. } => io::Error::new(io::ErrorKind::NotFound, "there is no such object"),
        Error::Precondition { .. } => replaced(),
        Error::PermissionDenied { .. } => io::Error::new(
            io::ErrorKind::PermissionDenied,
            "the service denies access with these credentials",
        ),
        Error::Unauthenticated { .. } => io::Error::new(
            io::ErrorKind::PermissionDenied,
            "the service asks for credentials, or does not accept these",
        ),
        Error::NotSupported { .. } if all.contains("Range") => io::Error::new(
            io::ErrorKind::Unsupported,
            "the server does not send parts of files, which reading in place needs",
        ),
        _ if all.contains("without LOCATION") => io::Error::new(
            io::ErrorKind::InvalidInput,
            "the bucket is in another region than AWS_REGION names",
        ),
        _ if all.contains("416") && all.contains("Range") => {
            io::Error::new(io::ErrorKind::UnexpectedEof, "it is shorter than it was")
        }
        _ => io::Error::other(format!("the service cannot be used: {}", innermost(error))),
    }
}

/// All errors of a chain in one text, without secrets.
fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(inner) = next {
        text.push_str("; ");
        text.push_str(&inner.to_string());
        next = inner.source();
    }
    hide(&text)
}

/// The innermost cause as one line without secrets.
pub(crate) fn innermost(error: &Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(inner) = next {
        let own = inner.to_string();
        if !own.is_empty() {
            text = own;
        }
        next = inner.source();
    }
    let line = hide(&text).split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(CLAUSE_LETTERS_MAX) {
        Some((end, _)) => format!("{} ...", &line[..end]),
        None => line,
    }
}

/// The same error once more: those of the system cannot be cloned.
pub(crate) fn again(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_what_it_means_and_has_no_secret() {
        crate::secrets::keep("the-secret-of-this-test");
        let generic = |text: &str| Error::Generic {
            store: "S3",
            source: text.to_owned().into(),
        };
        let of = |text: &str| of_request(&generic(text));
        assert_eq!(
            of("403: <Error><Code>RequestTimeTooSkewed</Code>").kind(),
            io::ErrorKind::PermissionDenied
        );
        assert!(
            of("<Code>NoSuchBucket</Code>")
                .to_string()
                .contains("no such bucket")
        );
        let other = of("tried with the-secret-of-this-test at http://a:b@host/x?sig=1").to_string();
        assert!(
            !other.contains("the-secret") && !other.contains("sig") && !other.contains("a:b"),
            "{other}"
        );
    }
}
