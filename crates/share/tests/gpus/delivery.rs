//! Consumers receive the published tensors, in the same memory.

use crate::common::{
    MEMORY_KINDS, attach_ready, attach_ticket, fact, gpu, read, record_baseline, republished,
    serialize_tests, tensor, tensors, wait_until, write,
};
use crate::driver::{Exportable, PooledMemory, export, is_test_driver, order_reads};
use crate::peer_process::PeerProcess;
use std::sync::Arc;
use tensorferry_core::{Access, ErrorKind};
use tensorferry_cuda::ipc::{Allocation, ExportMethod};
use tensorferry_share::{PublishOptions, counts, publish};

const READ_ONLY: PublishOptions = PublishOptions { once: false, timeout: None, access: Access::ReadOnly };

#[test]
fn memory_of_every_kind() {
    let _serial = serialize_tests();
    let before = record_baseline();
    for kind in MEMORY_KINDS {
        let mut peer = PeerProcess::start();
        let tickets = peer.publish(&format!("publish read-write {kind} hello"));
        let attached = attach_ready(&tickets[0]).unwrap();
        let tensor = &attached.tensors[0];
        assert!(tensor.device().is_cuda() && tensor.access() == Access::ReadWrite, "{kind}");
        assert_eq!(read(tensor).unwrap(), b"hello", "{kind}");
        assert_eq!((counts().gpu.imports, attached.ready.len()), (1, 1));
        assert!(attached.ready[0].is_ready().unwrap());
        write(tensor, b"jelly").unwrap();
        assert_eq!(peer.request("read-own"), "jelly", "{kind}");
        drop(attached);
        wait_until("the lease has ended", || peer.request("leases") == "0");
        peer.finish();
        before.wait_until_restored();
    }
}

#[test]
fn an_allocation_is_opened_once() {
    let _serial = serialize_tests();
    let before = record_baseline();
    for kind in MEMORY_KINDS {
        let mut peer = PeerProcess::start();
        let tickets = peer.publish(&format!("publish read-write {kind} one two three"));
        let all: Vec<_> = tickets.iter().map(|ticket| attach_ready(ticket).unwrap()).collect();
        let words: Vec<_> = all.iter().map(|one| read(&one.tensors[0]).unwrap()).collect();
        assert_eq!(words, [&b"one"[..], b"two", b"three"], "{kind}");
        assert_eq!((counts().gpu.imports, counts().held_leases), (1, 3), "{kind}");
        assert!(all[0].tensors[0].memory().is_same(all[2].tensors[0].memory()));
        // Each ticket is a lease of its own.
        let mut all = all.into_iter();
        drop(all.next());
        wait_until("one lease has ended", || peer.request("leases") == "0,1,1");
        assert_eq!(read(&all.as_slice()[1].tensors[0]).unwrap(), b"three");
        drop(all);
        peer.finish();
        before.wait_until_restored();
    }
}

#[test]
fn a_tree_has_one_memory_for_each_allocation() {
    let _serial = serialize_tests();
    let before = record_baseline();
    let mut published = tensors("own", &[b"a", b"b", b"c"]);
    published.extend(tensors("legacy", &[b"d", b"e"]));
    let publication = publish(&published, b"tree", &PublishOptions::default()).unwrap();
    drop(published);
    let mut peer = PeerProcess::start();
    assert_eq!(peer.attach(publication.ticket()), "a,b,c,d,e");
    // Two allocations, and one event for all of them.
    assert_eq!(peer.request("counts"), "0 0 2 1");
    drop(publication);
    assert_eq!(peer.request("read"), "a,b,c,d,e");
    peer.finish();
    before.wait_until_restored();
}

#[test]
fn own_memory_is_attached_without_an_import() {
    let _serial = serialize_tests();
    let before = record_baseline();
    for kind in MEMORY_KINDS {
        let source = tensor(kind, b"own");
        let publication = publish(std::slice::from_ref(&source), b"", &PublishOptions::default()).unwrap();
        let attached = attach_ticket(publication.ticket()).unwrap();
        assert!(attached.tensors[0].memory().is_same(&source.memory), "{kind}");
        assert_eq!((read(&attached.tensors[0]).unwrap(), counts().gpu.imports), (b"own".to_vec(), 0));
        drop((attached, publication, source));
        before.wait_until_restored();
    }
}

