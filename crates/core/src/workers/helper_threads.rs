//! The helper threads and the slots through which callers post jobs to them.

use crate::sync::thread::{self, JoinHandle, Thread};
use crate::sync::{AtomicBool, AtomicPtr, AtomicUsize, OnceLock, Ordering};
use std::mem::{self, ManuallyDrop};
use std::panic::{self, AssertUnwindSafe};
use std::process;
use std::ptr;
#[cfg(not(loom))]
use std::time::{Duration, Instant};

/// The maximum number of helpers of a process. In a model one helper and two callers are three threads.
const MAX_HELPER_THREADS: usize = if cfg!(loom) { 1 } else { 127 };
/// How long an idle helper spins before it sleeps, and a caller before it waits for its helpers.
#[cfg(not(loom))]
const SPIN_TIME: Duration = Duration::from_micros(50);
/// The checks of a condition between two reads of the clock, which costs about as much as they do.
#[cfg(not(loom))]
const CHECKS_PER_CLOCK_READ: usize = 16;

/// Runs the task once for each number below `count`, on at most `threads` threads.
///
/// # Panics
/// When the task panics on any thread.
pub(crate) fn for_each_parallel(count: usize, threads: usize, task: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    run_parallel(threads.min(count), || {
        // Relaxed: only the number matters; the end of a job publishes what its helpers wrote.
        while let number = next.fetch_add(1, Ordering::Relaxed)
            && number < count
        {
            task(number);
        }
    });
}

/// Runs the work on the calling thread and concurrently on at most `threads - 1` helpers. There may be fewer helpers or
/// none, so the work must complete on the calling thread alone. The work must not fork: the child would wait for helpers that
/// only the parent has.
///
/// # Panics
/// When the work panics on any thread.
pub fn run_parallel(threads: usize, work: impl Fn() + Sync) {
    let helpers = threads.saturating_sub(1);
    if helpers == 0 {
        return work();
    }
    // Miri and loom require that every thread has ended by the end of the program.
    #[cfg(any(miri, loom))]
    HelperThreads::new(MAX_HELPER_THREADS).run(helpers, &work);
    #[cfg(not(any(miri, loom)))]
    {
        static HELPERS: ProcessHelpers = ProcessHelpers { current: AtomicPtr::new(ptr::null_mut()) };
        HELPERS.get().run(helpers, &work);
    }
}

/// The helpers of this process, which are created on first use and never freed.
struct ProcessHelpers {
    /// Null, or from `Box::into_raw` in `get`, of this process or of the one that forked it.
    current: AtomicPtr<HelperThreads>,
}

#[cfg_attr(
    any(miri, all(loom, not(test))),
    expect(dead_code, reason = "under Miri and loom no helpers outlive a call")
)]
impl ProcessHelpers {
    fn get(&self) -> &'static HelperThreads {
        let current = self.current.load(Ordering::Acquire);
        // SAFETY: `current` is null or points to helpers that are never freed; the load acquires what `get` published.
        if let Some(helpers) = unsafe { current.as_ref() }
            && helpers.process == process::id()
        {
            return helpers;
        }
        // The parent's helpers are not freed, because they are alive in the parent.
        let new = Box::into_raw(Box::new(HelperThreads::new(MAX_HELPER_THREADS)));
        match self.current.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: `new` comes from a box, and no code frees what `current` has pointed to.
            Ok(_) => unsafe { &*new },
            Err(other) => {
                // SAFETY: `new` comes from `Box::into_raw`, and the exchange that failed did not publish it. `other` is what
                // a second thread of this process published after the load of `current`, so it is not null and never
                // freed, and the failed exchange acquires it.
                unsafe {
                    drop(Box::from_raw(new));
                    &*other
                }
            }
        }
    }
}

/// The threads of a model must end.
#[cfg(loom)]
impl Drop for ProcessHelpers {
    fn drop(&mut self) {
        // SAFETY: `get`, which the model has called, took the helpers out of a box. The model drops this after its last call.
        drop(unsafe { Box::from_raw(self.current.load(Ordering::Relaxed)) });
    }
}

/// Work that helpers join.
#[repr(align(64))]
struct Job<'a> {
    /// Runs until all work is done.
    work: &'a (dyn Fn() + Sync),
    /// The number of slots with this job and of helpers that run it.
    pending: AtomicUsize,
    panicked: AtomicBool,
    caller: Thread,
}

/// The helpers of one process.
struct HelperThreads {
    slots: Box<[Slot]>,
    /// The number of callers with running work.
    callers: AtomicUsize,
    process: u32,
}

/// The slot through which one helper receives jobs. Its alignment avoids false sharing with its neighbours.
#[repr(align(128))]
struct Slot {
    /// [`VACANT`], [`IDLE`], [`BUSY`], [`STOP`] or a job.
    word: AtomicPtr<Job<'static>>,
    /// Whether the helper must be woken.
    asleep: AtomicBool,
    /// The core of the caller of the last job.
    caller_core: AtomicUsize,
    /// Taken, without exclusive access, when the helpers are dropped.
    helper: OnceLock<ManuallyDrop<JoinHandle<()>>>,
}

