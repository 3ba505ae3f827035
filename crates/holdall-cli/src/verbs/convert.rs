//! The verbs that make bags out of bags: `convert`, `merge`, `split`, `filter`, `compress`, `decompress`.

use super::input::{self, Named};
use crate::{
    VerbResult,
    args::{
        choice::DefinitionArguments,
        compress::{CompressArguments, CompressMode, DecompressArguments},
        tools::{
            ChangeArguments, Codec, ConvertArguments, DivisionArguments, FilterArguments, MergeArguments,
            OutputArguments, SplitArguments,
        },
    },
    exit::{Failure, Outcome},
    output, render,
    resolve::{self, UsageError, surroundings::Surroundings},
    terminal::{log, progress::Progress},
};
use holdall::{
    reader::{Bag, BagFile, BagSet},
    recode::{self, Recoder},
    tools::{
        Choice, Job, OutputOptions, Recode, Shift,
        manage::{expect_alone, remove, set_verified},
        run_recoded, yaml,
    },
    writer::CompressionMode,
};
use holdall_io::{
    clock::{Clock, SystemClock},
    fs::exists,
    scratch::ScratchDirectory,
};
use holdall_storage::{Storage, compression::scratch, readable_storages, storage_by_id, storages};
use std::{
    fmt::Display,
    io::{self, IsTerminal},
    path::{Path, PathBuf},
};
use tracing::{level_filters::LevelFilter, warn};

/// `holdall convert`.
pub fn convert(args: &ConvertArguments) -> VerbResult {
    log::start(LevelFilter::WARN);
    let surroundings = resolve::surroundings::real(SystemClock.now());
    let outputs = if is_yaml(&args.output) {
        refuse_changes(&args.change)?;
        let recipients = &args.how.encrypt_to;
        yaml_outputs(&args.output, recipients, &surroundings)?
    } else {
        let choice = resolve::tools::choice(&args.selection).map_err(Failure::refused)?;
        let output = resolve::tools::output(&args.output, &args.how, &args.division, &surroundings)
            .map_err(Failure::refused)?;
        vec![(with_changes(output, &args.change)?, choice)]
    };
    let inputs = inputs(args, &surroundings)?;
    let mut outcome = Outcome::Done;
    for (output, choice) in outputs {
        outcome = outcome.or_worse(make(
            inputs.bags.clone(),
            choice,
            output,
            "converting",
            args.how.json,
        )?);
    }
    Ok(outcome)
}

/// The output with the changes to its messages.
fn with_changes(output: OutputOptions, change: &ChangeArguments) -> Result<OutputOptions, Failure> {
    Ok(OutputOptions {
        changes: resolve::tools::changes(&change.changes).map_err(Failure::refused)?,
        renames: resolve::tools::renames(&change.rename).map_err(Failure::refused)?,
        frames: resolve::tools::frames(&change.frame).map_err(Failure::refused)?,
        shift: change.shift_time,
        ..output
    })
}

/// Refuses flags for changes: rosbag2's YAML files describe their output bags completely.
fn refuse_changes(change: &ChangeArguments) -> Result<(), Failure> {
    let flags = [
        ("--set", change.changes.is_empty()),
        ("--rename", change.rename.is_empty()),
        ("--frame", change.frame.is_empty()),
        ("--shift-time", change.shift_time == Shift::default()),
    ];
    flags
        .iter()
        .find(|(_, is_absent)| !is_absent)
        .map_or(Ok(()), |(first, _)| {
            Err(Failure::refused(UsageError::Clash {
                first,
                second: "an output of a YAML file",
                reason: "the file describes the outputs",
            }))
        })
}

/// A name that ends like YAML, or is a file, is one of rosbag2's; any other is the name of a bag.
fn is_yaml(output: &Path) -> bool {
    let extension = output.extension().and_then(|extension| extension.to_str());
    matches!(extension, Some("yaml" | "yml")) || output.is_file()
}

