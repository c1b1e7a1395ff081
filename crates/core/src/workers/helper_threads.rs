//! Threads that stay: helpers that are started once, wait between calls, and are woken within microseconds.
//!
//! # What it promises
//!
//! - `each` runs a task for every part, on the calling thread and on at most `threads - 1` helpers, and is
//!   back when all parts are done. The caller always works itself; with no helper at all it does everything.
//! - A helper that is late or busy delays a call by one part at most: parts are taken from a counter, and an
//!   invitation that nobody took up is withdrawn.
//! - Callers do not wait for each other, and share the threads: of two at the same time, the second takes half of
//!   what it was given, because the first is at work on the other cores.
//! - After a `fork()` the child works and starts helpers of its own, whatever the parent's threads were doing.
//!
//! # How
//!
//! A helper has a slot with one word in it: vacant, idle, taken, or the address of a job on some caller's
//! stack. Every step is one atomic exchange of that word. The caller puts its job into idle slots, works until
//! no part is left, takes its job out of the slots where it still lies, and waits for the helpers that took it.
//! There is no lock, so none can be held by a thread that a `fork()` left behind; and since a helper that does
//! not exist takes up nothing, even a child that believed in its parent's helpers would only be slower. It
//! does not: the team is marked with the process that made it, and another process makes its own.
//!
//! An idle helper looks at its slot for a moment before it goes to sleep, because calls come in rows and
//! waking a sleeper costs more than copying a few hundred kilobytes.
//!
//! # What it knowingly rejects
//!
//! - Threads for each call (`std::thread::scope`): 50 microseconds, as long as a copy of 1 MiB takes.
//! - rayon and its like: their pools hang in the child of a `fork()`.
//! - Helpers that end when idle: a sleeping thread costs a few kilobytes, starting one costs time.

use std::mem::ManuallyDrop;
use std::panic::{self, AssertUnwindSafe};
use std::process;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

/// The most helpers that a process has.
const MOST: usize = 127;
/// How long a helper looks for the next job before it sleeps, and a caller for the end of its own.
const SPIN: Duration = Duration::from_micros(50);
/// Looks between two looks at the clock, which costs about as much as they do.
const LOOKS: usize = 16;

/// Runs the task for the numbers from zero to `count`, each once, on at most `threads` threads.
///
/// # Panics
/// When the task does, on whatever thread.
pub(crate) fn each(count: usize, threads: usize, task: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    run_parallel(threads.min(count), || {
        // Relaxed: the number alone matters; what helpers wrote is passed on when their job ends.
        while let part = next.fetch_add(1, Ordering::Relaxed)
            && part < count
        {
            task(part);
        }
    });
}

/// Does the work on the calling thread and, at the same time, on at most `threads - 1` helpers, which all take parts of it
/// until there are none. There may be fewer helpers, or none: the caller's own work must be enough.
///
/// # Panics
/// When the work does, on whatever thread.
pub fn run_parallel(threads: usize, work: impl Fn() + Sync) {
    let helpers = threads.saturating_sub(1);
    if helpers == 0 {
        return work();
    }
    // Miri wants every thread to have ended by the end of the program.
    #[cfg(miri)]
    Team::new().run(helpers, &work);
    #[cfg(not(miri))]
    team().run(helpers, &work);
}

/// This process's team.
#[cfg(not(miri))]
fn team() -> &'static Team {
    static TEAM: AtomicPtr<Team> = AtomicPtr::new(ptr::null_mut());
    let now = TEAM.load(Ordering::Acquire);
    // SAFETY: null, or a team that was leaked below.
    if let Some(team) = unsafe { now.as_ref() }
        && team.process == process::id()
    {
        return team;
    }
    // A parent's team is left as it is: in the parent it is alive.
    let new = Box::into_raw(Box::new(Team::new()));
    match TEAM.compare_exchange(now, new, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: leaked just now; nobody frees it.
        Ok(_) => unsafe { &*new },
        Err(other) => {
            // SAFETY: made above, and shown to nobody. The other was leaked by the thread that came first,
            // which is one of this process: `now` was read in this process.
            unsafe {
                drop(Box::from_raw(new));
                &*other
            }
        }
    }
}

