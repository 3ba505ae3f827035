//! Errors of requests as one clause each, without secrets.

use crate::{region, secrets::hide};
use object_store::Error;
use std::{error::Error as _, io};

/// Longest clause of another library that is repeated.
const CLAUSE_LETTERS_MAX: usize = 240;

/// How a request's error ends when the service has refused it and its answer has no text.
const NO_REASON: &str = "400 Bad Request:";

/// The error codes of a service, and their meaning for a user.
const CODES: [(&str, io::ErrorKind, &str); 12] = [
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

/// Error codes of a service for a request to a region other than the bucket's.
const REGION_CODES: [&str; 4] = [
    "AuthorizationHeaderMalformed",
    "PermanentRedirect",
    "TemporaryRedirect",
    "IllegalLocationConstraintException",
];

/// The error for an object that is no longer the one that was opened.
pub(crate) fn replaced() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "it was replaced while it was read (its ETag is another one): read it again",
    )
}

/// An error of a request.
pub(crate) fn of_request(error: &Error) -> io::Error {
    let text = hide(&error.to_string());
    let has_code = |code: &str| text.contains(&format!("<Code>{code}<"));
    if let Some((_, kind, what)) = CODES.iter().find(|(code, ..)| has_code(code)) {
        return io::Error::new(*kind, *what);
    }
    let all = chain(error);
    if REGION_CODES.iter().any(|code| has_code(code)) || all.contains("without LOCATION") {
        return wrong_region(region::named_in(&text));
    }
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
        // The answer to a HEAD request has no text.
        Error::Generic { store: "S3", .. } if all.trim_end().ends_with(NO_REASON) => io::Error::new(
            io::ErrorKind::InvalidInput,
            "the service refuses the request without a reason (400 Bad Request): check AWS_REGION, then the credentials",
        ),
        _ if all.contains("416") && all.contains("Range") => {
            io::Error::new(io::ErrorKind::UnexpectedEof, "it is shorter than it was")
        }
        _ => io::Error::other(format!("the service cannot be used: {}", innermost(error))),
    }
}

/// The error for a bucket in another region, which it names if the service has.
fn wrong_region(named: Option<&str>) -> io::Error {
    let what = match named {
        Some(region) => format!("check AWS_REGION: the service names {region} as the bucket's region"),
        None => "check AWS_REGION: the bucket seems to be in another region".to_owned(),
    };
    io::Error::new(io::ErrorKind::InvalidInput, what)
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

    #[test]
    fn a_wrong_region_names_the_variable_to_check_and_the_region_of_the_answer() {
        crate::secrets::keep("AKIAOFTHISREGION");
        let of = |text: &str| {
            let error = of_request(&Error::Generic {
                store: "S3",
                source: text.to_owned().into(),
            });
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
            error.to_string()
        };
        let malformed = "400 Bad Request: <Error><Code>AuthorizationHeaderMalformed</Code><Message>the region 'us-east-1' of AKIAOFTHISREGION";
        let named = "check AWS_REGION: the service names eu-west-1 as the bucket's region";
        assert_eq!(
            of(&format!("{malformed} is wrong; expecting 'eu-west-1'</Message>")),
            named
        );
        assert_eq!(
            of(&format!("{malformed}</Message><Region>eu-west-1</Region>")),
            named
        );
        let unnamed = "check AWS_REGION: the bucket seems to be in another region";
        for region in [
            "",
            "<Region>eu\u{1b}[2J\n</Region>",
            "<Region>AKIAOFTHISREGION</Region>",
        ] {
            assert_eq!(of(&format!("{malformed}</Message>{region}")), unnamed);
        }
        assert_eq!(
            of("<Code>PermanentRedirect</Code><Endpoint>b.s3.amazonaws.com</Endpoint>"),
            unnamed
        );
        assert_eq!(of("Received redirect without LOCATION, this"), unnamed);
        let no_text = of(
            "Error performing HEAD http://h/b in 2ms - Server returned non-2xx status code: 400 Bad Request: ",
        );
        assert!(
            no_text.contains("AWS_REGION") && !no_text.contains("http"),
            "{no_text}"
        );
    }
}
