//! `holdall top`, `hz`, `bw`, `delay` and `echo`: live topics in a terminal.

use super::echo_form::{EchoForm, condition};
use crate::{
    VerbResult,
    args::listen::{EchoArguments, HzArguments, LiveArguments, MeasureArguments, SortName, TopArguments},
    exit::{Failure, Outcome},
    output::{self, Stream, visible},
    render::{
        listen::{self, TopRow},
        rate::RateMeter,
    },
    resolve::{self, pattern},
    terminal::{
        events::{Event, Events, queue},
        keyboard::{Key, Keyboard},
        log,
        screen::{self, Screen},
        signals,
    },
    transport,
    units::plural,
};
use holdall::{
    Selection,
    listen::{ListenError, ListenOptions, Listener, TopicReading},
    supervise::control_socket::ask,
};
use holdall_io::clock::{Clock, SystemClock};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, VecDeque},
    path::Path,
    sync::Arc,
    time::Duration,
};
use tracing::{level_filters::LevelFilter, warn};

/// Time between two steps of the listener.
const STEP: Duration = Duration::from_millis(20);

/// Time between two reports.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// When a single table is written.
const ONCE_AFTER: Duration = Duration::from_secs(3);

/// Bars of the small graph.
const HISTORY: usize = 20;

/// Measures a topic; returns a sentence about it.
type Measure = fn(&TopicReading) -> Option<String>;

/// Shows how often messages come.
pub fn hz(args: &HzArguments) -> VerbResult {
    measure(&args.measure, args.filter.as_deref(), listen::rate)
}

/// Shows how many bytes come.
pub fn bw(args: &MeasureArguments) -> VerbResult {
    measure(args, None, listen::bandwidth)
}

/// Shows how old messages are when they come.
pub fn delay(args: &MeasureArguments) -> VerbResult {
    measure(args, None, listen::delay)
}

/// Handling of messages.
#[derive(Clone, Copy, Default)]
struct Heard<'a> {
    /// Number of last messages that figures are of.
    window: u32,
    /// Whether they are shown.
    is_kept: bool,
    /// The condition of the user.
    filter: Option<&'a str>,
}

/// A listener, and the condition that ends it.
struct Live {
    listener: Listener,
    events: Events,
    keyboard: Option<Keyboard>,
    deadline: Option<Duration>,
    /// When it is said why nothing was heard.
    wonder_at: Option<Duration>,
    /// The condition of the user leaves messages out.
    has_filter: bool,
}

impl Live {
    fn start(args: &LiveArguments, mut selection: Selection, heard: Heard<'_>) -> Result<Self, Failure> {
        let node = resolve::node(&args.node_name).map_err(Failure::refused)?;
        resolve::names::complete(&mut selection.topics, &node);
        selection.validate().map_err(Failure::refused)?;
        let filter = selection.compile(&node).map_err(Failure::refused)?;
        log::start(LevelFilter::WARN);
        screen::never_wait();
        let (sender, events) = queue();
        signals::listen(sender.clone())
            .map_err(|error| Failure::failed(format!("cannot listen to signals: {error}")))?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let transports = transport::join(
            &args.transport,
            &node,
            args.enclave.as_deref(),
            &clock,
            transport::Purpose::Other,
        )?;
        let surroundings = resolve::surroundings::real(SystemClock.now());
        let options = ListenOptions {
            filter,
            ament_prefixes: resolve::record::ament_prefixes(&surroundings),
            window: heard.window as usize,
            keeps_messages: heard.is_kept,
            condition: heard.filter.map(condition).transpose()?,
            clock,
        };
        Ok(Self {
            listener: Listener::new(options, transports),
            events,
            keyboard: Keyboard::start(sender),
            deadline: args.duration.map(|span| SystemClock.monotonic() + span),
            wonder_at: Some(SystemClock.monotonic() + ONCE_AFTER),
            has_filter: heard.filter.is_some(),
        })
    }

    /// Names the topics that have not been heard soon, once.
    fn wonder(&mut self, named: &[String]) {
        if self.wonder_at.is_none_or(|at| SystemClock.monotonic() < at) {
            return;
        }
        self.wonder_at = None;
        let topics = self.listener.topics();
        let names = named.join(", ");
        if topics.is_empty() {
            warn!("no publisher of {names} was found yet; {}", where_to_look());
        } else if topics.iter().all(|topic| topic.messages == 0) {
            let publishers = topics.iter().map(|topic| topic.publishers as u64).sum();
            let what = if self.has_filter {
                "message that fulfils --filter"
            } else {
                "message"
            };
            warn!(
                "{} of {names} found, but no {what} yet",
                plural(publishers, "publisher")
            );
        }
    }

