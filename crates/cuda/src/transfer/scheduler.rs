//! Where the threads of a transfer meet: parts go from hand to hand, and one thread at a time speaks to the driver.
//!
//! The pinned buffer is a ring of slots, and each part has its slot. A thread works on one part at a time; the GPU takes as
//! many at once as lie there one after the other. So threads have parts that are small enough to be soon done, and the link has
//! copies that are large enough to be worth their start: an H200 rests for some microseconds between two copies, and the driver
//! takes as long to queue one, which is half of the time in which 512 KiB cross. The busier the link, the larger the copies.
//!
//! Whoever comes by with a part, and finds nobody at the desk, queues what lies there and looks what has arrived; the others go
//! on. The driver's lock is not fair, and would have some of many threads wait for milliseconds.

use crate::driver::Address;
use crate::gpu::Gpu;
use crate::stream::{Stream, SyncPoint};
use crate::stream_pool::{Event, PATIENCE};
use crate::transfer::chunks::{Part, Parts};
use crate::transfer::control::TransferControl;
use crate::transfer::ring_buffer::Buffers;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};
use tensorferry_core::{Error, ErrorKind, Result, workers};

/// How long a thread stays awake where there are few cores, and somebody else has work for this one.
const LITTLE_PATIENCE: Duration = Duration::from_micros(20);

/// Copies that are with the GPU at a time: one on the link, and one that follows it.
const IN_FLIGHT: usize = 2;
/// Bytes of a copy that is large enough: more would only keep slots from the threads.
const LARGE: usize = 8 << 20;
const HUGE_PAGE: usize = 2 << 20;

/// Which way the bytes go.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// The GPU fills a slot, a thread empties it.
    Down,
    /// A thread fills a slot, the GPU empties it.
    Up,
}

/// Parts as the GPU takes them: where they are there, where in the ring, and how many bytes.
pub(crate) struct Stretch {
    pub(crate) address: Address,
    pub(crate) slots: *mut u8,
    pub(crate) bytes: usize,
}

/// How far the parts are. All are taken in order, by threads and by the GPU.
struct State {
    /// For each slot, whether it is the GPU's turn: filled on the way up, emptied on the way down.
    is_for_gpu: Vec<bool>,
    /// Parts that threads have claimed.
    claimed: usize,
    /// Parts that are with the GPU, or were.
    queued: usize,
    /// Parts that the GPU is done with.
    landed: usize,
    /// Threads that are at a part.
    at_work: usize,
    /// Threads that sleep until something changes.
    asleep: usize,
    failed: Option<Error>,
}

/// What whoever is at the desk knows.
#[derive(Default)]
struct Clerk {
    /// Up to which part a copy goes, its bytes, and when it is over.
    in_flight: VecDeque<(usize, usize, Event)>,
    /// Events that stand for nothing now.
    spare: Vec<Event>,
    /// Whether something may be queued that no event stands for.
    is_unsure: bool,
}

/// A transfer's meeting place.
pub(crate) struct Desk<'a> {
    gpu: &'static Gpu,
    way: Way,
    stream: Stream,
    parts: &'a Parts,
    ring: *mut u8,
    slots: usize,
    /// The most parts of a copy.
    at_once: usize,
    /// Parts of a huge page, which one thread should fill: where it is fresh, the system gives it out at the first touch, and
    /// whoever else touches it waits.
    on_a_page: usize,
    state: Mutex<State>,
    clerk: Mutex<Clerk>,
    /// Grows with each change that somebody may wait for.
    changes: AtomicUsize,
    woken: Condvar,
    patience: Duration,
    threads: usize,
    watch: &'a TransferControl,
}

// SAFETY: the ring's address is that of the transfer's own block. A slot has one user at a time: from being taken for the GPU
// until its part has landed that is the GPU, from being claimed until it is the GPU's turn a thread; and claims follow landings.
unsafe impl Sync for Desk<'_> {}

/// What a thread does next.
enum Next {
    Desk,
    Parts(Range<usize>),
    Wait,
    Leave,
}

