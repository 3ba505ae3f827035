//! The target of a URL: a service with its bucket, and a key in it.

use object_store::path::Path;
use std::io;
use url::Url;

/// Kinds of services.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Service {
    S3,
    Google,
    Azure,
    Web,
}

/// A place in a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub service: Service,
    /// The URL up to its bucket or host, without an end: `s3://bucket`.
    pub root: String,
    /// The bucket or container; the host of a web server.
    pub bucket: String,
    /// Path of the object, or of a folder.
    pub key: Path,
}

impl Target {
    /// Parses a URL without secrets.
    ///
    /// # Errors
    /// A URL that names no bucket or has an invalid key.
    pub(crate) fn parse(text: &str) -> io::Result<Self> {
        let invalid = |reason: &str| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("it is not the URL of an object: {reason}"),
            )
        };
        let (scheme, rest) = text
            .split_once("://")
            .ok_or_else(|| invalid("it has no scheme"))?;
        let service = match scheme {
            "s3" | "s3a" => Service::S3,
            "gs" => Service::Google,
            "az" | "abfs" | "abfss" => Service::Azure,
            _ => Service::Web,
        };
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() {
            return Err(invalid("it names no bucket"));
        }
        // Keys of buckets are written unchanged; the path of a web page is encoded.
        let key = match service {
            Service::Web => Path::from_url_path(key),
            _ => Path::parse(key.trim_matches('/')),
        };
        Ok(Self {
            service,
            root: format!("{scheme}://{bucket}"),
            bucket: bucket.to_owned(),
            key: key.map_err(|error| invalid(&error.to_string()))?,
        })
    }

    /// The URL of another key of the same bucket.
    pub(crate) fn url_of(&self, key: &Path) -> String {
        match self.service {
            Service::Web => {
                let mut url = self.root.clone();
                if let Ok(mut base) = Url::parse(&self.root) {
                    if let Ok(mut segments) = base.path_segments_mut() {
                        segments
                            .clear()
                            .extend(key.parts().map(|part| part.as_ref().to_owned()));
                    }
                    url = base.to_string();
                }
                url
            }
            _ => format!("{}/{key}", self.root),
        }
    }

    /// The URL of this place.
    pub(crate) fn url(&self) -> String {
        self.url_of(&self.key)
    }

    /// Whether its last name has an extension, as objects have and folders mostly do not.
    pub(crate) fn looks_like_object(&self) -> bool {
        self.key.filename().is_some_and(|name| name.contains('.'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_a_service_a_bucket_and_a_key() {
        let target = Target::parse("s3://fleet/robot 7/run/lab_0.mcap").unwrap();
        assert_eq!((target.service, target.bucket.as_str()), (Service::S3, "fleet"));
        assert_eq!(target.key.as_ref(), "robot 7/run/lab_0.mcap");
        assert_eq!(target.url(), "s3://fleet/robot 7/run/lab_0.mcap");
        assert!(target.looks_like_object());
        let folder = Target::parse("gs://fleet/run/").unwrap();
        assert_eq!(
            (folder.url().as_str(), folder.looks_like_object()),
            ("gs://fleet/run", false)
        );
        assert_eq!(Target::parse("s3://fleet").unwrap().key.as_ref(), "");
        assert!(Target::parse("s3:///key").is_err());
        assert!(Target::parse("s3://bucket/a/../b").is_err());
    }

    #[test]
    fn the_path_of_a_web_page_is_encoded() {
        let target = Target::parse("https://host:8080/a%20b/c.mcap").unwrap();
        assert_eq!(target.key.as_ref(), "a b/c.mcap");
        assert_eq!(target.url(), "https://host:8080/a%20b/c.mcap");
    }
}
