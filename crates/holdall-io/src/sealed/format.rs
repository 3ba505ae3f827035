//! The bytes of a sealed file: its header, the heads of its frames, and how both are encrypted (docs/formats/sealed.md).

use super::keys::{Seal, WRAPPED_BYTES_MAX, random};
use crate::{block::BLOCK_ALIGNMENT, mutex::lock};
use ring::{
    aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey},
    hkdf::{HKDF_SHA256, Salt},
};
use std::{
    collections::HashMap,
    fmt, io,
    sync::{Arc, Mutex},
};

/// First bytes of every sealed file.
pub(super) const MAGIC: [u8; 16] = *b"\x89holdall sealed\n";
/// The version of the format that this program writes, and the only one that it reads.
const VERSION: u32 = 1;
/// The file's header before the wrapped key.
const FILE_HEADER_BYTES: usize = 64;
/// The header with its wrapped key is not longer.
pub(super) const FILE_HEAD_BYTES_MAX: usize = WRAPPED_BYTES_MAX + BLOCK_ALIGNMENT;

/// Bytes that are encrypted as one; the last page of a frame may be shorter.
pub(super) const PAGE_BYTES: usize = 64 << 10;
/// Bytes of an authentication tag.
const TAG_BYTES: usize = 16;
/// A frame's head; its pages follow.
pub(super) const FRAME_HEAD_BYTES: usize = BLOCK_ALIGNMENT;
/// The most bytes in one frame: its head has room for that many tags.
pub(super) const FRAME_BYTES_MAX: usize = (FRAME_HEAD_BYTES - TAGS_AT) / TAG_BYTES * PAGE_BYTES;

const FRAME_MAGIC: [u8; 8] = *b"\xf5frame\r\n";
/// Offset of the head's own tag.
const HEAD_TAG_AT: usize = 80;
/// Offset of the tags of the pages.
const TAGS_AT: usize = 96;
/// The page number in the nonce of a head.
const HEAD_PAGE: u32 = u32::MAX;
/// Derived keys that are kept; a repair adds one.
const SESSIONS_MAX: usize = 64;

/// Which writer has written a frame: random, so that frames of two writers are never encrypted alike.
pub(super) type Session = [u8; 16];

/// The beginning of a file.
#[derive(Clone, Debug)]
pub(super) struct FileHead {
    pub(super) file_id: [u8; 32],
    pub(super) wrapped: Arc<[u8]>,
}

impl FileHead {
    /// The head of a new file.
    pub(super) fn new(seal: &Seal) -> io::Result<Self> {
        Ok(Self {
            file_id: random()?,
            wrapped: Arc::clone(&seal.wrapped),
        })
    }

    /// Its length in the file, a multiple of 4096.
    pub(super) fn len_bytes(&self) -> usize {
        (FILE_HEADER_BYTES + self.wrapped.len()).next_multiple_of(BLOCK_ALIGNMENT)
    }

    fn fixed(&self) -> [u8; FILE_HEADER_BYTES] {
        let mut fixed = [0; FILE_HEADER_BYTES];
        fixed[..16].copy_from_slice(&MAGIC);
        // All three are small.
        let numbers = [
            VERSION,
            self.len_bytes() as u32,
            PAGE_BYTES as u32,
            self.wrapped.len() as u32,
        ];
        for (place, number) in numbers.into_iter().enumerate() {
            fixed[16 + 4 * place..20 + 4 * place].copy_from_slice(&number.to_le_bytes());
        }
        fixed[32..].copy_from_slice(&self.file_id);
        fixed
    }

    pub(super) fn encode(&self, into: &mut [u8]) {
        into.fill(0);
        into[..FILE_HEADER_BYTES].copy_from_slice(&self.fixed());
        into[FILE_HEADER_BYTES..FILE_HEADER_BYTES + self.wrapped.len()].copy_from_slice(&self.wrapped);
    }

    /// Decodes a file's first bytes, which begin with [`MAGIC`]; the error is one clause about the fault.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let number = |place: usize| -> Result<u32, String> {
            let at = 16 + 4 * place;
            let four = bytes.get(at..at + 4).and_then(|four| four.try_into().ok());
            four.map(u32::from_le_bytes)
                .ok_or_else(|| "it ends in its header".to_owned())
        };
        let (version, head, page, wrapped) = (number(0)?, number(1)?, number(2)?, number(3)? as usize);
        if version != VERSION {
            return Err(format!(
                "it is encrypted in version {version} of the format, and this program knows version {VERSION}"
            ));
        }
        let head_is = (FILE_HEADER_BYTES + wrapped).next_multiple_of(BLOCK_ALIGNMENT);
        if wrapped > WRAPPED_BYTES_MAX || head as usize != head_is || page as usize != PAGE_BYTES {
            return Err(format!(
                "its header is damaged: expected lengths of {head_is}, {PAGE_BYTES} and at most {WRAPPED_BYTES_MAX} bytes, found {head}, \
                 {page} and {wrapped}"
            ));
        }
        let parts = bytes
            .get(32..FILE_HEADER_BYTES)
            .zip(bytes.get(FILE_HEADER_BYTES..FILE_HEADER_BYTES + wrapped));
        let (id, wrapped) = parts.ok_or("it ends in its header")?;
        Ok(Self {
            file_id: id.try_into().map_err(|_| "it ends in its header")?,
            wrapped: wrapped.into(),
        })
    }
}

