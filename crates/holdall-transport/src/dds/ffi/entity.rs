//! Cyclone DDS entities (domain, participant, reader, writer, builtin reader) as owned values: deleted on
//! drop, in the right order.

use super::{
    announcing::Announcing,
    globals::Globals,
    log::{log_words, with_words},
    qos::{QosHandle, read_qos},
    sertype::{Sample, new_sertype},
    trial::try_configuration,
};
use crate::dds::{
    reach::lives::LeaseState,
    settings::qos::DdsQos,
    wire::{handshake_names::SecuredParticipant, keys::note_writer},
};
use crate::graph_news::GraphNews;
use holdall_cyclone_sys::*;
use holdall_io::mutex::lock;
use holdall_model::topic::Gid;
use std::{
    collections::BTreeSet,
    ffi::{CStr, CString, c_void},
    panic::{AssertUnwindSafe, catch_unwind},
    ptr,
    sync::{Arc, Mutex},
};

/// `DDS_RETCODE_NOT_ALLOWED_BY_SECURITY`.
const NOT_ALLOWED: dds_return_t = -13;

/// A call of Cyclone DDS that failed.
#[derive(Debug)]
pub(in crate::dds) struct DdsError {
    /// Name of the C function.
    pub call: &'static str,
    /// Its return code.
    pub code: i32,
    /// Cyclone's description of the code.
    pub reason: String,
}

impl std::fmt::Display for DdsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { call, code, reason } = self;
        if *code == NOT_ALLOWED {
            write!(
                f,
                "the permissions of this enclave do not allow it ({call}: {reason})"
            )
        } else {
            write!(f, "{call} failed: {reason} ({code})")
        }
    }
}

impl std::error::Error for DdsError {}

pub(in crate::dds) fn check(call: &'static str, code: dds_return_t) -> Result<dds_return_t, DdsError> {
    if code >= 0 {
        return Ok(code);
    }
    // SAFETY: returns a static string for every code.
    let reason = unsafe { CStr::from_ptr(dds_strretcode(code)) }
        .to_string_lossy()
        .into_owned();
    Err(DdsError { call, code, reason })
}

/// Runs a call that creates something; where Cyclone names a reason why it failed, the error has its words.
fn create(call: &'static str, run: impl FnOnce() -> dds_return_t) -> Result<dds_return_t, DdsError> {
    let (code, words) = with_words(run);
    let outcome = check(call, code);
    if outcome.is_ok() {
        log_words(&words);
    }
    outcome.map_err(|error| {
        let reason = if words.is_empty() {
            error.reason
        } else {
            words.join("; ")
        };
        DdsError { reason, ..error }
    })
}

/// A string for C; one with a NUL is refused as Cyclone refuses bad names.
fn c_string(call: &'static str, text: &str) -> Result<CString, DdsError> {
    CString::new(text).map_err(|_| DdsError {
        call,
        code: -3,
        reason: "the text holds a NUL character".to_owned(),
    })
}

/// Ids that Cyclone's domains use inside this process.
static IDS_IN_USE: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// First id for a second domain of this process on the same ROS domain; beyond all ROS domain ids.
const SECOND_ID_FIRST: u32 = 1000;

/// An id that no other domain of this process uses; released on drop.
struct DomainId(u32);

impl DomainId {
    fn new(wanted: u32) -> Self {
        let mut in_use = lock(&IDS_IN_USE);
        let mut id = wanted;
        while !in_use.insert(id) {
            id = if id < SECOND_ID_FIRST {
                SECOND_ID_FIRST
            } else {
                id + 1
            };
        }
        Self(id)
    }
}

impl Drop for DomainId {
    fn drop(&mut self) {
        lock(&IDS_IN_USE).remove(&self.0);
    }
}

/// A DDS domain of this process: sockets, threads and receive buffers. Loans keep it alive.
/// Each one is independent: two in one process on the same ROS domain talk over the network like two processes.
pub(in crate::dds) struct Domain {
    entity: dds_entity_t,
    // Dropped after the domain is deleted, because its deletion announces that its participants leave.
    announcing: Option<Announcing>,
    globals: Globals,
    // Released for other domains after this domain is deleted.
    id: DomainId,
}

