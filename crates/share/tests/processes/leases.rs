//! Who may attach and until when, and when the memory is let go.

use crate::common::{HANG, alone, baseline, fact, publish_briefly, publish_bytes, read, take, until, within};
use crate::peer_process::Other;
use std::os::unix::fs::PermissionsExt;
use std::thread;
use std::time::{Duration, Instant};
use tensorferry_core::{Access, Error, ErrorKind};
use tensorferry_share::{PublishOptions, Ticket, attach, attach_cancellable, counts};

#[test]
fn a_ticket_for_one() {
    let _alone = alone();
    let before = baseline();
    let publication = publish_bytes(b"single", PublishOptions { once: true, ..PublishOptions::default() });
    let attached = take(publication.ticket()).unwrap();
    assert_eq!(read(&attached.tensors[0]), b"single");
    let error = take(publication.ticket()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TicketRejected);
    assert!(error.fact().contains("was used"), "{error}");
    assert_eq!((publication.leases(), counts().publications), (1, 0));
    drop(attached);
    // The memory is let go with the lease, although the publication is still there.
    tensorferry_share::release_idle();
    until("the memory is let go", || {
        tensorferry_share::release_idle();
        counts().arenas == 0
    });
    assert!(fact(take(publication.ticket())).contains("was used"));
    drop(publication);
    before.settle();
}

#[test]
fn a_ticket_with_a_time() {
    let _alone = alone();
    let before = baseline();
    let (publication, attached) = publish_briefly(b"brief", |publication| match take(publication.ticket()) {
        Ok(attached) => Some(attached),
        Err(late) => (!late.fact().contains("has expired")).then(|| panic!("{late}")),
    });
    until("its time is over", || counts().publications == 0);
    assert!(fact(take(publication.ticket())).contains("has expired"));
    assert_eq!((publication.leases(), read(&attached.tensors[0])), (1, b"brief".to_vec()));
    drop(attached);
    until("the memory is let go", || {
        tensorferry_share::release_idle();
        counts().arenas == 0
    });
    drop(publication);
    before.settle();
}

#[test]
fn promises_outlive_the_publication() {
    let _alone = alone();
    let before = baseline();
    let publication = publish_bytes(b"sent", PublishOptions::default());
    let ticket = publication.ticket().clone();
    publication.promise();
    publication.promise();
    drop(publication);
    for _ in 0..2 {
        assert_eq!(read(&take(&ticket).unwrap().tensors[0]), b"sent");
    }
    assert!(fact(take(&ticket)).contains("was withdrawn"));
    // One that was kept already keeps nothing.
    let publication = publish_bytes(b"kept", PublishOptions::default());
    publication.promise();
    let ticket = publication.ticket().clone();
    assert_eq!(read(&take(&ticket).unwrap().tensors[0]), b"kept");
    drop(publication);
    assert!(fact(take(&ticket)).contains("was withdrawn"));
    // Nor is one kept whose time is over, that was used, or was withdrawn.
    let (publication, ticket) = publish_briefly(b"late", |publication| {
        publication.promise();
        (counts().publications == 1).then(|| publication.ticket().clone())
    });
    drop(publication);
    until("its time is over", || counts().publications == 0);
    assert!(fact(take(&ticket)).contains("was withdrawn"));
    let publication = publish_bytes(b"once", PublishOptions { once: true, ..PublishOptions::default() });
    publication.promise();
    publication.promise();
    let ticket = publication.ticket().clone();
    drop(publication);
    drop(take(&ticket).unwrap());
    assert!(fact(take(&ticket)).contains("was withdrawn"));
    let publication = publish_bytes(b"back", PublishOptions::default());
    publication.promise();
    publication.withdraw();
    assert!(fact(take(publication.ticket())).contains("was withdrawn"));
    drop(publication);
    before.settle();
}

#[test]
fn who_has_come_is_counted() {
    let _alone = alone();
    let publication = publish_bytes(b"seen", PublishOptions::default());
    assert_eq!((publication.served(), publication.leases()), (0, 0));
    let attached = take(publication.ticket()).unwrap();
    drop(take(publication.ticket()).unwrap());
    until("one has gone", || (publication.served(), publication.leases()) == (2, 1));
    drop(attached);
}

#[test]
fn a_ticket_for_one_that_did_not_arrive_is_good_for_another() {
    let _alone = alone();
    // More than a socket takes at once, so that the answer is not sent to the end.
    let large = vec![7; 8 << 20];
    let options = PublishOptions { once: true, ..PublishOptions::default() };
    let publication = tensorferry_share::publish(&[], &large, &options).unwrap();
    let mut stream = std::os::unix::net::UnixStream::connect(publication.ticket().path()).unwrap();
    std::io::Write::write_all(&mut stream, &crate::malicious_consumers::request(publication.ticket()))
        .unwrap();
    until("it is being answered", || publication.leases() == 1);
    assert!(fact(take(publication.ticket())).contains("was used"));
    drop(stream);
    until("it is given up", || publication.leases() == 0);
    assert_eq!(publication.served(), 0);
    assert!(take(publication.ticket()).unwrap().structure == large);
    assert_eq!(publication.served(), 1);
    assert!(fact(take(publication.ticket())).contains("was used"));
}

