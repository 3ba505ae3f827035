//! Text from outside (names in bags, of nodes, of files) that must not act on a terminal: control characters are shown as `\u001b`.

use std::{
    borrow::Cow,
    fmt::{self, Display, Write},
    path::Path,
};

/// Whether a terminal or a person would see something else than this character: C0 and C1 controls, DEL, ends of lines, and the
/// characters that change the direction of the text around them.
pub const fn is_control(c: char) -> bool {
    matches!(
        c,
        '\0'..='\u{1f}'
            | '\u{7f}'..='\u{9f}'
            | '\u{61c}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
            | '\u{feff}'
    )
}

/// Writes a character of [`is_control`] as JSON has it too: all of them have four digits.
fn write_escaped(out: &mut impl Write, c: char) -> fmt::Result {
    match c {
        '\n' => out.write_str("\\n"),
        '\r' => out.write_str("\\r"),
        '\t' => out.write_str("\\t"),
        c => write!(out, "\\u{:04x}", u32::from(c)),
    }
}

/// Foreign text in a sentence or a table: one line, without anything that acts on a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outside<'a>(pub &'a str);

impl Display for Outside<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&one_line(self.0))
    }
}

/// A foreign path, shown as [`Outside`] shows text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutsidePath<'a>(pub &'a Path);

impl Display for OutsidePath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&one_line(&self.0.to_string_lossy()))
    }
}

/// The first `most` of these, escaped, and how many more there are: `/a, /b and 3 more`.
pub fn first_of(all: impl IntoIterator<Item = impl fmt::Display>, most: usize) -> String {
    let mut all = all.into_iter();
    let shown = all.by_ref().take(most);
    let shown: Vec<String> = shown.map(|one| one_line(&one.to_string()).into_owned()).collect();
    let more = match all.count() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}", shown.join(", "))
}

/// A text as a word of a command line for a shell; control characters are escaped, for people.
pub fn shell_word(text: &str) -> Cow<'_, str> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+:=@%,".contains(letter);
    if !text.is_empty() && text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("'{}'", one_line(text).replace('\'', r"'\''")))
}

/// The text with all control characters escaped, ends of lines too.
pub fn one_line(text: &str) -> Cow<'_, str> {
    escape_unless(text, |_, _| false)
}

/// The text with all control characters escaped but those that `keeps` accepts: it gets the character and what follows it.
pub fn escape_unless(text: &str, keeps: impl Fn(char, &str) -> bool) -> Cow<'_, str> {
    if !text.contains(is_control) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for (at, c) in text.char_indices() {
        if !is_control(c) || keeps(c, &text[at + c.len_utf8()..]) {
            out.push(c);
        } else {
            // Writing to a String cannot fail.
            let _ = write_escaped(&mut out, c);
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_acts_on_a_terminal_is_shown_as_text() {
        assert_eq!(
            Outside("/a\u{1b}[31mRED\u{1b}]0;x\u{7}\n\t\u{9b}2J\u{202e}gnp\u{7f}é").to_string(),
            "/a\\u001b[31mRED\\u001b]0;x\\u0007\\n\\t\\u009b2J\\u202egnp\\u007fé"
        );
        assert_eq!(
            OutsidePath(Path::new("lab\u{1b}c/x.mcap")).to_string(),
            "lab\\u001bc/x.mcap"
        );
        assert_eq!(format!("{:<6}|", Outside("é")), "é     |");
    }

    proptest! {
        #[test]
        fn escaped_text_is_one_line_without_controls_and_reads_back_as_json(
            text in "[^\"\\\\]{0,30}|[\\x00-\\x1f\u{7f}-\u{9f}\u{2020}-\u{2070}]{0,30}"
        ) {
            let shown = one_line(&text);
            prop_assert!(!shown.contains(is_control));
            if !text.contains(['"', '\\']) {
                prop_assert_eq!(serde_json::from_str::<String>(&format!("\"{shown}\"")).unwrap(), text);
            }
        }
    }
}
