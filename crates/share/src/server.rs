//! The producer: a thread that answers those who come with a ticket.
//!
//! # What it promises
//!
//! - The connection is the lease. While it is open, the memory of the publication is held, whatever becomes of the
//!   publication; when the consumer closes it, exits or is killed, the system closes it and the lease is over.
//! - A consumer of another user is sent away without a word. Who comes with a wrong id or secret, too late, or second to a
//!   ticket for one, is told why.
//! - Consumers that say nothing, or nonsense, or do not read, cost a descriptor for some seconds and nothing else: the
//!   thread waits for nobody, and the longest silent one makes room for the next.
//! - The thread takes no signals, and begins with the first publication.
//!
//! # After a fork
//!
//! The child has no such thread, and no business with the parent's: it closes what it inherited (before `fork` is back),
//! leaves socket and folder alone, and begins anew, with a folder of its own, when it publishes something.

use crate::announce::{announce, gpus_of};
use crate::answer::{Connection, Given, Outcome};
use crate::fault::{failed, last, wrong};
use crate::folder::Folder;
use crate::memory::Memory;
use crate::registry::{self, Lease};
use crate::system;
use crate::ticket::Ticket;
use crate::wire::{HandOver, Placed, Reason, Reply, Request};
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tensorferry_core::{Access, DType, Layout, Result};
use tensorferry_cuda::ipc::ReadyEvent;
use tensorferry_cuda::{Gpu, Side};

/// The most connections at a time, leases included. Whoever comes then waits until one is over.
const MOST_CONNECTIONS: usize = 16 << 10;
/// The most connections that have not said yet what they want.
const MOST_SILENT: usize = 64;
/// How long nobody is let in after the system had no descriptor left.
const PAUSE: Duration = Duration::from_millis(50);

static SERVER: Mutex<Server> = Mutex::new(Server::new());
static AT_EXIT: AtomicBool = AtomicBool::new(false);

pub(crate) type Guard = MutexGuard<'static, Server>;

pub(crate) fn lock() -> Guard {
    SERVER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A tensor to be published: where in shared memory it lies, and what it is.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// The memory, made here or attached from somebody else.
    pub memory: Memory,
    /// Where in the memory the element with index zero in every dimension begins.
    pub offset: usize,
    /// The element type.
    pub dtype: DType,
    /// Shape and strides.
    pub layout: Layout,
}

/// How a publication may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether the first consumer is the last.
    pub once: bool,
    /// How long the ticket may be used; leases that exist go on.
    pub timeout: Option<Duration>,
    /// What consumers may do to the memory.
    pub access: Access,
}

impl Default for Options {
    fn default() -> Self {
        Self { once: false, timeout: None, access: Access::ReadWrite }
    }
}

/// Tensors that others may attach, until this is dropped. It holds the memory until then, or until the ticket has expired
/// or is used up; leases hold it beyond that, and so do promises.
#[derive(Debug)]
pub struct Publication {
    ticket: Ticket,
    given: Arc<AtomicUsize>,
}

impl Publication {
    /// What a consumer needs. It may be copied, and used by several.
    pub fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    /// How many consumers have it just now. One that was killed is noticed within moments.
    pub fn leases(&self) -> usize {
        self.given.load(Ordering::Acquire)
    }

