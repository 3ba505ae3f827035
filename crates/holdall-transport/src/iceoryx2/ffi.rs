//! The parts of iceoryx2 that are unsafe because the compiler cannot know the types: opening services by
//! their own description, and the bytes of samples.

use iceoryx2::{
    port::{listener::Listener, publisher::Publisher, subscriber::Subscriber},
    prelude::*,
    sample::Sample,
    service::{
        builder::publish_subscribe::Builder,
        marker::{CustomHeaderMarker, CustomPayloadMarker},
        port_factory::publish_subscribe::PortFactory,
        static_config::message_type_details::TypeDetail,
    },
};
use std::os::fd::BorrowedFd;

/// The variant of iceoryx2 whose samples may be released by another thread.
pub(super) type Service = ipc_threadsafe::Service;
/// An open service of whatever type.
pub(super) type OpenService = PortFactory<Service, [CustomPayloadMarker], CustomHeaderMarker>;
pub(super) type RawSubscriber = Subscriber<Service, [CustomPayloadMarker], CustomHeaderMarker>;
pub(super) type RawPublisher = Publisher<Service, [CustomPayloadMarker], CustomHeaderMarker>;
pub(super) type RawSample = Sample<Service, [CustomPayloadMarker], CustomHeaderMarker>;
pub(super) type RawBuilder = Builder<[CustomPayloadMarker], CustomHeaderMarker, Service>;

/// Begins to open or create a service of these types.
pub(super) fn service_builder(
    node: &Node<Service>,
    name: &ServiceName,
    payload: &TypeDetail,
    header: &TypeDetail,
) -> RawBuilder {
    let builder = node
        .service_builder(name)
        .publish_subscribe::<[CustomPayloadMarker]>()
        .user_header::<CustomHeaderMarker>();
    // SAFETY: payload and header are accessed as bytes only, in the length that these details state, never as
    // a type.
    unsafe {
        builder
            .__internal_set_payload_type_details(payload)
            .__internal_set_user_header_type_details(header)
            .__internal_skip_type_definition_verification()
    }
}

/// The bytes of a sample's payload. Flatbuffers begin somewhere inside of it.
pub(super) fn payload_bytes(sample: &RawSample) -> &[u8] {
    let payload = sample.payload();
    // SAFETY: a `CustomPayloadMarker` is one byte of any value, and iceoryx2 makes the slice as long as the payload in bytes. The
    // publisher does not write into a sample after it has sent it.
    let bytes = unsafe { std::slice::from_raw_parts(payload.as_ptr().cast::<u8>(), payload.len()) };
    usize::try_from(sample.header().payload_offset())
        .ok()
        .and_then(|offset| bytes.get(offset..))
        .unwrap_or(bytes)
}

/// The bytes of a sample's user header, `size` being the size in the service's description.
pub(super) fn header_bytes(sample: &RawSample, size: usize) -> &[u8] {
    let header: *const CustomHeaderMarker = sample.user_header();
    // SAFETY: each chunk of the service begins with its header of exactly this size, which the service's
    // description states and which was the condition for opening it; the sample keeps the chunk.
    unsafe { std::slice::from_raw_parts(header.cast::<u8>(), size) }
}

/// Sends a sample: `header` has the length that the service states, `payload` a whole number of its elements
/// of `element_size` bytes. Returns how many subscribers received it.
pub(super) fn send(
    publisher: &RawPublisher,
    header: &[u8],
    payload: &[u8],
    element_size: usize,
) -> Result<usize, String> {
    let elements = payload.len() / element_size.max(1);
    // SAFETY: the caller has checked that the payload is a whole number of elements, and one for types of fixed size.
    let loaned = unsafe { publisher.loan_custom_payload(elements) };
    let mut sample = loaned.map_err(|error| format!("no shared memory for it ({error:?})"))?;
    let header_place: *mut CustomHeaderMarker = sample.user_header_mut();
    // SAFETY: the chunk begins with a header of exactly `header.len()` bytes, and no other code has the chunk
    // yet.
    unsafe { std::ptr::copy_nonoverlapping(header.as_ptr(), header_place.cast::<u8>(), header.len()) };
    let place = sample.payload_mut();
    let bytes = payload.len().min(place.len());
    // SAFETY: markers are bytes, there are `bytes` of them, and no other code has the chunk yet. All of it is
    // written, because the loan is as long as the payload.
    let sample = unsafe {
        std::ptr::copy_nonoverlapping(payload.as_ptr(), place.as_mut_ptr().cast::<u8>(), bytes);
        sample.assume_init()
    };
    sample.send().map_err(|error| format!("{error:?}"))
}

/// The file descriptor that becomes readable on a notification.
pub(super) fn wake_descriptor(listener: &Listener<Service>) -> BorrowedFd<'_> {
    // SAFETY: the descriptor is open as long as the listener lives, which the returned lifetime is bound to.
    unsafe { BorrowedFd::borrow_raw(listener.file_descriptor().native_handle()) }
}
