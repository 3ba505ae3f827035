//! The runtime of the requests: two threads, started when the first request is made.

use holdall_io::mutex::lock;
use std::{
    future::Future,
    io,
    sync::{Arc, Mutex, mpsc::sync_channel},
};
use tokio::runtime::{Builder, Runtime};

/// Threads that serve requests; decryption of one thread's worth is a few hundred MB/s.
const THREADS: usize = 2;

/// The runtime, and the process that it belongs to: after a fork its threads exist in the parent only.
static RUNTIME: Mutex<Option<(u32, Arc<Runtime>)>> = Mutex::new(None);

/// The runtime of this process.
///
/// # Errors
/// When no thread can be started.
pub(crate) fn runtime() -> io::Result<Arc<Runtime>> {
    let process = std::process::id();
    let mut known = lock(&RUNTIME);
    if let Some((of, runtime)) = known.as_ref()
        && *of == process
    {
        return Ok(Arc::clone(runtime));
    }
    let runtime = Builder::new_multi_thread()
        .worker_threads(THREADS)
        .max_blocking_threads(THREADS)
        .thread_name("holdall-remote")
        .enable_io()
        .enable_time()
        .build()?;
    let runtime = Arc::new(runtime);
    if let Some((_, parents)) = known.replace((process, Arc::clone(&runtime))) {
        // Its threads are not here: dropping it would wait for them.
        std::mem::forget(parents);
    }
    Ok(runtime)
}

/// Runs a request to its end while this thread waits.
///
/// # Errors
/// The request's, or an error when the runtime is missing.
pub(crate) fn wait<T: Send + 'static>(
    request: impl Future<Output = io::Result<T>> + Send + 'static,
) -> io::Result<T> {
    let (sender, receiver) = sync_channel(1);
    runtime()?.spawn(async move {
        // Fails only if the caller is gone, which cannot happen: it waits.
        let _ = sender.send(request.await);
    });
    receiver
        .recv()
        .unwrap_or_else(|_| Err(io::Error::other("the request was dropped")))
}
