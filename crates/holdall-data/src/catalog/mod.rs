//! A catalog of many bags: tables in Parquet that `DuckDB` and Polars read unchanged, and that [`Catalog::find`] asks.
//!
//! A scan reads the metadata and the summaries of files, no message. Bags whose files did not change since the last scan are not read again.

mod bag;
mod file;
mod find;
mod plan;
mod scan;
mod table;

pub use find::{FIND_COLUMNS, FindError, Found, find_columns};
pub use plan::{PlanOptions, PlannedPart, PlannedTask};

use holdall_bag::reader::ReadError;
use holdall_io::{
    clock::{Clock, SystemClock},
    disk::DiskError,
    fs,
    mutex::lock,
    remote,
};
use scan::Candidate;
use serde::Serialize;
use std::{
    collections::{HashMap, HashSet},
    io,
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};
use table::{BagRows, TABLES, Table, Texts};

/// The bags below folders, and those that are named themselves, by path: each with the folder or the bag that was named.
///
/// # Errors
/// A path that cannot be searched.
pub fn bags_below(roots: &[PathBuf]) -> Result<Vec<(PathBuf, PathBuf)>, CatalogError> {
    let mut found = Vec::new();
    for root in roots {
        scan::bags_below(root, &mut found)?;
    }
    found.sort();
    found.dedup_by(|later, first| later.path == first.path);
    Ok(found.into_iter().map(|bag| (bag.root, bag.path)).collect())
}

/// Most threads that read bags side by side.
const THREADS_MAX: usize = 16;

/// Why a catalog cannot be made or read; the text is one clause and names the path.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CatalogError {
    /// A file or folder cannot be read or written.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A table cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The table.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A table of another version, or of another program.
    #[error("{}: {}, expected version {}; make a new catalog in another folder", path.display(), described(found.as_deref()), file::VERSION)]
    Version {
        /// The table.
        path: PathBuf,
        /// The version that it states.
        found: Option<String>,
    },
    /// A table that is not valid.
    #[error("{} is not valid: {reason}", path.display())]
    Damaged {
        /// The table.
        path: PathBuf,
        /// One clause.
        reason: String,
    },
    /// Tables of different scans.
    #[error("{}: its tables are of different scans, because one was ended early; scan again", path.display())]
    Mixed {
        /// The catalog.
        path: PathBuf,
    },
    /// The folder has no catalog.
    #[error("{} is not a catalog: it has no {}.parquet", path.display(), TABLES[table::BAGS].name)]
    NotACatalog {
        /// The folder.
        path: PathBuf,
    },
    /// A bag that cannot be read, where all must be.
    #[error("{reason}")]
    Unreadable {
        /// One clause that names the bag.
        reason: String,
    },
    /// A folder cannot be searched for bags.
    #[error(transparent)]
    Bag(Box<ReadError>),
}

/// A path that means the same in every folder; of a URL, one without secrets.
fn absolute(path: &Path) -> Result<PathBuf, CatalogError> {
    if remote::is_remote(path) {
        return Ok(remote::clean(path).into_owned());
    }
    std::path::absolute(path).map_err(|error| CatalogError::write(path, error))
}

fn described(version: Option<&str>) -> String {
    match version {
        Some(version) => format!("a catalog of version {version}"),
        None => "no table of a catalog".to_owned(),
    }
}

impl CatalogError {
    fn write(path: &Path, source: io::Error) -> Self {
        Self::Write {
            path: path.to_owned(),
            source,
        }
    }

    /// True if nothing was done because of the arguments.
    pub fn is_refusal(&self) -> bool {
        !matches!(
            self,
            Self::Write { .. } | Self::Damaged { .. } | Self::Mixed { .. }
        )
    }
}

/// Results of a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CatalogReport {
    /// The catalog's folder.
    pub catalog: PathBuf,
    /// Bags in the catalog now.
    pub bags: u64,
    /// Bags that were read.
    pub read: u64,
    /// Bags that had not changed.
    pub unchanged: u64,
    /// Bags removed from the catalog.
    pub removed: u64,
    /// Messages of all bags in the catalog.
    pub messages: u64,
    /// Bags that cannot be read, and why; they are in the catalog with their state.
    pub unreadable: Vec<Unreadable>,
}

/// A bag that cannot be read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Unreadable {
    /// Its path.
    pub bag: PathBuf,
    /// One clause that names the path.
    pub reason: String,
}

/// A catalog in memory. Tables are read when they are needed.
pub struct Catalog {
    folder: PathBuf,
    texts: Texts,
    tables: [Option<Table>; TABLES.len()],
    generation: Option<String>,
}

