//! The computers that participants run on: properties of DDS's builtin participant topic.

use super::entity::{DdsError, Participant, check, text_of};
use holdall_cyclone_sys::*;
use holdall_model::topic::Gid;
use std::{
    collections::HashMap,
    ffi::{CStr, c_char, c_void},
    ptr,
    sync::Arc,
};

/// Properties in which Cyclone DDS and Fast DDS send the computer's name.
const PROPERTIES: [&CStr; 2] = [c"__Hostname", c"fastdds.physical_data.host"];

/// Samples taken at a time.
const TAKE_MAX: usize = 64;

/// The hosts of all participants of a domain.
pub(in crate::dds) struct Hosts {
    entity: dds_entity_t,
    /// By participant.
    known: HashMap<Gid, String>,
    /// Keeps the domain.
    _participant: Arc<Participant>,
}

impl Hosts {
    /// Starts to follow the participants.
    pub(in crate::dds) fn new(participant: &Arc<Participant>) -> Result<Self, DdsError> {
        // SAFETY: the participant is live; null QoS and listener are allowed.
        let entity = check("dds_create_reader", unsafe {
            dds_create_reader(
                participant.entity(),
                HOLDALL_TOPIC_PARTICIPANTS,
                ptr::null(),
                ptr::null(),
            )
        })?;
        Ok(Self {
            entity,
            known: HashMap::new(),
            _participant: Arc::clone(participant),
        })
    }

    /// Applies what changed since the last call; never blocks.
    pub(in crate::dds) fn poll(&mut self) -> Result<(), DdsError> {
        loop {
            let mut samples = [ptr::null_mut::<c_void>(); TAKE_MAX];
            let mut infos = std::mem::MaybeUninit::<[dds_sample_info_t; TAKE_MAX]>::uninit();
            let infos = infos.as_mut_ptr().cast::<dds_sample_info_t>();
            // SAFETY: room for TAKE_MAX entries each.
            let count = check("dds_take", unsafe {
                dds_take(
                    self.entity,
                    samples.as_mut_ptr(),
                    infos,
                    TAKE_MAX,
                    TAKE_MAX as u32,
                )
            })?;
            let taken = usize::try_from(count).unwrap_or(0);
            for (index, sample) in samples.iter().enumerate().take(taken) {
                // SAFETY: `taken` samples and infos were filled in; they are on loan until `dds_return_loan`.
                unsafe {
                    let about = &*sample.cast::<dds_builtintopic_participant_t>();
                    let info = &*infos.add(index);
                    let is_alive = info.valid_data && info.instance_state == dds_instance_state_DDS_IST_ALIVE;
                    let gid = Gid(about.key.v);
                    match host_of(about.qos).filter(|_| is_alive) {
                        Some(host) => drop(self.known.insert(gid, host)),
                        None => drop(self.known.remove(&gid)),
                    }
                }
            }
            if taken > 0 {
                // SAFETY: returns the loan that was taken above.
                check("dds_return_loan", unsafe {
                    dds_return_loan(self.entity, samples.as_mut_ptr(), count)
                })?;
            }
            if taken < TAKE_MAX {
                return Ok(());
            }
        }
    }

    /// The host of a participant, where it announces one.
    pub(in crate::dds) fn of(&self, participant: Gid) -> Option<&str> {
        self.known.get(&participant).map(String::as_str)
    }
}

/// # Safety
/// `qos` must be null or live.
unsafe fn host_of(qos: *const dds_qos_t) -> Option<String> {
    if qos.is_null() {
        return None;
    }
    PROPERTIES.iter().find_map(|name| {
        let mut value: *mut c_char = ptr::null_mut();
        // SAFETY: the caller vouches for the QoS; a value that is returned must be freed here.
        let text = unsafe {
            if !dds_qget_prop(qos, name.as_ptr(), &raw mut value) || value.is_null() {
                return None;
            }
            let text = text_of(value);
            dds_free(value.cast());
            text
        };
        // Fast DDS appends a number to the name.
        let name = text.split(':').next().unwrap_or_default().to_owned();
        (!name.is_empty()).then_some(name)
    })
}

impl Drop for Hosts {
    fn drop(&mut self) {
        // SAFETY: this value owns the handle.
        unsafe { dds_delete(self.entity) };
    }
}
