//! Cuts an expression into words, numbers, texts and operators.

use super::{EXPRESSION_BYTES_MAX, ExpressionError};
use crate::time::Timestamp;
use std::fmt;

/// A token of an expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Word(String),
    Integer(i128),
    Float(f64),
    Text(String),
    /// A point in time, in nanoseconds since 1970; only where dates are read.
    Time(i64),
    Sign(&'static str),
    End,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(word) => f.write_str(word),
            Self::Integer(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "{value}"),
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Time(nanos) => write!(f, "the time {nanos} ns"),
            Self::Sign(sign) => f.write_str(sign),
            Self::End => f.write_str("the end"),
        }
    }
}

/// Operators; each before those that it begins with.
const SIGNS: [&str; 23] = [
    "||", "&&", "==", "!=", "<=", ">=", "=~", "!~", "<", ">", "!", "+", "-", "*", "/", "%", "(", ")", "[",
    "]", ".", ",", "=",
];

/// All tokens with their positions, in characters from 0; the last is [`Token::End`].
pub(super) fn tokens(text: &str) -> Result<Vec<(usize, Token)>, ExpressionError> {
    tokens_by(text, &|_, _| Ok(None))
}

/// As [`tokens`], where `2026-11-01`, `2026-11-01T12:30` and `2026-11-01T12:30:05.25Z` are points in time (UTC).
pub(super) fn tokens_with_dates(text: &str) -> Result<Vec<(usize, Token)>, ExpressionError> {
    tokens_by(text, &date)
}

/// Reads a special token at a position; returns the token and its end.
type Special<'a> = &'a dyn Fn(&[char], usize) -> Result<Option<(Token, usize)>, ExpressionError>;

fn tokens_by(text: &str, special: Special<'_>) -> Result<Vec<(usize, Token)>, ExpressionError> {
    if text.len() > EXPRESSION_BYTES_MAX {
        let reason = format!("it is longer than {EXPRESSION_BYTES_MAX} bytes");
        return Err(ExpressionError::new(0, reason));
    }
    let chars: Vec<char> = text.chars().collect();
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(&first) = chars.get(at) {
        if first.is_whitespace() {
            at += 1;
            continue;
        }
        let (token, end) = match special(&chars, at)? {
            Some(found) => found,
            None => token(&chars, at, first)?,
        };
        found.push((at, token));
        at = end;
    }
    found.push((chars.len(), Token::End));
    Ok(found)
}

/// The token at a position, and where it ends.
fn token(chars: &[char], at: usize, first: char) -> Result<(Token, usize), ExpressionError> {
    let run = |wanted: &dyn Fn(char) -> bool| chars[at..].iter().take_while(|c| wanted(**c)).count() + at;
    if first.is_ascii_alphabetic() || first == '_' {
        let end = run(&|c| c.is_ascii_alphanumeric() || c == '_');
        return Ok((Token::Word(chars[at..end].iter().collect()), end));
    }
    if first.is_ascii_digit() {
        let end = number_end(chars, at);
        let text: String = chars[at..end].iter().collect();
        return number(&text)
            .map(|token| (token, end))
            .ok_or_else(|| ExpressionError::new(at, format!("{text:?} is not a number")));
    }
    if matches!(first, '"' | '\'') {
        return quoted(chars, at, first);
    }
    if first == '`' {
        // A name in backquotes.
        let (text, end) = quoted(chars, at, first)?;
        return match text {
            Token::Text(name) => Ok((Token::Word(name), end)),
            other => Ok((other, end)),
        };
    }
    let rest: String = chars[at..].iter().take(2).collect();
    match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
        // A single one, as in SQL, compares too.
        Some(&"=") => Ok((Token::Sign("=="), at + 1)),
        Some(sign) => Ok((Token::Sign(sign), at + sign.len())),
        None => Err(ExpressionError::new(at, format!("unexpected {first:?}"))),
    }
}

/// A date, with or without a time of day: `2026-11-01`.
fn date(chars: &[char], at: usize) -> Result<Option<(Token, usize)>, ExpressionError> {
    const FORM: &str = "dddd-dd-dd";
    let begins = FORM.chars().enumerate().all(|(place, wanted)| {
        let found = chars.get(at + place).copied().unwrap_or(' ');
        if wanted == 'd' {
            found.is_ascii_digit()
        } else {
            found == wanted
        }
    });
    if !begins {
        return Ok(None);
    }
    let is_more = |c: &&char| c.is_ascii_alphanumeric() || matches!(c, ':' | '.');
    let rest = at + FORM.len();
    let end = rest + chars[rest..].iter().take_while(is_more).count();
    let text: String = chars[at..end].iter().collect();
    match Timestamp::from_utc_text(&text) {
        Some(time) => Ok(Some((Token::Time(time.as_nanos()), end))),
        None => Err(ExpressionError::new(
            at,
            format!("{text:?} is not a date; expected 2026-11-01 or 2026-11-01T12:30:05"),
        )),
    }
}

/// Letters and digits, points, and a sign after the exponent's `e`.
fn number_end(chars: &[char], at: usize) -> usize {
    let is_hex = chars.get(at + 1).is_some_and(|c| matches!(c, 'x' | 'X'));
    let mut end = at;
    while let Some(&c) = chars.get(end) {
        let after_exponent = !is_hex && end > at && matches!(chars[end - 1], 'e' | 'E');
        if !(c.is_ascii_alphanumeric() || c == '.' || c == '_' || (after_exponent && matches!(c, '+' | '-')))
        {
            break;
        }
        end += 1;
    }
    end
}

fn number(text: &str) -> Option<Token> {
    if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return u64::from_str_radix(digits, 16)
            .ok()
            .map(|value| Token::Integer(value.into()));
    }
    if text.bytes().all(|byte| byte.is_ascii_digit())
        && let Ok(value) = text.parse::<u64>()
    {
        return Some(Token::Integer(value.into()));
    }
    let is_float = text
        .bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'));
    text.parse().ok().filter(|_| is_float).map(Token::Float)
}

/// A text in quotes; `\` escapes the next character, `\n` and `\t` are a newline and a tab.
///
/// Before any other letter the `\` stays, so that regular expressions can be written as usual (`'\d+'`).
fn quoted(chars: &[char], at: usize, quote: char) -> Result<(Token, usize), ExpressionError> {
    let mut text = String::new();
    let mut rest = chars.iter().enumerate().skip(at + 1);
    while let Some((end, &c)) = rest.next() {
        if c == quote {
            return Ok((Token::Text(text), end + 1));
        }
        if c != '\\' {
            text.push(c);
            continue;
        }
        match rest.next() {
            Some((_, 'n')) => text.push('\n'),
            Some((_, 't')) => text.push('\t'),
            Some((_, &c)) if c == quote => text.push(c),
            Some((_, &c)) => text.extend(['\\', c]),
            None => {}
        }
    }
    Err(ExpressionError::new(at, "the text has no end"))
}
