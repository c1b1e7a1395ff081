//! The consumer: from a ticket to tensors in this process.
//!
//! # What it promises
//!
//! - Nothing is believed. The process at the other end must be the one that the ticket names, and of our user; the reply is
//!   bounded and checked ([`crate::protocol`]); every descriptor must be sealed memory of the size that was announced; what
//!   was not announced is closed.
//! - Memory is mapped once in a process, however many tickets lead to it.
//! - Memory of a GPU is found by the GPU's UUID, and what is not ready yet is waited for by the streams that use it
//!   ([`ReadyState`]).
//! - Each tensor keeps its memory and the lease. When the last tensor of a ticket is gone, the connection is closed, which
//!   tells the producer. If the producer goes first, the memory stays valid.
//!
//! Producer and consumer must see each other's process numbers: two containers with namespaces of their own do not.

use crate::errors::{broken, failed, foreign, last, late, refused};
use crate::memory::arena::Arena;
use crate::memory::registry::{self, Lease};
use crate::memory::shared_memory::SharedMemory;
use crate::protocol::{
    Delivery, ExportedBy, HEADER_BYTES, MAX_MEMORIES, MemoryDescription, MemoryLocation, MessageKind,
    RejectReason, Reply, Request, read_head,
};
use crate::socket;
use crate::system;
use crate::ticket::{Ticket, producer_lives};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tensorferry_core::device::Device;
use tensorferry_core::fallible::{try_collect, try_reserve};
use tensorferry_core::{Access, DType, Error, ErrorKind, Layout, Result};
use tensorferry_cuda::ipc::{GpuArena, ImportHandle, RemoteEvent, Uuid};
use tensorferry_cuda::{Gpu, SyncPoint};

/// Bytes that are read at a time, and so the most that is allocated for bytes that never come.
const CHUNK: usize = 64 << 10;

/// How long a consumer stays awake for the answer.
const ANSWER: Duration = Duration::from_micros(200);
/// How long a consumer waits at most before it asks again whether to go on.
const SIGNAL_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// How long the host stays awake for a GPU of another process, and how long it sleeps at a time after that.
const AWAKE: Duration = Duration::from_micros(50);

/// A tensor in memory of another process.
#[derive(Clone, Debug)]
pub struct AttachedTensor {
    data: *mut u8,
    dtype: DType,
    layout: Layout,
    // Before the lease, which ends when nothing is mapped any more.
    memory: SharedMemory,
    lease: Arc<Lease>,
}

// SAFETY: the pointer is only an address here, into memory that `memory` keeps mapped; see `Arena`.
unsafe impl Send for AttachedTensor {}
// SAFETY: as above; nothing here changes through a shared reference.
unsafe impl Sync for AttachedTensor {}

impl AttachedTensor {
    /// The address of the element with index zero in every dimension.
    pub fn data(&self) -> *mut u8 {
        self.data
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Shape and strides.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// What may be done to the memory here.
    pub fn access(&self) -> Access {
        self.memory.access()
    }

    /// Where it is, as this process counts GPUs.
    pub fn device(&self) -> Device {
        self.memory.device()
    }

    /// The memory in which it lies.
    pub fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    /// What has the producer hold the memory. Keep it for as long as the memory is used.
    pub fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }
}

/// When what lies on a GPU is ready.
#[derive(Debug)]
pub struct ReadyState {
    gpu: &'static Gpu,
    event: Option<RemoteEvent>,
    // After the event: the producer destroys its own when the lease is over.
    lease: Arc<Lease>,
}