fn yaml_outputs(
    path: &Path,
    recipients: &[String],
    surroundings: &Surroundings<'_>,
) -> Result<Vec<(OutputOptions, Choice)>, Failure> {
    let text = resolve::read_file(surroundings, "--output", path).map_err(Failure::refused)?;
    let mut read =
        |path: &Path| (surroundings.read_file)(path).map_err(|error| holdall_io::disk::reason(&error));
    let bags = yaml::output_bags(&text, &mut read).map_err(|reason| {
        Failure::refused(UsageError::BrokenFile {
            flag: "--output",
            path: path.to_owned(),
            reason,
        })
    })?;
    let sealed = bags.into_iter().map(|bag| {
        let seal = resolve::tools::seal(&bag.options.directory, recipients)?;
        Ok((OutputOptions { seal, ..bag.options }, bag.choice))
    });
    sealed
        .collect::<Result<_, UsageError>>()
        .map_err(Failure::refused)
}

/// The inputs of `convert`, and the copy of standard input when it is one of them.
struct Inputs {
    bags: Vec<Bag>,
    _named: Named,
}

fn inputs(args: &ConvertArguments, surroundings: &Surroundings<'_>) -> Result<Inputs, Failure> {
    let mut paths = args.bags.clone();
    for text in &args.input {
        // A bag may be followed by its storage id, which is ignored because the reader detects it.
        let is_storage = readable_storages().any(|storage| storage.id() == text);
        if !is_storage || exists(Path::new(text)).unwrap_or(false) {
            paths.push(PathBuf::from(text));
        }
    }
    let named = input::resolve(&paths)?;
    let mut bags = input::open_each(&named, &args.how.definitions)?;
    if let Some(path) = &args.input_options {
        let text = resolve::read_file(surroundings, "--input-options", path).map_err(Failure::refused)?;
        let listed = yaml::input_bags(&text).map_err(|reason| {
            Failure::refused(UsageError::BrokenFile {
                flag: "--input-options",
                path: path.clone(),
                reason,
            })
        })?;
        for bag in listed {
            let listed = input::resolve(std::slice::from_ref(&bag.path))?;
            let opened = input::open_each(&listed, &args.how.definitions)?;
            bags.extend(opened.into_iter().map(|opened| opened.within(bag.start, bag.end)));
        }
    }
    if bags.is_empty() {
        return Err(Failure::refused(UsageError::NoBag { hint: String::new() }));
    }
    Ok(Inputs { bags, _named: named })
}

/// `holdall merge`.
pub fn merge(args: &MergeArguments) -> VerbResult {
    one(
        &args.bags,
        &args.output,
        Choice::default(),
        &args.how,
        &args.division,
        "merging",
    )
}

/// `holdall split`.
pub fn split(args: &SplitArguments) -> VerbResult {
    let division = resolve::tools::division(&args.division);
    if division.is_none() && args.division.at.is_empty() && args.division.by.is_none() {
        return Err(Failure::refused(UsageError::Needs {
            flag: "split",
            needs: "to know where: -b/--max-bag-size, -d/--max-bag-duration, --max-bag-messages, --at or --by episode",
        }));
    }
    one(
        &args.bags,
        &args.output,
        Choice::default(),
        &args.how,
        &args.division,
        "splitting",
    )
}

/// `holdall filter`.
pub fn filter(args: &FilterArguments) -> VerbResult {
    log::start(LevelFilter::WARN);
    let choice = resolve::tools::choice(&args.selection).map_err(Failure::refused)?;
    let surroundings = resolve::surroundings::real(SystemClock.now());
    let division = DivisionArguments::default();
    let output = resolve::tools::output(&args.output, &args.how, &division, &surroundings)
        .map_err(Failure::refused)?;
    let named = input::resolve(&args.bags)?;
    make(
        input::open_each(&named, &args.how.definitions)?,
        choice,
        with_changes(output, &args.change)?,
        "filtering",
        args.how.json,
    )
}

