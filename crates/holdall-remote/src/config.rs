//! Opens stores with credentials from the same places as the vendors' tools.

use crate::{
    connection::{self, CONNECT_TIME_MAX, Connector, REQUEST_TIME_MAX},
    environment::{self, is_set, variable},
    profile,
    region::{REGION_DEFAULT, RegionConnector},
    secrets::{self, Beside},
    target::{Service, Target},
};
use object_store::{
    ClientOptions, ObjectStore, RetryConfig,
    aws::{AmazonS3Builder, AmazonS3ConfigKey},
    azure::MicrosoftAzureBuilder,
    gcp::GoogleCloudStorageBuilder,
    http::HttpBuilder,
    multipart::MultipartStore,
};
use std::{
    io,
    net::{SocketAddr, TcpStream},
    sync::Arc,
    time::Duration,
};

/// How long a request is tried again.
const RETRY_TIME_MAX: Duration = Duration::from_secs(60);
const TRIES_MAX: usize = 8;

/// Address where an Amazon machine finds its credentials.
const INSTANCE_SERVICE: SocketAddr = SocketAddr::new(
    std::net::IpAddr::V4(std::net::Ipv4Addr::new(169, 254, 169, 254)),
    80,
);
const INSTANCE_TIME_MAX: Duration = Duration::from_secs(1);

/// A store, and how parts are put into it where it has that.
#[derive(Clone, Debug)]
pub(crate) struct Opened {
    pub store: Arc<dyn ObjectStore>,
    pub parts: Option<Parts>,
}

/// A store of parts.
#[derive(Clone)]
pub(crate) struct Parts(pub Arc<dyn MultipartStore>);

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Parts")
    }
}

fn retries() -> RetryConfig {
    RetryConfig {
        max_retries: TRIES_MAX,
        retry_timeout: RETRY_TIME_MAX,
        ..RetryConfig::default()
    }
}

fn client(allow_http: bool) -> ClientOptions {
    connection::choose_cryptography();
    ClientOptions::new()
        .with_connect_timeout(CONNECT_TIME_MAX)
        .with_timeout(REQUEST_TIME_MAX)
        .with_user_agent(http_agent())
        .with_allow_http(allow_http)
}

fn http_agent() -> reqwest::header::HeaderValue {
    reqwest::header::HeaderValue::from_static(concat!("holdall/", env!("CARGO_PKG_VERSION")))
}

/// The store of a place.
///
/// # Errors
/// When its settings are not valid, or credentials are missing.
pub(crate) fn open(target: &Target) -> io::Result<Opened> {
    match target.service {
        Service::S3 => open_s3(target),
        Service::Google => {
            let mut builder = GoogleCloudStorageBuilder::new();
            if let Some(path) = variable("SERVICE_ACCOUNT") {
                builder = builder.with_service_account_path(path);
            }
            for (key, value) in environment::settings("GOOGLE_") {
                builder = builder.with_config(key, value);
            }
            let builder = builder
                .with_bucket_name(&target.bucket)
                .with_retry(retries())
                .with_http_connector(Connector::to_bucket())
                .with_client_options(client(is_set("GOOGLE_ALLOW_HTTP")));
            let store = Arc::new(builder.build().map_err(|error| invalid(&error))?);
            Ok(Opened {
                parts: Some(Parts(Arc::clone(&store) as _)),
                store,
            })
        }
        Service::Azure => {
            let mut builder = MicrosoftAzureBuilder::new();
            for (key, value) in environment::settings("AZURE_") {
                builder = builder.with_config(key, value);
            }
            if let Some(endpoint) = variable("IDENTITY_ENDPOINT") {
                builder = builder.with_msi_endpoint(endpoint);
            }
            let builder = builder
                .with_url(&target.root)
                .with_retry(retries())
                .with_http_connector(Connector::to_bucket())
                .with_client_options(client(is_set("AZURE_ALLOW_HTTP")));
            let store = Arc::new(builder.build().map_err(|error| invalid(&error))?);
            Ok(Opened {
                parts: Some(Parts(Arc::clone(&store) as _)),
                store,
            })
        }
        Service::Web => open_web(target),
    }
}

