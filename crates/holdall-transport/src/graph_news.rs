//! News of graph changes: set by a transport's own threads, taken by its owner.

use holdall_io::mutex::lock;
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

/// Called when the graph has changed, on the transport's own threads: must not block, and must not call the transport.
pub type GraphWake = Arc<dyn Fn() + Send + Sync>;

/// A flag that calls its waiter when it is set.
#[derive(Default)]
pub(crate) struct GraphNews {
    is_pending: AtomicBool,
    wake: Mutex<Option<GraphWake>>,
}

impl GraphNews {
    /// Calls `wake` for every change from now on, and at once for one not taken yet. Replaces an earlier `wake`.
    pub(crate) fn call(&self, wake: GraphWake) {
        *lock(&self.wake) = Some(Arc::clone(&wake));
        if self.is_pending() {
            wake();
        }
    }

    /// The graph has changed. Changes not taken yet count as one.
    pub(crate) fn set(&self) {
        if self.is_pending.swap(true, Ordering::AcqRel) {
            return;
        }
        let wake = lock(&self.wake).clone();
        if let Some(wake) = wake {
            wake();
        }
    }

    /// True when the graph has changed since the last [`GraphNews::take`].
    pub(crate) fn is_pending(&self) -> bool {
        self.is_pending.load(Ordering::Acquire)
    }

    /// Returns whether the graph has changed, and begins anew.
    pub(crate) fn take(&self) -> bool {
        self.is_pending.swap(false, Ordering::AcqRel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn changes_that_were_not_taken_wake_once() {
        let (news, calls) = (GraphNews::default(), Arc::new(AtomicUsize::new(0)));
        news.set();
        assert!(news.take());
        assert!(!news.take());
        let counted = Arc::clone(&calls);
        news.call(Arc::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        }));
        news.set();
        news.set();
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        assert!(news.is_pending());
        assert!(news.take());
        news.set();
        assert_eq!(calls.load(Ordering::Relaxed), 2);
        let counted = Arc::clone(&calls);
        news.call(Arc::new(move || {
            counted.fetch_add(10, Ordering::Relaxed);
        }));
        assert_eq!(calls.load(Ordering::Relaxed), 12);
    }
}
