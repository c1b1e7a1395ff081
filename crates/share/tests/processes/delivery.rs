//! What arrives is what was published, and it is the same memory.

use crate::common::{alone, baseline, fact, placed, publish_bytes, read, same_memory, take, tensor, until};
use crate::peer_commands::outgoing;
use crate::peer_process::Other;
use std::sync::Arc;
use tensorferry_core::{Access, DType, ErrorKind, Layout};
use tensorferry_share::{Arena, ArenaBlock, PublishOptions, PublishedTensor, publish};

const READ_ONLY: PublishOptions = PublishOptions { once: false, timeout: None, access: Access::ReadOnly };

#[test]
fn a_tensor_of_another_process_is_the_same_memory() {
    let _alone = alone();
    let before = baseline();
    let mut other = Other::start();
    let ticket = other.publish("publish hello");
    assert_eq!(ticket.process(), other.id());
    let attached = take(&ticket).unwrap();
    let tensor = &attached.tensors[0];
    assert_eq!((read(tensor), tensor.access()), (b"hello".to_vec(), Access::ReadWrite));
    // The other attaches it too, and writes.
    assert_eq!(other.ask(&format!("attach {}", ticket.to_text())), "hello");
    assert_eq!(other.ask("write j"), "ok");
    assert_eq!(read(tensor), b"jello");
    // SAFETY: memory that was handed over for writing, while the other waits.
    unsafe { tensor.data().write_volatile(b'c') };
    assert_eq!(other.ask("read"), "cello");
    drop(attached);
    other.end();
    before.settle();
}

#[test]
fn read_only_memory_cannot_be_written() {
    let _alone = alone();
    let before = baseline();
    let mut other = Other::start();
    let attached = take(&other.publish("publish frozen read-only")).unwrap();
    let tensor = &attached.tensors[0];
    assert_eq!((read(tensor), tensor.access()), (b"frozen".to_vec(), Access::ReadOnly));
    // The mapping cannot be made writable, which the system decides by the descriptor that was sent.
    // SAFETY: a change that is refused changes nothing.
    let status = unsafe {
        libc::mprotect(
            tensor.memory().data().cast(),
            tensor.memory().bytes(),
            libc::PROT_READ | libc::PROT_WRITE,
        )
    };
    assert_eq!((status, std::io::Error::last_os_error().raw_os_error()), (-1, Some(libc::EACCES)));
    // It can be handed on, as read-only and not otherwise.
    let again = [outgoing(tensor)];
    assert!(
        fact(publish(&again, b"", &PublishOptions::default())).contains("cannot be handed on for writing")
    );
    let publication = publish(&again, b"", &READ_ONLY).unwrap();
    let mut third = Other::start();
    assert_eq!(third.ask(&format!("attach {}", publication.ticket().to_text())), "frozen");
    third.end();
    drop((publication, attached, again));
    other.end();
    before.settle();
}

#[test]
fn one_arena_serves_many_tensors() {
    let _alone = alone();
    let before = baseline();
    let words: Vec<String> = (0..1000).map(|index| format!("tensor {index}")).collect();
    let tensors: Vec<PublishedTensor> = words.iter().map(|word| tensor(word.as_bytes())).collect();
    let publication = publish(&tensors, b"a tree", &READ_ONLY).unwrap();
    let attached = take(publication.ticket()).unwrap();
    assert_eq!(attached.structure, b"a tree");
    for (word, tensor) in words.iter().zip(&attached.tensors) {
        assert_eq!(read(tensor), word.as_bytes());
        assert!(same_memory(tensor, &attached.tensors[0]));
    }
    // A second ticket for the same arena maps nothing, and is a lease of its own.
    let arenas = tensorferry_share::counts().arenas;
    let second = take(publication.ticket()).unwrap();
    assert!(same_memory(&second.tensors[0], &attached.tensors[0]));
    assert_eq!((tensorferry_share::counts().arenas, publication.leases()), (arenas, 2));
    drop(attached);
    until("one lease is over", || publication.leases() == 1);
    assert_eq!(read(&second.tensors[999]), b"tensor 999");
    drop((second, publication, tensors));
    before.settle();
}

#[test]
fn what_is_ours_is_attached_as_it_is() {
    let _alone = alone();
    let before = baseline();
    let source = tensor(b"own");
    let publication = publish(std::slice::from_ref(&source), b"", &PublishOptions::default()).unwrap();
    let attached = take(publication.ticket()).unwrap();
    assert!(attached.tensors[0].memory().is_same(&source.memory));
    drop((attached, publication, source));
    before.settle();
}

