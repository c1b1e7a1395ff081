//! Rejections: GPUs that are not visible, malicious producers, and driver calls that fail.

use crate::common::{MEMORY_KINDS, attach_ticket, fact, read, record_baseline, serialize_tests, tensor};
use crate::driver::{fail_call, is_test_driver};
use crate::fake_producer::{attach_to_fake, send};
use crate::peer_process::PeerProcess;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use tensorferry_core::{Access, DType, ErrorKind, Layout};
use tensorferry_cuda::ipc::GpuArena;
use tensorferry_share::protocol::{
    Delivery, ExportDescription, GpuDescription, MemoryDescription, MemoryLocation, Reply, TensorDescription,
};
use tensorferry_share::{PublishOptions, counts, publish};

const DEVICES_VARIABLE: &str = "TENSORFERRY_TESTDRIVER_DEVICES";

#[test]
fn gpus_are_identified_by_uuid() {
    let _serial = serialize_tests();
    let before = record_baseline();
    if !is_test_driver() {
        return;
    }
    for kind in MEMORY_KINDS {
        let publication = publish(&[tensor(kind, b"here")], b"", &PublishOptions::default()).unwrap();
        // The GPU has another index there.
        let mut reordered = PeerProcess::start_with(&[(DEVICES_VARIABLE, "1,0")]);
        assert_eq!(
            (reordered.attach(publication.ticket()), reordered.request("device")),
            ("here".into(), "1".into())
        );
        reordered.finish();
        let mut unseen = PeerProcess::start_with(&[(DEVICES_VARIABLE, "1")]);
        let reply = unseen.attach(publication.ticket());
        assert!(reply.starts_with("UnsupportedDevice: ") && reply.contains("GPU-a0a0a0a0-"), "{reply}");
        unseen.finish();
        drop(publication);
        before.wait_until_restored();
    }
}

/// A reply with one memory and a tensor of ten bytes in it.
fn encoded_reply(bytes: u64, export: ExportDescription, access: Access, event: Option<[u8; 64]>) -> Vec<u8> {
    let uuid = crate::common::gpu().uuid().unwrap().0;
    let layout = Layout::dense(1, &[10]).unwrap();
    let delivery = Delivery {
        access,
        gpus: vec![GpuDescription { uuid, event }],
        memories: vec![MemoryDescription {
            bytes,
            location: MemoryLocation::Gpu { gpu: 0, id: [1; 16], export },
        }],
        tensors: vec![TensorDescription { memory: 0, offset: 0, dtype: DType::UInt8, layout }],
        structure: vec![],
    };
    Reply::Delivery(delivery).write().unwrap()
}

#[test]
fn malicious_producers() {
    let _serial = serialize_tests();
    let before = record_baseline();
    let arena = GpuArena::new(crate::common::gpu(), 100).unwrap();
    let bytes = arena.bytes() as u64;
    let good = arena.export_handle().descriptor().unwrap();
    let null = std::fs::File::open("/dev/null").unwrap();
    let (pipe, _end) = std::io::pipe().unwrap();
    let file = host_memfd();
    let attach = |reply: Vec<u8>, descriptors: &[BorrowedFd<'_>]| {
        attach_to_fake(|stream| send(&stream, &reply, descriptors))
    };
    let rw = Access::ReadWrite;
    let by_descriptor = |bytes| encoded_reply(bytes, ExportDescription::Descriptor, rw, None);
    // The right memory under another id.
    let attached = attach(by_descriptor(bytes), &[good]).unwrap();
    assert_eq!(counts().gpu.imports, 1);
    drop(attached);
    assert!(
        fact(attach(by_descriptor(bytes), &[])).contains("announced 1 memories with descriptors and sent 0")
    );
    assert!(fact(attach(by_descriptor(bytes), &[good, good])).contains("and sent 2 descriptors"));
    for invalid in [null.as_fd(), pipe.as_fd(), file.as_fd()] {
        assert!(attach(by_descriptor(bytes), &[invalid]).is_err());
    }
    assert!(attach(by_descriptor(bytes * 2), &[good]).is_err());
    assert!(attach(by_descriptor(bytes + 1), &[good]).is_err());
    let error = attach(by_descriptor(1 << 50), &[good]).unwrap_err();
    println!("memory of a petabyte: {error}");
    for garbage in [[0; 64], [0xff; 64]] {
        let legacy = encoded_reply(bytes, ExportDescription::Legacy(garbage), rw, None);
        assert!(attach(legacy.clone(), &[]).is_err());
        assert!(fact(attach(legacy, &[good])).contains("announced 0 memories with descriptors and sent 1"));
        let event = encoded_reply(bytes, ExportDescription::Descriptor, rw, Some(garbage));
        assert!(attach(event, &[good]).is_err());
    }
    drop((arena, null, pipe, _end, file));
    before.wait_until_restored();
}

