//! `holdall bench run` for experiments that compare middlewares.

use super::{failure, link, own_file, show, show_progress};
use crate::VerbResult;
use holdall_bench::{
    args::RunArguments,
    middleware::{CONTROL_PORT, Evaluation, evaluation_table, run as run_evaluation, serve},
    people::{self, people_table},
    suite::experiments,
};
use holdall_io::clock::{Clock, SystemClock};
use holdall_program::{
    exit::{Failure, Outcome},
    settings::read_small_file,
};
use std::{
    net::{IpAddr, SocketAddr},
    path::Path,
    sync::Arc,
};
use tracing::info;

/// The names of a command line, by their kind.
pub(super) struct Chosen {
    /// Experiments that compare middlewares.
    pub evaluations: Vec<Evaluation>,
    /// Answers of users and items of repositories.
    pub is_people: bool,
    /// All other names.
    pub others: Vec<String>,
}

/// Finds the experiments that compare middlewares, by name or as files.
///
/// # Errors
/// Such a file with an unknown key or value.
pub(super) fn chosen(names: &[String]) -> Result<Chosen, Failure> {
    let mut chosen = Chosen {
        evaluations: Vec::new(),
        is_people: false,
        others: Vec::new(),
    };
    for name in names {
        if name.eq_ignore_ascii_case(people::ID) {
            chosen.is_people = true;
            continue;
        }
        if let Some(evaluation) = experiments::evaluation_by_id(name) {
            chosen.evaluations.push(evaluation);
            continue;
        }
        // An unreadable file is reported together with other experiments.
        let text = read_small_file(Path::new(name)).unwrap_or_default();
        if Evaluation::is_one(&text) {
            let read = Evaluation::parse(&text);
            let evaluation = read.map_err(|error| Failure::refused(format!("{name}: {error}")))?;
            chosen.evaluations.push(evaluation);
        } else {
            chosen.others.push(name.clone());
        }
    }
    Ok(chosen)
}

/// D8: reads answers and actions of people.
pub(super) fn run_people(args: &RunArguments) -> VerbResult {
    let (Some(data), Some(out)) = (&args.data, &args.out) else {
        return Err(Failure::refused(format!(
            "{} reads files: give --data DIR with them, and --out DIR for results",
            people::ID
        )));
    };
    if !data.is_dir() {
        return Err(Failure::refused(format!(
            "--data {}: no such folder",
            data.display()
        )));
    }
    let command = format!("holdall bench run {} --data DIR --out DIR", people::ID);
    let result = people::run(data, out, &command, args.python.as_deref()).map_err(failure)?;
    show(args.json, &result, || people_table(&result))?;
    Ok(Outcome::Done)
}

/// Runs them one after the other.
pub(super) fn run(args: &RunArguments, evaluations: &[Evaluation]) -> VerbResult {
    if !(args.recorder.is_empty() && args.transport.is_none()) {
        return Err(Failure::refused(format!(
            "{} compares middlewares, without --recorder and --transport; choose by --middleware",
            evaluations[0].id
        )));
    }
    let Some(out) = &args.out else {
        return Err(Failure::refused("no folder for results: give --out DIR"));
    };
    let mut evaluations = evaluations.to_vec();
    for evaluation in &mut evaluations {
        choose_cases(evaluation, &args.case)?;
    }
    let mut links = evaluations.iter().flat_map(|one| &one.links);
    let needs_links = args.peer.peer.is_none() && links.any(|link| link.spec.is_some());
    if needs_links && link::needs_user_namespace() {
        return link::begin_again();
    }
    let bench = own_file()?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let mut is_whole = true;
    for evaluation in &evaluations {
        let place = (out.as_path(), bench.as_path());
        let done = run_evaluation(evaluation, args, place, &clock, &mut show_progress).map_err(failure)?;
        is_whole &= done.1;
        show(args.json, &done.0, || evaluation_table(&done.0))?;
    }
    Ok(if is_whole { Outcome::Done } else { Outcome::Failed })
}

/// A flag for experiments that compare middlewares, without any.
pub(super) fn none_of_them(flag: &str) -> Failure {
    Failure::refused(format!("{flag}: none of these experiments compares middlewares"))
}

/// Waits for a machine that runs with --peer, and has its other side.
pub(super) fn listen(args: &RunArguments, at: &str) -> VerbResult {
    let address = at
        .parse::<SocketAddr>()
        .or_else(|_| at.parse().map(|ip: IpAddr| SocketAddr::from((ip, CONTROL_PORT))))
        .map_err(|_| {
            Failure::refused(format!(
                "--listen {at}: expected an address of this machine, such as 192.168.1.7"
            ))
        })?;
    let bench = own_file()?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    info!("waiting at {address} for holdall bench run --peer");
    let mut ended = Ok(());
    serve(
        address,
        &bench,
        args.python.as_deref(),
        &clock,
        &mut |connection| {
            match connection {
                Ok(from) => info!("{from} has ended its runs"),
                Err(error) => ended = Err(failure(error)),
            }
            false
        },
    )
    .map_err(failure)?;
    ended.map(|()| Outcome::Done)
}

/// Keeps the cases and links with one of these texts in their label.
fn choose_cases(evaluation: &mut Evaluation, wanted: &[String]) -> Result<(), Failure> {
    if wanted.is_empty() {
        return Ok(());
    }
    let is_wanted = |label: &str| wanted.iter().any(|text| label.contains(text.as_str()));
    let labels: Vec<String> = evaluation.links.iter().map(|link| link.label.clone()).collect();
    if evaluation.links.iter().any(|link| is_wanted(&link.label)) {
        evaluation.links.retain(|link| is_wanted(&link.label));
    } else if evaluation.cases.iter().any(|case| is_wanted(&case.label)) {
        evaluation.cases.retain(|case| is_wanted(&case.label));
    } else {
        return Err(Failure::refused(format!(
            "--case {}: {} has only {}",
            wanted.join(", "),
            evaluation.id,
            labels.join("; ")
        )));
    }
    Ok(())
}

/// A row of `holdall bench list --json`.
pub(super) fn as_json(evaluation: &Evaluation) -> serde_json::Value {
    serde_json::json!({
        "id": evaluation.id,
        "title": evaluation.title,
        "source": evaluation.source,
        "cases": evaluation.links.iter().map(|link| link.label.as_str()).collect::<Vec<_>>(),
        "runs": evaluation.run_count(),
        "seconds": evaluation.time().as_secs(),
        "largest_bag_bytes": 0,
    })
}
