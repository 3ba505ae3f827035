//! Resolves the arguments of `holdall play` into the player's options.

use super::{UsageError, names, pattern, surroundings::Surroundings};
use crate::args::play::PlayArguments;
use holdall::{
    play::options::{ClockSource, ListenerCount, Lockstep, PlayOptions, RequestReplay},
    tools::yaml::ACTION_TOPICS,
};
use holdall_model::{
    names::{expand_name, service_event_topic},
    time::Timestamp,
    topic::NodeName,
};
use holdall_storage::{Storage, readable_storages, storages};
use std::{collections::BTreeMap, path::PathBuf};

/// The arguments with relative names completed by the namespace of the node.
fn in_namespace(args: &PlayArguments, node: &NodeName) -> PlayArguments {
    let mut args = args.clone();
    for names in [
        &mut args.topics,
        &mut args.services,
        &mut args.actions,
        &mut args.exclude_topics,
        &mut args.exclude_services,
        &mut args.exclude_actions,
    ] {
        super::names::complete(names, node);
    }
    args
}

/// Combines the arguments with the surroundings.
///
/// # Errors
/// The first argument that cannot be used.
pub fn resolve(args: &PlayArguments, surroundings: &Surroundings<'_>) -> Result<PlayOptions, UsageError> {
    pattern::compile_whole("--regex", args.regex.as_deref())?;
    pattern::compile_whole("--exclude-regex", args.exclude_regex.as_deref())?;
    let node = super::node(&args.node_name)?;
    let args = &in_namespace(args, &node);
    check_unused(args, surroundings)?;
    Ok(PlayOptions {
        inputs: inputs(args, surroundings)?,
        rate: args.rate,
        repeat: args.r#loop,
        delay: args.delay,
        start_offset: args.start_offset,
        playback_duration: args.playback_duration.and_then(|span| span.0),
        playback_until: playback_until(args)?,
        start: args.start.clone(),
        end: args.end.clone(),
        episode: args.episode,
        topics: chosen_topics(
            ("--topics", &args.topics),
            ("--services", &args.services),
            ("--actions", &args.actions),
        )?,
        regex: args.regex.clone().filter(|pattern| !pattern.is_empty()),
        exclude_regex: args.exclude_regex.clone().filter(|pattern| !pattern.is_empty()),
        exclude_topics: chosen_topics(
            ("--exclude-topics", &args.exclude_topics),
            ("--exclude-services", &args.exclude_services),
            ("--exclude-actions", &args.exclude_actions),
        )?,
        publishers: args.publisher.clone(),
        remap: remap(&args.remap, &node)?,
        qos_overrides: super::qos_overrides(
            args.qos_profile_overrides_path.as_deref(),
            &args.qos_override,
            surroundings,
        )?,
        clock: clock(args)?,
        start_paused: args.start_paused,
        skip_empty: args.skip_empty,
        prefer_recorded_clock: args.prefer_recorded_clock,
        persistent: args.persistent,
        start_at: args.start_at,
        latched_state: !args.no_latched_state,
        wait_for_subscribers: listeners(&args.wait_for_subscribers)?,
        subscribers_timeout: args.timeout,
        keep_publishers: args.keep_publishers,
        requests: RequestReplay {
            services: args.publish_service_requests,
            actions: args.send_actions_as_client,
            source: args.service_requests_source,
        },
        pace: args.pace,
        lockstep: Lockstep {
            rules: args.step_by.clone(),
            // Verbs without the flag have none.
            in_flight: usize::try_from(args.in_flight.max(1)).unwrap_or(usize::MAX),
            timeout: args.step_timeout,
        },
        read_ahead_messages: usize::try_from(args.read_ahead_queue_size).unwrap_or(usize::MAX),
        wait_for_all_acked: args.wait_for_all_acked,
        message_order: args.message_order,
        ..PlayOptions::default()
    })
}

