//! The rule that texts of the libraries name no flags of a command line: errors are typed, and the command adds what its flags can do.

/// Crates that know no command line. The library of `holdall-bench` is for its program only, and starts
/// programs.
const LIBRARIES: [&str; 12] = [
    "crates/holdall-model/src/",
    "crates/holdall-io/src/",
    "crates/holdall-storage/src/",
    "crates/holdall-transport/src/",
    "crates/holdall-bag/src/",
    "crates/holdall-data/src/",
    "crates/holdall-media/src/",
    "crates/holdall-play/src/",
    "crates/holdall-record/src/",
    "crates/holdall-serve/src/",
    "crates/holdall-tools/src/",
    "crates/holdall/src/",
];

/// Finds string literals of the libraries that name a flag. Tests may: everything in their files or after
/// `#[cfg(test)]`.
pub fn check_flags(shown: &str, text: &str, breaches: &mut Vec<String>) {
    let is_library = LIBRARIES.iter().any(|folder| shown.starts_with(folder));
    if !is_library || shown.contains("/tests/") || shown.ends_with("tests.rs") {
        return;
    }
    for (line, literal) in literals(crate::lengths::product(text)) {
        if let Some(flag) = flag_in(literal) {
            breaches.push(format!(
                "{shown}:{line}: a text of a library names the flag {flag}; give the error a variant, or the log line a `setting`, and add the \
                 flag in holdall-program/src/hint.rs"
            ));
        }
    }
}

/// The first flag in a text, `--name` or `-x`, preceded by nothing, a space, an opening parenthesis or a quote.
fn flag_in(text: &str) -> Option<&str> {
    let mut places = text.match_indices('-').map(|(at, _)| at);
    places.find_map(|at| {
        let before = text[..at].chars().next_back();
        if !before.is_none_or(|c| c.is_whitespace() || matches!(c, '(' | '`' | '\'')) {
            return None;
        }
        let name = |c: char| c.is_ascii_lowercase() || c == '-';
        let end = text[at..].find(|c| !name(c)).map_or(text.len(), |end| at + end);
        let flag = &text[at..end];
        let is_long = flag.starts_with("--") && flag.contains(|c: char| c.is_ascii_lowercase());
        // A literal that is nothing but a letter, also one with a part (`-c:v`), is an argument of another program, not a text.
        let is_argument = at == 0 && !text.contains(char::is_whitespace);
        let is_short = flag.len() == 2 && flag != "--" && !is_argument && !others_command(&text[..at]);
        (is_long || is_short).then_some(flag)
    })
}

/// Whether a text ends with the name of a command of the system, whose flags a text may name.
fn others_command(text: &str) -> bool {
    ["ulimit", "sysctl"]
        .iter()
        .any(|name| text.trim_end().ends_with(name))
}

/// The string literals of a source outside of comments, each with the line on which it begins, from 1.
fn literals(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let (bytes, mut at) = (text.as_bytes(), 0);
    while at < bytes.len() {
        let rest = &text[at..];
        if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
        } else if rest.starts_with("'\"'") || rest.starts_with("b'\"'") {
            at += rest.find('"').unwrap_or(0) + 2;
        } else if let Some((begin, end)) = literal(rest) {
            let line = text[..at].matches('\n').count() + 1;
            found.push((line, &rest[begin..end]));
            at += end + 1;
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    found
}

/// The begin and end of the content of the literal at the start of a text.
fn literal(text: &str) -> Option<(usize, usize)> {
    if let Some(raw) = text.strip_prefix('r') {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if !raw[hashes..].starts_with('"') {
            return None;
        }
        let begin = 1 + hashes + 1;
        let close = format!("\"{}", "#".repeat(hashes));
        return Some((begin, begin + text[begin..].find(&close)?));
    }
    let mut escaped = false;
    let content = text.strip_prefix('"')?;
    let end = content.bytes().position(|byte| {
        let closes = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        closes
    })?;
    Some((1, 1 + end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaches_of(shown: &str, text: &str) -> Vec<String> {
        let mut breaches = Vec::new();
        check_flags(shown, text, &mut breaches);
        breaches
    }

    #[test]
    fn a_text_of_a_library_that_names_a_flag_is_found() {
        for text in [
            "    warn!(\"the cache is full (--max-cache-size)\");\n",
            "    #[error(\"{} exists; choose another with -o\")]\n",
            "    let a = \"a \\\"quote\\\", then --all\";\n",
            "    let (a, b) = ('\"', \"use --all\");\n",
            "    // not here\n    let a = \"on two lines \\\n        with --all\";\n",
            "    let a = r#\"raw \" --all\"#;\n",
            "    option: \"--all\",\n",
        ] {
            let found = breaches_of("crates/holdall-data/src/export/error.rs", text);
            assert_eq!(found.len(), 1, "{text}: {found:?}");
        }
        let found = breaches_of("crates/holdall-io/src/fs.rs", "\n\nlet a = \"see --all\";\n");
        assert!(
            found[0].starts_with("crates/holdall-io/src/fs.rs:3: a text of a library names the flag --all;")
        );
    }

    #[test]
    fn comments_tests_numbers_and_other_crates_are_no_breach() {
        let line = "let a = \"see --all\";\n";
        let in_tests = format!("fn a() {{}}\n#[cfg(test)]\nmod tests {{\n    {line}}}\n");
        for (place, text) in [
            ("crates/holdall-program/src/hint.rs", line),
            ("tools/bench/src/error.rs", line),
            ("crates/holdall-bag/src/writer/tests.rs", line),
            ("crates/holdall-record/src/tests/bags.rs", line),
            ("crates/holdall-data/src/ffmpeg.rs", "[\"-c:v\", \"-f\"]\n"),
            ("crates/holdall-data/src/export/mod.rs", in_tests.as_str()),
            (
                "crates/holdall-data/src/export/mod.rs",
                "/// Like `--all`, \"or -o\".\n",
            ),
            (
                "crates/holdall-data/src/export/mod.rs",
                "f(\"a - b -- c, a-b, -1, x--y, ---, ulimit -n\", '\"', b'\"', \"<!-- -->\");\n",
            ),
        ] {
            assert_eq!(breaches_of(place, text), Vec::<String>::new(), "{place}: {text}");
        }
    }
}