impl Catalog {
    /// Opens a catalog.
    ///
    /// # Errors
    /// A folder that is not a catalog, or a catalog of another version.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self, CatalogError> {
        let folder = folder.as_ref();
        if !Self::is_one(folder) {
            return Err(CatalogError::NotACatalog {
                path: folder.to_owned(),
            });
        }
        let mut catalog = Self::empty(folder);
        catalog.load(table::BAGS)?;
        Ok(catalog)
    }

    /// A catalog of bags in memory, for plans without one on disk.
    ///
    /// # Errors
    /// A path that cannot be searched; the first bag that cannot be read.
    pub fn of_bags(paths: &[PathBuf]) -> Result<Self, CatalogError> {
        let mut found = Vec::new();
        for path in paths {
            scan::bags_below(&absolute(path)?, &mut found)?;
        }
        found.sort();
        found.dedup_by(|later, first| later.path == first.path);
        let mut made = Self::empty(Path::new(""));
        let update = Update::new(&made, &found, &[]);
        let mut read = update.read(&found, &|_, _| {});
        let mut failures = (0..found.len()).filter_map(|place| read[&place].1.clone());
        if let Some(reason) = failures.next() {
            return Err(CatalogError::Unreadable { reason });
        }
        let (tables, texts) = update.tables(&found, &mut read);
        made.tables = tables.map(Some);
        made.texts = texts;
        Ok(made)
    }

    /// Whether a folder has the tables of a catalog.
    pub fn is_one(folder: &Path) -> bool {
        fs::exists(&file::path_of(folder, &TABLES[table::BAGS])).unwrap_or(false)
    }

    fn empty(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            texts: Texts::default(),
            tables: [const { None }; TABLES.len()],
            generation: None,
        }
    }

    fn load(&mut self, place: usize) -> Result<(), CatalogError> {
        if self.tables[place].is_some() {
            return Ok(());
        }
        let (table, generation) = file::read(&self.folder, &TABLES[place], &mut self.texts)?;
        if *self.generation.get_or_insert_with(|| generation.clone()) != generation {
            return Err(CatalogError::Mixed {
                path: self.folder.clone(),
            });
        }
        self.tables[place] = Some(table);
        Ok(())
    }

    /// A table that was loaded.
    fn table(&self, place: usize) -> Option<&Table> {
        self.tables[place].as_ref()
    }

    /// Brings the catalog in `folder` up to date with the bags below `roots`, and makes it if it is not there. Bags below other folders stay.
    /// `progress` is called with the numbers of bags already read and to read, from several threads.
    ///
    /// # Errors
    /// A root that cannot be searched, or a catalog that cannot be read or written. An unreadable bag is not an error, but a row.
    pub fn update(
        folder: &Path,
        roots: &[PathBuf],
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<CatalogReport, CatalogError> {
        let mut found = Vec::new();
        let mut searched = Vec::new();
        for root in roots {
            let root = absolute(root)?;
            scan::bags_below(&root, &mut found)?;
            searched.push(root);
        }
        found.sort();
        found.dedup_by(|later, first| later.path == first.path);
        let old = Self::previous(folder)?;
        let update = Update::new(&old, &found, &searched);
        let read = update.read(&found, progress);
        update.write(folder, &found, read)
    }

    /// The catalog as it was; an empty one if there is none, or if its last scan did not end.
    fn previous(folder: &Path) -> Result<Self, CatalogError> {
        if !Self::is_one(folder) {
            return Ok(Self::empty(folder));
        }
        let mut old = Self::empty(folder);
        for place in 0..TABLES.len() {
            match old.load(place) {
                Ok(()) => {}
                Err(CatalogError::Version { path, found }) => {
                    return Err(CatalogError::Version { path, found });
                }
                // All is read again.
                Err(_) => return Ok(Self::empty(folder)),
            }
        }
        Ok(old)
    }
}

/// A scan: which bags are read, and which rows stay.
struct Update<'a> {
    old: &'a Catalog,
    /// Whether the rows of each found bag are still right.
    is_unchanged: Vec<bool>,
    /// Bags of the old catalog below other folders.
    elsewhere: Vec<String>,
    removed: u64,
}

impl<'a> Update<'a> {
    fn new(old: &'a Catalog, found: &[Candidate], roots: &[PathBuf]) -> Self {
        let spec = &TABLES[table::BAGS];
        let mut known = HashMap::new();
        let mut elsewhere = Vec::new();
        let mut removed = 0;
        let places = ["bag", "state", "fingerprint"].map(|name| spec.column(name).unwrap_or_default());
        let paths: HashSet<String> = found
            .iter()
            .map(|bag| bag.path.to_string_lossy().into_owned())
            .collect();
        if let Some(bags) = old.table(table::BAGS) {
            for row in 0..bags.rows() {
                let text = |place: usize| {
                    bags.id(place, row)
                        .and_then(|id| old.texts.get(id))
                        .unwrap_or_default()
                };
                let bag = text(places[0]);
                if paths.contains(bag) {
                    // A recording ends without a change of a file, and data that a bucket did not send may come the next time.
                    let state = text(places[1]);
                    let is_remote = remote::is_remote(Path::new(bag));
                    if state != "recording"
                        && !(is_remote && ["unreadable", "files missing"].contains(&state))
                    {
                        known.insert(bag, text(places[2]));
                    }
                } else if roots.iter().any(|root| Path::new(bag).starts_with(root)) {
                    removed += 1;
                } else {
                    elsewhere.push(bag.to_owned());
                }
            }
        }
        let is_unchanged = found
            .iter()
            .map(|bag| known.get(&*bag.path.to_string_lossy()) == Some(&&*bag.fingerprint));
        Self {
            old,
            is_unchanged: is_unchanged.collect(),
            elsewhere,
            removed,
        }
    }

