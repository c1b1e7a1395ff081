//! One consumer, as the producer sees it: asking, being answered, holding.

use crate::memory::shared_memory::SharedMemory;
use crate::producer::fd_reserve::no_descriptor;
use crate::producer::publication::Published;
use crate::protocol::{HEADER_BYTES, MessageKind, REQUEST_BYTES, RejectReason, Reply, Request, read_head};
use crate::socket::{self, MOST_AT_ONCE};
use crate::system;
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
/// How long it is tried to send descriptors when too many are on their way, before a consumer is told so.
const TO_THIN_OUT: Duration = Duration::from_secs(2);
/// How long it is at first until the next try, and at most: nobody tells when there are fewer.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);
/// The most bytes for one consumer before the next one has its turn. One that reads as quickly as is written would have the
/// thread to itself until a long answer is over.
const AT_A_TURN: usize = 512 << 10;

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
    Delivery { given: Given, descriptors: Vec<RawFd>, _own: Vec<OwnedFd> },
}

struct Answering {
    message: Message,
    sent: usize,
    handed: usize,
    deadline: Instant,
    /// Since when too many descriptors are on their way, how long it is between two tries, and when the next one is.
    crowded: Option<(Instant, Duration, Instant)>,
}

enum Stage {
    Asking { bytes: [u8; REQUEST_BYTES], filled: usize, deadline: Instant },
    Answering(Answering),
    Holding(Given),
    Done,
}

/// What a connection has come to.
pub(crate) enum Outcome {
    /// Nothing more can be done now.
    Waits,
    /// It has asked; `None` where that was nonsense.
    Asks(Option<Request>),
    /// What was meant for it cannot be sent, and it is told so instead.
    Declined(Arc<Published>),
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
        Self { socket, stage: Stage::Asking { bytes: [0; REQUEST_BYTES], filled: 0, deadline: now + TO_ASK } }
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
            Stage::Answering(Answering { crowded: None, .. }) => libc::EPOLLOUT,
            // It could be written to, which is not what is missing.
            Stage::Answering(_) | Stage::Holding(_) | Stage::Done => libc::EPOLLRDHUP,
        }
    }

    /// When it is to be looked at again, although nothing is heard of it.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match &self.stage {
            Stage::Asking { deadline, .. } => Some(*deadline),
            Stage::Answering(answering) => {
                Some(answering.crowded.map_or(answering.deadline, |(.., next)| next.min(answering.deadline)))
            }
            Stage::Holding(_) | Stage::Done => None,
        }
    }

    /// Whether patience with it has ended.
    pub(crate) fn is_late(&self, now: Instant) -> bool {
        match &self.stage {
            Stage::Asking { deadline, .. } | Stage::Answering(Answering { deadline, .. }) => *deadline <= now,
            Stage::Holding(_) | Stage::Done => false,
        }
    }

    pub(crate) fn is_silent(&self) -> bool {
        matches!(self.stage, Stage::Asking { .. })
    }

    /// Whether it holds memory.
    pub(crate) fn holds(&self) -> bool {
        match &self.stage {
            Stage::Answering(answering) => matches!(answering.message, Message::Delivery { .. }),
            Stage::Holding(_) => true,
            Stage::Asking { .. } | Stage::Done => false,
        }
    }

    /// What it holds.
    pub(crate) fn given(&self) -> Option<&Arc<Published>> {
        match &self.stage {
            Stage::Holding(given) => Some(&given.0),
            _ => self.undelivered(),
        }
    }

    /// What was meant for it and did not reach it.
    pub(crate) fn undelivered(&self) -> Option<&Arc<Published>> {
        match &self.stage {
            Stage::Answering(Answering { message: Message::Delivery { given, .. }, .. }) => Some(&given.0),
            _ => None,
        }
    }

    /// Begins to answer.
    pub(crate) fn answer(&mut self, verdict: Result<Given, RejectReason>, now: Instant) {
        let message = match verdict.map_err(|reason| (reason, words(reason).to_owned())).and_then(hand_over) {
            Ok(message) => message,
            Err((reason, text)) => Message::Refusal(refusal(reason, &text)),
        };
        self.begin(message, now);
    }

    fn begin(&mut self, message: Message, now: Instant) {
        let deadline = now + TO_READ;
        self.stage = Stage::Answering(Answering { message, sent: 0, handed: 0, deadline, crowded: None });
    }

    /// Reads or writes as far as that goes without waiting.
    pub(crate) fn advance(&mut self, now: Instant) -> Outcome {
        match &mut self.stage {
            Stage::Asking { bytes, filled, .. } => ask(&self.socket, bytes, filled),
            // All that can be heard of it before the next try is that it goes.
            Stage::Answering(Answering { crowded: Some((.., next)), .. }) if *next > now => Outcome::Over,
            Stage::Answering(answering) => match answering.send(&self.socket) {
                Ok(Sent::All) => {
                    let stage = std::mem::replace(&mut self.stage, Stage::Done);
                    let Stage::Answering(Answering { message: Message::Delivery { given, .. }, .. }) = stage
                    else {
                        return Outcome::Over;
                    };
                    given.0.uses.served.fetch_add(1, Ordering::AcqRel);
                    self.stage = Stage::Holding(given);
                    Outcome::Waits
                }
                Ok(Sent::Some) => Outcome::Waits,
                Ok(Sent::Crowded) if answering.tries_again(now) => Outcome::Waits,
                Ok(Sent::Crowded) => {
                    let published = self.undelivered().cloned();
                    self.begin(Message::Refusal(refusal(RejectReason::Crowded, &crowded())), now);
                    published.map_or(Outcome::Waits, Outcome::Declined)
                }
                Err(_) => Outcome::Over,
            },
            // There is nothing that it could say but that it goes.
            Stage::Holding(_) | Stage::Done => Outcome::Over,
        }
    }
}

