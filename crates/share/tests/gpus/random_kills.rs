//! Producers and consumers killed at random moments, and threads that come all at once; then nothing is lost.

use crate::common::{KINDS, alone, baseline, read, take_ready, tensor, until};
use crate::peer_process::{Other, Random};
use std::thread;
use std::time::Duration;
use tensorferry_share::{PublishOptions, counts, publish};

const ROUNDS: u64 = 40;

#[test]
fn nothing_is_lost() {
    let _alone = alone();
    let before = baseline();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for round in 0..ROUNDS {
        let kind = KINDS[round as usize % KINDS.len()];
        let mut other = Other::start();
        if random.below(2) == 0 {
            // A consumer, in the middle of whatever it does.
            let publication = publish(&[tensor(kind, b"kept")], b"", &PublishOptions::default()).unwrap();
            other.say(&format!("attach {}", publication.ticket().to_text()));
            thread::sleep(Duration::from_micros(random.below(6000)));
            other.kill();
            until("the lease is over", || publication.leases() == 0);
        } else {
            // A producer, while its memory is opened and read.
            let ticket = other.publish(&format!("publish read-write {kind} left")).remove(0);
            thread::scope(|scope| {
                let attaching = scope.spawn(|| take_ready(&ticket).map(|one| read(&one.tensors[0])));
                thread::sleep(Duration::from_micros(random.below(1500)));
                other.kill();
                // Either it was there in time, or an error says what is wrong.
                if let Ok(Ok(bytes)) = attaching.join().unwrap() {
                    assert!(bytes == b"left" || kind == "plain", "{kind}: {bytes:?}");
                }
            });
        }
        assert_eq!((counts().held, counts().gpu.imports, counts().gpu.events), (0, 0, 0), "round {round}");
    }
    before.settle();
}

/// Sixteen threads open and close the same allocation.
fn threads_at_once(kind: &str) {
    let _alone = alone();
    let before = baseline();
    let mut other = Other::start();
    let tickets = other.publish(&format!("publish read-write {kind} one two"));
    thread::scope(|scope| {
        for index in 0..16 {
            let ticket = &tickets[index % 2];
            scope.spawn(move || {
                for _ in 0..20 {
                    let attached = take_ready(ticket).unwrap();
                    let expected: &[u8] = if index % 2 == 0 { b"one" } else { b"two" };
                    assert_eq!(read(&attached.tensors[0]).unwrap(), expected);
                }
            });
        }
    });
    until("the leases are over", || other.ask("leases") == "0,0");
    other.end();
    before.settle();
}

#[test]
fn threads_at_once_our_own() {
    threads_at_once("own");
}

#[test]
fn threads_at_once_plain() {
    threads_at_once("plain");
}