/// Refuses nonsense also where a value has no effect: a script with a wrong path is a mistake.
fn check_unused(args: &PlayArguments, surroundings: &Surroundings<'_>) -> Result<(), UsageError> {
    let ids: Vec<&str> = readable_storages().map(Storage::id).collect();
    if let Some(id) = args
        .storage
        .as_deref()
        .filter(|id| !id.is_empty() && !ids.contains(id))
    {
        return Err(UsageError::BadValue {
            flag: "--storage",
            value: id.to_owned(),
            reason: format!("expected one of {}", ids.join(", ")),
        });
    }
    if args.fail_if_unanswered && !(args.publish_service_requests || args.send_actions_as_client) {
        return Err(UsageError::Needs {
            flag: "--fail-if-unanswered",
            needs: "--publish-service-requests or --send-actions-as-client",
        });
    }
    if args.timeout.is_some() && args.wait_for_subscribers.is_empty() && args.step_by.is_empty() {
        return Err(UsageError::Needs {
            flag: "--timeout",
            needs: "--wait-for-subscribers or --step-by",
        });
    }
    match &args.storage_config_file {
        Some(path) if !(surroundings.exists)(path) => Err(UsageError::BadValue {
            flag: "--storage-config-file",
            value: path.display().to_string(),
            reason: "there is no such file".to_owned(),
        }),
        _ => Ok(()),
    }
}

/// Subscriptions to wait for, their topics by full names.
fn listeners(counts: &[ListenerCount]) -> Result<Vec<ListenerCount>, UsageError> {
    let full = |wanted: &ListenerCount| {
        let topic = wanted.topic.as_deref();
        let topic = topic.map(|topic| names::full_name("--wait-for-subscribers", topic));
        Ok(ListenerCount {
            topic: topic.transpose()?,
            count: wanted.count,
        })
    };
    counts.iter().map(full).collect()
}

