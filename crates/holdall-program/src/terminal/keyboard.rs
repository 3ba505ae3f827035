//! Reads single keys from a terminal on a separate thread and reports those with a meaning.

use super::{
    events::{Event, EventSender},
    mode,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    stdio::stdin,
};
use std::thread;

/// Time between two checks that the verb still listens and this process still owns the terminal.
const LOOK_AGAIN: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// A key with a meaning for a verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// The space bar.
    Space,
    /// Cursor right.
    Right,
    /// Cursor left.
    Left,
    /// Shift and cursor right.
    FarRight,
    /// Shift and cursor left.
    FarLeft,
    /// A digit.
    Digit(u8),
    /// `[`.
    Before,
    /// `]`.
    After,
    /// Cursor up.
    Up,
    /// Cursor down.
    Down,
    /// The letter s.
    S,
    /// The letter m.
    M,
    /// The letter e.
    E,
}

/// Keeps the terminal in key mode; dropping it restores the terminal.
pub struct Keyboard(());

impl Keyboard {
    /// Begins to read keys; `None` if standard input is not a terminal.
    pub fn start(events: EventSender) -> Option<Self> {
        if !rustix::termios::isatty(stdin()) {
            return None;
        }
        thread::Builder::new()
            .name("keyboard".to_owned())
            .spawn(move || read(&events))
            .ok()?;
        Some(Self(()))
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        mode::restore_for_good();
    }
}

/// Reads until no verb listens or the terminal is gone.
fn read(events: &EventSender) {
    let mut decoder = Decoder::default();
    loop {
        let input = stdin();
        let mut fds = [PollFd::new(&input, PollFlags::IN)];
        if !mode::is_foreground() {
            // In the background the shell receives the keys. Waiting on nothing is a sleep.
            if poll(&mut [], Some(&LOOK_AGAIN)).is_err() || !rustix::termios::isatty(input) {
                return;
            }
            continue;
        }
        mode::read_keys();
        match poll(&mut fds, Some(&LOOK_AGAIN)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {
                decoder.flush_escape();
                continue;
            }
            Ok(_) => {}
            Err(_) => return,
        }
        let mut bytes = [0_u8; 64];
        match rustix::io::read(input, &mut bytes) {
            Ok(0) => return,
            Ok(count) => {
                for key in bytes[..count].iter().filter_map(|byte| decoder.key(*byte)) {
                    if !events.send(Event::Key(key)) {
                        return;
                    }
                }
            }
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Err(_) => return,
        }
    }
}

/// Finds keys in the bytes that a terminal sends: cursor keys are `ESC [ C` or `ESC O C`.
#[derive(Default)]
struct Decoder {
    state: DecoderState,
}

#[derive(Default)]
enum DecoderState {
    #[default]
    Plain,
    Escape,
    /// With the number after its last `;`: 2 is the shift key.
    Sequence(Option<u8>),
}

impl Decoder {
    /// Takes a byte; a key when one is complete.
    fn key(&mut self, byte: u8) -> Option<Key> {
        match (&self.state, byte) {
            (_, 0x1b) => {
                self.state = DecoderState::Escape;
                None
            }
            (DecoderState::Escape, b'[' | b'O') => {
                self.state = DecoderState::Sequence(None);
                None
            }
            // Parameters of a longer sequence, such as `ESC [ 1 ; 5 C` for Ctrl and cursor right.
            (DecoderState::Sequence(_), b';') => {
                self.state = DecoderState::Sequence(Some(0));
                None
            }
            (DecoderState::Sequence(modifier), digit @ b'0'..=b'9') => {
                let next = |value: u8| value.saturating_mul(10).saturating_add(digit - b'0');
                self.state = DecoderState::Sequence(modifier.map(next));
                None
            }
            (DecoderState::Sequence(modifier), last) => {
                let is_shift = *modifier == Some(2);
                self.state = DecoderState::Plain;
                match last {
                    b'A' => Some(Key::Up),
                    b'B' => Some(Key::Down),
                    b'C' if is_shift => Some(Key::FarRight),
                    b'C' => Some(Key::Right),
                    b'D' if is_shift => Some(Key::FarLeft),
                    b'D' => Some(Key::Left),
                    _ => None,
                }
            }
            (_, byte) => {
                self.state = DecoderState::Plain;
                match byte {
                    b' ' => Some(Key::Space),
                    b's' | b'S' => Some(Key::S),
                    b'0'..=b'9' => Some(Key::Digit(byte - b'0')),
                    b'[' => Some(Key::Before),
                    b']' => Some(Key::After),
                    b'm' | b'M' => Some(Key::M),
                    b'e' | b'E' => Some(Key::E),
                    _ => None,
                }
            }
        }
    }

    /// A lone ESC was the Escape key.
    fn flush_escape(&mut self) {
        self.state = DecoderState::Plain;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(bytes: &[u8]) -> Vec<Key> {
        let mut decoder = Decoder::default();
        bytes.iter().filter_map(|byte| decoder.key(*byte)).collect()
    }

    #[test]
    fn space_and_cursor_keys_are_found_between_others() {
        assert_eq!(
            keys(b"x \x1b[A\x1b[B\x1b[Csme"),
            [Key::Space, Key::Up, Key::Down, Key::Right, Key::S, Key::M, Key::E]
        );
        assert_eq!(keys(b"\x1bOA\x1bOC"), [Key::Up, Key::Right]);
    }

    #[test]
    fn unknown_sequences_are_no_keys() {
        assert_eq!(keys(b"\x1b[F\x1b[15~\x1b[1;5H"), []);
        assert_eq!(
            keys(b"\x1b[D\x1b[1;2D\x1b[1;2C[7]"),
            [
                Key::Left,
                Key::FarLeft,
                Key::FarRight,
                Key::Before,
                Key::Digit(7),
                Key::After
            ]
        );
        assert_eq!(keys(b"\x1b[1;5C"), [Key::Right]);
        assert_eq!(keys(b"\x1b\x1b "), [Key::Space]);
    }

    #[test]
    fn a_sequence_may_come_in_pieces_but_a_lone_escape_does_not_eat_the_next_key() {
        let mut decoder = Decoder::default();
        assert_eq!(decoder.key(0x1b), None);
        assert_eq!(decoder.key(b'['), None);
        assert_eq!(decoder.key(b'A'), Some(Key::Up));
        assert_eq!(decoder.key(0x1b), None);
        decoder.flush_escape();
        assert_eq!(decoder.key(b' '), Some(Key::Space));
    }
}
