//! The shim, loaded from its file and checked; the node that it joins with, and the graph. The structures match those of `shim.c`.

use super::{
    ffi_entity::RawSubscription,
    ffi_service::{RawRequestId, RawService, Side},
};
use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    os::unix::ffi::OsStrExt as _,
    path::Path,
    ptr::NonNull,
    sync::Arc,
    time::Duration,
};

/// `HOLDALL_SHIM_VERSION` that these declarations are of.
const VERSION: u64 = 4;

/// `holdall_open_t`.
#[repr(C)]
pub(super) struct RawOpen {
    node_name: *const c_char,
    node_namespace: *const c_char,
    domain: u64,
    range: u64,
    peers: *const *const c_char,
    peer_count: u64,
}

/// `holdall_qos_t`: rmw's numbers.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Qos {
    pub history: u64,
    pub depth: u64,
    pub reliability: u64,
    pub durability: u64,
    pub liveliness: u64,
    pub deadline_sec: u64,
    pub deadline_nsec: u64,
    pub lifespan_sec: u64,
    pub lifespan_nsec: u64,
    pub lease_sec: u64,
    pub lease_nsec: u64,
    pub avoid_ros_namespace_conventions: u64,
}

/// `holdall_endpoint_t`.
#[repr(C)]
pub(super) struct RawEndpoint {
    topic: *const c_char,
    type_name: *const c_char,
    node_name: *const c_char,
    node_namespace: *const c_char,
    type_hash: *const c_char,
    gid: [u8; 16],
    is_publisher: u64,
    qos: Qos,
}

/// `holdall_buffer_t`.
#[repr(C)]
pub(super) struct RawBuffer {
    pub bytes: *mut u8,
    pub length: u64,
    pub capacity: u64,
}

/// `holdall_info_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RawInfo {
    pub gid: [u8; 16],
    pub sequence: u64,
    pub source_timestamp: i64,
}

/// `holdall_waited_t`.
#[repr(C)]
pub(super) struct RawWaited {
    subscriptions: *const *mut c_void,
    subscription_count: u64,
    services: *const *mut c_void,
    client_count: u64,
    server_count: u64,
}

pub(super) type ShowEndpoint = unsafe extern "C" fn(*mut c_void, *const RawEndpoint);
pub(super) type ShowService = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char);

macro_rules! functions {
    ($($name:ident: $symbol:literal, $type:ty;)*) => {
        /// The functions of the shim.
        pub(super) struct Functions { $(pub(super) $name: $type),* }

        impl Functions {
            /// # Safety
            /// `library` must be a handle of a shim of [`VERSION`].
            unsafe fn load(library: *mut c_void) -> Result<Self, String> {
                Ok(Self {
                    // SAFETY: the caller vouches for the library, whose functions have these types.
                    $($name: unsafe { std::mem::transmute::<*mut c_void, $type>(symbol(library, $symbol)?.as_ptr()) }),*
                })
            }
        }
    };
}

