//! The words of a search for bags: parts of names, `topic:`, `type:`, `label:`, `after:` and `before:`.

use super::bags::Listed;
use crate::http::Refusal;
use holdall::Timestamp;

/// Words of a search.
const WORDS_MAX: usize = 32;

enum Word {
    Name(String),
    Topic(String),
    Type(String),
    /// A label's name, or its name and value.
    Label(String, Option<String>),
    After(Timestamp),
    Before(Timestamp),
}

/// What a bag must be: all of it.
pub(super) struct Question(Vec<Word>);

impl Question {
    /// Reads the words of a search; times are seconds since 1970.
    pub(super) fn parse(text: &str) -> Result<Self, Refusal> {
        let words = text.split_whitespace().take(WORDS_MAX).map(|word| {
            let (kind, rest) = word.split_once(':').unwrap_or(("", word));
            let lower = rest.to_lowercase();
            let time = || {
                let seconds: f64 = rest.parse().ok().filter(|seconds: &f64| seconds.is_finite())?;
                Some(Timestamp::from_nanos((seconds * 1e9) as i64))
            };
            let no_time = || {
                Refusal::new(
                    400,
                    &format!("{word}: expected a time, for example after:2026-11-20"),
                )
            };
            Ok(match kind {
                "topic" => Word::Topic(lower),
                "type" => Word::Type(lower),
                "label" => match lower.split_once('=') {
                    Some((key, value)) => Word::Label(key.to_owned(), Some(value.to_owned())),
                    None => Word::Label(lower, None),
                },
                "after" => Word::After(time().ok_or_else(no_time)?),
                "before" => Word::Before(time().ok_or_else(no_time)?),
                _ => Word::Name(word.to_lowercase()),
            })
        });
        words.collect::<Result<_, _>>().map(Self)
    }

    /// Whether a bag is found.
    pub(super) fn fits(&self, bag: &Listed) -> bool {
        let (about, has) = (&bag.about, |text: &str, part: &str| {
            text.to_lowercase().contains(part)
        });
        self.0.iter().all(|word| match word {
            Word::Name(part) => has(&bag.name, part),
            Word::Topic(part) => about.topics.iter().any(|(name, _)| has(name, part)),
            Word::Type(part) => about.topics.iter().any(|(_, kind)| has(kind, part)),
            Word::Label(key, value) => about
                .labels
                .iter()
                .any(|(known, of)| has(known, key) && value.as_ref().is_none_or(|value| has(of, value))),
            Word::After(time) => about.times.is_some_and(|(_, last)| last >= *time),
            Word::Before(time) => about.times.is_some_and(|(first, _)| first <= *time),
        })
    }
}
