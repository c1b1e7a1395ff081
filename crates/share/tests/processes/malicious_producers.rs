//! Producers that send malformed replies, or descriptors other than the announced ones.

use crate::common::{fact, record_baseline, serialize_tests};
use crate::fake_producer::{attach_to_fake, attach_to_fake_for, send};
use rustix::fs::{MemfdFlags, SealFlags};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use tensorferry_core::{Access, DType, ErrorKind, Layout};
use tensorferry_share::protocol::{
    Delivery, HEADER_BYTES, MemoryDescription, RejectReason, Reply, TensorDescription,
};

fn encoded_reply(memories: &[u64], access: Access) -> Vec<u8> {
    let layout = Layout::dense(1, &[10]).unwrap();
    let tensors = vec![TensorDescription { memory: 0, offset: 0, dtype: DType::UInt8, layout }];
    let memories = memories.iter().map(|&bytes| MemoryDescription::host(bytes)).collect();
    let delivery = Delivery { access, gpus: vec![], memories, tensors, structure: vec![] };
    Reply::Delivery(delivery).write().unwrap()
}

fn memfd(bytes: u64, seals: SealFlags) -> OwnedFd {
    let made = rustix::fs::memfd_create(c"test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&made, bytes).unwrap();
    rustix::fs::fcntl_add_seals(&made, seals).unwrap();
    made
}

const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

#[test]
fn malformed_replies() {
    let _serial = serialize_tests();
    let before = record_baseline();
    let whole = encoded_reply(&[4096], Access::ReadOnly);
    assert!(fact(attach_to_fake(drop)).contains("closed the connection"));
    assert!(fact(attach_to_fake(|stream| send(&stream, &[0x55; 4096], &[]))).contains("does not speak"));
    for length in [1, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 1, whole.len() - 1] {
        let cut = &whole[..length];
        assert!(
            fact(attach_to_fake(move |stream| send(&stream, cut, &[]))).contains("closed the connection")
        );
    }
    let mut huge = whole.clone();
    huge[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(fact(attach_to_fake(|stream| send(&stream, &huge, &[]))).contains("body of 4294967295 bytes"));
    huge[8..12].copy_from_slice(&(200u32 << 20).to_le_bytes());
    assert!(fact(attach_to_fake(|stream| send(&stream, &huge, &[]))).contains("closed the connection"));
    // The connection stays open, and nothing is sent.
    let (sender, receiver) = std::sync::mpsc::channel();
    let silent = attach_to_fake_for(Duration::from_millis(100), move |stream| sender.send(stream).unwrap());
    assert_eq!(silent.unwrap_err().kind(), ErrorKind::TimedOut);
    drop(receiver);
    let rejection =
        Reply::Rejection { reason: RejectReason::Failed, text: "a\nb".repeat(100) }.write().unwrap();
    assert!(fact(attach_to_fake(|stream| send(&stream, &rejection, &[]))).contains("was rejected: \"a\\nba"));
    before.wait_until_restored();
}

#[test]
fn descriptors_that_are_not_as_announced() {
    let _serial = serialize_tests();
    let before = record_baseline();
    let good = memfd(4096, SEALS);
    let (pipe, end) = std::io::pipe().unwrap();
    let reply = |descriptors: &[&dyn AsFd]| {
        let borrowed: Vec<BorrowedFd<'_>> = descriptors.iter().map(|one| one.as_fd()).collect();
        attach_to_fake(|stream| send(&stream, &encoded_reply(&[4096], Access::ReadWrite), &borrowed))
    };
    drop(reply(&[&good]).unwrap());
    assert!(fact(reply(&[])).contains("announced 1 memories with descriptors and sent 0 descriptors"));
    assert!(fact(reply(&[&good, &pipe, &good])).contains("announced 1 memories with descriptors and sent 3"));
    assert!(fact(reply(&[&pipe])).contains("not shared memory"));
    assert!(fact(reply(&[&memfd(4096, SealFlags::empty())])).contains("without seals"));
    assert!(fact(reply(&[&memfd(4096, SealFlags::GROW)])).contains("without seals"));
    assert!(
        fact(reply(&[&memfd(4095, SEALS)])).contains("announced 4096 bytes and sent memory of 4095 bytes")
    );
    let read_only = std::fs::File::open(format!("/proc/self/fd/{}", good.as_raw_fd())).unwrap();
    assert!(fact(reply(&[&read_only])).contains("without the announced access"));
    let sealed = memfd(4096, SEALS | SealFlags::WRITE);
    assert!(fact(reply(&[&sealed])).contains("cannot map"));
    // In several batches, with more than announced in total.
    let batches = attach_to_fake(|stream| {
        let whole = encoded_reply(&[4096, 4096], Access::ReadOnly);
        for (index, byte) in whole.iter().enumerate() {
            let batch: &[BorrowedFd<'_>] = if index % 10 == 0 { &[good.as_fd()] } else { &[] };
            send(&stream, &[*byte], batch);
        }
    });
    assert!(fact(batches).contains("announced 2 memories with descriptors and sent"));
    drop((good, pipe, end, read_only, sealed));
    before.wait_until_restored();
}