/// No helper has been started.
const VACANT: *mut Job<'static> = ptr::without_provenance_mut(1);
/// The helper waits for a job.
const IDLE: *mut Job<'static> = ptr::null_mut();
/// The helper runs a job.
const BUSY: *mut Job<'static> = ptr::without_provenance_mut(2);
/// The helper has to end.
const STOP: *mut Job<'static> = ptr::without_provenance_mut(3);

fn is_job(word: *mut Job<'static>) -> bool {
    ![VACANT, IDLE, BUSY, STOP].contains(&word)
}

impl HelperThreads {
    /// No helpers yet, and room for `capacity`.
    fn new(capacity: usize) -> Self {
        let slot = || Slot {
            word: AtomicPtr::new(VACANT),
            asleep: AtomicBool::new(false),
            caller_core: AtomicUsize::new(usize::MAX),
            helper: OnceLock::new(),
        };
        Self {
            slots: (0..capacity).map(|_| slot()).collect(),
            callers: AtomicUsize::new(0),
            process: process::id(),
        }
    }

    /// Runs the work on this thread and on at most this caller's share of `helpers` helpers.
    fn run(&self, helpers: usize, work: &(dyn Fn() + Sync)) {
        let caller = ActiveCaller::register(&self.callers);
        let helpers = ((helpers + 1) / caller.number).saturating_sub(1);
        if helpers == 0 {
            return work();
        }
        let job = Job {
            work,
            pending: AtomicUsize::new(0),
            panicked: AtomicBool::new(false),
            caller: thread::current(),
        };
        let posted = PostedJob { helpers: self, job: &job };
        posted.post(helpers);
        work();
        drop(posted);
        if job.panicked.into_inner() {
            panic::resume_unwind(Box::new("the work panicked on a helper thread"));
        }
    }
}

/// A caller with running work.
struct ActiveCaller<'a> {
    callers: &'a AtomicUsize,
    /// The number of active callers, including this one, when it registered.
    number: usize,
}

impl<'a> ActiveCaller<'a> {
    fn register(callers: &'a AtomicUsize) -> Self {
        // Relaxed: an outdated number makes a call slower but not incorrect.
        Self { callers, number: callers.fetch_add(1, Ordering::Relaxed) + 1 }
    }
}

impl Drop for ActiveCaller<'_> {
    fn drop(&mut self) {
        self.callers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A job that is posted to slots. Its drop withdraws it from the slots and waits for the helpers that run it, also if the
/// caller's own work panics.
struct PostedJob<'a> {
    helpers: &'a HelperThreads,
    job: &'a Job<'a>,
}

impl PostedJob<'_> {
    /// The address of the job, as slots store it.
    fn word(&self) -> *mut Job<'static> {
        ptr::from_ref(self.job).cast_mut().cast()
    }

    /// Posts the job to this many idle helpers, and starts helpers in vacant slots among the first `helpers`.
    fn post(&self, helpers: usize) {
        let mut left = helpers;
        for (index, slot) in self.helpers.slots.iter().enumerate() {
            let word = slot.word.load(Ordering::Relaxed);
            // Slots are filled from the front, so the slots after a vacant one are vacant too, except where the system
            // refused a thread.
            if left == 0 || (word == VACANT && index >= helpers) {
                return;
            }
            if (word != IDLE && word != VACANT) || !self.put(slot, word) {
                continue;
            }
            // SAFETY: the slot is one of `HelperThreads`, whose drop joins the helper before it frees the slot.
            if word == VACANT && !unsafe { slot.start() } {
                // The system refused a thread.
                self.job.pending.fetch_sub(1, Ordering::Relaxed);
                slot.word.store(VACANT, Ordering::Relaxed);
                return;
            }
            left -= 1;
        }
    }

    /// Stores the job in a slot if its word is still the expected one, and wakes the helper.
    fn put(&self, slot: &Slot, word: *mut Job<'static>) -> bool {
        self.job.pending.fetch_add(1, Ordering::Relaxed);
        // SeqCst orders this with the helper's store to `asleep` and its last check of the word: one sees the other.
        if slot.word.compare_exchange(word, self.word(), Ordering::SeqCst, Ordering::Relaxed).is_err() {
            self.job.pending.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        slot.caller_core.store(current_core(), Ordering::Relaxed);
        if slot.asleep.load(Ordering::SeqCst)
            && let Some(helper) = slot.helper.get()
        {
            helper.thread().unpark();
        }
        true
    }
}

impl Drop for PostedJob<'_> {
    fn drop(&mut self) {
        let word = self.word();
        let is_over = || self.job.pending.load(Ordering::Acquire) == 0;
        for slot in &self.helpers.slots {
            if is_over() {
                return;
            }
            let mine = slot.word.load(Ordering::Relaxed) == word
                && slot.word.compare_exchange(word, IDLE, Ordering::Relaxed, Ordering::Relaxed).is_ok();
            if mine {
                self.job.pending.fetch_sub(1, Ordering::Relaxed);
            }
        }
        while !spin_until(is_over, || false) {
            // The last helper unparks this thread. A spurious wake-up is harmless.
            thread::park();
        }
    }
}

