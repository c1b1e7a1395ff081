//! What arrives is what was published, and it is the same memory.

use crate::common::{
    KINDS, again, alone, baseline, fact, gpu, read, take, take_ready, tensor, tensors, until, write,
};
use crate::driver::{Pooled, is_stand_in};
use crate::peer_process::Other;
use tensorferry_core::{Access, ErrorKind};
use tensorferry_cuda::ipc::{Allocation, ExportMethod};
use tensorferry_share::{PublishOptions, counts, publish};

const READ_ONLY: PublishOptions = PublishOptions { once: false, timeout: None, access: Access::ReadOnly };

#[test]
fn memory_of_every_kind() {
    let _alone = alone();
    let before = baseline();
    for kind in KINDS {
        let mut other = Other::start();
        let tickets = other.publish(&format!("publish read-write {kind} hello"));
        let attached = take_ready(&tickets[0]).unwrap();
        let tensor = &attached.tensors[0];
        assert!(tensor.device().is_cuda() && tensor.access() == Access::ReadWrite, "{kind}");
        assert_eq!(read(tensor).unwrap(), b"hello", "{kind}");
        assert_eq!((counts().gpu.imports, attached.ready.len()), (1, 1));
        assert!(attached.ready[0].is_now().unwrap());
        // It is the same memory.
        write(gpu(), tensor.data(), b"jelly").unwrap();
        assert_eq!(other.ask("look"), "jelly", "{kind}");
        drop(attached);
        until("the lease is over", || other.ask("leases") == "0");
        other.end();
        before.settle();
    }
}

#[test]
fn an_allocation_is_opened_once() {
    let _alone = alone();
    let before = baseline();
    for kind in KINDS {
        let mut other = Other::start();
        let tickets = other.publish(&format!("publish read-write {kind} one two three"));
        let all: Vec<_> = tickets.iter().map(|ticket| take_ready(ticket).unwrap()).collect();
        let words: Vec<_> = all.iter().map(|one| read(&one.tensors[0]).unwrap()).collect();
        assert_eq!(words, [&b"one"[..], b"two", b"three"], "{kind}");
        assert_eq!((counts().gpu.imports, counts().held), (1, 3), "{kind}");
        assert!(all[0].tensors[0].memory().is_same(all[2].tensors[0].memory()));
        // Each ticket is a lease of its own.
        let mut all = all.into_iter();
        drop(all.next());
        until("one lease is over", || other.ask("leases") == "0,1,1");
        assert_eq!(read(&all.as_slice()[1].tensors[0]).unwrap(), b"three");
        drop(all);
        other.end();
        before.settle();
    }
}

#[test]
fn a_tree_has_one_memory_for_each_allocation() {
    let _alone = alone();
    let before = baseline();
    let mut outgoing = tensors("own", &[b"a", b"b", b"c"]);
    outgoing.extend(tensors("plain", &[b"d", b"e"]));
    let publication = publish(&outgoing, b"tree", &PublishOptions::default()).unwrap();
    drop(outgoing);
    let mut other = Other::start();
    assert_eq!(other.attach(publication.ticket()), "a,b,c,d,e");
    // Two allocations, and one event for all of them.
    assert_eq!(other.ask("counts"), "0 0 2 1");
    drop(publication);
    assert_eq!(other.ask("read"), "a,b,c,d,e");
    other.end();
    before.settle();
}

#[test]
fn what_is_ours_comes_back_as_it_is() {
    let _alone = alone();
    let before = baseline();
    for kind in KINDS {
        let source = tensor(kind, b"own");
        let publication = publish(std::slice::from_ref(&source), b"", &PublishOptions::default()).unwrap();
        let attached = take(publication.ticket()).unwrap();
        assert!(attached.tensors[0].memory().is_same(&source.memory), "{kind}");
        assert_eq!((read(&attached.tensors[0]).unwrap(), counts().gpu.imports), (b"own".to_vec(), 0));
        drop((attached, publication, source));
        before.settle();
    }
}

