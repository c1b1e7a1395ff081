//! A file that appears complete or not at all.
//!
//! # Guarantees
//!
//! - Until [`AtomicFile::commit`] succeeds, the target is unchanged: the old file, or none. A crash, a full disk or an error
//!   does not change it. Readers see the old file or the new one, never a part.
//! - Without a commit nothing is left behind. The new file has no name while it is written (`O_TMPFILE`), so that even a
//!   process that is killed meanwhile leaves nothing. Linux cannot replace a file by one without a name: `commit` gives the
//!   complete file a hidden name, `.tensorferry-...`, and renames it. A process that is killed between these two calls leaves
//!   the hidden file. File systems without `O_TMPFILE` (network file systems, overlays of old kernels) need the hidden name
//!   from the start.
//! - With `durable`, the bytes of the file and then the entry of the folder have reached the disk when `commit` returns. A
//!   machine that loses power has the old file or the new one.
//! - The permissions of an existing file are kept, and its owner where the system allows it. A file without write permission
//!   is not replaced, although the folder would allow it.
//! - If the target is a symbolic link, the file that it points to is replaced, and the link stays. Other hard links keep the
//!   old file.

use crate::errors::{invalid_argument, io_error};
use crate::hints;
use rustix::fs::{Access, AtFlags, CWD, accessat, linkat};
use std::collections::hash_map::RandomState;
use std::fs::{self, File, Metadata, OpenOptions};
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tensorferry_core::Result;

/// The limit on symbolic links that are followed, which is the kernel's.
const MAX_SYMBOLIC_LINKS: usize = 40;

/// A new file that does not have its name yet.
#[derive(Debug)]
pub(super) struct AtomicFile {
    file: File,
    target: PathBuf,
    folder: PathBuf,
    /// The file that is replaced.
    old: Option<Metadata>,
    /// The temporary name, if the file has one.
    temporary: Option<PathBuf>,
}

impl AtomicFile {
    pub(super) fn create(path: &Path) -> Result<Self> {
        let fail = |error: io::Error| io_error(&path.display().to_string(), &error);
        let target = resolve_links(path).map_err(fail)?;
        let old = match fs::symlink_metadata(&target) {
            Ok(old) => Some(old),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(fail(error)),
        };
        if old.as_ref().is_some_and(|old| !old.is_file()) || target.file_name().is_none() {
            return Err(invalid_argument(
                format!("{} exists and is not a regular file", path.display()),
                hints::PASS_REGULAR_FILE,
            ));
        }
        if old.is_some() {
            check_writable(&target).map_err(fail)?;
        }
        let folder = match target.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
            _ => PathBuf::from("."),
        };
        let (file, temporary) = match create_unnamed(&folder) {
            Ok(file) => (file, None),
            Err(_) => {
                create_hidden(&folder).map(|(file, path)| (file, Some(path))).map_err(|error| match error
                    .kind()
                {
                    io::ErrorKind::NotFound => {
                        fail(error).with_hint_value(hints::CREATE_FOLDER, folder.display().to_string())
                    }
                    _ => fail(error),
                })?
            }
        };
        Ok(Self { file, target, folder, old, temporary })
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Whether the target existed.
    pub(super) fn replaces(&self) -> bool {
        self.old.is_some()
    }

    /// Gives the file its name.
    pub(super) fn commit(mut self, durable: bool) -> Result<()> {
        let target = self.target.display().to_string();
        self.publish(durable).map_err(|error| io_error(&target, &error))
    }

    fn publish(&mut self, durable: bool) -> io::Result<()> {
        if let Some(old) = &self.old {
            let new = self.file.metadata()?;
            if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
                // Only a privileged process may change the owner; for others a failure is fine.
                let _ = std::os::unix::fs::fchown(&self.file, Some(old.uid()), Some(old.gid()));
            }
            self.file.set_permissions(fs::Permissions::from_mode(old.mode() & 0o7777))?;
        }
        if durable {
            self.file.sync_all()?;
        }
        let is_linked =
            self.temporary.is_none() && self.old.is_none() && link(&self.file, &self.target).is_ok();
        if !is_linked {
            if self.temporary.is_none() {
                self.temporary = Some(self.link_hidden()?);
            }
            if let Some(temporary) = &self.temporary {
                fs::rename(temporary, &self.target)?;
                self.temporary = None;
            }
        }
        if durable {
            match File::open(&self.folder)?.sync_all() {
                // Some file systems order changes of folders themselves and do not support this call.
                Err(error) if !matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOTSUP)) => {
                    return Err(error);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Gives an unnamed file a hidden name in the target's folder.
    fn link_hidden(&self) -> io::Result<PathBuf> {
        loop {
            let path = self.folder.join(hidden_name());
            match link(&self.file, &path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
                Ok(()) => return Ok(path),
            }
        }
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            let _ = fs::remove_file(temporary);
        }
    }
}

/// The target of symbolic links, whether it exists or not.
fn resolve_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MAX_SYMBOLIC_LINKS {
        match fs::read_link(&path) {
            Ok(next) => path = path.parent().unwrap_or(Path::new("")).join(next),
            // Not a link, or it does not exist.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOENT)) => {
                return Ok(path);
            }
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::from_raw_os_error(libc::ELOOP))
}

/// Checks that this process may open an existing file for writing.
fn check_writable(path: &Path) -> io::Result<()> {
    Ok(accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS)?)
}

fn descriptor_path(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// An unnamed file, on file systems that support `O_TMPFILE` and where it can be linked later.
fn create_unnamed(folder: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .mode(0o666)
        .custom_flags(libc::O_TMPFILE | libc::O_CLOEXEC)
        .open(folder)?;
    fs::metadata(descriptor_path(&file))?;
    Ok(file)
}

/// A file with a new hidden name.
fn create_hidden(folder: &Path) -> io::Result<(File, PathBuf)> {
    loop {
        let path = folder.join(hidden_name());
        match OpenOptions::new().read(true).write(true).create_new(true).mode(0o666).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
            Ok(file) => return Ok((file, path)),
        }
    }
}

/// A random hidden name. Its length does not depend on the target's, which may be the longest allowed.
fn hidden_name() -> String {
    // The standard library seeds its hash maps at random.
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    format!(".tensorferry-{:016x}", hasher.finish())
}

/// Gives an unnamed file a name.
fn link(file: &File, path: &Path) -> io::Result<()> {
    Ok(linkat(CWD, descriptor_path(file), CWD, path, AtFlags::SYMLINK_FOLLOW)?)
}