/// Topics, the topics on which the events of services were recorded, and all topics of actions.
fn chosen_topics(
    (topics_flag, topics): (&'static str, &[String]),
    (services_flag, services): (&'static str, &[String]),
    (actions_flag, actions): (&'static str, &[String]),
) -> Result<Vec<String>, UsageError> {
    let mut chosen = names::full_names(topics_flag, topics)?;
    chosen.extend(
        names::full_names(services_flag, services)?
            .iter()
            .map(|name| service_event_topic(name)),
    );
    for action in names::full_names(actions_flag, actions)? {
        chosen.extend(ACTION_TOPICS.iter().map(|part| format!("{action}{part}")));
    }
    Ok(chosen)
}

/// The bags in the order of the command line; a storage id after the bag of `-i` is ignored, because the
/// reader detects it.
fn inputs(args: &PlayArguments, surroundings: &Surroundings<'_>) -> Result<Vec<PathBuf>, UsageError> {
    let is_storage_id = |path: &PathBuf| {
        // An id may follow the bag of `-i`.
        let is_id = |text: &str| storages().iter().any(|storage| storage.id() == text);
        path.to_str().is_some_and(is_id) && !(surroundings.exists)(path)
    };
    let mut inputs = args.bags.clone();
    inputs.extend(args.input.iter().filter(|path| !is_storage_id(path)).cloned());
    if !inputs.is_empty() {
        return Ok(inputs);
    }
    // `--topics /a /b bag` takes the bag for a topic: a list continues until the next flag.
    let lists = [
        ("--topics", &args.topics),
        ("--services", &args.services),
        ("--exclude-topics", &args.exclude_topics),
        ("--exclude-services", &args.exclude_services),
        ("--actions", &args.actions),
        ("--exclude-actions", &args.exclude_actions),
        ("--publisher", &args.publisher),
        ("--remap", &args.remap),
        ("--clock-topics", &args.clock_topics),
    ];
    let hint = lists
        .iter()
        .find_map(|(flag, list)| {
            list.last()
                .filter(|last| (surroundings.exists)(last.as_ref()))
                .map(|last| (flag, last))
        })
        .map(|(flag, last)| format!("; {flag} has taken \"{last}\", so put the bag before the flags"))
        .unwrap_or_default();
    Err(UsageError::NoBag { hint })
}

/// The later one of both spellings does not exist: only one of them can be given; negative values switch it off.
fn playback_until(args: &PlayArguments) -> Result<Option<Timestamp>, UsageError> {
    if let Some(nanos) = args.playback_until_nsec {
        return Ok((nanos >= 0).then(|| Timestamp::from_nanos(nanos)));
    }
    let Some(seconds) = args.playback_until_sec else {
        return Ok(None);
    };
    if seconds.is_nan() || seconds >= 9.2e9 {
        return Err(UsageError::BadValue {
            flag: "--playback-until-sec",
            value: seconds.to_string(),
            reason: "not a time in seconds since 1970".to_owned(),
        });
    }
    // Below 9.2e18, checked above.
    let nanos = (seconds * 1e9).round() as i64;
    Ok((seconds >= 0.0).then(|| Timestamp::from_nanos(nanos)))
}

/// `old:=new` rules by old name. Names are completed as the node's, and the first rule of a name counts, as in ROS.
fn remap(rules: &[String], node: &NodeName) -> Result<BTreeMap<String, String>, UsageError> {
    let mut names_by_old = BTreeMap::new();
    for rule in rules {
        let bad = |reason: String| UsageError::BadValue {
            flag: "--remap",
            value: rule.clone(),
            reason,
        };
        let (old, new) = rule
            .split_once(":=")
            .ok_or_else(|| bad("expected old:=new".to_owned()))?;
        let full = |name: &str| {
            let full = expand_name(name, node);
            full.map_err(|error| bad(format!("\"{name}\" is not a valid topic name: {}", error.kind)))
        };
        names_by_old.entry(full(old)?).or_insert(full(new)?);
    }
    Ok(names_by_old)
}

fn clock(args: &PlayArguments) -> Result<ClockSource, UsageError> {
    let topics = names::full_names("--clock-topics", &args.clock_topics)?;
    let topics = (!args.clock_topics_all).then_some(topics);
    Ok(match (args.clock, topics) {
        (Some(hertz), Some(topics)) if topics.is_empty() => ClockSource::Rate(hertz),
        (Some(hertz), topics) => ClockSource::Both { hertz, topics },
        (None, None) => ClockSource::AllTopics,
        (None, Some(topics)) if topics.is_empty() => ClockSource::Off,
        (None, Some(topics)) => ClockSource::Topics(topics),
    })
}

#[cfg(test)]
mod tests {
    use super::{super::surroundings::fake::Fake, *};
    use crate::args::{Cli, Verb};
    use clap::Parser;
    use holdall::{play::options::Pace, reader::MessageOrder};
    use std::time::Duration;

    fn in_fake(fake: &Fake, line: &str) -> Result<PlayOptions, String> {
        let words = ["holdall", "play"].into_iter().chain(line.split_whitespace());
        let cli = Cli::try_parse_from(words).map_err(|error| error.to_string())?;
        let Verb::Play(args) = cli.verb else {
            panic!("another verb")
        };
        fake.with(|surroundings| resolve(&args, surroundings))
            .map_err(|error| error.to_string())
    }

    fn options(line: &str) -> PlayOptions {
        in_fake(&Fake::default(), line).unwrap()
    }

    fn refusal(line: &str) -> String {
        in_fake(&Fake::default(), line).unwrap_err()
    }

    #[test]
    fn defaults_are_those_of_rosbag2() {
        let options = options("bag");
        assert_eq!(options.inputs, [PathBuf::from("bag")]);
        assert!((options.rate - 1.0).abs() < f64::EPSILON);
        assert_eq!(options.read_ahead_messages, 1000);
        assert_eq!(options.clock, ClockSource::Off);
        assert_eq!(
            (
                options.playback_duration,
                options.playback_until,
                options.wait_for_all_acked
            ),
            (None, None, None)
        );
        assert!(!options.repeat && !options.start_paused);
    }

    #[test]
    fn bags_are_merged_and_storage_ids_after_them_left_out() {
        let options = options("one -i two mcap -i three sqlite3");
        assert_eq!(options.inputs, ["one", "two", "three"].map(PathBuf::from));
        let fake = Fake {
            files: [("mcap", "")].into(),
            ..Fake::default()
        };
        assert_eq!(in_fake(&fake, "-i mcap").unwrap().inputs, [PathBuf::from("mcap")]);
    }

    #[test]
    fn a_bag_taken_for_a_topic_is_explained() {
        assert!(refusal("").starts_with("no bag is named"));
        let fake = Fake {
            files: [("lab", "")].into(),
            ..Fake::default()
        };
        let error = in_fake(&fake, "--topics /a lab").unwrap_err();
        assert!(error.contains("--topics has taken \"lab\""), "{error}");
    }

    #[test]
    fn spans_limits_and_rates_are_understood() {
        let options = options(
            "bag -r 0.5 -l -d 2 --start-offset 1.5 --playback-duration 10 --playback-until-sec 1700000000.5 -p \
             --wait-for-all-acked 500 --message-order sent",
        );
        assert!((options.rate - 0.5).abs() < f64::EPSILON);
        assert!(options.repeat && options.start_paused);
        assert_eq!(options.delay, Duration::from_secs(2));
        assert_eq!(options.start_offset, Duration::from_millis(1500));
        assert_eq!(options.playback_duration, Some(Duration::from_secs(10)));
        assert_eq!(
            options.playback_until,
            Some(Timestamp::from_nanos(1_700_000_000_500_000_000))
        );
        assert_eq!(options.wait_for_all_acked, Some(Duration::from_millis(500)));
        assert_eq!(options.message_order, MessageOrder::Sent);
    }

    #[test]
    fn listeners_pace_and_latched_state_are_understood() {
        let options = options(
            "bag --wait-for-subscribers 2 scan=1 --timeout 5 --pace listeners --no-latched-state --keep-publishers \
             --start-at @1700000000.5 -s mcap --disable-loan-message --progress-bar-update-rate -1",
        );
        let count = |topic: Option<&str>, count| ListenerCount {
            topic: topic.map(str::to_owned),
            count,
        };
        assert_eq!(
            options.wait_for_subscribers,
            [count(None, 2), count(Some("/scan"), 1)]
        );
        assert_eq!(options.subscribers_timeout, Some(Duration::from_secs(5)));
        assert!(options.pace == Pace::Listeners && options.keep_publishers && !options.latched_state);
        assert_eq!(
            options.start_at,
            Some(Timestamp::from_nanos(1_700_000_000_500_000_000))
        );
    }

    #[test]
    fn lock_step_is_understood() {
        let options = options(
            "bag --step-by scan=/tracks:2 --step-by ack --in-flight 3 --step-timeout 500ms --timeout 5",
        );
        let rules: Vec<String> = options.lockstep.rules.iter().map(ToString::to_string).collect();
        assert_eq!(rules, ["/scan=/tracks:2", "ack"]);
        assert_eq!(
            (options.lockstep.in_flight, options.lockstep.timeout),
            (3, Duration::from_millis(500))
        );
    }

    #[test]
    fn negative_limits_are_no_limits() {
        let options = options("bag --playback-duration -1 --playback-until-nsec -1");
        assert_eq!((options.playback_duration, options.playback_until), (None, None));
        assert_eq!(
            self::options("bag --playback-until-sec -1.0").playback_until,
            None
        );
    }

    #[test]
    fn the_clock_is_driven_by_time_and_messages() {
        assert_eq!(options("bag --clock").clock, ClockSource::Rate(40.0));
        assert_eq!(options("bag --clock 100").clock, ClockSource::Rate(100.0));
        assert_eq!(
            options("bag --clock-topics a /b").clock,
            ClockSource::Topics(vec!["/a".into(), "/b".into()])
        );
        assert_eq!(options("bag --clock-topics-all").clock, ClockSource::AllTopics);
        for (line, topics) in [
            ("bag --clock 100 --clock-topics-all", None),
            ("bag --clock 100 --clock-topics a", Some(vec!["/a".to_owned()])),
        ] {
            let hertz = 100.0;
            assert_eq!(options(line).clock, ClockSource::Both { hertz, topics }, "{line}");
        }
        assert!(refusal("bag --clock-topics a --clock-topics-all").contains("cannot be used with"));
        assert!(refusal("bag --clock 0").contains("greater than 0"));
    }

    #[test]
    fn topics_are_renamed_and_chosen() {
        let options = options("bag -m /a:=/b scan:=old/scan --topics /a -e .* -x /x --exclude-topics /y");
        assert_eq!(
            options.remap,
            [("/a", "/b"), ("/scan", "/old/scan")]
                .map(|(old, new)| (old.into(), new.into()))
                .into()
        );
        // As launch remaps /tf for a node in a namespace; the first of two rules counts.
        let in_namespace = self::options("bag --node-name /robot/player -m /tf:=tf /tf:=/x ~/a:=b");
        assert_eq!(
            in_namespace.remap,
            [("/tf", "/robot/tf"), ("/robot/player/a", "/robot/b")]
                .map(|(old, new)| (old.into(), new.into()))
                .into()
        );
        assert_eq!(options.topics, ["/a"]);
        assert_eq!(options.regex.as_deref(), Some(".*"));
        assert_eq!(options.exclude_regex.as_deref(), Some("/x"));
        assert_eq!(options.exclude_topics, ["/y"]);
        let options = self::options("bag --services add --exclude-services /sub --exclude-topics /y");
        assert_eq!(options.topics, ["/add/_service_event"]);
        assert_eq!(options.exclude_topics, ["/y", "/sub/_service_event"]);
        let options = self::options("bag --actions fib --exclude-actions /dock");
        assert!(
            options.topics.contains(&"/fib/_action/feedback".to_owned()),
            "{:?}",
            options.topics
        );
        assert!(
            options
                .topics
                .iter()
                .all(|topic| topic.starts_with("/fib/_action/"))
        );
        let goals = "/dock/_action/send_goal/_service_event".to_owned();
        assert!(
            options.exclude_topics.contains(&goals),
            "{:?}",
            options.exclude_topics
        );
    }

    #[test]
    fn values_without_meaning_are_refused_by_name() {
        for (line, word) in [
            ("bag -r 0", "--rate"),
            ("bag -r -1", "--rate"),
            ("bag -r nan", "--rate"),
            ("bag -m nonsense", "nonsense"),
            ("bag -m /a:=/b//c", "/b//c"),
            ("bag -e [", "--regex"),
            ("bag -x [", "--exclude-regex"),
            ("bag --playback-until-sec nan", "--playback-until-sec"),
            (
                "bag --playback-until-sec 1 --playback-until-nsec 1",
                "cannot be used with",
            ),
            ("bag --wait-for-all-acked -5", "negative"),
            ("bag --read-ahead-queue-size 0", "--read-ahead-queue-size"),
            ("bag --wait-for-subscribers /a=0", "above 0"),
            ("bag --timeout 5", "--wait-for-subscribers"),
            ("bag --step-by /out:0", "a number above 0"),
            ("bag --step-by /out --in-flight 0", "--in-flight"),
            ("bag --in-flight 2", "--step-by"),
            ("bag -s floppy", "mcap"),
            ("bag --storage-config-file nowhere.yaml", "no such file"),
        ] {
            assert!(refusal(line).contains(word), "{line}: {}", refusal(line));
        }
    }
}