impl Domain {
    /// Starts a domain with the configuration that `config` makes; its argument is the ROS domain where Cyclone must use another id
    /// inside this process. A configuration that comes partly from the user is tried first in a child process, so that it can end only that.
    /// `is_wide` uses all networks of this computer, not only those of Cyclone's interfaces.
    ///
    /// # Errors
    /// One sentence.
    pub(in crate::dds) fn new(
        ros_domain: u32,
        is_users: bool,
        is_wide: bool,
        config: impl FnOnce(Option<u32>) -> Result<String, String>,
    ) -> Result<Self, String> {
        let id = DomainId::new(ros_domain);
        let config = config((id.0 != ros_domain).then_some(ros_domain))?;
        let config = c_string("dds_create_domain", &config).map_err(|error| error.to_string())?;
        if is_users {
            try_configuration(id.0, &config)?;
        }
        // SAFETY: Cyclone copies the configuration.
        let entity = check("dds_create_domain", unsafe {
            dds_create_domain(id.0, config.as_ptr())
        })
        .map_err(|error| format!("{error}; is CYCLONEDDS_URI right and a network interface up?"))?;
        // SAFETY: they are used as long as this value lives, which deletes the domain when it is dropped.
        let globals = unsafe { Globals::new(entity) }.ok_or("Cyclone DDS has deleted its new domain")?;
        // SAFETY: the domain is live and new; `Drop` deletes it before its fields are dropped.
        let announcing = unsafe { Announcing::new(globals, is_wide) };
        if announcing.is_none() {
            tracing::debug!("participants are announced with the addresses of all interfaces");
        }
        Ok(Self {
            entity,
            announcing,
            globals,
            id,
        })
    }

    /// Announces its participants, where this transport can choose how.
    pub(in crate::dds) fn announcing(&self) -> Option<&Announcing> {
        self.announcing.as_ref()
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: this value owns the handle; everything that uses the domain's memory holds an `Arc` of it, so this is the last user.
        unsafe { dds_delete(self.entity) };
    }
}

/// A participant of a domain.
pub(in crate::dds) struct Participant {
    entity: dds_entity_t,
    /// Of all its readers: without one Cyclone makes a subscriber of 1 kB for each.
    subscriber: dds_entity_t,
    instance: dds_instance_handle_t,
    gid: Gid,
    secured: Option<SecuredParticipant>,
    domain: Arc<Domain>,
}

impl Participant {
    /// Joins a domain, with user data and properties that it announces or is configured by.
    pub(in crate::dds) fn new(
        domain: Arc<Domain>,
        user_data: &[u8],
        properties: &[(&str, String)],
    ) -> Result<Self, DdsError> {
        const CREATE: &str = "dds_create_participant";
        let properties = properties
            .iter()
            .map(|(name, value)| Ok((c_string(CREATE, name)?, c_string(CREATE, value)?)))
            .collect::<Result<Vec<_>, DdsError>>()?;
        let qos = QosHandle::for_participant(user_data, &properties);
        // SAFETY: Cyclone copies the QoS; out-pointers are valid.
        unsafe {
            let entity = create(CREATE, || {
                dds_create_participant(domain.id.0, qos.as_ptr(), ptr::null())
            })?;
            let mut participant = Self {
                entity,
                subscriber: 0,
                instance: 0,
                gid: Gid([0; 16]),
                secured: None,
                domain,
            };
            participant.subscriber = create("dds_create_subscriber", || {
                dds_create_subscriber(entity, ptr::null(), ptr::null())
            })?;
            check(
                "dds_get_instance_handle",
                dds_get_instance_handle(entity, &raw mut participant.instance),
            )?;
            participant.gid = gid_of(entity)?;
            if !properties.is_empty() {
                // Cyclone waits some milliseconds before its first handshake.
                let prefix = std::array::from_fn(|index| participant.gid.0[index]);
                participant.secured = Some(SecuredParticipant::new(prefix));
            }
            Ok(participant)
        }
    }