    /// Listens until `at`, which is monotonic; false if it is to end before.
    fn until(&mut self, at: Duration, mut press: impl FnMut(Key)) -> Result<bool, Failure> {
        loop {
            let now = SystemClock.monotonic();
            self.listener.step(now).map_err(|error| match error {
                ListenError::Condition(error) => Failure::refused(format!("--filter: {error}")),
                error => Failure::failed(error),
            })?;
            if self.deadline.is_some_and(|deadline| now >= deadline) {
                return Ok(false);
            }
            if now >= at {
                return Ok(true);
            }
            match self.events.next(STEP) {
                Some(Event::Stop(_)) => return Ok(false),
                Some(Event::Key(key)) => press(key),
                _ => {}
            }
        }
    }
}

fn measure(args: &MeasureArguments, filter: Option<&str>, sentence: Measure) -> VerbResult {
    let selection = Selection::of_topics(args.topics.iter().cloned());
    let heard = Heard {
        window: args.window,
        is_kept: false,
        filter,
    };
    let mut live = Live::start(&args.live, selection, heard)?;
    let mut next = SystemClock.monotonic() + REPORT_INTERVAL;
    loop {
        let goes = live.until(next, |_| {})?;
        next += REPORT_INTERVAL;
        live.wonder(&args.topics);
        let topics = live.listener.topics();
        let mut text = Vec::new();
        for topic in &topics {
            let Some(sentence) = sentence(topic) else { continue };
            if args.topics.len() > 1 {
                text.push(visible(&topic.name).into_owned());
            }
            text.push(sentence);
        }
        if !text.is_empty() {
            output::result(&text.join("\n"))?;
        }
        if !goes {
            return ended(&topics, &args.topics, sentence);
        }
    }
}

/// A measurement without a result has failed.
fn ended(topics: &[TopicReading], named: &[String], sentence: Measure) -> VerbResult {
    if topics.iter().any(|topic| sentence(topic).is_some()) {
        return Ok(Outcome::Done);
    }
    let names = named.join(", ");
    let reason = match topics.iter().map(|topic| topic.messages).max() {
        None => format!("no publisher of {names} was found; {}", where_to_look()),
        Some(0) if let Some(topic) = topics.iter().find(|topic| topic.untested > 0) => untested(topic),
        Some(0) => format!("no message came on {names}"),
        Some(_) => format!("the messages on {names} were too few, or have no header"),
    };
    Err(Failure::failed(reason))
}

/// Why a topic may not be heard.
fn where_to_look() -> String {
    let domain = std::env::var("ROS_DOMAIN_ID")
        .ok()
        .filter(|domain| !domain.is_empty())
        .unwrap_or_else(|| "0".to_owned());
    format!("this is ROS domain {domain} (ROS_DOMAIN_ID); holdall top shows what is heard in it")
}

/// Why no message of a topic fulfils the condition.
fn untested(topic: &TopicReading) -> String {
    format!(
        "--filter: {}: the definition of {} is not known, so its messages cannot be judged",
        visible(&topic.name),
        visible(&topic.type_name)
    )
}

/// Shows messages as they come.
pub fn echo(args: &EchoArguments) -> VerbResult {
    let selection = Selection::of_topics(args.topics.iter().cloned());
    let form = EchoForm::of(args)?;
    let heard = Heard {
        window: 1,
        is_kept: true,
        filter: args.filter.as_deref(),
    };
    let mut live = Live::start(&args.live, selection, heard)?;
    // Ctrl-C is enough, and keys belong to the program that reads the output.
    live.keyboard = None;
    let most = if args.once {
        1
    } else {
        args.count.unwrap_or(u64::MAX)
    };
    let silent_until = args.timeout.map(|span| SystemClock.monotonic() + span);
    let mut shown = 0;
    loop {
        let now = SystemClock.monotonic();
        let goes = live.until(now + STEP, |_| {})?;
        if !show(&mut live, &form, most, &mut shown)? {
            return Ok(Outcome::Done);
        }
        live.wonder(&args.topics);
        if shown == most || !goes || (shown == 0 && silent_until.is_some_and(|end| now >= end)) {
            break;
        }
    }
    let topics = live.listener.topics();
    for topic in topics.iter().filter(|topic| topic.not_kept > 0) {
        warn!(
            "{}: {} came faster than they were shown",
            visible(&topic.name),
            plural(topic.not_kept, "message")
        );
    }
    if shown > 0 || most == 0 {
        return Ok(Outcome::Done);
    }
    let untested = topics.iter().find(|topic| topic.untested > 0).map(untested);
    Err(Failure::failed(untested.unwrap_or_else(|| {
        let names = args.topics.join(", ");
        match topics.is_empty() {
            true => format!("no publisher of {names} was found; {}", where_to_look()),
            false => format!("no message came on {names}"),
        }
    })))
}

/// Writes the messages that have come, up to a number of them; false if the reader of the output has gone.
fn show(live: &mut Live, form: &EchoForm, most: u64, shown: &mut u64) -> Result<bool, Failure> {
    for (topic, messages) in live.listener.take_messages() {
        let plan = live.listener.plan(&topic);
        for message in &messages {
            if *shown == most {
                return Ok(true);
            }
            let mut out = Vec::new();
            form.append(&mut out, &topic, message, plan.as_deref())?;
            let mut stream = Stream::stdout();
            if !stream.write(&out)? || !stream.flush()? {
                return Ok(false);
            }
            *shown += 1;
        }
    }
    Ok(true)
}

