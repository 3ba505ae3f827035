//! One object that is open: its bytes are requested in parts, several at once, and all of the same content.

use crate::{
    error::{again, of_request, replaced},
    pieces::{Found, Pieces},
    runtime::runtime,
    store::Store,
    target::Service,
};
use bytes::Bytes;
use holdall_io::{
    mutex::lock,
    remote::{Object, ObjectAbout},
};
use object_store::{GetOptions, GetRange, GetResult, path::Path};
use std::{
    io,
    ops::Range,
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::Duration,
};

/// Bytes of the end that are requested when an object is opened: an MCAP file's footer, and the summary of most.
const END_BYTES: u64 = 256 << 10;

/// How often a request is made whose answer breaks off or is short.
const TRIES_MAX: u32 = 8;
/// Wait before the second try; each further one waits twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(50);

/// An open object.
#[derive(Debug)]
pub(crate) struct RemoteObject {
    store: Arc<Store>,
    key: Path,
    about: ObjectAbout,
    pieces: Mutex<Pieces>,
    answered: Condvar,
}

/// Opens an object: requests its end, which comes with its length and its tag.
pub(crate) async fn open(store: Arc<Store>, key: Path) -> io::Result<RemoteObject> {
    let (about, end) = match store.service {
        // It cannot send a number of bytes from the end.
        Service::Azure => {
            let len = head(&store, &key).await?.len_bytes;
            if len == 0 {
                empty(&store, &key).await?
            } else {
                let range = len.saturating_sub(END_BYTES)..len;
                request(&store, &key, GetRange::Bounded(range), None).await?
            }
        }
        _ => match request(&store, &key, GetRange::Suffix(END_BYTES), None).await {
            // An object without a byte has no range either.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => empty(&store, &key).await?,
            other => other?,
        },
    };
    Ok(RemoteObject {
        pieces: Mutex::new(Pieces::new(about.len_bytes, end)),
        store,
        key,
        about,
        answered: Condvar::new(),
    })
}

pub(crate) async fn head(store: &Store, key: &Path) -> io::Result<ObjectAbout> {
    let options = GetOptions {
        head: true,
        ..GetOptions::default()
    };
    let _turn = store.turn().await?;
    let got = store.opened.store.get_opts(key, options).await;
    Ok(about_of(&got.map_err(|error| of_request(&error))?))
}

async fn empty(store: &Store, key: &Path) -> io::Result<(ObjectAbout, Bytes)> {
    let about = head(store, key).await?;
    if about.len_bytes > 0 {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "the service does not send its end",
        ));
    }
    Ok((about, Bytes::new()))
}

fn about_of(got: &GetResult) -> ObjectAbout {
    ObjectAbout {
        is_dir: false,
        len_bytes: got.meta.size,
        e_tag: got.meta.e_tag.clone(),
        modified_ns: got.meta.last_modified.timestamp_nanos_opt(),
    }
}

/// Requests a range of an object, which must be the one that is known, if one is; again when the answer breaks off.
async fn request(
    store: &Store,
    key: &Path,
    range: GetRange,
    known: Option<&ObjectAbout>,
) -> io::Result<(ObjectAbout, Bytes)> {
    let mut wait = FIRST_WAIT;
    let mut tried = 1;
    loop {
        match request_once(store, key, range.clone(), known).await {
            Err((error, true)) if tried < TRIES_MAX => {
                tracing::debug!(%error, tried, "a request is made again");
                tokio::time::sleep(wait).await;
                wait *= 2;
                tried += 1;
            }
            Err((error, _)) => return Err(error),
            Ok(got) => return Ok(got),
        }
    }
}

/// Makes one request; an error also states whether another try may help.
async fn request_once(
    store: &Store,
    key: &Path,
    range: GetRange,
    known: Option<&ObjectAbout>,
) -> Result<(ObjectAbout, Bytes), (io::Error, bool)> {
    // A tag that begins with W/ may not be compared by the service.
    let e_tag = known.and_then(|known| known.e_tag.clone());
    let options = GetOptions {
        range: Some(range),
        if_match: e_tag.filter(|tag| !tag.starts_with("W/")),
        ..GetOptions::default()
    };
    let _turn = store.turn().await.map_err(|error| (error, false))?;
    // The store itself makes requests again that are not answered or fail on the service's side.
    let got = store.opened.store.get_opts(key, options).await;
    let got = got.map_err(|error| (of_request(&error), false))?;
    let about = about_of(&got);
    if known.is_some_and(|known| known.len_bytes != about.len_bytes || known.e_tag != about.e_tag) {
        return Err((replaced(), false));
    }
    let expected = got.range.end - got.range.start;
    let bytes = got.bytes().await.map_err(|error| (of_request(&error), true))?;
    if bytes.len() as u64 != expected {
        let what = format!("the service sent {} of {expected} bytes", bytes.len());
        return Err((io::Error::new(io::ErrorKind::UnexpectedEof, what), true));
    }
    Ok((about, bytes))
}

impl RemoteObject {
    /// Facts about it.
    pub(crate) fn about(&self) -> &ObjectAbout {
        &self.about
    }

    fn start(self: &Arc<Self>, requests: Vec<Range<u64>>) -> io::Result<()> {
        if requests.is_empty() {
            return Ok(());
        }
        let runtime = runtime()?;
        for range in requests {
            let object = Arc::clone(self);
            runtime.spawn(async move {
                let start = range.start;
                let got = request(
                    &object.store,
                    &object.key,
                    GetRange::Bounded(range),
                    Some(&object.about),
                )
                .await;
                lock(&object.pieces).answered(start, got.map(|(_, bytes)| bytes));
                object.answered.notify_all();
            });
        }
        Ok(())
    }
}

/// A handle on an open object, from which requests can be started.
#[derive(Clone, Debug)]
pub(crate) struct OpenObject(pub Arc<RemoteObject>);

impl Object for OpenObject {
    fn len_bytes(&self) -> u64 {
        self.0.about.len_bytes
    }

    fn e_tag(&self) -> Option<&str> {
        self.0.about.e_tag.as_deref()
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let left = self.len_bytes().saturating_sub(offset);
        let wanted = usize::try_from(left).map_or(into.len(), |left| left.min(into.len()));
        let into = &mut into[..wanted];
        let mut count = 0;
        let mut pieces = lock(&self.0.pieces);
        while count < into.len() {
            let at = offset + count as u64;
            match pieces.read(&mut into[count..], at) {
                Found::Some(more) => count += more,
                Found::Requested => {
                    pieces = self
                        .0
                        .answered
                        .wait(pieces)
                        .unwrap_or_else(PoisonError::into_inner);
                }
                Found::Missing => {
                    let requests = pieces.request_for_read(at, (into.len() - count) as u64);
                    self.0.start(requests)?;
                }
                Found::Failed(error) => return Err(again(&error)),
            }
        }
        let ahead = pieces.after_read(offset, count as u64);
        self.0.start(ahead)?;
        Ok(count)
    }

    fn expect(&self, offset: u64, len_bytes: u64) {
        let requests = lock(&self.0.pieces).expect(offset, len_bytes);
        // Advice only: the read reports it.
        let _ = self.0.start(requests);
    }

    fn expect_sequential(&self) {
        let requests = lock(&self.0.pieces).expect_sequential();
        // Advice only: the read reports it.
        let _ = self.0.start(requests);
    }
}