    /// Promises that one more consumer is let in, also when this is gone by then: its ticket is on the way.
    pub fn promise(&self) {
        if let Some(Entry::Live(published)) = lock().publications.get(self.ticket.id()) {
            published.promised.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Lets nobody in any more, whatever was promised. Leases that exist go on.
    pub fn withdraw(&self) {
        let entry = lock().publications.remove(self.ticket.id());
        // Without the lock: what it held may be a lot of memory.
        drop(entry);
    }
}

impl Drop for Publication {
    fn drop(&mut self) {
        if let Some(Entry::Live(published)) = lock().publications.get(self.ticket.id())
            && published.promised.load(Ordering::Relaxed) > 0
        {
            published.left.store(true, Ordering::Relaxed);
            return;
        }
        self.withdraw();
    }
}

/// What is published, for the table and for each lease.
pub(crate) struct Published {
    secret: [u8; 16],
    pub(crate) message: Vec<u8>,
    /// One for each in the message, in its order.
    pub(crate) memories: Vec<Memory>,
    pub(crate) access: Access,
    /// Further owners of the same memories.
    _owners: Vec<Memory>,
    _events: Vec<Arc<ReadyEvent>>,
    _leases: Vec<Arc<Lease>>,
    once: bool,
    expires: Option<Instant>,
    pub(crate) given: Arc<AtomicUsize>,
    /// Consumers that were promised to be let in, and have not come.
    promised: AtomicUsize,
    /// Whether the publication is gone, and only promises keep this.
    left: AtomicBool,
}

impl Published {
    /// Whether nobody is left who could let go of it later.
    fn is_over(&self) -> bool {
        self.left.load(Ordering::Relaxed) && (self.once || self.promised.load(Ordering::Relaxed) == 0)
    }
}

impl Published {
    /// Whether memory of GPUs is among it.
    pub(crate) fn has_gpus(&self) -> bool {
        self.memories.iter().any(|memory| matches!(memory, Memory::Gpu(_)))
    }
}

enum Entry {
    Live(Arc<Published>),
    /// Nobody is let in any more, and why.
    Over(Reason),
}

struct Running {
    listener: OwnedFd,
    wake: OwnedFd,
    folder: Folder,
    path: PathBuf,
    start: u64,
}

/// All that the thread works on.
pub(crate) struct Server {
    running: Option<Running>,
    publications: BTreeMap<[u8; 16], Entry>,
    connections: Vec<Connection>,
    /// When the first ticket expires.
    expiry: Option<Instant>,
    /// Until when nobody is let in.
    paused: Option<Instant>,
}

/// Publishes tensors, with a structure of at most 16 MiB that says how they belong together. Those on GPUs are ready for
/// consumers when all that this process has queued there until now is done; who knows which streams those are calls
/// [`publish_after`].
///
/// # Errors
/// When a tensor does not lie in its memory, memory that was attached as read-only is to be written by others, memory of a
/// GPU cannot be made read-only as asked ([`Memory::can_be_read_only`]), there is more than a message may hold, or the
/// system or the driver refuses.
pub fn publish(tensors: &[Outgoing], structure: &[u8], options: &Options) -> Result<Publication> {
    let mut ready: Vec<(&'static Gpu, Side)> = Vec::new();
    for tensor in tensors {
        if let Memory::Gpu(arena) = &tensor.memory
            && !ready.iter().any(|(gpu, _)| std::ptr::eq(*gpu, arena.gpu()))
        {
            ready.push((arena.gpu(), Side::Everything));
        }
    }
    // SAFETY: no stream is named.
    unsafe { publish_after(tensors, structure, options, &ready) }
}

/// The same, where consumers wait for these sides of these GPUs: for all that is queued there until now, and for nothing
/// else.
///
/// # Errors
/// As [`publish`], and when a stream is being captured.
///
/// # Safety
/// The streams are alive, and of their GPU or default ones.
pub unsafe fn publish_after(
    tensors: &[Outgoing],
    structure: &[u8],
    options: &Options,
    ready: &[(&'static Gpu, Side)],
) -> Result<Publication> {
    let (mut memories, mut owners): (Vec<Memory>, Vec<Memory>) = (Vec::new(), Vec::new());
    let mut indices = BTreeMap::new();
    let mut placed = Vec::with_capacity(tensors.len());
    for tensor in tensors {
        if options.access == Access::ReadWrite && tensor.memory.access() == Access::ReadOnly {
            return Err(wrong(
                "memory that was attached as read-only cannot be handed on for writing",
                "publish it as read-only, or publish a copy",
            ));
        }
        if options.access == Access::ReadOnly && !tensor.memory.can_be_read_only() {
            return Err(wrong(
                "memory of a GPU that has no handle of its own cannot be protected from others' writing",
                "publish a copy, or publish it for writing",
            ));
        }
        let memory = *indices.entry(tensor.memory.key()).or_insert(memories.len());
        let list = if memory == memories.len() { &mut memories } else { &mut owners };
        list.push(tensor.memory.clone());
        let (dtype, layout) = (tensor.dtype, tensor.layout.clone());
        placed.push(Placed { memory: memory as u32, offset: tensor.offset as u64, dtype, layout });
    }
    // Host memory needs no further owner: it was the same arena.
    owners.retain(|memory| matches!(memory, Memory::Gpu(_)));
    // SAFETY: the caller's contract.
    let (gpus, events) = unsafe { gpus_of(&memories, ready)? };
    let announced = memories.iter().map(|memory| announce(memory, &gpus)).collect::<Result<_>>()?;
    let given = HandOver {
        access: options.access,
        gpus: gpus.into_iter().map(|(_, gpu)| gpu).collect(),
        memories: announced,
        tensors: placed,
        structure: structure.to_vec(),
    };
    let message = Reply::HandOver(given).write().map_err(|error| {
        wrong(
            error.fact().to_owned(),
            "see that every tensor lies in its memory, and publish fewer with one ticket",
        )
    })?;
    let (id, secret) = (system::random()?, system::random()?);
    let given = Arc::new(AtomicUsize::new(0));
    let expires = options.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let leases = memories.iter().flat_map(|memory| match memory {
        Memory::Host(arena) => registry::leases_of(arena),
        Memory::Gpu(arena) => registry::leases_of_gpu(arena),
    });
    let published = Arc::new(Published {
        secret,
        message,
        _leases: leases.collect(),
        memories,
        access: options.access,
        _owners: owners,
        _events: events,
        once: options.once,
        expires,
        given: given.clone(),
        promised: AtomicUsize::new(0),
        left: AtomicBool::new(false),
    });
    registry::watch_forks();
    let mut server = lock();
    let running = server.start()?;
    let ticket = Ticket::new(running.path.clone(), id, secret, system::process(), running.start)?;
    if expires.is_some() {
        // The thread does not know yet when it has to look next.
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight bytes, which is what this descriptor takes.
        unsafe { libc::write(running.wake.as_raw_fd(), one.as_ptr().cast(), 8) };
    }
    server.expiry = server.expiry.into_iter().chain(expires).min();
    server.publications.insert(id, Entry::Live(published));
    Ok(Publication { ticket, given })
}

impl Server {
    const fn new() -> Self {
        Self {
            running: None,
            publications: BTreeMap::new(),
            connections: Vec::new(),
            expiry: None,
            paused: None,
        }
    }

    /// For the child of a fork: leaves everything to the parent. Dropping what comes back closes the child's copies.
    pub(crate) fn abandon(&mut self) -> Self {
        std::mem::replace(self, Self::new())
    }

    /// Publications, leases that were given, and descriptors of the server.
    pub(crate) fn counts(&self) -> (usize, usize, usize) {
        let live = self.publications.values().filter(|entry| matches!(entry, Entry::Live(_))).count();
        let given = self.connections.iter().filter(|connection| connection.holds()).count();
        let own = if self.running.is_some() { 2 } else { 0 };
        (live, given, self.connections.len() + own)
    }

    fn start(&mut self) -> Result<&Running> {
        if self.running.is_none() {
            let start = system::start_time(system::process()).ok_or_else(|| last("/proc cannot be read"))?;
            let folder = Folder::new(start)?;
            let path = folder.socket();
            let refused = |error| failed("the socket for other processes cannot be made", &error);
            let listener = UnixListener::bind(&path).map_err(refused)?;
            listener.set_nonblocking(true).map_err(refused)?;
            // SAFETY: makes a descriptor and touches nothing.
            let wake = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
            if wake < 0 {
                return Err(last("the socket for other processes cannot be made"));
            }
            // SAFETY: just made, and nobody else's.
            let wake = unsafe { OwnedFd::from_raw_fd(wake) };
            spawn()?;
            if !AT_EXIT.swap(true, Ordering::AcqRel) {
                // SAFETY: the function lives as long as the program.
                unsafe { libc::atexit(at_exit) };
            }
            self.running = Some(Running { listener: listener.into(), wake, folder, path, start });
        }
        self.running.as_ref().ok_or_else(|| last("the socket for other processes cannot be made"))
    }

    /// What to wait for, and until when; `None` when there is nothing to serve.
    fn waits(&self) -> Option<(Vec<libc::pollfd>, Option<Instant>)> {
        let running = self.running.as_ref()?;
        let asked = |fd: RawFd, events| libc::pollfd { fd, events, revents: 0 };
        let full = self.connections.len() >= MOST_CONNECTIONS || self.paused.is_some();
        // A descriptor of -1 is passed over.
        let listener = if full { -1 } else { running.listener.as_raw_fd() };
        let mut polls = Vec::with_capacity(2 + self.connections.len());
        polls.push(asked(listener, libc::POLLIN));
        polls.push(asked(running.wake.as_raw_fd(), libc::POLLIN));
        polls.extend(self.connections.iter().map(|one| asked(one.socket(), one.events())));
        let deadlines = self.connections.iter().filter_map(Connection::deadline);
        Some((polls, deadlines.chain(self.expiry).chain(self.paused).min()))
    }

    /// One round: does whatever has become possible. What comes back is to be dropped without the lock.
    fn turn(&mut self, polls: &[libc::pollfd]) -> (Vec<Connection>, Vec<Entry>) {
        let now = Instant::now();
        let mut entries = self.expire(now);
        if self.paused.is_some_and(|until| until <= now) {
            self.paused = None;
        }
        if let Some(running) = self.running.as_ref().filter(|_| polls[1].revents != 0) {
            let mut count = [0u8; 8];
            // SAFETY: eight bytes, which is what this descriptor gives.
            unsafe { libc::read(running.wake.as_raw_fd(), count.as_mut_ptr().cast(), 8) };
        }
        let (mut over, mut kept) = (Vec::new(), Vec::new());
        for (index, mut connection) in std::mem::take(&mut self.connections).into_iter().enumerate() {
            let ready = polls.get(index + 2).is_some_and(|poll| poll.revents != 0);
            let goes_on = if ready {
                self.advance(&mut connection, now, &mut entries)
            } else {
                connection.deadline().is_none_or(|deadline| deadline > now)
            };
            if goes_on { kept.push(connection) } else { over.push(connection) }
        }
        self.connections = kept;
        if polls[0].revents != 0 {
            self.accept(now, &mut over, &mut entries);
        }
        (over, entries)
    }

    fn advance(&mut self, connection: &mut Connection, now: Instant, entries: &mut Vec<Entry>) -> bool {
        loop {
            match connection.advance() {
                Outcome::Waits => return true,
                Outcome::Over => return false,
                Outcome::Asks(Some(request)) => {
                    let verdict = self.judge(&request, entries);
                    connection.answer(verdict, now);
                }
                Outcome::Asks(None) => connection.answer(Err(Reason::Malformed), now),
            }
        }
    }

    /// Whether a request is good, and for what.
    fn judge(&mut self, request: &Request, entries: &mut Vec<Entry>) -> Result<Given, Reason> {
        let entry = self.publications.get_mut(&request.id).ok_or(Reason::Unknown)?;
        let published = match entry {
            Entry::Over(reason) => return Err(*reason),
            Entry::Live(published) => published.clone(),
        };
        if !system::same(&published.secret, &request.secret) {
            return Err(Reason::Unknown);
        }
        let promised = published.promised.load(Ordering::Relaxed);
        published.promised.store(promised.saturating_sub(1), Ordering::Relaxed);
        if published.is_over() {
            entries.extend(self.publications.remove(&request.id));
        } else if published.once {
            entries.push(std::mem::replace(entry, Entry::Over(Reason::Used)));
        }
        Ok(Given::new(published))
    }

    fn expire(&mut self, now: Instant) -> Vec<Entry> {
        let mut entries = Vec::new();
        if self.expiry.is_none_or(|expiry| expiry > now) {
            return entries;
        }
        self.expiry = None;
        self.publications.retain(|_, entry| {
            let Entry::Live(published) = entry else { return true };
            match published.expires {
                Some(end) if end <= now => {
                    let left = published.left.load(Ordering::Relaxed);
                    entries.push(std::mem::replace(entry, Entry::Over(Reason::Expired)));
                    !left
                }
                end => {
                    self.expiry = self.expiry.into_iter().chain(end).min();
                    true
                }
            }
        });
        entries
    }

    fn accept(&mut self, now: Instant, over: &mut Vec<Connection>, entries: &mut Vec<Entry>) {
        let Some(listener) = self.running.as_ref().map(|running| running.listener.as_raw_fd()) else {
            return;
        };
        for _ in 0..MOST_SILENT {
            // SAFETY: the listener is open; no address is asked for.
            let socket = unsafe {
                libc::accept4(
                    listener,
                    std::ptr::null_mut(),
                    std::ptr::null_mut(),
                    libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC,
                )
            };
            if socket < 0 {
                let errno = std::io::Error::last_os_error().raw_os_error();
                if matches!(errno, Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS)) {
                    self.paused = Some(now + PAUSE);
                }
                break;
            }
            // SAFETY: just made, and nobody else's.
            let socket = unsafe { OwnedFd::from_raw_fd(socket) };
            if !system::peer(socket.as_raw_fd()).is_ok_and(|(_, user)| user == system::user()) {
                continue;
            }
            let mut connection = Connection::new(socket, now);
            // What a consumer has to say is often there already.
            if self.advance(&mut connection, now, entries) {
                self.connections.push(connection);
            } else {
                over.push(connection);
            }
        }
        let silent = self.connections.iter().filter(|one| one.is_silent()).count();
        for _ in MOST_SILENT..silent {
            // The first is the one that has been silent for longest.
            if let Some(index) = self.connections.iter().position(Connection::is_silent) {
                over.push(self.connections.remove(index));
            }
        }
    }
}

/// Begins the thread, which inherits that no signal is for it.
fn spawn() -> Result<()> {
    // SAFETY: plain bits, for which zeros are values.
    let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = unsafe { std::mem::zeroed() };
    // SAFETY: both live through the calls.
    unsafe {
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
    }
    let builder = thread::Builder::new().name("tensorferry-share".into()).stack_size(256 << 10);
    let spawned = builder.spawn(serve);
    // SAFETY: what was before lives through the call.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    spawned.map(drop).map_err(|error| failed("a thread for other processes cannot be started", &error))
}

fn serve() {
    loop {
        // A panic would be a mistake of ours; the next round begins from a state that is whole.
        match catch_unwind(AssertUnwindSafe(round)) {
            Ok(true) => {}
            Ok(false) => return,
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

fn round() -> bool {
    let Some((mut polls, until)) = lock().waits() else { return false };
    let wait = until.map(|until| until.saturating_duration_since(Instant::now()));
    // Rounded up: a wait that is a little short would be repeated a thousand times.
    let wait = wait.map_or(-1, |wait| i32::try_from(wait.as_millis() + 1).unwrap_or(i32::MAX));
    // SAFETY: as many as there are. Their descriptors are closed by this thread alone.
    let status = unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, wait) };
    if status < 0 {
        polls.iter_mut().for_each(|poll| poll.revents = 0);
    }
    let over = lock().turn(&polls);
    // Without the lock: it may be a lot of memory.
    let waits = over.0.iter().any(Connection::holds_gpus)
        || over.1.iter().any(|entry| matches!(entry, Entry::Live(published) if published.has_gpus()));
    if waits {
        // Work on a GPU may have to be waited for, and that is no reason to let others wait. Where there is no thread
        // for it, it is dropped here, with the closure.
        let _ = thread::Builder::new().name("tensorferry-release".into()).spawn(move || drop(over));
    }
    true
}

/// Removes the folder when the program ends in good order.
extern "C" fn at_exit() {
    for _ in 0..100 {
        if let Ok(mut server) = SERVER.try_lock() {
            let Some(running) = server.running.take() else { return };
            let Running { folder, listener, wake, .. } = running;
            drop(folder);
            // The thread may be waiting for these; the system closes them.
            std::mem::forget((listener, wake));
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
}
