//! The private directory of a producer's socket.
//!
//! Its name identifies the producer (`tensorferry-NAMESPACE-PROCESS-START-RANDOM`), so that the next producer can
//! remove the directories of processes that were killed. Process ids are unique only within one pid namespace (a
//! container has its own), so directories of other namespaces are not touched.

use crate::errors::system_error;
use crate::hints;
use crate::system;
use crate::ticket::MAX_PATH_BYTES;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use tensorferry_core::Result;

const SOCKET_NAME: &str = "socket";

/// A directory with mode 0700, removed when this is dropped in the process that created it.
#[derive(Debug)]
pub(super) struct SocketDir {
    path: PathBuf,
    process: u32,
}

impl SocketDir {
    /// Creates a directory for this process, whose start time is `start`.
    pub(super) fn new(start: u64) -> Result<Self> {
        let process = system::process_id();
        let mut last_error = io::Error::from(io::ErrorKind::NotFound);
        for base in base_dirs() {
            remove_stale(&base);
            let random = u64::from_le_bytes(system::random_bytes()?);
            let path = base.join(format!("tensorferry-{}-{process}-{start}-{random:016x}", pid_namespace()));
            if path.as_os_str().len() + 1 + SOCKET_NAME.len() > MAX_PATH_BYTES {
                continue;
            }
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self { path, process }),
                Err(error) => last_error = error,
            }
        }
        let error = system_error("cannot create a private directory for the socket", last_error);
        Err(error.with_hint(hints::MAKE_SOCKET_DIR_WRITABLE))
    }

    /// The path of the socket.
    pub(super) fn socket_path(&self) -> PathBuf {
        self.path.join(SOCKET_NAME)
    }
}

impl Drop for SocketDir {
    fn drop(&mut self) {
        if self.process == system::process_id() {
            remove(&self.path);
        }
    }
}

/// Removes the socket, and the directory if it contains nothing else.
fn remove(path: &Path) {
    let _ = fs::remove_file(path.join(SOCKET_NAME));
    let _ = fs::remove_dir(path);
}

/// The directories in which a socket directory may be created, in order of preference.
fn base_dirs() -> Vec<PathBuf> {
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| {
        path.is_absolute()
            && fs::metadata(path).is_ok_and(|data| data.is_dir() && data.uid() == system::user_id())
    });
    own.into_iter().chain([PathBuf::from("/tmp")]).collect()
}

/// The pid namespace of this process; zero if the system does not tell.
fn pid_namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map(|data| data.ino()).unwrap_or(0)
}

/// Removes the directories of processes that have ended.
fn remove_stale(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else { return };
    let own = pid_namespace();
    for entry in entries.flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(owner_of);
        let Some((namespace, process, start)) = owner else { continue };
        let is_ours = || {
            entry.path().symlink_metadata().is_ok_and(|data| data.is_dir() && data.uid() == system::user_id())
        };
        // A process whose start time cannot be read may be running.
        let has_ended = || system::start_time(process).is_ok_and(|found| found != Some(start));
        if namespace == own && has_ended() && is_ours() {
            remove(&entry.path());
        }
    }
}

/// Parses pid namespace, process id and start time from the name of a directory.
fn owner_of(name: &str) -> Option<(u64, u32, u64)> {
    let mut parts = name.strip_prefix("tensorferry-")?.split('-');
    let owner = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    (parts.next()?.len() == 16 && parts.next().is_none()).then_some(owner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_of_ended_processes_are_removed() {
        let base = std::env::temp_dir().join(format!("tensorferry-test-{}", system::process_id()));
        fs::create_dir_all(&base).unwrap();
        let (own, process) = (pid_namespace(), system::process_id());
        let start = system::start_time(process).unwrap().unwrap();
        let make = |name: String| {
            let path = base.join(name);
            fs::create_dir(&path).unwrap();
            fs::write(path.join(SOCKET_NAME), "").unwrap();
            path
        };
        let dead = make(format!("tensorferry-{own}-{process}-{}-0123456789abcdef", start + 1));
        let others = [
            make(format!("tensorferry-{own}-{process}-{start}-0123456789abcdef")),
            make(format!("tensorferry-{}-4000000000-1-0123456789abcdef", own + 1)),
            make("tensorferry-other-things".into()),
            make(format!("tensorferry-{own}-4000000000-1-0123456789abcdef-x")),
        ];
        remove_stale(&base);
        assert!(!dead.exists() && others.iter().all(|path| path.join(SOCKET_NAME).exists()));
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn a_directory_is_private_and_removed() {
        let dir = SocketDir::new(system::start_time(system::process_id()).unwrap().unwrap()).unwrap();
        let path = dir.path.clone();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        fs::write(dir.socket_path(), "").unwrap();
        drop(dir);
        assert!(!path.exists());
    }
}
