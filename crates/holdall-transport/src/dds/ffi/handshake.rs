//! OpenSSL for Cyclone DDS's security plugins, loaded only when a domain is secured (docs/adr/0024), and what we decide in handshakes with
//! Fast DDS.
//!
//! DDS Security 1.1 does not define how a Diffie-Hellman key of `DH+MODP-2048-256` is written. Cyclone DDS reads and writes it as an ASN.1
//! integer; Fast DDS, which proposes this algorithm unless it is configured otherwise, and version 1.2 of the specification use the bytes of
//! the number alone. Which of two participants proposes depends on their certificates. Both forms are accepted here, and answered in the form
//! of the other side. The names of algorithms are hashed without the NUL that Fast DDS refuses ([`crate::dds::wire::handshake_names`]).

use crate::dds::wire::handshake_names::to_be_hashed;
use holdall_cyclone_sys::{holdall_handshake, holdall_openssl_load};
use holdall_io::mutex::lock;
use std::{
    cell::Cell,
    collections::VecDeque,
    ffi::{CStr, c_char},
    ptr, slice,
    sync::{Mutex, OnceLock},
};

/// Handshakes that take place at the same time, two keys each: more are repeated.
const PLAIN_KEYS_MAX: usize = 256;

/// Longest key that is read: 2048 bits, and what DER adds.
const KEY_BYTES_MAX: usize = 1_024;

/// Longest reason why OpenSSL cannot be loaded.
const REASON_BYTES_MAX: usize = 512;

/// Keys that came as bytes alone, and those that answer them: the newest last.
static PLAIN: Mutex<VecDeque<Vec<u8>>> = Mutex::new(VecDeque::new());

thread_local! {
    /// The last key that this thread has read was bytes alone, and so is the answer.
    static IS_ANSWER_PLAIN: Cell<bool> = const { Cell::new(false) };
}

static DECISIONS: holdall_handshake = holdall_handshake {
    is_plain: Some(is_plain),
    goes_plain: Some(goes_plain),
    to_be_hashed: Some(changed_for_hash),
};

/// Loads OpenSSL, once for the process.
///
/// # Errors
/// One sentence, where the system has no OpenSSL 3 or one that lacks a function.
pub(in crate::dds) fn load_openssl() -> Result<(), String> {
    static LOADED: OnceLock<Result<(), String>> = OnceLock::new();
    let load = || {
        let mut reason: [c_char; REASON_BYTES_MAX] = [0; REASON_BYTES_MAX];
        // SAFETY: the decisions live for ever; the reason has room for the given number of bytes, and ends with NUL when loading fails.
        unsafe {
            if holdall_openssl_load(&raw const DECISIONS, reason.as_mut_ptr(), reason.len()) {
                return Ok(());
            }
            let reason = CStr::from_ptr(reason.as_ptr()).to_string_lossy();
            Err(format!("DDS security needs OpenSSL 3, {reason}"))
        }
    };
    LOADED.get_or_init(load).clone()
}

/// Bytes that C passes.
///
/// # Safety
/// `len` bytes must be readable, for as long as the result is used.
unsafe fn bytes_at<'a>(bytes: *const u8, len: usize) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: the caller vouches for it.
    unsafe { slice::from_raw_parts(bytes, len) }
}

/// Whether these bytes are one integer in DER, and nothing else.
fn is_der(bytes: &[u8]) -> bool {
    let [2, first, rest @ ..] = bytes else {
        return false;
    };
    let long = usize::from(first & 0x7f);
    if first & 0x80 == 0 {
        return rest.len() == long;
    }
    if long > 2 || rest.len() < long {
        return false;
    }
    let (len, content) = rest.split_at(long);
    len.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)) == content.len()
}

/// Notes a key that is written as its bytes alone.
fn remember(bytes: &[u8]) {
    let mut plain = lock(&PLAIN);
    if plain.len() == PLAIN_KEYS_MAX {
        plain.pop_front();
    }
    plain.push_back(bytes.to_vec());
}

