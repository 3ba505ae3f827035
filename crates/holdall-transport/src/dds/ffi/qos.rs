//! DDS QoS as Cyclone keeps it, to and from [`DdsQos`].
#![allow(
    non_upper_case_globals,
    reason = "the constants' names are made from C enumerations"
)]

use crate::dds::settings::qos::{DdsDurability, DdsHistory, DdsLiveliness, DdsQos, INFINITE_NANOS};
use holdall_cyclone_sys::*;
use std::{
    ffi::{CString, c_void},
    ptr, slice,
};

/// A QoS object of Cyclone; deleted on drop.
pub(in crate::dds) struct QosHandle(*mut dds_qos_t);

impl QosHandle {
    /// QoS for a writer.
    pub(in crate::dds) fn for_writer(qos: &DdsQos) -> Self {
        let handle = Self::for_endpoint(qos);
        // SAFETY: `handle.0` is a live QoS object; Cyclone copies all values.
        unsafe {
            dds_qset_writer_data_lifecycle(handle.0, false);
            if qos.lifespan_nanos != INFINITE_NANOS {
                dds_qset_lifespan(handle.0, qos.lifespan_nanos);
            }
            if qos.durability == DdsDurability::TransientLocal {
                // The durability service, not `history`, decides which messages late readers receive.
                let (kind, depth) = history_of(qos.late_history.unwrap_or(qos.history));
                dds_qset_durability_service(
                    handle.0,
                    0,
                    kind,
                    depth,
                    DDS_LENGTH_UNLIMITED,
                    DDS_LENGTH_UNLIMITED,
                    DDS_LENGTH_UNLIMITED,
                );
            }
            let representations: [dds_data_representation_id_t; 1] = [XCDR1];
            dds_qset_data_representation(handle.0, 1, representations.as_ptr());
        }
        handle
    }

    /// QoS for a reader.
    pub(in crate::dds) fn for_reader(qos: &DdsQos) -> Self {
        let handle = Self::for_endpoint(qos);
        let representations = [XCDR1, XCDR2];
        // SAFETY: as above.
        unsafe {
            dds_qset_data_representation(handle.0, 2, representations.as_ptr());
            if qos.ignores_own {
                dds_qset_ignorelocal(handle.0, dds_ignorelocal_kind_DDS_IGNORELOCAL_PARTICIPANT);
            }
        }
        handle
    }

    /// QoS for a participant: user data and properties.
    pub(in crate::dds) fn for_participant(user_data: &[u8], properties: &[(CString, CString)]) -> Self {
        // SAFETY: Cyclone copies user data and texts, which end with NUL; allocation failure aborts inside Cyclone.
        unsafe {
            let handle = dds_create_qos();
            dds_qset_userdata(handle, user_data.as_ptr().cast(), user_data.len());
            for (name, value) in properties {
                dds_qset_prop(handle, name.as_ptr(), value.as_ptr());
            }
            Self(handle)
        }
    }

    fn for_endpoint(qos: &DdsQos) -> Self {
        // SAFETY: `handle` is a live QoS object, and Cyclone copies all values.
        unsafe {
            let handle = dds_create_qos();
            let reliability = if qos.reliable {
                dds_reliability_kind_DDS_RELIABILITY_RELIABLE
            } else {
                dds_reliability_kind_DDS_RELIABILITY_BEST_EFFORT
            };
            dds_qset_reliability(handle, reliability, qos.max_blocking_nanos);
            dds_qset_durability(handle, durability_to_dds(qos.durability));
            let (kind, depth) = history_of(qos.history);
            dds_qset_history(handle, kind, depth);
            dds_qset_resource_limits(
                handle,
                DDS_LENGTH_UNLIMITED,
                DDS_LENGTH_UNLIMITED,
                DDS_LENGTH_UNLIMITED,
            );
            if qos.deadline_nanos != INFINITE_NANOS {
                dds_qset_deadline(handle, qos.deadline_nanos);
            }
            dds_qset_liveliness(handle, liveliness_to_dds(qos.liveliness), qos.lease_nanos);
            if !qos.user_data.is_empty() {
                dds_qset_userdata(handle, qos.user_data.as_ptr().cast(), qos.user_data.len());
            }
            Self(handle)
        }
    }

    /// For passing to Cyclone, which copies what it needs.
    pub(in crate::dds) fn as_ptr(&self) -> *const dds_qos_t {
        self.0
    }
}

