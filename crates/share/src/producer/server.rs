//! The producer: a thread that answers those who come with a ticket.
//!
//! # What it promises
//!
//! - The connection is the lease. While it is open, the memory of the publication is held, whatever becomes of the
//!   publication; when the consumer closes it, exits or is killed, the system closes it and the lease is over.
//! - A consumer of another user is sent away without a word. Who comes with a wrong id or secret, too late, or second to a
//!   ticket for one, is told why.
//! - Who comes when this process has no descriptor left is told so at once ([`crate::producer::fd_reserve`]).
//! - Consumers that say nothing, or nonsense, or do not read, cost a descriptor for some seconds and nothing else: the
//!   thread waits for nobody, and the longest silent one makes room for the next. One that reads quickly does not have the
//!   thread to itself either.
//! - Where the system lets this user have no more descriptors on their way, it is tried again, and after a while the
//!   consumer is told.
//! - However many hold leases, the next one is let in as quickly ([`crate::producer::connection_table`]).
//! - The thread takes no signals, and begins with the first publication.
//!
//! # After a fork
//!
//! The child has no such thread, and no business with the parent's: it closes what it inherited (before `fork` is back),
//! leaves socket and folder alone, and begins anew, with a folder of its own, when it publishes something.

use crate::errors::{failed, last};
use crate::producer::connection::{Connection, Given, Outcome};
use crate::producer::connection_table::{Crowd, Taken};
use crate::producer::epoll::{LISTENER, Poll, ReadyState, WAKE};
use crate::producer::fd_reserve::{self, Coped, Reserve};
use crate::producer::publication::Published;
use crate::producer::socket_dir::Folder;
use crate::protocol::{RejectReason, Request};
use crate::system;
use crate::ticket::Ticket;
use std::collections::BTreeMap;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::net::UnixListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tensorferry_core::Result;

/// The most connections at a time, leases included. Whoever comes then is told.
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
    Over(RejectReason, [u8; 16]),
}

struct Running {
    listener: OwnedFd,
    /// Whether those who come are heard.
    heard: bool,
    folder: Folder,
    path: PathBuf,
    start: u64,
    /// The thread's.
    number: u64,
}

impl Running {
    /// Somebody has cleared away the folder: tickets that were given lead nowhere, and new ones need a new one.
    fn move_in(&mut self, poll: &Poll) -> Result<()> {
        let (folder, listener) = listen(self.start)?;
        hear(poll, &listener)?;
        poll.remove(&self.listener);
        (self.path, self.folder) = (folder.socket(), folder);
        (self.listener, self.heard) = (listener, true);
        Ok(())
    }
}