    /// Its GUID.
    pub(in crate::dds) fn gid(&self) -> Gid {
        self.gid
    }

    /// Its handle, which is live as long as this value.
    pub(in crate::dds) fn entity(&self) -> dds_entity_t {
        self.entity
    }

    /// Whether it takes part in a secured domain.
    pub(in crate::dds) fn is_secured(&self) -> bool {
        self.secured.is_some()
    }

    /// The domain that it belongs to.
    pub(in crate::dds) fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }
}

impl Drop for Participant {
    fn drop(&mut self) {
        // SAFETY: this value owns the handle; readers and writers hold an `Arc` of it, so they are gone.
        unsafe { dds_delete(self.entity) };
    }
}

/// # Safety
/// `entity` must be live.
unsafe fn gid_of(entity: dds_entity_t) -> Result<Gid, DdsError> {
    let mut guid = dds_guid_t { v: [0; 16] };
    // SAFETY: the caller vouches for `entity`.
    check("dds_get_guid", unsafe { dds_get_guid(entity, &raw mut guid) })?;
    Ok(Gid(guid.v))
}

/// A topic; deleted together with its one reader or writer.
struct Topic {
    entity: dds_entity_t,
    sertype: *mut ddsi_sertype,
    participant: Arc<Participant>,
}

// SAFETY: `sertype` is only passed to Cyclone, which allows any thread; the topic keeps it alive.
unsafe impl Send for Topic {}
// SAFETY: as above; nothing changes it.
unsafe impl Sync for Topic {}

impl Topic {
    fn new(owner: &Arc<Participant>, name: &str, type_name: &str, is_keyed: bool) -> Result<Self, DdsError> {
        let name = c_string("dds_create_topic", name)?;
        let type_name = c_string("dds_create_topic", type_name)?;
        let mut sertype = new_sertype(&type_name, is_keyed);
        // SAFETY: Cyclone takes over our reference on success and replaces the pointer by the registered sertype of that name.
        let created = create("dds_create_topic", || unsafe {
            dds_create_topic_sertype(
                owner.entity,
                name.as_ptr(),
                &raw mut sertype,
                ptr::null(),
                ptr::null(),
                ptr::null(),
            )
        });
        if created.is_err() && !sertype.is_null() {
            // SAFETY: on failure we still own the reference.
            unsafe { ddsi_sertype_unref(sertype) };
        }
        let entity = created?;
        Ok(Self {
            entity,
            sertype,
            participant: Arc::clone(owner),
        })
    }
}

impl Drop for Topic {
    fn drop(&mut self) {
        // SAFETY: this value owns the handle, and its reader or writer is gone.
        unsafe { dds_delete(self.entity) };
    }
}

/// A received sample with its DDS metadata.
pub(in crate::dds) struct Received {
    /// The serialized sample.
    pub sample: Sample,
    /// Nanoseconds since the Unix epoch on the writer's clock.
    pub source_timestamp_nanos: i64,
}

/// Called on Cyclone's receive threads with the samples that have arrived.
pub(in crate::dds) trait SampleHandler: Send + Sync {
    /// Handles a batch; must not block. Samples left in `batch` are dropped.
    fn on_samples(&self, batch: &mut Vec<Received>);
}

struct ListenerState {
    handler: Box<dyn SampleHandler>,
}

/// Most samples that one call takes; bounds the time between two reads of the clock.
const TAKE_MAX: usize = 64;

/// A reader with our sertype.
pub(in crate::dds) struct Reader {
    entity: dds_entity_t,
    gid: Gid,
    topic: Topic,
    // Freed after the reader: the listener points to it.
    _listener: Option<Box<ListenerState>>,
}

