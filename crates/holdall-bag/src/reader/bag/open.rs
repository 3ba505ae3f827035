//! Opens a bag's directory by its metadata, or by the contents of its storage files.

use super::{
    Bag, METADATA_FILE, Ros1View,
    named::{Unusable, named_files, present_files, read_metadata},
};
use crate::{
    live::writer_of_bag,
    reader::{
        DAMAGED_KEY, REPAIRED_KEY, error::ReadError, file::payloads, gone::Gone, listing, rebuild::Rebuild,
    },
    rescue,
    writer::{STATE_KEY, seal_faults},
};
use holdall_io::{lock::Holder, remote};
use holdall_model::units::counted;
use holdall_model::{
    expired::ExpiredFiles,
    metadata::BagMetadata,
    repeated::{BagRepeats, repeats_from_custom_data},
};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

impl Bag {
    pub(super) fn open_directory(
        path: &Path,
        view: Ros1View,
        writer: Option<Holder>,
    ) -> Result<Self, ReadError> {
        let mut bag = Self::open_files_of(path, view, writer)?;
        bag.expect_one_seal()?;
        Ok(bag)
    }

    /// Refuses files that were not encrypted for the bag in which others are; a notice about what else is not as it was closed. In a bucket
    /// each file would be a request, and is compared when it is checked.
    fn expect_one_seal(&mut self) -> Result<(), ReadError> {
        if remote::is_remote(&self.path) {
            return Ok(());
        }
        let stored = self.files.iter().filter(|file| file.reader.is_none());
        let files: Vec<PathBuf> = stored.map(|file| file.path.clone()).collect();
        for fault in seal_faults(&self.path, Some(&self.metadata), &files) {
            let notice = fault.sentence();
            if fault.is_foreign {
                return Err(ReadError::NotOfBag { notice });
            }
            self.notices.push(notice);
        }
        Ok(())
    }

    fn open_files_of(path: &Path, view: Ros1View, writer: Option<Holder>) -> Result<Self, ReadError> {
        let metadata_path = path.join(METADATA_FILE);
        let why = match read_metadata(&metadata_path) {
            Ok(metadata) if metadata.custom_data.contains_key(STATE_KEY) => {
                return Self::from_unfinished(path, metadata, view, writer);
            }
            Ok(metadata) if metadata.relative_file_paths.is_empty() => Unusable::NamesNothing,
            Ok(metadata) => return Self::from_metadata(path, metadata),
            // Neither can the storage files be read.
            Err(Unusable::Unreadable(ReadError::Disk(error))) if error.lacks_key() => {
                return Err(error.into());
            }
            Err(why) => why,
        };
        let listed = listing::storage_files(path)?;
        if listed.is_empty() {
            return Err(match why {
                Unusable::NamesNothing => ReadError::NotABag {
                    path: path.to_owned(),
                    reason: format!("its {METADATA_FILE} names no storage file, and the bag has none"),
                },
                Unusable::Missing => ReadError::NotABag {
                    path: path.to_owned(),
                    reason: listing::describe_without_storage(path)?,
                },
                Unusable::Damaged(source) => ReadError::Metadata {
                    path: metadata_path,
                    source,
                },
                Unusable::Unreadable(error) => error,
            });
        }
        let notice = match why {
            Unusable::Missing => format!("{} is missing", metadata_path.display()),
            Unusable::NamesNothing => format!("{} names no storage file", metadata_path.display()),
            Unusable::Damaged(error) => format!("{} is damaged: {error}", metadata_path.display()),
            Unusable::Unreadable(error) => error.to_string(),
        };
        let mut bag = Self::rebuilt(path, &listed, view, writer)?;
        let instead = match listed.len() {
            1 => "the storage file is read in its place".to_owned(),
            count => format!("{count} storage files are read in its place"),
        };
        bag.notices.insert(0, format!("{notice}; {instead}"));
        Ok(bag)
    }