impl ReadyState {
    /// The GPU.
    pub fn gpu(&self) -> &'static Gpu {
        self.gpu
    }

    /// Whether it is ready now, so that nothing has to wait.
    ///
    /// # Errors
    /// When the device fails.
    pub fn is_now(&self) -> Result<bool> {
        self.event.as_ref().map_or(Ok(true), RemoteEvent::is_over)
    }

    /// Waits on the host until it is ready. Unlike a stream, the host notices when the producer dies before that.
    ///
    /// # Errors
    /// When the device fails, the producer dies, or it takes longer than that.
    pub fn wait(&self, timeout: Duration) -> Result<()> {
        let begin = Instant::now();
        while !self.is_now()? {
            if self.lease.is_torn() && !self.is_now()? {
                return Err(refused("the producer died before what it published was ready"));
            }
            match begin.elapsed() {
                waited if waited > timeout => return Err(late()),
                waited if waited < AWAKE => std::hint::spin_loop(),
                _ => thread::sleep(AWAKE),
            }
        }
        Ok(())
    }

    /// Lets what is queued on `after` from now on begin when it is ready.
    ///
    /// A stream that waits for a producer which is then killed in the middle of its work waits for good, and so does whoever
    /// waits for that stream (H200, driver 580): [`ReadyState::wait`] does not.
    ///
    /// # Errors
    /// When the device fails, or the stream is captured and it is not ready.
    ///
    /// # Safety
    /// The stream is alive, and of this GPU or a default one.
    pub unsafe fn order(&self, after: SyncPoint) -> Result<()> {
        // SAFETY: the caller's contract.
        self.event.as_ref().map_or(Ok(()), |event| unsafe { event.order(after) })
    }
}

/// What a ticket led to.
#[derive(Debug)]
pub struct Attached {
    /// The tensors, in the order in which they were published.
    pub tensors: Vec<AttachedTensor>,
    /// How they belong together, as the producer wrote it. It comes from another process: check it.
    pub structure: Vec<u8>,
    /// For each GPU on which some of the tensors are, when they are ready: no stream may use them without.
    pub ready: Vec<ReadyState>,
}

/// The tensors of a ticket, in this process.
///
/// # Errors
/// When the ticket is stale, unknown, used or expired, the producer does not answer in time, sends what breaks the rules, or
/// the system refuses.
pub fn attach(ticket: &Ticket, timeout: Duration) -> Result<Attached> {
    attach_cancellable(ticket, timeout, &|| Ok(()))
}

/// As [`attach`], and asks while it waits whether to go on: after every signal, and ten times a second at least.
///
/// # Errors
/// As [`attach`], and the error with which the question is answered.
pub fn attach_cancellable(
    ticket: &Ticket,
    timeout: Duration,
    called_off: &dyn Fn() -> Result<()>,
) -> Result<Attached> {
    let patience = Patience { deadline: Instant::now().checked_add(timeout), called_off };
    let connection = connect(ticket, &patience)?;
    let (process, user) = system::peer(connection.as_raw_fd())?;
    if user != system::user() {
        return Err(foreign(format!("{ticket} leads to a process of another user")));
    }
    if process != ticket.process() {
        return Err(refused(format!("{ticket} leads to process {process}")));
    }
    let request = Request { id: *ticket.id(), secret: *ticket.secret() };
    send(&connection, &request.write(), &patience, ticket)?;
    // Looked at while the producer is at work.
    if !producer_lives(ticket) {
        return Err(stale(ticket));
    }
    let mut descriptors = Vec::new();
    let given = match receive(&connection, &mut descriptors, &patience, ticket)? {
        Reply::Delivery(given) => given,
        Reply::Refusal { reason, text } => return Err(refusal(ticket, reason, &text)),
    };
    let expected = given.memories.iter().filter(|memory| memory.has_descriptor()).count();
    if descriptors.len() != expected {
        return Err(broken(format!(
            "the producer announced {expected} memories with descriptors and sent {} descriptors",
            descriptors.len()
        )));
    }
    arrive(given, descriptors, connection)
}

/// Maps what was sent.
fn arrive(given: Delivery, descriptors: Vec<OwnedFd>, connection: OwnedFd) -> Result<Attached> {
    let gpus = given.gpus.iter().map(|gpu| Gpu::by_uuid(Uuid(gpu.uuid))).collect::<Result<Vec<_>>>()?;
    let lease = Lease::new(connection, gpus.clone());
    // Each is let go when it has been opened anew: there may be many, and few are allowed.
    let mut descriptors = descriptors.into_iter();
    let mut memories = Vec::new();
    try_reserve(&mut memories, given.memories.len())?;
    for memory in &given.memories {
        let descriptor = if memory.has_descriptor() { descriptors.next() } else { None };
        memories.push(open(memory, descriptor.as_ref(), &gpus, given.access, &lease)?);
    }
    let place = |tensor: crate::protocol::TensorDescription| {
        let memory = memories.get(tensor.memory as usize).cloned();
        let memory = memory.ok_or_else(|| broken("a tensor lies in no memory"))?;
        // Inside the memory, as the message's reader has checked against the length that the memory has at least.
        let data = memory.data().wrapping_add(tensor.offset as usize);
        let (dtype, layout, lease) = (tensor.dtype, tensor.layout, lease.clone());
        Ok(AttachedTensor { data, dtype, layout, memory, lease })
    };
    let tensors = try_collect(given.tensors.into_iter().map(place))?;
    let ready = gpus.into_iter().zip(&given.gpus).map(|(gpu, announced)| {
        let event = announced.event.as_ref().map(|handle| RemoteEvent::open(gpu, handle)).transpose()?;
        Ok(ReadyState { gpu, event, lease: lease.clone() })
    });
    let ready = ready.collect::<Result<Vec<_>>>()?;
    Ok(Attached { tensors, structure: given.structure, ready })
}