impl Reader {
    /// Creates a reader; with a handler it is called on Cyclone's threads as soon as samples arrive, without
    /// one use [`Reader::take`].
    pub(in crate::dds) fn new(
        participant: &Arc<Participant>,
        topic: &str,
        type_name: &str,
        qos: &DdsQos,
        handler: Option<Box<dyn SampleHandler>>,
    ) -> Result<Self, DdsError> {
        let topic = Topic::new(participant, topic, type_name, qos.is_keyed)?;
        let qos = QosHandle::for_reader(qos);
        let listener_state = handler.map(|handler| Box::new(ListenerState { handler }));
        // SAFETY: Cyclone copies QoS and listener; the listener's argument lives in a box that outlives the reader.
        unsafe {
            let mut listener = ptr::null_mut();
            if let Some(state) = &listener_state {
                listener = dds_create_listener(ptr::from_ref::<ListenerState>(state).cast_mut().cast());
                dds_lset_data_available(listener, Some(on_data_available));
            }
            let created = create("dds_create_reader", || {
                dds_create_reader(participant.subscriber, topic.entity, qos.as_ptr(), listener)
            });
            if !listener.is_null() {
                dds_delete_listener(listener);
            }
            let entity = created?;
            let mut reader = Self {
                entity,
                gid: Gid([0; 16]),
                topic,
                _listener: listener_state,
            };
            reader.gid = gid_of(entity)?;
            if reader._listener.is_some() {
                participant.domain.globals.request_history(reader.gid);
            }
            Ok(reader)
        }
    }

    /// Its GUID.
    pub(in crate::dds) fn gid(&self) -> Gid {
        self.gid
    }

    /// Its handle, which is live as long as this value.
    pub(in crate::dds) fn entity(&self) -> dds_entity_t {
        self.entity
    }

    /// Takes the samples that have arrived, for readers without a handler; at most [`TAKE_MAX`] samples.
    pub(in crate::dds) fn take(&self, batch: &mut Vec<Received>) {
        // SAFETY: the reader is live and of our sertype.
        unsafe { take(self.entity, batch) };
    }

    /// Writers matched right now.
    pub(in crate::dds) fn matched(&self) -> usize {
        // SAFETY: a count of zero asks for the number only.
        let count = unsafe { dds_get_matched_publications(self.entity, ptr::null_mut(), 0) };
        usize::try_from(count).unwrap_or(0)
    }

    /// GUIDs of the writers matched right now.
    pub(in crate::dds) fn matched_gids(&self) -> Vec<Gid> {
        let mut handles = vec![0; self.matched() + 8];
        // SAFETY: Cyclone writes at most `handles.len()` handles; endpoint data is freed after it has been copied.
        unsafe {
            let count = dds_get_matched_publications(self.entity, handles.as_mut_ptr(), handles.len());
            handles.truncate(usize::try_from(count).unwrap_or(0));
            let mut gids = Vec::with_capacity(handles.len());
            for handle in handles {
                let endpoint = dds_get_matched_publication_data(self.entity, handle);
                if !endpoint.is_null() {
                    gids.push(Gid((*endpoint).key.v));
                    dds_builtintopic_free_endpoint(endpoint);
                }
            }
            gids
        }
    }
}

impl Reader {
    /// The last sequence numbers that matched writers have announced; must not be called from a handler.
    pub(in crate::dds) fn announced_sequences(&self) -> Vec<(Gid, u64)> {
        let last = |gid| Some((gid, self.globals().announced_sequence(gid)?));
        self.matched_gids().into_iter().filter_map(last).collect()
    }

    /// Whether its participant is still in the domain: Cyclone deletes one whose certificate or permissions expire.
    pub(in crate::dds) fn takes_part(&self) -> bool {
        self.globals().takes_part(self.topic.participant.gid)
    }

    /// Whether it has accepted a HEARTBEAT of a writer in a packet that was read after `since` (elapsed time in nanoseconds); must not be called
    /// from a handler.
    pub(in crate::dds) fn has_heartbeat(&self, writer: Gid, since: i64) -> bool {
        self.globals().has_heartbeat(self.gid, writer, since)
    }