functions! {
    error: c"holdall_error", unsafe extern "C" fn() -> *const c_char;
    implementation: c"holdall_implementation", unsafe extern "C" fn() -> *const c_char;
    open: c"holdall_open", unsafe extern "C" fn(*const RawOpen) -> *mut c_void;
    close: c"holdall_close", unsafe extern "C" fn(*mut c_void);
    endpoints: c"holdall_endpoints", unsafe extern "C" fn(*mut c_void, ShowEndpoint, *mut c_void) -> c_int;
    services: c"holdall_services", unsafe extern "C" fn(*mut c_void, ShowService, *mut c_void) -> c_int;
    type_support: c"holdall_type_support", unsafe extern "C" fn(*const c_char, *const c_char) -> *const c_void;
    subscribe: c"holdall_subscribe", unsafe extern "C" fn(*mut c_void, *const c_void, *const c_char, *const Qos) -> *mut c_void;
    unsubscribe: c"holdall_unsubscribe", unsafe extern "C" fn(*mut c_void, *mut c_void);
    matched_publishers: c"holdall_matched_publishers", unsafe extern "C" fn(*mut c_void) -> u64;
    wake: c"holdall_wake", unsafe extern "C" fn(*mut c_void);
    wait: c"holdall_wait", unsafe extern "C" fn(*mut c_void, *const RawWaited, *mut u8, *mut u8, i64) -> c_int;
    take: c"holdall_take", unsafe extern "C" fn(*mut c_void, *mut RawBuffer, *mut RawInfo) -> c_int;
    structure: c"holdall_structure", unsafe extern "C" fn(*const c_char, *const c_char, *const c_void) -> *mut c_void;
    structure_free: c"holdall_structure_free", unsafe extern "C" fn(*mut c_void);
    structure_fill: c"holdall_structure_fill", unsafe extern "C" fn(*mut c_void, *const u8, u64) -> c_int;
    take_structure: c"holdall_take_structure", unsafe extern "C" fn(*mut c_void, *mut c_void, *mut u64, *mut RawInfo) -> c_int;
    service_open: c"holdall_service_open", unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char, *const c_char, *const c_char, c_int) -> *mut c_void;
    service_close: c"holdall_service_close", unsafe extern "C" fn(*mut c_void, *mut c_void);
    service_is_ready: c"holdall_service_is_ready", unsafe extern "C" fn(*mut c_void, *const c_void) -> c_int;
    service_send: c"holdall_service_send", unsafe extern "C" fn(*mut c_void, *const u8, u64, *mut RawRequestId) -> c_int;
    service_take: c"holdall_service_take", unsafe extern "C" fn(*mut c_void, *mut RawBuffer, *mut RawRequestId) -> c_int;
    free: c"holdall_free", unsafe extern "C" fn(*mut u8);
    advertise: c"holdall_advertise", unsafe extern "C" fn(*mut c_void, *const c_void, *const c_char, *const Qos, *mut u8) -> *mut c_void;
    unadvertise: c"holdall_unadvertise", unsafe extern "C" fn(*mut c_void, *mut c_void);
    publish: c"holdall_publish", unsafe extern "C" fn(*mut c_void, *const u8, u64) -> c_int;
    publish_structure: c"holdall_publish_structure", unsafe extern "C" fn(*mut c_void, *mut c_void, u64) -> c_int;
    matched_subscriptions: c"holdall_matched_subscriptions", unsafe extern "C" fn(*mut c_void) -> u64;
    wait_for_acked: c"holdall_wait_for_acked", unsafe extern "C" fn(*mut c_void, i64) -> c_int;
}

/// # Safety
/// `library` must be a handle of `dlopen`.
unsafe fn symbol(library: *mut c_void, name: &CStr) -> Result<NonNull<c_void>, String> {
    // SAFETY: the caller vouches for the handle; the name ends with NUL.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    NonNull::new(found).ok_or_else(|| format!("it has no {}", name.to_string_lossy()))
}

/// # Safety
/// `text` must be null or NUL-terminated.
unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller vouches for it.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

pub(super) fn c_string(text: &str) -> Result<CString, String> {
    CString::new(text).map_err(|_| "a name holds a NUL character".to_owned())
}

/// The loaded shim, with the implementation that it is linked with. Never unloaded: an implementation has its own threads and pointers.
pub(super) struct Shim(pub(super) Functions);

/// A type support of the installation; valid for the rest of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TypeSupport(pub(super) NonNull<c_void>);

// SAFETY: it points to constants of a library that is never unloaded.
unsafe impl Send for TypeSupport {}
// SAFETY: as above.
unsafe impl Sync for TypeSupport {}