    /// The rows of all bags that changed, by their places.
    fn read(
        &self,
        found: &[Candidate],
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> HashMap<usize, (BagRows, Option<String>)> {
        let wanted: Vec<usize> = (0..found.len())
            .filter(|place| !self.is_unchanged[*place])
            .collect();
        let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let rows = Mutex::new(HashMap::with_capacity(wanted.len()));
        let work = || {
            while let Some(place) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
                let read = bag::rows_of(&found[*place]);
                lock(&rows).insert(*place, read);
                progress(done.fetch_add(1, Ordering::Relaxed) + 1, wanted.len());
            }
        };
        let cores = thread::available_parallelism().map_or(1, usize::from);
        // A request to a bucket is mostly waiting.
        let is_remote = found.iter().any(|bag| remote::is_remote(&bag.path));
        let threads = if is_remote { THREADS_MAX } else { 2 * cores };
        let threads = threads.min(THREADS_MAX).min(wanted.len());
        thread::scope(|scope| {
            for _ in 1..threads {
                // The work is done by fewer threads if one cannot be started.
                let _ = thread::Builder::new()
                    .name("catalog".to_owned())
                    .spawn_scoped(scope, work);
            }
            work();
        });
        rows.into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Writes the tables, unless none of them changes.
    fn write(
        &self,
        folder: &Path,
        found: &[Candidate],
        mut read: HashMap<usize, (BagRows, Option<String>)>,
    ) -> Result<CatalogReport, CatalogError> {
        let mut report = CatalogReport {
            catalog: folder.to_owned(),
            bags: (found.len() + self.elsewhere.len()) as u64,
            read: read.len() as u64,
            unchanged: (found.len() - read.len()) as u64,
            removed: self.removed,
            ..CatalogReport::default()
        };
        for (place, (_, failure)) in &read {
            report.unreadable.extend(failure.clone().map(|reason| Unreadable {
                bag: found[*place].path.clone(),
                reason,
            }));
        }
        report.unreadable.sort_by(|one, other| one.bag.cmp(&other.bag));
        let is_same = read.is_empty() && self.removed == 0 && Catalog::is_one(folder);
        let (tables, texts) = self.tables(found, &mut read);
        let messages = TABLES[table::BAGS].column("messages").unwrap_or_default();
        let bags = &tables[table::BAGS];
        let counts = (0..bags.rows()).filter_map(|row| bags.number(messages, row));
        report.messages = counts.map(i64::cast_unsigned).sum();
        if !is_same || self.old.generation.is_none() {
            fs::create_dirs(folder)?;
            holdall_io::new_file::remove_left_over(folder);
            let now = SystemClock.now().as_nanos();
            let generation = format!("{now}-{}", std::process::id());
            file::write_all(folder, &tables, &texts, &generation)?;
        }
        Ok(report)
    }

    fn tables(
        &self,
        found: &[Candidate],
        read: &mut HashMap<usize, (BagRows, Option<String>)>,
    ) -> ([Table; TABLES.len()], Texts) {
        let mut texts = Texts::default();
        let mut tables = TABLES.each_ref().map(Table::new);
        let rows_by_bag: Vec<_> = (0..TABLES.len())
            .map(|place| self.old.table(place).map(Table::rows_by_bag).unwrap_or_default())
            .collect();
        let keep = |bag: &str, tables: &mut [Table; TABLES.len()], texts: &mut Texts| {
            let Some(id) = self.old.texts.known(bag) else {
                return;
            };
            for (place, table) in tables.iter_mut().enumerate() {
                let rows = rows_by_bag[place].get(&id);
                if let (Some(old), Some(rows)) = (self.old.table(place), rows) {
                    table.append(old, rows, &mut |id| {
                        self.old
                            .texts
                            .get(id)
                            .map_or(table::NO_TEXT, |text| texts.id(text))
                    });
                }
            }
        };
        for bag in &self.elsewhere {
            keep(bag, &mut tables, &mut texts);
        }
        for (place, candidate) in found.iter().enumerate() {
            let Some((rows, _)) = read.remove(&place) else {
                keep(&candidate.path.to_string_lossy(), &mut tables, &mut texts);
                continue;
            };
            for (table, rows) in tables.iter_mut().zip(rows) {
                rows.iter().for_each(|row| table.push(row, &mut texts));
            }
        }
        (tables, texts)
    }
}
