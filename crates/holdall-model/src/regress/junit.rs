//! The results of a suite as JUnit XML, which servers of continuous integration read.

use super::{CaseOutcome, CaseResult};
use std::fmt::Write;

/// The text of a file.
pub fn junit(suite: &str, results: &[CaseResult]) -> String {
    let count = |outcome| results.iter().filter(|result| result.outcome == outcome).count();
    let seconds: f64 = results.iter().map(|result| result.seconds).sum();
    let counts = format!(
        "tests=\"{}\" failures=\"{}\" errors=\"{}\" time=\"{seconds:.3}\"",
        results.len(),
        count(CaseOutcome::Failed),
        count(CaseOutcome::Error)
    );
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let name = escaped(suite);
    // Writing to a String cannot fail.
    let _ = writeln!(
        xml,
        "<testsuites {counts}>\n  <testsuite name=\"{name}\" {counts}>"
    );
    for result in results {
        let case = escaped(&result.case);
        let _ = write!(
            xml,
            "    <testcase classname=\"{name}\" name=\"{case}\" time=\"{:.3}\"",
            result.seconds
        );
        let element = match result.outcome {
            CaseOutcome::Passed => None,
            CaseOutcome::Failed => Some("failure"),
            CaseOutcome::Error => Some("error"),
        };
        if element.is_none() && result.notes.is_empty() {
            xml.push_str("/>\n");
            continue;
        }
        xml.push_str(">\n");
        if let Some(element) = element {
            let first = result.problems.first().map(String::as_str).unwrap_or_default();
            let _ = writeln!(
                xml,
                "      <{element} message=\"{}\">{}</{element}>",
                escaped(first),
                escaped(&result.problems.join("\n"))
            );
        }
        if !result.notes.is_empty() {
            let notes = escaped(&result.notes.join("\n"));
            let _ = writeln!(xml, "      <system-out>{notes}</system-out>");
        }
        xml.push_str("    </testcase>\n");
    }
    xml.push_str("  </testsuite>\n</testsuites>\n");
    xml
}

/// A text inside of an element or an attribute; what XML cannot have is replaced.
pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' => escaped.push_str("&#10;"),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            letter if letter.is_control() => escaped.push('\u{fffd}'),
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_cases_with_failures_and_errors() {
        let failed = CaseResult {
            case: "yard".to_owned(),
            outcome: CaseOutcome::Failed,
            problems: vec!["/a: 1 < 2 & \"b\"".to_owned(), "second\u{1b}[0m".to_owned()],
            seconds: 1.5,
            ..CaseResult::default()
        };
        let passed = CaseResult {
            case: "street".to_owned(),
            outcome: CaseOutcome::Passed,
            seconds: 0.5,
            notes: vec!["/a: losses are not known".to_owned()],
            ..CaseResult::default()
        };
        let text = junit(
            "suite",
            &[
                failed,
                passed,
                CaseResult::error("x", ["the software ended".to_owned()]),
            ],
        );
        let expected = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>
<testsuites tests=\"3\" failures=\"1\" errors=\"1\" time=\"2.000\">
  <testsuite name=\"suite\" tests=\"3\" failures=\"1\" errors=\"1\" time=\"2.000\">
    <testcase classname=\"suite\" name=\"yard\" time=\"1.500\">
      <failure message=\"/a: 1 &lt; 2 &amp; &quot;b&quot;\">/a: 1 &lt; 2 &amp; &quot;b&quot;&#10;second\u{fffd}[0m</failure>
    </testcase>
    <testcase classname=\"suite\" name=\"street\" time=\"0.500\">
      <system-out>/a: losses are not known</system-out>
    </testcase>
    <testcase classname=\"suite\" name=\"x\" time=\"0.000\">
      <error message=\"the software ended\">the software ended</error>
    </testcase>
  </testsuite>
</testsuites>
";
        assert_eq!(text, expected);
    }
}