/// What helpers are invited to.
#[repr(align(64))]
struct Job<'a> {
    /// Takes parts until there are none.
    work: &'a (dyn Fn() + Sync),
    /// Slots that hold this job, and helpers that are at it.
    pending: AtomicUsize,
    panicked: AtomicBool,
    caller: Thread,
}

/// The helpers of one process.
struct Team {
    slots: Box<[Slot]>,
    /// How many callers are at work now.
    callers: AtomicUsize,
    #[cfg_attr(miri, expect(dead_code, reason = "Miri has no team that outlives a call"))]
    process: u32,
}

/// The place where one helper finds its jobs, apart from its neighbours' so that they do not fight for a line.
#[repr(align(128))]
struct Slot {
    /// [`VACANT`], [`IDLE`], [`TAKEN`], [`LEAVE`] or a job.
    word: AtomicPtr<Job<'static>>,
    /// Whether the helper must be woken.
    asleep: AtomicBool,
    /// The core that the last job came from.
    caller_core: AtomicUsize,
    /// Taken out, without exclusive access, when the team ends.
    helper: OnceLock<ManuallyDrop<JoinHandle<()>>>,
}

/// No helper has been started.
const VACANT: *mut Job<'static> = ptr::without_provenance_mut(1);
/// The helper waits for a job.
const IDLE: *mut Job<'static> = ptr::null_mut();
/// The helper is at a job.
const TAKEN: *mut Job<'static> = ptr::without_provenance_mut(2);
/// The helper is to end.
const LEAVE: *mut Job<'static> = ptr::without_provenance_mut(3);

fn is_job(word: *mut Job<'static>) -> bool {
    ![VACANT, IDLE, TAKEN, LEAVE].contains(&word)
}

impl Team {
    fn new() -> Self {
        let slot = || Slot {
            word: AtomicPtr::new(VACANT),
            asleep: AtomicBool::new(false),
            caller_core: AtomicUsize::new(usize::MAX),
            helper: OnceLock::new(),
        };
        Self {
            slots: (0..MOST).map(|_| slot()).collect(),
            callers: AtomicUsize::new(0),
            process: process::id(),
        }
    }

    /// Does the work here and on helpers: so many, or this caller's share of them.
    fn run(&self, helpers: usize, work: &(dyn Fn() + Sync)) {
        let caller = Caller::of(&self.callers);
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
        let invitation =
            Invitation { slots: &self.slots, job: &job, word: (&raw const job).cast_mut().cast() };
        invitation.send(helpers);
        work();
        drop(invitation);
        if job.panicked.into_inner() {
            panic::resume_unwind(Box::new("a helper's part of the work panicked"));
        }
    }
}

/// A caller that is at work.
struct Caller<'a> {
    callers: &'a AtomicUsize,
    /// The how manieth it is.
    number: usize,
}

impl<'a> Caller<'a> {
    fn of(callers: &'a AtomicUsize) -> Self {
        // Relaxed: a number that is a moment old makes a call slower and not wrong.
        Self { callers, number: callers.fetch_add(1, Ordering::Relaxed) + 1 }
    }
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        self.callers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A job that lies in slots; dropped, it lies in none and nobody is at it, also when the caller's own work
/// panicked.
struct Invitation<'a> {
    slots: &'a [Slot],
    job: &'a Job<'a>,
    /// The job's address as slots hold it.
    word: *mut Job<'static>,
}

impl Invitation<'_> {
    /// Puts the job into as many slots of idle helpers, and starts helpers in the first so many slots.
    fn send(&self, helpers: usize) {
        let mut left = helpers;
        for (index, slot) in self.slots.iter().enumerate() {
            let word = slot.word.load(Ordering::Relaxed);
            // Slots fill from the front: behind a vacant one that is not ours to fill there is nobody.
            if left == 0 || (word == VACANT && index >= helpers) {
                return;
            }
            if (word != IDLE && word != VACANT) || !self.put(slot, word) {
                continue;
            }
            if word == VACANT && !slot.start() {
                // The system has no thread for us.
                self.job.pending.fetch_sub(1, Ordering::Relaxed);
                slot.word.store(VACANT, Ordering::Relaxed);
                return;
            }
            left -= 1;
        }
    }

    /// Puts the job into a slot where nothing else has come in between, and wakes its helper.
    fn put(&self, slot: &Slot, word: *mut Job<'static>) -> bool {
        self.job.pending.fetch_add(1, Ordering::Relaxed);
        // In one order with the helper's note that it sleeps and its last look: one sees the other.
        if slot.word.compare_exchange(word, self.word, Ordering::SeqCst, Ordering::Relaxed).is_err() {
            self.job.pending.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        slot.caller_core.store(core(), Ordering::Relaxed);
        if slot.asleep.load(Ordering::SeqCst)
            && let Some(helper) = slot.helper.get()
        {
            helper.thread().unpark();
        }
        true
    }
}

