//! Whole-file operations for everything that is not recorded data; every error names its path.

mod beneath;
mod dir;
mod file;
mod file_system;
mod name;
mod removal;
#[cfg(test)]
mod tests;
mod watch;
mod whole;

pub use beneath::{Beneath, StoredFile, is_given};
pub(crate) use beneath::{pinned, pinned_name};
pub use dir::{
    DirEntry, create_dir_new, create_dir_unsynced, create_dirs, create_private_dir, list_dir, list_dir_up_to,
    list_objects, remove_dir_all, remove_empty_dir, sync_dir,
};
pub use file::{EditedFile, File};
pub use file_system::FileSystem;
pub use name::{
    About, ChangeStamp, FileNumbers, Kind, about, about_name, available_bytes, change_stamp, exists,
    file_len, file_numbers, folder_of_others, is_changed_by_us_only, is_dir, is_file, is_link,
    is_private_dir, make_private, modified_ns, remove_file, rename_new, rename_over,
};
pub(crate) use removal::HeldFolder;
pub use removal::{remove_regular_file, remove_that_file};
pub use watch::{FolderNews, FolderWatch};
pub use whole::{
    append, begins_with_zeros, convert_file, copy_new, copy_to, create_for_others, download, forget_cached,
    is_stored_sealed, is_unwritten, make_durable, read, read_any_to_string, read_private_to_string,
    read_to_string, trim_unwritten, truncate, write_atomically, write_atomically_unsynced,
    write_atomically_with_room, write_new, write_over, write_private_new,
};

use crate::{
    disk::{DiskError, Operation},
    os,
};
use std::path::Path;

fn sync_parent(path: &Path) -> Result<(), DiskError> {
    os::sync_directory_of(path).map_err(|source| DiskError::new(path, Operation::Sync, source))
}
