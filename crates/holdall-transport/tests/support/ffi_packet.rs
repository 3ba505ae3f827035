//! Searches the memory before a payload for the header of the RTPS packet that it came in.

/// The first bytes of every RTPS packet.
const MAGIC: &[u8; 4] = b"RTPS";

/// The longest UDP datagram: a packet may hold several fragments.
const PACKET_BYTES_MAX: usize = 65_507;

/// The shortest distance from a packet's begin to a fragment in it: packet header and fragment header.
const HEADERS_BYTES_MIN: usize = 20 + 36;

/// Whether a packet begins before this address, so that the byte at this address was received in it.
pub fn is_in_a_packet(address: usize) -> bool {
    (HEADERS_BYTES_MIN..=PACKET_BYTES_MAX).any(|distance| {
        let before = (address - distance) as *const [u8; 4];
        // SAFETY: a fragment that is lent is in a receive buffer of a megabyte, after its packet's header;
        // the search ends there.
        unsafe { before.read_unaligned() == *MAGIC }
    })
}
