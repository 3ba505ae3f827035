//! Replacements for functions of OpenSSL, so that handshakes with Fast DDS succeed: they reach Cyclone DDS through [`super::ffi_openssl`].
//!
//! DDS Security 1.1 does not define how a Diffie-Hellman key of `DH+MODP-2048-256` is written. Cyclone DDS reads and writes it as an ASN.1
//! integer; Fast DDS, which proposes this algorithm unless it is configured otherwise, and version 1.2 of the specification use the bytes of
//! the number alone. Which of two participants proposes depends on their certificates. Cyclone reads and writes these keys, and nothing else,
//! by two functions. Their replacements accept both forms, and answer in the form of the other side. The names of algorithms are hashed without the
//! NUL that Fast DDS refuses ([`super::handshake_names`]).

use super::handshake_names::to_be_hashed;
use holdall_io::mutex::lock;
use std::{
    cell::Cell,
    collections::VecDeque,
    ffi::{c_int, c_long, c_void},
    ptr, slice,
    sync::{Mutex, OnceLock},
};

/// `ASN1_INTEGER`, an `ASN1_STRING` with the number's bytes, highest first.
#[repr(C)]
pub(super) struct Integer {
    _opaque: [u8; 0],
}

/// `V_ASN1_INTEGER`, the type; in DER it is the first byte, too.
const INTEGER: c_int = 2;

/// Handshakes that take place at the same time, two keys each: more are repeated.
const PLAIN_KEYS_MAX: usize = 256;

/// Longest key that is read: 2048 bits, and what DER adds.
const KEY_BYTES_MAX: usize = 1_024;

type Read = unsafe extern "C" fn(*mut *mut Integer, *mut *const u8, c_long) -> *mut Integer;
type Write = unsafe extern "C" fn(*const Integer, *mut *mut u8) -> c_int;
type Hash = unsafe extern "C" fn(*const u8, usize, *mut u8) -> *mut u8;

/// OpenSSL's own functions.
struct Functions {
    read: Read,
    write: Write,
    hash: Hash,
    make: unsafe extern "C" fn(c_int) -> *mut Integer,
    set: unsafe extern "C" fn(*mut Integer, *const c_void, c_int) -> c_int,
    free: unsafe extern "C" fn(*mut Integer),
    bytes: unsafe extern "C" fn(*const Integer) -> *const u8,
    len: unsafe extern "C" fn(*const Integer) -> c_int,
}

static FUNCTIONS: OnceLock<Functions> = OnceLock::new();

/// Keys that came as bytes alone, and those that answer them: the newest last.
static PLAIN: Mutex<VecDeque<Vec<u8>>> = Mutex::new(VecDeque::new());

thread_local! {
    /// The last key that this thread has read was bytes alone, and so is the answer.
    static IS_ANSWER_PLAIN: Cell<bool> = const { Cell::new(false) };
}

/// The functions to use in place of OpenSSL's, by name; `find` finds OpenSSL's. `None` when OpenSSL lacks one.
pub(super) fn replacements(
    find: &dyn Fn(&str) -> Option<*mut c_void>,
) -> Option<[(&'static str, *mut c_void); 3]> {
    // SAFETY: each address is that of the function of this name and of this type, as OpenSSL 3 declares it.
    let functions = unsafe {
        Functions {
            read: std::mem::transmute::<*mut c_void, Read>(find("d2i_ASN1_INTEGER")?),
            write: std::mem::transmute::<*mut c_void, Write>(find("i2d_ASN1_INTEGER")?),
            hash: std::mem::transmute::<*mut c_void, Hash>(find("SHA256")?),
            make: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int) -> *mut Integer>(find(
                "ASN1_STRING_type_new",
            )?),
            set: std::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(*mut Integer, *const c_void, c_int) -> c_int,
            >(find("ASN1_STRING_set")?),
            free: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut Integer)>(find(
                "ASN1_STRING_free",
            )?),
            bytes: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*const Integer) -> *const u8>(
                find("ASN1_STRING_get0_data")?,
            ),
            len: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*const Integer) -> c_int>(find(
                "ASN1_STRING_length",
            )?),
        }
    };
    FUNCTIONS.get_or_init(|| functions);
    Some([
        ("d2i_ASN1_INTEGER", read as Read as *mut c_void),
        ("i2d_ASN1_INTEGER", write as Write as *mut c_void),
        ("SHA256", hash as Hash as *mut c_void),
    ])
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