    /// Metadata of a recording that was killed or is running: it lists files, but its counts are not final.
    pub(super) fn from_unfinished(
        path: &Path,
        metadata: BagMetadata,
        view: Ros1View,
        writer: Option<Holder>,
    ) -> Result<Self, ReadError> {
        let listed = listing::storage_files(path)?;
        if listed.is_empty() {
            return Self::from_metadata(path, metadata);
        }
        let (rebuild, rescued) = match &writer {
            Some(_) => (Self::rebuild_of(path, &listed, view, writer)?, None),
            None => Self::rebuild_with_rescued(path, &listed, view)?,
        };
        let mut bag = if rebuild.is_unwritten() {
            Self::unwritten(path, metadata.clone(), writer)
        } else {
            Self::from_rebuild(path, rebuild, writer)?
        };
        if writer.is_none() {
            bag.compare_with(&metadata)?;
            // Until a repair has given it its end.
            let mark = metadata.custom_data.get_key_value(STATE_KEY);
            let mark = mark.map(|(key, value)| (key.clone(), value.clone()));
            bag.metadata.custom_data.extend(mark);
            // No file has what a ring removed.
            let expired = ExpiredFiles::of(&metadata.custom_data);
            let expired = expired.and_then(|files| files.entry());
            bag.metadata.custom_data.extend(expired);
            let notice = format!(
                "{}: its recording was not ended; what its files hold is shown instead of {METADATA_FILE}",
                path.display()
            );
            bag.notices.insert(0, notice);
        }
        bag.notices.extend(rescued);
        Ok(bag)
    }

    /// Compares the contents of the files with their metadata.
    fn compare_with(&mut self, said: &BagMetadata) -> Result<(), ReadError> {
        let gone = Gone::between(said, self)?;
        self.notices.extend(gone.notices(&self.path));
        self.gone = Arc::new(gone);
        Ok(())
    }

    /// As [`Bag::open_locked`], for a tool that writes the metadata anew: of the bag's own files what they hold now, and what of the
    /// metadata no file has. The bag is as described when nothing of the metadata is wrong.
    pub fn open_to_describe(path: &Path) -> Result<(Self, bool), ReadError> {
        let opened = match Self::open_locked(path) {
            Err(error @ ReadError::NotOfBag { .. }) => return Err(error),
            opened => opened,
        };
        let said = read_metadata(&path.join(METADATA_FILE)).ok();
        let is_ended = |said: &BagMetadata| {
            !said.custom_data.contains_key(STATE_KEY) && !said.relative_file_paths.is_empty()
        };
        let Some(said) = said.filter(is_ended) else {
            return Ok((opened?, false));
        };
        let files = present_files(path, &said);
        let Ok(mut bag) = Self::rebuilt(path, &files, Ros1View::default(), None) else {
            return Ok((opened?, false));
        };
        if bag.files.is_empty() {
            return Ok((opened?, false));
        }
        bag.compare_with(&said)?;
        let indexed = bag.stored_metadata().message_count;
        // Messages that the index of a damaged file has and that cannot be read were left out.
        let is_counted = match said.custom_data.contains_key(DAMAGED_KEY) {
            true => said.message_count <= indexed,
            false => said.message_count == indexed,
        };
        let is_described =
            opened.is_ok_and(|opened| opened.notices.is_empty()) && bag.gone.is_none() && is_counted;
        for (key, value) in said.custom_data {
            bag.metadata.custom_data.entry(key).or_insert(value);
        }
        bag.metadata.ros_distro = bag.metadata.ros_distro.or(said.ros_distro);
        let is_described = is_described && bag.has_own_sums()?;
        Ok((bag, is_described))
    }

