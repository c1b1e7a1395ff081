//! The connection to a producer: connecting, sending the request and receiving the reply before a deadline.

use super::ticket_errors::{connection_closed, connection_failed, stale};
use crate::errors::{other_user, producer_timed_out, protocol_error, system_error, ticket_rejected};
use crate::protocol::{FrameKind, HEADER_BYTES, MAX_MEMORIES, Reply, read_header};
use crate::socket;
use crate::ticket::{Ticket, is_producer_alive};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::os::fd::OwnedFd;
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
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map_err(|error| system_error("cannot create a socket", error))?;
    let failed = |error| system_error("cannot connect to the producer", error);
    let address = SocketAddrUnix::new(ticket.path()).map_err(failed)?;
    loop {
        let Err(error) = rustix::net::connect(&socket, &address) else { return Ok(socket) };
        match error {
            Errno::ISCONN => return Ok(socket),
            Errno::INTR => (deadline.check_cancelled)()?,
            // The producer's queue is full, and no event tells when it is not.
            Errno::AGAIN => {
                deadline.remaining()?;
                thread::sleep(CONNECT_RETRY_PAUSE);
                (deadline.check_cancelled)()?;
            }
            Errno::NOENT | Errno::CONNREFUSED | Errno::NOTDIR if !is_producer_alive(ticket) => {
                return Err(stale(ticket));
            }
            Errno::NOENT | Errno::CONNREFUSED | Errno::NOTDIR => {
                let fact = format!("{ticket} is unreachable: its producer no longer listens");
                return Err(ticket_rejected(fact));
            }
            Errno::ACCESS | Errno::PERM => {
                return Err(other_user(format!("{ticket} belongs to another user")));
            }
            _ => return Err(failed(error)),
        }
    }
}

/// Waits until the connection can be read or written, or has ended.
fn wait(connection: &OwnedFd, events: PollFlags, deadline: &Deadline<'_>) -> Result<()> {
    loop {
        // A signal that arrives just before `poll` does not interrupt it, so every single wait is short.
        let remaining = deadline.remaining()?.unwrap_or(CANCEL_CHECK_INTERVAL).min(CANCEL_CHECK_INTERVAL);
        // Rounded up, so that the deadline has passed when the last wait returns.
        let wait = Timespec { tv_sec: 0, tv_nsec: (remaining.as_millis() as i64 + 1) * 1_000_000 };
        match rustix::event::poll(&mut [PollFd::new(connection, events)], Some(&wait)) {
            Ok(0) | Err(Errno::INTR) => (deadline.check_cancelled)()?,
            Ok(_) => return Ok(()),
            Err(error) => return Err(system_error("cannot wait for the producer", error)),
        }
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
        match socket::send(connection, bytes, &[]) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => wait(connection, PollFlags::OUT, deadline)?,
            // A producer may reject a consumer before it has read the request. Its reply can still be received.
            Err(Errno::PIPE | Errno::CONNRESET) => return Ok(()),
            Err(error) => return Err(connection_failed(ticket, error)),
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
            match socket::receive(connection, &mut bytes[filled..], descriptors) {
                Ok(0) => return Err(connection_closed(ticket)),
                Ok(count) => filled += count,
                Err(Errno::INTR) => {}
                // Most replies arrive sooner than a sleeping thread wakes up.
                Err(Errno::AGAIN) if begin.elapsed() < YIELD_TIME => thread::yield_now(),
                Err(Errno::AGAIN) => wait(connection, PollFlags::IN, deadline)?,
                Err(error) => return Err(connection_failed(ticket, error)),
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
