//! The listening socket of the server, in its private directory.

use super::epoll::{Epoll, LISTENER_TOKEN};
use super::socket_dir::SocketDir;
use crate::errors::system_error;
use rustix::event::epoll::EventFlags;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use tensorferry_core::Result;

/// A listening socket that is registered with epoll.
pub(super) struct Listener {
    pub(super) socket: OwnedFd,
    /// Whether epoll reports new connections.
    is_enabled: bool,
    _dir: SocketDir,
    pub(super) path: PathBuf,
}

impl Listener {
    /// Listens in a new directory. `start_time` is that of this process.
    pub(super) fn new(epoll: &Epoll, start_time: u64) -> Result<Self> {
        let dir = SocketDir::new(start_time)?;
        let failed = |error| system_error("cannot create the socket of the server", error);
        let path = dir.socket_path();
        let socket = UnixListener::bind(&path).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        let socket = socket.into();
        epoll.add(&socket, EventFlags::IN, LISTENER_TOKEN).map_err(failed)?;
        Ok(Self { socket, is_enabled: true, _dir: dir, path })
    }

    /// Enables or disables the report of new connections.
    pub(super) fn set_enabled(&mut self, epoll: &Epoll, is_enabled: bool) {
        if self.is_enabled != is_enabled {
            epoll.modify(
                &self.socket,
                if is_enabled { EventFlags::IN } else { EventFlags::empty() },
                LISTENER_TOKEN,
            );
            self.is_enabled = is_enabled;
        }
    }
}