/// `holdall compress`.
pub fn compress(args: &CompressArguments) -> VerbResult {
    log::start(LevelFilter::WARN);
    let named = input::resolve(&args.bags)?;
    let bags = input::open_each(&named, &DefinitionArguments::default())?;
    let has_chunks = bags.iter().all(|bag| bag.chunks().is_some());
    let mode = args.mode.unwrap_or(if has_chunks {
        CompressMode::Chunk
    } else {
        CompressMode::File
    });
    if mode == CompressMode::Chunk && !has_chunks {
        return Err(Failure::refused(format!(
            "--mode chunk: only {} files have chunks; use --mode file or --mode message",
            render::tools::chunk_titles()
        )));
    }
    let mut how = OutputArguments {
        json: args.json,
        compression_mode: Some(CompressionMode::None),
        encrypt_to: args.encrypt_to.clone(),
        ..OutputArguments::default()
    };
    match mode {
        CompressMode::Chunk => (how.compression, how.level) = (Some(args.codec), Some(args.level)),
        CompressMode::File => how.compression_mode = Some(CompressionMode::File),
        CompressMode::Message => how.compression_mode = Some(CompressionMode::Message),
    }
    let video = args.video.iter().cloned();
    let video: Vec<_> = video.map(|rule| rule.carried_by(args.carrier)).collect();
    let rules = [video.as_slice(), &args.cloud].concat();
    if !rules.is_empty() {
        let flag = if video.is_empty() { "--cloud" } else { "--video" };
        expect_types_kept(&bags, flag)?;
    }
    let mut recoder = (!rules.is_empty()).then(|| Recoder::encoding(rules));
    if !args.delete_original_after_verify {
        return rewritten(bags, &args.output, &how, recoder.as_mut(), "compressing");
    }
    let local = |path: &PathBuf| exists(path).unwrap_or(false);
    if args.output == Path::new("-") || !args.bags.iter().all(local) {
        return Err(Failure::refused(
            "--delete-original-after-verify needs bags and an output that are directories or files",
        ));
    }
    bags.iter().try_for_each(expect_alone).map_err(Failure::refused)?;
    let outcome = rewritten(bags.clone(), &args.output, &how, recoder.as_mut(), "compressing")?;
    if outcome != Outcome::Done {
        warn!("the originals stay: not everything of them could be read");
        return Ok(outcome);
    }
    verify_and_delete(bags, args)
}

/// Refuses to give messages another type where the new bag, which has the storage of the others, has one type for each topic.
fn expect_types_kept(bags: &[Bag], flag: &str) -> Result<(), Failure> {
    let mut ids = bags.iter().map(|bag| &bag.metadata().storage_identifier);
    let storage = ids.next().filter(|first| ids.all(|id| id == *first));
    let storage = storage.and_then(|id| storage_by_id(id).ok());
    match storage.filter(|storage| !storage.keeps_types()) {
        None => Ok(()),
        Some(storage) => Err(Failure::refused(format!(
            "{flag}: messages that cannot be encoded keep their type, and {} has one type for each topic; convert the bag with --storage mcap before",
            storage.title()
        ))),
    }
}

/// Deletes the originals if the new bag has all that they have.
fn verify_and_delete(bags: Vec<Bag>, args: &CompressArguments) -> VerbResult {
    let before = BagSet::from(bags);
    let new = Bag::open(&args.output).map_err(Failure::failed)?;
    let progress = Progress::of_messages("verifying");
    let total = before.bags().iter().map(|bag| bag.metadata().message_count).sum();
    let verified = recode::verify(&before, &BagSet::from(vec![new]), &mut |done| {
        progress.show(done.min(total), total);
    });
    drop(progress);
    let stay = |reason: &dyn Display| Failure::failed(format!("the originals stay: {reason}"));
    let verified = verified.map_err(|error| stay(&error))?;
    if verified.messages == 0 {
        return Err(stay(&"no message was compared"));
    }
    if !verified.images.is_empty() {
        set_verified(&args.output, &verified.images).map_err(|error| stay(&error))?;
    }
    before
        .bags()
        .iter()
        .try_for_each(expect_alone)
        .map_err(|error| stay(&error))?;
    drop(before);
    for path in &args.bags {
        remove(path).map_err(Failure::failed)?;
    }
    if !args.json {
        output::result(&render::tools::verified(&verified))?;
    }
    Ok(Outcome::Done)
}

/// `holdall decompress`.
pub fn decompress(args: &DecompressArguments) -> VerbResult {
    log::start(LevelFilter::WARN);
    let named = input::resolve(&args.bags)?;
    let bags = input::open_each(&named, &DefinitionArguments::default())?;
    let has_chunks = bags.iter().all(|bag| bag.chunks().is_some());
    let how = OutputArguments {
        json: args.json,
        compression: has_chunks.then_some(Codec::None),
        compression_mode: Some(CompressionMode::None),
        encrypt_to: args.encrypt_to.clone(),
        ..OutputArguments::default()
    };
    let custom_data = bags.iter().map(|bag| &bag.metadata().custom_data);
    let mut recoder = Recoder::decoding(custom_data);
    rewritten(bags, &args.output, &how, recoder.as_mut(), "decompressing")
}