    /// The lease of another participant, while it exists.
    pub(in crate::dds) fn lease_of(&self, participant: Gid) -> Option<LeaseState> {
        self.globals().lease(participant)
    }

    /// Resets a writer's proxy after a forged number; must not be called from a handler.
    pub(in crate::dds) fn expect_next(&self, writer: Gid, next: u64) {
        self.globals().expect_next(writer, next);
    }

    fn globals(&self) -> Globals {
        self.topic.participant.domain.globals
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // SAFETY: this value owns the handle. Cyclone waits for a listener call in progress before this returns.
        unsafe { dds_delete(self.entity) };
    }
}

/// # Safety
/// `reader` must be a live reader of our sertype.
unsafe fn take(reader: dds_entity_t, batch: &mut Vec<Received>) -> usize {
    let mut samples = [ptr::null_mut::<ddsi_serdata>(); TAKE_MAX];
    let mut infos = std::mem::MaybeUninit::<[dds_sample_info_t; TAKE_MAX]>::uninit();
    // SAFETY: both arrays have room for TAKE_MAX entries; Cyclone fills the first `count` and gives us a reference to each sample.
    unsafe {
        let infos = infos.as_mut_ptr().cast::<dds_sample_info_t>();
        let count = dds_takecdr(
            reader,
            samples.as_mut_ptr(),
            TAKE_MAX as u32,
            infos,
            DDS_ANY_STATE,
        );
        let count = usize::try_from(count).unwrap_or(0);
        for (index, sample) in samples.iter().enumerate().take(count) {
            let info = &*infos.add(index);
            let sample = Sample::from_raw(*sample);
            if let (Some(sample), true) = (sample, info.valid_data) {
                batch.push(Received {
                    sample,
                    source_timestamp_nanos: info.source_timestamp,
                });
            }
        }
        count
    }
}

unsafe extern "C" fn on_data_available(reader: dds_entity_t, state: *mut c_void) {
    // SAFETY: `state` is the reader's ListenerState, which lives until the reader is deleted, and that waits for us. A panic must not
    // unwind into C.
    let outcome = catch_unwind(AssertUnwindSafe(|| unsafe {
        let state = &*state.cast::<ListenerState>();
        let mut batch = Vec::with_capacity(TAKE_MAX.min(4));
        loop {
            let taken = take(reader, &mut batch);
            if !batch.is_empty() {
                state.handler.on_samples(&mut batch);
                batch.clear();
            }
            if taken < TAKE_MAX {
                break;
            }
        }
    }));
    if outcome.is_err() {
        tracing::error!("a subscription's sink panicked; the messages that it was given are lost");
    }
}

/// A writer with our sertype.
pub(in crate::dds) struct Writer {
    entity: dds_entity_t,
    gid: Gid,
    topic: Topic,
}

impl Writer {
    /// Creates a writer.
    pub(in crate::dds) fn new(
        participant: &Arc<Participant>,
        topic: &str,
        type_name: &str,
        qos: &DdsQos,
    ) -> Result<Self, DdsError> {
        let topic = Topic::new(participant, topic, type_name, qos.is_keyed)?;
        note_writer(qos.is_keyed);
        let qos = QosHandle::for_writer(qos);
        // SAFETY: Cyclone copies the QoS.
        unsafe {
            let entity = create("dds_create_writer", || {
                dds_create_writer(participant.entity, topic.entity, qos.as_ptr(), ptr::null())
            })?;
            let mut writer = Self {
                entity,
                gid: Gid([0; 16]),
                topic,
            };
            writer.gid = gid_of(entity)?;
            Ok(writer)
        }
    }

    /// Its GUID.
    pub(in crate::dds) fn gid(&self) -> Gid {
        self.gid
    }

    /// Its handle, which is live as long as this value.
    pub(in crate::dds) fn entity(&self) -> dds_entity_t {
        self.entity
    }

    /// Its participant.
    pub(in crate::dds) fn participant(&self) -> &Participant {
        &self.topic.participant
    }

