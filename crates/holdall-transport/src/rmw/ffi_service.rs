//! Services of the shim as owned values: a client of another node's service, or a service that is offered.

use super::{
    ffi::{Context, RawBuffer, c_string},
    types::ServiceTypes,
};
use std::{
    ffi::c_void,
    ptr::{self, NonNull},
    slice,
    sync::Arc,
};

/// `holdall_request_id_t`: the client that sent a request, and its number.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RawRequestId {
    pub client: [u8; 16],
    pub number: i64,
}

/// Which side of a service it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Server,
}

/// One side of a service; not waited for any more when it is dropped.
pub(super) struct RawService {
    context: Arc<Context>,
    pub side: Side,
    pub raw: NonNull<c_void>,
}

// SAFETY: rmw's services and clients may be used by any thread, and taken from by one at a time: only the waiting thread does.
unsafe impl Send for RawService {}
// SAFETY: as above.
unsafe impl Sync for RawService {}

impl RawService {
    /// Offers or calls a service.
    ///
    /// # Errors
    /// The loader's or the implementation's own reason.
    pub(super) fn open(
        context: &Arc<Context>,
        types: &ServiceTypes,
        name: &str,
        side: Side,
    ) -> Result<Self, String> {
        let type_library = c_string(&types.type_library)?;
        let structure_library = c_string(&types.structure_library)?;
        let (symbol, name) = (c_string(&types.symbol)?, c_string(name)?);
        // SAFETY: the context is live; all texts end with NUL and are copied, and the libraries are never unloaded.
        let raw = unsafe {
            (context.shim.0.service_open)(
                context.raw.as_ptr(),
                type_library.as_ptr(),
                structure_library.as_ptr(),
                symbol.as_ptr(),
                name.as_ptr(),
                i32::from(side == Side::Server),
            )
        };
        let raw = NonNull::new(raw).ok_or_else(|| context.shim.reason())?;
        Ok(Self {
            context: Arc::clone(context),
            side,
            raw,
        })
    }

    /// Whether a client's server exists and can be heard.
    pub(super) fn is_ready(&self) -> bool {
        debug_assert_eq!(self.side, Side::Client, "a server has no server");
        // SAFETY: the context and the client are live.
        unsafe { (self.context.shim.0.service_is_ready)(self.context.raw.as_ptr(), self.raw.as_ptr()) != 0 }
    }

    /// Sends a client's request, whose number is put into `id`, or a server's reply to `id`.
    ///
    /// # Errors
    /// The implementation's own reason; also for a payload that is not of the type.
    pub(super) fn send(&self, payload: &[u8], id: &mut RawRequestId) -> Result<(), String> {
        let shim = &self.context.shim;
        // SAFETY: the service is live; the payload is read during the call only.
        let outcome = unsafe {
            (shim.0.service_send)(
                self.raw.as_ptr(),
                payload.as_ptr(),
                payload.len() as u64,
                ptr::from_mut(id),
            )
        };
        if outcome == 0 { Ok(()) } else { Err(shim.reason()) }
    }

    /// Takes a server's next request, or a client's next reply; `None` when none is waiting.
    ///
    /// # Errors
    /// The implementation's own reason.
    pub(super) fn take(&self) -> Result<Option<(RawRequestId, Vec<u8>)>, String> {
        let shim = &self.context.shim;
        let mut buffer = RawBuffer {
            bytes: ptr::null_mut(),
            length: 0,
            capacity: 0,
        };
        let mut id = RawRequestId::default();
        // SAFETY: the service is live; the shim leaves a valid buffer, whatever it returns.
        let taken = unsafe { (shim.0.service_take)(self.raw.as_ptr(), &raw mut buffer, &raw mut id) };
        let mut payload = Vec::new();
        if !buffer.bytes.is_null() {
            let len = usize::try_from(buffer.length.min(buffer.capacity)).unwrap_or(0);
            // SAFETY: the shim has allocated `capacity` bytes and written the first `length` of them; we must release the memory.
            unsafe {
                payload.extend_from_slice(slice::from_raw_parts(buffer.bytes, len));
                (shim.0.free)(buffer.bytes);
            }
        }
        match taken {
            0 => Ok(None),
            1 => Ok(Some((id, payload))),
            _ => Err(shim.reason()),
        }
    }
}

impl Drop for RawService {
    fn drop(&mut self) {
        // SAFETY: this value owns it, and the thread that waits for it holds a reference to its owner.
        unsafe { (self.context.shim.0.service_close)(self.context.raw.as_ptr(), self.raw.as_ptr()) };
    }
}
