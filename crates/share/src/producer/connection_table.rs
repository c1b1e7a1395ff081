//! All consumers that are connected: who is ready, whose time is over, and who has been silent for longest.
//!
//! Most of them hold memory and say nothing, and may be thousands. So nothing here looks at all of them: a consumer that
//! comes costs the same whether there is one or there are many.

use crate::producer::connection::Connection;
use crate::producer::epoll::Poll;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Instant;

/// A consumer and the events that the system was asked for.
struct Member {
    connection: Connection,
    events: i32,
}

pub(crate) struct Crowd {
    /// By number, in the order in which they came.
    members: BTreeMap<u64, Member>,
    /// Who is to be looked at again when.
    deadlines: BTreeSet<(Instant, u64)>,
    /// Who has not said yet what it wants.
    silent: BTreeSet<u64>,
    next: u64,
}

/// A consumer that was taken out, to be looked at.
pub(crate) struct Taken {
    number: u64,
    member: Member,
}

impl Taken {
    pub(crate) fn connection(&mut self) -> &mut Connection {
        &mut self.member.connection
    }
}

impl Crowd {
    pub(crate) const fn new() -> Self {
        Self { members: BTreeMap::new(), deadlines: BTreeSet::new(), silent: BTreeSet::new(), next: 0 }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.members.len()
    }

    /// How many have been given something.
    pub(crate) fn given(&self) -> usize {
        self.members.values().filter(|member| member.connection.holds()).count()
    }

    /// When the first of them is to be looked at again.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// A consumer that has just come; the socket comes back where the system cannot watch it.
    pub(crate) fn meet(
        &mut self,
        poll: &Poll,
        socket: OwnedFd,
        now: Instant,
    ) -> Result<Taken, (OwnedFd, io::Error)> {
        let number = self.next;
        let connection = Connection::new(socket, now);
        let events = connection.events();
        // Before it is answered: one whose end nobody notices would hold its memory for good.
        if let Err(error) = poll.add(connection.socket(), events, number) {
            return Err((connection.into_socket(), error));
        }
        self.next += 1;
        Ok(Taken { number, member: Member { connection, events } })
    }

    /// Takes one out. It goes back with [`Crowd::put`], or out with [`Crowd::see_off`].
    pub(crate) fn take(&mut self, number: u64) -> Option<Taken> {
        let member = self.members.remove(&number)?;
        if let Some(deadline) = member.connection.deadline() {
            self.deadlines.remove(&(deadline, number));
        }
        self.silent.remove(&number);
        Some(Taken { number, member })
    }

    /// Puts one back that goes on.
    pub(crate) fn put(&mut self, poll: &Poll, taken: Taken) {
        let Taken { number, mut member } = taken;
        let events = member.connection.events();
        if events != member.events {
            poll.change(member.connection.socket(), events, number);
            member.events = events;
        }
        self.deadlines.extend(member.connection.deadline().map(|deadline| (deadline, number)));
        if member.connection.is_silent() {
            self.silent.insert(number);
        }
        self.members.insert(number, member);
    }

    /// One that is over, to be dropped.
    pub(crate) fn see_off(poll: &Poll, taken: Taken) -> Connection {
        poll.remove(taken.member.connection.socket());
        taken.member.connection
    }

    /// One that is to be looked at again by now, or whose time is over, if there is one.
    pub(crate) fn due(&mut self, now: Instant) -> Option<Taken> {
        let number = self.deadlines.first().filter(|(deadline, _)| *deadline <= now)?.1;
        self.take(number)
    }

    /// The one that has been silent for longest, if more than so many are.
    pub(crate) fn most_silent(&mut self, most: usize) -> Option<Taken> {
        let number = self.silent.first().copied().filter(|_| self.silent.len() > most)?;
        self.take(number)
    }
}
