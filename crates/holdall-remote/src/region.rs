//! Answers of S3 that name the bucket's region, which only a header has: kept as text that an error can show.

use crate::connection::Connector;
use object_store::{
    ClientOptions,
    client::{
        HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
    },
};
use reqwest::StatusCode;
use std::pin::Pin;

/// The region used when none is set.
pub(crate) const REGION_DEFAULT: &str = "us-east-1";

const REGION_HEADER: &str = "x-amz-bucket-region";
const REGION_LETTERS_MAX: usize = 40;

/// Opens connections to S3 with requests for one region.
#[derive(Debug)]
pub(crate) struct RegionConnector {
    pub region: String,
}

impl HttpConnector for RegionConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(RegionService {
            client: Connector::to_bucket().connect(options)?,
            region: self.region.clone(),
        }))
    }
}

#[derive(Debug)]
struct RegionService {
    client: HttpClient,
    region: String,
}

type Answer<'a> = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'a>>;

impl HttpService for RegionService {
    // As `async_trait` writes it.
    fn call<'life0, 'async_trait>(&'life0 self, request: HttpRequest) -> Answer<'async_trait>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(async move { Ok(with_region(self.client.execute(request).await?, &self.region)) })
    }
}

/// The answer. If it refuses the request and names another region, it is replaced by one whose content names the region, too: answers
/// to HEAD have no content, and that of a redirect is not read.
fn with_region(answer: HttpResponse, own: &str) -> HttpResponse {
    let refuses = answer.status().is_redirection() || answer.status() == StatusCode::BAD_REQUEST;
    let named = answer.headers().get(REGION_HEADER);
    match named.and_then(|region| region_in(region.to_str().ok()?)) {
        Some(region) if refuses && region != own => {
            let content = format!("<Error><Code>PermanentRedirect</Code><Region>{region}</Region></Error>");
            let mut answer = HttpResponse::new(HttpResponseBody::from(content));
            *answer.status_mut() = StatusCode::BAD_REQUEST;
            answer
        }
        _ => answer,
    }
}

/// The region that an answer's text names.
pub(crate) fn named_in(text: &str) -> Option<&str> {
    [("<Region>", "<"), ("expecting '", "'")]
        .iter()
        .find_map(|(begin, end)| {
            let (_, rest) = text.split_once(begin)?;
            region_in(rest.split_once(end)?.0)
        })
}

/// A text of others, if it can be a region: nothing else of it is shown.
fn region_in(text: &str) -> Option<&str> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
    (!text.is_empty() && text.len() <= REGION_LETTERS_MAX && text.chars().all(is_part)).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, region: Option<&str>) -> HttpResponse {
        let mut answer = HttpResponse::new(HttpResponseBody::from(String::new()));
        *answer.status_mut() = StatusCode::from_u16(status).unwrap();
        if let Some(region) = region {
            answer
                .headers_mut()
                .insert(REGION_HEADER, region.parse().unwrap());
        }
        answer
    }

    #[test]
    fn a_refusal_gets_the_region_of_its_header_and_other_answers_are_unchanged() {
        let status = |code, region| with_region(answer(code, region), "us-east-1").status().as_u16();
        let has_header = |code, region| {
            with_region(answer(code, region), "us-east-1")
                .headers()
                .contains_key(REGION_HEADER)
        };
        assert_eq!(status(301, Some("eu-west-1")), 400);
        assert_eq!(status(301, None), 301);
        assert!(!has_header(400, Some("eu-west-1")), "it was replaced");
        assert!(has_header(400, Some("us-east-1")), "the region is right");
        for code in [200, 403, 404, 503] {
            assert_eq!(status(code, Some("eu-west-1")), code);
            assert!(has_header(code, Some("eu-west-1")));
        }
        assert_eq!(status(301, Some("<script>")), 301);
    }

    #[test]
    fn only_what_can_be_a_region_is_one() {
        assert_eq!(named_in("<Error><Region>eu-west-1</Region>"), Some("eu-west-1"));
        assert_eq!(
            named_in("'us-east-1' is wrong; expecting 'eu-north-1'"),
            Some("eu-north-1")
        );
        for text in [
            "",
            "<Region></Region>",
            "<Region>a\u{1b}[31m</Region>",
            "<Region>eu west</Region>",
            "<Region>eu",
        ] {
            assert_eq!(named_in(text), None, "{text}");
        }
        assert_eq!(named_in(&format!("<Region>{}</Region>", "a".repeat(41))), None);
    }
}
