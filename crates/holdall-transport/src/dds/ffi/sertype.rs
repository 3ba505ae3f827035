//! Our own Cyclone DDS sertype: samples stay serialized, keep sequence number and writer, and hold received fragments by reference.
//!
//! A received sample is never copied here: it takes a reference to each packet that carries one of its fragments. A sample to send is one block.

use crate::dds::wire::{keys::note_end, locators::HEADER_BYTES};
use holdall_cyclone_sys::{
    DDSI_SERTYPE_FLAG_TOPICKIND_NO_KEY, dds_free_op_t, ddsi_keyhash, ddsi_rdata, ddsi_rmsg, ddsi_serdata,
    ddsi_serdata_init, ddsi_serdata_kind, ddsi_serdata_kind_SDK_DATA, ddsi_serdata_kind_SDK_KEY,
    ddsi_serdata_ops, ddsi_serdata_unref, ddsi_sertype, ddsi_sertype_fini, ddsi_sertype_init_flags,
    ddsi_sertype_ops, ddsi_sertype_v0, ddsrt_iovec_t, ddsrt_msg_iovlen_t, holdall_release_fragments,
};
use holdall_model::topic::Gid;
use std::{
    ffi::{CStr, c_char, c_void},
    mem::size_of,
    ptr::{self, NonNull},
    slice,
    sync::atomic::{AtomicU32, Ordering},
};

/// Bytes that Cyclone allocates for a receive buffer, the unit in which fragments pin memory: a whole number of pages, and a size that
/// it asks for nothing else (`Sizing/ReceiveBufferSize` and the head).
pub(in crate::dds) const RECEIVE_BUFFER_BYTES: usize = holdall_io::survivor::buffers::BUFFER_BYTES;

/// What `ddsi_serdata` pointers of our sertype point to; allocated with `calloc`, so that null and zero are the defaults.
#[repr(C)]
struct RawSample {
    serdata: ddsi_serdata,
    /// Payload length in bytes, with encapsulation header.
    len: usize,
    /// First fragment of a received payload; null when `block` holds it.
    fragments: *mut ddsi_rdata,
    /// Payload in one piece (`malloc`), padded to a multiple of four; null when `fragments` hold it.
    block: *mut u8,
    /// The writer's sequence number; 0 when the sample did not come over the network.
    sequence: u64,
    /// The writer's GUID in network byte order; zero when the sample did not come over the network.
    guid: [u8; 16],
}

/// A reference to a serialized sample; released on drop.
pub(in crate::dds) struct Sample(NonNull<RawSample>);

// SAFETY: a sample is immutable after construction; its count and those of its packets are atomic, and Cyclone allows any thread to release them.
unsafe impl Send for Sample {}
// SAFETY: as above; nothing changes a sample that is shared.
unsafe impl Sync for Sample {}

impl Sample {
    /// Takes over one reference that Cyclone handed out (`dds_takecdr`).
    ///
    /// # Safety
    /// `serdata` must come from a topic made with [`new_sertype`] and the caller must own one reference to it.
    pub(in crate::dds) unsafe fn from_raw(serdata: *mut ddsi_serdata) -> Option<Self> {
        NonNull::new(serdata.cast::<RawSample>()).map(Self)
    }

    /// A sample to send: copies `payload` into a new block. None when memory is exhausted.
    ///
    /// # Safety
    /// `sertype` must be a live sertype made with [`new_sertype`].
    pub(in crate::dds) unsafe fn from_payload(sertype: *const ddsi_sertype, payload: &[u8]) -> Option<Self> {
        // SAFETY: the caller vouches for `sertype`; the block has room for the payload.
        unsafe {
            let raw = new_with_block(sertype, ddsi_serdata_kind_SDK_DATA, payload.len())?;
            ptr::copy_nonoverlapping(payload.as_ptr(), (*raw.as_ptr()).block, payload.len());
            Some(Self(raw))
        }
    }

