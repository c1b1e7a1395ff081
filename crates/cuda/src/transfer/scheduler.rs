//! The transfer scheduler: shares the chunks of a transfer between the threads and the GPU.
//!
//! The ring buffer has slots, and chunk `n` uses slot `n % slots`. A thread claims one chunk at a time, or for a
//! download up to a huge page of them; the GPU copies as many adjacent chunks as are ready in one link copy. So chunks
//! are small enough that a thread soon finishes one, and link copies are large enough to be worth their start. An H200
//! idles for some microseconds between two copies, and the driver needs as long to queue one, which is half of the time
//! in which 512 KiB cross. The busier the link, the larger the copies.
//!
//! A slot has one user at a time. The GPU uses it from the link copy's submission to its completion (`claim_for_gpu`,
//! `complete_oldest`), a thread from its claim until it is the GPU's turn (`next_task`, `copy_chunks`). A thread claims a
//! chunk only after the GPU has completed the chunk before it in that slot (`can_claim`). The unsafe code of `chunked`,
//! which reads and writes the slots, relies on this.
//!
//! One thread at a time calls the driver: a thread that finishes a chunk or has none to copy, and finds the link lock
//! free, queues the ready chunks and polls the copies in flight, while the others go on copying. The driver's own lock
//! is not fair, and would make some of many threads wait for milliseconds.

use super::chunks::{TransferChunk, TransferChunks};
use super::control::TransferControl;
use super::pinned::HUGE_PAGE_BYTES;
use super::ring_buffer::RingBuffer;
use crate::driver::handles::Address;
use crate::event_pool::{EVENT_SPIN_TIME, Event};
use crate::gpu::Gpu;
use crate::stream::{Stream, SyncPoint};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};
use tensorferry_core::{Error, ErrorKind, Result, workers};

/// How long a thread spins in transfers of few threads, where another thread may need the core.
const SHORT_SPIN_TIME: Duration = Duration::from_micros(20);
/// Transfers with fewer threads use [`SHORT_SPIN_TIME`].
const LONG_SPIN_MIN_THREADS: usize = 4;

/// Spin-loop hints between two looks at the change counter.
const SPINS_PER_CHECK: usize = 20;

/// Link copies that the GPU has at a time: one in progress, and one that follows it.
const MAX_COPIES_IN_FLIGHT: usize = 2;
/// A larger link copy would not be faster, and would keep slots from the threads.
const MAX_LINK_COPY_BYTES: usize = 8 << 20;

/// The direction of a transfer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// The GPU fills a slot, a thread empties it.
    Download,
    /// A thread fills a slot, the GPU empties it.
    Upload,
}

/// Adjacent chunks that the GPU copies at once.
pub(crate) struct LinkCopy {
    /// The first byte on the GPU.
    pub(crate) address: Address,
    /// The first byte in the ring.
    pub(crate) slots: *mut u8,
    pub(crate) bytes: usize,
}

/// The progress of all chunks. Threads and GPU process chunks in order, so counters suffice.
struct Progress {
    /// For each slot, whether the GPU uses it next: after a thread filled it (upload) or emptied it (download).
    is_gpu_turn: Vec<bool>,
    /// Chunks that threads have claimed.
    claimed: usize,
    /// Chunks that were submitted to the GPU.
    submitted: usize,
    /// Chunks that the GPU has copied.
    completed: usize,
    /// Threads that are copying a chunk.
    working_threads: usize,
    /// Threads that sleep until something changes.
    sleeping_threads: usize,
    error: Option<Error>,
}

/// The copies that the GPU has. Only the thread that holds the lock calls the driver.
#[derive(Default)]
struct Link {
    /// For each copy the end of its chunks, its bytes, and its event.
    in_flight: VecDeque<(usize, usize, Event)>,
    spare_events: Vec<Event>,
    /// Whether a copy may be queued that has no event.
    has_untracked_copy: bool,
}

/// Schedules the chunks of one transfer.
pub(crate) struct TransferScheduler<'a> {
    gpu: &'static Gpu,
    direction: Direction,
    stream: Stream,
    chunks: &'a TransferChunks,
    ring: &'a RingBuffer,
    slots: usize,
    max_link_copy_chunks: usize,
    /// Chunks of a huge page, which one thread should fill: the system allocates a fresh page at the first touch, and other
    /// threads that touch it wait.
    chunks_per_page: usize,
    progress: Mutex<Progress>,
    link: Mutex<Link>,
    /// Grows with each change that a thread may wait for.
    changes: AtomicUsize,
    changed: Condvar,
    spin_time: Duration,
    threads: usize,
    control: &'a TransferControl,
}

