//! The producer: a thread that answers those who come with a ticket.
//!
//! # What it promises
//!
//! - The connection is the lease. While it is open, the memory of the publication is held, whatever becomes of the
//!   publication; when the consumer closes it, exits or is killed, the system closes it and the lease is over.
//! - A consumer of another user is sent away without a word. Who comes with a wrong id or secret, too late, or second to a
//!   ticket for one, is told why.
//! - Who comes when this process has no descriptor left is told so at once ([`crate::reserve`]).
//! - Consumers that say nothing, or nonsense, or do not read, cost a descriptor for some seconds and nothing else: the
//!   thread waits for nobody, and the longest silent one makes room for the next.
//! - The thread takes no signals, and begins with the first publication.
//!
//! # After a fork
//!
//! The child has no such thread, and no business with the parent's: it closes what it inherited (before `fork` is back),
//! leaves socket and folder alone, and begins anew, with a folder of its own, when it publishes something.

use crate::answer::{Connection, Given, Outcome};
use crate::fault::{failed, last};
use crate::folder::Folder;
use crate::publication::Published;
use crate::reserve::{self, Coped, Reserve};
use crate::system;
use crate::ticket::Ticket;
use crate::wire::{Reason, Request};
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tensorferry_core::Result;

/// The most connections at a time, leases included. Whoever comes then waits until one is over.
const MOST_CONNECTIONS: usize = 16 << 10;
/// The most connections that have not said yet what they want.
const MOST_SILENT: usize = 64;
/// How long nobody is let in after the system could not, and nobody could be told.
const PAUSE: Duration = Duration::from_millis(50);

static SERVER: Mutex<Server> = Mutex::new(Server::new());
static AT_EXIT: AtomicBool = AtomicBool::new(false);
/// How many threads there have been.
static THREADS: AtomicU64 = AtomicU64::new(0);

pub(crate) type Guard = MutexGuard<'static, Server>;

