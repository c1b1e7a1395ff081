//! The connection table: all consumers, by what they are waiting for.
//!
//! Most connections are leases on which nothing happens, and there may be thousands. No operation on the path of a
//! request iterates over all of them: a new consumer costs the same with one lease or with many.

use super::connection::Connection;
use super::epoll::Epoll;
use rustix::event::epoll::EventFlags;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Instant;

/// A connection and the events for which it is registered.
struct TableEntry {
    connection: Connection,
    events: EventFlags,
}

pub(crate) struct ConnectionTable {
    /// By token, in the order of arrival.
    entries: BTreeMap<u64, TableEntry>,
    /// When which connection has its next step.
    next_steps: BTreeSet<(Instant, u64)>,
    /// Connections whose request has not arrived.
    awaiting_request: BTreeSet<u64>,
    next_token: u64,
}

/// A connection that was taken out of the table for a step.
pub(super) struct TakenConnection {
    token: u64,
    entry: TableEntry,
}

impl TakenConnection {
    pub(super) fn connection(&mut self) -> &mut Connection {
        &mut self.entry.connection
    }
}

impl ConnectionTable {
    pub(super) const fn new() -> Self {
        Self {
            entries: BTreeMap::new(),
            next_steps: BTreeSet::new(),
            awaiting_request: BTreeSet::new(),
            next_token: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The number of connections that hold a lease. It iterates over all of them.
    pub(super) fn lease_count(&self) -> usize {
        self.entries.values().filter(|entry| entry.connection.leased().is_some()).count()
    }

    /// When the next step of any connection is due.
    pub(super) fn next_step(&self) -> Option<Instant> {
        self.next_steps.first().map(|(next_step, _)| *next_step)
    }

    /// Registers a new connection with epoll. On an error the socket is returned.
    pub(super) fn register(
        &mut self,
        epoll: &Epoll,
        socket: OwnedFd,
        now: Instant,
    ) -> Result<TakenConnection, (OwnedFd, io::Error)> {
        let token = self.next_token;
        let connection = Connection::new(socket, now);
        let events = connection.events();
        // Before the first reply: a consumer whose end goes unnoticed would hold its memory forever.
        if let Err(error) = epoll.add(connection.socket(), events, token) {
            return Err((connection.into_socket(), error));
        }
        self.next_token += 1;
        Ok(TakenConnection { token, entry: TableEntry { connection, events } })
    }

    /// Takes a connection out. It returns with [`ConnectionTable::insert`] or ends with
    /// [`ConnectionTable::unregister`].
    pub(super) fn take(&mut self, token: u64) -> Option<TakenConnection> {
        let entry = self.entries.remove(&token)?;
        if let Some(next_step) = entry.connection.next_step() {
            self.next_steps.remove(&(next_step, token));
        }
        self.awaiting_request.remove(&token);
        Some(TakenConnection { token, entry })
    }

    /// Inserts a connection after a step.
    pub(super) fn insert(&mut self, epoll: &Epoll, taken: TakenConnection) {
        let TakenConnection { token, mut entry } = taken;
        let events = entry.connection.events();
        if events != entry.events {
            epoll.modify(entry.connection.socket(), events, token);
            entry.events = events;
        }
        self.next_steps.extend(entry.connection.next_step().map(|next_step| (next_step, token)));
        if entry.connection.awaits_request() {
            self.awaiting_request.insert(token);
        }
        self.entries.insert(token, entry);
    }

    /// Unregisters a connection that has ended, and returns it to be dropped.
    pub(super) fn unregister(epoll: &Epoll, taken: TakenConnection) -> Connection {
        epoll.remove(taken.entry.connection.socket());
        taken.entry.connection
    }

    /// Takes out a connection whose next step is due.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<TakenConnection> {
        let token = self.next_steps.first().filter(|(next_step, _)| *next_step <= now)?.1;
        self.take(token)
    }

    /// Takes out the oldest connection without a request, if there are more than `max_count`.
    pub(super) fn take_oldest_without_request(&mut self, max_count: usize) -> Option<TakenConnection> {
        let token = self.awaiting_request.first().copied();
        let token = token.filter(|_| self.awaiting_request.len() > max_count)?;
        self.take(token)
    }
}
