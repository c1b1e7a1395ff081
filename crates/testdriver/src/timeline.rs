//! Streams and events that are as lazy as CUDA allows.
//!
//! Queued work does not run until something waits for it, on the host or from another stream. A reader that does not wait
//! therefore finds old values, every time.

use crate::ipc_event::IpcEvent;
use crate::work::Work;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// One entry of a stream's queue.
enum Step {
    Run(Work),
    /// Wait until each of these streams has done that many steps.
    Wait(Snapshot),
}

/// The number of steps that streams had been given when an event was recorded.
type Snapshot = Vec<(usize, u64)>;

#[derive(Default)]
struct Stream {
    /// Steps that were queued so far.
    given: u64,
    /// Steps that are done.
    done: u64,
    steps: VecDeque<Step>,
}

/// All streams and events, by handle.
#[derive(Default)]
pub(crate) struct Timeline {
    streams: BTreeMap<usize, Stream>,
    events: HashMap<usize, Snapshot>,
    /// What new streams wait for first.
    barrier: Snapshot,
    /// Events of this process that others may wait for, and events of other processes.
    ipc_events: HashMap<usize, IpcEvent>,
}

impl Timeline {
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

    fn push(&mut self, stream: usize, step: Step) {
        let stream = self.stream(stream);
        stream.given += 1;
        stream.steps.push_back(step);
    }

    /// Queues work on a stream.
    pub(crate) fn queue(&mut self, stream: usize, work: Work) {
        self.push(stream, Step::Run(work));
    }

    /// Whether a stream has no step left.
    pub(crate) fn is_idle(&mut self, stream: usize) -> bool {
        self.stream(stream).steps.is_empty()
    }

    /// The number of streams with work left.
    pub(crate) fn busy_streams(&self) -> usize {
        self.streams
            .values()
            .filter(|stream| stream.steps.iter().any(|step| matches!(step, Step::Run(_))))
            .count()
    }

    /// Runs a stream until it has done that many steps.
    fn run_to(&mut self, stream: usize, until: u64) {
        while self.stream(stream).done < until {
            let Some(step) = self.stream(stream).steps.pop_front() else { return };
            match step {
                Step::Run(work) => work(),
                Step::Wait(snapshot) => {
                    snapshot.into_iter().for_each(|(other, until)| self.run_to(other, until));
                }
            }
            self.stream(stream).done += 1;
        }
    }

    /// Runs a stream to its end.
    pub(crate) fn finish(&mut self, stream: usize) {
        let until = self.stream(stream).given;
        self.run_to(stream, until);
    }

    /// Runs all streams to their ends.
    pub(crate) fn finish_all(&mut self) {
        let streams: Vec<usize> = self.streams.keys().copied().collect();
        streams.into_iter().for_each(|stream| self.finish(stream));
    }

    /// Records an event on one stream.
    pub(crate) fn record(&mut self, event: usize, stream: usize) {
        if let Some(announce) = self.ipc_events.get_mut(&event).and_then(IpcEvent::record) {
            self.queue(stream, announce);
        }
        let given = self.stream(stream).given;
        self.events.insert(event, vec![(stream, given)]);
    }

    /// Records an event on every stream.
    pub(crate) fn record_all(&mut self, event: usize) {
        let snapshot = self.streams.iter().map(|(handle, stream)| (*handle, stream.given)).collect();
        self.events.insert(event, snapshot);
    }

    /// Lets a stream wait for an event as it is recorded now. An event that was never recorded is complete.
    pub(crate) fn wait(&mut self, stream: usize, event: usize) {
        self.refresh_imported(event);
        if let Some(snapshot) = self.events.get(&event).cloned() {
            self.push(stream, Step::Wait(snapshot));
        }
    }

    /// Lets every stream wait for an event, including streams that are created later.
    pub(crate) fn wait_all(&mut self, event: usize) {
        self.refresh_imported(event);
        let Some(snapshot) = self.events.get(&event).cloned() else { return };
        let streams: Vec<usize> = self.streams.keys().copied().collect();
        streams.into_iter().for_each(|stream| self.push(stream, Step::Wait(snapshot.clone())));
        self.barrier.extend(snapshot);
    }

    /// Runs the streams until an event is complete.
    pub(crate) fn finish_event(&mut self, event: usize) {
        self.refresh_imported(event);
        let snapshot = self.events.get(&event).cloned().unwrap_or_default();
        snapshot.into_iter().for_each(|(stream, until)| self.run_to(stream, until));
    }

    /// The streams on which an event was recorded.
    pub(crate) fn streams_of(&self, event: usize) -> Vec<usize> {
        self.events.get(&event).into_iter().flatten().map(|(stream, _)| *stream).collect()
    }

    /// Whether the recorded work of an event is complete.
    pub(crate) fn is_complete(&mut self, event: usize) -> bool {
        if let Some(imported) = self.ipc_events.get(&event).filter(|event| event.is_imported()) {
            return imported.is_complete();
        }
        let snapshot = self.events.get(&event).cloned().unwrap_or_default();
        snapshot.into_iter().all(|(stream, until)| self.stream(stream).done >= until)
    }

    pub(crate) fn insert_ipc_event(&mut self, handle: usize, event: IpcEvent) {
        self.ipc_events.insert(handle, event);
    }

    pub(crate) fn ipc_event(&self, handle: usize) -> Option<&IpcEvent> {
        self.ipc_events.get(&handle)
    }

    /// Whether an event belongs to another process.
    pub(crate) fn is_imported(&self, event: usize) -> bool {
        self.ipc_events.get(&event).is_some_and(IpcEvent::is_imported)
    }

    /// Represents an imported event by a stream of its own, whose work waits for the other process.
    fn refresh_imported(&mut self, event: usize) {
        let Some(wait) = self.ipc_events.get(&event).and_then(IpcEvent::wait) else { return };
        self.queue(event, wait);
        let given = self.stream(event).given;
        self.events.insert(event, vec![(event, given)]);
    }

    pub(crate) fn destroy_event(&mut self, event: usize) {
        self.ipc_events.remove(&event);
    }

    /// The number of interprocess events, of this and other processes.
    pub(crate) fn ipc_event_count(&self) -> usize {
        self.ipc_events.len()
    }
}