/// What a thread does next.
enum Task {
    DriveLink,
    Copy(Range<usize>),
    Wait,
    Leave,
}

impl<'a> TransferScheduler<'a> {
    pub(crate) fn new(
        gpu: &'static Gpu,
        direction: Direction,
        ring: &'a RingBuffer,
        chunks: &'a TransferChunks,
        control: &'a TransferControl,
    ) -> Self {
        let threads = ring.options.threads;
        let slots = ring.options.ring_bytes() / chunks.max_bytes();
        let progress = Progress {
            is_gpu_turn: vec![direction == Direction::Download; slots],
            claimed: 0,
            submitted: 0,
            completed: 0,
            working_threads: 0,
            sleeping_threads: 0,
            error: None,
        };
        Self {
            gpu,
            direction,
            stream: ring.stream.stream(),
            chunks,
            ring,
            slots,
            // Each thread gets two runs of chunks or more, even in small transfers.
            chunks_per_page: (HUGE_PAGE_BYTES / chunks.max_bytes())
                .min(chunks.count() / (2 * threads))
                .max(1),
            max_link_copy_chunks: (MAX_LINK_COPY_BYTES / chunks.max_bytes()).clamp(1, slots.div_ceil(3)),
            progress: Mutex::new(progress),
            link: Mutex::default(),
            changes: AtomicUsize::new(0),
            changed: Condvar::new(),
            spin_time: if threads < LONG_SPIN_MIN_THREADS { SHORT_SPIN_TIME } else { EVENT_SPIN_TIME },
            threads,
            control,
        }
    }

    /// Transfers all chunks, after the work that is queued at `after`. `submit` queues a link copy, and `copy` does the
    /// host's share of a chunk. When this returns or unwinds, no link copy is in flight: it drops the scheduler.
    ///
    /// # Errors
    /// When one of them or the device fails, or the transfer is cancelled.
    pub(crate) fn run(
        self,
        after: SyncPoint,
        submit: impl Fn(LinkCopy, Stream) -> Result<()> + Sync,
        copy: impl Fn(&TransferChunk, *mut u8) -> Result<()> + Sync,
    ) -> Result<()> {
        self.gpu.order(after, SyncPoint::Stream(self.stream))?;
        if self.direction == Direction::Download {
            // The source's work may take long. Until it is complete, other transfers may use the helper threads.
            self.drive_link(&submit)?;
        }
        workers::run_parallel(self.threads, || self.run_thread(&submit, &copy));
        self.progress().error.take().map_or(Ok(()), Err)
    }

    /// The loop of every thread, until all chunks are done.
    fn run_thread(
        &self,
        submit: &impl Fn(LinkCopy, Stream) -> Result<()>,
        copy: &impl Fn(&TransferChunk, *mut u8) -> Result<()>,
    ) {
        let mut has_just_driven = false;
        loop {
            let seen = self.changes.load(Ordering::Acquire);
            let task = self.next_task(has_just_driven);
            has_just_driven = matches!(task, Task::DriveLink);
            let done = match task {
                Task::DriveLink => self.drive_link(submit),
                Task::Copy(chunks) => self.copy_chunks(chunks, copy),
                Task::Wait => {
                    self.wait(seen);
                    Ok(())
                }
                Task::Leave => return,
            };
            if let Err(error) = done {
                self.fail(error);
            }
        }
    }

    /// Driving the link has priority, except for a thread that has just done it: it would go on doing so, and copy nothing.
    fn next_task(&self, has_just_driven: bool) -> Task {
        let mut progress = self.progress();
        let count = self.chunks.count();
        let is_done = match self.direction {
            Direction::Upload => progress.completed == count,
            Direction::Download => progress.claimed == count && progress.working_threads == 0,
        };
        if progress.error.is_some() || is_done {
            return Task::Leave;
        }
        // The link lock is tried with `progress` locked. So if it is held, its holder will still notify when it releases it.
        let is_link_free = || !matches!(self.link.try_lock(), Err(TryLockError::WouldBlock));
        if !has_just_driven && self.can_submit(&progress) && is_link_free() {
            Task::DriveLink
        } else if self.can_claim(&progress) {
            let begin = progress.claimed;
            progress.claimed = match self.direction {
                Direction::Upload => begin + 1,
                Direction::Download => {
                    progress.completed.min((begin + 1).next_multiple_of(self.chunks_per_page))
                }
            };
            progress.working_threads += 1;
            Task::Copy(begin..progress.claimed)
        } else if (self.can_submit(&progress) || progress.completed < progress.submitted) && is_link_free() {
            Task::DriveLink
        } else {
            Task::Wait
        }
    }

