//! The page docs/benchmarks/results.md equals the output of the command for the results next to it.

use holdall_bench::{
    statistics::{Estimate, Interval},
    suite::{
        report::{self, Results},
        result::Skipped,
    },
};
use std::{
    fs,
    path::{Path, PathBuf},
};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/benchmarks")
}

fn committed() -> Results {
    report::load(&docs().join("results")).unwrap()
}

/// The page of these results.
fn page_of(loaded: &Results) -> String {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("results.md");
    report::write_summary(loaded, &page).unwrap();
    fs::read_to_string(&page).unwrap()
}

#[test]
fn the_committed_page_is_written_from_the_committed_results() {
    let docs = docs();
    let loaded = committed();
    assert!(!loaded.experiments.is_empty());
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("results.md");
    report::write_summary(&loaded, &page).unwrap();
    let names = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    for name in names {
        let written = fs::read_to_string(folder.path().join(&name)).unwrap();
        let committed = fs::read_to_string(docs.join(&name)).unwrap_or_default();
        assert!(
            written == committed,
            "{name} differs; write it anew: holdall bench report docs/benchmarks/results --summary docs/benchmarks/results.md"
        );
    }
    let text = fs::read_to_string(&page).unwrap();
    assert!(report::words(&text) <= report::WORDS_MAX);
    let plots = loaded.experiments.len().min(report::PLOTS_MAX);
    assert_eq!(text.matches("\n![").count(), plots, "one plot of each experiment");
    assert_eq!(text.matches("\n|---").count(), 1, "one table");
    for id in "A1 A2 A3 A4 A5 A6 A7 A8 A9 A10 B1 B2 C1 C2 C3 C4 D1 D1b D2 D3 D4 D4b D4c D5 D6 D7 D8 L1 G1"
        .split(' ')
    {
        assert_eq!(text.matches(&format!("\n| {id} | ")).count(), 1, "{id}");
    }
    // The publishers of ROS 1 did not keep their rate.
    for plot in ["results.2.svg", "results.3.svg"] {
        let plot = fs::read_to_string(docs.join(plot)).unwrap();
        assert!(plot.contains(" % of the load"));
    }
    // The page has what all commands begin and end with once.
    for one in &loaded.experiments {
        let command = one.result.command.strip_prefix("holdall bench run ");
        let command = command
            .and_then(|command| command.strip_suffix(" --out DIR"))
            .unwrap();
        assert!(text.contains(&format!("\n- `{command}`\n")), "{command}");
    }
}

#[test]
fn a_page_of_many_experiments_keeps_to_its_length() {
    let mut loaded = report::Results::default();
    for number in 0..30 {
        let mut more = committed();
        for one in &mut more.experiments {
            one.result.experiment += &format!(".{number}");
        }
        loaded.append(more);
    }
    let text = page_of(&loaded);
    assert!(
        report::words(&text) <= report::WORDS_MAX,
        "{}",
        report::words(&text)
    );
    assert!(report::words(&text) > report::WORDS_MAX * 2 / 5 && text.contains(" more: see the report."));
}

#[test]
fn a_page_of_two_machines_names_what_each_ran() {
    let mut loaded = committed();
    loaded.experiments.truncate(3);
    for (one, processor) in loaded.experiments.iter_mut().zip(["Fast", "Slow", "Fast"]) {
        one.result.machine.processor = processor.to_owned();
        one.result.machine.kernel = "6.18".to_owned();
    }
    let names: Vec<String> = loaded
        .experiments
        .iter()
        .map(|one| one.result.experiment.clone())
        .collect();
    let text = page_of(&loaded);
    for (ran, processor) in [
        (format!("{}, {}", names[0], names[2]), "Fast"),
        (names[1].clone(), "Slow"),
    ] {
        let line = text.lines().find(|line| line.starts_with(&format!("- {ran}: ")));
        assert!(line.is_some_and(|line| line.contains(processor)), "{ran}: {text}");
    }
}

#[test]
fn a_row_names_the_rivals_that_it_lacks() {
    let mut loaded = committed();
    loaded.experiments.truncate(1);
    let one = &mut loaded.experiments[0].result;
    one.skipped = ["mcap", "sqlite3"]
        .map(|storage| Skipped {
            case: one.runs[0].id.case.clone(),
            setting: format!("ros2 bag, DDS, {storage}"),
            reason: "it is not installed".to_owned(),
        })
        .into();
    let text = page_of(&loaded);
    let row = text.lines().find(|line| line.starts_with("| A1 ")).unwrap();
    assert!(row.contains(", without ros2 bag |"), "{row}");
}

#[test]
fn figures_below_those_of_before_are_named_for_each_kind() {
    let three_times = || {
        let mut loaded = committed();
        for one in &mut loaded.evaluations {
            one.result.runs = (0..3).flat_map(|_| one.result.runs.clone()).collect();
        }
        loaded
    };
    let (before, mut now) = (three_times(), three_times());
    assert_eq!(report::worse(&now, &before).unwrap(), Vec::<String>::new());
    let half = |one: &mut Estimate| {
        one.median /= 9.0;
        one.interval = Some(Interval {
            low: one.median,
            high: one.median,
        });
    };
    for cell in &mut now.storages[0].result.body.cells {
        cell.ratio_to_rival.iter_mut().for_each(half);
    }
    for run in now.evaluations.iter_mut().flat_map(|one| &mut one.result.runs) {
        run.account.received_per_s /= 2.0;
    }
    let c1 = now
        .experiments
        .iter_mut()
        .find(|one| one.result.experiment == "C1");
    for run in &mut c1.unwrap().result.runs {
        run.counts.recorded /= 2;
    }
    let worse = report::worse(&now, &before).unwrap();
    for found in [
        "B1: mcap_default, 1MiB in batches of 1KiB: ",
        "C1: 8 × 1920×1080 RGB × 30 Hz",
        "D7: PointCloud512k at 30 Hz, reliable, 1000 Mb/s, cyclone: 15.00",
    ] {
        assert!(
            worse.iter().any(|sentence| sentence.starts_with(found)),
            "{found}: {worse:#?}"
        );
    }
}
