//! A file that appears whole or not at all.
//!
//! # What it promises
//!
//! - Until [`Atomic::commit`] has succeeded, the target is what it was: the old file, or none. A crash, a full disk or an
//!   error leaves it so. Readers see the old file or the new one, never a part.
//! - Without a commit nothing is left behind. The new file has no name while it is written (`O_TMPFILE`), so that even a
//!   process that is killed leaves nothing, but on file systems that cannot do that (network file systems, overlays of old
//!   kernels) it has a hidden name, `.tensorferry-...`, which a killed process does leave.
//! - With `durable`, the file's bytes and the folder's entry have reached the disk when `commit` is back, in that order: a
//!   machine that loses power has the old file or the new one.
//! - An existing file's permissions are kept, and its owner where the system lets us. A file that may not be written is not
//!   replaced, although the folder would allow it.
//! - If the target is a symbolic link, what it points to is replaced, and the link stays. Other hard links to an old file
//!   keep the old one.

use crate::fault::{failed, wrong};
use std::collections::hash_map::RandomState;
use std::ffi::CString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tensorferry_core::Result;

/// A new file on its way to its name.
#[derive(Debug)]
pub(crate) struct Atomic {
    file: File,
    target: PathBuf,
    folder: PathBuf,
    old: Option<Metadata>,
    /// Its name for the time being, if it has one.
    temporary: Option<PathBuf>,
}

impl Atomic {
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let fail = |error: io::Error| failed(&path.display().to_string(), &error);
        let target = follow(path).map_err(fail)?;
        let old = match fs::symlink_metadata(&target) {
            Ok(old) => Some(old),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(fail(error)),
        };
        if old.as_ref().is_some_and(|old| !old.is_file()) || target.file_name().is_none() {
            return Err(wrong(
                format!("{} is there, and is no regular file", path.display()),
                "pass the path of a file",
            ));
        }
        if old.is_some() {
            may_write(&target).map_err(fail)?;
        }
        let folder = match target.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
            _ => PathBuf::from("."),
        };
        let (file, temporary) = match nameless(&folder) {
            Ok(file) => (file, None),
            Err(_) => named(&folder).map(|(file, path)| (file, Some(path))).map_err(fail)?,
        };
        Ok(Self { file, target, folder, old, temporary })
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Whether there was a file of that name.
    pub(crate) fn replaces(&self) -> bool {
        self.old.is_some()
    }

    /// Gives the file its name.
    pub(crate) fn commit(mut self, durable: bool) -> Result<()> {
        let doing = self.target.display().to_string();
        self.settle(durable).map_err(|error| failed(&doing, &error))
    }

    fn settle(&mut self, durable: bool) -> io::Result<()> {
        if let Some(old) = &self.old {
            let new = self.file.metadata()?;
            if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
                // Only a privileged process may give files away; for others the new owner is fine.
                let _ = std::os::unix::fs::fchown(&self.file, Some(old.uid()), Some(old.gid()));
            }
            self.file.set_permissions(fs::Permissions::from_mode(old.mode() & 0o7777))?;
        }
        if durable {
            self.file.sync_all()?;
        }
        let placed = self.temporary.is_none() && self.old.is_none() && link(&self.file, &self.target).is_ok();
        if !placed {
            if self.temporary.is_none() {
                self.temporary = Some(self.link_beside()?);
            }
            if let Some(temporary) = &self.temporary {
                fs::rename(temporary, &self.target)?;
                self.temporary = None;
            }
        }
        if durable {
            match File::open(&self.folder)?.sync_all() {
                // Some file systems keep folders in order by themselves, and say that there is nothing to do.
                Err(error) if !matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOTSUP)) => {
                    return Err(error);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Gives a nameless file a name in the target's folder.
    fn link_beside(&self) -> io::Result<PathBuf> {
        loop {
            let path = self.folder.join(unique());
            match link(&self.file, &path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
                Ok(()) => return Ok(path),
            }
        }
    }
}

impl Drop for Atomic {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            let _ = fs::remove_file(temporary);
        }
    }
}

/// The path behind symbolic links, whether it exists or not.
fn follow(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..40 {
        match fs::read_link(&path) {
            Ok(next) => path = path.parent().unwrap_or(Path::new("")).join(next),
            // Not a link, or not there.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOENT)) => {
                return Ok(path);
            }
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::from_raw_os_error(libc::ELOOP))
}

fn c_string(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// Whether an existing file may be written, as if it were to be opened for that.
fn may_write(path: &Path) -> io::Result<()> {
    let path = c_string(path)?;
    // SAFETY: a string that ends with zero; nothing is kept.
    match unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::W_OK, libc::AT_EACCESS) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn descriptor_path(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// A file without a name, on file systems that have such and where it can be given one later.
fn nameless(folder: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .mode(0o666)
        .custom_flags(libc::O_TMPFILE | libc::O_CLOEXEC)
        .open(folder)?;
    fs::metadata(descriptor_path(&file))?;
    Ok(file)
}

/// A file under a name that nobody has.
fn named(folder: &Path) -> io::Result<(File, PathBuf)> {
    loop {
        let path = folder.join(unique());
        match OpenOptions::new().read(true).write(true).create_new(true).mode(0o666).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
            Ok(file) => return Ok((file, path)),
        }
    }
}

/// A name that is not taken, in all likelihood. Its length does not depend on the target's, which may be the longest allowed.
fn unique() -> String {
    // The standard library's hash maps are seeded at random.
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    format!(".tensorferry-{:016x}", hasher.finish())
}

fn link(file: &File, path: &Path) -> io::Result<()> {
    let from = c_string(Path::new(&descriptor_path(file)))?;
    let to = c_string(path)?;
    // SAFETY: two strings that end with zero; nothing is kept.
    let status = unsafe {
        libc::linkat(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), libc::AT_SYMLINK_FOLLOW)
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
