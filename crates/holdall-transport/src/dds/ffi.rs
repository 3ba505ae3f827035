//! Declarations of Cyclone DDS internals that `cyclors` does not bind: receive buffers, fragment chains, and
//! how to release them.
//!
//! The layouts are those of Cyclone DDS 11.0.1 (`dds/ddsi/ddsi_radmin.h`), which `cyclors` 0.4.0 bundles; `Cargo.toml` pins that version
//! exactly. They are the same with and without `NDEBUG`: the debug build only appends a field to `ddsi_rdata`.

use super::config::RECEIVE_BUFFER_HEAD_BYTES;
use std::{ffi::c_void, sync::atomic::AtomicU32};

/// `struct ddsi_rmsg_chunk`: a piece of a receive buffer.
#[repr(C)]
pub(super) struct RmsgChunk {
    /// The receive buffer (`struct ddsi_rbuf`) that contains the piece.
    pub rbuf: *mut c_void,
    next: *mut RmsgChunk,
    size: u64,
}

/// `struct ddsi_rmsg`: one received packet; the packet itself follows this header.
#[repr(C)]
pub(super) struct Rmsg {
    /// References held by fragments; the packet's memory is reusable once it reaches zero.
    pub refcount: AtomicU32,
    lastchunk: *mut RmsgChunk,
    trace: bool,
    /// First piece: header and packet.
    pub chunk: RmsgChunk,
}

/// `struct ddsi_rdata`: one DATA or DATA_FRAG submessage of a received packet.
#[repr(C)]
pub(super) struct Rdata {
    /// The packet that it arrived in.
    pub rmsg: *mut Rmsg,
    /// Next fragment of the same sample, in ascending order of `min`, possibly overlapping.
    pub nextfrag: *mut Rdata,
    /// First payload byte that this fragment holds.
    pub min: u32,
    /// One past the last payload byte that this fragment holds.
    pub maxp1: u32,
    /// Offset of the submessage header from the packet's start.
    pub submsg_zoff: u16,
    /// Offset of the payload from the packet's start.
    pub payload_zoff: u16,
    keyhash_zoff: u16,
}

const _: () = {
    assert!(std::mem::size_of::<RmsgChunk>() == 24);
    assert!(std::mem::size_of::<Rmsg>() == 48);
    assert!(std::mem::offset_of!(Rmsg, chunk) == 24);
    assert!(std::mem::offset_of!(Rdata, min) == 16);
    assert!(std::mem::offset_of!(Rdata, payload_zoff) == 26);
};

/// `struct ddsi_rbuf`: the head of a receive buffer, before its bytes.
#[repr(C)]
struct RbufHead {
    n_live_rmsg_chunks: AtomicU32,
    size: u32,
    max_rmsg_size: u32,
    rbufpool: *mut c_void,
    trace: bool,
    freeptr: *mut u8,
    aligned: u64,
}

const _: () = assert!(std::mem::size_of::<RbufHead>() == RECEIVE_BUFFER_HEAD_BYTES);

/// Bytes that Cyclone allocates for a receive buffer, the unit in which fragments pin memory: a whole number of pages, and a size that
/// it asks for nothing else (`Sizing/ReceiveBufferSize` and the head).
pub(super) const RECEIVE_BUFFER_BYTES: usize = holdall_io::survivor::buffers::BUFFER_BYTES;

unsafe extern "C" {
    /// Releases one reference to the packet of each fragment in the chain (`ddsi__radmin.h`); may be called
    /// from any thread.
    pub(super) fn ddsi_fragchain_unref(frag: *mut Rdata);
}
