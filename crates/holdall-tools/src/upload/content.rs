//! A service's tag for a content, computed here; and a comparison byte by byte if it uses other tags.

use super::UploadError;
use holdall_io::{fs::File, remote::Objects};
use md5_digest::{Digest, Md5};
use std::path::Path;

/// Bytes that are compared at once.
const PIECE_BYTES: usize = 1 << 20;

/// Parts that a service takes; it takes 10 000.
const PARTS_MAX: u64 = 9000;

/// The MD5 of bytes.
pub(super) fn md5(bytes: &[u8]) -> [u8; 16] {
    Md5::digest(bytes).into()
}

/// Bytes as hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of hexadecimal digits, if the text has only those.
fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks_exact(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.map(byte).collect()
}

/// How S3 calls an object of these parts, given by their MD5.
pub(super) fn tag_of_parts<'a>(parts: impl Iterator<Item = &'a str>) -> Option<String> {
    let mut all = Md5::new();
    let mut count = 0;
    for part in parts {
        all.update(unhex(part)?);
        count += 1;
    }
    Some(format!("{}-{count}", hex(&all.finalize())))
}

/// The text of a tag without quotes.
pub(super) fn bare(tag: &str) -> String {
    tag.trim_matches('"').to_ascii_lowercase()
}

/// Whether a tag may be the MD5 of a content: services that encrypt have other ones.
pub(super) fn may_be_md5(tag: &str) -> bool {
    tag.len() == 32 && tag.bytes().all(|letter| letter.is_ascii_hexdigit())
}

/// Bytes of each part of a file: whole MiB, and not more parts than a service takes.
pub(super) fn part_bytes(file_bytes: u64, wanted: u64) -> u64 {
    let needed = file_bytes.div_ceil(PARTS_MAX);
    if needed <= wanted {
        wanted.max(1)
    } else {
        needed.next_multiple_of(1 << 20)
    }
}

/// The tag that a service gives to a file that is sent in parts of this length.
pub(super) fn tag_of_file(path: &Path, part_bytes: u64) -> Result<String, UploadError> {
    let file = File::open_stored(path)?;
    let bytes = file.len_bytes();
    if bytes <= part_bytes {
        let count = usize::try_from(bytes).unwrap_or(usize::MAX);
        return Ok(hex(&md5(&file.read_bytes_at(0, count)?)));
    }
    let mut parts = Vec::new();
    let mut at = 0;
    while at < bytes {
        let count = usize::try_from(part_bytes.min(bytes - at)).unwrap_or(usize::MAX);
        parts.push(hex(&md5(&file.read_bytes_at(at, count)?)));
        at += count as u64;
    }
    Ok(tag_of_parts(parts.iter().map(String::as_str)).unwrap_or_default())
}

/// Whether an object has the bytes of a file: reads all of it.
///
/// # Errors
/// When either cannot be read.
pub(super) fn is_equal(client: &dyn Objects, url: &str, path: &Path) -> Result<bool, UploadError> {
    let fail = |error| UploadError::remote(url, error);
    client.forget(url);
    let object = client.open(url).map_err(fail)?;
    let file = File::open_stored(path)?;
    if object.len_bytes() != file.len_bytes() {
        return Ok(false);
    }
    object.expect_sequential();
    let (mut theirs, mut ours) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
    let mut at = 0;
    loop {
        let count = object.read_at(&mut theirs, at).map_err(fail)?;
        if count == 0 {
            return Ok(at == file.len_bytes());
        }
        file.read_exact_at(&mut ours[..count], at)?;
        if ours[..count] != theirs[..count] {
            return Ok(false);
        }
        at += count as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_those_of_s3() {
        assert_eq!(hex(&md5(b"")), "d41d8cd98f00b204e9800998ecf8427e");
        // The tag of S3 for two parts, 5 MiB of zeros and one byte of them: computed by `(md5(a) + md5(b)) | md5`.
        let parts = [hex(&md5(&vec![0; 5 << 20])), hex(&md5(&[0]))];
        let mut both = unhex(&parts[0]).unwrap();
        both.extend(unhex(&parts[1]).unwrap());
        let tag = tag_of_parts(parts.iter().map(String::as_str)).unwrap();
        assert_eq!(tag, format!("{}-2", hex(&md5(&both))));
        assert_eq!(bare("\"ABC\""), "abc");
        assert!(may_be_md5(&parts[0]) && !may_be_md5(&tag));
    }

    #[test]
    fn a_large_file_has_not_more_parts_than_a_service_takes() {
        assert_eq!(part_bytes(1 << 30, 8 << 20), 8 << 20);
        let five_tib = 5 << 40;
        assert!(five_tib / part_bytes(five_tib, 8 << 20) < 10_000);
    }
}
