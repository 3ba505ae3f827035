//! `holdall top`, `hz`, `bw`, `delay` and `echo`: live topics in a terminal.

use super::echo_form::{EchoForm, Filters, append};
use crate::{
    VerbResult,
    args::listen::{EchoArguments, LiveArguments, MeasureArguments, SortName, TopArguments},
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
};
use holdall::{
    Selection,
    listen::{ListenOptions, Listener, TopicReading},
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

/// What a topic is measured by, and the sentence about it.
type Measure = fn(&TopicReading) -> Option<String>;

/// Shows how often messages come.
pub fn hz(args: &MeasureArguments) -> VerbResult {
    measure(args, listen::rate)
}

/// Shows how many bytes come.
pub fn bw(args: &MeasureArguments) -> VerbResult {
    measure(args, listen::bandwidth)
}

/// Shows how old messages are when they come.
pub fn delay(args: &MeasureArguments) -> VerbResult {
    measure(args, listen::delay)
}

/// A listener, and what ends it.
struct Live {
    listener: Listener,
    events: Events,
    keyboard: Option<Keyboard>,
    deadline: Option<Duration>,
}

impl Live {
    fn start(
        args: &LiveArguments,
        mut selection: Selection,
        window: u32,
        keeps_messages: bool,
    ) -> Result<Self, Failure> {
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
            window: window as usize,
            keeps_messages,
        };
        Ok(Self {
            listener: Listener::new(options, transports),
            events,
            keyboard: Keyboard::start(sender),
            deadline: args.duration.map(|span| SystemClock.monotonic() + span),
        })
    }

    /// Listens until `at`, which is monotonic; false when it is to end before.
    fn until(&mut self, at: Duration, mut press: impl FnMut(Key)) -> Result<bool, Failure> {
        loop {
            let now = SystemClock.monotonic();
            self.listener.step(now).map_err(Failure::failed)?;
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

fn measure(args: &MeasureArguments, sentence: Measure) -> VerbResult {
    let selection = Selection::of_topics(args.topics.iter().cloned());
    let mut live = Live::start(&args.live, selection, args.window, false)?;
    let mut next = SystemClock.monotonic() + REPORT_INTERVAL;
    loop {
        let goes = live.until(next, |_| {})?;
        next += REPORT_INTERVAL;
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
        None => format!("no publisher of {names} was found"),
        Some(0) => format!("no message came on {names}"),
        Some(_) => format!("the messages on {names} were too few, or have no header"),
    };
    Err(Failure::failed(reason))
}

/// Shows messages as they come.
pub fn echo(args: &EchoArguments) -> VerbResult {
    let selection = Selection::of_topics(args.topics.iter().cloned());
    let mut live = Live::start(&args.live, selection, 1, true)?;
    // Ctrl-C is enough, and keys are for what reads the output.
    live.keyboard = None;
    let form = EchoForm::of(args);
    let mut filters = Filters::new(args.filter.as_deref())?;
    let mut left = if args.once {
        1
    } else {
        args.count.unwrap_or(u64::MAX)
    };
    let mut shown = false;
    loop {
        let now = SystemClock.monotonic();
        let goes = live.until(now + STEP, |_| {})?;
        for (topic, messages) in live.listener.take_messages() {
            let plan = live.listener.plan(&topic);
            for message in &messages {
                if left == 0 || !filters.take(plan.as_ref(), message)? {
                    continue;
                }
                left -= 1;
                shown = true;
                let mut out = Vec::new();
                append(
                    &mut out,
                    (&topic, args.topics.len() > 1),
                    message,
                    plan.as_deref(),
                    &form,
                )?;
                let mut stream = Stream::stdout();
                if !stream.write(&out)? || !stream.flush()? {
                    return Ok(Outcome::Done);
                }
            }
        }
        if left == 0 || !goes {
            break;
        }
    }
    for topic in live.listener.topics().iter().filter(|topic| topic.not_kept > 0) {
        warn!(
            "{}: {} messages came faster than they were shown",
            visible(&topic.name),
            topic.not_kept
        );
    }
    if shown {
        Ok(Outcome::Done)
    } else {
        Err(Failure::failed(format!(
            "no message came on {}",
            args.topics.join(", ")
        )))
    }
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
        .then(|| Live::start(&args.live, selection, 1000, false))
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

/// What a recorder has received of each topic.
fn of_recorder(socket: &Path, regex: Option<&regex::Regex>) -> Result<Vec<TopicReading>, Failure> {
    let reply = ask(socket, &json!({"request": "status"})).map_err(Failure::asking)?;
    let topics = reply["status"]["topics"].as_object();
    let topics =
        topics.ok_or_else(|| Failure::refused(format!("{}: this is no recording", socket.display())))?;
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