#[test]
fn more_memories_than_go_at_once() {
    let _alone = alone();
    let before = baseline();
    let arenas: Vec<Arc<Arena>> = (0..300).map(|_| Arena::new(4096).unwrap()).collect();
    let layout = Layout::dense(4, &[1]).unwrap();
    let tensors = arenas.iter().enumerate().map(|(index, arena)| {
        // SAFETY: new memory, which is aligned and nobody else's.
        unsafe { arena.data().cast::<u32>().write(index as u32) };
        PublishedTensor {
            memory: arena.clone().into(),
            offset: 0,
            dtype: DType::UInt32,
            layout: layout.clone(),
        }
    });
    let tensors: Vec<PublishedTensor> = tensors.collect();
    for options in [READ_ONLY, PublishOptions::default()] {
        let publication = publish(&tensors, b"", &options).unwrap();
        let attached = take(publication.ticket()).unwrap();
        for (index, tensor) in attached.tensors.iter().enumerate() {
            // SAFETY: aligned, mapped, and written by nobody now.
            assert_eq!(unsafe { tensor.data().cast::<u32>().read() }, index as u32);
        }
    }
    drop((tensors, arenas));
    before.settle();
}

#[test]
fn large_structures_and_odd_layouts() {
    let _alone = alone();
    let before = baseline();
    let structure: Vec<u8> = (0..16 << 20).map(|index| index as u8).collect();
    let piece = ArenaBlock::new(4096).unwrap();
    let layouts = [
        Layout::strided(8, &[4, 3], &[-24, 8]).unwrap(),
        Layout::strided(8, &[], &[]).unwrap(),
        Layout::strided(8, &[0, 7], &[8, -9]).unwrap(),
        Layout::strided(8, &[5], &[0]).unwrap(),
        Layout::strided(8, &[1; 64], &[8; 64]).unwrap(),
    ];
    let tensors = layouts.clone().map(|layout| PublishedTensor {
        memory: piece.arena().clone().into(),
        offset: piece.offset() + 96,
        dtype: DType::Float64,
        layout,
    });
    let publication = publish(&tensors, &structure, &PublishOptions::default()).unwrap();
    let attached = take(publication.ticket()).unwrap();
    assert!(attached.structure == structure);
    for (tensor, layout) in attached.tensors.iter().zip(&layouts) {
        assert!(tensor.layout() == layout && tensor.data() == piece.data().wrapping_add(96));
    }
    let longer = vec![0; (16 << 20) + 1];
    assert!(fact(publish(&tensors, &longer, &PublishOptions::default())).contains("bytes of structure"));
    let mut outside = placed(&piece, 10);
    outside.offset = outside.memory.bytes() - 9;
    assert!(fact(publish(&[outside], b"", &PublishOptions::default())).contains("does not fit"));
    drop((publication, attached, tensors, piece));
    before.settle();
}

#[test]
fn nothing_at_all_can_be_published() {
    let _alone = alone();
    let publication = publish(&[], b"", &PublishOptions::default()).unwrap();
    let attached = take(publication.ticket()).unwrap();
    assert!(attached.tensors.is_empty() && attached.structure.is_empty());
}

#[test]
fn what_was_received_is_published_again() {
    let _alone = alone();
    let before = baseline();
    let (mut first, mut second) = (Other::start(), Other::start());
    let ticket = first.publish("publish relay once");
    assert_eq!(second.ask(&format!("attach {}", ticket.to_text())), "relay");
    let again = second.publish("again read-write");
    assert_eq!(again.process(), second.id());
    let attached = take(&again).unwrap();
    assert_eq!((read(&attached.tensors[0]), &attached.structure[..]), (b"relay".to_vec(), &b"again"[..]));
    // The one in the middle lets go of its tensor, but what it has published holds on to its lease.
    assert_eq!(second.ask("drop"), "ok");
    assert_eq!(first.ask("leases"), "1");
    // When it is killed, its lease ends, and the memory is still not used for anything else.
    second.kill();
    until("the lease is over", || first.ask("leases") == "0");
    assert_eq!(first.ask("withdraw"), "ok");
    let fresh = first.publish("publish other");
    assert_eq!(read(&attached.tensors[0]), b"relay");
    assert_eq!(read(&take(&fresh).unwrap().tensors[0]), b"other");
    drop(attached);
    first.end();
    before.settle();
}

#[test]
fn tickets_of_another_kind_of_process() {
    let _alone = alone();
    let publication = publish_bytes(b"x", PublishOptions::default());
    let ticket = publication.ticket();
    let error = take(
        &tensorferry_share::Ticket::new(
            "/nowhere".into(),
            *ticket.id(),
            [0; 16],
            ticket.process(),
            ticket.start(),
        )
        .unwrap(),
    )
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TicketRejected);
    assert!(error.fact().contains("leads nowhere"));
}