impl Drop for Invitation<'_> {
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
            // The last helper wakes us. Being woken for nothing is no harm.
            thread::park();
        }
    }
}

impl Slot {
    /// Starts a helper for this slot; whether the system let us.
    fn start(&self) -> bool {
        // SAFETY: the slot outlives the helper: the slots of the process's team are leaked, and any other
        // team waits for its helpers when it is dropped.
        let slot = unsafe { &*ptr::from_ref(self) };
        let started = thread::Builder::new().name("tensorferry".into()).spawn(|| slot.help());
        // Only the caller that filled the vacant slot comes here, so the cell is empty.
        started.map(|helper| self.helper.set(ManuallyDrop::new(helper))).is_ok()
    }

    /// What a helper does all its life.
    fn help(&self) {
        while let Some(job) = self.next() {
            // SAFETY: while the job counts this helper as pending, its caller keeps it; the reference ends
            // before that.
            let (work, panicked, caller) =
                unsafe { ((*job).work, &raw const (*job).panicked, (*job).caller.clone()) };
            if panic::catch_unwind(AssertUnwindSafe(work)).is_err() {
                // SAFETY: as above.
                unsafe { (*panicked).store(true, Ordering::Relaxed) };
            }
            // Idle before the caller hears of it, so that its next call finds this helper.
            self.word.store(IDLE, Ordering::Release);
            // SAFETY: as above; this is the helper's last look at the job.
            let before = unsafe { (*job).pending.fetch_sub(1, Ordering::Release) };
            if before == 1 {
                caller.unpark();
            }
        }
    }

    /// Waits for a job and takes it; `None` when there will be none.
    fn next(&self) -> Option<*mut Job<'static>> {
        loop {
            let word = self.word.load(Ordering::Relaxed);
            if word == LEAVE {
                return None;
            }
            if is_job(word) {
                let taken =
                    self.word.compare_exchange(word, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok();
                if taken {
                    return Some(word);
                }
                continue;
            }
            let is_called = || self.word.load(Ordering::SeqCst) != IDLE;
            // On the core of whoever calls, looking on would keep the call itself waiting.
            let in_the_way = || self.caller_core.load(Ordering::Relaxed) == core();
            // Whoever would wake this helper must be able to find it.
            if spin_until(is_called, in_the_way) || self.helper.get().is_none() {
                continue;
            }
            self.asleep.store(true, Ordering::SeqCst);
            if !is_called() {
                thread::park();
            }
            self.asleep.store(false, Ordering::Relaxed);
        }
    }
}

/// The core that this thread is on; the same for all where the system is not asked, so that nobody spins.
fn core() -> usize {
    #[cfg(all(target_os = "linux", not(miri)))]
    // SAFETY: only asks.
    return unsafe { libc::sched_getcpu() } as usize;
    #[cfg(not(all(target_os = "linux", not(miri))))]
    return 0;
}

/// Looks for a moment; whether the condition came about.
fn spin_until(condition: impl Fn() -> bool, give_up: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    loop {
        for _ in 0..LOOKS {
            if condition() {
                return true;
            }
            std::hint::spin_loop();
        }
        if start.elapsed() >= SPIN {
            return false;
        }
        if give_up() {
            return false;
        }
    }
}