/// What a consumer is told who is not let in.
fn words(reason: RejectReason) -> &'static str {
    match reason {
        RejectReason::Unknown => "the ticket was withdrawn, or never given out",
        RejectReason::Expired => "the ticket has expired",
        RejectReason::Used => "the ticket was used",
        RejectReason::Malformed => "the request cannot be read",
        RejectReason::Failed | RejectReason::NoDescriptor | RejectReason::Crowded => {
            "the producer cannot hand it over"
        }
    }
}

fn crowded() -> String {
    let most = system::most_descriptors().map_or("too many".into(), |most| format!("more than {most}"));
    format!("{most} descriptors are on their way to consumers that do not read")
}

/// A refusal, as it goes over the socket.
pub(crate) fn refusal(reason: RejectReason, text: &str) -> Vec<u8> {
    Reply::Refusal { reason, text: text.into() }.write().unwrap_or_default()
}

/// The message with its descriptors; those of host memory for reading only are opened so, for this consumer. Memory of a
/// GPU is read-only by how the consumer maps it.
fn hand_over(given: Given) -> Result<Message, (RejectReason, String)> {
    let (mut descriptors, mut own) = (Vec::new(), Vec::new());
    for memory in &given.0.memories {
        match memory {
            SharedMemory::Host(arena) if given.0.access == Access::ReadOnly => {
                let opened = system::reopen(arena.descriptor(), Access::ReadOnly).map_err(|error| {
                    no_descriptor(error.errno())
                        .unwrap_or_else(|| (RejectReason::Failed, error.fact().to_owned()))
                })?;
                // It may be on its way for longer than we hold the memory, or are there.
                system::mark_used(&opened);
                descriptors.push(opened.as_raw_fd());
                own.push(opened);
            }
            SharedMemory::Host(arena) => descriptors.push(arena.descriptor()),
            SharedMemory::Gpu(arena) => {
                descriptors.extend(arena.door().descriptor().map(|fd| fd.as_raw_fd()))
            }
        }
    }
    Ok(Message::Delivery { given, descriptors, _own: own })
}

fn ask(socket: &OwnedFd, bytes: &mut [u8; REQUEST_BYTES], filled: &mut usize) -> Outcome {
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
        let head = bytes[..*filled].first_chunk::<HEADER_BYTES>();
        if head.is_some_and(|head| read_head(head, MessageKind::Request).is_err()) {
            return Outcome::Asks(None);
        }
        if *filled == REQUEST_BYTES {
            return Outcome::Asks(Request::read(bytes).ok());
        }
    }
}

/// How far sending came.
enum Sent {
    All,
    /// The consumer has to read first, or others have their turn.
    Some,
    /// This user has too many descriptors on their way, to whomever.
    Crowded,
}

impl Answering {
    /// Sends what goes.
    fn send(&mut self, socket: &OwnedFd) -> io::Result<Sent> {
        let (bytes, descriptors) = match &self.message {
            Message::Refusal(bytes) => (&bytes[..], &[][..]),
            Message::Delivery { given, descriptors, .. } => (&given.0.message[..], &descriptors[..]),
        };
        let most = bytes.len().min(self.sent + AT_A_TURN);
        while self.sent < most {
            let rest = &descriptors[self.handed..];
            let batch = &rest[..rest.len().min(MOST_AT_ONCE)];
            // While more descriptors are to come, a byte goes with each lot; a memory has eight in the message.
            let end = if rest.len() > batch.len() { self.sent + 1 } else { most };
            match socket::send(socket.as_raw_fd(), &bytes[self.sent..end], batch) {
                Ok(count) => {
                    self.sent += count;
                    self.handed += batch.len();
                    self.crowded = None;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Sent::Some),
                Err(error) if error.raw_os_error() == Some(libc::ETOOMANYREFS) => return Ok(Sent::Crowded),
                Err(error) => return Err(error),
            }
        }
        Ok(if self.sent == bytes.len() { Sent::All } else { Sent::Some })
    }

    /// Puts off the next try; false if the consumer is to be told, which can be done before the answer has begun.
    fn tries_again(&mut self, now: Instant) -> bool {
        let (since, pause) = self
            .crowded
            .map_or((now, FIRST_PAUSE), |(since, pause, _)| (since, LONGEST_PAUSE.min(2 * pause)));
        self.crowded = Some((since, pause, now + pause));
        self.sent > 0 || now < since + TO_THIN_OUT
    }
}
