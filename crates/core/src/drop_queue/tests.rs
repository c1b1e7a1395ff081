//! Tests of the drop queue on real threads. `make loom` runs its models in every interleaving.

use super::{DrainRequest, DropQueue, WakeUp};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// An item that adds its bit to a sum when it is dropped. A bit that is added twice changes another bit.
struct Item {
    bit: usize,
    sum: Sum,
}

type Sum = Arc<AtomicUsize>;

impl Drop for Item {
    fn drop(&mut self) {
        self.sum.fetch_add(self.bit, Ordering::Relaxed);
    }
}

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
