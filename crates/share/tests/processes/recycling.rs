//! Recycling of large arenas: when the next tensor gets the memory of the last one, and when it must not.

use crate::common::{attach_ticket, read, record_baseline, serialize_tests, tensor_in, wait_until};
use crate::peer_process::PeerProcess;
use crate::raw_calls::{ChildEnd, end_after, fork, read_bytes, wait, write_bytes};
use std::io::{Read, Write};
use tensorferry_core::Access;
use tensorferry_core::pool::{self, PoolBlock};
use tensorferry_share::{ArenaBlock, Publication, PublishOptions, counts, publish, release_idle};

/// The size from which a block has an arena of its own.
const ARENA_BYTES: usize = 16 << 20;

/// A large block whose first and last byte are these.
fn large_block(bytes: usize, value: u8) -> ArenaBlock {
    let block = ArenaBlock::new(bytes).unwrap();
    write_bytes(block.arena(), 0, &[value]);
    write_bytes(block.arena(), bytes - 1, &[value]);
    block
}

/// Publishes a large tensor, and returns the address of its memory.
fn publish_large(value: u8, access: Access) -> (Publication, usize) {
    let block = large_block(ARENA_BYTES, value);
    let options = PublishOptions { access, ..PublishOptions::default() };
    let publication = publish(&[tensor_in(&block, ARENA_BYTES)], b"", &options).unwrap();
    (publication, block.data() as usize)
}

#[test]
fn a_withdrawn_tensor_leaves_its_memory_to_the_next() {
    let _serial = serialize_tests();
    let before = record_baseline();
    let mut peer = PeerProcess::start();
    for access in [Access::ReadOnly, Access::ReadWrite] {
        let (publication, address) = publish_large(b'a', access);
        drop(publication);
        assert_eq!((counts().idle.blocks, counts().idle.bytes), (1, ARENA_BYTES));
        // Neither the use by a consumer nor one in this process prevents it, once it is over.
        let (publication, same) = publish_large(b'b', access);
        assert_eq!((same, counts().idle.blocks), (address, 0));
        assert_eq!(peer.request(&format!("attach-large {}", publication.ticket().to_text())), "bb");
        drop(attach_ticket(publication.ticket()).unwrap());
        peer.request("drop");
        wait_until("the leases have ended", || publication.leases() == 0);
        drop(publication);
        assert_eq!(publish_large(b'c', access).1, address);
        release_idle();
    }
    peer.finish();
    before.wait_until_restored();
}

#[test]
fn a_consumer_that_keeps_the_memory_never_sees_the_next_tensor() {
    let _serial = serialize_tests();
    let before = record_baseline();
    for access in [Access::ReadOnly, Access::ReadWrite] {
        for kept in ["mapping", "descriptor"] {
            let mut peer = PeerProcess::start();
            let (publication, address) = publish_large(b'a', access);
            let ticket = publication.ticket().to_text();
            assert_eq!(peer.request(&format!("keep-{kept} {ticket}")), "aa");
            // The consumer has closed the connection, so that nothing but the kernel knows of it.
            wait_until("the lease has ended", || publication.leases() == 0);
            drop(publication);
            for value in b'b'..b'g' {
                let (next, other) = publish_large(value, access);
                assert!(other != address, "{access:?} {kept}");
                assert_eq!(peer.request("read-kept"), "aa");
                drop(next);
            }
            peer.request("drop-kept");
            // Two are idle by now, and the most recently used serves first.
            let [first, second] = [b'x', b'y'].map(|value| large_block(ARENA_BYTES, value));
            assert!([first.data() as usize, second.data() as usize].contains(&address), "{access:?} {kept}");
            drop((first, second));
            release_idle();
            peer.finish();
        }
    }
    before.wait_until_restored();
}

#[test]
fn a_killed_consumer_leaves_its_memory() {
    let _serial = serialize_tests();
    let before = record_baseline();
    let mut peer = PeerProcess::start();
    let (publication, address) = publish_large(b'a', Access::ReadWrite);
    peer.request(&format!("keep-mapping {}", publication.ticket().to_text()));
    wait_until("the lease has ended", || publication.leases() == 0);
    drop(publication);
    peer.kill();
    assert_eq!(publish_large(b'b', Access::ReadWrite).1, address);
    release_idle();
    before.wait_until_restored();
}

#[test]
fn small_tensors_do_not_reuse_memory_that_a_consumer_keeps() {
    let _serial = serialize_tests();
    let before = record_baseline();
    let mut peer = PeerProcess::start();
    let block = ArenaBlock::new(64).unwrap();
    write_bytes(block.arena(), block.offset(), b"a");
    let publication = publish(&[tensor_in(&block, 1)], b"", &PublishOptions::default()).unwrap();
    let first_byte = |reply: String| reply.as_bytes()[0];
    let ticket = publication.ticket().to_text();
    assert_eq!(first_byte(peer.request(&format!("keep-mapping {ticket}"))), b'a');
    wait_until("the lease has ended", || publication.leases() == 0);
    drop((publication, block));
    let next = ArenaBlock::new(64).unwrap();
    // A new arena, which is zeros.
    assert_eq!(read_bytes(next.arena(), 0, 1), [0]);
    write_bytes(next.arena(), next.offset(), b"b");
    assert_eq!(first_byte(peer.request("read-kept")), b'a');
    drop(next);
    peer.finish();
    before.wait_until_restored();
}

