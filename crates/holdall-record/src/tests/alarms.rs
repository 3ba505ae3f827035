//! Alarms of a recording: each begins and ends once, and is in the status, in the report and in the bag.

use super::{
    triggers::{Stepped, ms},
    *,
};
use crate::options::{Trigger, TriggerOptions};
use holdall_io::sim::SimClock;
use holdall_model::alarm::{Alarm, AlarmKind};

fn watching(texts: &[&str]) -> Stepped {
    let alarms = texts.iter().map(|text| Trigger::parse(text).unwrap()).collect();
    Stepped::recording(|options| options.alarms = alarms)
}

impl Stepped {
    /// Lets time pass; a message comes every `period`, if any.
    fn pass(&mut self, span: Duration, talker: &(String, MemoryPublisher), period: Option<Duration>) {
        let end = self.clock.monotonic() + span;
        let mut next = period.map(|period| self.clock.monotonic() + period);
        while self.clock.monotonic() < end {
            self.clock.advance(ms(20));
            if let (Some(due), Some(period)) = (next, period)
                && self.clock.monotonic() >= due
            {
                self.send(talker, b"x");
                next = Some(due + period);
            }
            self.settle();
        }
    }

    /// Kind, topic and state of the alarms that began or ended since the last call.
    fn changes(&self) -> Vec<(AlarmKind, Option<String>, &'static str)> {
        let changes = self.recorder.control().take_alarm_changes();
        let change = |alarm: Alarm| (alarm.kind, alarm.topic.clone(), alarm.state());
        changes.into_iter().map(change).collect()
    }

    fn active(&self) -> Vec<String> {
        let active = self.recorder.status().alarms.active;
        active.into_iter().map(|alarm| alarm.text).collect()
    }
}

fn of(kind: AlarmKind, topic: &str, state: &'static str) -> (AlarmKind, Option<String>, &'static str) {
    (kind, Some(topic.to_owned()), state)
}

/// The names of the markers in a bag's files.
fn markers(recorded: &Recorded) -> Vec<String> {
    let mut names = Vec::new();
    for file in &recorded.report.files {
        let bytes = fs::read(file).unwrap();
        let summary = mcap::Summary::read(&bytes).unwrap().unwrap();
        let indexes = summary.metadata_indexes.iter();
        for index in indexes.filter(|index| index.name == "holdall:marker") {
            let mut record = mcap::read::metadata(&bytes, index).unwrap();
            names.extend(record.metadata.remove("name"));
        }
    }
    names
}

#[test]
fn a_topic_that_falls_silent_is_one_alarm_until_it_is_back_for_good() {
    let mut world = watching(&["/scan silent 2s", "/other silent 1s"]);
    let scan = world.publisher("/scan", STRING);
    world.pass(ms(5000), &scan, None);
    assert_eq!(world.changes(), [], "never heard");
    world.pass(ms(3000), &scan, Some(ms(100)));
    assert_eq!(world.changes(), []);
    world.pass(ms(1900), &scan, None);
    assert_eq!(world.changes(), []);
    world.pass(ms(300), &scan, None);
    assert_eq!(world.changes(), [of(AlarmKind::Silent, "/scan", "begin")]);
    assert_eq!(world.active(), ["/scan silent 2s"]);
    let watched = &world.recorder.status().alarms.watched;
    assert!(watched[0].age.unwrap() >= ms(2000) && watched[1].age.is_none());
    assert_eq!(
        [true, false],
        [watched[0].is_topic_known, watched[1].is_topic_known]
    );
    // A message now and then does not end it.
    world.pass(ms(12_000), &scan, Some(ms(3000)));
    world.pass(ms(4500), &scan, Some(ms(100)));
    assert_eq!(world.changes(), []);
    world.pass(ms(1500), &scan, Some(ms(100)));
    assert_eq!(world.changes(), [of(AlarmKind::Silent, "/scan", "end")]);
    assert_eq!(world.active(), [] as [String; 0]);
    let (recorded, _folder) = world.close();
    let wanted = ["alarm: /scan silent 2s", "alarm over: /scan silent 2s"];
    assert_eq!(markers(&recorded), wanted);
    let alarms = &recorded.report.status.alarms;
    assert_eq!((alarms.count(), alarms.ended.len()), (1, 1));
    assert!(alarms.ended[0].until > Some(alarms.ended[0].since));
}