/// The effect of a frame on the plain file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Writes the bytes that follow at an offset.
    Write,
    /// Writes zeros at an offset.
    Zeros,
    /// Sets the length.
    Length,
    /// Lists all frames before it.
    Index,
    /// Sets the final length; the offset is that of the index in the sealed file, zero without one.
    End,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Write, Self::Zeros, Self::Length, Self::Index, Self::End];

    pub(super) fn code(self) -> u8 {
        self as u8 + 1
    }

    pub(super) fn of_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// Whether its `len` bytes follow the head.
    pub(super) fn has_payload(self) -> bool {
        matches!(self, Self::Write | Self::Index)
    }
}

/// A frame's head without its tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) session: Session,
    /// Counted from 0 by each session; no number is used twice.
    pub(super) number: u64,
    /// Offset of the head in the sealed file.
    pub(super) at: u64,
    pub(super) kind: Kind,
    /// Offset in the plain file.
    pub(super) offset: u64,
    /// Length in the plain file.
    pub(super) len: u64,
}

impl Frame {
    /// Its length in the sealed file without padding.
    pub(super) fn stored_bytes(&self) -> u64 {
        FRAME_HEAD_BYTES as u64 + if self.kind.has_payload() { self.len } else { 0 }
    }

    fn encode(&self, head: &mut [u8]) {
        head.fill(0);
        head[..8].copy_from_slice(&FRAME_MAGIC);
        head[8..24].copy_from_slice(&self.session);
        let numbers = [
            self.number,
            self.at,
            u64::from(self.kind.code()),
            self.offset,
            self.len,
        ];
        for (place, number) in numbers.into_iter().enumerate() {
            head[24 + 8 * place..32 + 8 * place].copy_from_slice(&number.to_le_bytes());
        }
    }

    /// The frame that a head at `at` describes; not yet to be trusted.
    fn decode(head: &[u8], at: u64) -> Option<Self> {
        let number = |place: usize| {
            let eight = head.get(24 + 8 * place..32 + 8 * place)?.try_into().ok()?;
            Some(u64::from_le_bytes(eight))
        };
        if !head.starts_with(&FRAME_MAGIC) || number(1)? != at {
            return None;
        }
        let frame = Self {
            session: head.get(8..24)?.try_into().ok()?,
            number: number(0)?,
            at,
            kind: Kind::of_code(u8::try_from(number(2)?).ok()?)?,
            offset: number(3)?,
            len: number(4)?,
        };
        let fits = !frame.kind.has_payload() || frame.len <= FRAME_BYTES_MAX as u64;
        (fits && frame.offset.checked_add(frame.len)? <= i64::MAX as u64).then_some(frame)
    }
}

/// Whether a head at `at` marks the end of a file; not yet to be trusted.
pub(super) fn is_end(head: &[u8], at: u64) -> bool {
    Frame::decode(head, at).is_some_and(|frame| frame.kind == Kind::End)
}

fn nonce(number: u64, page: u32) -> Nonce {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes[8..].copy_from_slice(&page.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

fn failed() -> io::Error {
    io::Error::other("encryption failed")
}

/// The keys of one file.
pub(super) struct Cipher {
    seal: Seal,
    head: FileHead,
    sessions: Mutex<HashMap<Session, LessSafeKey>>,
}

impl fmt::Debug for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cipher").finish_non_exhaustive()
    }
}

impl Cipher {
    pub(super) fn new(seal: Seal, head: FileHead) -> Self {
        Self {
            seal,
            head,
            sessions: Mutex::default(),
        }
    }

    pub(super) fn seal(&self) -> &Seal {
        &self.seal
    }

