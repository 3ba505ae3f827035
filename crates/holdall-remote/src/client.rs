//! The client that `holdall_io` uses: looks up URLs, and opens, lists and puts objects.

use crate::{
    ahead::Ahead,
    error::of_request,
    known::Known,
    object::{self, OpenObject, RemoteObject},
    runtime::{runtime, wait},
    secrets,
    store::Store,
    target::{Service, Target},
};
use futures_util::StreamExt;
use holdall_io::{
    mutex::lock,
    remote::{Object, ObjectAbout, ObjectEntry, Objects},
};
use object_store::{GetOptions, ObjectMeta, PutPayload, multipart::PartId, path::Path};
use std::{
    collections::HashMap,
    io,
    sync::{Arc, Mutex, mpsc::sync_channel},
};

/// The object that a folder with a bag has: it is requested before a listing, because it is needed next.
const BAG_MARK: &str = "metadata.yaml";
const MARK_BYTES_MAX: u64 = 64 << 20;

/// Entries of a listing that wait for their reader.
const LISTED_AHEAD: usize = 1000;

/// A client for all services.
#[derive(Debug, Default)]
pub struct Client {
    /// Stores by the URL up to the bucket; those of web pages by the whole URL, because each may have a signature. With the process that
    /// opened it: connections do not survive a fork.
    stores: Mutex<HashMap<(u32, String), Arc<Store>>>,
    known: Mutex<Known>,
    ahead: Mutex<Ahead>,
}

impl Client {
    fn store(&self, target: &Target) -> io::Result<Arc<Store>> {
        let root = match target.service {
            Service::Web if secrets::beside(&target.url()).is_some() => target.url(),
            _ => target.root.clone(),
        };
        let key = (std::process::id(), root);
        if let Some(store) = lock(&self.stores).get(&key) {
            return Ok(Arc::clone(store));
        }
        // Not while others wait: it may look for a role of this machine.
        let store = Arc::new(Store::open(target)?);
        Ok(Arc::clone(lock(&self.stores).entry(key).or_insert(store)))
    }

    fn open_object(&self, target: &Target) -> io::Result<Arc<RemoteObject>> {
        let url = target.url();
        let step = lock(&self.ahead).opened(&url);
        for next in &step.next {
            self.request_ahead(next);
        }
        if let Some(object) = lock(&self.known).object(&url) {
            return Ok(object);
        }
        // The sender is dropped without an object when the runtime ends.
        let arrived = step.arrives.and_then(|arrives| arrives.recv().ok());
        let object = match arrived {
            Some(arrived) => arrived?,
            None => {
                let (store, key) = (self.store(target)?, target.key.clone());
                Arc::new(wait(object::open(store, key))?)
            }
        };
        lock(&self.known).add_object(&url, &object);
        Ok(object)
    }

    /// Requests an object that will probably be opened soon; opening it reports failures.
    fn request_ahead(&self, url: &str) {
        if lock(&self.known).object(url).is_some() {
            return;
        }
        let Ok(target) = Target::parse(url) else { return };
        let (Ok(store), Ok(runtime)) = (self.store(&target), runtime()) else {
            return;
        };
        if let Some(sender) = lock(&self.ahead).request(url) {
            runtime.spawn(async move {
                // Fails when it is not wanted any more.
                let _ = sender.send(object::open(store, target.key).await.map(Arc::new));
            });
        }
    }

    fn has_anything_below(&self, target: &Target) -> io::Result<bool> {
        if let Some(entries) = lock(&self.known).folder(&target.url()) {
            return Ok(!entries.is_empty());
        }
        let (store, key) = (self.store(target)?, target.key.clone());
        wait(async move {
            let _turn = store.turn().await?;
            let mut listed = store.opened.store.list(Some(&key));
            match listed.next().await {
                None => Ok(false),
                Some(Ok(_)) => Ok(true),
                Some(Err(error)) => Err(of_request(&error)),
            }
        })
    }

