//! The server thread: starting it with the first publication, its event loop, and its end.
//!
//! The thread blocks all signals. A child of `fork()` does not have it: there the fork handlers close what was
//! inherited before `fork` returns, leave the parent's socket alone, and the first publication starts a server of the
//! child's own.

use super::epoll::{Epoll, EpollEvents};
use super::listener::Listener;
use super::publication_record::Published;
use super::server::{self, ACCEPT_PAUSE, RunningServer, Server};
use crate::errors::system_error;
use crate::libc_calls::{self, BlockedSignals};
use crate::system;
use crate::ticket::Ticket;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use tensorferry_core::Result;

/// How often and how long a process that is ending waits for the server's lock.
const SHUT_DOWN_ATTEMPTS: usize = 100;
const SHUT_DOWN_PAUSE: Duration = Duration::from_millis(1);
const STACK_BYTES: usize = 256 << 10;

static EXIT_HANDLER_INSTALLED: AtomicBool = AtomicBool::new(false);
/// The number of the next thread. A thread ends when the server has started another one.
static NEXT_THREAD_NUMBER: AtomicU64 = AtomicU64::new(0);

impl Server {
    /// Starts the server if necessary, and makes the ticket of a publication valid.
    pub(super) fn publish(&mut self, published: Arc<Published>) -> Result<Ticket> {
        let running = self.start()?;
        let (path, process) = (running.listener.path.clone(), system::process_id());
        let ticket = Ticket::new(path, published.id, published.secret, process, running.start_time)?;
        self.insert(published);
        Ok(ticket)
    }

    fn start(&mut self) -> Result<&RunningServer> {
        let epoll = match self.epoll {
            Some(epoll) => epoll,
            None => *self.epoll.insert(Epoll::new()?),
        };
        let running = match self.running.take() {
            Some(mut running) => {
                let restarted = restart_if_removed(&mut running, epoll);
                let running = self.running.insert(running);
                restarted.map(|()| running)?
            }
            None => {
                let start_time = system::start_time(system::process_id())
                    .and_then(|found| found.ok_or_else(|| io::ErrorKind::NotFound.into()))
                    .map_err(|error| system_error("cannot read /proc", error))?;
                let listener = Listener::new(epoll, start_time)?;
                let thread_number = NEXT_THREAD_NUMBER.fetch_add(1, Ordering::Relaxed);
                spawn(thread_number).inspect_err(|_| epoll.remove(&listener.socket))?;
                if !EXIT_HANDLER_INSTALLED.swap(true, Ordering::AcqRel) {
                    libc_calls::at_exit(on_exit);
                }
                self.fd_reserve.refill();
                self.running.insert(RunningServer { listener, start_time, thread_number })
            }
        };
        Ok(running)
    }
}

/// Listens in a new directory if the old one was removed. Tickets that contain the old path stay unreachable.
fn restart_if_removed(running: &mut RunningServer, epoll: &Epoll) -> Result<()> {
    if running.listener.path.exists() {
        return Ok(());
    }
    let listener = Listener::new(epoll, running.start_time)?;
    epoll.remove(&running.listener.socket);
    running.listener = listener;
    Ok(())
}

/// Starts the thread, which inherits a mask that blocks all signals.
fn spawn(thread_number: u64) -> Result<()> {
    let blocked = BlockedSignals::new();
    let builder = thread::Builder::new().name("tensorferry-share".into()).stack_size(STACK_BYTES);
    let spawned = builder.spawn(move || run(thread_number));
    drop(blocked);
    spawned.map(drop).map_err(|error| system_error("cannot start the server thread", error))
}

fn run(thread_number: u64) {
    let mut events = EpollEvents::new();
    loop {
        // A panic is a bug; the state is consistent at the beginning of every step.
        match catch_unwind(AssertUnwindSafe(|| wait_and_step(thread_number, &mut events))) {
            Ok(true) => {}
            Ok(false) => return,
            Err(_) => thread::sleep(ACCEPT_PAUSE),
        }
    }
}

/// Returns whether the thread goes on.
fn wait_and_step(thread_number: u64, events: &mut EpollEvents) -> bool {
    let Some((epoll, deadline)) = server::lock().prepare_wait(thread_number) else { return false };
    events.wait(epoll, deadline);
    let mut server = server::lock();
    // The server may have started another thread, which receives the same events.
    if !server.is_served_by(thread_number) {
        return false;
    }
    let ended = server.step(events);
    drop(server);
    // Without the lock, and on another thread if it takes long, so that consumers do not wait. If no thread can be
    // started, the closure is dropped here, and `ended` with it.
    if ended.is_slow_to_drop() {
        let _ = thread::Builder::new().name("tensorferry-release".into()).spawn(move || drop(ended));
    }
    true
}

/// Removes the socket directory when the program exits.
extern "C" fn on_exit() {
    shut_down();
}

/// Stops accepting consumers and removes the socket directory. For a process that ends without calling exit handlers;
/// a later publication starts the server again.
pub fn shut_down() {
    for _ in 0..SHUT_DOWN_ATTEMPTS {
        if let Some(mut server) = server::try_lock() {
            let Some(running) = server.running.take() else { return };
            if let Some(epoll) = server.epoll {
                epoll.remove(&running.listener.socket);
                epoll.wake();
            }
            return;
        }
        thread::sleep(SHUT_DOWN_PAUSE);
    }
}
