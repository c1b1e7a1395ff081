//! Consumers receive the published tensors, in the same memory.

use crate::common::{
    arena_of, attach_ticket, fact, publish_bytes, read, record_baseline, same_memory, serialize_tests,
    tensor, tensor_in, wait_until,
};
use crate::peer_commands::republished;
use crate::peer_process::PeerProcess;
use crate::raw_calls::{make_writable, write_bytes};
use std::sync::Arc;
use tensorferry_core::{Access, DType, ErrorKind, Layout};
use tensorferry_share::{Arena, ArenaBlock, PublishOptions, PublishedTensor, publish};

const READ_ONLY: PublishOptions = PublishOptions { once: false, timeout: None, access: Access::ReadOnly };

#[test]
fn a_tensor_of_another_process_is_the_same_memory() {
    let _serial = serialize_tests();
    let before = record_baseline();
    let mut peer = PeerProcess::start();
    let ticket = peer.publish("publish hello");
    assert_eq!(ticket.process(), peer.id());
    let attached = attach_ticket(&ticket).unwrap();
    let tensor = &attached.tensors[0];
    assert_eq!((read(tensor), tensor.access()), (b"hello".to_vec(), Access::ReadWrite));
    // The peer attaches it too, and writes.
    assert_eq!(peer.request(&format!("attach {}", ticket.to_text())), "hello");
    assert_eq!(peer.request("write j"), "ok");
    assert_eq!(read(tensor), b"jello");
    let (arena, offset) = arena_of(tensor);
    write_bytes(arena, offset, b"c");
    assert_eq!(peer.request("read"), "cello");
    drop(attached);
    peer.finish();
    before.wait_until_restored();
}

#[test]
fn read_only_memory_cannot_be_written() {
    let _serial = serialize_tests();
    let before = record_baseline();
    let mut peer = PeerProcess::start();
    let attached = attach_ticket(&peer.publish("publish fixed read-only")).unwrap();
    let tensor = &attached.tensors[0];
    assert_eq!((read(tensor), tensor.access()), (b"fixed".to_vec(), Access::ReadOnly));
    // The access mode of the descriptor keeps the mapping from becoming writable.
    let error = make_writable(arena_of(tensor).0).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
    // It can be published again, but only as read-only.
    let again = [republished(tensor)];
    assert!(
        fact(publish(&again, b"", &PublishOptions::default())).contains("cannot be published as writable")
    );
    let publication = publish(&again, b"", &READ_ONLY).unwrap();
    let mut third = PeerProcess::start();
    assert_eq!(third.request(&format!("attach {}", publication.ticket().to_text())), "fixed");
    third.finish();
    drop((publication, attached, again));
    peer.finish();
    before.wait_until_restored();
}

#[test]
fn one_arena_contains_many_tensors() {
    let _serial = serialize_tests();
    let before = record_baseline();
    let words: Vec<String> = (0..1000).map(|index| format!("tensor {index}")).collect();
    let tensors: Vec<PublishedTensor> = words.iter().map(|word| tensor(word.as_bytes())).collect();
    let publication = publish(&tensors, b"a tree", &READ_ONLY).unwrap();
    let attached = attach_ticket(publication.ticket()).unwrap();
    assert_eq!(attached.structure, b"a tree");
    for (word, tensor) in words.iter().zip(&attached.tensors) {
        assert_eq!(read(tensor), word.as_bytes());
        assert!(same_memory(tensor, &attached.tensors[0]));
    }
    // Attaching the same arena again maps nothing, and is a lease of its own.
    let arenas = tensorferry_share::counts().arenas;
    let second = attach_ticket(publication.ticket()).unwrap();
    assert!(same_memory(&second.tensors[0], &attached.tensors[0]));
    assert_eq!((tensorferry_share::counts().arenas, publication.leases()), (arenas, 2));
    drop(attached);
    wait_until("one lease has ended", || publication.leases() == 1);
    assert_eq!(read(&second.tensors[999]), b"tensor 999");
    drop((second, publication, tensors));
    before.wait_until_restored();
}

#[test]
fn own_memory_is_attached_without_a_mapping() {
    let _serial = serialize_tests();
    let before = record_baseline();
    let source = tensor(b"own");
    let publication = publish(std::slice::from_ref(&source), b"", &PublishOptions::default()).unwrap();
    let attached = attach_ticket(publication.ticket()).unwrap();
    assert!(attached.tensors[0].memory().is_same(&source.memory));
    drop((attached, publication, source));
    before.wait_until_restored();
}

