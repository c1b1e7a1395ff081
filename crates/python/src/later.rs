//! What is let go later: by whom, and why not at once.
//!
//! A framework may hold a lock of its own while it lets go of memory. A thread of the framework's that waited for the
//! interpreter there would wait for ever, if whoever has the interpreter waits for that lock. So the owner goes on a
//! list, and is released under the GIL, in the order in which owners came:
//!
//! - by the interpreter's main loop, which a thread of ours asks, holding no lock of anybody's while it waits for the GIL;
//! - by that thread, where the main loop does not turn for a while;
//! - by the next `ferry.to`, whichever thread calls it.
//!
//! The thread is started when it is first needed, sleeps for good once the interpreter exits, and is started anew in the
//! child of a fork, which leaves what waited in the parent to the parent.

use crate::interpreter::{self, Pass};
use crate::owner::Owner;
use pyo3::ffi;
use std::ffi::{c_int, c_void};
use std::process;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// How long our thread lets owners come together, so that a row of them costs others the GIL once.
const MOMENT: Duration = Duration::from_millis(1);

/// How long our thread leaves it to the main loop. Released there, a tensor of Paddle's cannot meet the main thread's own
/// calls of Paddle: deleters below Paddle's lock may give up the GIL for a while.
const PATIENCE: Duration = Duration::from_millis(100);

/// An owner that was let go and waits for the interpreter.
struct Waiting {
    _owner: Owner,
    next: *mut Waiting,
}

/// The head of the list of those, the last one first. Owners are pushed one at a time and taken all at once, so no lock is
/// needed, and a fork never copies one that is held.
static WAITING: AtomicPtr<Waiting> = AtomicPtr::new(ptr::null_mut());

/// Whether the interpreter's main loop has been asked and has not come round yet. It keeps 32 wishes of all libraries.
static ASKED: AtomicBool = AtomicBool::new(false);

/// The thread of this process, or of one that it was forked from.
static LATECOMER: AtomicPtr<Latecomer> = AtomicPtr::new(ptr::null_mut());

/// Puts an owner on the list, and sees to it that somebody comes. The caller has a pass.
pub(crate) fn put_off(owner: Owner) {
    let waiting = Box::into_raw(Box::new(Waiting { _owner: owner, next: ptr::null_mut() }));
    let mut head = WAITING.load(Ordering::Relaxed);
    loop {
        // SAFETY: the node is ours until the exchange below gives it to the list.
        unsafe { (*waiting).next = head };
        match WAITING.compare_exchange_weak(head, waiting, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => break,
            Err(now) => head = now,
        }
    }
    // Python 3.11 does not hear threads that it does not know, and the main thread may be in one long call.
    let main_loop_comes = interpreter::is_pythons_thread() && ask_the_main_loop() && is_main_thread();
    if !main_loop_comes {
        call_the_latecomer();
    }
}

/// Releases what waits. Called with the interpreter attached.
#[inline]
pub(crate) fn release_waiting() {
    // Nearly always.
    if !WAITING.load(Ordering::Relaxed).is_null() {
        release_all();
    }
}

#[cold]
fn release_all() {
    let mut rest = WAITING.swap(ptr::null_mut(), Ordering::Acquire);
    let mut in_order: *mut Waiting = ptr::null_mut();
    while !rest.is_null() {
        // SAFETY: whoever swaps the list out owns all of it.
        let next = unsafe { std::mem::replace(&mut (*rest).next, in_order) };
        in_order = std::mem::replace(&mut rest, next);
    }
    while !in_order.is_null() {
        // SAFETY: the nodes came from `Box::into_raw`, and are taken back once.
        in_order = unsafe { Box::from_raw(in_order) }.next;
    }
}

/// Called in the child of a fork. What waited is the parent's to let go; here it is left alone.
pub(crate) fn child_begins() {
    WAITING.store(ptr::null_mut(), Ordering::Relaxed);
    ASKED.store(false, Ordering::Relaxed);
}

/// Whether the main loop will come.
fn ask_the_main_loop() -> bool {
    extern "C" fn come_round(_: *mut c_void) -> c_int {
        ASKED.store(false, Ordering::SeqCst);
        release_waiting();
        0
    }
    if ASKED.swap(true, Ordering::SeqCst) {
        return true;
    }
    // SAFETY: there is an interpreter, since the caller has a pass, and the thread is one of its own.
    let asked = unsafe { ffi::Py_AddPendingCall(Some(come_round), ptr::null_mut()) } == 0;
    if !asked {
        ASKED.store(false, Ordering::SeqCst);
    }
    asked
}

/// Whether this is the thread that the process began with, which is the one that runs the main loop.
fn is_main_thread() -> bool {
    // SAFETY: only asks.
    #[cfg(target_os = "linux")]
    return unsafe { libc::gettid() == libc::getpid() };
    #[cfg(not(target_os = "linux"))]
    return false;
}

/// The thread that lets go in place of others. Whoever finds one of another process starts its own.
struct Latecomer {
    process: u32,
    /// Whether there is something on the list that it has not seen.
    called: AtomicBool,
    thread: OnceLock<Thread>,
}

/// Wakes the thread of this process; starts it where there is none. Where the system has no thread for us, the next call of
/// ours lets go.
fn call_the_latecomer() {
    let now = LATECOMER.load(Ordering::Acquire);
    // SAFETY: null, or leaked below.
    let known = unsafe { now.as_ref() }.filter(|latecomer| latecomer.process == process::id());
    let Some(latecomer) = known.or_else(|| start(now)) else { return };
    // In one order with the thread's own steps: it sees the call, or is seen here and woken.
    if !latecomer.called.swap(true, Ordering::SeqCst)
        && let Some(thread) = latecomer.thread.get()
    {
        thread.unpark();
    }
}

/// Starts the thread of this process, in the place of what is there now.
fn start(now: *mut Latecomer) -> Option<&'static Latecomer> {
    let new = Box::into_raw(Box::new(Latecomer {
        process: process::id(),
        called: AtomicBool::new(false),
        thread: OnceLock::new(),
    }));
    match LATECOMER.compare_exchange(now, new, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            // SAFETY: leaked just now; nobody frees it.
            let new: &'static Latecomer = unsafe { &*new };
            let started = thread::Builder::new().name("tensorferry".into()).spawn(|| new.serve());
            if started.is_err() {
                LATECOMER.store(ptr::null_mut(), Ordering::Release);
            }
            started.is_ok().then_some(new)
        }
        Err(other) => {
            // SAFETY: made above and shown to nobody; the other is null, or was leaked by a thread of this process, since
            // `now` was read in this process.
            unsafe {
                drop(Box::from_raw(new));
                other.as_ref()
            }
        }
    }
}

/// Does it with the interpreter, if anything waits and the interpreter has not begun to exit.
fn with_what_waits(work: impl FnOnce()) {
    if !WAITING.load(Ordering::Relaxed).is_null()
        && let Some(pass) = Pass::get()
    {
        pass.enter(|_| work());
    }
}

impl Latecomer {
    fn serve(&self) {
        self.thread.get_or_init(thread::current);
        loop {
            while !self.called.swap(false, Ordering::SeqCst) {
                thread::park();
            }
            thread::sleep(MOMENT);
            with_what_waits(|| _ = ask_the_main_loop());
            let begin = Instant::now();
            while !WAITING.load(Ordering::Relaxed).is_null() && begin.elapsed() < PATIENCE {
                thread::sleep(MOMENT);
            }
            with_what_waits(release_waiting);
        }
    }
}
