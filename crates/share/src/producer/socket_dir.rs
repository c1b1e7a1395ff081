//! The private folder in which a producer's socket lies.
//!
//! Its name says whose it is (`tensorferry-NAMESPACE-PROCESS-START-RANDOM`), so that what a killed process left behind is
//! known for what it is: the next producer removes the folders whose process is dead. Numbers of processes mean something
//! only within one namespace of them (a container has its own), so that others' folders are left alone.

use crate::errors::failed;
use crate::system;
use crate::ticket::LONGEST_PATH;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use tensorferry_core::Result;

const SOCKET: &str = "socket";

/// A folder that nobody else can enter, removed when this is dropped in the process that made it.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    process: u32,
}

impl Folder {
    /// A new one, for a process that began at `start`.
    pub(crate) fn new(start: u64) -> Result<Self> {
        let process = system::process();
        let mut refusal = io::Error::from(io::ErrorKind::NotFound);
        for base in bases() {
            sweep(&base);
            let random = u64::from_le_bytes(system::random()?);
            let path = base.join(format!("tensorferry-{}-{process}-{start}-{random:016x}", namespace()));
            if path.as_os_str().len() + 1 + SOCKET.len() > LONGEST_PATH {
                continue;
            }
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self { path, process }),
                Err(error) => refusal = error,
            }
        }
        let error = failed("a private folder for the socket cannot be made", &refusal);
        Err(error.with_advice("see that $XDG_RUNTIME_DIR or /tmp can be written"))
    }

    /// Where the socket lies.
    pub(crate) fn socket(&self) -> PathBuf {
        self.path.join(SOCKET)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.process == system::process() {
            remove(&self.path);
        }
    }
}

/// Removes what can be in such a folder, and the folder if nothing else was.
fn remove(path: &Path) {
    let _ = fs::remove_file(path.join(SOCKET));
    let _ = fs::remove_dir(path);
}

/// Where folders may lie, the best first.
fn bases() -> Vec<PathBuf> {
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| {
        path.is_absolute()
            && fs::metadata(path).is_ok_and(|data| data.is_dir() && data.uid() == system::user())
    });
    own.into_iter().chain([PathBuf::from("/tmp")]).collect()
}

/// Among which processes a number means one; zero where the system does not tell.
fn namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map(|data| data.ino()).unwrap_or(0)
}

/// Removes the folders of processes that are dead.
fn sweep(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else { return };
    let own = namespace();
    for entry in entries.flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(owner_of);
        let Some((namespace, process, start)) = owner else { continue };
        let ours = || {
            entry.path().symlink_metadata().is_ok_and(|data| data.is_dir() && data.uid() == system::user())
        };
        if namespace == own && system::start_time(process) != Some(start) && ours() {
            remove(&entry.path());
        }
    }
}

/// Namespace, process and time of start out of a folder's name.
fn owner_of(name: &str) -> Option<(u64, u32, u64)> {
    let mut parts = name.strip_prefix("tensorferry-")?.split('-');
    let owner = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    (parts.next()?.len() == 16 && parts.next().is_none()).then_some(owner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_the_dead_are_removed_and_no_others() {
        let base = std::env::temp_dir().join(format!("tensorferry-test-{}", system::process()));
        fs::create_dir_all(&base).unwrap();
        let (own, process) = (namespace(), system::process());
        let start = system::start_time(process).unwrap();
        let make = |name: String| {
            let path = base.join(name);
            fs::create_dir(&path).unwrap();
            fs::write(path.join(SOCKET), "").unwrap();
            path
        };
        let dead = make(format!("tensorferry-{own}-{process}-{}-0123456789abcdef", start + 1));
        let others = [
            make(format!("tensorferry-{own}-{process}-{start}-0123456789abcdef")),
            make(format!("tensorferry-{}-4000000000-1-0123456789abcdef", own + 1)),
            make("tensorferry-other-things".into()),
            make(format!("tensorferry-{own}-4000000000-1-0123456789abcdef-x")),
        ];
        sweep(&base);
        assert!(!dead.exists() && others.iter().all(|path| path.join(SOCKET).exists()));
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn a_folder_is_private_and_goes() {
        let folder = Folder::new(system::start_time(system::process()).unwrap()).unwrap();
        let path = folder.path.clone();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        fs::write(folder.socket(), "").unwrap();
        drop(folder);
        assert!(!path.exists());
    }
}