#[test]
fn attached_memory_is_published_again() {
    let _serial = serialize_tests();
    let before = record_baseline();
    for kind in MEMORY_KINDS {
        let mut first = PeerProcess::start();
        let tickets = first.publish(&format!("publish read-write {kind} around"));
        let attached = attach_ready(&tickets[0]).unwrap();
        let publication =
            publish(&[republished(&attached.tensors[0])], b"", &PublishOptions::default()).unwrap();
        // The publication keeps the lease.
        drop(attached);
        let mut third = PeerProcess::start();
        assert_eq!(third.attach(publication.ticket()), "around", "{kind}");
        // The first process attaches its own memory.
        let back = first.attach(publication.ticket());
        assert_eq!((back, &first.request("counts")[4..]), ("around".into(), "0 1"), "{kind}");
        assert_eq!(third.request("write AROUND"), "ok");
        assert_eq!(first.request("read-own"), "AROUND");
        first.request("drop");
        drop(publication);
        assert_eq!((third.request("read"), first.request("leases")), ("AROUND".into(), "1".into()));
        third.finish();
        wait_until("the lease has ended", || first.request("leases") == "0");
        first.finish();
        before.wait_until_restored();
    }
}

#[test]
fn read_only_memory_cannot_be_written() {
    let _serial = serialize_tests();
    let before = record_baseline();
    for kind in ["own", "foreign"] {
        let source = tensor(kind, b"fixed");
        let publication = publish(std::slice::from_ref(&source), b"", &READ_ONLY).unwrap();
        let mut peer = PeerProcess::start();
        assert_eq!(peer.attach(publication.ticket()), "fixed");
        assert!(peer.request("republish read-write").contains("cannot be published as writable"));
        // The producer itself attaches it as read-only too.
        let attached = attach_ready(publication.ticket()).unwrap();
        assert_eq!(attached.tensors[0].access(), Access::ReadOnly);
        assert_eq!(read(&attached.tensors[0]).unwrap(), b"fixed");
        // With the test driver the process gets SIGSEGV. A real GPU reports an error, after which its context is
        // unusable.
        let reply = peer.try_request("write melted");
        if is_test_driver() {
            assert!(reply.is_none() && peer.has_crashed());
        } else {
            let reply = reply.unwrap();
            println!("writing to read-only memory: {reply}");
            assert!(reply.contains("Failed"), "{reply}");
            peer.kill();
        }
        assert_eq!(read(&attached.tensors[0]).unwrap(), b"fixed");
        drop((attached, publication, source));
        before.wait_until_restored();
    }
    // Legacy memory cannot be protected.
    let source = tensor("legacy", b"open");
    assert!(!source.memory.can_be_read_only());
    let error = publish(&[source], b"", &READ_ONLY).unwrap_err();
    assert_eq!((error.kind(), error.hint().is_some()), (ErrorKind::InvalidArgument, true));
    assert!(fact::<()>(Err(error)).contains("cannot be published as read-only"));
    before.wait_until_restored();
}

#[test]
fn pool_memory_is_not_exported() {
    let _serial = serialize_tests();
    let pooled = Arc::new(PooledMemory::new(gpu(), 1000));
    let found = Allocation::of(pooled.data()).unwrap();
    assert_eq!((found.export_method(), found.bytes()), (ExportMethod::None, 1000));
    let error = export(Exportable::Pool(pooled)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CopyRequired);
}

#[test]
fn streams_wait_for_another_process() {
    let _serial = serialize_tests();
    let before = record_baseline();
    // The test driver executes queued work only when something waits for it.
    let mut peer = PeerProcess::start_with(&[("TENSORFERRY_TESTDRIVER_STALLED", "1")]);
    let repeats = if is_test_driver() { 0 } else { 400 };
    let ticket = peer.publish(&format!("publish-pending {repeats} old! new!")).remove(0);
    let attached = attach_ticket(&ticket).unwrap();
    assert_eq!(counts().gpu.events, 1);
    // A consumer that does not wait reads the old value.
    let unordered = read(&attached.tensors[0]).unwrap();
    let is_ready = attached.ready[0].is_ready().unwrap();
    println!("without waiting: {unordered:?}, ready: {is_ready}");
    assert!(unordered == b"old!" && !is_ready || !is_test_driver());
    order_reads(&attached.ready[0]).unwrap();
    peer.send_line("finish");
    assert_eq!(read(&attached.tensors[0]).unwrap(), b"new!");
    assert_eq!(peer.read_reply().unwrap(), "ok");
    assert!(attached.ready[0].is_ready().unwrap());
    drop(attached);
    assert_eq!(peer.request("withdraw"), "ok");
    wait_until("the event is returned", || peer.request("counts") == "0 0 0 0");
    peer.finish();
    before.wait_until_restored();
}
