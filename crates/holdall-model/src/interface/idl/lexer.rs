//! Cuts IDL text into tokens; comments and preprocessor lines are skipped.

use std::fmt;

/// A piece of IDL text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// A name, a keyword or a number.
    Word(&'a str),
    /// A quoted text, as written.
    Text(&'a str),
    /// Any other character.
    Punctuation(char),
}

impl fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(text) | Self::Text(text) => f.write_str(text),
            Self::Punctuation(c) => write!(f, "{c:?}"),
        }
    }
}

/// Reads tokens from the beginning of a text to its end.
pub(super) struct Lexer<'a> {
    rest: &'a str,
    line: usize,
}

impl<'a> Lexer<'a> {
    pub(super) const fn new(text: &'a str) -> Self {
        Self { rest: text, line: 1 }
    }

    /// The line of the next token, from 1.
    pub(super) const fn line(&self) -> usize {
        self.line
    }

    /// The next token; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Token<'a>>, String> {
        self.skip_blanks_and_comments()?;
        let Some(first) = self.rest.chars().next() else {
            return Ok(None);
        };
        if is_word(first) {
            return Ok(Some(Token::Word(self.take_while(|c| is_word(c) || c == '.'))));
        }
        if matches!(first, '"' | '\'') {
            return self.quoted(first).map(|text| Some(Token::Text(text)));
        }
        self.take(first.len_utf8());
        Ok(Some(Token::Punctuation(first)))
    }

    fn skip_blanks_and_comments(&mut self) -> Result<(), String> {
        loop {
            self.take_while(char::is_whitespace);
            if self.rest.starts_with("//") || self.rest.starts_with('#') {
                self.take_while(|c| c != '\n');
            } else if self.rest.starts_with("/*") {
                let end = self.rest.find("*/").ok_or("a comment has no end")?;
                self.take(end + 2);
            } else {
                return Ok(());
            }
        }
    }

    /// A text with its quotes; a backslash escapes the next character.
    fn quoted(&mut self, quote: char) -> Result<&'a str, String> {
        let mut escaped = false;
        for (offset, c) in self.rest.char_indices().skip(1) {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                c if c == quote => return Ok(self.take(offset + 1)),
                _ => {}
            }
        }
        Err("a quoted text has no end".to_owned())
    }

    fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !wanted(c)).unwrap_or(self.rest.len());
        self.take(end)
    }

    fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.line += taken.bytes().filter(|&byte| byte == b'\n').count();
        self.rest = rest;
        taken
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}