#[test]
fn a_rate_below_its_bound_is_an_alarm_until_it_is_reached_again() {
    let mut world = watching(&["/scan rate < 5", "/scan rate < 1"]);
    let scan = world.publisher("/scan", STRING);
    world.pass(ms(5000), &scan, Some(ms(500)));
    assert_eq!(world.changes(), [], "never reached");
    world.pass(ms(5000), &scan, Some(ms(100)));
    assert_eq!(world.changes(), []);
    world.pass(ms(5000), &scan, Some(ms(400)));
    assert_eq!(world.changes(), [of(AlarmKind::Rate, "/scan", "begin")]);
    assert_eq!(world.active(), ["/scan rate < 5"], "the other bound is met");
    let topic = &world.recorder.status().topics[0];
    assert!((topic.rate_hz - 2.5).abs() < 0.3, "{topic:?}");
    assert!(topic.age.unwrap() < ms(1000));
    world.pass(ms(8000), &scan, Some(ms(100)));
    assert_eq!(world.changes(), [of(AlarmKind::Rate, "/scan", "end")]);
}

#[test]
fn a_process_that_was_stopped_has_no_silent_topics() {
    let mut world = watching(&["/scan silent 2s", "/scan rate < 5"]);
    let scan = world.publisher("/scan", STRING);
    world.pass(ms(3000), &scan, Some(ms(100)));
    world.clock.advance(ms(30_000));
    world.pass(ms(1900), &scan, None);
    assert_eq!(world.changes(), []);
    world.pass(ms(300), &scan, None);
    assert_eq!(world.changes(), [of(AlarmKind::Silent, "/scan", "begin")]);
}

#[test]
fn losses_are_one_alarm_while_more_are_added() {
    let mut world = watching(&[]);
    let scan = world.publisher("/scan", STRING);
    world.pass(ms(2000), &scan, Some(ms(100)));
    assert_eq!(world.changes(), []);
    for _ in 0..5 {
        scan.1.lose(3);
        world.pass(ms(2000), &scan, Some(ms(100)));
    }
    assert_eq!(world.changes(), [of(AlarmKind::Loss, "/scan", "begin")]);
    assert_eq!(world.active(), ["/scan: 3 messages lost (transport)"]);
    world.pass(ms(12_000), &scan, Some(ms(100)));
    assert_eq!(world.changes(), [of(AlarmKind::Loss, "/scan", "end")]);
    let (recorded, _folder) = world.close();
    assert_eq!(recorded.lost(), 15);
    assert_eq!(recorded.report.status.alarms.begun[&AlarmKind::Loss], 1);
}

#[test]
fn what_is_lost_at_the_end_is_in_the_report() {
    let mut world = watching(&[]);
    let scan = world.publisher("/scan", STRING);
    world.pass(ms(2000), &scan, Some(ms(100)));
    scan.1.lose(2);
    scan.1.announce();
    let control = world.recorder.control();
    let (recorded, _folder) = world.close();
    let active = &recorded.report.status.alarms.active;
    let text = "/scan: 2 messages lost (tail)";
    assert_eq!(active.iter().map(|alarm| &alarm.text).collect::<Vec<_>>(), [text]);
    assert_eq!(markers(&recorded), [format!("alarm: {text}")]);
    assert_eq!(control.take_alarm_changes().len(), 1);
}

#[test]
fn a_publisher_whose_end_is_unknown_is_an_alarm() {
    let mut world = watching(&[]);
    let scan = world.publisher("/scan", STRING);
    world.pass(ms(2000), &scan, Some(ms(100)));
    scan.1.expire();
    world.pass(ms(3000), &scan, None);
    assert_eq!(world.changes(), [of(AlarmKind::EndUnknown, "/scan", "begin")]);
    let active = world.active();
    assert_eq!(
        active,
        ["/scan: end unknown: 1 publisher silent, without a farewell"]
    );
}

#[test]
fn an_alarm_is_no_event() {
    let mut world = Stepped::recording(|options| {
        options.alarms = vec![Trigger::parse("/scan silent 1s").unwrap()];
        options.triggers = Some(TriggerOptions::default());
    });
    let scan = world.publisher("/scan", STRING);
    world.pass(ms(2000), &scan, Some(ms(100)));
    world.pass(ms(2000), &scan, None);
    assert_eq!(world.changes().len(), 1);
    let (recorded, _folder) = world.close();
    assert_eq!(recorded.report.status.recorded, 0);
    assert_eq!(markers(&recorded), ["alarm: /scan silent 1s"]);
}

#[test]
fn a_topic_that_flaps_for_an_hour_is_few_alarms() {
    let mut world = watching(&["/scan silent 2s"]);
    let scan = world.publisher("/scan", STRING);
    let mut begun = 0;
    let clock: SimClock = world.clock.clone();
    while clock.monotonic() < Duration::from_secs(3600) {
        for number in 0..120 {
            clock.advance(ms(100));
            if number < 60 {
                world.send(&scan, b"x");
            }
            world.recorder.step_session();
        }
        begun += world
            .changes()
            .iter()
            .filter(|change| change.2 == "begin")
            .count();
    }
    // 300 silences.
    assert!((1..=3).contains(&begun), "{begun}");
}