#[test]
fn nothing_of_an_earlier_tensor_is_behind_the_next() {
    let _serial = serialize_tests();
    let before = record_baseline();
    let longer = ARENA_BYTES + ARENA_BYTES / 4;
    for shorter in [ARENA_BYTES, ARENA_BYTES + 1, longer - 1, longer] {
        let block = ArenaBlock::new(longer).unwrap();
        let (address, whole) = (block.data() as usize, block.arena().bytes());
        write_bytes(block.arena(), 0, &vec![7; whole]);
        drop(block);
        let next = ArenaBlock::new(shorter).unwrap();
        assert_eq!((next.data() as usize, next.arena().bytes()), (address, whole));
        let publication = publish(&[tensor_in(&next, shorter)], b"", &PublishOptions::default()).unwrap();
        let attached = attach_ticket(publication.ticket()).unwrap();
        assert_eq!(read(&attached.tensors[0]).len(), shorter);
        assert!(read_bytes(next.arena(), shorter, whole - shorter).iter().all(|&byte| byte == 0));
        drop((attached, publication, next));
        release_idle();
    }
    // Half as long would waste too much.
    drop(ArenaBlock::new(2 * ARENA_BYTES).unwrap());
    drop(ArenaBlock::new(ARENA_BYTES).unwrap());
    assert_eq!(counts().idle.blocks, 2);
    before.wait_until_restored();
}

#[test]
fn a_fork_ends_recycling_in_both_processes() {
    let _serial = serialize_tests();
    let before = record_baseline();
    let used = large_block(ARENA_BYTES, b'a');
    drop(large_block(ARENA_BYTES, b'b'));
    let (gate, opener) = std::io::pipe().unwrap();
    let child = fork(ChildEnd::Immediate, || {
        // Only a child whose parent has failed takes longer.
        end_after(300);
        // Idle memory belongs to the parent.
        assert_eq!((counts().idle.blocks, pool::stats().other_idle.bytes), (0, 0));
        // The child recycles what it makes itself.
        drop(large_block(ARENA_BYTES, b'c'));
        assert_eq!(counts().idle.blocks, 1);
        (&gate).read_exact(&mut [0]).unwrap();
        read_bytes(used.arena(), 0, 1) == b"a"
    });
    drop(used);
    // Neither what was in use at the fork nor what was idle serves again.
    let blocks = [(); 3].map(|()| ArenaBlock::new(ARENA_BYTES).unwrap());
    for block in &blocks {
        assert_eq!(read_bytes(block.arena(), 0, 1), [0]);
        write_bytes(block.arena(), 0, b"d");
    }
    (&opener).write_all(b"x").unwrap();
    assert_eq!(wait(child), 0);
    drop((blocks, gate, opener));
    release_idle();
    before.wait_until_restored();
}

#[test]
fn idle_arenas_share_the_limit_of_the_pool() {
    let _serial = serialize_tests();
    let before = record_baseline();
    pool::release_idle();
    let limit = pool::stats().limit;
    pool::set_limit(3 * ARENA_BYTES);
    let blocks = [1, 2, 3, 4].map(|value| large_block(ARENA_BYTES, value));
    let pooled = PoolBlock::new(2 * ARENA_BYTES).unwrap();
    let hits = pool::stats().hits;
    drop(blocks);
    assert_eq!((counts().idle.blocks, pool::stats().idle_bytes), (3, 3 * ARENA_BYTES));
    drop(large_block(ARENA_BYTES, 5));
    assert_eq!(pool::stats().hits, hits + 1);
    // Memory that becomes idle displaces what was idle before, whichever cache holds it.
    drop(pooled);
    assert_eq!((counts().idle.blocks, pool::stats().idle_blocks), (1, 2));
    drop([6, 7].map(|value| large_block(ARENA_BYTES, value)));
    assert_eq!((counts().idle.bytes, pool::stats().idle_bytes), (2 * ARENA_BYTES, 2 * ARENA_BYTES));
    drop(large_block(4 * ARENA_BYTES, 8));
    assert_eq!(counts().idle.bytes, 2 * ARENA_BYTES);
    pool::set_limit(ARENA_BYTES);
    assert_eq!(counts().idle.bytes, ARENA_BYTES);
    pool::set_limit(0);
    drop(large_block(ARENA_BYTES, 9));
    assert_eq!(pool::stats().idle_bytes, 0);
    pool::set_limit(limit);
    drop(large_block(ARENA_BYTES, 1));
    assert_eq!(release_idle(), ARENA_BYTES);
    before.wait_until_restored();
}

#[test]
fn memory_whose_own_description_was_sent_is_not_recycled() {
    let _serial = serialize_tests();
    let before = record_baseline();
    // More than the producer opens a description of for the consumer.
    let blocks: Vec<ArenaBlock> = (0..65).map(|_| ArenaBlock::new(ARENA_BYTES).unwrap()).collect();
    let tensors: Vec<_> = blocks.iter().map(|block| tensor_in(block, ARENA_BYTES)).collect();
    let publication = publish(&tensors, b"", &PublishOptions::default()).unwrap();
    let mut peer = PeerProcess::start();
    assert_eq!(peer.request(&format!("count {}", publication.ticket().to_text())), "65");
    wait_until("the lease has ended", || publication.leases() == 0);
    drop((blocks, tensors, publication));
    assert_eq!(counts().idle.blocks, 0);
    peer.finish();
    before.wait_until_restored();
}