impl<'a> Desk<'a> {
    pub(crate) fn new(
        gpu: &'static Gpu,
        way: Way,
        buffers: &'a Buffers,
        parts: &'a Parts,
        watch: &'a TransferControl,
    ) -> Self {
        let threads = buffers.ring.threads;
        let slots = buffers.ring.bytes() / parts.most();
        let state = State {
            is_for_gpu: vec![way == Way::Down; slots],
            claimed: 0,
            queued: 0,
            landed: 0,
            at_work: 0,
            asleep: 0,
            failed: None,
        };
        Self {
            gpu,
            way,
            stream: buffers.own.stream(),
            parts,
            ring: buffers.block.data().as_ptr(),
            slots,
            // Where there are few, all threads should have some.
            on_a_page: (HUGE_PAGE / parts.most()).min(parts.count() / (2 * threads)).max(1),
            at_once: (LARGE / parts.most()).clamp(1, slots.div_ceil(3)),
            state: Mutex::new(state),
            clerk: Mutex::default(),
            changes: AtomicUsize::new(0),
            woken: Condvar::new(),
            patience: if threads < 4 { LITTLE_PATIENCE } else { PATIENCE },
            threads,
            watch,
        }
    }

    /// Brings all parts across, after what is queued on a side: `queue` hands a copy to the GPU, `work` is the host's share of a
    /// part.
    ///
    /// # Errors
    /// When one of them fails, the device does, or the transfer is called off.
    ///
    /// # Safety
    /// As [`Gpu::order`] for the side. What `queue` names is there until this is back.
    pub(crate) unsafe fn run(
        &self,
        after: SyncPoint,
        queue: impl Fn(Stretch, Stream) -> Result<()> + Sync,
        work: impl Fn(&Part, *mut u8) -> Result<()> + Sync,
    ) -> Result<()> {
        // SAFETY: the caller's contract, and a stream of ours.
        unsafe { self.gpu.order(after, SyncPoint::Stream(self.stream))? };
        if self.way == Way::Down {
            // What the GPU has to do first may take long: until then others may have the helpers.
            self.at_the_desk(&queue)?;
        }
        workers::run_parallel(self.threads, || self.serve(&queue, &work));
        self.state().failed.take().map_or(Ok(()), Err)
    }

    /// What every thread does until there is nothing left.
    fn serve(
        &self,
        queue: &impl Fn(Stretch, Stream) -> Result<()>,
        work: &impl Fn(&Part, *mut u8) -> Result<()>,
    ) {
        let mut was_at_the_desk = false;
        loop {
            let seen = self.changes.load(Ordering::Acquire);
            let next = self.next(was_at_the_desk);
            was_at_the_desk = matches!(next, Next::Desk);
            let done = match next {
                Next::Desk => self.at_the_desk(queue),
                Next::Parts(parts) => self.at_work(parts, work),
                Next::Wait => {
                    self.wait(seen);
                    Ok(())
                }
                Next::Leave => return,
            };
            if let Err(error) = done {
                self.fail(error);
            }
        }
    }

    /// The link comes first, but for those who were just there: they would stay, and copy nothing.
    fn next(&self, was_at_the_desk: bool) -> Next {
        let mut state = self.state();
        let count = self.parts.count();
        let is_done = match self.way {
            Way::Up => state.landed == count,
            Way::Down => state.claimed == count && state.at_work == 0,
        };
        if state.failed.is_some() || is_done {
            return Next::Leave;
        }
        // Taken for a moment, with the state locked: so whoever finds it taken finds somebody there, who tells when they leave.
        let is_free = || !matches!(self.clerk.try_lock(), Err(TryLockError::WouldBlock));
        if !was_at_the_desk && self.can_queue(&state) && is_free() {
            Next::Desk
        } else if self.can_claim(&state) {
            let begin = state.claimed;
            state.claimed = match self.way {
                Way::Up => begin + 1,
                Way::Down => state.landed.min((begin + 1).next_multiple_of(self.on_a_page)),
            };
            state.at_work += 1;
            Next::Parts(begin..state.claimed)
        } else if (self.can_queue(&state) || state.landed < state.queued) && is_free() {
            Next::Desk
        } else {
            Next::Wait
        }
    }

