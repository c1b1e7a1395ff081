//! Models of the drop queue (`make loom`): the code above, in every interleaving of three threads.
//!
//! A lost wake-up is a deadlock, which loom reports. It also reports an item that is read without having been published.

use super::*;
use crate::sync::{AtomicUsize, SharedCell, explore};
use loom::thread;
use std::sync::Arc;

/// An item that adds its bit to a sum when it is dropped. A bit that is added twice changes another bit.
struct Item {
    bit: usize,
    /// Written by the producer, read by the consumer.
    memory: SharedCell,
    sum: Arc<Sum>,
}

/// Not loom's type, which would publish what the queue has to publish.
type Sum = std::sync::atomic::AtomicUsize;

impl Drop for Item {
    fn drop(&mut self) {
        self.memory.read();
        self.sum.fetch_add(self.bit, Ordering::Relaxed);
    }
}

struct State {
    queue: DropQueue<Item>,
    wake_up: WakeUp,
    request: DrainRequest,
    /// The number of requests in the list of the main loop.
    pending: AtomicUsize,
    sum: Arc<Sum>,
}

impl State {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            queue: DropQueue::new(),
            wake_up: WakeUp::new(),
            request: DrainRequest::new(),
            pending: AtomicUsize::new(0),
            sum: Arc::new(Sum::new(0)),
        })
    }

    fn push(&self, bit: usize) {
        let memory = SharedCell::new();
        memory.write();
        self.queue.push(Item { bit, memory, sum: Arc::clone(&self.sum) });
    }

    fn push_and_request(&self, bit: usize) {
        self.push(bit);
        if self.request.raise() {
            self.pending.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Serves every request that the main loop sees.
    fn run_main_loop(&self) {
        while self.pending.load(Ordering::Relaxed) > 0 {
            self.pending.fetch_sub(1, Ordering::Relaxed);
            self.request.take();
            self.drain();
        }
    }

    /// Waits for a call and drops what was pushed before it; returns the number of items.
    fn run_drop_thread(&self) -> usize {
        self.wake_up.wait();
        self.drain()
    }

    /// Drops the items, if the queue looks as if it had any, as the product does.
    fn drain(&self) -> usize {
        if self.queue.is_empty() { 0 } else { self.queue.take().count() }
    }

    fn dropped(&self) -> usize {
        self.sum.load(Ordering::Relaxed)
    }
}

/// Starts a thread of the model.
fn spawn(state: &Arc<State>, run: impl FnOnce(&State) + 'static) -> thread::JoinHandle<()> {
    let state = Arc::clone(state);
    thread::spawn(move || run(&state))
}

/// Two threads push and call; the drop thread waits and takes until it has seen both.
#[test]
fn the_drop_thread_gets_every_item_of_two_producers() {
    explore(None, 0, || {
        let state = State::new();
        let producers = [1, 2].map(|bit| {
            spawn(&state, move |state| {
                state.push(bit);
                state.wake_up.call();
            })
        });
        let mut seen = 0;
        while seen < 2 {
            seen += state.run_drop_thread();
        }
        assert_eq!(state.dropped(), 3);
        producers.into_iter().for_each(|producer| producer.join().unwrap());
    });
}

/// Two threads push and raise one request. When the main loop has served every request, the queue is empty.
#[test]
fn the_main_loop_leaves_nothing_behind() {
    explore(None, 0, || {
        let state = State::new();
        let producers = [1, 2].map(|bit| spawn(&state, move |state| state.push_and_request(bit)));
        // The main loop runs once while the others push, and again when they are done.
        state.run_main_loop();
        producers.into_iter().for_each(|producer| producer.join().unwrap());
        state.run_main_loop();
        assert_eq!(state.dropped(), 3);
    });
}

/// Two threads take while one pushes: each item is dropped once, and the items of one producer in order.
#[test]
fn two_consumers_never_get_the_same_item() {
    explore(None, 0, || {
        let state = State::new();
        let consumer = spawn(&state, |state| drop(state.queue.take()));
        let producer = spawn(&state, |state| [1, 2].into_iter().for_each(|bit| state.push(bit)));
        let bits: Vec<usize> = state.queue.take().map(|item| item.bit).collect();
        assert!(bits.is_sorted());
        producer.join().unwrap();
        consumer.join().unwrap();
        drop(state.queue.take());
        assert_eq!(state.dropped(), 3);
    });
}

/// The drop thread and the main loop both take, as in the product. Neither waits for an item that the other took.
#[test]
fn the_drop_thread_and_the_main_loop_share_the_items() {
    explore(None, 0, || {
        let state = State::new();
        let drop_thread = spawn(&state, |state| _ = state.run_drop_thread());
        let producer = spawn(&state, |state| {
            state.push(1);
            state.wake_up.call();
        });
        state.push_and_request(2);
        state.run_main_loop();
        assert_eq!(state.dropped() & 2, 2);
        producer.join().unwrap();
        drop_thread.join().unwrap();
        assert_eq!(state.dropped(), 3);
    });
}

/// Two threads push while the third takes and ends: the drop of the queue drops the rest.
#[test]
fn the_drop_of_the_queue_drops_the_rest() {
    explore(None, 0, || {
        let state = State::new();
        let producers = [1, 2].map(|bit| spawn(&state, move |state| state.push(bit)));
        drop(state.queue.take());
        producers.into_iter().for_each(|producer| producer.join().unwrap());
        let sum = Arc::clone(&state.sum);
        drop(state);
        assert_eq!(sum.load(Ordering::Relaxed), 3);
    });
}