#[test]
fn a_folder_that_was_cleared_away_is_made_again() {
    let _alone = alone();
    let lost = publish_bytes(b"lost", PublishOptions::default());
    let held = take(lost.ticket()).unwrap();
    std::fs::remove_dir_all(lost.ticket().path().parent().unwrap()).unwrap();
    assert!(fact(take(lost.ticket())).contains("leads nowhere"));
    let again = publish_bytes(b"again", PublishOptions::default());
    assert_eq!(read(&take(again.ticket()).unwrap().tensors[0]), b"again");
    assert_eq!((read(&held.tensors[0]), lost.leases()), (b"lost".to_vec(), 1));
    drop(held);
    until("the old lease is over", || lost.leases() == 0);
}

#[test]
fn a_wrong_secret_learns_nothing() {
    let _alone = alone();
    let publication = publish_bytes(b"x", PublishOptions { once: true, ..PublishOptions::default() });
    drop(take(publication.ticket()).unwrap());
    let mut bytes = publication.ticket().to_bytes();
    bytes[29] ^= 1;
    assert!(fact(take(&Ticket::from_bytes(&bytes).unwrap())).contains("never given out"));
    assert!(fact(take(publication.ticket())).contains("was used"));
}

#[test]
fn a_ticket_that_is_withdrawn() {
    let _alone = alone();
    let before = baseline();
    let publication = publish_bytes(b"gone", PublishOptions::default());
    let ticket = publication.ticket().clone();
    let attached = take(&ticket).unwrap();
    publication.withdraw();
    publication.withdraw();
    assert!(fact(take(&ticket)).contains("was withdrawn"));
    assert_eq!((publication.leases(), read(&attached.tensors[0])), (1, b"gone".to_vec()));
    drop(publication);
    assert!(fact(take(&ticket)).contains("was withdrawn"));
    assert_eq!(counts().given, 1);
    drop(attached);
    before.settle();
}

#[test]
fn a_wrong_secret() {
    let _alone = alone();
    let publication = publish_bytes(b"secret", PublishOptions { once: true, ..PublishOptions::default() });
    let ticket = publication.ticket();
    let guessed =
        Ticket::new(ticket.path().into(), *ticket.id(), [7; 16], ticket.process(), ticket.start()).unwrap();
    assert!(fact(take(&guessed)).contains("never given out"));
    // And it did not use up the ticket.
    assert_eq!(read(&take(ticket).unwrap().tensors[0]), b"secret");
}

#[test]
fn a_process_number_that_is_another_process_by_now() {
    let _alone = alone();
    let publication = publish_bytes(b"now", PublishOptions::default());
    let ticket = publication.ticket();
    let mut bytes = ticket.to_bytes();
    bytes[5] ^= 1;
    assert!(fact(take(&Ticket::from_bytes(&bytes).unwrap())).contains("is stale: that process has ended"));
    // A living process of that number, which does not listen there.
    let other = Other::start();
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", other.id())).unwrap();
    let start = stat.rsplit(')').next().unwrap().split_whitespace().nth(19).unwrap().parse().unwrap();
    let secret: [u8; 16] = ticket.to_bytes()[29..45].try_into().unwrap();
    let moved = Ticket::new(ticket.path().into(), *ticket.id(), secret, other.id(), start).unwrap();
    assert!(fact(take(&moved)).contains("leads to process"));
    other.end();
}

#[test]
fn a_producer_that_is_dead() {
    let _alone = alone();
    let before = baseline();
    let mut other = Other::start();
    let ticket = other.publish("publish legacy");
    let attached = take(&ticket).unwrap();
    other.kill();
    let error = take(&ticket).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TicketRejected);
    assert!(error.fact().ends_with("is stale: that process has ended"), "{error}");
    // What was attached stays, and can be handed on.
    assert_eq!(read(&attached.tensors[0]), b"legacy");
    let tensors: Vec<_> = attached.tensors.iter().map(crate::peer_commands::outgoing).collect();
    let again = tensorferry_share::publish(&tensors, b"", &PublishOptions::default()).unwrap();
    let mut third = Other::start();
    assert_eq!(third.ask(&format!("attach {}", again.ticket().to_text())), "legacy");
    third.end();
    // It could not tidy up, and the next producer does, whoever that is.
    let folder = ticket.path().parent().unwrap();
    let mut next = Other::start();
    let ticket = next.publish("publish x");
    assert!(!folder.exists() && ticket.path().exists());
    next.end();
    assert!(!ticket.path().parent().unwrap().exists());
    drop((attached, tensors, again));
    before.settle();
}