impl Drop for QosHandle {
    fn drop(&mut self) {
        // SAFETY: made by `dds_create_qos`, deleted once.
        unsafe { dds_delete_qos(self.0) }
    }
}

const XCDR1: dds_data_representation_id_t = 0;
const XCDR2: dds_data_representation_id_t = 2;

fn history_of(history: DdsHistory) -> (dds_history_kind_t, i32) {
    match history {
        DdsHistory::KeepLast(depth) => (
            dds_history_kind_DDS_HISTORY_KEEP_LAST,
            i32::try_from(depth).unwrap_or(i32::MAX).max(1),
        ),
        DdsHistory::KeepAll => (dds_history_kind_DDS_HISTORY_KEEP_ALL, 0),
    }
}

fn durability_to_dds(durability: DdsDurability) -> dds_durability_kind_t {
    match durability {
        DdsDurability::Volatile => dds_durability_kind_DDS_DURABILITY_VOLATILE,
        DdsDurability::TransientLocal => dds_durability_kind_DDS_DURABILITY_TRANSIENT_LOCAL,
        DdsDurability::Transient => dds_durability_kind_DDS_DURABILITY_TRANSIENT,
        DdsDurability::Persistent => dds_durability_kind_DDS_DURABILITY_PERSISTENT,
    }
}

fn liveliness_to_dds(liveliness: DdsLiveliness) -> dds_liveliness_kind_t {
    match liveliness {
        DdsLiveliness::Automatic => dds_liveliness_kind_DDS_LIVELINESS_AUTOMATIC,
        DdsLiveliness::ManualByParticipant => dds_liveliness_kind_DDS_LIVELINESS_MANUAL_BY_PARTICIPANT,
        DdsLiveliness::ManualByTopic => dds_liveliness_kind_DDS_LIVELINESS_MANUAL_BY_TOPIC,
    }
}

/// Reads a QoS object as discovery shows it; policies that it does not hold get DDS's defaults.
///
/// # Safety
/// `qos` must be null or a live QoS object.
pub(in crate::dds) unsafe fn read_qos(qos: *const dds_qos_t) -> DdsQos {
    let mut out = DdsQos::default();
    if qos.is_null() {
        return out;
    }
    let (mut kind, mut nanos, mut depth) = (0, 0, 0);
    // SAFETY: the caller vouches for `qos`; the getters write to the variables only when they return true.
    unsafe {
        if dds_qget_reliability(qos, &raw mut kind, &raw mut nanos) {
            out.reliable = kind == dds_reliability_kind_DDS_RELIABILITY_RELIABLE;
            out.max_blocking_nanos = nanos;
        }
        if dds_qget_durability(qos, &raw mut kind) {
            out.durability = match kind {
                dds_durability_kind_DDS_DURABILITY_TRANSIENT_LOCAL => DdsDurability::TransientLocal,
                dds_durability_kind_DDS_DURABILITY_TRANSIENT => DdsDurability::Transient,
                dds_durability_kind_DDS_DURABILITY_PERSISTENT => DdsDurability::Persistent,
                _ => DdsDurability::Volatile,
            };
        }
        if dds_qget_history(qos, &raw mut kind, &raw mut depth) {
            out.history = if kind == dds_history_kind_DDS_HISTORY_KEEP_ALL {
                DdsHistory::KeepAll
            } else {
                DdsHistory::KeepLast(u32::try_from(depth).unwrap_or(1))
            };
        }
        if dds_qget_deadline(qos, &raw mut nanos) {
            out.deadline_nanos = nanos;
        }
        if dds_qget_lifespan(qos, &raw mut nanos) {
            out.lifespan_nanos = nanos;
        }
        if dds_qget_liveliness(qos, &raw mut kind, &raw mut nanos) {
            out.liveliness = match kind {
                dds_liveliness_kind_DDS_LIVELINESS_MANUAL_BY_PARTICIPANT => {
                    DdsLiveliness::ManualByParticipant
                }
                dds_liveliness_kind_DDS_LIVELINESS_MANUAL_BY_TOPIC => DdsLiveliness::ManualByTopic,
                _ => DdsLiveliness::Automatic,
            };
            out.lease_nanos = nanos;
        }
        let (mut data, mut len): (*mut c_void, usize) = (ptr::null_mut(), 0);
        if dds_qget_userdata(qos, &raw mut data, &raw mut len) && !data.is_null() {
            out.user_data = slice::from_raw_parts(data.cast::<u8>(), len).to_vec();
            dds_free(data);
        }
    }
    out
}
