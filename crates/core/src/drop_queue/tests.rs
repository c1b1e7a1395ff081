//! Under `--cfg loom` (`make loom`) the same protocol runs in every interleaving; otherwise on real threads.

/// An item that adds its bit to a sum when it is dropped. A bit that is added twice changes another bit.
#[cfg(loom)]
type Sum = loom::sync::Arc<loom::sync::atomic::AtomicUsize>;
#[cfg(not(loom))]
type Sum = std::sync::Arc<std::sync::atomic::AtomicUsize>;

struct Item {
    bit: usize,
    sum: Sum,
}

impl Drop for Item {
    fn drop(&mut self) {
        self.sum.fetch_add(self.bit, std::sync::atomic::Ordering::Relaxed);
    }
}

#[cfg(loom)]
mod interleavings {
    use super::super::{DrainRequest, DropQueue, WakeUp};
    use super::{Item, Sum};
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicUsize, Ordering};
    use loom::thread;

    struct State {
        queue: DropQueue<Item>,
        wake_up: WakeUp,
        request: DrainRequest,
        /// The number of requests in the list of the main loop.
        pending: AtomicUsize,
    }

    fn state() -> Arc<State> {
        Arc::new(State {
            queue: DropQueue::new(),
            wake_up: WakeUp::new(),
            request: DrainRequest::new(),
            pending: AtomicUsize::new(0),
        })
    }

    fn sum() -> Sum {
        Arc::new(AtomicUsize::new(0))
    }

    /// Two threads push and call; the drop thread waits and takes until it has seen both. A lost wake-up is a deadlock,
    /// which loom reports.
    #[test]
    fn the_drop_thread_gets_every_item_of_two_producers() {
        loom::model(|| {
            let (state, sum) = (state(), sum());
            let producers = [1, 2].map(|bit| {
                let (state, sum) = (Arc::clone(&state), Arc::clone(&sum));
                thread::spawn(move || {
                    state.queue.push(Item { bit, sum });
                    state.wake_up.call();
                })
            });
            let mut seen = 0;
            while seen < 2 {
                state.wake_up.wait();
                seen += state.queue.take().count();
            }
            assert_eq!(sum.load(Ordering::Relaxed), 3);
            producers.into_iter().for_each(|producer| producer.join().unwrap());
        });
    }

    /// Two threads push and raise one request, while another thread takes items. When the main loop has served every
    /// request, the queue is empty.
    #[test]
    fn the_main_loop_leaves_nothing_behind() {
        loom::model(|| {
            let (state, sum) = (state(), sum());
            let producers = [1, 2].map(|bit| {
                let (state, sum) = (Arc::clone(&state), Arc::clone(&sum));
                thread::spawn(move || {
                    state.queue.push(Item { bit, sum });
                    if state.request.raise() {
                        state.pending.fetch_add(1, Ordering::AcqRel);
                    }
                })
            });
            // The main loop runs once while the others push, and again when they are done.
            let turn = || {
                while state.pending.load(Ordering::Acquire) > 0 {
                    state.pending.fetch_sub(1, Ordering::AcqRel);
                    state.request.take();
                    drop(state.queue.take());
                }
            };
            turn();
            producers.into_iter().for_each(|producer| producer.join().unwrap());
            turn();
            assert_eq!(sum.load(Ordering::Relaxed), 3);
        });
    }

    /// Two threads take while one pushes: each item is dropped once, and the items of one producer in order.
    #[test]
    fn two_consumers_never_get_the_same_item() {
        loom::model(|| {
            let (state, sum) = (state(), sum());
            let consumer = {
                let state = Arc::clone(&state);
                thread::spawn(move || drop(state.queue.take()))
            };
            let producer = {
                let (state, sum) = (Arc::clone(&state), Arc::clone(&sum));
                thread::spawn(move || {
                    for bit in [1, 2] {
                        state.queue.push(Item { bit, sum: Arc::clone(&sum) });
                    }
                })
            };
            let bits: Vec<usize> = state.queue.take().map(|item| item.bit).collect();
            assert!(bits.is_sorted());
            producer.join().unwrap();
            consumer.join().unwrap();
            drop(state.queue.take());
            assert_eq!(sum.load(Ordering::Relaxed), 3);
        });
    }
}

#[cfg(not(loom))]
mod threads {
    use super::super::{DrainRequest, DropQueue, WakeUp};
    use super::{Item, Sum};
    use std::sync::atomic::Ordering;
    use std::thread;

    #[test]
    fn items_come_in_the_order_of_their_pushes() {
        let queue = DropQueue::new();
        assert!(queue.is_empty());
        for number in 0..5 {
            queue.push(number);
        }
        assert!(!queue.is_empty());
        assert_eq!(queue.take().collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        assert_eq!(queue.take().next(), None);
    }

    #[test]
    fn what_is_not_taken_out_is_dropped_once() {
        let sum = Sum::default();
        let queue = DropQueue::new();
        for bit in [1, 2, 4, 8] {
            queue.push(Item { bit, sum: Sum::clone(&sum) });
        }
        let mut taken = queue.take();
        drop(taken.next());
        queue.push(Item { bit: 16, sum: Sum::clone(&sum) });
        drop(taken);
        assert_eq!(sum.load(Ordering::Relaxed), 15);
        drop(queue);
        assert_eq!(sum.load(Ordering::Relaxed), 31);
    }

    #[test]
    fn a_child_of_a_fork_drops_nothing() {
        let queue = DropQueue::new();
        // Static, so that leak checkers do not report the abandoned node.
        static ITEM: u8 = 1;
        queue.push(&ITEM);
        let node = queue.head.load(Ordering::Relaxed);
        queue.abandon();
        assert!(queue.is_empty());
        // SAFETY: the node came from `push`, and the queue has abandoned it.
        drop(unsafe { Box::from_raw(node) });
    }

    #[test]
    fn a_request_is_made_once_until_it_is_taken() {
        let request = DrainRequest::new();
        assert!(request.raise());
        assert!(!request.raise());
        request.take();
        assert!(request.raise());
    }

    #[test]
    fn a_thread_that_waits_gets_every_item() {
        const PRODUCERS: usize = 3;
        const ITEMS: usize = if cfg!(miri) { 10 } else { 1000 };
        let queue = DropQueue::new();
        let wake_up = WakeUp::new();
        let mut last = [None; PRODUCERS];
        thread::scope(|scope| {
            for producer in 0..PRODUCERS {
                let (queue, wake_up) = (&queue, &wake_up);
                scope.spawn(move || {
                    for number in 0..ITEMS {
                        queue.push((producer, number));
                        wake_up.call();
                    }
                });
            }
            let mut seen = 0;
            while seen < PRODUCERS * ITEMS {
                wake_up.wait();
                for (producer, number) in queue.take() {
                    assert!(last[producer] < Some(number));
                    last[producer] = Some(number);
                    seen += 1;
                }
            }
        });
        assert!(queue.is_empty());
    }
}