    /// Hands the reference over to Cyclone (`dds_writecdr`).
    pub(in crate::dds) fn into_raw(self) -> *mut ddsi_serdata {
        let raw = self.0.as_ptr().cast::<ddsi_serdata>();
        std::mem::forget(self);
        raw
    }

    fn raw(&self) -> &RawSample {
        // SAFETY: we hold a reference, and a sample does not change after construction.
        unsafe { self.0.as_ref() }
    }

    /// Payload length in bytes.
    pub(in crate::dds) fn len(&self) -> usize {
        self.raw().len
    }

    /// The writer's sequence number and GUID, for samples that came over the network.
    pub(in crate::dds) fn origin(&self) -> Option<(Gid, u64)> {
        let raw = self.raw();
        (!raw.fragments.is_null() && raw.sequence != 0).then_some((Gid(raw.guid), raw.sequence))
    }

    /// The inline QoS of the submessage that the payload's first fragment arrived in, where it has some, and whether its numbers are
    /// little endian.
    pub(in crate::dds) fn inline_qos(&self) -> Option<(&[u8], bool)> {
        let first = self.raw().fragments;
        if first.is_null() {
            return None;
        }
        // SAFETY: the chain and its packets live for as long as the sample. Cyclone has checked the submessage: its fixed part and its
        // inline QoS are in front of the payload, and the field with their offset is in host byte order by now.
        unsafe {
            let (packet, begin) = ((*first).rmsg, usize::from((*first).submsg_zoff));
            let flags = *packet_byte(packet, begin + 1);
            let octets = packet_byte(packet, begin + 6).cast::<u16>().read_unaligned();
            let (from, until) = (
                begin + 8 + usize::from(octets),
                usize::from((*first).payload_zoff),
            );
            let has_some = flags & 2 != 0 && from < until;
            has_some.then(|| {
                (
                    slice::from_raw_parts(packet_byte(packet, from), until - from),
                    flags & 1 != 0,
                )
            })
        }
    }

    /// The payload when it is in one piece.
    pub(in crate::dds) fn contiguous(&self) -> Option<&[u8]> {
        let mut pieces = self.pieces();
        let first = pieces.next().unwrap_or_default();
        (first.len() == self.len()).then_some(first)
    }

    /// The payload's pieces in order, without overlaps.
    pub(in crate::dds) fn pieces(&self) -> Pieces<'_> {
        let raw = self.raw();
        let block = if raw.block.is_null() {
            &[][..]
        } else {
            // SAFETY: `block` holds `len` initialized bytes for as long as the sample lives.
            unsafe { slice::from_raw_parts(raw.block, raw.len) }
        };
        Pieces {
            fragment: raw.fragments,
            offset: 0,
            end: raw.len,
            block,
            sample: self,
        }
    }

    /// Calls `visit` with the address of the receive buffer of each fragment; the same address may come several times.
    pub(in crate::dds) fn for_each_receive_buffer(&self, mut visit: impl FnMut(usize)) {
        let mut fragment = self.raw().fragments;
        while !fragment.is_null() {
            // SAFETY: the chain and its packets live for as long as the sample holds its references.
            unsafe {
                visit((*(*fragment).rmsg).chunk.rbuf as usize);
                fragment = (*fragment).nextfrag;
            }
        }
    }

    /// Size in bytes of the unit that a fragment pins.
    pub(in crate::dds) const fn receive_buffer_bytes() -> usize {
        RECEIVE_BUFFER_BYTES
    }
}

impl Drop for Sample {
    fn drop(&mut self) {
        // SAFETY: we own one reference.
        unsafe { ddsi_serdata_unref(self.0.as_ptr().cast()) }
    }
}

/// Iterator over the pieces of a payload: skips fragments, and parts of fragments, that repeat what came before.
pub(in crate::dds) struct Pieces<'a> {
    fragment: *mut ddsi_rdata,
    offset: usize,
    end: usize,
    block: &'a [u8],
    sample: &'a Sample,
}