impl Slot {
    /// Starts a helper for this slot; returns whether the system could start a thread.
    ///
    /// # Safety
    /// The slot must outlive the helper.
    unsafe fn start(&self) -> bool {
        // SAFETY: the slot outlives the helper, which is this function's contract, and the helper alone keeps the reference.
        let slot: &'static Slot = unsafe { &*ptr::from_ref(self) };
        let started = thread::Builder::new().name("tensorferry".into()).spawn(|| slot.run_jobs());
        // Only the caller that filled the vacant slot calls this, so the cell is empty.
        started.map(|helper| self.helper.set(ManuallyDrop::new(helper))).is_ok()
    }

    /// The main loop of a helper.
    fn run_jobs(&self) {
        while let Some(job) = self.next() {
            // SAFETY: `job` points to a live `Job` until the subtraction from `pending` below. `put` added this helper to
            // `pending` before it stored the address, and `PostedJob::drop`, which `run` cannot leave without, waits
            // until `pending` is 0. The exchange in `next` acquires the fields. They are only read, or atomic.
            let (work, panicked, caller) =
                unsafe { ((*job).work, &raw const (*job).panicked, (*job).caller.clone()) };
            if let Err(payload) = panic::catch_unwind(AssertUnwindSafe(work)) {
                // SAFETY: `panicked` is a field of the job, which is alive until the subtraction below.
                unsafe { (*panicked).store(true, Ordering::Relaxed) };
                // A payload whose drop panics must not end the helper, because the caller waits for it.
                if let Err(second) = panic::catch_unwind(AssertUnwindSafe(|| drop(payload))) {
                    mem::forget(second);
                }
            }
            // Idle before the caller is notified, so that its next call finds this helper.
            self.word.store(IDLE, Ordering::Release);
            // SAFETY: the job is alive until this subtraction, and nothing uses it afterwards. The caller may free it before
            // `fetch_sub` returns, which a reference to an atomic permits.
            let before = unsafe { (*job).pending.fetch_sub(1, Ordering::Release) };
            if before == 1 {
                caller.unpark();
            }
        }
    }

    /// Waits for a job and takes it; `None` if the helper has to end.
    fn next(&self) -> Option<*mut Job<'static>> {
        loop {
            let word = self.word.load(Ordering::Relaxed);
            if word == STOP {
                return None;
            }
            if is_job(word) {
                let taken =
                    self.word.compare_exchange(word, BUSY, Ordering::Acquire, Ordering::Relaxed).is_ok();
                if taken {
                    return Some(word);
                }
                continue;
            }
            let has_work = || self.word.load(Ordering::SeqCst) != IDLE;
            // On the caller's core, spinning would delay the call itself.
            let shares_core = || self.caller_core.load(Ordering::Relaxed) == current_core();
            if spin_until(has_work, shares_core) {
                continue;
            }
            // Sleeping is safe only once `helper` is set, through which callers wake this thread.
            if self.helper.get().is_none() {
                thread::yield_now();
                continue;
            }
            self.asleep.store(true, Ordering::SeqCst);
            if !has_work() {
                thread::park();
            }
            self.asleep.store(false, Ordering::Relaxed);
        }
    }
}

/// The core of this thread; the same for all threads where the system has no query, so that none spins.
fn current_core() -> usize {
    #[cfg(all(target_os = "linux", not(miri), not(loom)))]
    // SAFETY: the function takes no pointer and has no preconditions.
    return unsafe { libc::sched_getcpu() } as usize;
    #[cfg(not(all(target_os = "linux", not(miri), not(loom))))]
    return 0;
}

/// Checks the condition once, because loom tries every moment at which a spinning thread could see it hold.
#[cfg(loom)]
fn spin_until(condition: impl Fn() -> bool, _give_up: impl Fn() -> bool) -> bool {
    condition()
}

/// Spins until the condition holds; returns whether it did before `SPIN_TIME` passed or `give_up` held.
#[cfg(not(loom))]
fn spin_until(condition: impl Fn() -> bool, give_up: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    loop {
        for _ in 0..CHECKS_PER_CLOCK_READ {
            if condition() {
                return true;
            }
            std::hint::spin_loop();
        }
        if start.elapsed() >= SPIN_TIME {
            return false;
        }
        if give_up() {
            return false;
        }
    }
}

/// Only tests drop helpers; those of the process are never dropped once they have threads.
impl Drop for HelperThreads {
    fn drop(&mut self) {
        // Through shared references: a helper accesses its slot until it has ended.
        for slot in &self.slots {
            if let Some(helper) = slot.helper.get() {
                // No call is in progress, so the helper is idle or about to be.
                slot.word.store(STOP, Ordering::SeqCst);
                helper.thread().unpark();
                // SAFETY: `ptr::read` requires that the handle is not used or dropped again. The cell holds it in a
                // `ManuallyDrop`, this drop runs once, and the helper calls only `is_none` on the cell.
                let helper = unsafe { ptr::read(&raw const **helper) };
                // A helper catches the panics of its work.
                let _ = helper.join();
            }
        }
    }
}

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;
