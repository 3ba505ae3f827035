//! Makes Cyclone announce all endpoints of a participant again.

use holdall_cyclone_sys::*;
use std::{
    ptr,
    sync::atomic::{AtomicU32, Ordering},
};

/// Number of announcements of this process, so that each differs from those before it.
static ROUND: AtomicU32 = AtomicU32::new(0);

/// Ten years in nanoseconds.
const VERY_LONG: i64 = 10 * 365 * 86_400 * 1_000_000_000;

/// Announces all readers and writers of a participant to all peers again.
///
/// Cyclone announces an endpoint whose QoS has changed. What changes here has no effect: how long a reader keeps samples whose writers are gone, after
/// many years, and a writer's transport priority, which Cyclone does not use.
pub(in crate::dds) fn announce_endpoints_again(participant: dds_entity_t) {
    let round = ROUND.fetch_add(1, Ordering::Relaxed) + 1;
    let round = i32::try_from(round % 1_000_000).unwrap_or(1);
    // SAFETY: the QoS is live until it is deleted; an invalid handle only makes a call fail.
    unsafe {
        let qos = dds_create_qos();
        dds_qset_transport_priority(qos, round);
        let after = VERY_LONG + i64::from(round) * 1_000_000_000;
        dds_qset_reader_data_lifecycle(qos, after, after);
        // Readers and writers are children of subscribers and publishers, also where Cyclone has made those itself.
        for group in children(participant) {
            for endpoint in children(group) {
                // A reader of Cyclone's own topics refuses it.
                dds_set_qos(endpoint, qos);
            }
        }
        dds_delete_qos(qos);
    }
}

/// What was made from an entity.
fn children(of: dds_entity_t) -> Vec<dds_entity_t> {
    // SAFETY: with no room it only counts; then it writes at most as many handles as there is room for.
    unsafe {
        let count = dds_get_children(of, ptr::null_mut(), 0);
        let mut found: Vec<dds_entity_t> = vec![0; usize::try_from(count).unwrap_or(0)];
        let count = dds_get_children(of, found.as_mut_ptr(), found.len());
        found.truncate(usize::try_from(count).unwrap_or(0));
        found
    }
}