/// Shows a table of all topics until it is ended.
pub fn top(args: &TopArguments) -> VerbResult {
    let regex = pattern::compile("--regex", args.regex.as_deref()).map_err(Failure::refused)?;
    let selection = Selection {
        all_topics: regex.is_none(),
        regex: regex.clone(),
        include_hidden_topics: args.include_hidden_topics,
        ..Selection::default()
    };
    let mut live = args
        .socket
        .is_none()
        .then(|| {
            let heard = Heard {
                window: 1000,
                ..Heard::default()
            };
            Live::start(&args.live, selection, heard)
        })
        .transpose()?;
    let mut table = Table::default();
    let mut sort = args.sort;
    let screen = Screen::open().filter(|_| !args.once && live.is_some());
    let began = SystemClock.monotonic();
    let mut at = began;
    loop {
        let (now, mut holds) = (SystemClock.monotonic(), table.holds);
        let readings = match (&live, args.socket.as_deref()) {
            (Some(live), _) => live.listener.topics(),
            (None, Some(socket)) => of_recorder(socket, regex.as_ref())?,
            (None, None) => Vec::new(),
        };
        table.note(&readings, now.saturating_sub(began));
        if let (Some(screen), false) = (&screen, holds) {
            let rows = screen::size(rustix::stdio::stderr())
                .rows
                .saturating_sub(2)
                .max(4);
            let text = listen::top(table.rows.clone(), sort, Some(screen::columns()));
            screen.show(text.lines().take(rows).map(str::to_owned).collect());
        }
        at += REPORT_INTERVAL;
        let goes = match &mut live {
            Some(live) => live.until(at, |key| match key {
                Key::Right => sort = next_sort(sort, 1),
                Key::Left => sort = next_sort(sort, 4),
                Key::Space => holds = !holds,
                _ => {}
            })?,
            None => {
                SystemClock.sleep_until(at);
                true
            }
        };
        table.holds = holds;
        let span = args.live.duration.unwrap_or(ONCE_AFTER);
        let is_last = (screen.is_none() && at.saturating_sub(began) > span) || !goes;
        if is_last {
            drop(screen);
            if table.rows.is_empty() && live.is_some() {
                output::complain(&format!("no topic was heard; {}", where_to_look()));
            }
            return output::result(listen::top(table.rows, sort, output::columns()).trim_end())
                .map(|()| Outcome::Done);
        }
    }
}

fn next_sort(sort: SortName, step: usize) -> SortName {
    const ALL: [SortName; 5] = [
        SortName::Name,
        SortName::Hz,
        SortName::Bw,
        SortName::Lost,
        SortName::Delay,
    ];
    let place = ALL.iter().position(|known| *known == sort).unwrap_or(0);
    ALL[(place + step) % ALL.len()]
}

/// The rows, made of readings that follow each other.
#[derive(Default)]
struct Table {
    meters: BTreeMap<String, (RateMeter, VecDeque<f64>)>,
    rows: Vec<TopRow>,
    holds: bool,
}

impl Table {
    fn note(&mut self, readings: &[TopicReading], at: Duration) {
        let rows = readings.iter().map(|reading| {
            let (meter, history) = self.meters.entry(reading.name.clone()).or_default();
            let rates = meter.update(at, reading.messages, reading.bytes);
            if history.len() == HISTORY {
                history.pop_front();
            }
            history.push_back(rates.messages_per_s);
            TopRow {
                name: reading.name.clone(),
                hertz: rates.messages_per_s,
                history: history.iter().copied().collect(),
                bytes_per_s: rates.bytes_per_s,
                lost: reading.lost,
                delay: reading
                    .delays
                    .as_ref()
                    .filter(|delays| delays.count > 0)
                    .map(|delays| delays.mean),
                publishers: reading.publishers as u64,
            }
        });
        self.rows = rows.collect();
    }
}

/// The topics that a recorder has received, with their figures.
fn of_recorder(socket: &Path, regex: Option<&regex::Regex>) -> Result<Vec<TopicReading>, Failure> {
    let reply = ask(socket, &json!({"request": "status"})).map_err(Failure::asking)?;
    let topics = reply["status"]["topics"].as_object();
    let topics =
        topics.ok_or_else(|| Failure::refused(format!("{}: this is not a recording", socket.display())))?;
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let taken = topics
        .iter()
        .filter(|(name, _)| regex.is_none_or(|regex| regex.is_match(name)));
    let reading = |(name, topic): (&String, &Value)| TopicReading {
        name: name.clone(),
        type_name: topic["type"].as_str().unwrap_or_default().to_owned(),
        publishers: usize::try_from(number(&topic["publishers"])).unwrap_or(0),
        messages: number(&topic["received"]),
        bytes: number(&topic["bytes"]),
        lost: topic["lost"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(_, count)| number(count))
            .sum(),
        ..TopicReading::default()
    };
    Ok(taken.map(reading).collect())
}