/// One of the memories that were sent.
fn open(
    memory: &MemoryDescription,
    descriptor: Option<&OwnedFd>,
    gpus: &[&'static Gpu],
    access: Access,
    lease: &Arc<Lease>,
) -> Result<SharedMemory> {
    let sent = || descriptor.ok_or_else(|| broken("a memory came without a descriptor"));
    let MemoryLocation::Gpu { gpu, id, way } = &memory.place else {
        let arena = Arena::attach(sent()?, memory.bytes, access)?;
        if !arena.is_own() {
            registry::hold(&arena, lease);
        }
        return Ok(SharedMemory::Host(arena));
    };
    let entrance = match way {
        ExportedBy::Descriptor => ImportHandle::Descriptor(sent()?.as_fd()),
        ExportedBy::Legacy(handle) => ImportHandle::Legacy(handle),
    };
    let gpu = gpus.get(*gpu as usize).ok_or_else(|| broken("a memory is on no GPU"))?;
    let arena = GpuArena::attach(gpu, id, memory.bytes, access, entrance)?;
    if !arena.is_own() {
        registry::hold_gpu(&arena, lease);
    }
    Ok(SharedMemory::Gpu(arena))
}

/// How long a consumer waits.
struct Patience<'a> {
    deadline: Option<Instant>,
    called_off: &'a dyn Fn() -> Result<()>,
}

impl Patience<'_> {
    /// What is left of the time; an error when nothing is.
    fn rest(&self) -> Result<Option<Duration>> {
        let rest = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if rest.is_some_and(|rest| rest.is_zero()) { Err(late()) } else { Ok(rest) }
    }
}

fn stale(ticket: &Ticket) -> Error {
    refused(format!("{ticket} is stale: that process has ended"))
}

fn refusal(ticket: &Ticket, reason: RejectReason, text: &str) -> Error {
    match reason {
        RejectReason::Unknown => Error::new(
            ErrorKind::TicketRejected,
            format!("{ticket} was withdrawn, its Ticket object is gone, or it was never given out"),
        )
        .with_advice("keep what publish() gave for as long as others may come, or ask for a new ticket"),
        RejectReason::Expired => refused(format!("{ticket} has expired")),
        RejectReason::Used => refused(format!("{ticket} was used: it was good for one consumer")),
        // The text is not ours: on one line, and short.
        RejectReason::Malformed
        | RejectReason::Failed
        | RejectReason::NoDescriptor
        | RejectReason::Crowded => {
            let text: String = text.chars().take(80).collect();
            let error = Error::new(ErrorKind::TicketRejected, format!("{ticket} was refused: {text:?}"));
            error.with_advice(match reason {
                RejectReason::NoDescriptor => {
                    "raise the producer's limit (ulimit -n) or let it close something, and attach again"
                }
                RejectReason::Crowded => {
                    "end the consumers that are stopped, or raise the producer's limit (ulimit -n), and attach again"
                }
                RejectReason::Failed => "see to that on the producer's side, and attach again",
                _ => "let both processes use the same version of tensorferry",
            })
        }
    }
}