pub(crate) fn lock() -> Guard {
    SERVER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A place in the table.
pub(crate) enum Entry {
    Live(Arc<Published>),
    /// Nobody is let in any more, and why, which is told to those who know the secret.
    Over(Reason, [u8; 16]),
}

struct Running {
    listener: OwnedFd,
    wake: OwnedFd,
    folder: Folder,
    path: PathBuf,
    start: u64,
    /// The thread's.
    number: u64,
}

impl Running {
    /// Somebody has cleared away the folder: tickets that were given lead nowhere, and new ones need a new one.
    fn move_in(&mut self) -> Result<()> {
        let (folder, listener) = listen(self.start)?;
        // The thread may be waiting for the old one, by its number.
        // SAFETY: both are open and ours.
        if unsafe { libc::dup3(listener.as_raw_fd(), self.listener.as_raw_fd(), libc::O_CLOEXEC) } < 0 {
            return Err(last("the socket for other processes cannot be made"));
        }
        (self.path, self.folder) = (folder.socket(), folder);
        self.rouse();
        Ok(())
    }

    /// Has the thread look again at what there is to wait for.
    fn rouse(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight bytes, which is what this descriptor takes.
        unsafe { libc::write(self.wake.as_raw_fd(), one.as_ptr().cast(), 8) };
    }
}

/// A socket in a folder of its own.
fn listen(start: u64) -> Result<(Folder, OwnedFd)> {
    let folder = Folder::new(start)?;
    let refused = |error| failed("the socket for other processes cannot be made", &error);
    let listener = UnixListener::bind(folder.socket()).map_err(refused)?;
    listener.set_nonblocking(true).map_err(refused)?;
    Ok((folder, listener.into()))
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
    reserve: Reserve,
}

impl Server {
    const fn new() -> Self {
        Self {
            running: None,
            publications: BTreeMap::new(),
            connections: Vec::new(),
            expiry: None,
            paused: None,
            reserve: Reserve::new(),
        }
    }

    /// Enters what is published, and lets others in.
    pub(crate) fn enter(&mut self, published: Arc<Published>) -> Result<Ticket> {
        let running = self.start()?;
        let (path, process) = (running.path.clone(), system::process());
        let ticket = Ticket::new(path, published.id, published.secret, process, running.start)?;
        if published.ends().is_some() {
            // The thread does not know yet when it has to look next.
            running.rouse();
        }
        self.expiry = self.expiry.into_iter().chain(published.ends()).min();
        self.publications.insert(published.id, Entry::Live(published));
        Ok(ticket)
    }

    /// What others are let in to by this id.
    pub(crate) fn live(&self, id: &[u8; 16]) -> Option<&Arc<Published>> {
        match self.publications.get(id)? {
            Entry::Live(published) => Some(published),
            Entry::Over(..) => None,
        }
    }

    /// Leaves it to those who were promised to be let in; false if nobody was, or nobody is let in.
    pub(crate) fn leave(&mut self, id: &[u8; 16]) -> bool {
        let Some(published) = self.live(id).filter(|published| published.leave()).cloned() else {
            return false;
        };
        self.expiry = self.expiry.into_iter().chain(published.ends()).min();
        // The thread does not know yet when it has to look next.
        self.running.iter().for_each(Running::rouse);
        true
    }

    /// Strikes it out. What comes back is to be dropped without the lock.
    pub(crate) fn strike(&mut self, id: &[u8; 16]) -> Option<Entry> {
        self.publications.remove(id)
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
        (live, given, self.connections.len() + own + self.reserve.count())
    }

    fn start(&mut self) -> Result<&Running> {
        if let Some(running) = self.running.as_mut().filter(|running| !running.path.exists()) {
            running.move_in()?;
        }
        if self.running.is_none() {
            let start = system::start_time(system::process()).ok_or_else(|| last("/proc cannot be read"))?;
            let (folder, listener) = listen(start)?;
            // SAFETY: makes a descriptor and touches nothing.
            let wake = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
            if wake < 0 {
                return Err(last("the socket for other processes cannot be made"));
            }
            // SAFETY: just made, and nobody else's.
            let wake = unsafe { OwnedFd::from_raw_fd(wake) };
            let number = THREADS.fetch_add(1, Ordering::Relaxed);
            spawn(number)?;
            if !AT_EXIT.swap(true, Ordering::AcqRel) {
                // SAFETY: the function lives as long as the program.
                unsafe { libc::atexit(at_exit) };
            }
            self.reserve.fill();
            let path = folder.socket();
            self.running = Some(Running { listener, wake, folder, path, start, number });
        }
        self.running.as_ref().ok_or_else(|| last("the socket for other processes cannot be made"))
    }

    fn is_served_by(&self, number: u64) -> bool {
        self.running.as_ref().is_some_and(|running| running.number == number)
    }

    /// What the thread of this number has to wait for, and until when; `None` when there is nothing to serve.
    fn waits(&self, number: u64) -> Option<(Vec<libc::pollfd>, Option<Instant>)> {
        let running = self.running.as_ref().filter(|_| self.is_served_by(number))?;
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
        over.iter().filter_map(Connection::undelivered).for_each(|published| self.take_back(published));
        (over, entries)
    }

    /// A ticket for one that did not reach its consumer is good for another.
    fn take_back(&mut self, published: &Arc<Published>) {
        if let Some(entry @ Entry::Over(Reason::Used, _)) = self.publications.get_mut(&published.id) {
            *entry = Entry::Live(published.clone());
            self.expiry = self.expiry.into_iter().chain(published.ends()).min();
        }
    }

    fn advance(&mut self, connection: &mut Connection, now: Instant, entries: &mut Vec<Entry>) -> bool {
        loop {
            match connection.advance() {
                Outcome::Waits => return true,
                Outcome::Over => return false,
                Outcome::Asks(Some(request)) => {
                    let verdict = self.judge(&request, entries);
                    let published = verdict.as_ref().ok().map(|given| given.published().clone());
                    connection.answer(verdict, now);
                    // Where descriptors have run out, it is a refusal.
                    if connection.undelivered().is_none() {
                        published.iter().for_each(|published| self.take_back(published));
                    }
                }
                Outcome::Asks(None) => connection.answer(Err(Reason::Malformed), now),
            }
        }
    }

    /// Whether a request is good, and for what.
    fn judge(&mut self, request: &Request, entries: &mut Vec<Entry>) -> Result<Given, Reason> {
        let entry = self.publications.get_mut(&request.id).ok_or(Reason::Unknown)?;
        let secret = match entry {
            Entry::Over(_, secret) => secret,
            Entry::Live(published) => &published.secret,
        };
        if !system::same(secret, &request.secret) {
            return Err(Reason::Unknown);
        }
        let published = match entry {
            Entry::Over(reason, _) => return Err(*reason),
            Entry::Live(published) => published.clone(),
        };
        if published.let_in() {
            entries.extend(self.publications.remove(&request.id));
        } else if published.once {
            entries.push(std::mem::replace(entry, Entry::Over(Reason::Used, published.secret)));
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
            match published.ends() {
                Some(end) if end <= now => {
                    let (left, secret) = (published.is_left(), published.secret);
                    entries.push(std::mem::replace(entry, Entry::Over(Reason::Expired, secret)));
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
        self.reserve.fill();
        for _ in 0..MOST_SILENT {
            let Some(running) = &self.running else { return };
            let socket = match reserve::accept(&running.listener) {
                Ok(socket) => socket,
                Err(error) => match self.reserve.cope(&running.listener, &error) {
                    Coped::TurnedAway => continue,
                    Coped::Nobody => break,
                    Coped::Cannot => {
                        self.paused = Some(now + PAUSE);
                        break;
                    }
                },
            };
            if !reserve::is_ours(&socket) {
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
fn spawn(number: u64) -> Result<()> {
    // SAFETY: plain bits, for which zeros are values.
    let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = unsafe { std::mem::zeroed() };
    // SAFETY: both live through the calls.
    unsafe {
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
    }
    let builder = thread::Builder::new().name("tensorferry-share".into()).stack_size(256 << 10);
    let spawned = builder.spawn(move || serve(number));
    // SAFETY: what was before lives through the call.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    spawned.map(drop).map_err(|error| failed("a thread for other processes cannot be started", &error))
}

fn serve(number: u64) {
    loop {
        // A panic would be a mistake of ours; the next round begins from a state that is whole.
        match catch_unwind(AssertUnwindSafe(|| round(number))) {
            Ok(true) => {}
            Ok(false) => return,
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

fn round(number: u64) -> bool {
    let Some((mut polls, until)) = lock().waits(number) else { return false };
    let wait = until.map(|until| until.saturating_duration_since(Instant::now()));
    // Rounded up: a wait that is a little short would be repeated a thousand times.
    let wait = wait.map_or(-1, |wait| i32::try_from(wait.as_millis() + 1).unwrap_or(i32::MAX));
    // SAFETY: as many as there are. Their descriptors are closed by this thread alone.
    let status = unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, wait) };
    if status < 0 {
        polls.iter_mut().for_each(|poll| poll.revents = 0);
    }
    let mut server = lock();
    // Another thread may have taken over meanwhile, which has seen other connections.
    if !server.is_served_by(number) {
        return false;
    }
    let over = server.turn(&polls);
    drop(server);
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
    end();
}

/// Closes the door: the folder goes, and nobody is let in. For a process that is about to end without telling the system's
/// functions; one that publishes again afterwards gets a new folder.
pub fn end() {
    for _ in 0..100 {
        if let Ok(mut server) = SERVER.try_lock() {
            let Some(running) = server.running.take() else { return };
            running.rouse();
            let Running { folder, listener, wake, .. } = running;
            drop(folder);
            // The thread may be waiting for these; the system closes them.
            std::mem::forget((listener, wake));
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
}
