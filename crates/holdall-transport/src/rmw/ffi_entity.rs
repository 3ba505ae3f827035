//! Subscriptions, publishers and buffers of the shim as owned values: released on drop, in the right order.

use super::ffi::{Context, Qos, RawBuffer, RawInfo, Shim, TypeSupport, c_string};
use std::{
    ffi::{c_int, c_void},
    ptr::{self, NonNull},
    slice,
    sync::Arc,
    time::Duration,
};

/// Memory that messages are taken into; grows with them.
pub(super) struct Buffer {
    shim: Arc<Shim>,
    raw: RawBuffer,
}

// SAFETY: the memory is the buffer's own.
unsafe impl Send for Buffer {}
// SAFETY: it is only changed through a mutable reference.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// The last message that was taken into it.
    pub(super) fn bytes(&self) -> &[u8] {
        if self.raw.bytes.is_null() {
            return &[];
        }
        let len = usize::try_from(self.raw.length.min(self.raw.capacity)).unwrap_or(0);
        // SAFETY: the shim has allocated `capacity` bytes, and written the first `length` of them.
        unsafe { slice::from_raw_parts(self.raw.bytes, len) }
    }

    /// Bytes that it holds, used or not.
    pub(super) fn capacity(&self) -> usize {
        usize::try_from(self.raw.capacity).unwrap_or(usize::MAX)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if !self.raw.bytes.is_null() {
            // SAFETY: the buffer owns the memory, which comes from the shim's allocator.
            unsafe { (self.shim.0.free)(self.raw.bytes) };
        }
    }
}

/// The properties of a message in addition to its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Info {
    /// Its publisher.
    pub gid: [u8; 16],
    /// Its number, if the implementation has one.
    pub sequence: Option<u64>,
    /// Nanoseconds since the Unix epoch on its publisher's clock, if known.
    pub source_nanos: Option<i64>,
}

/// Interprets the outcome of a take by the shim.
pub(super) fn taken(shim: &Shim, outcome: c_int, info: &RawInfo) -> Result<Option<Info>, String> {
    match outcome {
        0 => Ok(None),
        1 => Ok(Some(Info {
            gid: info.gid,
            sequence: Some(info.sequence).filter(|number| *number != u64::MAX),
            source_nanos: Some(info.source_timestamp).filter(|nanos| *nanos > 0),
        })),
        _ => Err(shim.reason()),
    }
}

/// A subscription; not waited for any more when it is dropped.
pub(super) struct RawSubscription {
    context: Arc<Context>,
    pub raw: NonNull<c_void>,
}

// SAFETY: rmw's subscriptions may be used by any thread, and taken from by one at a time: only the waiting thread does.
unsafe impl Send for RawSubscription {}
// SAFETY: as above.
unsafe impl Sync for RawSubscription {}

impl RawSubscription {
    /// Subscribes.
    ///
    /// # Errors
    /// The implementation's own reason.
    pub(super) fn new(
        context: &Arc<Context>,
        types: TypeSupport,
        topic: &str,
        qos: &Qos,
    ) -> Result<Self, String> {
        let topic = c_string(topic)?;
        // SAFETY: the context is live, the type support lives as long as the process, and rmw copies name and QoS.
        let raw = unsafe {
            (context.shim.0.subscribe)(
                context.raw.as_ptr(),
                types.0.as_ptr(),
                topic.as_ptr(),
                ptr::from_ref(qos),
            )
        };
        let raw = NonNull::new(raw).ok_or_else(|| context.shim.reason())?;
        Ok(Self {
            context: Arc::clone(context),
            raw,
        })
    }

    /// An empty buffer for its messages.
    pub(super) fn buffer(&self) -> Buffer {
        Buffer {
            shim: Arc::clone(&self.context.shim),
            raw: RawBuffer {
                bytes: ptr::null_mut(),
                length: 0,
                capacity: 0,
            },
        }
    }

