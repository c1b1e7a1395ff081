//! The connection to a producer: connecting, sending the request and receiving the reply before a deadline.

use super::ticket_errors::{connection_closed, connection_failed, stale};
use crate::errors::{
    last_system_error, other_user, producer_timed_out, protocol_error, system_error, ticket_rejected,
};
use crate::protocol::{FrameKind, HEADER_BYTES, MAX_MEMORIES, Reply, read_header};
use crate::socket;
use crate::ticket::{Ticket, is_producer_alive};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::thread;
use std::time::{Duration, Instant};
use tensorferry_core::Result;
use tensorferry_core::fallible::try_reserve;

/// The first allocation for the body. Later ones double, so a peer that announces more than it sends wastes little
/// memory.
const FIRST_READ_BYTES: usize = 64 << 10;
/// How long a consumer yields instead of sleeping while it waits for the reply.
const YIELD_TIME: Duration = Duration::from_micros(200);
/// How long one wait lasts at most before the caller is asked whether to cancel.
const CANCEL_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// The pause before connecting again if the producer's queue is full.
const CONNECT_RETRY_PAUSE: Duration = Duration::from_millis(1);

/// The deadline of a call, and how the caller cancels it.
pub(super) struct Deadline<'a> {
    timeout: Duration,
    end: Option<Instant>,
    check_cancelled: &'a dyn Fn() -> Result<()>,
}

impl<'a> Deadline<'a> {
    pub(super) fn new(timeout: Duration, check_cancelled: &'a dyn Fn() -> Result<()>) -> Self {
        Self { timeout, end: Instant::now().checked_add(timeout), check_cancelled }
    }

    /// The time that is left; an error if none is.
    fn remaining(&self) -> Result<Option<Duration>> {
        let remaining = self.end.map(|end| end.saturating_duration_since(Instant::now()));
        if remaining.is_some_and(|remaining| remaining.is_zero()) {
            Err(producer_timed_out(self.timeout))
        } else {
            Ok(remaining)
        }
    }
}

/// Connects to the producer of a ticket.
pub(super) fn connect(ticket: &Ticket, deadline: &Deadline<'_>) -> Result<OwnedFd> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: the call creates a descriptor and accesses no memory.
    let socket = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
    if socket < 0 {
        return Err(last_system_error("cannot create a socket"));
    }
    // SAFETY: the call just created the descriptor, and nothing else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    // SAFETY: all fields are integers, for which zero is valid.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // The path of a ticket is shorter than this array, whose last byte stays zero.
    for (to, &from) in address.sun_path.iter_mut().zip(ticket.path().as_os_str().as_bytes()) {
        *to = from as libc::c_char;
    }
    let length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    loop {
        // SAFETY: the address lives until the call returns, and has that length.
        let status = unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length) };
        if status == 0 {
            return Ok(socket);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EISCONN) => return Ok(socket),
            Some(libc::EINTR) => (deadline.check_cancelled)()?,
            // The producer's queue is full, and no event tells when it is not.
            Some(libc::EAGAIN) => {
                deadline.remaining()?;
                thread::sleep(CONNECT_RETRY_PAUSE);
                (deadline.check_cancelled)()?;
            }
            Some(libc::ENOENT | libc::ECONNREFUSED | libc::ENOTDIR) if !is_producer_alive(ticket) => {
                return Err(stale(ticket));
            }
            Some(libc::ENOENT | libc::ECONNREFUSED | libc::ENOTDIR) => {
                let fact = format!("{ticket} is unreachable: its producer no longer listens");
                return Err(ticket_rejected(fact));
            }
            Some(libc::EACCES | libc::EPERM) => {
                return Err(other_user(format!("{ticket} belongs to another user")));
            }
            _ => return Err(system_error("cannot connect to the producer", &error)),
        }
    }
}

/// Waits until the connection can be read or written, or has ended.
fn wait(connection: &OwnedFd, events: i16, deadline: &Deadline<'_>) -> Result<()> {
    loop {
        // A signal that arrives just before `poll` does not interrupt it, so every single wait is short.
        let remaining = deadline.remaining()?.unwrap_or(CANCEL_CHECK_INTERVAL).min(CANCEL_CHECK_INTERVAL);
        let milliseconds = i32::try_from(remaining.as_millis() + 1).unwrap_or(i32::MAX);
        let mut poll = libc::pollfd { fd: connection.as_raw_fd(), events, revents: 0 };
        // SAFETY: one struct, which lives until the call returns.
        let status = unsafe { libc::poll(&raw mut poll, 1, milliseconds) };
        if status > 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if status < 0 && error.kind() != io::ErrorKind::Interrupted {
            return Err(system_error("cannot wait for the producer", &error));
        }
        (deadline.check_cancelled)()?;
    }
}

/// Sends all bytes.
pub(super) fn send(
    connection: &OwnedFd,
    mut bytes: &[u8],
    deadline: &Deadline<'_>,
    ticket: &Ticket,
) -> Result<()> {
    while !bytes.is_empty() {
        match socket::send(connection.as_raw_fd(), bytes, &[]) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait(connection, libc::POLLOUT, deadline)?;
            }
            // A producer may reject a consumer before it has read the request. Its reply can still be received.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EPIPE | libc::ECONNRESET)) => {
                return Ok(());
            }
            Err(error) => return Err(connection_failed(ticket, &error)),
        }
    }
    Ok(())
}

/// Receives the reply, and appends its descriptors.
pub(super) fn receive(
    connection: &OwnedFd,
    descriptors: &mut Vec<OwnedFd>,
    deadline: &Deadline<'_>,
    ticket: &Ticket,
) -> Result<Reply> {
    let begin = Instant::now();
    let mut fill = |bytes: &mut [u8]| {
        let mut filled = 0;
        while filled < bytes.len() {
            match socket::receive(connection.as_raw_fd(), &mut bytes[filled..], descriptors) {
                Ok(0) => return Err(connection_closed(ticket)),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Most replies arrive sooner than a sleeping thread wakes up.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && begin.elapsed() < YIELD_TIME => {
                    thread::yield_now();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    wait(connection, libc::POLLIN, deadline)?;
                }
                Err(error) => return Err(connection_failed(ticket, &error)),
            }
            if descriptors.len() > MAX_MEMORIES {
                let fact = format!("the producer sent more than {MAX_MEMORIES} descriptors");
                return Err(protocol_error(fact));
            }
        }
        Ok(())
    };
    let mut header = [0; HEADER_BYTES];
    fill(&mut header)?;
    let length = read_header(&header, FrameKind::Reply)?;
    let mut body = Vec::new();
    while body.len() < length {
        let start = body.len();
        let end = length.min(start + FIRST_READ_BYTES.max(start));
        try_reserve(&mut body, end - start)?;
        body.resize(end, 0);
        fill(&mut body[start..])?;
    }
    Reply::read(&body)
}
