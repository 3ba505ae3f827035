//! Which messages are selected: names completed, patterns compiled, expressions parsed.

use super::{UsageError, names, pattern};
use crate::typed::choice::ChoiceArguments;
use holdall::{
    decode::{MessageChoice, Question},
    reader::MessageOrder,
};
use holdall_model::time::Timestamp;

/// Combines the arguments.
///
/// # Errors
/// The first argument that cannot be used.
pub fn meant(typed: &ChoiceArguments, by_publish_time: bool) -> Result<MessageChoice, UsageError> {
    let questions = typed.questions.iter().map(|text| {
        Question::parse(text).map_err(|error| UsageError::BadValue {
            flag: "--where",
            value: text.clone(),
            reason: error.to_string(),
        })
    });
    Ok(MessageChoice {
        topics: names::full_names("--topics", &typed.topics)?,
        regex: pattern::compile("--regex", typed.regex.as_deref())?,
        exclude_topics: names::full_names("--exclude-topics", &typed.exclude_topics)?,
        exclude_regex: pattern::compile("--exclude-regex", typed.exclude_regex.as_deref())?,
        types: names::type_names("--topic-types", &typed.topic_types)?,
        from: typed.start.map(Timestamp::from_nanos),
        until: typed.end.map(Timestamp::from_nanos),
        start_offset: typed.start_offset,
        duration: typed.duration,
        order: if by_publish_time {
            MessageOrder::Sent
        } else {
            MessageOrder::Received
        },
        questions: questions.collect::<Result<_, _>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_patterns_and_questions_are_understood() {
        let typed = ChoiceArguments {
            topics: vec!["imu".into()],
            regex: Some("/cam.*".into()),
            questions: vec!["imu: a.b > 1".into()],
            start: Some(5),
            ..ChoiceArguments::default()
        };
        let choice = meant(&typed, true).unwrap();
        assert_eq!(choice.topics, ["/imu"]);
        assert_eq!(choice.questions[0].topic, "/imu");
        assert_eq!(choice.questions[0].expression, "a.b > 1");
        assert_eq!(choice.from, Some(Timestamp::from_nanos(5)));
        assert_eq!(choice.order, MessageOrder::Sent);
        assert!(choice.takes_topic("/camera", "a/msg/B") && !choice.takes_topic("/a/camera", "a/msg/B"));
    }

    #[test]
    fn what_cannot_be_meant_is_refused_by_its_flag() {
        let refusal = |typed: &ChoiceArguments| meant(typed, false).unwrap_err().to_string();
        let typed = ChoiceArguments {
            questions: vec!["a > 1".into()],
            ..ChoiceArguments::default()
        };
        assert!(refusal(&typed).contains("--where \"a > 1\": expression, character 1: expected a topic"));
        let typed = ChoiceArguments {
            topic_types: vec!["Image".into()],
            ..ChoiceArguments::default()
        };
        assert!(refusal(&typed).contains("--topic-types"));
    }
}
