//! `holdall preflight`, and the same before a recording: a trial, a forecast, and the answer.

use crate::{
    VerbResult,
    args::{preflight::PreflightArguments, record::RecordArguments},
    exit::{Failure, Outcome},
    output,
    render::{self, paint::Paint},
    resolve::{self, record::ResolvedRecord},
    terminal::{
        events::{Event, Events, queue},
        log,
        screen::{self, Screen},
        signals,
    },
    transport,
    verbs::{
        record::platform,
        record_threads::{keep_to_cores, prefer_receiving},
    },
};
use holdall::{
    preflight::{Answer, Forecast, Measured, PreflightError, forecast, measure},
    record::RescueMemory,
};
use holdall_io::clock::{Clock, SystemClock};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    io::{self, BufRead, IsTerminal, Write},
    sync::Arc,
    time::Duration,
};
use tracing::{level_filters::LevelFilter, warn};

/// Time between two polls for an answer or a signal.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Shortest trial that measures anything.
const TRIAL_MIN: Duration = Duration::from_secs(1);

/// Measures and answers.
pub fn run(args: &PreflightArguments) -> VerbResult {
    check_span("--duration", args.duration)?;
    let resolved = resolve::record::resolve(&args.record, &resolve::surroundings::real(SystemClock.now()))
        .map_err(Failure::refused)?;
    log::start(args.record.console.log_level.filter().min(LevelFilter::WARN));
    keep_to_cores(&args.record.running.cpu_affinity)?;
    screen::never_wait();
    let (sender, events) = queue();
    signals::listen(sender).map_err(|error| Failure::failed(format!("cannot listen to signals: {error}")))?;
    let (measured, found) = trial(&args.record, &resolved, args.duration, args.planned, &events)?;
    let text = if args.record.console.json {
        let object = render::preflight::json(&measured, &found, args.planned);
        serde_json::to_string_pretty(&object).map_err(Failure::failed)?
    } else {
        render::preflight::report(
            &measured,
            &found,
            args.planned,
            Paint::stdout(),
            output::columns(),
        )
    };
    output::result(&text)?;
    Ok(match found.answer {
        Answer::Fits | Answer::Tight => Outcome::Done,
        Answer::Loses => Outcome::Lost,
    })
}

fn check_span(flag: &str, span: Duration) -> Result<(), Failure> {
    if span < TRIAL_MIN {
        return Err(Failure::refused(format!(
            "{flag}: too short; a trial takes a second at least"
        )));
    }
    Ok(())
}

/// A trial of a recording, with its line on the screen.
fn trial(
    args: &RecordArguments,
    resolved: &ResolvedRecord,
    span: Duration,
    planned: Option<Duration>,
    events: &Events,
) -> Result<(Measured, Forecast), Failure> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    // Nothing of a trial is rescued, and others would find its memory.
    let mut options = resolved.options.clone();
    options.safety.rescue_directory = None;
    // Before the transports, which receive into it.
    let memory = RescueMemory::begin(&options);
    let transports = transport::join(
        &args.discovery.transport,
        &resolved.node,
        args.discovery.enclave.as_deref(),
        &clock,
        transport::Purpose::Record,
    )?;
    prefer_receiving(args.running.rt_priority, transports.len(), &*clock);
    let screen = Screen::open();
    let platform = platform(resolved, memory, &clock);
    let measured = measure(options, transports, platform, span, &mut |progress| {
        if let Some(screen) = &screen {
            screen.show(vec![render::preflight::progress(progress, screen::columns())]);
        }
        !matches!(events.next(Duration::ZERO), Some(Event::Stop(_)))
    });
    drop(screen);
    let measured = measured.map_err(|error| match error {
        PreflightError::Full { .. } => Failure::refused(error),
        PreflightError::Record(error) => super::record::failure(error),
        error => Failure::failed(error),
    })?;
    let found = forecast(&measured, planned.map(|span| span.as_secs_f64()));
    Ok((measured, found))
}

/// A trial before a recording; false if it is not to begin. Where the answer is no, a person decides; without one the recording begins: losing some
/// messages is better than losing all.
pub fn before(args: &RecordArguments, resolved: &ResolvedRecord, events: &Events) -> Result<bool, Failure> {
    let Some(span) = args.safety.preflight else {
        return Ok(true);
    };
    check_span("--preflight", span)?;
    let planned = resolved.options.limits.duration_max;
    let level = args.console.log_level.filter();
    // The log of a trial is not about the recording: "recording /imu", "ending the recording".
    log::set_level(level.min(LevelFilter::WARN));
    let tried = trial(args, resolved, span, planned, events);
    log::set_level(level);
    let (measured, found) = tried?;
    let columns = io::stderr().is_terminal().then(screen::columns);
    let report = render::preflight::report(&measured, &found, planned, Paint::stderr(), columns);
    screen::write_above(format!("{report}\n").as_bytes());
    screen::flush();
    if found.answer != Answer::Loses {
        return Ok(true);
    }
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        warn!("recording although messages will be missing: without a terminal, nothing can be asked");
        return Ok(true);
    }
    asked("Record anyway? [y/N] ", events)
}

/// Whether a person answers yes.
fn asked(question: &str, events: &Events) -> Result<bool, Failure> {
    let failed = |error: io::Error| Failure::failed(format!("cannot ask on the terminal: {error}"));
    let mut terminal = io::stderr();
    terminal
        .write_all(question.as_bytes())
        .and_then(|()| terminal.flush())
        .map_err(failed)?;
    let wait = Timespec {
        tv_sec: 0,
        tv_nsec: i64::from(POLL_INTERVAL.subsec_nanos()),
    };
    loop {
        if matches!(events.next(Duration::ZERO), Some(Event::Stop(_))) {
            return Ok(false);
        }
        let input = rustix::stdio::stdin();
        let ready = poll(&mut [PollFd::new(&input, PollFlags::IN)], Some(&wait));
        match ready {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => {
                let mut line = String::new();
                io::stdin().lock().read_line(&mut line).map_err(failed)?;
                return Ok(matches!(line.trim(), "y" | "Y" | "yes"));
            }
            Err(error) => return Err(failed(error.into())),
        }
    }
}
