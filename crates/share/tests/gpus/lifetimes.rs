//! Who dies, and what is left.

use crate::common::{HANG, KINDS, alone, baseline, fact, read, take, take_ready, tensor, until};
use crate::driver::is_stand_in;
use crate::peer_process::Other;
use std::time::Duration;
use tensorferry_share::{PublishOptions, counts, publish};

#[test]
fn a_consumer_that_is_killed() {
    let _alone = alone();
    let before = baseline();
    for kind in KINDS {
        let publication = publish(&[tensor(kind, b"kept")], b"", &PublishOptions::default()).unwrap();
        let mut other = Other::start();
        assert_eq!((other.attach(publication.ticket()), publication.leases()), ("kept".into(), 1));
        other.kill();
        until("the lease is over", || publication.leases() == 0);
        drop(publication);
        before.settle();
    }
}

#[test]
fn a_producer_that_is_killed() {
    let _alone = alone();
    let before = baseline();
    for kind in KINDS {
        let mut other = Other::start();
        let ticket = other.publish(&format!("publish read-write {kind} left")).remove(0);
        let attached = take_ready(&ticket).unwrap();
        assert_eq!(read(&attached.tensors[0]).unwrap(), b"left");
        other.kill();
        assert!(fact(take(&ticket)).contains("stale"));
        // Memory with a handle of its own is the driver's. What becomes of plain memory is not promised, only that letting
        // go of it is no harm.
        if matches!(kind, "own" | "theirs") {
            assert_eq!(read(&attached.tensors[0]).unwrap(), b"left");
        } else {
            println!("{kind} of a process that was killed: {:?}", read(&attached.tensors[0]));
        }
        drop(attached);
        before.settle();
    }
}

/// What was to be ready never will be.
#[test]
fn a_producer_that_is_killed_before_it_is_ready() {
    let _alone = alone();
    let before = baseline();
    let mut other = Other::start_with(&[("TENSORFERRY_TESTDRIVER_STALLED", "1")]);
    let repeats = if is_stand_in() { 0 } else { 4000 };
    let ticket = other.publish(&format!("late {repeats} old! new!")).remove(0);
    let attached = take(&ticket).unwrap();
    let ready = &attached.ready[0];
    assert_eq!(ready.wait(Duration::ZERO).unwrap_err().kind(), tensorferry_core::ErrorKind::TimedOut);
    other.kill();
    assert!(fact(ready.wait(HANG)).contains("died before"));
    // Nothing waits for it, so that it can be read as it is, and let go.
    assert_eq!(read(&attached.tensors[0]).unwrap(), b"old!");
    drop(attached);
    before.settle();
}

#[test]
fn what_is_late_is_waited_for() {
    let _alone = alone();
    let before = baseline();
    let mut other = Other::start();
    let repeats = if is_stand_in() { 0 } else { 400 };
    let ticket = other.publish(&format!("late {repeats} old! new!")).remove(0);
    let attached = take(&ticket).unwrap();
    attached.ready[0].wait(HANG).unwrap();
    assert_eq!(read(&attached.tensors[0]).unwrap(), b"new!");
    drop(attached);
    other.end();
    before.settle();
}

#[test]
fn a_producer_that_ends_in_good_order() {
    let _alone = alone();
    let before = baseline();
    let mut other = Other::start();
    let ticket = other.publish("publish read-write own left").remove(0);
    let attached = take_ready(&ticket).unwrap();
    other.end();
    assert_eq!(read(&attached.tensors[0]).unwrap(), b"left");
    drop(attached);
    before.settle();
}

#[test]
fn forks() {
    let _alone = alone();
    let before = baseline();
    for kind in KINDS {
        let publication = publish(&[tensor(kind, b"parent")], b"", &PublishOptions::default()).unwrap();
        // To a search for leaks in the child, all that the parent's other threads hold is one.
        let mut other = Other::start_with(&[("LSAN_OPTIONS", "detect_leaks=0")]);
        let ticket = other.publish(&format!("publish read-write {kind} child")).remove(0);
        assert_eq!(other.attach(publication.ticket()), "parent");
        let late = if is_stand_in() { Some(other.publish("late 0 old new")) } else { None };
        // The child has all of that, and lets go of it.
        assert_eq!(other.ask(&format!("fork {}", ticket.to_text())), "0", "{kind}");
        // The parent goes on, on both sides.
        assert_eq!(other.ask("read"), "parent");
        let attached = take_ready(&ticket).unwrap();
        assert_eq!(read(&attached.tensors[0]).unwrap(), b"child");
        drop((attached, late));
        other.end();
        until("the lease is over", || publication.leases() == 0);
        drop(publication);
        before.settle();
    }
}

#[test]
fn a_ticket_that_expires_lets_go_of_the_memory() {
    let _alone = alone();
    let before = baseline();
    // One that is over before it is counted is made again with more time.
    let publication = (1..)
        .find_map(|tens| {
            let options = PublishOptions {
                timeout: Some(Duration::from_millis(50 * tens)),
                ..PublishOptions::default()
            };
            let publication = publish(&[tensor("own", b"soon")], b"", &options).unwrap();
            (counts().gpu.made == 1).then_some(publication)
        })
        .unwrap();
    until("it is let go", || {
        tensorferry_cuda::ipc::release_idle();
        counts().gpu.made == 0
    });
    drop(publication);
    before.settle();
}