#[test]
fn received_memory_is_published_again() {
    let _alone = alone();
    let before = baseline();
    for kind in KINDS {
        let mut first = Other::start();
        let tickets = first.publish(&format!("publish read-write {kind} around"));
        let attached = take_ready(&tickets[0]).unwrap();
        let publication = publish(&[again(&attached.tensors[0])], b"", &PublishOptions::default()).unwrap();
        // The lease goes on with the publication.
        drop(attached);
        let mut third = Other::start();
        assert_eq!(third.attach(publication.ticket()), "around", "{kind}");
        // And back to where it came from.
        let back = first.attach(publication.ticket());
        assert_eq!((back, &first.ask("counts")[4..]), ("around".into(), "0 1"), "{kind}");
        assert_eq!(third.ask("write AROUND"), "ok");
        assert_eq!(first.ask("look"), "AROUND");
        first.ask("drop");
        drop(publication);
        assert_eq!((third.ask("read"), first.ask("leases")), ("AROUND".into(), "1".into()));
        third.end();
        until("the lease is over", || first.ask("leases") == "0");
        first.end();
        before.settle();
    }
}

#[test]
fn read_only_memory_cannot_be_written() {
    let _alone = alone();
    let before = baseline();
    for kind in ["own", "theirs"] {
        let source = tensor(kind, b"frozen");
        let publication = publish(std::slice::from_ref(&source), b"", &READ_ONLY).unwrap();
        let mut other = Other::start();
        assert_eq!(other.attach(publication.ticket()), "frozen");
        assert!(other.ask("again read-write").contains("cannot be handed on for writing"));
        // Here too, where it can be written by another address.
        let attached = take_ready(publication.ticket()).unwrap();
        assert_eq!(attached.tensors[0].access(), Access::ReadOnly);
        assert_eq!(read(&attached.tensors[0]).unwrap(), b"frozen");
        // On the stand-in the system stops it; a GPU fails, and its context with it.
        let answer = other.try_ask("write melted");
        if is_stand_in() {
            assert!(answer.is_none() && other.crashed());
        } else {
            let answer = answer.unwrap();
            println!("writing to read-only memory: {answer}");
            assert!(answer.contains("Failed"), "{answer}");
            other.kill();
        }
        assert_eq!(read(&attached.tensors[0]).unwrap(), b"frozen");
        drop((attached, publication, source));
        before.settle();
    }
    // What cannot be protected is refused.
    let source = tensor("plain", b"open");
    assert!(!source.memory.can_be_read_only());
    let error = publish(&[source], b"", &READ_ONLY).unwrap_err();
    assert_eq!((error.kind(), error.hint().is_some()), (ErrorKind::InvalidArgument, true));
    assert!(fact::<()>(Err(error)).contains("cannot be protected"));
    before.settle();
}

#[test]
fn memory_of_pools_is_not_exported() {
    let _alone = alone();
    let pooled = Pooled::new(gpu(), 1000);
    let found = Allocation::of(pooled.data()).unwrap();
    assert_eq!((found.way(), found.bytes()), (ExportMethod::None, 1000));
    // SAFETY: it is refused.
    let error = unsafe { found.export(Box::new(())) }.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CopyRequired);
}

#[test]
fn streams_wait_for_another_process() {
    let _alone = alone();
    let before = baseline();
    // The stand-in does nothing by itself.
    let mut other = Other::start_with(&[("TENSORFERRY_TESTDRIVER_STALLED", "1")]);
    let repeats = if is_stand_in() { 0 } else { 400 };
    let ticket = other.publish(&format!("late {repeats} old! new!")).remove(0);
    let attached = take(&ticket).unwrap();
    assert_eq!(counts().gpu.events, 1);
    // Who does not wait is too early.
    let early = read(&attached.tensors[0]).unwrap();
    let is_now = attached.ready[0].is_now().unwrap();
    println!("without waiting: {early:?}, ready: {is_now}");
    assert!(early == b"old!" && !is_now || !is_stand_in());
    // SAFETY: a stream of ours.
    unsafe {
        attached.ready[0].order(tensorferry_cuda::SyncPoint::Stream(gpu().sync_stream().unwrap())).unwrap()
    };
    other.say("finish");
    assert_eq!(read(&attached.tensors[0]).unwrap(), b"new!");
    assert_eq!(other.hear().unwrap(), "ok");
    assert!(attached.ready[0].is_now().unwrap());
    drop(attached);
    assert_eq!(other.ask("withdraw"), "ok");
    until("the event is returned", || other.ask("counts") == "0 0 0 0");
    other.end();
    before.settle();
}
