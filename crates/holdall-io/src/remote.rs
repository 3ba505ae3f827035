//! Objects in buckets and on web servers, read through [`crate::fs`] like files; the client that reaches them is another crate's.

use std::{
    borrow::Cow,
    fmt, io,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

/// Schemes of object URLs.
const SCHEMES: [&str; 8] = ["s3", "s3a", "gs", "az", "abfs", "abfss", "http", "https"];

/// Facts about an object, or about a folder of objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectAbout {
    /// Whether it is a folder: a prefix of names, not an object itself.
    pub is_dir: bool,
    /// The object's length.
    pub len_bytes: u64,
    /// The service's tag for this content of the object; `None` if it gives none.
    pub e_tag: Option<String>,
    /// When it was last changed, in nanoseconds since 1970.
    pub modified_ns: Option<i64>,
}

/// One object or folder of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectEntry {
    /// Its URL, without secrets.
    pub url: String,
    /// Facts about it.
    pub about: ObjectAbout,
}

/// An object that is open for reading. All reads are of the same content: one that was replaced since is an error.
pub trait Object: fmt::Debug + Send + Sync {
    /// Its length.
    fn len_bytes(&self) -> u64;

    /// The service's tag for its content.
    fn e_tag(&self) -> Option<&str>;

    /// Reads up to `into.len()` bytes from `offset` on; fewer only at the end.
    ///
    /// # Errors
    /// When they cannot be had, also after further tries.
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Announces that these bytes will be read soon, so that they are requested now.
    fn expect(&self, offset: u64, len_bytes: u64);

    /// Announces that the object will be read from front to back.
    fn expect_sequential(&self);
}

/// A client of the services that have objects. Its calls wait; it may be called from many threads. URLs have no secrets.
pub trait Objects: fmt::Debug + Send + Sync {
    /// Looks up a URL.
    ///
    /// # Errors
    /// When nothing exists there, or the service cannot be reached.
    fn about(&self, url: &str) -> io::Result<ObjectAbout>;

    /// An object as the service reports it now, bypassing everything remembered; `None` if it does not
    /// exist.
    ///
    /// # Errors
    /// When the service cannot be reached.
    fn object(&self, url: &str) -> io::Result<Option<ObjectAbout>>;

    /// Opens an object.
    ///
    /// # Errors
    /// When it is not there or cannot be read.
    fn open(&self, url: &str) -> io::Result<Arc<dyn Object>>;

    /// A small object, whole.
    ///
    /// # Errors
    /// When it is not there, cannot be read or is longer than `bytes_max`.
    fn read(&self, url: &str, bytes_max: u64) -> io::Result<Vec<u8>>;

    /// The objects and folders in a folder, in the order of their names, at most `entries_max`. A folder that does not exist is empty.
    ///
    /// # Errors
    /// When the service cannot list.
    fn list(&self, url: &str, entries_max: usize) -> io::Result<Vec<ObjectEntry>>;

    /// All objects below a URL in the order of their names, until `each` returns false.
    ///
    /// # Errors
    /// When the service cannot list.
    fn list_all(&self, url: &str, each: &mut dyn FnMut(ObjectEntry) -> bool) -> io::Result<()>;

    /// Makes or replaces an object; returns its new `e_tag`.
    ///
    /// # Errors
    /// When the service does not take it.
    fn put(&self, url: &str, bytes: Vec<u8>) -> io::Result<Option<String>>;

    /// Begins an object of several parts; returns the name of this upload.
    ///
    /// # Errors
    /// When the service does not take it.
    fn begin_parts(&self, url: &str) -> io::Result<String>;

    /// Sends a part; returns the tag that [`Self::complete_parts`] needs.
    ///
    /// # Errors
    /// When the service does not take it, or does not know the upload (`NotFound`).
    fn put_part(&self, url: &str, upload: &str, part: usize, bytes: Vec<u8>) -> io::Result<String>;

    /// Makes the object of its parts, in their order; returns its `e_tag`.
    ///
    /// # Errors
    /// As [`Self::put_part`].
    fn complete_parts(&self, url: &str, upload: &str, parts: &[String]) -> io::Result<Option<String>>;

    /// Drops the parts of an upload that will not be completed.
    ///
    /// # Errors
    /// When the service cannot be reached.
    fn abort_parts(&self, url: &str, upload: &str) -> io::Result<()>;

    /// Removes an object.
    ///
    /// # Errors
    /// When the service does not.
    fn remove(&self, url: &str) -> io::Result<()>;

    /// Announces that these objects will probably be opened one after the other, from either end.
    fn expect_in_order(&self, urls: &[&str]);

    /// Forgets everything at and below a URL, so that it is requested again.
    fn forget(&self, url: &str);

    /// The same URL without secrets (a password, a signature), which the client keeps.
    fn without_secrets(&self, url: &str) -> String;
}

static CLIENT: OnceLock<Arc<dyn Objects>> = OnceLock::new();

/// Makes `client` the one that this process uses; the first one stays.
pub fn install(client: Arc<dyn Objects>) {
    let _ = CLIENT.set(client);
}

/// The client of this process.
///
/// # Errors
/// When this process has none.
pub fn client() -> io::Result<&'static Arc<dyn Objects>> {
    CLIENT.get().ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::Unsupported,
            "this build reads local files only: it was made without the feature `remote`",
        )
    })
}

/// Whether a path names an object or a folder of objects.
pub fn is_remote(path: &Path) -> bool {
    url(path).is_some()
}

/// The URL that a path is; `None` for a path of this computer.
pub fn url(path: &Path) -> Option<&str> {
    let text = path.to_str()?;
    let (scheme, rest) = text.split_once("://")?;
    (SCHEMES.contains(&scheme) && !rest.is_empty()).then_some(text)
}

/// The path without secrets, for messages. Other paths are unchanged.
pub fn clean(path: &Path) -> Cow<'_, Path> {
    match (url(path), CLIENT.get()) {
        (Some(url), Some(client)) => Cow::Owned(PathBuf::from(client.without_secrets(url))),
        _ => Cow::Borrowed(path),
    }
}

/// Announces objects that will probably be opened one after the other, from either end, so that the next ones can be requested while one is
/// looked at. Paths of this computer are ignored, and so are a few objects.
pub fn expect_in_order<'a>(paths: impl Iterator<Item = &'a Path>) {
    /// With fewer objects, both ends make up most of the list.
    const OBJECTS_MIN: usize = 4;
    let urls: Vec<&str> = paths.filter_map(url).collect();
    if let (OBJECTS_MIN.., Some(client)) = (urls.len(), CLIENT.get()) {
        client.expect_in_order(&urls);
    }
}

/// Forgets a URL and everything below it.
pub fn forget(path: &Path) {
    if let (Some(url), Some(client)) = (url(path), CLIENT.get()) {
        client.forget(url);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_remote_and_no_path_is() {
        for remote in ["s3://bucket/a", "gs://b", "https://host/x.mcap", "az://c/d"] {
            assert!(is_remote(Path::new(remote)), "{remote}");
            assert!(is_remote(&Path::new(remote).join("metadata.yaml")), "{remote}");
        }
        for local in ["s3:/bucket", "a/s3://b", "file:///x", "s3", "s3://", "-", "C://x"] {
            assert!(!is_remote(Path::new(local)), "{local}");
        }
    }

    #[test]
    fn a_build_without_a_client_says_so() {
        let error = crate::fs::File::open(Path::new("s3://bucket/a.mcap")).unwrap_err();
        assert!(error.to_string().contains("feature `remote`"), "{error}");
    }
}