    /// Whether a thread can copy the next chunk.
    fn can_claim(&self, progress: &Progress) -> bool {
        match self.direction {
            Direction::Upload => progress.claimed < self.chunks.count().min(progress.completed + self.slots),
            Direction::Download => progress.claimed < progress.completed,
        }
    }

    /// Whether the GPU can copy the next chunk.
    fn can_submit(&self, progress: &Progress) -> bool {
        progress.submitted < self.chunks.count() && progress.is_gpu_turn[progress.submitted % self.slots]
    }

    /// Submits the chunks that are ready and polls the copies in flight, until this thread can copy a chunk instead.
    fn drive_link(&self, submit: &impl Fn(LinkCopy, Stream) -> Result<()>) -> Result<()> {
        let mut link = match self.link.try_lock() {
            Ok(link) => link,
            Err(TryLockError::Poisoned(link)) => link.into_inner(),
            // Another thread drives the link.
            Err(TryLockError::WouldBlock) => return Ok(()),
        };
        let _panic_guard = PanicGuard { scheduler: self };
        let done = self.submit_and_poll(&mut link, submit);
        if let Err(error) = &done {
            // Before another thread gets the link lock: it would submit the chunks after the missing one.
            self.fail(error.clone());
        }
        drop(link);
        // A thread may wait for the link lock.
        self.update(|_| ());
        done
    }

    fn submit_and_poll(
        &self,
        link: &mut Link,
        submit: &impl Fn(LinkCopy, Stream) -> Result<()>,
    ) -> Result<()> {
        let (_entered, _relaxed) = (self.gpu.enter()?, self.gpu.relax_capture_mode()?);
        let driver = self.gpu.driver;
        loop {
            let seen = self.changes.load(Ordering::Acquire);
            while self.complete_oldest(link, |event| event.is_complete(driver))? {}
            while link.in_flight.len() < MAX_COPIES_IN_FLIGHT
                && let Some(chunks) = self.claim_for_gpu()?
            {
                self.submit_chunks(link, chunks, submit)?;
            }
            // A thread that copies is worth more than one that waits.
            if link.in_flight.is_empty() || self.can_claim(&self.progress()) {
                return Ok(());
            }
            let has_room = link.in_flight.len() < MAX_COPIES_IN_FLIGHT;
            let is_interrupted = || has_room && self.changes.load(Ordering::Relaxed) != seen;
            self.complete_oldest(link, |event| event.wait(driver, self.spin_time, is_interrupted))?;
        }
    }

    /// Adjacent chunks for one link copy.
    fn claim_for_gpu(&self) -> Result<Option<Range<usize>>> {
        let mut progress = self.progress();
        if progress.error.is_some() || !self.can_submit(&progress) {
            return Ok(None);
        }
        self.control.check()?;
        let begin = progress.submitted;
        // Small copies at the start give the threads work early; small copies at the end let all threads finish together.
        let remaining = self.chunks.count() - begin;
        let max_chunks = self.max_link_copy_chunks.min(begin.max(1)).min(remaining.div_ceil(2));
        while progress.submitted - begin < max_chunks && self.can_submit(&progress) {
            let index = progress.submitted;
            let slot = index % self.slots;
            progress.is_gpu_turn[slot] = false;
            progress.submitted += 1;
            // The next chunk of the tensor is not adjacent in the ring.
            if slot + 1 == self.slots || !self.chunks.fills_slot(index) {
                break;
            }
        }
        Ok(Some(begin..progress.submitted))
    }

    fn submit_chunks(
        &self,
        link: &mut Link,
        chunks: Range<usize>,
        submit: &impl Fn(LinkCopy, Stream) -> Result<()>,
    ) -> Result<()> {
        let event = link.spare_events.pop().map_or_else(|| self.gpu.events.take(self.gpu.driver), Ok)?;
        let (address, bytes) = self.chunks.gpu_range(chunks.start, chunks.end);
        link.has_untracked_copy = true;
        let submitted = submit(LinkCopy { address, slots: self.slot(chunks.start), bytes }, self.stream)
            .and_then(|()| event.record(self.gpu.driver, self.stream));
        if submitted.is_err() {
            link.spare_events.push(event);
            return submitted;
        }
        link.has_untracked_copy = false;
        link.in_flight.push_back((chunks.end, bytes, event));
        Ok(())
    }