/// `d2i_ASN1_INTEGER`, also for the bytes of a number alone.
unsafe extern "C" fn read(into: *mut *mut Integer, bytes: *mut *const u8, len: c_long) -> *mut Integer {
    let (Some(functions), Ok(length)) = (FUNCTIONS.get(), usize::try_from(len)) else {
        return ptr::null_mut();
    };
    // SAFETY: the caller passes `len` bytes at `*bytes`, which moves on as with OpenSSL's function.
    unsafe {
        let key = slice::from_raw_parts(*bytes, length);
        let is_plain = !is_der(key);
        IS_ANSWER_PLAIN.set(is_plain);
        if !is_plain || !into.is_null() || length > KEY_BYTES_MAX {
            return (functions.read)(into, bytes, len);
        }
        let begin = key.iter().position(|byte| *byte != 0).unwrap_or(length);
        let number = &key[begin..];
        let integer = (functions.make)(INTEGER);
        if integer.is_null() {
            return integer;
        }
        // Not longer than KEY_BYTES_MAX.
        if (functions.set)(integer, number.as_ptr().cast(), number.len() as c_int) != 1 {
            (functions.free)(integer);
            return ptr::null_mut();
        }
        remember(number);
        *bytes = (*bytes).add(length);
        integer
    }
}

/// `i2d_ASN1_INTEGER`, as the bytes of the number alone where the other side writes them so.
unsafe extern "C" fn write(integer: *const Integer, to: *mut *mut u8) -> c_int {
    let Some(functions) = FUNCTIONS.get() else {
        return -1;
    };
    // SAFETY: the integer is live, and its bytes are; `to` is null, or has room for what a call with null has returned.
    unsafe {
        let len = (functions.len)(integer);
        let number = slice::from_raw_parts((functions.bytes)(integer), usize::try_from(len).unwrap_or(0));
        let is_known = lock(&PLAIN).iter().any(|key| key == number);
        if !is_known && !IS_ANSWER_PLAIN.get() {
            return (functions.write)(integer, to);
        }
        if !is_known {
            remember(number);
        }
        if !to.is_null() && !(*to).is_null() {
            ptr::copy_nonoverlapping(number.as_ptr(), *to, number.len());
            *to = (*to).add(number.len());
        }
        len
    }
}

/// `SHA256`; hashes our properties in the form in which they are sent.
unsafe extern "C" fn hash(bytes: *const u8, len: usize, digest: *mut u8) -> *mut u8 {
    let Some(functions) = FUNCTIONS.get() else {
        return ptr::null_mut();
    };
    // SAFETY: the caller passes `len` bytes, and room for a digest.
    unsafe {
        let given = if len == 0 {
            &[][..]
        } else {
            slice::from_raw_parts(bytes, len)
        };
        match to_be_hashed(given) {
            Some(changed) => (functions.hash)(changed.as_ptr(), changed.len(), digest),
            None => (functions.hash)(bytes, len, digest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dds::ffi_openssl;

    /// Reads a key as Cyclone does, and writes what is read.
    fn read_and_written(key: &[u8]) -> Vec<u8> {
        let functions = FUNCTIONS.get().unwrap();
        // SAFETY: as Cyclone calls them: length first, then into memory of that length.
        unsafe {
            let mut at = key.as_ptr();
            let integer = read(ptr::null_mut(), &raw mut at, key.len() as c_long);
            assert!(!integer.is_null());
            assert_eq!(at.offset_from(key.as_ptr()), key.len() as isize);
            let len = write(integer, ptr::null_mut());
            let mut written = vec![0; usize::try_from(len).unwrap()];
            let mut to = written.as_mut_ptr();
            assert_eq!(write(integer, &raw mut to), len);
            assert_eq!(to.offset_from(written.as_ptr()), len as isize);
            (functions.free)(integer);
            written
        }
    }

    #[test]
    fn each_side_is_answered_in_its_own_form() {
        ffi_openssl::load().unwrap();
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