    pub(super) fn from_metadata(path: &Path, metadata: BagMetadata) -> Result<Self, ReadError> {
        let unsupported = |what: String, reason: &str| ReadError::Unsupported {
            path: path.to_owned(),
            what,
            reason: reason.to_owned(),
        };
        let payloads = payloads(&metadata).map_err(|reason| {
            let what = format!("a bag with compression {:?}", metadata.compression_format);
            unsupported(what, &reason)
        })?;
        let files = named_files(path, &metadata, payloads)?;
        remote::expect_in_order(files.iter().map(|file| file.path.as_path()));
        // In a bucket each end is a request: the first and the last are checked, the others when they are read.
        let is_checked = |place: usize| !remote::is_remote(path) || place == 0 || place + 1 == files.len();
        let checked = files.iter().enumerate().filter(|(place, _)| is_checked(*place));
        let custom_data = &metadata.custom_data;
        let is_ended = !custom_data.contains_key(STATE_KEY) && !custom_data.contains_key(REPAIRED_KEY);
        let notices = checked.filter_map(|(_, file)| file.cut_short(is_ended)).collect();
        let repeats = repeats_from_custom_data(&metadata.custom_data);
        Ok(Self {
            path: path.to_owned(),
            metadata,
            files,
            repeats,
            notices,
            gone: Arc::default(),
            writer: None,
            bounds: (None, None),
            folders: Arc::default(),
        }
        .with_copies_once())
    }

    /// As [`Self::rebuild_of`], with the messages that a killed recorder left in memory, and a notice of them.
    pub(super) fn rebuild_with_rescued(
        path: &Path,
        listed: &[PathBuf],
        view: Ros1View,
    ) -> Result<(Rebuild, Option<String>), ReadError> {
        let mut rebuild = Rebuild::new(view);
        for file in listed {
            rebuild.add(path, file, false)?;
        }
        let rescued = rescue::as_reader(path, rebuild.files());
        let notice = match rescued {
            Ok(Some(memory)) => {
                let count = memory.reader.summary().message_count;
                rebuild.add_in_memory(path, memory);
                Some(format!(
                    "{}: its recorder was killed; memory has {} that its files do not have, which can be read until \
                     `holdall repair` writes it to the bag or the machine is turned off",
                    path.display(),
                    counted(count, "message")
                ))
            }
            Ok(None) => None,
            Err(error) => Some(format!("messages in memory cannot be read: {error}")),
        };
        Ok((rebuild, notice))
    }

    /// The bag of a recording that ended, or is, before its first write: it has no message yet.
    pub(super) fn unwritten(path: &Path, mut metadata: BagMetadata, writer: Option<Holder>) -> Self {
        metadata.files.clear();
        metadata.message_count = 0;
        Self {
            path: path.to_owned(),
            metadata,
            files: Vec::new(),
            repeats: BagRepeats::new(),
            notices: writer
                .map(|writer| live_notice(path, writer))
                .into_iter()
                .collect(),
            gone: Arc::default(),
            writer,
            bounds: (None, None),
            folders: Arc::default(),
        }
    }

    pub(super) fn rebuilt(
        path: &Path,
        listed: &[PathBuf],
        view: Ros1View,
        writer: Option<Holder>,
    ) -> Result<Self, ReadError> {
        Self::from_rebuild(path, Self::rebuild_of(path, listed, view, writer)?, writer)
    }

    /// Asks each storage file for its contents. A torn end is not damage in a file that a recorder is still writing.
    pub(super) fn rebuild_of(
        path: &Path,
        listed: &[PathBuf],
        view: Ros1View,
        writer: Option<Holder>,
    ) -> Result<Rebuild, ReadError> {
        remote::expect_in_order(listed.iter().map(PathBuf::as_path));
        let mut rebuild = Rebuild::new(view);
        for file in listed {
            let is_written = writer.is_some() && writer_of_bag(file).is_some();
            rebuild.add(path, file, is_written)?;
        }
        Ok(rebuild)
    }

    pub(super) fn from_rebuild(
        path: &Path,
        rebuild: Rebuild,
        writer: Option<Holder>,
    ) -> Result<Self, ReadError> {
        let repeats = rebuild.repeats().clone();
        let (metadata, files, mut notices) = rebuild.finish()?;
        if let Some(writer) = writer {
            notices.insert(0, live_notice(path, writer));
        }
        Ok(Self {
            path: path.to_owned(),
            metadata,
            files,
            repeats,
            notices,
            gone: Arc::default(),
            writer,
            bounds: (None, None),
            folders: Arc::default(),
        }
        .with_copies_once())
    }
}

fn live_notice(path: &Path, writer: Holder) -> String {
    format!(
        "{} is being recorded by {writer}; what it holds now is read",
        path.display()
    )
}