impl<'a> Iterator for Pieces<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let _keeps_fragments_alive = self.sample;
        if !self.block.is_empty() {
            return Some(std::mem::take(&mut self.block));
        }
        while !self.fragment.is_null() && self.offset < self.end {
            // SAFETY: the chain lives for as long as the sample, which `'a` borrows.
            let fragment = unsafe { &*self.fragment };
            self.fragment = fragment.nextfrag;
            let (min, end) = (fragment.min as usize, (fragment.maxp1 as usize).min(self.end));
            if end <= self.offset || min > self.offset {
                continue;
            }
            // SAFETY: the packet holds the fragment's bytes [min, maxp1) from `payload_zoff` on; offset is
            // within that range.
            let piece = unsafe {
                let start = packet_byte(
                    fragment.rmsg,
                    fragment.payload_zoff as usize + (self.offset - min),
                );
                slice::from_raw_parts(start, end - self.offset)
            };
            self.offset = end;
            return Some(piece);
        }
        None
    }
}

/// Submessage id of `INFO_SRC`.
const INFO_SOURCE: u8 = 0x0c;

/// Address of a byte of a received packet.
///
/// # Safety
/// `rmsg` must be live and `offset` within its packet.
unsafe fn packet_byte(rmsg: *mut ddsi_rmsg, offset: usize) -> *const u8 {
    // SAFETY: the packet directly follows its header.
    unsafe { rmsg.cast::<u8>().add(size_of::<ddsi_rmsg>() + offset) }
}

/// A sample without payload. None when memory is exhausted.
///
/// # Safety
/// `sertype` must be live.
unsafe fn new_raw(
    sertype: *const ddsi_sertype,
    kind: ddsi_serdata_kind,
    len: usize,
) -> Option<NonNull<RawSample>> {
    // SAFETY: all-zero bytes are a valid RawSample; `ddsi_serdata_init` fills in the header.
    unsafe {
        let raw = NonNull::new(libc::calloc(1, size_of::<RawSample>()).cast::<RawSample>())?;
        ddsi_serdata_init(&raw mut (*raw.as_ptr()).serdata, sertype, kind);
        (*raw.as_ptr()).len = len;
        Some(raw)
    }
}

/// A sample with room for `len` bytes of payload, padded with zeros to a multiple of four as Cyclone reads it when sending.
///
/// # Safety
/// `sertype` must be live.
unsafe fn new_with_block(
    sertype: *const ddsi_sertype,
    kind: ddsi_serdata_kind,
    len: usize,
) -> Option<NonNull<RawSample>> {
    let padded = len.next_multiple_of(4).max(4);
    // SAFETY: `block` has `padded` bytes; the last four are set to zero before the payload is copied over them.
    unsafe {
        let raw = new_raw(sertype, kind, len)?;
        let block = libc::malloc(padded).cast::<u8>();
        if block.is_null() {
            libc::free(raw.as_ptr().cast());
            return None;
        }
        ptr::write_bytes(block.add(padded - 4), 0, 4);
        (*raw.as_ptr()).block = block;
        Some(raw)
    }
}

