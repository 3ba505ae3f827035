//! A command for each alarm of a recording, when it begins and when it ends.

use super::{
    file_command::BAG_VARIABLE,
    line_command::{LineCommand, Subject},
};
use holdall_model::{alarm::Alarm, text::Outside};
use std::path::Path;

/// The alarm as the command sees it: its kind, `begin` or `end`, its topic (empty for the whole recording), one clause, and when it began in
/// nanoseconds since 1970.
const KIND: &str = "HOLDALL_ALARM_KIND";
const STATE: &str = "HOLDALL_ALARM_STATE";
const TOPIC: &str = "HOLDALL_ALARM_TOPIC";
const TEXT: &str = "HOLDALL_ALARM_TEXT";
const SINCE: &str = "HOLDALL_ALARM_SINCE";

/// Runs a command for each alarm that it is given.
///
/// The command is a line for a shell: `{}` is the alarm's text as one word, however it is quoted, and the environment has the alarm.
pub struct AlarmCommand(pub(super) LineCommand);

impl AlarmCommand {
    /// Runs this line by a shell: its path, and the argument that precedes a line.
    pub fn new(shell: [&str; 2], line: &str) -> Self {
        Self(LineCommand::new(shell, line))
    }

    /// Adds alarms of the recording into this bag; their commands are started in this order.
    pub(super) fn add(&mut self, bag: &Path, alarms: impl IntoIterator<Item = Alarm>) {
        let bag = std::path::absolute(bag).unwrap_or_else(|_| bag.to_owned());
        self.0.add(alarms.into_iter().map(|alarm| subject(&bag, &alarm)));
    }
}

fn subject(bag: &Path, alarm: &Alarm) -> Subject {
    // A topic's name comes from other computers: a zero would end the variable.
    let text = alarm.text.replace('\0', " ");
    let topic = alarm.topic.as_deref().unwrap_or_default().replace('\0', " ");
    Subject {
        name: format!("alarm {} ({})", Outside(&alarm.text), alarm.state()),
        word: text.clone().into(),
        variables: vec![
            (KIND, alarm.kind.as_str().into()),
            (STATE, alarm.state().into()),
            (TOPIC, topic.into()),
            (TEXT, text.into()),
            (SINCE, alarm.since.as_nanos().to_string().into()),
            (BAG_VARIABLE, bag.into()),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervise::command_tests::{SH, run};
    use holdall_model::{alarm::AlarmKind, time::Timestamp};
    use std::fs;

    #[test]
    fn the_alarm_is_in_the_environment_and_runs_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let alarm = Alarm {
            kind: AlarmKind::EndUnknown,
            topic: Some("/a$(touch x)\0b".to_owned()),
            text: "/a`touch x`; '1' \"2\"".to_owned(),
            since: Timestamp::from_nanos(7),
            until: Some(Timestamp::from_nanos(9)),
        };
        let line = "cd \"$HOLDALL_BAG\" && printf '%s\\n' {} \"$HOLDALL_ALARM_KIND\" \"$HOLDALL_ALARM_STATE\" \
                    \"$HOLDALL_ALARM_TOPIC\" \"$HOLDALL_ALARM_TEXT\" \"$HOLDALL_ALARM_SINCE\" > out";
        let mut command = AlarmCommand::new(SH, line);
        command.add(folder.path(), [alarm]);
        run(&mut command.0);
        let text = "/a`touch x`; '1' \"2\"";
        let wanted = format!("{text}\nend_unknown\nend\n/a$(touch x) b\n{text}\n7\n");
        assert_eq!(fs::read_to_string(folder.path().join("out")).unwrap(), wanted);
        assert!(!folder.path().join("x").exists());
    }
}
