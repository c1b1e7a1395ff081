//! One consumer, as the producer sees it: asking, being answered, holding.

use crate::memory::Memory;
use crate::publication::Published;
use crate::reserve::no_descriptor;
use crate::socket::{self, MOST_AT_ONCE};
use crate::system;
use crate::wire::{HEAD, Kind, REQUEST, Reason, Reply, Request, read_head};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tensorferry_core::Access;

/// How long a consumer may take to say what it wants.
const TO_ASK: Duration = Duration::from_secs(5);
/// How long a consumer may take to read the answer.
const TO_READ: Duration = Duration::from_secs(30);

/// What one consumer was given, counted for as long as it lives.
pub(crate) struct Given(Arc<Published>);

impl Given {
    pub(crate) fn new(published: Arc<Published>) -> Self {
        published.uses.given.fetch_add(1, Ordering::AcqRel);
        Self(published)
    }
}

impl Given {
    pub(crate) fn published(&self) -> &Arc<Published> {
        &self.0
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        self.0.uses.given.fetch_sub(1, Ordering::AcqRel);
    }
}

enum Message {
    Refusal(Vec<u8>),
    HandOver { given: Given, descriptors: Vec<RawFd>, _own: Vec<OwnedFd> },
}

enum Stage {
    Asking { bytes: [u8; REQUEST], filled: usize, deadline: Instant },
    Answering { message: Message, sent: usize, handed: usize, deadline: Instant },
    Holding(Given),
    Done,
}

/// What a connection has come to.
pub(crate) enum Outcome {
    /// Nothing more can be done now.
    Waits,
    /// It has asked; `None` where that was nonsense.
    Asks(Option<Request>),
    /// It is over.
    Over,
}

/// A connection to a consumer.
pub(crate) struct Connection {
    socket: OwnedFd,
    stage: Stage,
}

impl Connection {
    pub(crate) fn new(socket: OwnedFd, now: Instant) -> Self {
        Self { socket, stage: Stage::Asking { bytes: [0; REQUEST], filled: 0, deadline: now + TO_ASK } }
    }

    pub(crate) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    pub(crate) fn into_socket(self) -> OwnedFd {
        self.socket
    }

    /// What the system is to wait for; the end of the connection it tells in any case.
    pub(crate) fn events(&self) -> i32 {
        match self.stage {
            Stage::Asking { .. } => libc::EPOLLIN,
            Stage::Answering { .. } => libc::EPOLLOUT,
            Stage::Holding(_) | Stage::Done => libc::EPOLLRDHUP,
        }
    }

    /// When patience ends.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self.stage {
            Stage::Asking { deadline, .. } | Stage::Answering { deadline, .. } => Some(deadline),
            Stage::Holding(_) | Stage::Done => None,
        }
    }

    pub(crate) fn is_silent(&self) -> bool {
        matches!(self.stage, Stage::Asking { .. })
    }

    /// Whether it holds memory.
    pub(crate) fn holds(&self) -> bool {
        match &self.stage {
            Stage::Answering { message, .. } => matches!(message, Message::HandOver { .. }),
            Stage::Holding(_) => true,
            Stage::Asking { .. } | Stage::Done => false,
        }
    }

    /// Whether some of that is memory of GPUs.
    pub(crate) fn holds_gpus(&self) -> bool {
        match &self.stage {
            Stage::Answering { message: Message::HandOver { given, .. }, .. } | Stage::Holding(given) => {
                given.0.has_gpus()
            }
            _ => false,
        }
    }

    /// What was meant for it and did not reach it.
    pub(crate) fn undelivered(&self) -> Option<&Arc<Published>> {
        match &self.stage {
            Stage::Answering { message: Message::HandOver { given, .. }, .. } => Some(&given.0),
            _ => None,
        }
    }

    /// Begins to answer.
    pub(crate) fn answer(&mut self, verdict: Result<Given, Reason>, now: Instant) {
        let message = match verdict.map_err(|reason| (reason, words(reason).to_owned())).and_then(hand_over) {
            Ok(message) => message,
            Err((reason, text)) => Message::Refusal(refusal(reason, &text)),
        };
        self.stage = Stage::Answering { message, sent: 0, handed: 0, deadline: now + TO_READ };
    }

    /// Reads or writes as far as that goes without waiting.
    pub(crate) fn advance(&mut self) -> Outcome {
        match &mut self.stage {
            Stage::Asking { bytes, filled, .. } => ask(&self.socket, bytes, filled),
            Stage::Answering { message, sent, handed, .. } => {
                match send(&self.socket, message, sent, handed) {
                    Ok(true) => {
                        let stage = std::mem::replace(&mut self.stage, Stage::Done);
                        if let Stage::Answering { message: Message::HandOver { given, .. }, .. } = stage {
                            given.0.uses.served.fetch_add(1, Ordering::AcqRel);
                            self.stage = Stage::Holding(given);
                            return Outcome::Waits;
                        }
                        Outcome::Over
                    }
                    Ok(false) => Outcome::Waits,
                    Err(_) => Outcome::Over,
                }
            }
            // There is nothing that it could say but that it goes.
            Stage::Holding(_) | Stage::Done => Outcome::Over,
        }
    }
}

