//! The server: its state, and one step of its event loop.
//!
//! # Guarantees
//!
//! - The connection is the lease. The memory of a publication is held while the connection is open, whatever becomes
//!   of the publication. The lease ends when the consumer closes the connection, exits or is killed.
//! - A consumer of another user is disconnected without a reply. A consumer with an unknown id, an invalid secret, or
//!   an expired or used ticket receives the reason.
//! - A consumer that connects when this process has no descriptor left is rejected at once ([`super::fd_reserve`]).
//! - A consumer that sends nothing, sends garbage or does not read costs a descriptor for some seconds and nothing
//!   else. The event loop never blocks on a consumer, and the oldest connection without a request makes room for the
//!   next.
//! - A consumer that reads fast does not starve the others ([`super::reply_sender`]).
//! - The time to serve a consumer does not depend on the number of leases ([`super::connection_table`]).

use super::accept::{accept, is_same_user, reject};
use super::connection::{Connection, Progress};
use super::connection_table::{ConnectionTable, TakenConnection};
use super::epoll::{Epoll, EpollEvents, LISTENER_TOKEN, WAKE_TOKEN};
use super::fd_reserve::{AcceptFailure, FdReserve};
use super::listener::Listener;
use super::publication_record::Published;
use super::publication_table::{PublicationTable, TableEntry};
use crate::protocol::RejectReason;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Connections at a time, leases included. Further consumers are rejected.
const MAX_CONNECTIONS: usize = 16 << 10;
/// Connections at a time whose request has not arrived.
const MAX_CONNECTIONS_WITHOUT_REQUEST: usize = 64;
/// How long no connection is accepted after `accept` failed and the consumer could not be rejected.
pub(super) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

static SERVER: Mutex<Server> = Mutex::new(Server::new());

pub(crate) fn lock() -> MutexGuard<'static, Server> {
    SERVER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The lock for a process that is ending, where its holder may never run again.
pub(super) fn try_lock() -> Option<MutexGuard<'static, Server>> {
    SERVER.try_lock().ok()
}

/// A listener and the thread that serves it.
pub(super) struct RunningServer {
    pub(super) listener: Listener,
    /// The start time of this process.
    pub(super) start_time: u64,
    pub(super) thread_number: u64,
}

/// The state of the server. The thread that serves it is in [`super::server_thread`].
pub(crate) struct Server {
    pub(super) running: Option<RunningServer>,
    /// Created with the first publication, and kept until the process ends.
    pub(super) epoll: Option<&'static Epoll>,
    publications: PublicationTable,
    connections: ConnectionTable,
    accept_paused_until: Option<Instant>,
    pub(super) fd_reserve: FdReserve,
}

/// What the server holds.
pub(crate) struct ServerCounts {
    pub(crate) publications: usize,
    pub(crate) granted_leases: usize,
    pub(crate) descriptors: usize,
}

/// What a step has ended. It is dropped without the server's lock.
#[derive(Default)]
pub(super) struct Ended {
    connections: Vec<Connection>,
    publications: Vec<TableEntry>,
}

impl Ended {
    /// Whether dropping this may take long.
    pub(super) fn is_slow_to_drop(&self) -> bool {
        let leased = self.connections.iter().filter_map(Connection::leased);
        let removed = self.publications.iter().filter_map(TableEntry::live);
        leased.chain(removed).any(Published::is_slow_to_drop)
    }
}

impl Server {
    const fn new() -> Self {
        Self {
            running: None,
            epoll: None,
            publications: PublicationTable::new(),
            connections: ConnectionTable::new(),
            accept_paused_until: None,
            fd_reserve: FdReserve::new(),
        }
    }

    /// Makes the ticket of a publication valid.
    pub(super) fn insert(&mut self, published: Arc<Published>) {
        let is_earlier = self.publications.insert(published);
        self.wake_if(is_earlier);
    }

    /// Wakes the thread if its next deadline has changed.
    fn wake_if(&self, is_earlier: bool) {
        if is_earlier {
            self.epoll.into_iter().for_each(Epoll::wake);
        }
    }

    /// The publication with this id, if its ticket is valid.
    pub(super) fn live(&self, id: &[u8; 16]) -> Option<&Arc<Published>> {
        self.publications.live(id)
    }

    /// Keeps a publication for the expected consumers only. Returns false if none is expected, or the ticket is
    /// invalid.
    pub(super) fn orphan(&mut self, id: &[u8; 16]) -> bool {
        let Some(published) = self.live(id).filter(|published| published.orphan()).cloned() else {
            return false;
        };
        let is_earlier = self.publications.note_deadline(published.deadline());
        self.wake_if(is_earlier);
        true
    }

    /// Removes a publication. The entry is dropped without the lock.
    pub(super) fn remove(&mut self, id: &[u8; 16]) -> Option<TableEntry> {
        self.publications.remove(id)
    }

    /// For the child of a fork: leaves everything to the parent. Dropping the result closes the child's copies, except
    /// that of the epoll instance.
    pub(crate) fn abandon(&mut self) -> Self {
        std::mem::replace(self, Self::new())
    }