impl Shim {
    /// Loads a shim from its file.
    ///
    /// # Errors
    /// One sentence when it, or a library that it needs, cannot be loaded.
    pub(super) fn load(path: &Path) -> Result<Arc<Self>, String> {
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| "its path holds a NUL character".to_owned())?;
        // SAFETY: the file was compiled from our own source in a folder of this user; its libraries are those that the user has sourced.
        // `dlerror` returns a NUL-terminated text or null. The version is compared before another function is called.
        unsafe {
            let library = libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
            if library.is_null() {
                return Err(text(libc::dlerror()));
            }
            let version = symbol(library, c"holdall_version")?;
            let version =
                std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> u64>(version.as_ptr())();
            if version != VERSION {
                return Err(format!(
                    "{} is of version {version}, not {VERSION}",
                    path.display()
                ));
            }
            Ok(Arc::new(Self(Functions::load(library)?)))
        }
    }

    /// The implementation's own name.
    pub(super) fn implementation(&self) -> String {
        // SAFETY: returns a static text.
        unsafe { text((self.0.implementation)()) }
    }

    /// The reason of the last failure on this thread.
    pub(super) fn reason(&self) -> String {
        // SAFETY: returns a text of this thread that only the next call changes.
        unsafe { text((self.0.error)()) }
    }

    /// Loads a type support.
    ///
    /// # Errors
    /// The loader's message.
    pub(super) fn type_support(&self, library: &str, function: &str) -> Result<TypeSupport, String> {
        let library = c_string(library)?;
        let function = c_string(function)?;
        // SAFETY: both texts end with NUL.
        let found = unsafe { (self.0.type_support)(library.as_ptr(), function.as_ptr()) };
        NonNull::new(found.cast_mut())
            .map(TypeSupport)
            .ok_or_else(|| self.reason())
    }
}

/// How to join.
pub(super) struct Join<'a> {
    pub node_name: &'a str,
    pub node_namespace: &'a str,
    pub domain: u32,
    /// As `holdall_open_t` numbers it.
    pub range: u64,
    pub peers: &'a [String],
}

/// A node in a domain; subscriptions and publishers keep it alive.
pub(super) struct Context {
    pub shim: Arc<Shim>,
    pub raw: NonNull<c_void>,
}

// SAFETY: rmw's functions that this uses may be called by any thread; only `wait` must not be called by two, which `Waiter` ensures.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// An endpoint that the graph shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub topic: String,
    pub type_name: String,
    pub node_name: String,
    pub node_namespace: String,
    pub type_hash: Option<String>,
    pub gid: [u8; 16],
    pub is_publisher: bool,
    pub qos: Qos,
}

impl Context {
    /// Joins.
    ///
    /// # Errors
    /// The implementation's own reason.
    pub(super) fn open(shim: &Arc<Shim>, how: &Join<'_>) -> Result<(Arc<Self>, Waiter), String> {
        let (name, namespace) = (c_string(how.node_name)?, c_string(how.node_namespace)?);
        let peers = how
            .peers
            .iter()
            .map(|peer| c_string(peer))
            .collect::<Result<Vec<_>, _>>()?;
        let peers: Vec<*const c_char> = peers.iter().map(|peer| peer.as_ptr()).collect::<Vec<_>>();
        let raw = RawOpen {
            node_name: name.as_ptr(),
            node_namespace: namespace.as_ptr(),
            domain: u64::from(how.domain),
            range: how.range,
            peers: peers.as_ptr(),
            peer_count: peers.len() as u64,
        };
        // SAFETY: all texts live until the call returns; rmw copies them.
        let raw = unsafe { (shim.0.open)(&raw const raw) };
        let raw = NonNull::new(raw).ok_or_else(|| shim.reason())?;
        let context = Arc::new(Self {
            shim: Arc::clone(shim),
            raw,
        });
        let waiter = Waiter {
            context: Arc::clone(&context),
            subscriptions: Vec::new(),
            services: Vec::new(),
            ready: Vec::new(),
        };
        Ok((context, waiter))
    }

    /// All endpoints that the graph shows, our own included.
    pub(super) fn endpoints(&self) -> Result<Vec<Endpoint>, String> {
        unsafe extern "C" fn show(user: *mut c_void, shown: *const RawEndpoint) {
            // SAFETY: `user` is the vector below, and the endpoint with its texts is live during the call.
            unsafe {
                let shown = &*shown;
                let hash = (!shown.type_hash.is_null()).then(|| text(shown.type_hash));
                (*user.cast::<Vec<Endpoint>>()).push(Endpoint {
                    topic: text(shown.topic),
                    type_name: text(shown.type_name),
                    node_name: text(shown.node_name),
                    node_namespace: text(shown.node_namespace),
                    type_hash: hash,
                    gid: shown.gid,
                    is_publisher: shown.is_publisher != 0,
                    qos: shown.qos,
                });
            }
        }
        let mut all: Vec<Endpoint> = Vec::new();
        // SAFETY: the context is live; `all` outlives the call, and nothing else uses it until then.
        let outcome = unsafe { (self.shim.0.endpoints)(self.raw.as_ptr(), show, (&raw mut all).cast()) };
        if outcome == 0 {
            Ok(all)
        } else {
            Err(self.shim.reason())
        }
    }

