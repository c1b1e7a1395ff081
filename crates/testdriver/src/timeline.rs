//! Memory, streams and events that behave as CUDA allows them to at its laziest.
//!
//! Work on a stream is put down and not done: it runs when somebody waits for it, on the host or from another stream,
//! and never earlier. A reader that forgot to wait therefore finds old values, every time.

use crate::ipc_event::Signal;
use crate::memfd::{Backing, Stretch};
use std::collections::{BTreeMap, HashMap};

/// What is in new memory, and what is left in memory that was given back.
const PATTERN: u64 = 0xdead_beef_dead_beef;
const GONE: u64 = 0xfeed_face_feed_face;

/// A piece of work.
pub(crate) type Work = Box<dyn FnOnce() + Send>;

/// What a stream has been told to do.
enum Step {
    Do(Work),
    /// Go on when each of these streams has done so many steps.
    Wait(Moment),
}

/// How far streams had been filled when an event was recorded.
type Moment = Vec<(usize, u64)>;

#[derive(Default)]
struct Stream {
    /// Steps that were put down, and of these the ones that are done.
    given: u64,
    done: u64,
    steps: std::collections::VecDeque<Step>,
}

/// Everything there is.
#[derive(Default)]
pub(crate) struct World {
    streams: BTreeMap<usize, Stream>,
    events: HashMap<usize, Moment>,
    /// What streams that are used for the first time wait for.
    barrier: Moment,
    /// Blocks by address, and whether they are a device's.
    blocks: BTreeMap<usize, Block>,
    /// Host memory that was registered: start and size.
    registered: BTreeMap<usize, usize>,
    /// Events that other processes may wait for, and those of theirs that were opened here.
    signals: HashMap<usize, Signal>,
    /// What plain device memory lies in.
    backing: Backing,
    next: usize,
}

/// Where a block comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Host memory that is pinned.
    Host,
    /// `cuMemAlloc`.
    Plain,
    /// A pool of this handle; zero is the default one, of which nothing can be exported.
    Pool(usize),
    /// Another process, by a legacy handle.
    Opened,
}

pub(crate) struct Block {
    /// Whose memory it is; none for the host's.
    pub(crate) device: Option<usize>,
    pub(crate) start: usize,
    pub(crate) bytes: usize,
    pub(crate) origin: Origin,
    /// Unlike that of every other block of the process.
    pub(crate) number: u64,
    memory: Memory,
}

enum Memory {
    Own(Box<[u64]>),
    /// A stretch of a file, mapped: other processes can map it too.
    Shared(Stretch),
}

impl Block {
    /// Where in its file it lies.
    pub(crate) fn stretch(&self) -> Option<&Stretch> {
        match &self.memory {
            Memory::Own(_) => None,
            Memory::Shared(stretch) => Some(stretch),
        }
    }
}

impl World {
    /// A new handle; none is small, so that none looks like a default stream.
    pub(crate) fn handle(&mut self) -> usize {
        self.next += 0x100;
        0x1000 + self.next
    }

    fn stream(&mut self, stream: usize) -> &mut Stream {
        let barrier = self.barrier.clone();
        self.streams.entry(stream).or_insert_with(|| {
            let mut new = Stream::default();
            if !barrier.is_empty() {
                new.given = 1;
                new.steps.push_back(Step::Wait(barrier));
            }
            new
        })
    }

    fn put(&mut self, stream: usize, step: Step) {
        let stream = self.stream(stream);
        stream.given += 1;
        stream.steps.push_back(step);
    }

    /// Puts work on a stream.
    pub(crate) fn queue(&mut self, stream: usize, work: Work) {
        self.put(stream, Step::Do(work));
    }

    /// Whether a stream has nothing left to do.
    pub(crate) fn is_idle(&mut self, stream: usize) -> bool {
        self.stream(stream).steps.is_empty()
    }

    /// How many streams have something left to do.
    pub(crate) fn busy(&self) -> usize {
        self.streams
            .values()
            .filter(|stream| stream.steps.iter().any(|step| matches!(step, Step::Do(_))))
            .count()
    }