#[test]
fn a_consumer_that_is_killed() {
    let _alone = alone();
    let before = baseline();
    let publication =
        publish_bytes(b"lent", PublishOptions { access: Access::ReadOnly, ..PublishOptions::default() });
    let mut others: Vec<Other> = (0..3).map(|_| Other::start()).collect();
    for other in &mut others {
        assert_eq!(other.ask(&format!("attach {}", publication.ticket().to_text())), "lent");
    }
    assert_eq!((publication.leases(), counts().given), (3, 3));
    others.pop().unwrap().kill();
    until("one lease is over", || publication.leases() == 2);
    assert_eq!(others[0].ask("drop"), "ok");
    until("two are over", || publication.leases() == 1);
    others.into_iter().for_each(Other::end);
    until("all are over", || publication.leases() == 0);
    drop(publication);
    before.settle();
}

#[test]
fn a_producer_that_is_stopped() {
    let _alone = alone();
    let before = baseline();
    let mut other = Other::start();
    let ticket = other.publish("publish slow");
    // SAFETY: a signal to a child of ours.
    unsafe { libc::kill(other.id() as i32, libc::SIGSTOP) };
    let threads = format!("/proc/{}/task", other.id());
    until("every thread has stopped", || {
        std::fs::read_dir(&threads).unwrap().flatten().all(|thread| {
            std::fs::read_to_string(thread.path().join("stat")).is_ok_and(|stat| stat.contains(") T "))
        })
    });
    let time = Duration::from_millis(100);
    let begin = Instant::now();
    let error = within(Duration::from_secs(2), || attach(&ticket, time).unwrap_err());
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(begin.elapsed() >= time);
    // Whoever waits is asked whether to go on, without any signal too.
    let asked = std::cell::Cell::new(0);
    let error = attach_cancellable(&ticket, HANG, &|| {
        asked.set(asked.get() + 1);
        if asked.get() < 3 { Ok(()) } else { Err(Error::new(ErrorKind::Cancelled, "that is enough")) }
    });
    assert_eq!((error.unwrap_err().kind(), asked.get()), (ErrorKind::Cancelled, 3));
    // SAFETY: as above.
    unsafe { libc::kill(other.id() as i32, libc::SIGCONT) };
    assert_eq!(read(&take(&ticket).unwrap().tensors[0]), b"slow");
    other.end();
    before.settle();
}

#[test]
fn many_threads_at_once() {
    let _alone = alone();
    let before = baseline();
    thread::scope(|scope| {
        for index in 0..8u8 {
            scope.spawn(move || {
                for round in 0..50u8 {
                    let publication = publish_bytes(&[index, round], PublishOptions::default());
                    let attached = take(publication.ticket()).unwrap();
                    drop(publication);
                    assert_eq!(read(&attached.tensors[0]), [index, round]);
                }
            });
        }
    });
    before.settle();
}

#[test]
fn the_thread_takes_no_signals() {
    let _alone = alone();
    let _publication = publish_bytes(b"x", PublishOptions::default());
    let threads = std::fs::read_dir("/proc/self/task")
        .unwrap()
        .flatten()
        .map(|thread| std::fs::read_to_string(thread.path().join("status")).unwrap_or_default());
    let status = threads.into_iter().find(|status| status.starts_with("Name:\ttensorferry-sh")).unwrap();
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
    let blocked = u64::from_str_radix(blocked.trim(), 16).unwrap();
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGCHLD, libc::SIGALRM, libc::SIGUSR1, libc::SIGPROF] {
        assert!(blocked >> (signal - 1) & 1 == 1, "{signal}");
    }
}

#[test]
fn the_socket_lies_in_a_private_folder() {
    let _alone = alone();
    let base = std::env::temp_dir().join(format!("tensorferry-base-{}", std::process::id()));
    let long = base.join("x".repeat(90));
    std::fs::create_dir_all(&long).unwrap();
    for (base, is_taken) in [(&base, true), (&long, false), (&base.join("missing"), false)] {
        let mut other = Other::start_with(&[("XDG_RUNTIME_DIR", base.as_os_str())]);
        let ticket = other.publish("publish x");
        assert_eq!(ticket.path().starts_with(base), is_taken, "{ticket:?}");
        let folder = ticket.path().parent().unwrap();
        assert_eq!(std::fs::metadata(folder).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(read(&take(&ticket).unwrap().tensors[0]), b"x");
        other.end();
        assert!(!folder.exists());
    }
    std::fs::remove_dir_all(&base).unwrap();
}