    /// Takes the next message; `None` when none is waiting.
    ///
    /// # Errors
    /// The implementation's own reason.
    pub(super) fn take(&self, into: &mut Buffer) -> Result<Option<Info>, String> {
        let mut info = RawInfo::default();
        let shim = &self.context.shim;
        // SAFETY: the subscription is live; the shim leaves a valid buffer, whatever it returns.
        let outcome = unsafe { (shim.0.take)(self.raw.as_ptr(), &raw mut into.raw, &raw mut info) };
        taken(shim, outcome, &info)
    }

    /// Publishers matched right now.
    pub(super) fn matched(&self) -> usize {
        // SAFETY: the subscription is live.
        let count = unsafe { (self.context.shim.0.matched_publishers)(self.raw.as_ptr()) };
        usize::try_from(count).unwrap_or(0)
    }
}

impl Drop for RawSubscription {
    fn drop(&mut self) {
        // SAFETY: this value owns it, and the thread that waits for it holds a reference to its owner.
        unsafe { (self.context.shim.0.unsubscribe)(self.context.raw.as_ptr(), self.raw.as_ptr()) };
    }
}

/// A publisher.
pub(super) struct RawPublisher {
    context: Arc<Context>,
    pub raw: NonNull<c_void>,
    /// Its identifier in the graph.
    pub gid: [u8; 16],
}

// SAFETY: rmw's publishers may be used by any thread.
unsafe impl Send for RawPublisher {}

impl RawPublisher {
    /// Offers a topic.
    ///
    /// # Errors
    /// The implementation's own reason.
    pub(super) fn new(
        context: &Arc<Context>,
        types: TypeSupport,
        topic: &str,
        qos: &Qos,
    ) -> Result<Self, String> {
        let topic = c_string(topic)?;
        let mut gid = [0; 16];
        // SAFETY: as for a subscription; `gid` has room for 16 bytes.
        let raw = unsafe {
            (context.shim.0.advertise)(
                context.raw.as_ptr(),
                types.0.as_ptr(),
                topic.as_ptr(),
                ptr::from_ref(qos),
                gid.as_mut_ptr(),
            )
        };
        let raw = NonNull::new(raw).ok_or_else(|| context.shim.reason())?;
        Ok(Self {
            context: Arc::clone(context),
            raw,
            gid,
        })
    }

    /// Sends one message.
    ///
    /// # Errors
    /// The implementation's own reason.
    pub(super) fn publish(&mut self, payload: &[u8]) -> Result<(), String> {
        let shim = &self.context.shim;
        // SAFETY: the publisher is live; the payload is read during the call only.
        let outcome = unsafe { (shim.0.publish)(self.raw.as_ptr(), payload.as_ptr(), payload.len() as u64) };
        if outcome == 0 { Ok(()) } else { Err(shim.reason()) }
    }

    /// Subscriptions matched right now.
    pub(super) fn matched(&self) -> usize {
        // SAFETY: the publisher is live.
        let count = unsafe { (self.context.shim.0.matched_subscriptions)(self.raw.as_ptr()) };
        usize::try_from(count).unwrap_or(0)
    }

    /// Waits until all reliable subscriptions have acknowledged everything; false when the time ran out.
    ///
    /// # Errors
    /// The implementation's own reason, if it cannot know.
    pub(super) fn wait_for_acked(&mut self, at_most: Duration) -> Result<bool, String> {
        let nanos = i64::try_from(at_most.as_nanos()).unwrap_or(i64::MAX);
        // SAFETY: the publisher is live.
        match unsafe { (self.context.shim.0.wait_for_acked)(self.raw.as_ptr(), nanos) } {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.context.shim.reason()),
        }
    }
}

impl Drop for RawPublisher {
    fn drop(&mut self) {
        // SAFETY: this value owns it.
        unsafe { (self.context.shim.0.unadvertise)(self.context.raw.as_ptr(), self.raw.as_ptr()) };
    }
}