    /// Does what a stream was told until it has done so many steps.
    fn run_to(&mut self, stream: usize, until: u64) {
        while self.stream(stream).done < until {
            let Some(step) = self.stream(stream).steps.pop_front() else { return };
            match step {
                Step::Do(work) => work(),
                Step::Wait(moment) => moment.into_iter().for_each(|(other, until)| self.run_to(other, until)),
            }
            self.stream(stream).done += 1;
        }
    }

    /// Does all that a stream was told.
    pub(crate) fn finish(&mut self, stream: usize) {
        let until = self.stream(stream).given;
        self.run_to(stream, until);
    }

    /// Does everything.
    pub(crate) fn finish_all(&mut self) {
        let streams: Vec<usize> = self.streams.keys().copied().collect();
        streams.into_iter().for_each(|stream| self.finish(stream));
    }

    /// Notes how full a stream is.
    pub(crate) fn record(&mut self, event: usize, stream: usize) {
        if let Some(announce) = self.signals.get_mut(&event).and_then(Signal::record) {
            self.queue(stream, announce);
        }
        let given = self.stream(stream).given;
        self.events.insert(event, vec![(stream, given)]);
    }

    /// Enters an event that other processes may wait for, or one of theirs.
    pub(crate) fn signal(&mut self, event: usize, signal: Signal) {
        self.signals.insert(event, signal);
    }

    /// The event that other processes may wait for, or that is of another process.
    pub(crate) fn signal_of(&self, event: usize) -> Option<&Signal> {
        self.signals.get(&event)
    }

    /// Whether an event is another process's.
    pub(crate) fn is_opened(&self, event: usize) -> bool {
        self.signals.get(&event).is_some_and(Signal::is_opened)
    }

    /// Has an event of another process stand for a stream of its own, which waits for that process.
    fn await_signal(&mut self, event: usize) {
        let Some(wait) = self.signals.get(&event).and_then(Signal::wait) else { return };
        self.queue(event, wait);
        let given = self.stream(event).given;
        self.events.insert(event, vec![(event, given)]);
    }

    pub(crate) fn destroy(&mut self, event: usize) {
        self.signals.remove(&event);
    }

    /// How many events that have to do with other processes there are.
    pub(crate) fn signals(&self) -> usize {
        self.signals.len()
    }

    /// Notes how full every stream is.
    pub(crate) fn record_all(&mut self, event: usize) {
        let moment = self.streams.iter().map(|(handle, stream)| (*handle, stream.given)).collect();
        self.events.insert(event, moment);
    }

    /// Lets a stream wait for an event as it is now; one that was never recorded is over.
    pub(crate) fn wait(&mut self, stream: usize, event: usize) {
        self.await_signal(event);
        if let Some(moment) = self.events.get(&event).cloned() {
            self.put(stream, Step::Wait(moment));
        }
    }

    /// Lets every stream wait, those that are still to come included.
    pub(crate) fn wait_all(&mut self, event: usize) {
        self.await_signal(event);
        let Some(moment) = self.events.get(&event).cloned() else { return };
        let streams: Vec<usize> = self.streams.keys().copied().collect();
        streams.into_iter().for_each(|stream| self.put(stream, Step::Wait(moment.clone())));
        self.barrier.extend(moment);
    }

    /// Does what an event stands for.
    pub(crate) fn finish_event(&mut self, event: usize) {
        self.await_signal(event);
        let moment = self.events.get(&event).cloned().unwrap_or_default();
        moment.into_iter().for_each(|(stream, until)| self.run_to(stream, until));
    }

    /// The streams on which an event was recorded.
    pub(crate) fn streams_of(&self, event: usize) -> Vec<usize> {
        self.events.get(&event).into_iter().flatten().map(|(stream, _)| *stream).collect()
    }

    /// Whether what an event stands for is done.
    pub(crate) fn is_over(&mut self, event: usize) -> bool {
        if let Some(signal) = self.signals.get(&event).filter(|signal| signal.is_opened()) {
            return signal.is_over();
        }
        let moment = self.events.get(&event).cloned().unwrap_or_default();
        moment.into_iter().all(|(stream, until)| self.stream(stream).done >= until)
    }

