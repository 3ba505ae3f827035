//! The size of a picture from the beginning of its file, without decoding it: PNG and JPEG.

/// What a PNG file begins with: its signature, and the head of its first block.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR";
const JPEG: &[u8] = b"\xff\xd8\xff";
/// Bytes before the file in depth images of `compressed_depth_image_transport`.
const DEPTH_HEAD_BYTES: usize = 12;

/// What the beginning of a picture's file shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Picture {
    /// `png` or `jpeg`.
    pub format: &'static str,
    pub width: u64,
    pub height: u64,
}

/// Reads the beginning of a file.
///
/// # Errors
/// Another format, and a size that is not in the part that is here: one clause.
pub(super) fn picture(file: &[u8]) -> Result<Picture, &'static str> {
    let file = match file.get(DEPTH_HEAD_BYTES..) {
        Some(rest) if rest.starts_with(PNG) => rest,
        _ => file,
    };
    let (format, size) = if file.starts_with(PNG) {
        let sizes = file.get(PNG.len()..PNG.len() + 8);
        (
            "png",
            sizes.map(|sizes| (number(&sizes[..4]), number(&sizes[4..]))),
        )
    } else if file.starts_with(JPEG) {
        ("jpeg", jpeg_size(file))
    } else {
        return Err("the image is neither JPEG nor PNG");
    };
    let (width, height) =
        size.ok_or("the size of the image is not in the part of the message that is kept")?;
    Ok(Picture {
        format,
        width,
        height,
    })
}

/// A number, its high byte first.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// Width and height of a JPEG: its segments are passed over up to the head of the frame.
fn jpeg_size(file: &[u8]) -> Option<(u64, u64)> {
    let mut at = 2;
    loop {
        let [0xff, marker] = *file.get(at..at + 2)? else {
            return None;
        };
        let is_frame = (0xc0..=0xcf).contains(&marker) && !matches!(marker, 0xc4 | 0xc8 | 0xcc);
        at += match marker {
            // A byte that fills, and markers without content.
            0xff => 1,
            0x01 | 0xd0..=0xd7 => 2,
            _ if is_frame => {
                let size = file.get(at + 5..at + 9)?;
                return Some((number(&size[2..]), number(&size[..2])));
            }
            _ => 2 + number(file.get(at + 2..at + 4)?) as usize,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const JPEG_FILE: &[u8] =
        b"\xff\xd8\xff\xe0\0\x04ab\xff\xff\xdb\0\x03c\xff\xc2\0\x11\x08\x02\x80\x05\0\x03";

    #[test]
    fn sizes_are_those_of_the_heads_and_other_files_are_named() {
        let png = [PNG, &[0, 0, 2, 0x80, 0, 0, 1, 0xe0, 8, 2, 0, 0, 0]].concat();
        let found = |file: &[u8]| picture(file).map(|found| (found.format, found.width, found.height));
        assert_eq!(found(&png), Ok(("png", 640, 480)));
        assert_eq!(found(&[&[7_u8; 12][..], &png].concat()), Ok(("png", 640, 480)));
        assert_eq!(found(JPEG_FILE), Ok(("jpeg", 1280, 640)));
        assert_eq!(found(b"RIFF"), Err("the image is neither JPEG nor PNG"));
        for len in 3..JPEG_FILE.len() - 1 {
            assert!(
                found(&JPEG_FILE[..len]).is_err_and(|why| why.contains("not in the part")),
                "{len}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_file_panics(bytes in prop::collection::vec(any::<u8>(), 0..100), begin in 0_usize..3) {
            let begin = [&[][..], PNG, &JPEG_FILE[..16]][begin];
            let _ = picture(&[begin, &bytes].concat());
        }
    }
}