    /// Whether there is a part for a thread.
    fn can_claim(&self, state: &State) -> bool {
        match self.way {
            Way::Up => state.claimed < self.parts.count().min(state.landed + self.slots),
            Way::Down => state.claimed < state.landed,
        }
    }

    /// Whether there is a part for the GPU.
    fn can_queue(&self, state: &State) -> bool {
        state.queued < self.parts.count() && state.is_for_gpu[state.queued % self.slots]
    }

    /// Queues what lies there and hands on what has arrived, and stays while there is nothing better to do.
    fn at_the_desk(&self, queue: &impl Fn(Stretch, Stream) -> Result<()>) -> Result<()> {
        let mut clerk = match self.clerk.try_lock() {
            Ok(clerk) => clerk,
            Err(TryLockError::Poisoned(clerk)) => clerk.into_inner(),
            // Somebody else was quicker.
            Err(TryLockError::WouldBlock) => return Ok(()),
        };
        let _panics = Panics { desk: self };
        let done = self.mind_the_link(&mut clerk, queue);
        if let Err(error) = &done {
            // Before anybody else is at the desk, who would go on behind what is missing.
            self.fail(error.clone());
        }
        drop(clerk);
        // Somebody may wait for the desk.
        self.change(|_| ());
        done
    }

    fn mind_the_link(&self, clerk: &mut Clerk, queue: &impl Fn(Stretch, Stream) -> Result<()>) -> Result<()> {
        let (_entered, _relaxed) = (self.gpu.enter()?, self.gpu.relaxed()?);
        loop {
            let seen = self.changes.load(Ordering::Acquire);
            // SAFETY: an event that was recorded when it was put there, in the context that was entered.
            while self.hand_on(clerk, |event| unsafe { self.gpu.is_over(event) })? {}
            while clerk.in_flight.len() < IN_FLIGHT
                && let Some(parts) = self.take_for_gpu()?
            {
                self.send(clerk, parts, queue)?;
            }
            // A thread that copies is worth more than one that waits.
            if clerk.in_flight.is_empty() || self.can_claim(&self.state()) {
                return Ok(());
            }
            let has_room = clerk.in_flight.len() < IN_FLIGHT;
            let is_wanted = || has_room && self.changes.load(Ordering::Relaxed) != seen;
            // SAFETY: as above.
            self.hand_on(clerk, |event| unsafe { self.gpu.wait_for(event, self.patience, is_wanted) })?;
        }
    }

    /// As many parts for the GPU as lie one after the other.
    fn take_for_gpu(&self) -> Result<Option<Range<usize>>> {
        let mut state = self.state();
        if state.failed.is_some() || !self.can_queue(&state) {
            return Ok(None);
        }
        self.watch.check()?;
        let begin = state.queued;
        // Few at first, so that the threads soon have something, and few at last, so that they end together.
        let most = self.at_once.min(begin.max(1)).min((self.parts.count() - begin).div_ceil(2));
        while state.queued - begin < most && self.can_queue(&state) {
            let number = state.queued;
            let slot = number % self.slots;
            state.is_for_gpu[slot] = false;
            state.queued += 1;
            // What follows in the tensor does not follow here.
            if slot + 1 == self.slots || !self.parts.is_full(number) {
                break;
            }
        }
        Ok(Some(begin..state.queued))
    }

    fn send(
        &self,
        clerk: &mut Clerk,
        parts: Range<usize>,
        queue: &impl Fn(Stretch, Stream) -> Result<()>,
    ) -> Result<()> {
        let event = clerk.spare.pop().map_or_else(|| self.gpu.event(), Ok)?;
        let (address, bytes) = self.parts.stretch(parts.start, parts.end);
        clerk.is_unsure = true;
        let queued = queue(Stretch { address, slots: self.slot(parts.start), bytes }, self.stream)
            // SAFETY: a stream of ours, in the context that was entered.
            .and_then(|()| unsafe { self.gpu.record(&event, self.stream) });
        if queued.is_err() {
            clerk.spare.push(event);
            return queued;
        }
        clerk.is_unsure = false;
        clerk.in_flight.push_back((parts.end, bytes, event));
        Ok(())
    }

