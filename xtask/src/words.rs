//! Words that the glossary in CONTRIBUTING.md replaces: counted in comments, help and documents, a ratchet that ends at zero.

/// Words and phrases that a plainer one replaces, in lower case.
const BANNED: &[&str] = &[
    "tell",
    "tells",
    "told",
    "telling",
    "nobody",
    "whoever",
    "behind",
    "goes on",
    "go on",
    "went on",
    "as it is",
    "as they are",
    "lies",
    "stands",
    "stand on",
    "takes in",
    "take in",
    "taken in",
    "obey",
    "obeys",
    "tend",
    "tends",
    "all the same",
];

/// Words after "is no" that make it plain English.
const AFTER_IS_NO: &[&str] = &[
    "longer", "more", "need", "way", "room", "such", "other", "one", "reason", "when", "it",
];

/// A banned word or construction in a text that people read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The line, from 1.
    pub line: usize,
    /// The word.
    pub word: &'static str,
}

/// Banned words in the comments of a source, or in the prose of a document.
pub fn banned_words(text: &str, is_markdown: bool) -> Vec<Found> {
    let mut found = Vec::new();
    let mut in_block = false;
    for (number, line) in text.lines().enumerate() {
        if is_markdown && line.trim_start().starts_with("```") {
            in_block = !in_block;
            continue;
        }
        let prose = if is_markdown {
            if in_block || line.contains("| not | but |") || is_glossary_row(line) {
                continue;
            }
            without_code(line)
        } else {
            let Some((_, comment)) = line.split_once("//") else {
                continue;
            };
            without_code(comment.trim_start_matches(['/', '!']))
        };
        let spaced = spaced_words(&prose);
        let is_there = |word: &&&str| spaced.contains(&format!(" {word} "));
        let words = BANNED.iter().filter(is_there).copied();
        found.extend(words.chain(constructions(&prose)).map(|word| Found {
            line: number + 1,
            word,
        }));
    }
    found
}

/// Constructions that read as translated.
fn constructions(prose: &str) -> Vec<&'static str> {
    let tokens: Vec<&str> = prose.split_whitespace().collect();
    let ends_clause = |token: &str| token.ends_with(['.', ',', ';', ':', '!', '?']);
    let mut found = Vec::new();
    for (index, three) in tokens.windows(3).enumerate() {
        let starts_sentence = index == 0 || tokens[index - 1].ends_with('.');
        match three {
            ["Of", "the" | "a" | "each" | "those" | "what" | "one", _] if starts_sentence => {
                found.push("a sentence that begins with \"Of\"");
            }
            ["There", "where" | "for" | "while" | "when", _] if starts_sentence => {
                found.push("a sentence that begins with \"There where\"");
            }
            // "There is no" is plain; a line that begins with "is" continues one that is not known here.
            ["is" | "are" | "was", "no", noun] => {
                let noun = noun.trim_end_matches(|c: char| c.is_ascii_punctuation());
                let is_plain = index == 0
                    || tokens[index - 1].eq_ignore_ascii_case("there")
                    || AFTER_IS_NO.contains(&noun);
                if !is_plain {
                    found.push("is no");
                }
            }
            ["so", "often" | "long" | "many" | "much", next] if !["as", "that", "of"].contains(next) => {
                found.push("so much, without \"as\" or \"that\"");
            }
            _ => {}
        }
    }
    for pair in tokens.windows(2) {
        match pair {
            ["is" | "are" | "was" | "were", there] if ends_clause(there) && there.starts_with("there") => {
                found.push("is there, at the end of a clause");
            }
            ["of", ours] if ours.trim_end_matches(|c: char| c.is_ascii_punctuation()) == "ours" => {
                found.push("of ours");
            }
            _ => {}
        }
    }
    found
}

/// A row of the glossary names the words that it replaces.
fn is_glossary_row(line: &str) -> bool {
    line.starts_with("| ") && line.matches('|').count() == 3
}

/// The line without the parts between backticks.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join(" ")
}

/// Its words in lower case, one space before, between and after them.
fn spaced_words(prose: &str) -> String {
    let words = prose.split(|c: char| !(c.is_ascii_alphanumeric() || c == '\'' || c == '-'));
    let words: Vec<String> = words
        .filter(|word| !word.is_empty())
        .map(str::to_ascii_lowercase)
        .collect();
    format!(" {} ", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn translated_constructions_are_found() {
        for (text, count) in [
            ("/// Of the files that are finished.", 1),
            ("/// Bytes.\n/// of the file", 0),
            ("/// There where it waits.", 1),
            ("// It is no file, and there is no room.", 1),
            ("// A file is no longer there.", 0),
            ("// It comes so often here.", 1),
            ("// It comes so often that it counts.", 0),
            ("// Which messages are there?", 1),
            ("// A folder of ours.", 1),
        ] {
            assert_eq!(banned_words(text, false).len(), count, "{text}");
        }
    }

    #[test]
    fn banned_words_are_found_in_comments_and_prose_only() {
        let source = "// The drain is told the time.\nlet behind = 1;\n/// See `tell`.\n";
        assert_eq!(
            banned_words(source, false),
            [Found {
                line: 1,
                word: "told"
            }]
        );
        let document = "It goes on.\n```\nnobody\n```\n`behind` is a name, untold is a word.\n";
        assert_eq!(
            banned_words(document, true),
            [Found {
                line: 1,
                word: "goes on"
            }]
        );
    }
}