fn connect(ticket: &Ticket, patience: &Patience<'_>) -> Result<OwnedFd> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: makes a descriptor and touches nothing.
    let socket = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
    if socket < 0 {
        return Err(last("a socket cannot be made"));
    }
    // SAFETY: just made, and nobody else's.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    // SAFETY: plain numbers, for which zeros are values.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // A ticket's path is shorter than this array, whose last byte stays zero.
    for (to, &from) in address.sun_path.iter_mut().zip(ticket.path().as_os_str().as_bytes()) {
        *to = from as libc::c_char;
    }
    let length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    loop {
        // SAFETY: the address lives through the call, and has that length.
        let status = unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length) };
        if status == 0 {
            return Ok(socket);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EISCONN) => return Ok(socket),
            Some(libc::EINTR) => (patience.called_off)()?,
            // Its queue is full. There is nothing to wait for but time.
            Some(libc::EAGAIN) => {
                patience.rest()?;
                thread::sleep(Duration::from_millis(1));
                (patience.called_off)()?;
            }
            Some(libc::ENOENT | libc::ECONNREFUSED | libc::ENOTDIR) if !producer_lives(ticket) => {
                return Err(stale(ticket));
            }
            Some(libc::ENOENT | libc::ECONNREFUSED | libc::ENOTDIR) => {
                return Err(refused(format!(
                    "{ticket} leads nowhere: that process does not listen any more"
                )));
            }
            Some(libc::EACCES | libc::EPERM) => {
                return Err(foreign(format!("{ticket} is another user's")));
            }
            _ => return Err(failed("the producer cannot be reached", &error)),
        }
    }
}

/// Waits until the connection can be read or written, or has ended.
fn wait(connection: &OwnedFd, events: i16, patience: &Patience<'_>) -> Result<()> {
    loop {
        // A signal that arrives just before `poll` does not interrupt it, so that no single wait is long.
        let rest = patience.rest()?.map_or(SIGNAL_CHECK_INTERVAL, |rest| rest.min(SIGNAL_CHECK_INTERVAL));
        let rest = i32::try_from(rest.as_millis() + 1).unwrap_or(i32::MAX);
        let mut poll = libc::pollfd { fd: connection.as_raw_fd(), events, revents: 0 };
        // SAFETY: one struct, which lives through the call.
        let status = unsafe { libc::poll(&raw mut poll, 1, rest) };
        if status > 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if status < 0 && error.kind() != io::ErrorKind::Interrupted {
            return Err(failed("the producer cannot be waited for", &error));
        }
        (patience.called_off)()?;
    }
}

/// What an error of a connection means.
fn torn(ticket: &Ticket, error: &io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::EPIPE | libc::ECONNRESET) => closed(ticket),
        Some(libc::EMFILE) => failed("there is no descriptor left for what the producer sends", error),
        _ => failed("the connection to the producer failed", error),
    }
}

fn closed(ticket: &Ticket) -> Error {
    if producer_lives(ticket) {
        refused(format!("the producer of {ticket} closed the connection before it had answered"))
    } else {
        stale(ticket)
    }
}

fn send(connection: &OwnedFd, mut bytes: &[u8], patience: &Patience<'_>, ticket: &Ticket) -> Result<()> {
    while !bytes.is_empty() {
        match socket::send(connection.as_raw_fd(), bytes, &[]) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait(connection, libc::POLLOUT, patience)?;
            }
            // Who turns us away does so before it has heard us, and what it said can still be read.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EPIPE | libc::ECONNRESET)) => {
                return Ok(());
            }
            Err(error) => return Err(torn(ticket, &error)),
        }
    }
    Ok(())
}

fn receive(
    connection: &OwnedFd,
    descriptors: &mut Vec<OwnedFd>,
    patience: &Patience<'_>,
    ticket: &Ticket,
) -> Result<Reply> {
    let begun = Instant::now();
    let mut fill = |bytes: &mut [u8]| {
        let mut filled = 0;
        while filled < bytes.len() {
            match socket::receive(connection.as_raw_fd(), &mut bytes[filled..], descriptors) {
                Ok(0) => return Err(closed(ticket)),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // To sleep and be woken takes longer than most answers.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && begun.elapsed() < ANSWER => {
                    thread::yield_now();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    wait(connection, libc::POLLIN, patience)?;
                }
                Err(error) => return Err(torn(ticket, &error)),
            }
            if descriptors.len() > MAX_MEMORIES {
                return Err(broken("the producer sent more descriptors than there may be"));
            }
        }
        Ok(())
    };
    let mut head = [0; HEADER_BYTES];
    fill(&mut head)?;
    let length = read_head(&head, MessageKind::Reply)?;
    let mut body = Vec::new();
    while body.len() < length {
        let start = body.len();
        let end = length.min(start + CHUNK.max(start));
        try_reserve(&mut body, end - start)?;
        body.resize(end, 0);
        fill(&mut body[start..])?;
    }
    Reply::read(&body)
}