    fn has_mark(&self, target: &Target) -> io::Result<bool> {
        let mark = target.url_of(&target.key.clone().join(BAG_MARK));
        match self.read(&mark, MARK_BYTES_MAX) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Finds an object or a folder at a place. The kind that its name suggests is tried first.
    fn find(&self, target: &Target) -> io::Result<ObjectAbout> {
        let folder = || ObjectAbout {
            is_dir: true,
            ..ObjectAbout::default()
        };
        let is_web = target.service == Service::Web;
        if target.looks_like_object() {
            match self.open_object(target) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                opened => return Ok(opened?.about().clone()),
            }
        }
        if self.has_mark(target)? || (!is_web && self.has_anything_below(target)?) {
            return Ok(folder());
        }
        if target.looks_like_object() || target.key.as_ref().is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "nothing has this name"));
        }
        match self.open_object(target) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(io::Error::new(io::ErrorKind::NotFound, "nothing has this name"))
            }
            opened => Ok(opened?.about().clone()),
        }
    }

    fn parts(&self, url: &str) -> io::Result<(Arc<Store>, Path)> {
        let target = Target::parse(url)?;
        let store = self.store(&target)?;
        if store.opened.parts.is_none() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "a web server takes no bags",
            ));
        }
        Ok((store, target.key))
    }
}

/// Runs a request of the multipart interface.
macro_rules! with_parts {
    ($self:ident, $url:expr, |$parts:ident, $key:ident| $request:expr) => {{
        let (store, $key) = $self.parts($url)?;
        wait(async move {
            let _turn = store.turn().await?;
            match &store.opened.parts {
                Some(opened) => {
                    let $parts = &opened.0;
                    $request.await.map_err(|error| of_request(&error))
                }
                None => Err(io::ErrorKind::Unsupported.into()),
            }
        })
    }};
}

fn about_of(meta: &ObjectMeta) -> ObjectAbout {
    ObjectAbout {
        is_dir: false,
        len_bytes: meta.size,
        e_tag: meta.e_tag.clone(),
        modified_ns: meta.last_modified.timestamp_nanos_opt(),
    }
}

impl Objects for Client {
    fn about(&self, url: &str) -> io::Result<ObjectAbout> {
        let target = Target::parse(url)?;
        let url = target.url();
        let known = {
            let known = lock(&self.known);
            match known.object(&url) {
                Some(object) => Some(Some(object.about().clone())),
                None => known.listed(&url),
            }
        };
        match known {
            Some(Some(about)) => Ok(about),
            Some(None) => Err(io::Error::new(io::ErrorKind::NotFound, "nothing has this name")),
            None => self.find(&target),
        }
    }