    /// Passes the chunks of the oldest copy to the threads, if that copy is complete. Returns whether it was.
    fn complete_oldest(
        &self,
        link: &mut Link,
        is_complete: impl FnOnce(&Event) -> Result<bool>,
    ) -> Result<bool> {
        let Some((end, bytes, event)) = link.in_flight.front() else { return Ok(false) };
        if !is_complete(event)? {
            return Ok(false);
        }
        if self.direction == Direction::Upload {
            self.control.add(*bytes);
        }
        self.update(|progress| progress.completed = *end);
        link.spare_events.extend(link.in_flight.pop_front().map(|(_, _, event)| event));
        Ok(true)
    }

    /// Does the host's share of some chunks.
    fn copy_chunks(
        &self,
        chunks: Range<usize>,
        copy: &impl Fn(&TransferChunk, *mut u8) -> Result<()>,
    ) -> Result<()> {
        let _panic_guard = PanicGuard { scheduler: self };
        let _work_guard = WorkGuard { scheduler: self };
        for index in chunks {
            self.control.check()?;
            let chunk = self.chunks.get(index)?;
            copy(&chunk, self.slot(index))?;
            if self.direction == Direction::Download {
                self.control.add(chunk.dense.bytes());
            }
            let mut progress = self.progress();
            progress.is_gpu_turn[index % self.slots] = true;
            if self.can_submit(&progress) {
                self.notify(&progress);
            }
        }
        Ok(())
    }

    /// The slot of a chunk.
    fn slot(&self, index: usize) -> *mut u8 {
        self.ring.block.data().as_ptr().wrapping_add(index % self.slots * self.chunks.max_bytes())
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the progress, and notifies the threads that wait.
    fn update(&self, change: impl FnOnce(&mut Progress)) {
        let mut progress = self.progress();
        change(&mut progress);
        self.notify(&progress);
    }

    fn fail(&self, error: Error) {
        self.update(|progress| {
            progress.error.get_or_insert(error);
        });
    }

    fn notify(&self, progress: &Progress) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        if progress.sleeping_threads > 0 {
            self.changed.notify_all();
        }
    }

    /// Waits until the change counter differs from `seen`: spins first, then sleeps.
    fn wait(&self, seen: usize) {
        let is_unchanged = || self.changes.load(Ordering::Acquire) == seen;
        let start = Instant::now();
        while is_unchanged() {
            if start.elapsed() < self.spin_time {
                (0..SPINS_PER_CHECK).for_each(|_| std::hint::spin_loop());
                continue;
            }
            let mut progress = self.progress();
            progress.sleeping_threads += 1;
            while is_unchanged() {
                progress = self.changed.wait(progress).unwrap_or_else(PoisonError::into_inner);
            }
            progress.sleeping_threads -= 1;
        }
    }
}

/// Ends a thread's work on its chunks when it is dropped, whether they are done or not.
struct WorkGuard<'a, 'b> {
    scheduler: &'a TransferScheduler<'b>,
}

impl Drop for WorkGuard<'_, '_> {
    fn drop(&mut self) {
        let mut progress = self.scheduler.progress();
        progress.working_threads -= 1;
        // A download ends when the last thread has finished.
        if progress.working_threads == 0 && progress.claimed == self.scheduler.chunks.count() {
            self.scheduler.notify(&progress);
        }
    }
}

/// Stops the transfer if its thread panics, so that other threads do not wait for it. The caller sees the panic.
struct PanicGuard<'a, 'b> {
    scheduler: &'a TransferScheduler<'b>,
}

impl Drop for PanicGuard<'_, '_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.scheduler.fail(Error::new(ErrorKind::DeviceFailed, "a thread of the transfer panicked"));
        }
    }
}

impl Drop for TransferScheduler<'_> {
    /// Waits for copies in flight: after an error as well, nothing may still use the ring or the caller's memory.
    fn drop(&mut self) {
        let link = self.link.get_mut().unwrap_or_else(PoisonError::into_inner);
        if link.has_untracked_copy || !link.in_flight.is_empty() {
            // Where this fails, the device is lost, and accesses no memory any more.
            let _ = self.gpu.wait(SyncPoint::Stream(self.stream));
        }
        let events = link.in_flight.drain(..).map(|(_, _, event)| event);
        self.gpu.events.put(events.chain(link.spare_events.drain(..)));
    }
}