    /// Sends one serialized sample; waits for slow reliable readers as long as its QoS allows.
    pub(in crate::dds) fn write(&self, payload: &[u8]) -> Result<(), DdsError> {
        let too_large = || DdsError {
            call: "dds_writecdr",
            code: -5,
            reason: "the message does not fit into memory or exceeds the protocol's 4 GiB".to_owned(),
        };
        if u32::try_from(payload.len()).is_err() {
            return Err(too_large());
        }
        // SAFETY: the topic keeps the sertype alive; `dds_writecdr` takes over the sample's reference.
        unsafe {
            let sample = Sample::from_payload(self.topic.sertype, payload).ok_or_else(too_large)?;
            check("dds_writecdr", dds_writecdr(self.entity, sample.into_raw()))?;
        }
        Ok(())
    }

    /// Readers matched right now.
    pub(in crate::dds) fn matched(&self) -> usize {
        // SAFETY: a count of zero asks for the number only.
        let count = unsafe { dds_get_matched_subscriptions(self.entity, ptr::null_mut(), 0) };
        usize::try_from(count).unwrap_or(0)
    }

    /// The last of its samples that all matched reliable readers have acknowledged, counted from 1, and the number of these readers.
    pub(in crate::dds) fn acknowledged(&self) -> Option<(u64, usize)> {
        self.topic.participant.domain.globals.acknowledged(self.gid)
    }

    /// Lets its next sample request an acknowledgement from all matched reliable readers.
    pub(in crate::dds) fn request_acknowledgement(&self) {
        let globals = self.topic.participant.domain.globals;
        globals.request_acknowledgement(self.gid);
    }

    /// Waits until all matched reliable readers have acknowledged everything; false when the time ran out.
    pub(in crate::dds) fn wait_for_acks(&self, timeout_nanos: i64) -> Result<bool, DdsError> {
        // SAFETY: the writer is live.
        let code = unsafe { dds_wait_for_acks(self.entity, timeout_nanos) };
        if code == RETCODE_TIMEOUT {
            return Ok(false);
        }
        check("dds_wait_for_acks", code).map(|_| true)
    }
}

/// `DDS_RETCODE_TIMEOUT`.
const RETCODE_TIMEOUT: dds_return_t = -10;

impl Drop for Writer {
    fn drop(&mut self) {
        // SAFETY: this value owns the handle.
        unsafe { dds_delete(self.entity) };
    }
}

/// Which endpoints a [`BuiltinReader`] shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::dds) enum BuiltinKind {
    Publications,
    Subscriptions,
}

/// An endpoint as DDS discovery shows it.
#[derive(Clone, Debug)]
pub(in crate::dds) struct BuiltinEndpoint {
    /// Its GUID.
    pub gid: Gid,
    /// Its participant's GUID.
    pub participant: Gid,
    /// DDS topic name.
    pub topic: String,
    /// DDS type name.
    pub type_name: String,
    /// What it offers or asks for.
    pub qos: DdsQos,
    /// When its participant announced it, or changed it: nanoseconds since the Unix epoch on the participant's clock.
    pub announced_nanos: i64,
    /// True for an endpoint of our participant.
    pub own: bool,
}

/// A change that a [`BuiltinReader`] shows.
pub(in crate::dds) enum BuiltinChange {
    /// Appeared, or changed its QoS.
    Alive(BuiltinEndpoint),
    /// Went away.
    Gone(Gid),
}

/// A reader of one of DDS's builtin topics.
pub(in crate::dds) struct BuiltinReader {
    entity: dds_entity_t,
    participant: Arc<Participant>,
    // Freed after the reader: the listener points to it.
    _news: Arc<GraphNews>,
}

