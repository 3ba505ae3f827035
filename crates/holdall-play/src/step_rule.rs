//! The rules of lock-step replay: which answer a message waits for, and how a rule is written.

use holdall_model::{names::validate_full_name, text::Outside};
use std::{fmt, num::NonZeroU32, str::FromStr, time::Duration};

/// Lock-step replay: the next message is published when enough of those before it are answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lockstep {
    /// What is waited for; all of it. Empty for none.
    pub rules: Vec<StepRule>,
    /// Messages that may wait for answers at the same time.
    pub in_flight: usize,
    /// After this time an answer counts as missing, and the playback continues.
    pub timeout: Duration,
}

impl Default for Lockstep {
    fn default() -> Self {
        Self {
            rules: Vec::new(),
            in_flight: 1,
            timeout: Duration::from_secs(10),
        }
    }
}

/// One thing that is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepRule {
    /// Only messages of this topic, as recorded or as published, are answered; `None` for all.
    pub input: Option<String>,
    /// By what.
    pub answer: StepAnswer,
}

/// What answers a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepAnswer {
    /// Messages of a topic.
    Topic {
        /// Full name.
        name: String,
        /// How many for each message; `None`: one whose `header.stamp` is that of the message or later, or one where types have none.
        count: Option<NonZeroU32>,
    },
    /// The reply of this service, when the message is a request to it that is sent again.
    Service(String),
    /// Of this action: each goal is sent when the result of the last one has come, and results are asked for when the goal was accepted or
    /// rejected. Other messages do not wait.
    Action(String),
    /// The acknowledgement of all reliable subscriptions.
    Acknowledged,
}

impl fmt::Display for StepRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(input) = &self.input {
            write!(f, "{}=", Outside(input))?;
        }
        self.answer.fmt(f)
    }
}

impl StepAnswer {
    /// Whether a server answers.
    pub(super) const fn is_of_server(&self) -> bool {
        matches!(self, Self::Service(_) | Self::Action(_))
    }
}

impl fmt::Display for StepAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Topic { name, count: None } => write!(f, "{}", Outside(name)),
            Self::Topic {
                name,
                count: Some(count),
            } => write!(f, "{}:{count}", Outside(name)),
            Self::Service(name) => write!(f, "service {}", Outside(name)),
            Self::Action(name) => write!(f, "action {}", Outside(name)),
            Self::Acknowledged => f.write_str("ack"),
        }
    }
}

impl FromStr for StepRule {
    type Err = String;

    /// `[INPUT=]TOPIC[:COUNT]`, `[INPUT=]ack`, `service NAME`, `action NAME`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (input, answer) = match text.split_once('=') {
            Some((input, answer)) => (Some(full(input)?), answer.trim()),
            None => (None, text.trim()),
        };
        let answer = if answer == "ack" {
            StepAnswer::Acknowledged
        } else if let Some(name) = answer.strip_prefix("service ") {
            if input.is_some() {
                return Err("a service answers its own requests, so that it has no input".to_owned());
            }
            StepAnswer::Service(full(name)?)
        } else if let Some(name) = answer.strip_prefix("action ") {
            if input.is_some() {
                return Err("an action answers its own goals, so that it has no input".to_owned());
            }
            StepAnswer::Action(full(name)?)
        } else {
            let (name, count) = match answer.rsplit_once(':') {
                Some((name, count)) => {
                    let count = count.parse().map_err(|_| "after : comes a number above 0")?;
                    (name, Some(count))
                }
                None => (answer, None),
            };
            StepAnswer::Topic {
                name: full(name)?,
                count,
            }
        };
        Ok(Self { input, answer })
    }
}

/// The full name of a topic or service.
fn full(name: &str) -> Result<String, String> {
    let name = name.trim();
    let name = if name.starts_with('/') {
        name.to_owned()
    } else {
        format!("/{name}")
    };
    let expected = "expected [INPUT=]TOPIC[:COUNT], [INPUT=]ack, service NAME or action NAME";
    validate_full_name(&name)
        .map_err(|error| format!("{name:?} is not a valid topic name: {}; {expected}", error.kind))?;
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> StepRule {
        text.parse().unwrap()
    }

    #[test]
    fn rules_are_read_as_they_are_written() {
        for text in [
            "/out",
            "/scan=/out:2",
            "ack",
            "/scan=ack",
            "service /process",
            "action /drive",
        ] {
            assert_eq!(rule(text).to_string(), text);
        }
        assert_eq!(rule(" scan = out:1 ").to_string(), "/scan=/out:1");
        assert_eq!(rule("acknowledged").to_string(), "/acknowledged");
    }

    #[test]
    fn what_is_no_rule_is_refused_in_one_sentence() {
        for text in [
            "",
            "=",
            "/out:0",
            "/out:x",
            "/a=service /b",
            "/a=action /b",
            "/a b",
            "/a=",
        ] {
            let error = text.parse::<StepRule>().expect_err(text);
            assert!(!error.contains('\n') && !error.is_empty(), "{text}: {error}");
        }
    }
}
