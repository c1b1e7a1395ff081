//! The helper threads and the slots through which callers post jobs to them.

use std::mem::ManuallyDrop;
use std::panic::{self, AssertUnwindSafe};
use std::process;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

/// The maximum number of helpers of a process.
const MAX_HELPER_THREADS: usize = 127;
/// How long an idle helper spins before it sleeps, and a caller before it waits for its helpers.
const SPIN_TIME: Duration = Duration::from_micros(50);
/// The checks of a condition between two reads of the clock, which costs about as much as they do.
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
/// none, so the work must complete on the calling thread alone.
///
/// # Panics
/// When the work panics on any thread.
pub fn run_parallel(threads: usize, work: impl Fn() + Sync) {
    let helpers = threads.saturating_sub(1);
    if helpers == 0 {
        return work();
    }
    // Miri requires that every thread has ended by the end of the program.
    #[cfg(miri)]
    HelperThreads::new().run(helpers, &work);
    #[cfg(not(miri))]
    process_helpers().run(helpers, &work);
}

/// The helpers of this process.
#[cfg(not(miri))]
fn process_helpers() -> &'static HelperThreads {
    static HELPERS: AtomicPtr<HelperThreads> = AtomicPtr::new(ptr::null_mut());
    let current = HELPERS.load(Ordering::Acquire);
    // SAFETY: null, or leaked below.
    if let Some(helpers) = unsafe { current.as_ref() }
        && helpers.process == process::id()
    {
        return helpers;
    }
    // The parent's helpers are not freed, because they are alive in the parent.
    let new = Box::into_raw(Box::new(HelperThreads::new()));
    match HELPERS.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: leaked just now, and never freed.
        Ok(_) => unsafe { &*new },
        Err(other) => {
            // SAFETY: allocated above and not shared. The other was leaked by a thread of this process, because
            // `current` was read in this process.
            unsafe {
                drop(Box::from_raw(new));
                &*other
            }
        }
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
    #[cfg_attr(miri, expect(dead_code, reason = "under Miri no helpers outlive a call"))]
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
    fn new() -> Self {
        let slot = || Slot {
            word: AtomicPtr::new(VACANT),
            asleep: AtomicBool::new(false),
            caller_core: AtomicUsize::new(usize::MAX),
            helper: OnceLock::new(),
        };
        Self {
            slots: (0..MAX_HELPER_THREADS).map(|_| slot()).collect(),
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
        let posted = PostedJob { slots: &self.slots, job: &job, word: (&raw const job).cast_mut().cast() };
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
    slots: &'a [Slot],
    job: &'a Job<'a>,
    /// The address of the job, as slots store it.
    word: *mut Job<'static>,
}

impl PostedJob<'_> {
    /// Posts the job to this many idle helpers, and starts helpers in vacant slots among the first `helpers`.
    fn post(&self, helpers: usize) {
        let mut left = helpers;
        for (index, slot) in self.slots.iter().enumerate() {
            let word = slot.word.load(Ordering::Relaxed);
            // Slots are filled from the front, so all slots after a vacant one are vacant.
            if left == 0 || (word == VACANT && index >= helpers) {
                return;
            }
            if (word != IDLE && word != VACANT) || !self.put(slot, word) {
                continue;
            }
            if word == VACANT && !slot.start() {
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
        if slot.word.compare_exchange(word, self.word, Ordering::SeqCst, Ordering::Relaxed).is_err() {
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
        let is_over = || self.job.pending.load(Ordering::Acquire) == 0;
        for slot in self.slots {
            if is_over() {
                return;
            }
            let mine = slot.word.load(Ordering::Relaxed) == self.word
                && slot.word.compare_exchange(self.word, IDLE, Ordering::Relaxed, Ordering::Relaxed).is_ok();
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
    fn start(&self) -> bool {
        // SAFETY: the slot outlives the helper: the slots of the process are leaked, and any other `HelperThreads`
        // joins its helpers when it is dropped.
        let slot = unsafe { &*ptr::from_ref(self) };
        let started = thread::Builder::new().name("tensorferry".into()).spawn(|| slot.run_jobs());
        // Only the caller that filled the vacant slot calls this, so the cell is empty.
        started.map(|helper| self.helper.set(ManuallyDrop::new(helper))).is_ok()
    }

    /// The main loop of a helper.
    fn run_jobs(&self) {
        while let Some(job) = self.next() {
            // SAFETY: while the job counts this helper as pending, its caller keeps it; the reference ends
            // before that.
            let (work, panicked, caller) =
                unsafe { ((*job).work, &raw const (*job).panicked, (*job).caller.clone()) };
            if panic::catch_unwind(AssertUnwindSafe(work)).is_err() {
                // SAFETY: as above.
                unsafe { (*panicked).store(true, Ordering::Relaxed) };
            }
            // Idle before the caller is notified, so that its next call finds this helper.
            self.word.store(IDLE, Ordering::Release);
            // SAFETY: as above; this is the helper's last access to the job.
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
            // Sleeping is safe only once `helper` is set, through which callers wake this thread.
            if spin_until(has_work, shares_core) || self.helper.get().is_none() {
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
    #[cfg(all(target_os = "linux", not(miri)))]
    // SAFETY: the call has no preconditions.
    return unsafe { libc::sched_getcpu() } as usize;
    #[cfg(not(all(target_os = "linux", not(miri))))]
    return 0;
}

/// Spins until the condition holds; returns whether it did before [`SPIN_TIME`] passed or `give_up` held.
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
                // SAFETY: the cell does not drop the handle, and nothing uses it after this.
                let helper = unsafe { ptr::read(&raw const **helper) };
                // A helper catches the panics of its work.
                let _ = helper.join();
            }
        }
    }
}

#[cfg(test)]
mod tests;