impl BuiltinReader {
    /// Starts to follow all endpoints of a kind; sets `news` whenever there is something to take.
    pub(in crate::dds) fn new(
        participant: &Arc<Participant>,
        kind: BuiltinKind,
        news: &Arc<GraphNews>,
    ) -> Result<Self, DdsError> {
        let topic = match kind {
            BuiltinKind::Publications => HOLDALL_TOPIC_PUBLICATIONS,
            BuiltinKind::Subscriptions => HOLDALL_TOPIC_SUBSCRIPTIONS,
        };
        // SAFETY: the participant is live; a null QoS is allowed. Cyclone copies the listener; its argument outlives the reader.
        let entity = check("dds_create_reader", unsafe {
            let listener = dds_create_listener(Arc::as_ptr(news).cast_mut().cast());
            dds_lset_data_available(listener, Some(on_builtin_data));
            let entity = dds_create_reader(participant.entity, topic, ptr::null(), listener);
            dds_delete_listener(listener);
            entity
        })?;
        Ok(Self {
            entity,
            participant: Arc::clone(participant),
            _news: Arc::clone(news),
        })
    }

    /// Takes the changes since the last call; never blocks.
    pub(in crate::dds) fn take(&self, mut visit: impl FnMut(BuiltinChange)) -> Result<(), DdsError> {
        loop {
            let mut samples = [ptr::null_mut::<c_void>(); TAKE_MAX];
            let mut infos = std::mem::MaybeUninit::<[dds_sample_info_t; TAKE_MAX]>::uninit();
            // SAFETY: room for TAKE_MAX entries; the samples are on loan from the reader until `dds_return_loan`.
            let count = unsafe {
                let infos = infos.as_mut_ptr().cast::<dds_sample_info_t>();
                let count = check(
                    "dds_take",
                    dds_take(
                        self.entity,
                        samples.as_mut_ptr(),
                        infos,
                        TAKE_MAX,
                        TAKE_MAX as u32,
                    ),
                )?;
                for (index, sample) in samples
                    .iter()
                    .enumerate()
                    .take(usize::try_from(count).unwrap_or(0))
                {
                    let endpoint = &*sample.cast::<dds_builtintopic_endpoint_t>();
                    let info = &*infos.add(index);
                    if info.valid_data && info.instance_state == dds_instance_state_DDS_IST_ALIVE {
                        visit(BuiltinChange::Alive(
                            self.endpoint(endpoint, info.source_timestamp),
                        ));
                    } else {
                        visit(BuiltinChange::Gone(Gid(endpoint.key.v)));
                    }
                }
                if count > 0 {
                    check(
                        "dds_return_loan",
                        dds_return_loan(self.entity, samples.as_mut_ptr(), count),
                    )?;
                }
                count
            };
            if usize::try_from(count).unwrap_or(0) < TAKE_MAX {
                return Ok(());
            }
        }
    }

    /// # Safety
    /// `endpoint` must be a valid sample of a builtin endpoint topic.
    unsafe fn endpoint(
        &self,
        endpoint: &dds_builtintopic_endpoint_t,
        announced_nanos: i64,
    ) -> BuiltinEndpoint {
        // SAFETY: names are NUL-terminated or null, the QoS is live while the loan is.
        unsafe {
            BuiltinEndpoint {
                gid: Gid(endpoint.key.v),
                participant: Gid(endpoint.participant_key.v),
                topic: text_of(endpoint.topic_name),
                type_name: text_of(endpoint.type_name),
                qos: read_qos(endpoint.qos),
                announced_nanos,
                own: endpoint.participant_instance_handle == self.participant.instance,
            }
        }
    }
}

unsafe extern "C" fn on_builtin_data(_: dds_entity_t, news: *mut c_void) {
    // SAFETY: the news live until the reader is deleted, and that waits for us.
    unsafe { &*news.cast::<GraphNews>() }.set();
}

/// # Safety
/// `text` must be null or NUL-terminated.
pub(in crate::dds) unsafe fn text_of(text: *const std::ffi::c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller vouches for it.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

impl Drop for BuiltinReader {
    fn drop(&mut self) {
        // SAFETY: this value owns the handle.
        unsafe { dds_delete(self.entity) };
    }
}
