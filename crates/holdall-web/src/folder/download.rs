//! Bags and their files for others: single files unchanged, whole bags as tar archives.

use super::{bags::Listed, root::Root};
use crate::http::{Refusal, Response, send_stream};
use std::{
    fmt::Write as _,
    io::{self, Read},
    net::TcpStream,
    path::{Path, PathBuf},
};

/// Records of a tar archive have this many bytes.
const BLOCK: u64 = 512;

/// Longest name in a plain header.
const NAME_BYTES_MAX: usize = 100;

/// Sends one file of a bag; `file` is its name within the bag, or empty where the bag is a file.
pub(super) fn file(
    root: &Root,
    bag: &Listed,
    file: &str,
) -> Result<(Response<'static>, u64, impl Read + use<>), Refusal> {
    let none = || Refusal::new(404, "the bag has no such file");
    let name = if file.is_empty() {
        PathBuf::from(&bag.name)
    } else {
        Path::new(&bag.name).join(file)
    };
    // Only listed files, by the same name.
    let is_listed = bag.found.files.iter().any(|(known, _)| *known == name);
    let opened = is_listed.then(|| root.open_file(&name)).ok_or_else(none)?;
    let opened = opened.map_err(|error| Refusal::new(404, &error.to_string()))?;
    let shown = name
        .file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    Ok((head(&shown), opened.len_bytes(), opened))
}

/// Sends a whole bag.
pub(super) fn archive(root: &Root, bag: &Listed, client: &TcpStream) -> io::Result<()> {
    let parent = Path::new(&bag.name).parent().unwrap_or(Path::new("")).to_owned();
    let mut entries = Vec::new();
    for (path, bytes) in &bag.found.files {
        let name = path.strip_prefix(&parent).unwrap_or(path);
        entries.push((path.clone(), *bytes, headers(&name.to_string_lossy(), *bytes)));
    }
    let length: u64 = entries
        .iter()
        .map(|(_, bytes, headers)| headers.len() as u64 + bytes.next_multiple_of(BLOCK))
        .sum();
    let name = Path::new(&bag.name)
        .file_name()
        .unwrap_or_default()
        .to_string_lossy();
    let content = Entries {
        root,
        entries: entries.into_iter(),
        now: Box::new(io::empty()),
        ended: false,
    };
    send_stream(client, &head(&format!("{name}.tar")), length + 2 * BLOCK, content)
}

/// An answer that browsers store under this name.
fn head(name: &str) -> Response<'static> {
    let plain: String = name
        .chars()
        .map(|letter| {
            let is_plain = letter.is_ascii_alphanumeric() || "._- ".contains(letter);
            if is_plain { letter } else { '_' }
        })
        .collect();
    let mut encoded = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"._-".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    Response {
        headers: format!(
            "Content-Disposition: attachment; filename=\"{plain}\"; filename*=UTF-8''{encoded}\r\n"
        ),
        ..Response::new("application/octet-stream", Vec::new())
    }
}

/// The records before a file's bytes (POSIX.1-2001, pax): one, or three where the name or the length needs an extended header.
fn headers(name: &str, bytes: u64) -> Vec<u8> {
    const LENGTH_MAX: u64 = 0o777_7777_7777;
    let mut records = Vec::new();
    let mut extended = String::new();
    if name.len() > NAME_BYTES_MAX {
        extended.push_str(&extended_entry("path", name));
    }
    if bytes > LENGTH_MAX {
        extended.push_str(&extended_entry("size", &bytes.to_string()));
    }
    if !extended.is_empty() {
        records.extend(header("pax", extended.len() as u64, b'x'));
        records.extend_from_slice(extended.as_bytes());
        records.resize(records.len().next_multiple_of(BLOCK as usize), 0);
    }
    records.extend(header(name, bytes.min(LENGTH_MAX), b'0'));
    records
}

/// `LENGTH KEY=VALUE`, whose length counts itself.
fn extended_entry(key: &str, value: &str) -> String {
    let rest = format!(" {key}={value}\n");
    let mut length = rest.len() + 1;
    while length.to_string().len() + rest.len() != length {
        length = length.to_string().len() + rest.len();
    }
    format!("{length}{rest}")
}

fn header(name: &str, bytes: u64, kind: u8) -> [u8; BLOCK as usize] {
    let mut record = [0; BLOCK as usize];
    let mut put = |at: usize, text: &[u8]| record[at..at + text.len()].copy_from_slice(text);
    put(0, &name.as_bytes()[..name.len().min(NAME_BYTES_MAX)]);
    put(100, b"0000644\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{bytes:011o}\0").as_bytes());
    put(136, b"00000000000\0");
    put(148, b"        ");
    put(156, &[kind]);
    put(257, b"ustar\x0000");
    let sum: u32 = record.iter().map(|byte| u32::from(*byte)).sum();
    record[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    record
}

/// All records of an archive, one after the other.
struct Entries<'a> {
    root: &'a Root,
    entries: std::vec::IntoIter<(PathBuf, u64, Vec<u8>)>,
    now: Box<dyn Read>,
    ended: bool,
}

impl Read for Entries<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let len = self.now.read(into)?;
            if len > 0 || into.is_empty() {
                return Ok(len);
            }
            let Some((path, bytes, headers)) = self.entries.next() else {
                if self.ended {
                    return Ok(0);
                }
                self.ended = true;
                self.now = Box::new(io::repeat(0).take(2 * BLOCK));
                continue;
            };
            let file = self.root.open_file(&path).map_err(|error| error.into_io())?;
            if file.len_bytes() < bytes {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let padding = bytes.next_multiple_of(BLOCK) - bytes;
            self.now = Box::new(
                io::Cursor::new(headers)
                    .chain(file.take(bytes))
                    .chain(io::repeat(0).take(padding)),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_have_a_checksum_and_long_names_an_extended_header() {
        let plain = headers("bag/bag_0.mcap", 1000);
        assert_eq!(plain.len() as u64, BLOCK);
        assert!(plain.starts_with(b"bag/bag_0.mcap\0") && &plain[124..136] == b"00000001750\0");
        let stated = u32::from_str_radix(str::from_utf8(&plain[148..154]).unwrap(), 8).unwrap();
        let mut blank = plain.clone();
        blank[148..156].copy_from_slice(b"        ");
        assert_eq!(stated, blank.iter().map(|byte| u32::from(*byte)).sum::<u32>());
        let long = headers(&"a".repeat(150), 9 << 33);
        assert_eq!((long.len() as u64, long[156]), (3 * BLOCK, b'x'));
        let text = String::from_utf8_lossy(&long[512..1024]);
        assert!(
            text.starts_with("160 path=aaa") && text.contains("\n20 size=77309411328\n"),
            "{text}"
        );
    }

    #[test]
    fn names_in_headers_are_harmless() {
        let head = head("läb\"\r\nX: y/../z.mcap");
        assert_eq!(head.headers.matches("\r\n").count(), 1, "{}", head.headers);
        assert!(
            head.headers.contains("filename=\"l_b___X_ y_.._z.mcap\""),
            "{}",
            head.headers
        );
    }
}
