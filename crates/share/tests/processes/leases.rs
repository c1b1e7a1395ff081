//! Leases: when memory is held and released, and how the server behaves meanwhile.

use crate::common::{
    HANG_TIMEOUT, attach_ticket, fact, publish_bytes, read, record_baseline, retry_within, serialize_tests,
    tensor, wait_until,
};
use crate::peer_process::PeerProcess;
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tensorferry_core::{Access, Error, ErrorKind};
use tensorferry_share::{PublishOptions, attach, attach_cancellable, counts, publish_with_owner};

#[test]
fn deliveries_are_counted() {
    let _serial = serialize_tests();
    let publication = publish_bytes(b"seen", PublishOptions::default());
    assert_eq!((publication.deliveries(), publication.leases()), (0, 0));
    let attached = attach_ticket(publication.ticket()).unwrap();
    drop(attach_ticket(publication.ticket()).unwrap());
    wait_until("one lease has ended", || (publication.deliveries(), publication.leases()) == (2, 1));
    drop(attached);
}

#[test]
fn the_owner_lasts_as_long_as_the_ticket_and_the_leases() {
    let _serial = serialize_tests();
    let (owner, options) = (Arc::new(()), PublishOptions::default());
    let tensors = [tensor(b"owned")];
    let publication = publish_with_owner(&tensors, b"", &options, Box::new(owner.clone())).unwrap();
    let attached = attach_ticket(publication.ticket()).unwrap();
    drop(publication);
    assert_eq!(Arc::strong_count(&owner), 2);
    drop(attached);
    wait_until("the owner is dropped", || Arc::strong_count(&owner) == 1);
    let publication = publish_with_owner(&tensors, b"", &options, Box::new(owner.clone())).unwrap();
    drop(publication);
    assert_eq!(Arc::strong_count(&owner), 1);
}

#[test]
fn a_removed_directory_is_created_again() {
    let _serial = serialize_tests();
    let lost = publish_bytes(b"lost", PublishOptions::default());
    let held = attach_ticket(lost.ticket()).unwrap();
    std::fs::remove_dir_all(lost.ticket().path().parent().unwrap()).unwrap();
    assert!(fact(attach_ticket(lost.ticket())).contains("is unreachable"));
    let again = publish_bytes(b"again", PublishOptions::default());
    assert_eq!(read(&attach_ticket(again.ticket()).unwrap().tensors[0]), b"again");
    assert_eq!((read(&held.tensors[0]), lost.leases()), (b"lost".to_vec(), 1));
    drop(held);
    wait_until("the old lease has ended", || lost.leases() == 0);
}

#[test]
fn a_killed_producer() {
    let _serial = serialize_tests();
    let before = record_baseline();
    let mut peer = PeerProcess::start();
    let ticket = peer.publish("publish legacy");
    let attached = attach_ticket(&ticket).unwrap();
    peer.kill();
    let error = attach_ticket(&ticket).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TicketRejected);
    assert!(error.fact().ends_with("is stale: that process has ended"), "{error}");
    // Attached tensors stay valid, and can be published again.
    assert_eq!(read(&attached.tensors[0]), b"legacy");
    let tensors: Vec<_> = attached.tensors.iter().map(crate::peer_commands::republished).collect();
    let again = tensorferry_share::publish(&tensors, b"", &PublishOptions::default()).unwrap();
    let mut third = PeerProcess::start();
    assert_eq!(third.request(&format!("attach {}", again.ticket().to_text())), "legacy");
    third.finish();
    // It could not remove its directory, and the next producer does.
    let dir = ticket.path().parent().unwrap();
    let mut next = PeerProcess::start();
    let ticket = next.publish("publish x");
    assert!(!dir.exists() && ticket.path().exists());
    next.finish();
    assert!(!ticket.path().parent().unwrap().exists());
    drop((attached, tensors, again));
    before.wait_until_restored();
}

#[test]
fn a_killed_consumer() {
    let _serial = serialize_tests();
    let before = record_baseline();
    let publication =
        publish_bytes(b"lent", PublishOptions { access: Access::ReadOnly, ..PublishOptions::default() });
    let mut peers: Vec<PeerProcess> = (0..3).map(|_| PeerProcess::start()).collect();
    for peer in &mut peers {
        assert_eq!(peer.request(&format!("attach {}", publication.ticket().to_text())), "lent");
    }
    assert_eq!((publication.leases(), counts().granted_leases), (3, 3));
    peers.pop().unwrap().kill();
    wait_until("one lease has ended", || publication.leases() == 2);
    assert_eq!(peers[0].request("drop"), "ok");
    wait_until("two leases have ended", || publication.leases() == 1);
    peers.into_iter().for_each(PeerProcess::finish);
    wait_until("all leases have ended", || publication.leases() == 0);
    drop(publication);
    before.wait_until_restored();
}