fn open_web(target: &Target) -> io::Result<Opened> {
    let Beside { user, query } = secrets::beside(&target.url()).unwrap_or_default();
    let (scheme, host) = target.root.split_once("://").unwrap_or(("https", &target.root));
    let connector = Connector::to_web(user.as_deref())?;
    let query = query.map(|query| format!("/?{query}")).unwrap_or_default();
    let builder = HttpBuilder::new()
        .with_url(format!("{scheme}://{host}{query}"))
        .with_retry(retries())
        .with_http_connector(connector)
        .with_client_options(client(scheme == "http"));
    Ok(Opened {
        store: Arc::new(builder.build().map_err(|error| invalid(&error))?),
        parts: None,
    })
}

fn open_s3(target: &Target) -> io::Result<Opened> {
    let mut builder = AmazonS3Builder::new();
    for (key, value) in environment::settings("AWS_") {
        builder = builder.with_config(key, value);
    }
    let mut builder = builder.with_bucket_name(&target.bucket).with_retry(retries());
    let has = |builder: &AmazonS3Builder, key: AmazonS3ConfigKey| {
        builder
            .get_config_value(&key)
            .is_some_and(|value| !value.is_empty())
    };
    let has_own_key = has(&builder, AmazonS3ConfigKey::AccessKeyId);
    let mut allow_http = is_set("AWS_ALLOW_HTTP");
    for (name, value) in profile::settings() {
        let key = match name.as_str() {
            "aws_access_key_id" if !has_own_key => AmazonS3ConfigKey::AccessKeyId,
            "aws_secret_access_key" if !has_own_key => AmazonS3ConfigKey::SecretAccessKey,
            "aws_session_token" if !has_own_key => AmazonS3ConfigKey::Token,
            "region" if !has(&builder, AmazonS3ConfigKey::Region) => AmazonS3ConfigKey::Region,
            "endpoint_url" if !has(&builder, AmazonS3ConfigKey::Endpoint) => AmazonS3ConfigKey::Endpoint,
            _ => continue,
        };
        if matches!(key, AmazonS3ConfigKey::SecretAccessKey | AmazonS3ConfigKey::Token) {
            secrets::keep(&value);
        }
        builder = builder.with_config(key, value);
    }
    // As in the vendor's tools: a service on this computer needs no encryption.
    allow_http |= builder
        .get_config_value(&AmazonS3ConfigKey::Endpoint)
        .is_some_and(|endpoint| {
            ["http://127.0.0.1", "http://localhost", "http://[::1]"]
                .iter()
                .any(|own| endpoint.starts_with(own))
        });
    let others = [
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    ];
    let finds_key = has(&builder, AmazonS3ConfigKey::AccessKeyId)
        || is_set("AWS_SKIP_SIGNATURE")
        || others.iter().any(|name| variable(name).is_some());
    if !finds_key && !is_instance() {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "there are no credentials: neither AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, nor a profile in ~/.aws, nor a role of this machine (a public bucket needs AWS_SKIP_SIGNATURE=true)",
        ));
    }
    let region = builder.get_config_value(&AmazonS3ConfigKey::Region);
    let region = region.unwrap_or_else(|| REGION_DEFAULT.to_owned());
    let builder = builder
        .with_client_options(client(allow_http))
        .with_http_connector(RegionConnector { region });
    let store = Arc::new(builder.build().map_err(|error| invalid(&error))?);
    Ok(Opened {
        parts: Some(Parts(Arc::clone(&store) as _)),
        store,
    })
}

/// Whether this is a machine of Amazon's that may have a role.
fn is_instance() -> bool {
    !is_set("AWS_EC2_METADATA_DISABLED")
        && TcpStream::connect_timeout(&INSTANCE_SERVICE, INSTANCE_TIME_MAX).is_ok()
}

fn invalid(error: &object_store::Error) -> io::Error {
    let reason = secrets::hide(&crate::error::innermost(error));
    io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("its service cannot be used: {reason}"),
    )
}