/// Teams end in tests only; the process's own is never dropped once it has helpers.
impl Drop for Team {
    fn drop(&mut self) {
        // Through shared references: until it has ended, a helper looks at its slot.
        for slot in &self.slots {
            if let Some(helper) = slot.helper.get() {
                // No call is in progress, so the helper is idle or about to be.
                slot.word.store(LEAVE, Ordering::SeqCst);
                helper.thread().unpark();
                // SAFETY: the cell does not drop the handle, and nobody uses it after this.
                let helper = unsafe { ptr::read(&raw const **helper) };
                // A helper catches what its work throws.
                let _ = helper.join();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::{Barrier, Mutex};

    /// Runs as many parts and asserts that each was done once.
    fn check(team: &Team, count: usize, threads: usize) {
        let parts: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(part) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
                part.fetch_add(1, Ordering::Relaxed);
            }
        };
        team.run(threads - 1, &work);
        assert!(parts.iter().all(|part| part.load(Ordering::Relaxed) == 1));
    }

    fn helpers(team: &Team) -> usize {
        team.slots.iter().filter(|slot| slot.helper.get().is_some()).count()
    }

    #[test]
    fn every_part_is_done_once() {
        for count in 0..5 {
            for threads in 0..4 {
                let parts: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
                each(count, threads, |part| {
                    parts[part].fetch_add(1, Ordering::Relaxed);
                });
                assert!(parts.iter().all(|part| part.load(Ordering::Relaxed) == 1));
            }
        }
    }

    #[test]
    fn a_second_caller_has_its_share_and_no_more() {
        let team = Team::new();
        // Four threads' worth of helpers, idle.
        check(&team, 64, 4);
        let (inside, leave) = (Barrier::new(2), Barrier::new(2));
        thread::scope(|scope| {
            scope.spawn(|| {
                let caller = Caller::of(&team.callers);
                assert_eq!(caller.number, 1);
                inside.wait();
                leave.wait();
            });
            inside.wait();
            let seen = Mutex::new(HashSet::new());
            let parts = AtomicUsize::new(0);
            // Each part lasts until all that were invited must have come.
            team.run(3, &|| {
                while parts.fetch_add(1, Ordering::Relaxed) < 64 {
                    seen.lock().unwrap().insert(thread::current().id());
                    thread::sleep(Duration::from_micros(if cfg!(miri) { 1 } else { 200 }));
                }
            });
            assert!(seen.lock().unwrap().len() <= 2, "more than half of four threads");
            leave.wait();
        });
        assert_eq!(team.callers.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn helpers_stay_and_are_no_more_than_asked_for() {
        let team = Team::new();
        for _ in 0..if cfg!(miri) { 3 } else { 2000 } {
            check(&team, 7, 3);
        }
        assert_eq!(helpers(&team), 2);
        check(&team, 7, 2);
        assert_eq!(helpers(&team), 2);
        check(&team, 7, 4);
        assert_eq!(helpers(&team), 3);
    }

    #[test]
    fn helpers_that_fell_asleep_are_woken() {
        let team = Team::new();
        for _ in 0..if cfg!(miri) { 2 } else { 20 } {
            // Every part waits for the other, so each needs a thread of its own.
            let barrier = Barrier::new(2);
            let next = AtomicUsize::new(0);
            team.run(1, &|| {
                while next.fetch_add(1, Ordering::Relaxed) < 2 {
                    barrier.wait();
                }
            });
            while !team.slots[0].asleep.load(Ordering::SeqCst) {
                thread::yield_now();
            }
        }
        assert_eq!(helpers(&team), 1);
    }

    #[test]
    fn many_callers_at_once() {
        let team = Team::new();
        thread::scope(|scope| {
            for threads in 2..if cfg!(miri) { 4 } else { 10 } {
                let team = &team;
                scope.spawn(move || {
                    for count in 0..if cfg!(miri) { 3 } else { 500 } {
                        check(team, count % 20, 2 + threads % 3);
                    }
                });
            }
        });
        assert!(helpers(&team) <= 3);
    }

    #[test]
    fn a_panic_reaches_the_caller_and_harms_no_helper() {
        let team = Team::new();
        for on_caller in [true, false] {
            let caller = thread::current().id();
            let barrier = Barrier::new(2);
            let result = panic::catch_unwind(AssertUnwindSafe(|| {
                team.run(1, &|| {
                    barrier.wait();
                    if (thread::current().id() == caller) == on_caller {
                        panic::resume_unwind(Box::new("on purpose"));
                    }
                });
            }));
            assert!(result.is_err());
        }
        check(&team, 9, 2);
        assert_eq!(helpers(&team), 1);
    }
}
