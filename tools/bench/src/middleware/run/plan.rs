//! Which runs an evaluation has, and where their results are.

use crate::{
    args::RunArguments,
    engine,
    error::{BenchError, BenchResult},
    middleware::{
        CaseKind, EvaluatedLink, Evaluation, EvaluationResult, Middleware, MiddlewareCase, MiddlewareRun,
        RESULT_FILE,
    },
};
use std::path::{Path, PathBuf};

/// The result of one run, in its folder.
const RUN_FILE: &str = "run.json";
/// The result of the concurrent load.
const BESIDE_FILE: &str = "beside.json";

/// A load over a link with a middleware, once.
pub(super) struct Run<'a> {
    pub(super) case: &'a MiddlewareCase,
    pub(super) link: &'a EvaluatedLink,
    pub(super) middleware: &'a Middleware,
    pub(super) repetition: u32,
    pub(super) folder: PathBuf,
}

/// One load of a run.
pub(super) struct Stream<'a> {
    pub(super) case: &'a MiddlewareCase,
    /// 0, or 1 for the concurrent load.
    pub(super) place: usize,
    /// Messages that are planned.
    pub(super) count: u64,
    /// The files with records of the publisher and the subscriber.
    pub(super) records: [PathBuf; 2],
}

impl Stream<'_> {
    pub(super) fn topic(&self) -> String {
        match self.place {
            0 => "/bench".to_owned(),
            _ => "/bench_beside".to_owned(),
        }
    }
}

impl<'a> Run<'a> {
    /// Its load, and the concurrent one.
    pub(super) fn streams(&self, evaluation: &Evaluation) -> Vec<Stream<'a>> {
        let measured = (evaluation.warm_up + evaluation.duration).as_secs_f64();
        let cases = [Some(self.case), self.case.beside.as_deref()];
        let stream = |(place, case): (usize, &'a MiddlewareCase)| Stream {
            case,
            place,
            count: (measured * case.rate_hz).round().max(1.0) as u64,
            // A worker that is both sides replaces the extension.
            records: ["sent", "received"].map(|kind| self.folder.join(format!("stream_{place}.{kind}"))),
        };
        cases.into_iter().flatten().enumerate().map(stream).collect()
    }

    /// The files of its results.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let beside = self.case.beside.as_ref().map(|_| self.folder.join(BESIDE_FILE));
        std::iter::once(self.folder.join(RUN_FILE))
            .chain(beside)
            .collect()
    }

    pub(super) fn name(&self) -> String {
        format!(
            "{}, {}, {}, {}",
            self.case.label,
            self.link.label,
            self.middleware,
            self.repetition + 1
        )
    }
}

/// Repetitions are the outermost loop, so that drift of the machine affects all middlewares alike.
pub(super) fn plan<'a>(
    evaluation: &'a Evaluation,
    middlewares: &[&'a Middleware],
    args: &RunArguments,
    folder: &Path,
) -> Vec<Run<'a>> {
    let mut runs = Vec::new();
    for repetition in 0..args.repeat.unwrap_or(evaluation.repeat_each) {
        for case in &evaluation.cases {
            for link in &evaluation.links {
                let reachable = middlewares
                    .iter()
                    .filter(|one| link.spec.is_none() && args.peer.peer.is_none() || one.crosses_networks())
                    .filter(|one| one.carries(case.shape))
                    .filter(|one| !matches!(case.kind, CaseKind::Discovery { .. }) || one.discovers());
                runs.extend(reachable.map(|middleware| Run {
                    case,
                    link,
                    middleware,
                    repetition,
                    folder: folder.join(format!(
                        "case_{}/link_{}/{}_{repetition}",
                        case.place,
                        link.place,
                        middleware.file_stem()
                    )),
                }));
            }
        }
    }
    runs
}

/// Finished runs that are not requested now, such as other links or middlewares: they stay in the result, and so do the commands that ran them.
pub(super) fn earlier(
    folder: &Path,
    planned: &[Run<'_>],
    args: &RunArguments,
) -> BenchResult<(Vec<MiddlewareRun>, Vec<String>)> {
    let kept = folder.join(RESULT_FILE);
    if !kept.is_file() {
        return Ok(Default::default());
    }
    let mut result: EvaluationResult = engine::load(&kept, "the result of an evaluation")?;
    if result.scale != args.scale {
        let (scale, folder) = (result.scale, folder.display());
        let expected = format!("{scale}, as of the finished runs in {folder}");
        return Err(BenchError::option("--scale", expected, args.scale.to_string()));
    }
    let is_planned = |run: &MiddlewareRun| {
        planned.iter().any(|one| {
            let beside = one.case.beside.as_ref().map(|beside| &beside.label);
            (Some(&run.case) == beside || run.case == one.case.label)
                && (&one.link.label, one.middleware, one.repetition)
                    == (&run.link, &run.middleware, run.repetition)
        })
    };
    result.runs.retain(|run| !is_planned(run));
    result.earlier.push(result.command);
    Ok((result.runs, result.earlier))
}