    fn object(&self, url: &str) -> io::Result<Option<ObjectAbout>> {
        let target = Target::parse(url)?;
        let (store, key) = (self.store(&target)?, target.key.clone());
        match wait(async move { object::head(&store, &key).await }) {
            Ok(about) => Ok(Some(about)),
            // A bucket that does not exist is another matter, but the answer has no text.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn open(&self, url: &str) -> io::Result<Arc<dyn Object>> {
        let object = self.open_object(&Target::parse(url)?)?;
        Ok(Arc::new(OpenObject(object)))
    }

    fn read(&self, url: &str, bytes_max: u64) -> io::Result<Vec<u8>> {
        let target = Target::parse(url)?;
        let url = target.url();
        if let Some(small) = lock(&self.known).small(&url) {
            return Ok(small.to_vec());
        }
        let (store, key) = (self.store(&target)?, target.key.clone());
        let bytes = wait(async move {
            let _turn = store.turn().await?;
            let got = store.opened.store.get_opts(&key, GetOptions::default()).await;
            let got = got.map_err(|error| of_request(&error))?;
            let (len, what) = (got.meta.size, format!("it is larger than {bytes_max} bytes"));
            if len > bytes_max {
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
            }
            let bytes = got.bytes().await.map_err(|error| of_request(&error))?;
            if bytes.len() as u64 != len {
                let what = format!("the service sent {} of {len} bytes", bytes.len());
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
            }
            Ok(bytes)
        })?;
        lock(&self.known).add_small(&url, &bytes);
        Ok(bytes.to_vec())
    }

    fn list(&self, url: &str, entries_max: usize) -> io::Result<Vec<ObjectEntry>> {
        let target = Target::parse(url)?;
        let url = target.url();
        let (known, object) = {
            let known = lock(&self.known);
            (known.folder(&url), known.object(&url))
        };
        if object.is_some() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        if let Some(entries) = known {
            return Ok(entries.iter().take(entries_max).cloned().collect());
        }
        let (store, key) = (self.store(&target)?, target.key.clone());
        let listed = wait(async move {
            let _turn = store.turn().await?;
            let listed = store.opened.store.list_with_delimiter(Some(&key)).await;
            listed.map_err(|error| of_request(&error))
        })?;
        let folders = listed.common_prefixes.iter().map(|key| ObjectEntry {
            url: target.url_of(key),
            about: ObjectAbout {
                is_dir: true,
                ..ObjectAbout::default()
            },
        });
        let objects = listed.objects.iter().map(|meta| ObjectEntry {
            url: target.url_of(&meta.location),
            about: about_of(meta),
        });
        let mut entries: Vec<ObjectEntry> = folders.chain(objects).collect();
        entries.sort_unstable_by(|a, b| a.url.cmp(&b.url));
        let entries = Arc::new(entries);
        lock(&self.known).add_folder(&url, &entries);
        Ok(entries.iter().take(entries_max).cloned().collect())
    }

    fn list_all(&self, url: &str, each: &mut dyn FnMut(ObjectEntry) -> bool) -> io::Result<()> {
        let target = Target::parse(url)?;
        let (store, key) = (self.store(&target)?, target.key.clone());
        let (sender, receiver) = sync_channel(LISTED_AHEAD);
        let task = runtime()?.spawn(async move {
            let mut listed = store.opened.store.list(Some(&key));
            while let Some(found) = listed.next().await {
                let is_last = found.is_err();
                // Waits for a slow reader on this thread; the other one serves the requests that the reader may make.
                let sent = tokio::task::block_in_place(|| sender.send(found));
                if sent.is_err() || is_last {
                    return;
                }
            }
        });
        let mut outcome = Ok(());
        for found in &receiver {
            match found {
                Ok(meta) => {
                    let entry = ObjectEntry {
                        url: target.url_of(&meta.location),
                        about: about_of(&meta),
                    };
                    if !each(entry) {
                        break;
                    }
                }
                Err(error) => outcome = Err(of_request(&error)),
            }
        }
        drop(receiver);
        task.abort();
        outcome
    }

    fn put(&self, url: &str, bytes: Vec<u8>) -> io::Result<Option<String>> {
        let target = Target::parse(url)?;
        let (store, key) = (self.store(&target)?, target.key.clone());
        let put = wait(async move {
            let _turn = store.turn().await?;
            let payload = PutPayload::from(bytes);
            let put = store
                .opened
                .store
                .put_opts(&key, payload, Default::default())
                .await;
            put.map_err(|error| of_request(&error))
        })?;
        self.forget(url);
        Ok(put.e_tag)
    }

    fn begin_parts(&self, url: &str) -> io::Result<String> {
        with_parts!(self, url, |parts, key| parts.create_multipart(&key))
    }

    fn put_part(&self, url: &str, upload: &str, part: usize, bytes: Vec<u8>) -> io::Result<String> {
        let upload = upload.to_owned();
        let put = with_parts!(self, url, |parts, key| parts.put_part(
            &key,
            &upload,
            part,
            PutPayload::from(bytes)
        ))?;
        Ok(put.content_id)
    }

    fn complete_parts(&self, url: &str, upload: &str, sent: &[String]) -> io::Result<Option<String>> {
        let upload = upload.to_owned();
        let sent = sent.iter().map(|id| PartId {
            content_id: id.clone(),
        });
        let sent: Vec<PartId> = sent.collect();
        let put = with_parts!(self, url, |parts, key| parts
            .complete_multipart(&key, &upload, sent))?;
        self.forget(url);
        Ok(put.e_tag)
    }

    fn abort_parts(&self, url: &str, upload: &str) -> io::Result<()> {
        let upload = upload.to_owned();
        with_parts!(self, url, |parts, key| parts.abort_multipart(&key, &upload))
    }

    fn remove(&self, url: &str) -> io::Result<()> {
        let target = Target::parse(url)?;
        let (store, key) = (self.store(&target)?, target.key.clone());
        let removed = wait(async move {
            let _turn = store.turn().await?;
            let mut removed = store
                .opened
                .store
                .delete_stream(futures_util::stream::iter([Ok(key)]).boxed());
            match removed.next().await {
                Some(Err(error)) => Err(of_request(&error)),
                _ => Ok(()),
            }
        });
        self.forget(url);
        removed
    }

    fn expect_in_order(&self, urls: &[&str]) {
        let parsed = urls
            .iter()
            .map(|url| Target::parse(url).map(|target| target.url()));
        // Advice only: an invalid URL is reported when it is opened.
        if let Ok(urls) = parsed.collect() {
            lock(&self.ahead).announce(urls);
        }
    }

    fn forget(&self, url: &str) {
        if let Ok(target) = Target::parse(url) {
            lock(&self.ahead).forget(&target.url());
            lock(&self.known).forget(&target.url());
        }
    }

    fn without_secrets(&self, url: &str) -> String {
        let clean = secrets::without(url);
        let trimmed = clean.trim_end_matches('/');
        if trimmed.ends_with(':') || trimmed.is_empty() {
            clean.clone()
        } else {
            trimmed.to_owned()
        }
    }
}