#[test]
fn more_memories_than_descriptors_per_send() {
    let _serial = serialize_tests();
    let before = record_baseline();
    let arenas: Vec<Arc<Arena>> = (0..300).map(|_| Arena::new(4096).unwrap()).collect();
    let layout = Layout::dense(4, &[1]).unwrap();
    let tensors = arenas.iter().enumerate().map(|(index, arena)| {
        write_bytes(arena, 0, &(index as u32).to_ne_bytes());
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
        let attached = attach_ticket(publication.ticket()).unwrap();
        for (index, tensor) in attached.tensors.iter().enumerate() {
            assert_eq!(read(tensor), (index as u32).to_ne_bytes());
        }
    }
    drop((tensors, arenas));
    before.wait_until_restored();
}

#[test]
fn large_structures_and_odd_layouts() {
    let _serial = serialize_tests();
    let before = record_baseline();
    let structure: Vec<u8> = (0..16 << 20).map(|index| index as u8).collect();
    let block = ArenaBlock::new(4096).unwrap();
    let layouts = [
        Layout::strided(8, &[4, 3], &[-24, 8]).unwrap(),
        Layout::strided(8, &[], &[]).unwrap(),
        Layout::strided(8, &[0, 7], &[8, -9]).unwrap(),
        Layout::strided(8, &[5], &[0]).unwrap(),
        Layout::strided(8, &[1; 64], &[8; 64]).unwrap(),
    ];
    let tensors = layouts.clone().map(|layout| PublishedTensor {
        memory: block.arena().clone().into(),
        offset: block.offset() + 96,
        dtype: DType::Float64,
        layout,
    });
    let publication = publish(&tensors, &structure, &PublishOptions::default()).unwrap();
    let attached = attach_ticket(publication.ticket()).unwrap();
    assert!(attached.structure == structure);
    for (tensor, layout) in attached.tensors.iter().zip(&layouts) {
        assert!(tensor.layout() == layout && tensor.data() == block.data().wrapping_add(96));
    }
    let longer = vec![0; (16 << 20) + 1];
    assert!(fact(publish(&tensors, &longer, &PublishOptions::default())).contains("bytes of tree structure"));
    let mut outside = tensor_in(&block, 10);
    outside.offset = outside.memory.bytes() - 9;
    assert!(fact(publish(&[outside], b"", &PublishOptions::default())).contains("does not fit"));
    drop((publication, attached, tensors, block));
    before.wait_until_restored();
}

#[test]
fn an_empty_publication() {
    let _serial = serialize_tests();
    let publication = publish(&[], b"", &PublishOptions::default()).unwrap();
    let attached = attach_ticket(publication.ticket()).unwrap();
    assert!(attached.tensors.is_empty() && attached.structure.is_empty());
}

#[test]
fn attached_tensors_are_published_again() {
    let _serial = serialize_tests();
    let before = record_baseline();
    let (mut first, mut second) = (PeerProcess::start(), PeerProcess::start());
    let ticket = first.publish("publish relay once");
    assert_eq!(second.request(&format!("attach {}", ticket.to_text())), "relay");
    let again = second.publish("republish read-write");
    assert_eq!(again.process(), second.id());
    let attached = attach_ticket(&again).unwrap();
    assert_eq!(
        (read(&attached.tensors[0]), &attached.structure[..]),
        (b"relay".to_vec(), &b"republished"[..])
    );
    // The peer in the middle drops its tensor, but its publication keeps the lease.
    assert_eq!(second.request("drop"), "ok");
    assert_eq!(first.request("leases"), "1");
    // When it is killed, its lease ends, but the memory is not reused.
    second.kill();
    wait_until("the lease has ended", || first.request("leases") == "0");
    assert_eq!(first.request("withdraw"), "ok");
    let fresh = first.publish("publish other");
    assert_eq!(read(&attached.tensors[0]), b"relay");
    assert_eq!(read(&attach_ticket(&fresh).unwrap().tensors[0]), b"other");
    drop(attached);
    first.finish();
    before.wait_until_restored();
}

#[test]
fn a_ticket_with_another_socket_path() {
    let _serial = serialize_tests();
    let publication = publish_bytes(b"x", PublishOptions::default());
    let ticket = publication.ticket();
    let error = attach_ticket(
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
    assert!(error.fact().contains("is unreachable"));
}
