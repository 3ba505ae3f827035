//! Lengths of functions: a ratchet, so that they only get shorter.

/// A function fits on a screen: more lines than this count as long.
const FUNCTION_LINES_MAX: usize = 70;

/// A function that is longer than a screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LongFunction {
    /// Its name.
    pub name: String,
    /// The line on which it begins, from 1.
    pub line: usize,
    /// Its lines, the signature included.
    pub lines: usize,
}

/// Whether a file holds tests, examples or fuzz targets only.
pub fn is_test(shown: &str) -> bool {
    let folders = ["/tests/", "/examples/", "/benches/", "/fuzz/"];
    folders.iter().any(|folder| shown.contains(folder)) || shown.ends_with("tests.rs")
}

/// A source without its module of tests.
pub fn product(text: &str) -> &str {
    const MARK: &str = "\n#[cfg(test)]\n";
    let is_tests = |at: &usize| {
        let mut lines = text[at + MARK.len()..].lines();
        lines
            .find(|line| !line.starts_with("#["))
            .is_some_and(|line| line.starts_with("mod tests {"))
    };
    let mut marks = text.match_indices(MARK).map(|(at, _)| at);
    marks.find(is_tests).map_or(text, |at| &text[..at])
}

/// The functions of a formatted Rust source that are longer than a screen. Relies on rustfmt: a function ends with the first line that is a
/// closing brace at the function's own indentation.
pub fn long_functions(text: &str) -> Vec<LongFunction> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else { continue };
        let indentation = line.len() - line.trim_start().len();
        let end = lines[at..].iter().position(|line| {
            line.len() == indentation + 1 && line.ends_with('}')
                || line.trim_end().ends_with(';') && is_at(line, indentation)
        });
        let length = end.map_or(1, |end| end + 1);
        if length > FUNCTION_LINES_MAX {
            found.push(LongFunction {
                name: name.to_owned(),
                line: at + 1,
                lines: length,
            });
        }
    }
    found
}

/// Whether a line is at exactly this indentation.
fn is_at(line: &str, indentation: usize) -> bool {
    line.len() - line.trim_start().len() == indentation
}

/// The name of the function that a line begins.
fn function_name(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    for word in [
        "pub(crate) ",
        "pub(super) ",
        "pub(in ",
        "pub ",
        "const ",
        "async ",
        "unsafe ",
        "extern \"C\" ",
    ] {
        if let Some(after) = rest.strip_prefix(word) {
            rest = after;
        }
    }
    let name = rest.strip_prefix("fn ")?;
    name.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(name: &str, body_lines: usize) -> String {
        let body = "        let _ = 1;\n".repeat(body_lines);
        format!("impl A {{\n    pub(crate) fn {name}() {{\n{body}    }}\n}}\n")
    }

    #[test]
    fn tests_in_a_file_are_no_part_of_the_product() {
        let before = "mod a;\n#[cfg(test)]\nmod tests;\nfn b() {}";
        for tests in [
            "\n#[cfg(test)]\nmod tests {\n}\n",
            "\n#[cfg(test)]\n#[allow(x)]\nmod tests {\n}\n",
        ] {
            assert_eq!(product(&format!("{before}{tests}")), before);
        }
        assert_eq!(product(before), before);
    }

    #[test]
    fn a_function_of_a_screen_passes_and_a_longer_one_is_found() {
        assert_eq!(long_functions(&function("fits", 68)), []);
        let found = long_functions(&function("grows", 69));
        assert_eq!(
            found,
            [LongFunction {
                name: "grows".to_owned(),
                line: 2,
                lines: 71
            }]
        );
    }

    #[test]
    fn a_declaration_without_body_does_not_reach_into_the_next_function() {
        let text = format!(
            "trait T {{\n    fn declared(&self);\n{}\n}}\n",
            "    // comment\n".repeat(80)
        );
        assert_eq!(long_functions(&text), []);
    }
}