fn rewritten(
    bags: Vec<Bag>,
    directory: &Path,
    how: &OutputArguments,
    recoder: Option<&mut Recoder>,
    doing: &str,
) -> VerbResult {
    let surroundings = resolve::surroundings::real(SystemClock.now());
    let division = DivisionArguments::default();
    let output =
        resolve::tools::output(directory, how, &division, &surroundings).map_err(Failure::refused)?;
    let recoder = recoder.map(|recoder| recoder as &mut dyn Recode);
    make_recoded((bags, Choice::default(), output), recoder, doing, how.json)
}

fn one(
    bags: &[PathBuf],
    directory: &Path,
    choice: Choice,
    how: &OutputArguments,
    division: &DivisionArguments,
    doing: &str,
) -> VerbResult {
    log::start(LevelFilter::WARN);
    let surroundings = resolve::surroundings::real(SystemClock.now());
    let output = resolve::tools::output(directory, how, division, &surroundings).map_err(Failure::refused)?;
    let named = input::resolve(bags)?;
    let bags = input::open_each(&named, &how.definitions)?;
    make(bags, choice, output, doing, how.json)
}

/// Makes a bag; exit code 3 when something of the inputs cannot be read, which is left out and listed.
pub fn make(inputs: Vec<Bag>, choice: Choice, output: OutputOptions, doing: &str, json: bool) -> VerbResult {
    make_recoded((inputs, choice, output), None, doing, json)
}

fn make_recoded(
    (inputs, choice, mut output): (Vec<Bag>, Choice, OutputOptions),
    recoder: Option<&mut dyn Recode>,
    doing: &str,
    json: bool,
) -> VerbResult {
    let is_standard_output = output.directory == Path::new("-");
    let scratch = if is_standard_output {
        check_standard_output(&output)?;
        let made = ScratchDirectory::create(&scratch()).map_err(Failure::failed)?;
        output.directory = made.path().join("bag");
        Some(made)
    } else {
        None
    };
    let shown = if is_standard_output {
        "for standard output".to_owned()
    } else {
        output.directory.display().to_string()
    };
    let reads_sealed = inputs.iter().flat_map(Bag::files).any(BagFile::is_sealed);
    if reads_sealed && output.seal.is_none() {
        warn!(
            "the output ({shown}) is not encrypted, but the bag that is read is: anyone who can open the output can read it; \
             --encrypt-to encrypts it"
        );
    }
    let progress = Progress::of_bytes(&format!("{doing} {shown}"));
    let job = Job {
        inputs,
        choice,
        output,
    };
    let written = run_recoded(job, recoder, &mut |done, total| progress.show(done, total));
    drop(progress);
    let written = written.map_err(|error| Failure::making(error, &[]))?;
    render::tools::left_out(&written.left_out)
        .iter()
        .for_each(|line| warn!("{line}"));
    for expired in &written.expired {
        warn!("{}", render::tools::expired(expired));
    }
    for recoding in written.recoded.iter().filter(|recoding| recoding.kept > 0) {
        warn!("{}", recoding.kept_clause());
    }
    let outcome = if written.left_out.is_empty() {
        Outcome::Done
    } else {
        Outcome::Lost
    };
    if scratch.is_some() {
        let first = written.files.first();
        first.map_or(Ok(()), |file| output::file(file))?;
        return Ok(outcome);
    }
    output::result(&if json {
        render::tools::written_json(&written).to_string()
    } else {
        render::tools::written(&written)
    })?;
    Ok(outcome)
}

/// Standard output takes one storage file, and must not be a terminal.
fn check_standard_output(output: &OutputOptions) -> Result<(), Failure> {
    if io::stdout().is_terminal() {
        return Err(Failure::refused(
            "-o - writes a storage file to standard output, which is a terminal: send it to a file or a program",
        ));
    }
    if !output.split.is_none() || !output.split_moments.is_empty() || output.splits_episodes {
        return Err(Failure::refused(
            "-o - takes one storage file, which cannot be split",
        ));
    }
    let named = |storage: &&&dyn Storage| output.storage_id.as_deref() == Some(storage.id());
    if let Some(storage) = storages()
        .iter()
        .find(named)
        .filter(|storage| storage.is_directory())
    {
        return Err(Failure::refused(format!(
            "-o - takes one storage file, and a {} storage is a directory",
            storage.title()
        )));
    }
    Ok(())
}
