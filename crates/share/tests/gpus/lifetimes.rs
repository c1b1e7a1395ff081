//! Lifetimes: producers and consumers that end, fork, or let their tickets expire.

use crate::common::{
    HANG_TIMEOUT, MEMORY_KINDS, attach_ready, attach_ticket, fact, read, record_baseline, serialize_tests,
    tensor, wait_until,
};
use crate::driver::is_test_driver;
use crate::peer_process::PeerProcess;
use std::time::Duration;
use tensorferry_share::{PublishOptions, counts, publish};

#[test]
fn a_killed_consumer() {
    let _serial = serialize_tests();
    let before = record_baseline();
    for kind in MEMORY_KINDS {
        let publication = publish(&[tensor(kind, b"kept")], b"", &PublishOptions::default()).unwrap();
        let mut peer = PeerProcess::start();
        assert_eq!((peer.attach(publication.ticket()), publication.leases()), ("kept".into(), 1));
        peer.kill();
        wait_until("the lease has ended", || publication.leases() == 0);
        drop(publication);
        before.wait_until_restored();
    }
}

#[test]
fn a_killed_producer() {
    let _serial = serialize_tests();
    let before = record_baseline();
    for kind in MEMORY_KINDS {
        let mut peer = PeerProcess::start();
        let ticket = peer.publish(&format!("publish read-write {kind} left")).remove(0);
        let attached = attach_ready(&ticket).unwrap();
        assert_eq!(read(&attached.tensors[0]).unwrap(), b"left");
        peer.kill();
        assert!(fact(attach_ticket(&ticket)).contains("stale"));
        // The driver keeps memory with a shareable handle. The content of legacy memory is undefined, but dropping it
        // must succeed.
        if matches!(kind, "own" | "foreign") {
            assert_eq!(read(&attached.tensors[0]).unwrap(), b"left");
        } else {
            println!("{kind} of a process that was killed: {:?}", read(&attached.tensors[0]));
        }
        drop(attached);
        before.wait_until_restored();
    }
}

#[test]
fn a_producer_that_is_killed_before_its_work_is_done() {
    let _serial = serialize_tests();
    let before = record_baseline();
    let mut peer = PeerProcess::start_with(&[("TENSORFERRY_TESTDRIVER_STALLED", "1")]);
    let repeats = if is_test_driver() { 0 } else { 4000 };
    let ticket = peer.publish(&format!("publish-pending {repeats} old! new!")).remove(0);
    let attached = attach_ticket(&ticket).unwrap();
    let ready = &attached.ready[0];
    assert_eq!(ready.wait(Duration::ZERO).unwrap_err().kind(), tensorferry_core::ErrorKind::TimedOut);
    peer.kill();
    assert!(fact(ready.wait(HANG_TIMEOUT)).contains("died before"));
    // No stream waits for the event, so the memory can be read and released.
    assert_eq!(read(&attached.tensors[0]).unwrap(), b"old!");
    drop(attached);
    before.wait_until_restored();
}

#[test]
fn the_host_waits_for_pending_work() {
    let _serial = serialize_tests();
    let before = record_baseline();
    let mut peer = PeerProcess::start();
    let repeats = if is_test_driver() { 0 } else { 400 };
    let ticket = peer.publish(&format!("publish-pending {repeats} old! new!")).remove(0);
    let attached = attach_ticket(&ticket).unwrap();
    attached.ready[0].wait(HANG_TIMEOUT).unwrap();
    assert_eq!(read(&attached.tensors[0]).unwrap(), b"new!");
    drop(attached);
    peer.finish();
    before.wait_until_restored();
}

#[test]
fn a_producer_that_exits() {
    let _serial = serialize_tests();
    let before = record_baseline();
    let mut peer = PeerProcess::start();
    let ticket = peer.publish("publish read-write own left").remove(0);
    let attached = attach_ready(&ticket).unwrap();
    peer.finish();
    assert_eq!(read(&attached.tensors[0]).unwrap(), b"left");
    drop(attached);
    before.wait_until_restored();
}

#[test]
fn forks() {
    let _serial = serialize_tests();
    let before = record_baseline();
    for kind in MEMORY_KINDS {
        let publication = publish(&[tensor(kind, b"parent")], b"", &PublishOptions::default()).unwrap();
        // The leak checker would report everything that other threads of the parent hold.
        let mut peer = PeerProcess::start_with(&[("LSAN_OPTIONS", "detect_leaks=0")]);
        let ticket = peer.publish(&format!("publish read-write {kind} child")).remove(0);
        assert_eq!(peer.attach(publication.ticket()), "parent");
        let pending = if is_test_driver() { Some(peer.publish("publish-pending 0 old new")) } else { None };
        // The child inherits and drops all of that.
        assert_eq!(peer.request(&format!("fork {}", ticket.to_text())), "0", "{kind}");
        // The parent is not affected.
        assert_eq!(peer.request("read"), "parent");
        let attached = attach_ready(&ticket).unwrap();
        assert_eq!(read(&attached.tensors[0]).unwrap(), b"child");
        drop((attached, pending));
        peer.finish();
        wait_until("the lease has ended", || publication.leases() == 0);
        drop(publication);
        before.wait_until_restored();
    }
}

#[test]
fn an_expired_ticket_releases_the_memory() {
    let _serial = serialize_tests();
    let before = record_baseline();
    // A ticket that expires before the count is published again with a longer timeout.
    let publication = (1..)
        .find_map(|factor| {
            let options = PublishOptions {
                timeout: Some(Duration::from_millis(50 * factor)),
                ..PublishOptions::default()
            };
            let publication = publish(&[tensor("own", b"soon")], b"", &options).unwrap();
            (counts().gpu.made == 1).then_some(publication)
        })
        .unwrap();
    wait_until("the memory is released", || {
        tensorferry_cuda::ipc::release_idle();
        counts().gpu.made == 0
    });
    drop(publication);
    before.wait_until_restored();
}