/// Has the thread hear of those who come.
fn hear(poll: &Poll, listener: &OwnedFd) -> Result<()> {
    let added = poll.add(listener, libc::EPOLLIN, LISTENER);
    added.map_err(|error| failed("the socket for other processes cannot be made", &error))
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
    /// What the thread waits for, from the first publication on for as long as the process lives.
    poll: Option<Poll>,
    publications: BTreeMap<[u8; 16], Entry>,
    crowd: Crowd,
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
            poll: None,
            publications: BTreeMap::new(),
            crowd: Crowd::new(),
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
        self.expect(published.ends());
        self.publications.insert(published.id, Entry::Live(published));
        Ok(ticket)
    }

    /// Notes when a ticket ends.
    fn expect(&mut self, end: Option<Instant>) {
        let Some(end) = end.filter(|end| self.expiry.is_none_or(|expiry| *end < expiry)) else { return };
        self.expiry = Some(end);
        // The thread does not know yet when it has to look next.
        self.poll.iter().for_each(Poll::rouse);
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
        self.expect(published.ends());
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
        let own = usize::from(self.running.is_some()) + self.reserve.count();
        let own = own + self.poll.as_ref().map_or(0, |_| Poll::DESCRIPTORS);
        (live, self.crowd.given(), self.crowd.count() + own)
    }

    fn start(&mut self) -> Result<&Running> {
        let poll = match self.poll.take() {
            Some(poll) => poll,
            None => Poll::new()?,
        };
        let poll = self.poll.insert(poll);
        let running = match self.running.take() {
            Some(mut running) => {
                let moved = if running.path.exists() { Ok(()) } else { running.move_in(poll) };
                let running = self.running.insert(running);
                moved.map(|()| running)?
            }
            None => {
                let start =
                    system::start_time(system::process()).ok_or_else(|| last("/proc cannot be read"))?;
                let (folder, listener) = listen(start)?;
                hear(poll, &listener)?;
                let number = THREADS.fetch_add(1, Ordering::Relaxed);
                spawn(number).inspect_err(|_| poll.remove(&listener))?;
                if !AT_EXIT.swap(true, Ordering::AcqRel) {
                    // SAFETY: the function lives as long as the program.
                    unsafe { libc::atexit(at_exit) };
                }
                self.reserve.fill();
                let path = folder.socket();
                self.running.insert(Running { listener, heard: true, folder, path, start, number })
            }
        };
        Ok(running)
    }

    fn is_served_by(&self, number: u64) -> bool {
        self.running.as_ref().is_some_and(|running| running.number == number)
    }

    /// What the thread of this number has to wait for, and until when; `None` when there is nothing to serve.
    fn waits(&mut self, number: u64) -> Option<(RawFd, Option<Instant>)> {
        let hears = self.paused.is_none();
        let running = self.running.as_mut().filter(|running| running.number == number)?;
        let poll = self.poll.as_ref()?;
        if running.heard != hears {
            poll.change(&running.listener, if hears { libc::EPOLLIN } else { 0 }, LISTENER);
            running.heard = hears;
        }
        let until = self.crowd.deadline().into_iter().chain(self.expiry).chain(self.paused).min();
        Some((poll.list(), until))
    }

    /// One round: does whatever has become possible. What comes back is to be dropped without the lock.
    fn turn(&mut self, ready: &ReadyState) -> (Vec<Connection>, Vec<Entry>) {
        let now = Instant::now();
        let mut entries = self.expire(now);
        if self.paused.is_some_and(|until| until <= now) {
            self.paused = None;
        }
        let (mut over, mut somebody_comes) = (Vec::new(), false);
        for name in ready.names() {
            match name {
                WAKE => self.poll.iter().for_each(Poll::roused),
                LISTENER => somebody_comes = true,
                number => {
                    if let Some(taken) = self.crowd.take(number) {
                        over.extend(self.look_after(taken, now, &mut entries));
                    }
                }
            }
        }
        while let Some(mut taken) = self.crowd.due(now) {
            if !taken.connection().is_late(now) {
                over.extend(self.look_after(taken, now, &mut entries));
            } else if let Some(poll) = &self.poll {
                over.push(Crowd::see_off(poll, taken));
            }
        }
        if somebody_comes {
            self.accept(now, &mut over, &mut entries);
        }
        over.iter().filter_map(Connection::undelivered).for_each(|published| self.take_back(published));
        (over, entries)
    }

    /// Does for a consumer what can be done now; it comes back when it is over.
    fn look_after(&mut self, mut taken: Taken, now: Instant, entries: &mut Vec<Entry>) -> Option<Connection> {
        let goes_on = self.advance(taken.connection(), now, entries);
        let poll = self.poll.as_ref()?;
        if !goes_on {
            return Some(Crowd::see_off(poll, taken));
        }
        self.crowd.put(poll, taken);
        None
    }

    /// A ticket for one that did not reach its consumer is good for another.
    fn take_back(&mut self, published: &Arc<Published>) {
        if let Some(entry @ Entry::Over(RejectReason::Used, _)) = self.publications.get_mut(&published.id) {
            *entry = Entry::Live(published.clone());
            self.expect(published.ends());
        }
    }

    fn advance(&mut self, connection: &mut Connection, now: Instant, entries: &mut Vec<Entry>) -> bool {
        loop {
            match connection.advance(now) {
                Outcome::Waits => return true,
                Outcome::Over => return false,
                Outcome::Declined(published) => self.take_back(&published),
                Outcome::Asks(Some(request)) => {
                    let verdict = self.judge(&request, entries);
                    let published = verdict.as_ref().ok().map(|given| given.published().clone());
                    connection.answer(verdict, now);
                    // Where descriptors have run out, it is a refusal.
                    if connection.undelivered().is_none() {
                        published.iter().for_each(|published| self.take_back(published));
                    }
                }
                Outcome::Asks(None) => connection.answer(Err(RejectReason::Malformed), now),
            }
        }
    }

    /// Whether a request is good, and for what.
    fn judge(&mut self, request: &Request, entries: &mut Vec<Entry>) -> Result<Given, RejectReason> {
        let entry = self.publications.get_mut(&request.id).ok_or(RejectReason::Unknown)?;
        let secret = match entry {
            Entry::Over(_, secret) => secret,
            Entry::Live(published) => &published.secret,
        };
        if !system::same(secret, &request.secret) {
            return Err(RejectReason::Unknown);
        }
        let published = match entry {
            Entry::Over(reason, _) => return Err(*reason),
            Entry::Live(published) => published.clone(),
        };
        if published.let_in() {
            entries.extend(self.publications.remove(&request.id));
        } else if published.once {
            entries.push(std::mem::replace(entry, Entry::Over(RejectReason::Used, published.secret)));
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
                    entries.push(std::mem::replace(entry, Entry::Over(RejectReason::Expired, secret)));
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
            let (Some(running), Some(poll)) = (&self.running, &self.poll) else { return };
            let socket = match fd_reserve::accept(&running.listener) {
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
            if !fd_reserve::is_ours(&socket) {
                continue;
            }
            if self.crowd.count() >= MOST_CONNECTIONS {
                let text = format!("the producer has {MOST_CONNECTIONS} consumers, and takes no more");
                fd_reserve::turn_away(&socket, RejectReason::Failed, &text);
                continue;
            }
            match self.crowd.meet(poll, socket, now) {
                // What a consumer has to say is often there already.
                Ok(taken) => over.extend(self.look_after(taken, now, entries)),
                Err((socket, error)) => {
                    let text = format!("the producer cannot watch one more connection: {error}");
                    fd_reserve::turn_away(&socket, RejectReason::Failed, &text);
                }
            }
        }
        if let Some(poll) = &self.poll {
            let silent = std::iter::from_fn(|| self.crowd.most_silent(MOST_SILENT));
            over.extend(silent.map(|taken| Crowd::see_off(poll, taken)));
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
    let mut ready = ReadyState::new();
    loop {
        // A panic would be a mistake of ours; the next round begins from a state that is whole.
        match catch_unwind(AssertUnwindSafe(|| round(number, &mut ready))) {
            Ok(true) => {}
            Ok(false) => return,
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

fn round(number: u64, ready: &mut ReadyState) -> bool {
    let Some((list, until)) = lock().waits(number) else { return false };
    // It is closed in the child of a fork alone, which does not have this thread.
    ready.wait(list, until);
    let mut server = lock();
    // Another thread may have taken over meanwhile, which is told the same.
    if !server.is_served_by(number) {
        return false;
    }
    let over = server.turn(ready);
    drop(server);
    // Without the lock, and where it takes time on another thread: that is no reason to let others wait. Where there is no
    // thread for it, it is dropped here, with the closure.
    let held = over.0.iter().filter_map(Connection::given);
    let struck = over.1.iter().filter_map(|entry| match entry {
        Entry::Live(published) => Some(published),
        Entry::Over(..) => None,
    });
    if held.chain(struck).any(Published::takes_time_to_drop) {
        let _ = thread::Builder::new().name("tensorferry-release".into()).spawn(move || drop(over));
    }
    true
}

/// Removes the folder when the program ends in good order.
extern "C" fn at_exit() {
    shut_down();
}

/// Closes the door: the folder goes, and nobody is let in. For a process that is about to end without telling the system's
/// functions; one that publishes again afterwards gets a new folder.
pub fn shut_down() {
    for _ in 0..100 {
        if let Ok(mut server) = SERVER.try_lock() {
            let Some(running) = server.running.take() else { return };
            if let Some(poll) = &server.poll {
                poll.remove(&running.listener);
                poll.rouse();
            }
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
}