    /// Names and types of all services that have a server.
    pub(super) fn services(&self) -> Result<Vec<(String, String)>, String> {
        unsafe extern "C" fn show(user: *mut c_void, name: *const c_char, type_name: *const c_char) {
            // SAFETY: `user` is the vector below; the texts are live during the call.
            unsafe { (*user.cast::<Vec<(String, String)>>()).push((text(name), text(type_name))) };
        }
        let mut all: Vec<(String, String)> = Vec::new();
        // SAFETY: as in `endpoints`.
        let outcome = unsafe { (self.shim.0.services)(self.raw.as_ptr(), show, (&raw mut all).cast()) };
        if outcome == 0 {
            Ok(all)
        } else {
            Err(self.shim.reason())
        }
    }

    /// Ends a wait of the [`Waiter`], or its next one.
    pub(super) fn wake(&self) {
        // SAFETY: the context is live.
        unsafe { (self.shim.0.wake)(self.raw.as_ptr()) };
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: everything that uses the context holds an `Arc` of it, so this is the last user.
        unsafe { (self.shim.0.close)(self.raw.as_ptr()) };
    }
}

/// A subscription or service that may have something to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ready {
    /// The subscription at this place.
    Subscription(usize),
    /// The service at this place.
    Service(usize),
}

/// Waits for messages; one for each context.
pub(super) struct Waiter {
    context: Arc<Context>,
    subscriptions: Vec<*mut c_void>,
    services: Vec<*mut c_void>,
    ready: Vec<u8>,
}

// SAFETY: the pointers are only used during a wait, and all of them may be used by any thread.
unsafe impl Send for Waiter {}

impl Waiter {
    /// Waits until one of these may have something, the graph has changed, or the context is woken. Calls `visit` with each that is ready;
    /// true when the graph has changed. Clients must come before servers in `services`.
    ///
    /// # Errors
    /// The implementation's own reason.
    pub(super) fn wait<'a>(
        &mut self,
        subscriptions: impl Iterator<Item = &'a RawSubscription>,
        services: impl Iterator<Item = &'a RawService>,
        at_most: Duration,
        mut visit: impl FnMut(Ready),
    ) -> Result<bool, String> {
        self.subscriptions.clear();
        self.subscriptions
            .extend(subscriptions.map(|one| one.raw.as_ptr()));
        self.services.clear();
        let mut clients = 0;
        for service in services {
            let place = self.services.len();
            if service.side == Side::Client {
                assert_eq!(clients, place, "the shim takes the first services for clients");
                clients += 1;
            }
            self.services.push(service.raw.as_ptr());
        }
        let waited = RawWaited {
            subscriptions: self.subscriptions.as_ptr(),
            subscription_count: self.subscriptions.len() as u64,
            services: self.services.as_ptr(),
            client_count: clients as u64,
            server_count: (self.services.len() - clients) as u64,
        };
        self.ready.clear();
        self.ready
            .resize(self.subscriptions.len() + self.services.len(), 0);
        let shim = &self.context.shim;
        let mut graph = 0;
        let nanos = i64::try_from(at_most.as_nanos()).unwrap_or(i64::MAX);
        // SAFETY: the context and all that is waited for are live, the flags have room for all, and no other thread waits with this context.
        let outcome = unsafe {
            (shim.0.wait)(
                self.context.raw.as_ptr(),
                &raw const waited,
                self.ready.as_mut_ptr(),
                &raw mut graph,
                nanos,
            )
        };
        if outcome != 0 {
            return Err(shim.reason());
        }
        let ready = self.ready.iter().enumerate().filter(|(_, ready)| **ready != 0);
        for (place, _) in ready {
            let service = place.checked_sub(self.subscriptions.len());
            visit(service.map_or(Ready::Subscription(place), Ready::Service));
        }
        Ok(graph != 0)
    }
}
