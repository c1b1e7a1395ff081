//! Producers and consumers that are killed at random times, and many threads at once, leak nothing.

use crate::common::{MEMORY_KINDS, attach_ready, read, record_baseline, serialize_tests, tensor, wait_until};
use crate::peer_process::{PeerProcess, Random};
use std::thread;
use std::time::Duration;
use tensorferry_share::{PublishOptions, counts, publish};

const ROUNDS: u64 = 40;

#[test]
fn nothing_is_leaked() {
    let _serial = serialize_tests();
    let before = record_baseline();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for round in 0..ROUNDS {
        let kind = MEMORY_KINDS[round as usize % MEMORY_KINDS.len()];
        let mut peer = PeerProcess::start();
        if random.below(2) == 0 {
            // A consumer, while it attaches.
            let publication = publish(&[tensor(kind, b"kept")], b"", &PublishOptions::default()).unwrap();
            peer.send_line(&format!("attach {}", publication.ticket().to_text()));
            thread::sleep(Duration::from_micros(random.below(6000)));
            peer.kill();
            wait_until("the lease has ended", || publication.leases() == 0);
        } else {
            // A producer, while its memory is attached and read.
            let ticket = peer.publish(&format!("publish read-write {kind} left")).remove(0);
            thread::scope(|scope| {
                let attaching = scope.spawn(|| attach_ready(&ticket).map(|one| read(&one.tensors[0])));
                thread::sleep(Duration::from_micros(random.below(1500)));
                peer.kill();
                // Attaching succeeds or fails, depending on the time of the kill.
                if let Ok(Ok(bytes)) = attaching.join().unwrap() {
                    assert!(bytes == b"left" || kind == "legacy", "{kind}: {bytes:?}");
                }
            });
        }
        assert_eq!(
            (counts().held_leases, counts().gpu.imports, counts().gpu.events),
            (0, 0, 0),
            "round {round}"
        );
    }
    before.wait_until_restored();
}

/// Sixteen threads open and close the same allocation.
fn threads_at_once(kind: &str) {
    let _serial = serialize_tests();
    let before = record_baseline();
    let mut peer = PeerProcess::start();
    let tickets = peer.publish(&format!("publish read-write {kind} one two"));
    thread::scope(|scope| {
        for index in 0..16 {
            let ticket = &tickets[index % 2];
            scope.spawn(move || {
                for _ in 0..20 {
                    let attached = attach_ready(ticket).unwrap();
                    let expected: &[u8] = if index % 2 == 0 { b"one" } else { b"two" };
                    assert_eq!(read(&attached.tensors[0]).unwrap(), expected);
                }
            });
        }
    });
    wait_until("the leases have ended", || peer.request("leases") == "0,0");
    peer.finish();
    before.wait_until_restored();
}

#[test]
fn threads_at_once_own() {
    threads_at_once("own");
}

#[test]
fn threads_at_once_legacy() {
    threads_at_once("legacy");
}
