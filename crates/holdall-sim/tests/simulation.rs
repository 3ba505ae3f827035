//! The simulator itself: seeds that once failed, the same seed twice, and a recorder that is broken on purpose.

use holdall_model::file_class::{FileClasses, RingLimit};
use holdall_sim::{
    mutation::Mutation,
    plan::{CLOCKS_FROM, DEATH_FROM, ENDS_FROM, Plan},
    promote::Copies,
    ring_day::RINGS,
    run::{run, run_in},
};
use std::{fs, path::Path, time::Duration};

/// Seeds that have failed, one a line, each with the fault that it showed.
const SEEDS: &str = include_str!("seeds.txt");

/// Each mutation with a seed that catches it.
const CAUGHT: &str = include_str!("mutations.txt");

/// Number and rest of each line that is not a comment.
fn lines(text: &str) -> Vec<(&str, &str)> {
    text.lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
        .map(|line| line.split_once(' ').unwrap_or((line, "")))
        .collect()
}

#[test]
fn every_seed_that_ever_failed_holds() {
    let seeds = lines(SEEDS);
    assert!(seeds.len() > 10, "the list of seeds is gone");
    for (seed, what) in seeds {
        let seed = seed.parse().unwrap();
        if let Err(violation) = run(&Plan::new(seed), None) {
            panic!("seed {seed} ({what}): {violation}");
        }
    }
}

#[test]
fn every_mutation_is_caught_by_its_seed_which_holds_without_it() {
    let caught = lines(CAUGHT);
    for mutation in Mutation::ALL {
        let name = mutation.name();
        let (_, seed) = caught
            .iter()
            .find(|(known, _)| *known == name)
            .unwrap_or_else(|| panic!("no seed catches {name}"));
        let plan = Plan::new(seed.trim().parse().unwrap());
        assert_eq!(
            run(&plan, None).err(),
            None,
            "{name}: its seed must hold without it"
        );
        assert!(
            run(&plan, Some(mutation)).is_err(),
            "{name} is not caught by seed {seed}"
        );
    }
}

#[test]
fn recordings_whose_topics_have_files_of_their_own_hold() {
    let separate = ["/large|/asked".to_owned(), "mixed".to_owned()];
    let ranges = [
        0..60,
        DEATH_FROM..DEATH_FROM + 60,
        ENDS_FROM..ENDS_FROM + 30,
        2_002_367..2_002_368,
    ];
    for seed in ranges.into_iter().flatten() {
        let mut plan = Plan::new(seed);
        plan.options.files.split.classes = FileClasses::new(&separate, &[]).unwrap();
        // Topics leave the others at other times with each seed.
        plan.options.files.split.shared_bytes_per_second_max = (seed % 3 > 0).then_some(1000 * (seed % 3));
        if let Err(violation) = run(&plan, None) {
            panic!("seed {seed}: {violation}");
        }
    }
}

#[test]
fn recordings_into_rings_hold_whose_lane_is_kept() {
    let rings = [
        RingLimit::Bytes(150_000),
        RingLimit::Span(Duration::from_millis(400)),
    ];
    let ranges = [
        DEATH_FROM + 1000..DEATH_FROM + 1200,
        1000..1200,
        CLOCKS_FROM..CLOCKS_FROM + 100,
    ];
    for seed in ranges.into_iter().flatten() {
        let mut plan = Plan::new(seed);
        let split = &mut plan.options.files.split;
        split.ring = Some(rings[(seed % 2) as usize]);
        split.bytes_max = split.bytes_max.or(Some(30_000));
        split.classes = FileClasses::new(&[], &["/asked".to_owned()]).unwrap();
        if let Err(violation) = run(&plan, None) {
            panic!("seed {seed}: {violation}");
        }
    }
}

#[test]
fn parts_of_rings_are_copied_whole_while_they_are_recorded_or_say_what_had_expired() {
    let (mut copies, mut deaths) = (Copies::default(), 0);
    for seed in RINGS.start..RINGS.start + 10 {
        let plan = Plan::ring_day(seed, Duration::from_secs(60), 7);
        match run(&plan, None) {
            Ok(tally) => {
                copies.add(tally.copies);
                deaths += tally.deaths;
            }
            Err(violation) => panic!("seed {seed}: {violation}"),
        }
    }
    let has_all = copies.empty > 0 && copies.expired > 20 && copies.messages > 100 && deaths > 2;
    assert!(has_all && copies.made > 20, "{copies:?}, {deaths} deaths");
}

fn contents(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(directory.join("bag"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| {
            (
                path.file_name().unwrap().display().to_string(),
                fs::read(&path).unwrap(),
            )
        })
        .collect();
    files.sort();
    files
}

#[test]
fn one_seed_gives_the_same_bag_byte_by_byte() {
    for seed in (0..40)
        .chain(DEATH_FROM..DEATH_FROM + 20)
        .chain(ENDS_FROM..ENDS_FROM + 20)
        .chain(CLOCKS_FROM..CLOCKS_FROM + 20)
    {
        let bags = [(); 2].map(|()| {
            let scratch = tempfile::tempdir().unwrap();
            run_in(&Plan::new(seed), None, scratch.path()).unwrap();
            contents(scratch.path())
        });
        assert!(bags[0] == bags[1], "seed {seed} gave two different bags");
    }
}