/// A file that is not GPU memory.
fn host_memfd() -> OwnedFd {
    let made = rustix::fs::memfd_create(c"test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&made, 4 << 20).unwrap();
    made
}

#[test]
fn memory_that_is_shorter_than_announced() {
    let _serial = serialize_tests();
    let before = record_baseline();
    if !is_test_driver() {
        return;
    }
    let mut peer = PeerProcess::start();
    let ticket = peer.publish("publish read-write legacy short").remove(0);
    let attached = attach_ticket(&ticket).unwrap();
    let tensorferry_share::SharedMemory::Gpu(arena) = attached.tensors[0].memory() else {
        panic!("not on a GPU")
    };
    let tensorferry_cuda::ipc::ExportHandle::Legacy(handle) = arena.export_handle() else {
        panic!("not legacy")
    };
    let long =
        encoded_reply(arena.bytes() as u64 + 1, ExportDescription::Legacy(*handle), Access::ReadWrite, None);
    let error = attach_to_fake(|stream| send(&stream, &long, &[])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidTensor, "{error}");
    drop(attached);
    peer.finish();
    before.wait_until_restored();
}

#[test]
fn failed_calls_leak_nothing() {
    let _serial = serialize_tests();
    let mut peer = PeerProcess::start();
    let before = record_baseline();
    if !is_test_driver() {
        return;
    }
    let calls: [(&str, &[&std::ffi::CStr]); 2] = [
        (
            "own",
            &[
                c"cuMemGetAllocationGranularity",
                c"cuMemImportFromShareableHandle",
                c"cuMemGetAllocationPropertiesFromHandle",
                c"cuMemAddressReserve",
                c"cuMemMap",
                c"cuMemSetAccess",
            ],
        ),
        ("legacy", &[c"cuIpcOpenMemHandle_v2", c"cuMemGetAddressRange_v2"]),
    ];
    for (kind, names) in calls {
        let ticket = peer.publish(&format!("publish read-write {kind} safe")).remove(0);
        for name in names {
            fail_call(name, 0, 719);
            assert!(attach_ticket(&ticket).is_err(), "{name:?}");
            before.wait_until_restored();
        }
        let attached = attach_ticket(&ticket).unwrap();
        assert_eq!(read(&attached.tensors[0]).unwrap(), b"safe");
        drop(attached);
        before.wait_until_restored();
    }
    let ticket = peer.publish("publish-pending 0 old new").remove(0);
    fail_call(c"cuIpcOpenEventHandle", 0, 719);
    assert!(attach_ticket(&ticket).is_err());
    before.wait_until_restored();
    // If closing fails, the mapping is leaked, but the lease ends.
    for (kind, name) in [("legacy", c"cuIpcCloseMemHandle"), ("own", c"cuMemUnmap")] {
        let ticket = peer.publish(&format!("publish read-write {kind} safe")).remove(0);
        let attached = attach_ticket(&ticket).unwrap();
        fail_call(name, 0, 719);
        drop(attached);
        assert_eq!((counts().held_leases, counts().gpu.imports), (0, 0));
    }
    peer.finish();
}