#[test]
fn a_stopped_producer() {
    let _serial = serialize_tests();
    let before = record_baseline();
    let mut peer = PeerProcess::start();
    let ticket = peer.publish("publish slow");
    let process = Pid::from_raw(peer.id() as i32).unwrap();
    kill_process(process, Signal::STOP).unwrap();
    let threads = format!("/proc/{}/task", peer.id());
    wait_until("every thread has stopped", || {
        std::fs::read_dir(&threads).unwrap().flatten().all(|thread| {
            std::fs::read_to_string(thread.path().join("stat")).is_ok_and(|stat| stat.contains(") T "))
        })
    });
    let time = Duration::from_millis(100);
    let (error, elapsed) = retry_within(Duration::from_secs(2), || {
        let begin = Instant::now();
        (attach(&ticket, time).unwrap_err(), begin.elapsed())
    });
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(elapsed >= time);
    // The cancel check runs periodically, even without a signal.
    let checks = std::cell::Cell::new(0);
    let error = attach_cancellable(&ticket, HANG_TIMEOUT, &|| {
        checks.set(checks.get() + 1);
        if checks.get() < 3 { Ok(()) } else { Err(Error::new(ErrorKind::Cancelled, "cancelled")) }
    });
    assert_eq!((error.unwrap_err().kind(), checks.get()), (ErrorKind::Cancelled, 3));
    kill_process(process, Signal::CONT).unwrap();
    assert_eq!(read(&attach_ticket(&ticket).unwrap().tensors[0]), b"slow");
    peer.finish();
    before.wait_until_restored();
}

#[test]
fn many_threads_at_once() {
    let _serial = serialize_tests();
    let before = record_baseline();
    thread::scope(|scope| {
        for index in 0..8u8 {
            scope.spawn(move || {
                for round in 0..50u8 {
                    let publication = publish_bytes(&[index, round], PublishOptions::default());
                    let attached = attach_ticket(publication.ticket()).unwrap();
                    drop(publication);
                    assert_eq!(read(&attached.tensors[0]), [index, round]);
                }
            });
        }
    });
    before.wait_until_restored();
}

#[test]
fn the_thread_blocks_all_signals() {
    let _serial = serialize_tests();
    let _publication = publish_bytes(b"x", PublishOptions::default());
    let threads = std::fs::read_dir("/proc/self/task")
        .unwrap()
        .flatten()
        .map(|thread| std::fs::read_to_string(thread.path().join("status")).unwrap_or_default());
    let status = threads.into_iter().find(|status| status.starts_with("Name:\ttensorferry-sh")).unwrap();
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
    let blocked = u64::from_str_radix(blocked.trim(), 16).unwrap();
    for signal in [Signal::INT, Signal::TERM, Signal::CHILD, Signal::ALARM, Signal::USR1, Signal::PROF] {
        assert!(blocked >> (signal.as_raw() - 1) & 1 == 1, "{signal:?}");
    }
}

#[test]
fn the_socket_is_in_a_private_directory() {
    let _serial = serialize_tests();
    let base = std::env::temp_dir().join(format!("tensorferry-base-{}", std::process::id()));
    let long = base.join("x".repeat(90));
    std::fs::create_dir_all(&long).unwrap();
    for (base, is_used) in [(&base, true), (&long, false), (&base.join("missing"), false)] {
        let mut peer = PeerProcess::start_with(&[("XDG_RUNTIME_DIR", base.as_os_str())]);
        let ticket = peer.publish("publish x");
        assert_eq!(ticket.path().starts_with(base), is_used, "{ticket:?}");
        let dir = ticket.path().parent().unwrap();
        assert_eq!(std::fs::metadata(dir).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(read(&attach_ticket(&ticket).unwrap().tensors[0]), b"x");
        peer.finish();
        assert!(!dir.exists());
    }
    std::fs::remove_dir_all(&base).unwrap();
}