    /// For the child of a fork: the epoll instance, which this server then has no longer.
    pub(crate) fn take_epoll(&mut self) -> Option<&'static Epoll> {
        self.epoll.take()
    }

    pub(crate) fn counts(&self) -> ServerCounts {
        let epoll = self.epoll.map_or(0, |_| Epoll::DESCRIPTOR_COUNT);
        let listener = usize::from(self.running.is_some());
        let own = listener + self.fd_reserve.descriptor_count() + epoll;
        ServerCounts {
            publications: self.publications.live_count(),
            granted_leases: self.connections.lease_count(),
            descriptors: self.connections.len() + own,
        }
    }

    pub(super) fn is_served_by(&self, thread_number: u64) -> bool {
        self.running.as_ref().is_some_and(|running| running.thread_number == thread_number)
    }

    /// The epoll instance and the deadline for the next wait; `None` if the thread has nothing to serve any more.
    pub(super) fn prepare_wait(&mut self, thread_number: u64) -> Option<(&'static Epoll, Option<Instant>)> {
        let running = self.running.as_mut().filter(|running| running.thread_number == thread_number)?;
        let epoll = self.epoll?;
        running.listener.set_enabled(epoll, self.accept_paused_until.is_none());
        let deadlines = self.connections.next_step().into_iter();
        let deadlines = deadlines.chain(self.publications.next_deadline()).chain(self.accept_paused_until);
        Some((epoll, deadlines.min()))
    }

    /// Handles all events and deadlines.
    pub(super) fn step(&mut self, events: &EpollEvents) -> Ended {
        let now = Instant::now();
        let mut ended = Ended { publications: self.publications.expire(now), ..Ended::default() };
        if self.accept_paused_until.is_some_and(|until| until <= now) {
            self.accept_paused_until = None;
        }
        let mut has_new_connections = false;
        for token in events.tokens() {
            match token {
                WAKE_TOKEN => self.epoll.into_iter().for_each(Epoll::clear_wake),
                LISTENER_TOKEN => has_new_connections = true,
                token => {
                    if let Some(taken) = self.connections.take(token) {
                        self.serve(taken, now, &mut ended);
                    }
                }
            }
        }
        while let Some(mut taken) = self.connections.take_due(now) {
            if !taken.connection().is_timed_out(now) {
                self.serve(taken, now, &mut ended);
            } else if let Some(epoll) = self.epoll {
                ended.connections.push(ConnectionTable::unregister(epoll, taken));
            }
        }
        if has_new_connections {
            self.accept_connections(now, &mut ended);
        }
        for published in ended.connections.iter().filter_map(Connection::undelivered) {
            self.restore(published);
        }
        ended
    }

    /// Advances a connection as far as possible without waiting.
    fn serve(&mut self, mut taken: TakenConnection, now: Instant, ended: &mut Ended) {
        let is_open = self.advance(taken.connection(), now, ended);
        let Some(epoll) = self.epoll else { return };
        if is_open {
            self.connections.insert(epoll, taken);
        } else {
            ended.connections.push(ConnectionTable::unregister(epoll, taken));
        }
    }

    /// Makes a ticket for one consumer valid again, because it did not reach its consumer.
    fn restore(&mut self, published: &Arc<Published>) {
        let is_earlier = self.publications.restore(published);
        self.wake_if(is_earlier);
    }

    /// Returns whether the connection stays open.
    fn advance(&mut self, connection: &mut Connection, now: Instant, ended: &mut Ended) -> bool {
        loop {
            match connection.advance(now) {
                Progress::Waiting => return true,
                Progress::Closed => return false,
                Progress::Undeliverable(published) => self.restore(&published),
                Progress::Requested(Some(request)) => {
                    let grant = self.publications.admit(&request, &mut ended.publications);
                    let published = grant.as_ref().ok().map(|grant| grant.published().clone());
                    connection.reply(grant, now);
                    // Without descriptors the reply became a rejection.
                    if connection.undelivered().is_none() {
                        published.iter().for_each(|published| self.restore(published));
                    }
                }
                Progress::Requested(None) => connection.reply(Err(RejectReason::Malformed), now),
            }
        }
    }

    fn accept_connections(&mut self, now: Instant, ended: &mut Ended) {
        self.fd_reserve.refill();
        for _ in 0..MAX_CONNECTIONS_WITHOUT_REQUEST {
            let (Some(running), Some(epoll)) = (&self.running, self.epoll) else { return };
            let listener = &running.listener.socket;
            let socket = match accept(listener) {
                Ok(socket) => socket,
                Err(error) => match self.fd_reserve.handle_accept_error(listener, error) {
                    AcceptFailure::Rejected => continue,
                    AcceptFailure::QueueEmpty => break,
                    AcceptFailure::Blocked => {
                        self.accept_paused_until = Some(now + ACCEPT_PAUSE);
                        break;
                    }
                },
            };
            if !is_same_user(&socket) {
                continue;
            }
            if self.connections.len() >= MAX_CONNECTIONS {
                let text = format!("the producer has reached its limit of {MAX_CONNECTIONS} consumers");
                reject(&socket, RejectReason::Failed, &text);
                continue;
            }
            match self.connections.register(epoll, socket, now) {
                // The request has often arrived already.
                Ok(taken) => self.serve(taken, now, ended),
                Err((socket, error)) => {
                    let text = format!("the producer cannot watch one more connection: {error}");
                    reject(&socket, RejectReason::Failed, &text);
                }
            }
        }
        if let Some(epoll) = self.epoll {
            let max_count = MAX_CONNECTIONS_WITHOUT_REQUEST;
            while let Some(taken) = self.connections.take_oldest_without_request(max_count) {
                ended.connections.push(ConnectionTable::unregister(epoll, taken));
            }
        }
    }
}
