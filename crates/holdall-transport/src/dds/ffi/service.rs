//! The endpoints that are matched with those of a service.

use super::{
    entity::{Reader, Writer},
    qos::read_qos,
};
use holdall_cyclone_sys::{
    dds_builtintopic_free_endpoint, dds_get_matched_publication_data, dds_get_matched_publications,
    dds_get_matched_subscription_data, dds_get_matched_subscriptions, dds_instance_handle_t,
};
use holdall_model::topic::Gid;

/// Room for those that are matched between two calls.
const SPARE: usize = 8;

/// The writers matched with a reader, with their user data.
pub(in crate::dds) fn matched_writers(reader: &Reader) -> Vec<(Gid, Vec<u8>)> {
    let mut handles: Vec<dds_instance_handle_t> = vec![0; reader.matched() + SPARE];
    let entity = reader.entity();
    // SAFETY: the reader is live. Cyclone writes at most `handles.len()` handles; endpoint data is freed after it was copied.
    unsafe {
        let count = dds_get_matched_publications(entity, handles.as_mut_ptr(), handles.len());
        handles.truncate(usize::try_from(count).unwrap_or(0));
        let mut writers = Vec::with_capacity(handles.len());
        for handle in handles {
            let endpoint = dds_get_matched_publication_data(entity, handle);
            if !endpoint.is_null() {
                writers.push((Gid((*endpoint).key.v), read_qos((*endpoint).qos).user_data));
                dds_builtintopic_free_endpoint(endpoint);
            }
        }
        writers
    }
}

/// The readers matched with a writer, with their user data.
pub(in crate::dds) fn matched_readers(writer: &Writer) -> Vec<(Gid, Vec<u8>)> {
    let mut handles: Vec<dds_instance_handle_t> = vec![0; writer.matched() + SPARE];
    let entity = writer.entity();
    // SAFETY: as above, for a live writer.
    unsafe {
        let count = dds_get_matched_subscriptions(entity, handles.as_mut_ptr(), handles.len());
        handles.truncate(usize::try_from(count).unwrap_or(0));
        let mut readers = Vec::with_capacity(handles.len());
        for handle in handles {
            let endpoint = dds_get_matched_subscription_data(entity, handle);
            if !endpoint.is_null() {
                readers.push((Gid((*endpoint).key.v), read_qos((*endpoint).qos).user_data));
                dds_builtintopic_free_endpoint(endpoint);
            }
        }
        readers
    }
}