/// `from_ser`: a sample arrived; keeps its fragments by reference, with sequence number and writer from the packet.
unsafe extern "C" fn sample_from_fragments(
    sertype: *const ddsi_sertype,
    kind: ddsi_serdata_kind,
    chain: *const ddsi_rdata,
    len: usize,
) -> *mut ddsi_serdata {
    // SAFETY: Cyclone passes a live, non-empty chain whose packets hold at least one reference each during this call, so that adding
    // references is allowed; it has brought all header fields of the packet into host byte order.
    unsafe {
        let Some(raw) = new_raw(sertype, kind, len) else {
            return ptr::null_mut();
        };
        let raw = raw.as_ptr();
        let first = chain.cast_mut();
        let packet = (*first).rmsg;
        let submessage = (*first).submsg_zoff as usize;
        let word = |offset: usize| packet_byte(packet, offset).cast::<u32>().read_unaligned();
        // RTPS header: "RTPS", version, vendor, GUID prefix at 8; DATA: header 4, flags 4, reader 8, writer 12, sequence 16 and 20.
        let mut guid = [0; 16];
        for (part, offset) in guid.chunks_exact_mut(4).zip([8, 12, 16, submessage + 12]) {
            part.copy_from_slice(&word(offset).to_be_bytes());
        }
        // A packet that is protected as a whole (DDS Security) begins with INFO_SRC: Cyclone uses its prefix, at 12 in network byte order, and leaves
        // the header's prefix in a byte order that no host uses.
        if *packet_byte(packet, HEADER_BYTES) == INFO_SOURCE {
            ptr::copy_nonoverlapping(packet_byte(packet, HEADER_BYTES + 12), guid.as_mut_ptr(), 12);
        }
        (*raw).guid = guid;
        (*raw).sequence = (u64::from(word(submessage + 16)) << 32) | u64::from(word(submessage + 20));
        if kind == ddsi_serdata_kind_SDK_KEY {
            note_end(Gid(guid), (*raw).sequence);
        }
        (*raw).fragments = first;
        let mut fragment = first;
        while !fragment.is_null() {
            AtomicU32::from_ptr(&raw mut (*(*fragment).rmsg).refcount.v).fetch_add(1, Ordering::Relaxed);
            fragment = (*fragment).nextfrag;
        }
        raw.cast()
    }
}

/// `from_ser_iov`: a sample from a writer of this process.
unsafe extern "C" fn sample_from_slices(
    sertype: *const ddsi_sertype,
    kind: ddsi_serdata_kind,
    count: ddsrt_msg_iovlen_t,
    slices: *const ddsrt_iovec_t,
    len: usize,
) -> *mut ddsi_serdata {
    // SAFETY: Cyclone passes `count` readable slices of together at least `len` bytes; copying stops at `len`.
    unsafe {
        let Some(raw) = new_with_block(sertype, kind, len) else {
            return ptr::null_mut();
        };
        let block = (*raw.as_ptr()).block;
        let mut filled = 0;
        for index in 0..count {
            let part = &*slices.add(index);
            let n = part.iov_len.min(len - filled);
            ptr::copy_nonoverlapping(part.iov_base.cast::<u8>(), block.add(filled), n);
            filled += n;
        }
        raw.as_ptr().cast()
    }
}

/// `from_keyhash`: an instance has ended, and only the hash of its key came.
unsafe extern "C" fn sample_from_keyhash(
    sertype: *const ddsi_sertype,
    _: *const ddsi_keyhash,
) -> *mut ddsi_serdata {
    // SAFETY: Cyclone passes a live sertype.
    let raw = unsafe { new_raw(sertype, ddsi_serdata_kind_SDK_KEY, 0) };
    raw.map_or(ptr::null_mut(), |raw| raw.as_ptr().cast())
}

unsafe extern "C" fn sample_from_typed(
    _: *const ddsi_sertype,
    _: ddsi_serdata_kind,
    _: *const c_void,
) -> *mut ddsi_serdata {
    ptr::null_mut()
}

