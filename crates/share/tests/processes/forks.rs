//! Forks: of a producer, of a consumer, and of whoever has shared memory.

use crate::common::{alone, baseline, publish_bytes, read, take, tensor, until};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use tensorferry_share::{ArenaBlock, PublishOptions, Ticket, counts, publish};

/// Forks, and gives what the child wrote, and its number.
fn fork(child: impl FnOnce(std::io::PipeWriter)) -> (std::io::PipeReader, i32) {
    let (reader, writer) = std::io::pipe().unwrap();
    // SAFETY: the child does what the crate promises to work after a fork, and leaves without unwinding.
    let process = unsafe { libc::fork() };
    if process == 0 {
        drop(reader);
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| child(writer)));
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(done.is_err())) };
    }
    (reader, process)
}

fn wait(process: i32) -> i32 {
    let mut status = 0;
    // SAFETY: the child is ours, and the number lives through the call.
    assert_eq!(unsafe { libc::waitpid(process, &raw mut status, 0) }, process);
    status
}

#[test]
fn both_have_memory_of_their_own_afterwards() {
    let _alone = alone();
    let before = baseline();
    let shared = tensor(b"before");
    let address = shared.memory.data().wrapping_add(shared.offset);
    let (_, child) = fork(|_| {
        let own = ArenaBlock::new(64).unwrap();
        assert!(own.arena().data() != shared.memory.data());
        // SAFETY: shared memory, which the parent reads later.
        unsafe { address.write_volatile(b'B') };
    });
    assert_eq!(wait(child), 0);
    // SAFETY: the child is gone.
    assert_eq!(unsafe { address.read_volatile() }, b'B');
    // What was there at the fork is not laid over: the next piece lies in new memory, which is zeros.
    drop(shared);
    let next = ArenaBlock::new(6).unwrap();
    // SAFETY: memory of ours.
    assert_eq!((next.offset(), unsafe { next.data().read_volatile() }), (0, 0));
    drop(next);
    before.settle();
}

#[test]
fn a_producer_that_forks() {
    let _alone = alone();
    let before = baseline();
    let publication = publish_bytes(b"parent", PublishOptions::default());
    let held = take(publication.ticket()).unwrap();
    let path = publication.ticket().path().to_owned();
    let (gate, opener) = std::io::pipe().unwrap();
    let (mut reader, child) = fork(|mut writer| {
        // Nothing of the parent's server is open or answered for here.
        assert_eq!(
            (counts().publications, counts().given, counts().descriptors),
            (0, 0, counts().arenas + 1)
        );
        let own = publish_bytes(b"child", PublishOptions::default());
        assert!(own.ticket().path() != path);
        publication.withdraw();
        writer.write_all(own.ticket().to_text().as_bytes()).unwrap();
        drop(writer);
        (&gate).read_exact(&mut [0]).unwrap();
        until("the parent has let go", || own.leases() == 0);
        // The parent still answers.
        assert_eq!(read(&take(publication.ticket()).unwrap().tensors[0]), b"parent");
    });
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    let ticket = Ticket::from_text(&text).unwrap();
    let attached = take(&ticket).unwrap();
    assert_eq!((read(&attached.tensors[0]), ticket.process()), (b"child".to_vec(), child as u32));
    drop(attached);
    (&opener).write_all(b"x").unwrap();
    assert_eq!(wait(child), 0);
    assert!(path.exists());
    assert_eq!(read(&take(publication.ticket()).unwrap().tensors[0]), b"parent");
    drop((publication, held, reader, gate, opener));
    before.settle();
}

#[test]
fn a_child_that_ends_leaves_the_folder_of_its_parent() {
    let _alone = alone();
    // To a search for leaks in the child, all that the parent's other threads hold is one.
    let mut other = crate::peer_process::Other::start_with(&[("LSAN_OPTIONS", "detect_leaks=0")]);
    let ticket = other.publish("publish parent");
    assert_eq!(other.ask("fork"), "0");
    assert_eq!(read(&take(&ticket).unwrap().tensors[0]), b"parent");
    other.end();
    assert!(!ticket.path().exists());
}

#[test]
fn a_consumer_that_forks() {
    let _alone = alone();
    let mut other = crate::peer_process::Other::start();
    let ticket = other.publish("publish lent");
    let before = baseline();
    let attached = take(&ticket).unwrap();
    let (gate, opener) = std::io::pipe().unwrap();
    let (reader, child) = fork(|_| {
        (&gate).read_exact(&mut [0]).unwrap();
        assert_eq!(read(&attached.tensors[0]), b"lent");
        // What the child inherited it can hand on.
        let tensors = [crate::peer_commands::outgoing(&attached.tensors[0])];
        let again = publish(&tensors, b"", &PublishOptions::default()).unwrap();
        assert_eq!(read(&take(again.ticket()).unwrap().tensors[0]), b"lent");
    });
    // The lease is the child's as well.
    drop(attached);
    // The producer notices what ends in its order: this would be noticed after the other lease.
    let marker = other.publish("publish marker");
    drop(take(&marker).unwrap());
    until("the second lease is over", || other.ask("leases") == "0");
    assert_eq!(other.ask("leases-of 0"), "1");
    (&opener).write_all(b"x").unwrap();
    assert_eq!(wait(child), 0);
    until("the lease is over", || other.ask("leases-of 0") == "0");
    drop((reader, gate, opener));
    before.settle();
    other.end();
}

#[test]
fn forks_while_other_threads_share() {
    let _alone = alone();
    let before = baseline();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for index in 0..3u8 {
            let over = &over;
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let publication = publish_bytes(&[index; 100], PublishOptions::default());
                    assert_eq!(read(&take(publication.ticket()).unwrap().tensors[0]), [index; 100]);
                }
            });
        }
        let statuses: Vec<i32> = (0..40)
            .map(|_| {
                let (reader, child) = fork(|_| {
                    // SAFETY: a child that waits for a lock for good is ended by a signal.
                    unsafe { libc::alarm(10) };
                    let publication = publish_bytes(b"child", PublishOptions::default());
                    assert_eq!(read(&take(publication.ticket()).unwrap().tensors[0]), b"child");
                });
                drop(reader);
                wait(child)
            })
            .collect();
        over.store(true, Ordering::Relaxed);
        assert_eq!(statuses, [0; 40]);
    });
    before.settle();
}