    /// New memory, full of a pattern that is no value anybody expects; none where the system has no room.
    pub(crate) fn allocate(&mut self, bytes: usize, device: Option<usize>, pool: bool) -> Option<usize> {
        let origin = match (device, pool) {
            (None, _) => Origin::Host,
            (Some(_), true) => Origin::Pool(0),
            (Some(_), false) => Origin::Plain,
        };
        if origin == Origin::Plain {
            let stretch = self.backing.take(bytes)?;
            return Some(self.enter(stretch, bytes, device, origin));
        }
        let memory = vec![PATTERN; bytes.div_ceil(8) + 8].into_boxed_slice();
        let start = (memory.as_ptr() as usize).next_multiple_of(64);
        let number = self.handle() as u64;
        self.blocks
            .insert(start, Block { device, start, bytes, origin, number, memory: Memory::Own(memory) });
        Some(start)
    }

    /// Enters memory that is a stretch of a file; what is new is filled with the pattern.
    pub(crate) fn enter(
        &mut self,
        stretch: Stretch,
        bytes: usize,
        device: Option<usize>,
        origin: Origin,
    ) -> usize {
        let (start, number) = (stretch.start, self.handle() as u64);
        if origin != Origin::Opened {
            stretch.fill(PATTERN);
        }
        self.blocks
            .insert(start, Block { device, start, bytes, origin, number, memory: Memory::Shared(stretch) });
        start
    }

    /// Gives memory back, which is overwritten when the work is done; none if there was no such.
    ///
    /// Work that still uses it would write to memory of somebody else: it is kept, so that a test sees wrong values instead
    /// of a crash.
    pub(crate) fn free(&mut self, address: usize) -> Option<Work> {
        let block = self.blocks.get(&address)?;
        // What was opened is closed.
        if block.origin == Origin::Opened {
            return None;
        }
        let block = self.blocks.remove(&address)?;
        Some(Box::new(move || match block.memory {
            Memory::Own(mut memory) => {
                memory.fill(GONE);
                std::mem::forget(memory);
            }
            Memory::Shared(stretch) => stretch.fill(GONE),
        }))
    }

    /// Takes out a block that was opened.
    pub(crate) fn close(&mut self, address: usize) {
        if let Some(Block { memory: Memory::Shared(stretch), .. }) = self.blocks.remove(&address) {
            stretch.unmap();
        }
    }

    /// Notes host memory; not where some of it is noted already.
    pub(crate) fn register(&mut self, start: usize, bytes: usize) -> bool {
        let before = self.registered.range(..start + bytes).next_back();
        if before.is_some_and(|(other, length)| other + length > start) {
            return false;
        }
        self.registered.insert(start, bytes);
        true
    }

    /// Forgets host memory; whether it was noted, with this start.
    pub(crate) fn unregister(&mut self, start: usize) -> bool {
        self.registered.remove(&start).is_some()
    }

    /// How many ranges of host memory are noted.
    pub(crate) fn registered(&self) -> usize {
        self.registered.len()
    }

    pub(crate) fn is_registered(&self, address: usize) -> bool {
        self.registered.range(..=address).next_back().is_some_and(|(start, bytes)| address < start + bytes)
    }

    /// The block that an address lies in.
    pub(crate) fn block_of(&self, address: usize) -> Option<&Block> {
        let (start, block) = self.blocks.range(..=address).next_back()?;
        (address < start + block.bytes.max(1)).then_some(block)
    }

    /// Bytes of device memory in use, without that of other processes.
    pub(crate) fn used(&self) -> usize {
        let own = |block: &&Block| block.device.is_some() && block.origin != Origin::Opened;
        self.blocks.values().filter(own).map(|block| block.bytes).sum()
    }

    /// Blocks of other processes.
    pub(crate) fn foreign(&self) -> usize {
        self.blocks.values().filter(|block| block.origin == Origin::Opened).count()
    }
}