unsafe extern "C" fn sample_size(serdata: *const ddsi_serdata) -> u32 {
    // SAFETY: Cyclone passes samples of our sertype only.
    let len = unsafe { (*serdata.cast::<RawSample>()).len };
    // The protocol carries at most 4 GiB, and publishers refuse longer payloads.
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// `to_ser`: copies part of a payload out; reads beyond the payload, up to a multiple of four, yield zeros.
unsafe extern "C" fn sample_copy_out(
    serdata: *const ddsi_serdata,
    offset: usize,
    len: usize,
    to: *mut c_void,
) {
    // SAFETY: Cyclone passes a sample of our sertype and room for `len` bytes; `refc` is raised while `sample` exists.
    unsafe {
        ptr::write_bytes(to.cast::<u8>(), 0, len);
        let sample = Sample(NonNull::new_unchecked(add_reference(serdata).cast()));
        let (mut at, end) = (0, offset + len);
        for piece in sample.pieces() {
            let (from, until) = (at.max(offset), (at + piece.len()).min(end));
            if from < until {
                ptr::copy_nonoverlapping(
                    piece.as_ptr().add(from - at),
                    to.cast::<u8>().add(from - offset),
                    until - from,
                );
            }
            at += piece.len();
        }
    }
}

/// `to_ser_ref`: part of a payload by reference.
unsafe extern "C" fn sample_lend(
    serdata: *const ddsi_serdata,
    offset: usize,
    len: usize,
    out: *mut ddsrt_iovec_t,
) -> *mut ddsi_serdata {
    // SAFETY: Cyclone passes a sample of our sertype, which has a block or fragments. `offset + len` is at
    // most the padded length, which is the size of a block. Fragments are gathered into a block of a second
    // sample, which Cyclone releases in `sample_take_back`.
    unsafe {
        let lent = if (*serdata.cast::<RawSample>()).block.is_null() {
            let size = (*serdata.cast::<RawSample>()).len;
            match new_with_block((*serdata).type_, (*serdata).kind, size) {
                Some(copy) => {
                    sample_copy_out(serdata, 0, size, (*copy.as_ptr()).block.cast());
                    copy.as_ptr().cast()
                }
                None => {
                    (*out).iov_base = ptr::null_mut();
                    (*out).iov_len = 0;
                    return add_reference(serdata);
                }
            }
        } else {
            add_reference(serdata)
        };
        (*out).iov_base = (*lent.cast::<RawSample>()).block.add(offset).cast();
        (*out).iov_len = len as _;
        lent
    }
}

unsafe extern "C" fn sample_take_back(serdata: *mut ddsi_serdata, _: *const ddsrt_iovec_t) {
    // SAFETY: `serdata` is what `sample_lend` returned, with the reference that it added.
    unsafe { ddsi_serdata_unref(serdata) }
}

/// Adds a reference and returns the pointer for the reference's owner.
///
/// # Safety
/// `serdata` must be live.
unsafe fn add_reference(serdata: *const ddsi_serdata) -> *mut ddsi_serdata {
    let serdata = serdata.cast_mut();
    // SAFETY: `refc` is a 32-bit atomic counter in C.
    unsafe { AtomicU32::from_ptr(&raw mut (*serdata).refc.v).fetch_add(1, Ordering::Relaxed) };
    serdata
}

unsafe extern "C" fn sample_untyped(serdata: *const ddsi_serdata) -> *mut ddsi_serdata {
    // SAFETY: `serdata` and its sertype are live; the copy has no payload and, as Cyclone demands, no type.
    unsafe {
        let Some(raw) = new_raw((*serdata).type_, ddsi_serdata_kind_SDK_KEY, 0) else {
            return ptr::null_mut();
        };
        let untyped = &mut (*raw.as_ptr()).serdata;
        untyped.type_ = ptr::null();
        untyped.hash = (*serdata).hash;
        raw.as_ptr().cast()
    }
}

unsafe extern "C" fn sample_free(serdata: *mut ddsi_serdata) {
    // SAFETY: the last reference is gone, so no other code reads the sample; its fragments were referenced
    // when it was made.
    unsafe {
        let raw = serdata.cast::<RawSample>();
        if !(*raw).fragments.is_null() {
            holdall_release_fragments((*raw).fragments);
        }
        libc::free((*raw).block.cast());
        libc::free(raw.cast());
    }
}

unsafe extern "C" fn sample_print(
    _: *const ddsi_sertype,
    _: *const ddsi_serdata,
    to: *mut c_char,
    room: usize,
) -> usize {
    let text = b"serialized";
    let n = text.len().min(room.saturating_sub(1));
    // SAFETY: Cyclone passes `room` > 0 writable bytes.
    unsafe {
        ptr::copy_nonoverlapping(text.as_ptr().cast(), to, n);
        *to.add(n) = 0;
    }
    n
}

unsafe extern "C" fn sample_same_key(_: *const ddsi_serdata, _: *const ddsi_serdata) -> bool {
    true
}

unsafe extern "C" fn sample_keyhash(_: *const ddsi_serdata, out: *mut ddsi_keyhash, _: bool) {
    // SAFETY: Cyclone passes a writable key hash.
    unsafe { ptr::write_bytes(out, 0, 1) }
}

unsafe extern "C" fn type_free(sertype: *mut ddsi_sertype) {
    // SAFETY: the last reference is gone; `new_sertype` allocated it with `calloc`.
    unsafe {
        ddsi_sertype_fini(sertype);
        libc::free(sertype.cast());
    }
}

unsafe extern "C" fn type_zero_samples(_: *const ddsi_sertype, _: *mut c_void, _: usize) {}

unsafe extern "C" fn type_realloc_samples(
    samples: *mut *mut c_void,
    _: *const ddsi_sertype,
    _: *mut c_void,
    _: usize,
    count: usize,
) {
    for index in 0..count {
        // SAFETY: Cyclone passes room for `count` pointers; a topic of this type has no typed samples to point to.
        unsafe { *samples.add(index) = ptr::null_mut() };
    }
}

unsafe extern "C" fn type_free_samples(
    _: *const ddsi_sertype,
    _: *mut *mut c_void,
    _: usize,
    _: dds_free_op_t,
) {
}

unsafe extern "C" fn type_equal(_: *const ddsi_sertype, _: *const ddsi_sertype) -> bool {
    // Cyclone has compared the names; there is nothing else to compare.
    true
}

unsafe extern "C" fn type_hash(_: *const ddsi_sertype) -> u32 {
    0
}

/// The functions of our sertype; in a static so that they outlive every domain.
struct Operations {
    of_type: ddsi_sertype_ops,
    of_sample: ddsi_serdata_ops,
}

// SAFETY: only function pointers and a null pointer, never written.
unsafe impl Sync for Operations {}

static OPERATIONS: Operations = Operations {
    of_type: ddsi_sertype_ops {
        version: Some(ddsi_sertype_v0),
        arg: ptr::null_mut(),
        free: Some(type_free),
        zero_samples: Some(type_zero_samples),
        realloc_samples: Some(type_realloc_samples),
        free_samples: Some(type_free_samples),
        equal: Some(type_equal),
        hash: Some(type_hash),
        type_id: None,
        type_map: None,
        type_info: None,
        derive_sertype: None,
        get_serialized_size: None,
        serialize_into: None,
    },
    of_sample: ddsi_serdata_ops {
        eqkey: Some(sample_same_key),
        get_size: Some(sample_size),
        from_ser: Some(sample_from_fragments),
        from_ser_iov: Some(sample_from_slices),
        from_keyhash: Some(sample_from_keyhash),
        from_sample: Some(sample_from_typed),
        to_ser: Some(sample_copy_out),
        to_ser_ref: Some(sample_lend),
        to_ser_unref: Some(sample_take_back),
        to_sample: None,
        to_untyped: Some(sample_untyped),
        untyped_to_sample: None,
        free: Some(sample_free),
        print: Some(sample_print),
        get_keyhash: Some(sample_keyhash),
        from_loaned_sample: None,
        from_psmx: None,
    },
};

/// A new sertype for a DDS type name; the caller owns the one reference. Null when memory is exhausted.
pub(in crate::dds) fn new_sertype(type_name: &CStr, is_keyed: bool) -> *mut ddsi_sertype {
    // SAFETY: all-zero bytes are what Cyclone expects before `init`; the operations live for ever.
    unsafe {
        let sertype = libc::calloc(1, size_of::<ddsi_sertype>()).cast::<ddsi_sertype>();
        if !sertype.is_null() {
            ddsi_sertype_init_flags(
                sertype,
                type_name.as_ptr(),
                &raw const OPERATIONS.of_type,
                &raw const OPERATIONS.of_sample,
                if is_keyed {
                    0
                } else {
                    DDSI_SERTYPE_FLAG_TOPICKIND_NO_KEY
                },
            );
        }
        sertype
    }
}
