//! Random bytes from the kernel, for secrets.

use rustix::{
    io::Errno,
    rand::{GetRandomFlags, getrandom},
};
use std::io;

/// 16 random bytes that nothing can foresee.
///
/// # Errors
/// The kernel has no source of them.
pub fn random_bytes() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    loop {
        match getrandom(&mut bytes, GetRandomFlags::empty()) {
            // So few bytes arrive at once or not at all.
            Ok(_) => return Ok(bytes),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_are_the_same() {
        assert_ne!(random_bytes().unwrap(), random_bytes().unwrap());
    }
}
