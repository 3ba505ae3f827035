//! The secret in a link: with it a client may use the server, on every address.

use holdall_io::{
    disk::DiskError,
    fs::{read_private_to_string, write_private_new},
    random::random_bytes,
};
use std::{
    fmt::{self, Write},
    io,
    path::{Path, PathBuf},
};

/// Letters of a token that a user chooses.
const LETTERS_MIN: usize = 16;
const LETTERS_MAX: usize = 128;

/// A secret in a link.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// Why a file cannot provide a token.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// It cannot be made, or not be read, or other users can read it.
    #[error("the file of the token cannot be used: {0}")]
    File(#[from] DiskError),
    /// It has something else.
    #[error(
        "{path}: expected a token of {LETTERS_MIN} to {LETTERS_MAX} letters, digits, - and _, found {found} bytes of something else"
    )]
    Text {
        /// The file.
        path: PathBuf,
        /// Its length in bytes.
        found: usize,
    },
    /// The kernel has no random bytes.
    #[error("no token can be made: {0}")]
    Random(#[from] io::Error),
}

impl Token {
    /// A new one of 128 random bits.
    ///
    /// # Errors
    /// The kernel has no source of random bytes.
    pub fn random() -> io::Result<Self> {
        let mut text = String::new();
        for byte in random_bytes()? {
            // Writing to a string does not fail.
            let _ = write!(text, "{byte:02x}");
        }
        Ok(Self(text))
    }

    /// The token that a file has; a file that does not exist is made with a random one. Only this user may be able to read it.
    ///
    /// # Errors
    /// A file that other users can read, that has something else than a token, or that cannot be read or made.
    pub fn kept_in(path: &Path) -> Result<Self, TokenError> {
        let read = || read_private_to_string(path, 2 * LETTERS_MAX as u64);
        let text = match read() {
            Err(error) if error.is_not_found() => {
                let made = write_private_new(path, format!("{}\n", Self::random()?.0).as_bytes());
                match made {
                    // Another program was first.
                    Err(error) if !error.is_already_exists() => return Err(error.into()),
                    _ => read()?,
                }
            }
            read => read?,
        };
        let token = text.trim();
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if !(LETTERS_MIN..=LETTERS_MAX).contains(&token.len()) || !token.bytes().all(is_letter) {
            return Err(TokenError::Text {
                path: path.to_owned(),
                found: text.len(),
            });
        }
        Ok(Self(token.to_owned()))
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// Takes the same time wherever a guess differs.
    pub(crate) fn is(&self, guess: &str) -> bool {
        let differences = self.0.bytes().zip(guess.bytes()).map(|(a, b)| a ^ b);
        self.0.len() == guess.len() && differences.fold(0, |sum, bits| sum | bits) == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt};

    #[test]
    fn a_token_file_is_made_once_and_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let made = Token::kept_in(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(Token::kept_in(&path).unwrap(), made);
        assert_eq!(made.text().len(), 32);
        for (text, is_token) in [
            ("0123456789abcdef\n", true),
            ("chosen-by_the_user-1", true),
            ("short", false),
            ("", false),
            ("with a space in it!!", false),
        ] {
            fs::write(&path, text).unwrap();
            assert_eq!(Token::kept_in(&path).is_ok(), is_token, "{text}");
        }
        fs::write(&path, "0123456789abcdef").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let refused = Token::kept_in(&path).unwrap_err().to_string();
        assert!(refused.contains("other users can read"), "{refused}");
        assert!(Token::kept_in(folder.path()).is_err());
    }

    #[test]
    fn a_token_is_compared_whole_and_not_printed() {
        let token = Token::random().unwrap();
        assert!(token.is(token.text()) && !token.is(&token.text()[1..]) && !token.is(""));
        assert_eq!(format!("{token:?}"), "Token");
    }
}