    /// Hands on the parts of the oldest copy, if it is over; whether it was.
    fn hand_on(&self, clerk: &mut Clerk, is_over: impl FnOnce(&Event) -> Result<bool>) -> Result<bool> {
        let Some((end, bytes, event)) = clerk.in_flight.front() else { return Ok(false) };
        if !is_over(event)? {
            return Ok(false);
        }
        if self.way == Way::Up {
            self.watch.add(*bytes);
        }
        self.change(|state| state.landed = *end);
        clerk.spare.extend(clerk.in_flight.pop_front().map(|(_, _, event)| event));
        Ok(true)
    }

    /// The host's share of some parts.
    fn at_work(&self, parts: Range<usize>, work: &impl Fn(&Part, *mut u8) -> Result<()>) -> Result<()> {
        let _panics = Panics { desk: self };
        let _leaves = Leaves { desk: self };
        for number in parts {
            self.watch.check()?;
            let part = self.parts.get(number)?;
            work(&part, self.slot(number))?;
            if self.way == Way::Down {
                self.watch.add(part.dense.bytes());
            }
            let mut state = self.state();
            state.is_for_gpu[number % self.slots] = true;
            if self.can_queue(&state) {
                self.tell(&state);
            }
        }
        Ok(())
    }

    fn slot(&self, number: usize) -> *mut u8 {
        self.ring.wrapping_add(number % self.slots * self.parts.most())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes something that others may wait for.
    fn change(&self, how: impl FnOnce(&mut State)) {
        let mut state = self.state();
        how(&mut state);
        self.tell(&state);
    }

    fn fail(&self, error: Error) {
        self.change(|state| {
            state.failed.get_or_insert(error);
        });
    }

    fn tell(&self, state: &State) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        if state.asleep > 0 {
            self.woken.notify_all();
        }
    }

    /// Waits until something has changed: for a moment awake, then asleep.
    fn wait(&self, seen: usize) {
        let is_same = || self.changes.load(Ordering::Acquire) == seen;
        let start = Instant::now();
        while is_same() {
            if start.elapsed() < self.patience {
                (0..20).for_each(|_| std::hint::spin_loop());
                continue;
            }
            let mut state = self.state();
            state.asleep += 1;
            while is_same() {
                state = self.woken.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.asleep -= 1;
        }
    }
}

/// A thread that leaves its parts, done or not.
struct Leaves<'a, 'b> {
    desk: &'a Desk<'b>,
}

impl Drop for Leaves<'_, '_> {
    fn drop(&mut self) {
        let mut state = self.desk.state();
        state.at_work -= 1;
        // On the way down, all wait for the last.
        if state.at_work == 0 && state.claimed == self.desk.parts.count() {
            self.desk.tell(&state);
        }
    }
}

/// A thread that may panic: the others are told, so that they do not wait for it. The caller sees the panic.
struct Panics<'a, 'b> {
    desk: &'a Desk<'b>,
}

impl Drop for Panics<'_, '_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.desk.fail(Error::new(ErrorKind::DeviceFailed, "a thread of the transfer panicked"));
        }
    }
}

/// Whatever happened, nothing may still use the buffers or the caller's memory.
impl Drop for Desk<'_> {
    fn drop(&mut self) {
        let clerk = self.clerk.get_mut().unwrap_or_else(PoisonError::into_inner);
        if clerk.is_unsure || !clerk.in_flight.is_empty() {
            // SAFETY: a stream of ours. Where this fails, the device is lost, and uses nothing any more.
            let _ = unsafe { self.gpu.wait(SyncPoint::Stream(self.stream)) };
        }
        let events = clerk.in_flight.drain(..).map(|(_, _, event)| event);
        self.gpu.keep(events.chain(clerk.spare.drain(..)));
    }
}