/// A key came in: whether it is the bytes of a number alone, and how many zeros it begins with.
unsafe extern "C" fn is_plain(key: *const u8, len: usize, zeros: *mut usize) -> bool {
    // SAFETY: C passes `len` bytes and a place to write to.
    let key = unsafe { bytes_at(key, len) };
    let is_plain = !is_der(key);
    IS_ANSWER_PLAIN.set(is_plain);
    if !is_plain || len > KEY_BYTES_MAX {
        return false;
    }
    let begin = key.iter().position(|byte| *byte != 0).unwrap_or(len);
    remember(&key[begin..]);
    // SAFETY: as above.
    unsafe { *zeros = begin };
    true
}

/// A key goes out: whether as the bytes of the number alone.
unsafe extern "C" fn goes_plain(number: *const u8, len: usize) -> bool {
    // SAFETY: C passes `len` bytes.
    let number = unsafe { bytes_at(number, len) };
    let is_known = lock(&PLAIN).iter().any(|key| key == number);
    if !is_known && IS_ANSWER_PLAIN.get() {
        remember(number);
    }
    is_known || IS_ANSWER_PLAIN.get()
}

/// Our properties in the form in which they are sent, in memory of `malloc`; null for other bytes.
unsafe extern "C" fn changed_for_hash(bytes: *const u8, len: usize, changed_len: *mut usize) -> *mut u8 {
    // SAFETY: C passes `len` bytes.
    let Some(changed) = to_be_hashed(unsafe { bytes_at(bytes, len) }) else {
        return ptr::null_mut();
    };
    // SAFETY: as above, and a place to write to; the new memory has room for all bytes.
    unsafe {
        let copy = libc::malloc(changed.len().max(1)).cast::<u8>();
        if !copy.is_null() {
            ptr::copy_nonoverlapping(changed.as_ptr(), copy, changed.len());
            *changed_len = changed.len();
        }
        copy
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_cyclone_sys::holdall_openssl_key;

    /// Reads a key as Cyclone does, and writes what is read.
    fn read_and_written(key: &[u8]) -> Vec<u8> {
        let mut written = [0; KEY_BYTES_MAX];
        // SAFETY: both are readable and writable for the given lengths; OpenSSL is loaded.
        let len =
            unsafe { holdall_openssl_key(key.as_ptr(), key.len(), written.as_mut_ptr(), written.len()) };
        assert!(len > 0);
        written[..len].to_vec()
    }

    #[test]
    fn each_side_is_answered_in_its_own_form() {
        assert_eq!(load_openssl(), Ok(()));
        assert_eq!(load_openssl(), Ok(()), "once more");
        let number: Vec<u8> = (0..=255).map(|byte: u8| byte.wrapping_mul(7) | 1).collect();
        let high = [&[0x82][..], &number[1..]].concat();
        let der = |number: &[u8]| {
            let sign = if number[0] & 0x80 == 0 { &[][..] } else { &[0] };
            let len = u16::try_from(number.len() + sign.len()).unwrap().to_be_bytes();
            [&[2, 0x82, len[0], len[1]], sign, number].concat()
        };
        let other = [&[0x11][..], &high[1..]].concat();
        assert_eq!(read_and_written(&der(&other)), der(&other));
        assert_eq!(read_and_written(&number), number);
        assert_eq!(read_and_written(&high), high);
        // A key that came plain stays plain, whatever came since.
        assert_eq!(read_and_written(&der(&other)), der(&other));
        assert_eq!(read_and_written(&number), number);
        // Leading zeros are not part of a number.
        let padded = [&[0, 0][..], &number[2..]].concat();
        assert_eq!(read_and_written(&padded), number[2..]);
    }

    #[test]
    fn only_one_whole_integer_is_der() {
        assert!(is_der(&[2, 1, 5]) && is_der(&[2, 0x81, 1, 5]));
        for other in [
            &[][..],
            &[2],
            &[2, 1],
            &[2, 1, 5, 6],
            &[3, 1, 5],
            &[2, 0x83, 0, 0, 1, 5],
            &[2, 0x82, 1],
        ] {
            assert!(!is_der(other), "{other:?}");
        }
    }
}
