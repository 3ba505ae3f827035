//! The header that rmw_cyclonedds puts between encapsulation header and body of requests and replies: the client's number and the request's.

use crate::service::Wrapping;
use holdall_model::topic::Gid;

const ENCAPSULATION_BYTES: usize = 4;
const HEADER_BYTES: usize = 16;

/// The header of a payload; `None` when that is too short. The header is little endian, whatever the payload is.
pub(in crate::dds) fn header_of(payload: &[u8]) -> Option<[u8; HEADER_BYTES]> {
    let header = payload.get(ENCAPSULATION_BYTES..ENCAPSULATION_BYTES + HEADER_BYTES)?;
    Some(in_order(header.try_into().ok()?, is_little(payload)))
}

/// Takes the header out of a payload, as [`header_of`].
pub(in crate::dds) fn unwrapped(mut payload: Vec<u8>) -> Option<([u8; HEADER_BYTES], Vec<u8>)> {
    let header = header_of(&payload)?;
    payload.drain(ENCAPSULATION_BYTES..ENCAPSULATION_BYTES + HEADER_BYTES);
    Some((header, payload))
}

/// A payload as its receiver expects it.
pub(in crate::dds) fn wrapped(payload: &[u8], wrapping: Wrapping) -> Vec<u8> {
    let Wrapping::Header(header) = wrapping else {
        return payload.to_vec();
    };
    let (encapsulation, body) = payload.split_at(ENCAPSULATION_BYTES.min(payload.len()));
    [encapsulation, &in_order(header, is_little(payload)), body].concat()
}

/// The header of a request.
pub(in crate::dds) fn header(client: u64, number: u64) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(&client.to_le_bytes());
    header[8..].copy_from_slice(&number.to_le_bytes());
    header
}

/// Client and number in a header.
pub(in crate::dds) fn parts(header: [u8; HEADER_BYTES]) -> (u64, u64) {
    let (mut client, mut number) = ([0; 8], [0; 8]);
    client.copy_from_slice(&header[..8]);
    number.copy_from_slice(&header[8..]);
    (u64::from_le_bytes(client), u64::from_le_bytes(number))
}

/// How rmw_cyclonedds names a client: any number that no other client has.
pub(in crate::dds) fn client_id(writer: Gid) -> u64 {
    let (high, low) = parts(writer.0);
    high ^ low.rotate_left(32)
}

fn is_little(payload: &[u8]) -> bool {
    payload.get(1).is_none_or(|kind| kind & 1 != 0)
}

/// Both numbers, from or to little endian.
fn in_order(mut header: [u8; HEADER_BYTES], is_little: bool) -> [u8; HEADER_BYTES] {
    if !is_little {
        header[..8].reverse();
        header[8..].reverse();
    }
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_taken_out_and_put_back() {
        let header = header(3, 5);
        assert_eq!(parts(header), (3, 5));
        for (encapsulation, first) in [([0, 1, 0, 0], 3), ([0, 0, 0, 0], 0)] {
            let body = [&encapsulation[..], b"body"].concat();
            let whole = wrapped(&body, Wrapping::Header(header));
            assert_eq!((whole.len(), whole[4]), (24, first));
            assert_eq!(unwrapped(whole), Some((header, body.clone())));
            assert_eq!(wrapped(&body, Wrapping::Bare), body);
        }
        assert_eq!(unwrapped(vec![0; 19]), None);
    }
}