/// What a consumer is told who is not let in.
fn words(reason: Reason) -> &'static str {
    match reason {
        Reason::Unknown => "the ticket was withdrawn, or never given out",
        Reason::Expired => "the ticket has expired",
        Reason::Used => "the ticket was used",
        Reason::Malformed => "the request cannot be read",
        Reason::Failed | Reason::NoDescriptor => "the producer cannot hand it over",
    }
}

/// A refusal, as it goes over the socket.
pub(crate) fn refusal(reason: Reason, text: &str) -> Vec<u8> {
    Reply::Refusal { reason, text: text.into() }.write().unwrap_or_default()
}

/// The message with its descriptors; those of host memory for reading only are opened so, for this consumer. Memory of a
/// GPU is read-only by how the consumer maps it.
fn hand_over(given: Given) -> Result<Message, (Reason, String)> {
    let (mut descriptors, mut own) = (Vec::new(), Vec::new());
    for memory in &given.0.memories {
        match memory {
            Memory::Host(arena) if given.0.access == Access::ReadOnly => {
                let opened = system::reopen(arena.descriptor(), Access::ReadOnly).map_err(|error| {
                    no_descriptor(error.errno()).unwrap_or_else(|| (Reason::Failed, error.fact().to_owned()))
                })?;
                // It may be on its way for longer than we hold the memory, or are there.
                system::mark_used(&opened);
                descriptors.push(opened.as_raw_fd());
                own.push(opened);
            }
            Memory::Host(arena) => descriptors.push(arena.descriptor()),
            Memory::Gpu(arena) => descriptors.extend(arena.door().descriptor().map(|fd| fd.as_raw_fd())),
        }
    }
    Ok(Message::HandOver { given, descriptors, _own: own })
}

fn ask(socket: &OwnedFd, bytes: &mut [u8; REQUEST], filled: &mut usize) -> Outcome {
    loop {
        let rest = &mut bytes[*filled..];
        // Without room for them, the system closes descriptors that a consumer has no reason to send.
        // SAFETY: as many bytes as there are may be written.
        let got = unsafe { libc::recv(socket.as_raw_fd(), rest.as_mut_ptr().cast(), rest.len(), 0) };
        match got {
            0 => return Outcome::Over,
            1.. => *filled += got as usize,
            _ => {
                return match io::Error::last_os_error().kind() {
                    io::ErrorKind::Interrupted => continue,
                    io::ErrorKind::WouldBlock => Outcome::Waits,
                    _ => Outcome::Over,
                };
            }
        }
        let head = bytes[..*filled].first_chunk::<HEAD>();
        if head.is_some_and(|head| read_head(head, Kind::Request).is_err()) {
            return Outcome::Asks(None);
        }
        if *filled == REQUEST {
            return Outcome::Asks(Request::read(bytes).ok());
        }
    }
}

/// Sends what goes; true when all is sent.
fn send(socket: &OwnedFd, message: &Message, sent: &mut usize, handed: &mut usize) -> io::Result<bool> {
    let (bytes, descriptors) = match message {
        Message::Refusal(bytes) => (&bytes[..], &[][..]),
        Message::HandOver { given, descriptors, .. } => (&given.0.message[..], &descriptors[..]),
    };
    while *sent < bytes.len() {
        let rest = &descriptors[*handed..];
        let batch = &rest[..rest.len().min(MOST_AT_ONCE)];
        // While more descriptors are to come, a byte goes with each lot; a memory has eight in the message.
        let end = if rest.len() > batch.len() { *sent + 1 } else { bytes.len() };
        match socket::send(socket.as_raw_fd(), &bytes[*sent..end], batch) {
            Ok(count) => {
                *sent += count;
                *handed += batch.len();
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}
