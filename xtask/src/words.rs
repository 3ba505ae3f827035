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

/// A banned word in a text that people read.
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
            without_code(comment)
        };
        let spaced = spaced_words(&prose);
        for word in BANNED {
            if spaced.contains(&format!(" {word} ")) {
                found.push(Found {
                    line: number + 1,
                    word,
                });
            }
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
