//! Forks of producers, of consumers, and of processes with shared memory.

use crate::common::{
    attach_ticket, publish_bytes, read, record_baseline, serialize_tests, tensor, wait_until,
};
use crate::raw_calls::{self, ChildEnd, end_after, read_bytes, wait, write_bytes};
use rustix::process::Pid;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use tensorferry_share::{ArenaBlock, PublishOptions, SharedMemory, Ticket, counts, publish};

/// Forks. Returns a pipe from the child, and its process id.
fn fork(child: impl FnOnce(std::io::PipeWriter)) -> (std::io::PipeReader, Pid) {
    let (reader, writer) = std::io::pipe().unwrap();
    let process = raw_calls::fork(ChildEnd::Immediate, || {
        child(writer);
        true
    });
    (reader, process)
}

#[test]
fn both_processes_allocate_new_memory_after_a_fork() {
    let _serial = serialize_tests();
    let before = record_baseline();
    let shared = tensor(b"before");
    let SharedMemory::Host(arena) = &shared.memory else { panic!("the tensor is on a GPU") };
    let (_, child) = fork(|_| {
        let own = ArenaBlock::new(64).unwrap();
        assert!(own.arena().data() != arena.data());
        write_bytes(arena, shared.offset, b"B");
    });
    assert_eq!(wait(child), 0);
    assert_eq!(read_bytes(arena, shared.offset, 6), b"Before");
    // Memory that existed at the fork is not reused: the next block is in a new arena, which is zeros.
    drop(shared);
    let next = ArenaBlock::new(6).unwrap();
    assert_eq!((next.offset(), read_bytes(next.arena(), 0, 6)), (0, vec![0; 6]));
    drop(next);
    before.wait_until_restored();
}

#[test]
fn a_producer_that_forks() {
    let _serial = serialize_tests();
    let before = record_baseline();
    let publication = publish_bytes(b"parent", PublishOptions::default());
    let held = attach_ticket(publication.ticket()).unwrap();
    let path = publication.ticket().path().to_owned();
    let (gate, opener) = std::io::pipe().unwrap();
    let (mut reader, child) = fork(|mut writer| {
        // The child has closed the parent's server.
        let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let mut links = descriptors.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        assert!(!links.any(|link| link.to_str() == Some("anon_inode:[eventpoll]")));
        assert_eq!(
            (counts().publications, counts().granted_leases, counts().descriptors),
            (0, 0, counts().arenas + 1)
        );
        let own = publish_bytes(b"child", PublishOptions::default());
        assert!(own.ticket().path() != path);
        publication.withdraw();
        writer.write_all(own.ticket().to_text().as_bytes()).unwrap();
        drop(writer);
        (&gate).read_exact(&mut [0]).unwrap();
        wait_until("the lease of the parent has ended", || own.leases() == 0);
        // The server of the parent still replies.
        assert_eq!(read(&attach_ticket(publication.ticket()).unwrap().tensors[0]), b"parent");
    });
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    let ticket = Ticket::from_text(&text).unwrap();
    let attached = attach_ticket(&ticket).unwrap();
    assert_eq!(
        (read(&attached.tensors[0]), ticket.process()),
        (b"child".to_vec(), child.as_raw_pid() as u32)
    );
    drop(attached);
    (&opener).write_all(b"x").unwrap();
    assert_eq!(wait(child), 0);
    assert!(path.exists());
    assert_eq!(read(&attach_ticket(publication.ticket()).unwrap().tensors[0]), b"parent");
    drop((publication, held, reader, gate, opener));
    before.wait_until_restored();
}

#[test]
fn a_child_that_exits_keeps_the_directory_of_its_parent() {
    let _serial = serialize_tests();
    // The leak checker would report everything that other threads of the parent hold.
    let mut peer = crate::peer_process::PeerProcess::start_with(&[("LSAN_OPTIONS", "detect_leaks=0")]);
    let ticket = peer.publish("publish parent");
    assert_eq!(peer.request("fork"), "0");
    assert_eq!(read(&attach_ticket(&ticket).unwrap().tensors[0]), b"parent");
    peer.finish();
    assert!(!ticket.path().exists());
}

#[test]
fn a_consumer_that_forks() {
    let _serial = serialize_tests();
    let mut peer = crate::peer_process::PeerProcess::start();
    let ticket = peer.publish("publish lent");
    let before = record_baseline();
    let attached = attach_ticket(&ticket).unwrap();
    let (gate, opener) = std::io::pipe().unwrap();
    let (reader, child) = fork(|_| {
        (&gate).read_exact(&mut [0]).unwrap();
        assert_eq!(read(&attached.tensors[0]), b"lent");
        // The child can publish what it inherited.
        let tensors = [crate::peer_commands::republished(&attached.tensors[0])];
        let again = publish(&tensors, b"", &PublishOptions::default()).unwrap();
        assert_eq!(read(&attach_ticket(again.ticket()).unwrap().tensors[0]), b"lent");
    });
    // The child inherited the lease.
    drop(attached);
    // The producer handles ended leases in order: when this one has ended, the first would have as well.
    let marker = peer.publish("publish marker");
    drop(attach_ticket(&marker).unwrap());
    wait_until("the second lease has ended", || peer.request("leases") == "0");
    assert_eq!(peer.request("leases-of 0"), "1");
    (&opener).write_all(b"x").unwrap();
    assert_eq!(wait(child), 0);
    wait_until("the lease has ended", || peer.request("leases-of 0") == "0");
    drop((reader, gate, opener));
    before.wait_until_restored();
    peer.finish();
}

#[test]
fn forks_while_other_threads_share() {
    let _serial = serialize_tests();
    let before = record_baseline();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for index in 0..3u8 {
            let over = &over;
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let publication = publish_bytes(&[index; 100], PublishOptions::default());
                    assert_eq!(read(&attach_ticket(publication.ticket()).unwrap().tensors[0]), [index; 100]);
                }
            });
        }
        let statuses: Vec<i32> = (0..40)
            .map(|_| {
                let (reader, child) = fork(|_| {
                    // Only a child that waits for a lock forever takes longer.
                    end_after(300);
                    let publication = publish_bytes(b"child", PublishOptions::default());
                    assert_eq!(read(&attach_ticket(publication.ticket()).unwrap().tensors[0]), b"child");
                });
                drop(reader);
                wait(child)
            })
            .collect();
        over.store(true, Ordering::Relaxed);
        assert_eq!(statuses, [0; 40]);
    });
    before.wait_until_restored();
}