    /// The key of a session: of the file key, and bound to the file's header.
    pub(super) fn session(&self, session: &Session) -> io::Result<LessSafeKey> {
        let mut sessions = lock(&self.sessions);
        if let Some(key) = sessions.get(session) {
            return Ok(key.clone());
        }
        let secret = Salt::new(HKDF_SHA256, &self.head.file_id).extract(&self.seal.key.0);
        let fixed = self.head.fixed();
        let info = [&fixed[..], &session[..]];
        let derived = secret.expand(&info, &AES_256_GCM).map_err(|_| failed())?;
        let key = LessSafeKey::new(UnboundKey::from(derived));
        if sessions.len() >= SESSIONS_MAX {
            sessions.clear();
        }
        sessions.insert(*session, key.clone());
        Ok(key)
    }

    /// The frame whose head was read at `at`; `None` when nothing proves that it was written there.
    pub(super) fn open_head(&self, head: &[u8], at: u64) -> Option<Frame> {
        let frame = Frame::decode(head, at)?;
        let key = self.session(&frame.session).ok()?;
        let mut bare: [u8; FRAME_HEAD_BYTES] = head.get(..FRAME_HEAD_BYTES)?.try_into().ok()?;
        let mut tag = [0; TAG_BYTES];
        tag.copy_from_slice(&bare[HEAD_TAG_AT..TAGS_AT]);
        bare[HEAD_TAG_AT..TAGS_AT].fill(0);
        key.open_in_place(nonce(frame.number, HEAD_PAGE), Aad::from(&bare), &mut tag)
            .ok()?;
        Some(frame)
    }

    /// Decrypts page `page` of a frame, whose head is `head`: `stored` is the encrypted page with [`PAGE_ROOM_BYTES`] more.
    /// False when it is not as it was written.
    pub(super) fn open_page(&self, frame: &Frame, head: &[u8], page: u32, stored: &mut [u8]) -> bool {
        let at = TAGS_AT + page as usize * TAG_BYTES;
        let (Some(tag), Ok(key)) = (head.get(at..at + TAG_BYTES), self.session(&frame.session)) else {
            return false;
        };
        let Some(room) = stored.len().checked_sub(TAG_BYTES) else {
            return false;
        };
        stored[room..].copy_from_slice(tag);
        let bound = page_bound(frame);
        key.open_in_place(nonce(frame.number, page), Aad::from(&bound), stored)
            .is_ok()
    }
}

/// Room that [`Cipher::open_page`] needs after the bytes of a page.
pub(super) const PAGE_ROOM_BYTES: usize = TAG_BYTES;

/// The data that a page is bound to in addition to its frame's number: the frame's place in both files.
fn page_bound(frame: &Frame) -> [u8; 24] {
    let mut bound = [0; 24];
    for (place, number) in [frame.at, frame.offset, frame.len].into_iter().enumerate() {
        bound[8 * place..8 * place + 8].copy_from_slice(&number.to_le_bytes());
    }
    bound
}

/// Numbers and encrypts the frames of one writer.
pub(super) struct Sealer {
    key: LessSafeKey,
    session: Session,
    next: u64,
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer")
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}

impl Sealer {
    /// A new session of a file.
    pub(super) fn begin(cipher: &Cipher) -> io::Result<Self> {
        let session = random()?;
        Ok(Self {
            key: cipher.session(&session)?,
            session,
            next: 0,
        })
    }

    /// Encrypts `payload` in place, and fills in the `head` of its frame. A kind without payload has an empty one, and `len` for itself.
    pub(super) fn seal(
        &mut self,
        (at, kind): (u64, Kind),
        (offset, len): (u64, u64),
        head: &mut [u8],
        payload: &mut [u8],
    ) -> io::Result<()> {
        let frame = Frame {
            session: self.session,
            number: self.next,
            at,
            kind,
            offset,
            len,
        };
        if payload.len() > FRAME_BYTES_MAX {
            let what = format!("a frame has at most {FRAME_BYTES_MAX} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        self.next += 1;
        frame.encode(head);
        let bound = page_bound(&frame);
        for (page, bytes) in payload.chunks_mut(PAGE_BYTES).enumerate() {
            // A frame has less than 256 pages.
            let nonce = nonce(frame.number, page as u32);
            let tag = self
                .key
                .seal_in_place_separate_tag(nonce, Aad::from(&bound), bytes);
            let place = TAGS_AT + page * TAG_BYTES;
            head[place..place + TAG_BYTES].copy_from_slice(tag.map_err(|_| failed())?.as_ref());
        }
        let nonce = nonce(frame.number, HEAD_PAGE);
        let tag = self
            .key
            .seal_in_place_separate_tag(nonce, Aad::from(&*head), &mut [])
            .map_err(|_| failed())?;
        head[HEAD_TAG_AT..TAGS_AT].copy_from_slice(tag.as_ref());
        Ok(())
    }
}
