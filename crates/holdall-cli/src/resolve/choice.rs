//! Which messages are selected: names completed, patterns compiled, expressions parsed.

use super::{UsageError, names, pattern};
use crate::args::choice::ChoiceArguments;
use holdall::decode::{MessageChoice, Question};
use std::collections::BTreeMap;

/// Combines the arguments.
///
/// # Errors
/// The first argument that cannot be used.
pub fn resolve(args: &ChoiceArguments) -> Result<MessageChoice, UsageError> {
    let questions = questions(&args.questions)?;
    let mut topics = names::full_names("--topics", &args.topics)?;
    // Conditions select their topics: other topics are shown only if they are named.
    topics.extend(questions.iter().map(|question| question.topic.clone()));
    Ok(MessageChoice {
        topics,
        regex: pattern::compile("--regex", args.regex.as_deref())?,
        exclude_topics: names::full_names("--exclude-topics", &args.exclude_topics)?,
        exclude_regex: pattern::compile("--exclude-regex", args.exclude_regex.as_deref())?,
        types: names::type_names("--topic-types", &args.topic_types)?,
        // Bounded when the bags are open.
        from: None,
        until: None,
        start_offset: args.start_offset,
        duration: args.duration,
        time: args.time.unwrap_or_default(),
        time_of: BTreeMap::new(),
        questions,
        verified: false,
    })
}

/// The expressions of `--where`.
pub fn questions(texts: &[String]) -> Result<Vec<Question>, UsageError> {
    let question = |text: &String| {
        Question::parse(text).map_err(|error| UsageError::BadValue {
            flag: "--where",
            value: text.clone(),
            reason: error.to_string(),
        })
    };
    texts.iter().map(question).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall::decode::TimeBase;

    #[test]
    fn names_patterns_and_questions_are_understood() {
        let args = ChoiceArguments {
            topics: vec!["imu".into()],
            regex: Some("/cam.*".into()),
            questions: vec!["imu: a.b > 1".into()],
            time: Some(TimeBase::PublishTime),
            ..ChoiceArguments::default()
        };
        let choice = resolve(&args).unwrap();
        assert_eq!(choice.topics, ["/imu", "/imu"]);
        assert_eq!(choice.questions[0].topic, "/imu");
        assert_eq!(choice.questions[0].expression, "a.b > 1");
        let asked = ChoiceArguments {
            questions: vec!["/imu: a.b > 1".into(), "/gps: c > 2".into()],
            ..ChoiceArguments::default()
        };
        let asked = resolve(&asked).unwrap();
        assert!(asked.takes_topic("/imu", "a/msg/B") && asked.takes_topic("/gps", "a/msg/B"));
        assert!(!asked.takes_topic("/camera", "a/msg/B"));
        assert_eq!(choice.time, TimeBase::PublishTime);
        assert!(choice.takes_topic("/camera", "a/msg/B") && choice.takes_topic("/a/camera", "a/msg/B"));
        assert!(!choice.takes_topic("/lidar", "a/msg/B"));
    }

    #[test]
    fn what_cannot_be_resolved_is_refused_by_its_flag() {
        let refusal = |args: &ChoiceArguments| resolve(args).unwrap_err().to_string();
        let args = ChoiceArguments {
            questions: vec!["a > 1".into()],
            ..ChoiceArguments::default()
        };
        assert!(refusal(&args).contains("--where \"a > 1\": expression, character 1: expected a topic"));
        let args = ChoiceArguments {
            topic_types: vec!["Image".into()],
            ..ChoiceArguments::default()
        };
        assert!(refusal(&args).contains("--topic-types"));
    }
}
