//! Services through rmw: requests and replies, which the receiving thread takes, wait here.

use super::{
    ffi::Context,
    ffi_service::{RawRequestId, RawService, Side},
    receiving::Receiving,
    types::ServiceTypes,
};
use crate::{
    LayoutReplies, RequestId, SERVICE_BYTES_MAX, SERVICE_WAITING_MAX, ServiceClient, ServiceDescription,
    ServiceReply, ServiceRequest, ServiceServer, ServiceWake, TransportError,
    service::{Wrapping, check_payload, check_service, service_error},
};
use holdall_io::mutex::lock;
use holdall_model::topic::Gid;
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

/// Most bytes of requests or replies that wait.
const WAITING_BYTES_MAX: usize = 32 << 20;
/// Requests or replies that are taken before others have their turn.
const TAKE_MAX: usize = 64;

/// Requests or replies that have arrived and were not fetched yet.
#[derive(Default)]
struct Waiting {
    arrived: Vec<(RawRequestId, Vec<u8>)>,
    bytes: usize,
    dropped: u64,
}

/// One side of a service, and the requests or replies that wait for it.
pub(super) struct ServiceSlot {
    pub raw: RawService,
    name: String,
    waiting: Mutex<Waiting>,
    wake: ServiceWake,
    /// A failure was logged.
    has_failed: AtomicBool,
}

impl ServiceSlot {
    /// Takes requests or replies that have arrived, on the receiving thread.
    pub(super) fn drain(&self) {
        for _ in 0..TAKE_MAX {
            match self.raw.take() {
                Ok(Some((id, payload))) => self.keep(id, payload),
                Ok(None) => return,
                Err(reason) => {
                    if !self.has_failed.swap(true, Ordering::Relaxed) {
                        tracing::warn!("{}: a request or reply cannot be taken: {reason}", self.name);
                    }
                    return;
                }
            }
        }
    }

    fn keep(&self, id: RawRequestId, payload: Vec<u8>) {
        let mut waiting = lock(&self.waiting);
        let bytes = payload.len();
        let has_room =
            waiting.arrived.len() < SERVICE_WAITING_MAX && waiting.bytes + bytes <= WAITING_BYTES_MAX;
        if bytes > SERVICE_BYTES_MAX || !has_room {
            waiting.dropped += 1;
            return;
        }
        waiting.bytes += bytes;
        waiting.arrived.push((id, payload));
        drop(waiting);
        (self.wake)();
    }

    fn take_arrived(&self) -> Vec<(RawRequestId, Vec<u8>)> {
        let mut waiting = lock(&self.waiting);
        waiting.bytes = 0;
        std::mem::take(&mut waiting.arrived)
    }
}

/// One side of a service, as long as this lives.
pub(super) struct RmwService {
    slot: Arc<ServiceSlot>,
    receiving: Arc<Receiving>,
}

impl RmwService {
    /// Offers or calls a service.
    ///
    /// # Errors
    /// When its type is not installed, or the implementation refuses.
    pub(super) fn open(
        context: &Arc<Context>,
        receiving: &Arc<Receiving>,
        service: &ServiceDescription,
        side: Side,
        wake: ServiceWake,
    ) -> Result<Self, TransportError> {
        check_service(service)?;
        let ServiceDescription { name, type_name, .. } = service;
        let types = ServiceTypes::of(type_name)
            .ok_or_else(|| service_error(name, format!("{type_name} is not a ROS type")))?;
        let raw = RawService::open(context, &types, name, side).map_err(|reason| {
            let package = type_name.split('/').next().unwrap_or_default();
            service_error(
                name,
                format!("{type_name} cannot be used, which needs its package {package} installed: {reason}"),
            )
        })?;
        let slot = Arc::new(ServiceSlot {
            raw,
            name: name.clone(),
            waiting: Mutex::default(),
            wake,
            has_failed: AtomicBool::new(false),
        });
        receiving.add_service(Arc::clone(&slot));
        Ok(Self {
            slot,
            receiving: Arc::clone(receiving),
        })
    }

    fn hand_over(&self, payload: &[u8], id: &mut RawRequestId) -> Result<(), TransportError> {
        check_payload(&self.slot.name, payload)?;
        let refused = |reason| service_error(&self.slot.name, reason);
        self.slot.raw.send(payload, id).map_err(refused)
    }
}

impl Drop for RmwService {
    fn drop(&mut self) {
        self.receiving.remove_service(&self.slot);
    }
}

impl ServiceServer for RmwService {
    fn poll(&mut self, requests: &mut Vec<ServiceRequest>) {
        let arrived = self.slot.take_arrived().into_iter();
        requests.extend(arrived.map(|(id, payload)| ServiceRequest {
            id: RequestId {
                client: Gid(id.client),
                number: id.number.cast_unsigned(),
                wrapping: Wrapping::Bare,
            },
            payload,
        }));
    }

    /// The layout is that of the installed package: the type support ignores fields that it does not have.
    fn reply(&mut self, id: &RequestId, replies: &LayoutReplies) -> Result<(), TransportError> {
        let mut id = RawRequestId {
            client: id.client.0,
            number: id.number.cast_signed(),
        };
        self.hand_over(&replies.default, &mut id)
    }

    fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut lock(&self.slot.waiting).dropped)
    }
}

impl ServiceClient for RmwService {
    fn is_ready(&mut self) -> bool {
        self.slot.raw.is_ready()
    }

    fn send(&mut self, payload: &[u8]) -> Result<u64, TransportError> {
        if !self.slot.raw.is_ready() {
            return Err(service_error(&self.slot.name, "it has no server"));
        }
        let mut id = RawRequestId::default();
        self.hand_over(payload, &mut id)?;
        Ok(id.number.cast_unsigned())
    }

    fn poll(&mut self, replies: &mut Vec<ServiceReply>) {
        let arrived = self.slot.take_arrived().into_iter();
        replies.extend(arrived.map(|(id, payload)| ServiceReply {
            number: id.number.cast_unsigned(),
            payload: Ok(payload),
        }));
    }
}
